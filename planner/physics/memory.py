"""Bytes that training keeps on a GPU."""

from typing import Literal

import numpy as np

from planner.instance import Model, Precision
from planner.physics.num import Num
from planner.physics.transformer import embedding_parameters, layer_parameters

Recompute = Literal["none", "selective", "full"]
RECOMPUTE_MODES: tuple[Recompute, ...] = ("none", "selective", "full")


def activation_elements(model: Model) -> tuple[int, int]:
    """Count the stored elements of one layer per token: (kept whole by every TP rank, divided over TP ranks).

    Whole: the inputs of both norms, of QKV and of the FFN, 4·h. Divided: Q, K, V, the attention's output, and the FFN's
    inner tensors (before and after the activation, and the gate). For the plain GPT 4·h and 12·h, which at two bytes and
    with two masks of h bytes give Korthikanti 2022, eq. 2: s·b·h·(10 + 24/t).
    """
    divided = 2 * model.head * (model.heads + model.kv) + (3 if model.gated_ffn else 2) * model.ffn_width
    return 4 * model.hidden, divided


def activation_bytes_per_layer(
    model: Model,
    sequence: Num,
    micro_batch: Num,
    *,
    tensor_parallel: Num,
    recompute: Recompute,
    sequence_parallel: bool,
    element_bytes: float,
    mask_bytes: float = 1.0,
) -> Num:
    """Bytes that one layer stores per GPU for one micro-batch until its backward pass.

    Korthikanti 2022, eqs. 1-4, with the element size free: at 2 bytes and one-byte masks none is
    s·b·h·(10 + 24/t + 5·a·s/(h·t)); sequence parallelism divides the 10 too; selective drops the a·s² term (as a flash
    kernel does); full keeps the layer's input only, divided over the TP ranks under sequence parallelism.
    """
    t, tokens = tensor_parallel, sequence * micro_batch
    split = t if sequence_parallel else 1
    if recompute == "full":
        return element_bytes * tokens * model.hidden / split
    whole, divided = activation_elements(model)
    linear = tokens * ((element_bytes * whole + 2 * mask_bytes * model.hidden) / split + element_bytes * divided / t)
    if recompute == "selective":
        return linear
    return linear + (2 * element_bytes + mask_bytes) * micro_batch * model.heads * sequence**2 / t


def chunks_in_flight(stage: Num, pipeline: Num, virtual_stages: Num, micro_batches: Num) -> Num:
    """Count the chunk-micro-batches whose activations stage i (from 0) holds at its peak.

    1F1B: min(m, p - i). Interleaved: the warm-up of rank i is 2·(p - i - 1) + (v - 1)·p chunks, plus the one in
    work, never more than v·m (Narayanan 2021, section 2.2; Korthikanti 2022, eq. 5 with the first stage's v·p + p - 1).
    """
    plain = pipeline - stage
    interleaved = 2 * (pipeline - stage - 1) + (virtual_stages - 1) * pipeline + 1
    return np.minimum(np.where(virtual_stages == 1, plain, interleaved), virtual_stages * micro_batches)


def state_bytes(parameters: Num, precision: Precision, *, zero_stage: int, shards: Num) -> Num:
    """Bytes of weights, gradients and optimiser for `parameters` weights held by one GPU (ZeRO, Rajbhandari 2020).

    Stage 1 divides the optimiser state over the `shards` replicas, stage 2 the gradients too, stage 3 the weights too.
    """
    weights = precision.parameter_bytes / (shards if zero_stage >= 3 else 1)
    gradients = precision.gradient_bytes / (shards if zero_stage >= 2 else 1)
    optimizer = precision.optimizer_bytes / (shards if zero_stage >= 1 else 1)
    return parameters * (weights + gradients + optimizer)


def stage_extra_parameters(model: Model, stage: Num, pipeline: Num) -> Num:
    """Count a stage's weights outside its layers: the embedding on the first, the head on the last (one copy where they meet and are tied)."""
    ends = 1 * (np.asarray(stage) == 0) + 1 * (np.asarray(stage) == pipeline - 1)
    copies = np.minimum(ends, 1) if model.tied_embeddings else ends
    return copies * embedding_parameters(model)


def logits_bytes(model: Model, sequence: Num, micro_batch: Num, tensor_parallel: Num) -> Num:
    """Bytes of the last stage's logits, kept in FP32 for the loss (Korthikanti 2022, section 4.3)."""
    return 4 * micro_batch * sequence * model.vocabulary / tensor_parallel


def working_bytes(
    model: Model,
    sequence: Num,
    micro_batch: Num,
    precision: Precision,
    *,
    tensor_parallel: Num,
    recompute: Recompute,
    sequence_parallel: bool,
    zero_stage: int,
) -> Num:
    """Bytes a GPU needs while a layer is in work: the recomputed layer, and two gathered layers under ZeRO-3 (one in use, one in flight)."""
    total: Num = 0.0
    if recompute == "full":
        total = total + activation_bytes_per_layer(
            model,
            sequence,
            micro_batch,
            tensor_parallel=tensor_parallel,
            recompute="selective",
            sequence_parallel=sequence_parallel,
            element_bytes=precision.activation_bytes,
        )
    if zero_stage >= 3:
        total = total + 2 * layer_parameters(model) * precision.working_parameter_bytes / tensor_parallel
    return total


def usable_bytes(hbm_bytes: float, reserve_fraction: float, reserve_bytes: float) -> float:
    """Bytes of HBM that a plan may fill: what is left by the fraction and the constant kept for the framework."""
    return hbm_bytes * (1 - reserve_fraction) - reserve_bytes
