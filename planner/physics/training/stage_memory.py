"""Bytes on the GPUs of each pipeline stage: state, activations in flight, working memory and logits."""

import math
from dataclasses import dataclass

import numpy as np

from planner.physics.num import Num
from planner.physics.training import layer_time, memory, schedule
from planner.physics.training.memory import Recompute
from planner.physics.training.operations import Machine, Shape
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.process_groups import Weights, layer_kinds, weights_of
from planner.physics.training.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """Activation bytes of one mean layer and micro-batch on one GPU.

    `kept` stands between the passes, `checkpoint` instead of it where the layer is recomputed, and `in_work` while
    such a layer runs again.
    """

    kept: float
    checkpoint: float
    in_work: float


def layer_bytes(m: Machine, s: Shape) -> LayerBytes:
    """Compute what a layer stores, in bytes: the mean over the model's kinds of layers (Korthikanti 2022, eqs. 1-4).

    Flash kernels keep neither scores nor the masks of dropout (Dao 2022).
    """
    flash = m.software.flash_attention
    mode: Recompute = "selective" if flash else s.recompute

    def stored(recompute: Recompute) -> float:
        by_kind = (
            kind.layers
            * memory.activation_bytes_per_layer(
                m.model,
                m.sequence,
                s.micro_batch,
                tensor_parallel=s.tensor_parallel,
                recompute=recompute,
                sequence_parallel=s.sequence_parallel,
                element_bytes=m.precision.activation_bytes,
                mask_bytes=0.0 if flash else 1.0,
                context_parallel=s.context_parallel,
                routed=kind.routed,
            )
            for kind in layer_kinds(m.model)
        )
        return float(math.fsum(by_kind)) / m.model.layers

    dropped = m.software.selective_gemm_share if s.recompute == "selective" else 0.0
    return LayerBytes(kept=stored(mode) * (1 - dropped), checkpoint=stored("full"), in_work=stored("selective"))


def gpu_state_bytes(m: Machine, s: Shape, w: Weights, *, layers: Num, ends: Num, zero_stage: int, replicas: Num) -> Num:
    """Compute the bytes of weights, gradients and optimiser on one GPU, for so many layers and embeddings.

    ZeRO shards them over `replicas` and over the CP ranks, which have the same weights; routed experts are on fewer
    GPUs and are sharded over those (Rajbhandari 2020). The framework's flat copies and buckets are counted too.
    """

    def state(parameters: Num, shards: Num) -> Num:
        divided = m.software.sharded_buffer_bytes_per_parameter / (shards if zero_stage >= 1 else 1)
        own = memory.state_bytes(parameters, m.precision, zero_stage=zero_stage, shards=shards)
        return own + parameters * (m.software.buffer_bytes_per_parameter + divided)

    shared = state(layers * w.shared + ends * w.end, replicas * s.context_parallel)
    if not w.experts:
        return shared
    return shared + state(layers * w.experts, np.maximum(1, replicas * s.gpus / s.expert_parallel))


def memory_by_part(
    m: Machine,
    s: Shape,
    *,
    pipeline: Num,
    virtual_stages: Num,
    micro_batches: Num,
    zero_stage: int,
    replicas: Num,
    stage: Num,
    layers: Num,
    recomputed: Num = 0,
    order: Schedule = "1f1b",
) -> dict[str, Num]:
    """Compute the bytes by part on a GPU of a stage with `layers` layers, `recomputed` of them fully.

    Broadcasts over everything but the shape. An interleaved stage keeps its chunks in flight, the largest with
    ceil(l/v) layers; recomputed layers are spread over all chunks.
    """
    w, each = weights_of(m, s), layer_bytes(m, s)
    stage, layers, recomputed = np.asarray(stage), np.asarray(layers), np.asarray(recomputed)
    in_flight = schedule.chunks_in_flight(order, stage, pipeline, virtual_stages, micro_batches)
    share = recomputed / np.maximum(layers, 1)
    chunk = layer_time.layers_per_chunk(layers, virtual_stages) * (each.kept + share * (each.checkpoint - each.kept))
    working = np.where(recomputed > 0, each.in_work, 0.0)
    if zero_stage >= 3:  # one layer's gathered weights are in use while the next layer's arrive
        working = working + 2 * w.layer * m.precision.working_parameter_bytes
    ends = memory.end_copies(m.model, stage, pipeline)
    logits = memory.logits_bytes(
        m.model,
        m.sequence,
        s.micro_batch,
        s.tensor_parallel,
        context_parallel=s.context_parallel,
        logit_bytes=m.software.logit_memory_bytes,
    )
    return {
        "state": gpu_state_bytes(m, s, w, layers=layers, ends=ends, zero_stage=zero_stage, replicas=replicas),
        "activations": in_flight * chunk,
        "working": working,
        "logits": (stage == np.asarray(pipeline) - 1) * logits,
    }


def memory_by_stage(m: Machine, strategy: ParallelStrategy) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Compute the bytes by part on a GPU of every stage."""
    stages = np.arange(strategy.pipeline_parallel)
    parts = memory_by_part(
        m,
        strategy.shape,
        pipeline=strategy.pipeline_parallel,
        virtual_stages=strategy.virtual_stages,
        micro_batches=strategy.micro_batches,
        zero_stage=strategy.zero_stage,
        replicas=strategy.min_replicas,
        stage=stages,
        layers=np.array(strategy.layers_per_stage),
        recomputed=np.array(strategy.recomputed),
        order=strategy.schedule,
    )
    return {k: np.broadcast_to(np.asarray(v, dtype=np.float64), stages.shape) for k, v in parts.items()}


def worst_memory(m: Machine, strategy: ParallelStrategy) -> dict[str, float]:
    """Return the bytes by part on the fullest GPU."""
    parts = memory_by_stage(m, strategy)
    worst = int(np.argmax(sum(parts.values())))
    return {k: float(v[worst]) for k, v in parts.items()}


def stage_gradient_bytes(m: Machine, s: Shape, layers: Num, *, stage: Num, pipeline: int) -> Num:
    """Compute the gradient bytes of all TP ranks and experts of a stage: what the sites exchange for it."""
    w = weights_of(m, s)
    weights = layers * (w.shared * s.tensor_parallel + w.experts * s.expert_parallel)
    return (weights + memory.stage_extra_parameters(m.model, stage, pipeline)) * m.precision.gradient_bytes
