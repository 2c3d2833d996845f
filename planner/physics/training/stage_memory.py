"""Bytes on the GPUs of each pipeline stage: state, activations in flight, working memory and logits."""

from dataclasses import dataclass, replace

import numpy as np

from planner.instance.workload import RecomputeModule
from planner.physics.num import Num
from planner.physics.training import memory, schedule
from planner.physics.training.operations import (
    COMPUTE_BYTES,
    LayerShape,
    Machine,
    Recompute,
    attends_in_fp8,
    gathered_bytes,
    weight_cast_bytes,
)
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.process_groups import Weights, front_by_stage, front_layers, layer_kinds, weights_of
from planner.physics.training.schedule import Schedule
from planner.physics.training.transformer import attention_parameters, expert_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """Activation bytes of one layer and micro-batch on one GPU.

    `kept` is held between the passes, `checkpoint` instead of it where the layer is recomputed, and `in_work` while
    such a layer runs again. `selective` is made once more for the backward pass of a layer under selective recompute,
    without unfused scores. `gradients` are those of the widest tensors as the backward pass begins. `offloaded` waits
    in the host's memory.
    """

    kept: float
    checkpoint: float
    in_work: float
    selective: float
    gradients: float
    offloaded: float


def repeats_modules(m: Machine) -> bool:
    """Return whether selective recompute discards tensors other than unfused scores in some layer of the model."""
    modules, kinds = m.software.recompute_modules, {k.routed for k in layer_kinds(m.model)}
    return any(memory.discarded_elements(m.model, modules, routed=routed).any for routed in kinds)


def repeated_modules(m: Machine, s: LayerShape) -> tuple[RecomputeModule, ...]:
    """Return the modules that run again in layers that are not recomputed whole.

    Frameworks that name modules recompute them or whole layers, never both (Megatron-Core, recompute_granularity);
    where selective recompute discards scores only, the layers that are not recomputed whole do not keep these either.
    """
    selective = s.recompute == "selective" or (s.recompute == "full" and not repeats_modules(m))
    return m.software.recompute_modules if selective else ()


def layer_bytes(m: Machine, s: LayerShape, *, front: bool = False) -> LayerBytes:
    """Compute the bytes that a layer stores: a layer with experts where the model has any, or a dense one at `front`.

    Korthikanti 2022, eqs. 1-4. Flash kernels keep neither scores nor the masks of dropout (Dao 2022).
    """
    flash, routed = m.software.flash_attention, m.model.experts is not None and not front
    element, modules = m.precision.activation_bytes, repeated_modules(m, s)
    product = min(element, COMPUTE_BYTES[m.precision.compute]) if m.software.keeps_cast_inputs else element
    attention = min(element, COMPUTE_BYTES["fp8"]) if attends_in_fp8(m) else element
    mode: Recompute = "selective" if flash or "core_attn" in modules else "none"

    sizes = memory.ElementBytes(element, mask=0.0 if flash else 1.0, product=product, attention=attention)

    def stored(recompute: Recompute) -> float:
        kept = replace(s, recompute=recompute)
        return float(
            memory.activation_bytes_per_layer(
                m.model, m.sequence, kept, sizes, routed=routed, imbalance=m.expert_imbalance
            )
        )

    stays = 1 - m.software.activation_offload
    dropped = m.software.selective_gemm_share if modules else 0.0
    x = memory.discarded_elements(m.model, modules, routed=routed, imbalance=m.expert_imbalance)
    divided = attention * x.attention + product * x.inputs + element * x.others
    selective = tokens(m, s) * (product * x.common_inputs / s.split + divided / s.tensor_parallel)
    common, wide = memory.gradient_elements(m.model, routed=routed)
    gradients = element * tokens(m, s) * (common / s.split + wide / s.tensor_parallel)
    kept = (stored(mode) - selective) * (1 - dropped)
    return LayerBytes(
        kept=kept * stays,
        checkpoint=stored("full") * stays,
        in_work=stored("selective"),
        selective=selective,
        gradients=gradients,
        offloaded=kept * m.software.activation_offload,
    )


def tokens(m: Machine, s: LayerShape) -> float:
    """Count the tokens of a micro-batch on one context-parallel rank."""
    return s.micro_batch * m.sequence / s.context_parallel


def gpu_state_bytes(
    m: Machine, s: LayerShape, w: Weights, *, layers: Num, ends: Num, zero_stage: int, replicas: Num, front: Num = 0
) -> Num:
    """Compute the bytes of weights, gradients and optimiser on one GPU, for `layers` layers and `ends` embeddings.

    `front` of the layers are dense ones. ZeRO shards the bytes over `replicas` and over the CP ranks, which have the
    same weights; routed experts are on fewer GPUs and are sharded over those (Rajbhandari 2020). The framework's flat
    copies and buckets are counted too. Embeddings and the head are not cast: where all weights are said to be in the
    products' type these are kept in 16 bits, which is two casts of eight.
    """
    cast = weight_cast_bytes(m)
    end_cast = cast if m.precision.working_parameter_bytes <= COMPUTE_BYTES["fp8"] else 0.0

    def state(parameters: Num, shards: Num, cast_bytes: float = cast) -> Num:
        divided = m.software.sharded_buffer_bytes_per_parameter / (shards if zero_stage >= 1 else 1)
        own = memory.state_bytes(parameters, m.precision, zero_stage=zero_stage, shards=shards, cast_bytes=cast_bytes)
        return own + parameters * (m.software.buffer_bytes_per_parameter + divided)

    usual, over = layers - front, replicas * s.context_parallel
    own, embeddings = usual * w.shared + front * w.front, ends * w.end
    apart = end_cast != cast
    shared = state(own + (0.0 if apart else embeddings), over)
    if apart:
        shared = shared + state(embeddings, over, end_cast)
    if not w.experts:
        return shared
    return shared + state(usual * w.experts, np.maximum(1, replicas * s.gpus / s.expert_parallel))


def gradient_copy_bytes(m: Machine, s: LayerShape, w: Weights, *, front: Num = 0) -> Num:
    """Compute the bytes of the dummy gradients on a GPU: one tensor for each shape of weights, whatever its layers.

    A framework that adds weight gradients into the main ones inside the product hands a tensor of each weight's size
    to the autograd engine (Transformer Engine, module/_common.py, get_dummy_wgrad). Experts of a layer share one.
    """
    model = m.model
    one = w.shared + (0.0 if model.experts is None else expert_parameters(model))
    dense = w.front - attention_parameters(model) / s.tensor_parallel
    return m.software.weight_gradient_copy_bytes * (one + np.minimum(front, 1) * dense)


def head_bytes(m: Machine, s: LayerShape, w: Weights) -> float:
    """Compute the bytes that the head needs at the peak of its backward pass.

    Logits and their gradients; the input and output of the last norm, and the gradients of both; with sequence
    parallelism the gathered input too; and the dummy of the head's own gradient.
    """
    logits = memory.logits_bytes(
        m.model,
        m.sequence,
        s.micro_batch,
        s.tensor_parallel,
        context_parallel=s.context_parallel,
        logit_bytes=m.software.logit_memory_bytes or (2.0 if m.software.fused_loss else 4.0),
    )
    hidden = 2 / s.split + (3 if s.split > 1 else 2)
    states = hidden * tokens(m, s) * m.model.hidden * m.precision.activation_bytes
    return float(logits + states + m.software.weight_gradient_copy_bytes * w.end)


def working_bytes(
    m: Machine, s: LayerShape, w: Weights, each: LayerBytes, *, zero_stage: int, recomputed: Num, front: Num = 0
) -> Num:
    """Compute the working bytes of a GPU without the head, in addition to state and stored activations.

    They are the gradient copy, under ZeRO-3 two layers' gathered weights, the layer that is run again where any is or
    else its modules that are, and the gradients of one layer's widest tensors.
    """
    gathered = 0.0
    if zero_stage >= 3:  # one layer's gathered weights are in use while the next layer's arrive
        gathered = 2 * w.layer * gathered_bytes(m)
    selective: Num = each.selective
    if front_layers(m.model) and repeats_modules(m):
        selective = np.where(np.asarray(front) > 0, max(selective, layer_bytes(m, s, front=True).selective), selective)
    repeated = np.where(np.asarray(recomputed) > 0, each.in_work, selective)
    return gradient_copy_bytes(m, s, w, front=front) + gathered + repeated + each.gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLayers:
    """The layers of a stage by its index: how many, those that run again, and the dense ones at the front."""

    stage: Num
    layers: Num
    recomputed: Num = 0
    front: Num = 0


def memory_by_part(
    m: Machine,
    s: LayerShape,
    counts: schedule.PipelineCounts,
    stages: StageLayers,
    *,
    zero_stage: int,
    replicas: Num,
    order: Schedule = "1f1b",
) -> dict[str, Num]:
    """Compute the bytes by part on a GPU of a stage.

    Broadcasts over everything but the shape. An interleaved stage keeps its chunks in flight, the largest with
    ceil(l/v) layers; recomputed layers are spread over all chunks, front layers are in the first. The bytes that the
    head needs at its peak beyond the rest are counted under `logits`.
    """
    w, each = weights_of(m, s), layer_bytes(m, s)
    pipeline, virtual_stages, front = counts.pipeline, counts.virtual_stages, stages.front
    stage, layers, recomputed = (np.asarray(x) for x in (stages.stage, stages.layers, stages.recomputed))
    in_flight = schedule.chunks_in_flight(order, stage, pipeline, virtual_stages, counts.micro_batches)
    share = recomputed / np.maximum(layers, 1)
    chunk = schedule.layers_per_chunk(layers, virtual_stages) * (each.kept + share * (each.checkpoint - each.kept))
    working = working_bytes(m, s, w, each, zero_stage=zero_stage, recomputed=recomputed, front=front)
    ends = memory.end_copies(m.model, stage, pipeline)
    size = {"layers": layers, "ends": ends, "zero_stage": zero_stage, "replicas": replicas, "front": front}
    head = head_bytes(m, s, w) + gradient_copy_bytes(m, s, w, front=front) - working
    return {
        "state": gpu_state_bytes(m, s, w, **size),
        "activations": in_flight * (chunk + np.asarray(front) / virtual_stages * front_kept_bytes(m, s, each)),
        "working": working,
        "logits": (stage == np.asarray(pipeline) - 1) * np.maximum(0.0, head),
    }


def front_kept_bytes(m: Machine, s: LayerShape, each: LayerBytes) -> float:
    """Compute the bytes that a front layer keeps beyond those of another layer; negative where it keeps less."""
    return layer_bytes(m, s, front=True).kept - each.kept if front_layers(m.model) else 0.0


def memory_by_stage(m: Machine, strategy: ParallelStrategy) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Compute the bytes by part on a GPU of every stage."""
    p, v = strategy.pipeline_parallel, strategy.virtual_stages
    stages = np.arange(p)
    parts = memory_by_part(
        m,
        strategy.shape,
        schedule.PipelineCounts(p, v, strategy.micro_batches),
        StageLayers(
            stage=stages,
            layers=np.array(strategy.layers_per_stage),
            recomputed=np.array(strategy.recomputed),
            front=np.array(front_by_stage(m.model, strategy.layers_per_stage, v)),
        ),
        zero_stage=strategy.zero_stage,
        replicas=strategy.min_replicas,
        order=strategy.schedule,
    )
    return {k: np.broadcast_to(np.asarray(v, dtype=np.float64), stages.shape) for k, v in parts.items()}


def worst_memory(m: Machine, strategy: ParallelStrategy) -> dict[str, float]:
    """Return the bytes by part on the fullest GPU."""
    parts = memory_by_stage(m, strategy)
    worst = int(np.argmax(sum(parts.values())))
    return {k: float(v[worst]) for k, v in parts.items()}


def stage_gradient_bytes(m: Machine, s: LayerShape, layers: Num, *, stage: Num, pipeline: int) -> Num:
    """Compute the gradient bytes of all TP ranks and experts of a stage, which sites exchange."""
    w = weights_of(m, s)
    weights = layers * (w.shared * s.tensor_parallel + w.experts * s.expert_parallel)
    return (weights + memory.stage_extra_parameters(m.model, stage, pipeline)) * m.precision.gradient_bytes
