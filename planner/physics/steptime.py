"""Time of one training step on one layout."""

import math
from dataclasses import dataclass

import numpy as np

from planner.instance import Accelerator, Model, Precision, Rack
from planner.physics.collectives import all_gather_seconds, all_reduce_seconds, exposed_tail_seconds, reduce_scatter_seconds
from planner.physics.memory import Recompute
from planner.physics.num import Num
from planner.physics.transformer import attention_flop, head_forward_flop, layer_parameters, matrix_flop


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a layout runs on: a GPU, how many share a scale-up domain, the model and its number formats."""

    gpu: Accelerator
    rack: Rack
    model: Model
    precision: Precision
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The choices that set what one layer costs on one GPU."""

    tensor_parallel: int
    micro_batch: int
    recompute: Recompute
    sequence_parallel: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Seconds of one layer and micro-batch on one GPU, forward and backward in all, by part."""

    forward: float
    backward: float
    matrix: float
    vector: float
    recompute: float
    tensor_parallel: float


def matrix_seconds(gpu: Accelerator, precision: Precision, flop: float, moved_bytes: float = 0.0) -> float:
    """Time of one matrix product on one GPU: the roofline of FLOP at the size's efficiency and of HBM bytes (Williams 2009).

    Efficiency grows with the product's size w as most·w/(w + half): short products leave the units idle.
    """
    e = gpu.matrix_efficiency
    rate = gpu.peak_flop_per_second[precision.compute] * e.most * flop / (flop + e.half_flop)
    return max(flop / rate, moved_bytes / gpu.hbm_bytes_per_second)


def layer_matrix_seconds(m: Machine, s: Shape) -> float:
    """Forward time of one layer's products on one TP rank: QKV, attention, projection, FFN in and out, each its own size."""
    model, tokens, t = m.model, s.micro_batch * m.sequence, s.tensor_parallel
    h, inner = model.hidden, model.heads * model.head
    ffn_in = h * model.ffn_width * (2 if model.gated_ffn else 1)
    products = (h * (inner + 2 * model.kv * model.head), inner * h, ffn_in, h * model.ffn_width)
    read = m.precision.working_parameter_bytes
    linear = sum(matrix_seconds(m.gpu, m.precision, matrix_flop(w, tokens) / t, w * read / t) for w in products)
    return linear + attention_seconds(m, s)


def attention_seconds(m: Machine, s: Shape) -> float:
    """Forward time of one layer's attention scores and values on one TP rank; the causal half is skipped."""
    return matrix_seconds(m.gpu, m.precision, attention_flop(m.model, m.sequence, s.micro_batch) / s.tensor_parallel)


def layer_vector_seconds(m: Machine, s: Shape) -> float:
    """Forward time of one layer's element-wise work, bound by HBM.

    Two norms read and write, two residual additions read twice and write: 10·h elements a token, divided only under
    sequence parallelism; the FFN's activation reads its inputs and writes one output, divided over the TP ranks.
    Without a flash kernel (recompute none) the softmax reads and writes a·s² scores twice.
    """
    model, tokens, e = m.model, s.micro_batch * m.sequence, m.precision.activation_bytes
    split = s.tensor_parallel if s.sequence_parallel else 1
    moved = tokens * e * (10 * model.hidden / split + (3 if model.gated_ffn else 2) * model.ffn_width / s.tensor_parallel)
    if s.recompute == "none":
        moved += 4 * e * s.micro_batch * model.heads * m.sequence**2 / s.tensor_parallel
    return moved / m.gpu.hbm_bytes_per_second


def tensor_exchange_seconds(m: Machine, s: Shape) -> float:
    """Time of one TP all-reduce of the whole b·s·h tensor; under sequence parallelism a reduce-scatter and an all-gather, the same volume."""
    size = s.micro_batch * m.sequence * m.model.hidden * m.precision.collective_bytes
    return float(all_reduce_seconds(size, s.tensor_parallel, m.gpu.scale_up_bytes_per_second, m.gpu.scale_up_latency_seconds))


def layer_times(m: Machine, s: Shape) -> LayerTimes:
    """Time one layer and micro-batch: two exchanges forward and two backward, backward twice the forward's work (Narayanan 2021).

    Full recompute runs the forward again, its exchanges included; selective runs the attention again (Korthikanti 2022).
    The all-gather that sequence parallelism repeats in the backward pass runs beside the products (Korthikanti 4.2.2).
    """
    matrix, vector = layer_matrix_seconds(m, s), layer_vector_seconds(m, s)
    exchange = 2 * tensor_exchange_seconds(m, s)
    again = {"none": 0.0, "selective": attention_seconds(m, s), "full": matrix + vector + exchange}[s.recompute]
    forward = matrix + vector + exchange
    return LayerTimes(
        forward=forward,
        backward=2 * (matrix + vector) + exchange + again,
        matrix=3 * matrix,
        vector=3 * vector,
        recompute=again,
        tensor_parallel=2 * exchange,
    )


def head_seconds(m: Machine, s: Shape) -> float:
    """Forward and backward time of the logits of one micro-batch on one TP rank of the last stage."""
    return 3 * matrix_seconds(m.gpu, m.precision, head_forward_flop(m.model, m.sequence, s.micro_batch) / s.tensor_parallel)


def hop_nic_seconds(m: Machine, s: Shape) -> float:
    """NIC time of one pipeline exchange at the ideal rate: each TP rank sends its 1/t of b·s·h (Narayanan 2021, scatter-gather)."""
    size = s.micro_batch * m.sequence * m.model.hidden * m.precision.collective_bytes / s.tensor_parallel
    return size / m.gpu.nic_bytes_per_second


def hop_seconds(m: Machine, s: Shape, slowdown: float) -> float:
    """Time of one pipeline exchange: the NIC at its slowdown, then an all-gather among the receiving TP ranks.

    Under sequence parallelism the next layer wants its input split as it arrives: no gather.
    """
    size = s.micro_batch * m.sequence * m.model.hidden * m.precision.collective_bytes
    gather = all_gather_seconds(size, s.tensor_parallel, m.gpu.scale_up_bytes_per_second, m.gpu.scale_up_latency_seconds)
    return m.gpu.nic_latency_seconds + hop_nic_seconds(m, s) * slowdown + (0.0 if s.sequence_parallel else float(gather))


def fill_seconds(pipeline: Num, chunk_seconds: Num, one_hop_seconds: Num) -> Num:
    """Time to fill and drain the pipeline: p-1 chunks forward and backward, each with its two exchanges.

    With chunks of 1/v of a stage this is the bubble (p-1)/(v·m) of the ideal step (Narayanan 2021, section 2.2).
    """
    return (pipeline - 1) * (chunk_seconds + 2 * one_hop_seconds)


def exposed_hops_seconds(micro_batches: Num, virtual_stages: Num, one_hop_seconds: Num, forward_window: Num, backward_window: Num) -> Num:
    """Exchange time per step that compute does not hide: the excess over the window that its chunk leaves on the NIC, each way."""
    excess = np.maximum(0.0, one_hop_seconds - forward_window) + np.maximum(0.0, one_hop_seconds - backward_window)
    return micro_batches * virtual_stages * excess


def ring_seconds(m: Machine, parameters: Num, tensor_parallel: int, replicas_per_rack: Num, racks: Num) -> Num:
    """Gradients of `parameters` weights all-reduced between the `racks` of a group at the NIC's ideal rate, each GPU its share of the rack's sum."""
    size = parameters / tensor_parallel * m.precision.gradient_bytes / replicas_per_rack
    return all_reduce_seconds(size, racks, m.gpu.nic_bytes_per_second, m.gpu.nic_latency_seconds)


def hierarchical_seconds(
    m: Machine, parameters: Num, element_bytes: float, tensor_parallel: int, replicas_per_rack: Num, racks: Num, slowdown: float
) -> Num:
    """Time to reduce-scatter, or as well to gather, `parameters` elements over a site's replicas: inside the rack, then between racks.

    Each GPU carries its 1/r share of the rack's part over its own NIC.
    """
    size = parameters / tensor_parallel * element_bytes
    inside = reduce_scatter_seconds(size, replicas_per_rack, m.gpu.scale_up_bytes_per_second, m.gpu.scale_up_latency_seconds)
    between = reduce_scatter_seconds(size / replicas_per_rack, racks, m.gpu.nic_bytes_per_second, m.gpu.nic_latency_seconds)
    return inside + between * slowdown


def data_parallel_tail_seconds(
    m: Machine,
    tensor_parallel: int,
    replicas_per_rack: Num,
    racks: Num,
    slowdown: float,
    *,
    zero_stage: int,
    layers: Num,
    layer_backward: Num,
    end_parameters: Num,
) -> Num:
    """Exposed part of the hierarchical exchange of the stage that ends last.

    Its layers' exchanges run beside its backward pass; that of the embedding (`end_parameters`) comes after all. Gradients
    are reduced and then spread again (ZeRO-0), or the updated working weights are (ZeRO-1). ZeRO-2 and 3 have reduced
    theirs in every micro-batch, so only the last layer's is left; ZeRO-3 gathers weights when it next needs them.
    """
    spread_bytes = m.precision.gradient_bytes if zero_stage == 0 else m.precision.working_parameter_bytes

    def exchange(parameters: Num) -> tuple[Num, Num]:
        where = (tensor_parallel, replicas_per_rack, racks, slowdown)
        reduce = hierarchical_seconds(m, parameters, m.precision.gradient_bytes, *where)
        spread = hierarchical_seconds(m, parameters, spread_bytes, *where) if zero_stage < 3 else 0.0
        return reduce, spread

    reduce, spread = exchange(layer_parameters(m.model))
    end = sum(exchange(end_parameters))
    if zero_stage <= 1:
        return exposed_tail_seconds((reduce + spread) * layers, layer_backward, layers) + end
    return reduce + exposed_tail_seconds(spread * layers, layer_backward, layers) + end


def sharding_traffic_seconds(
    m: Machine, tensor_parallel: int, zero_stage: int, replicas_per_rack: Num, racks: Num, slowdown: float
) -> tuple[Num, Num]:
    """Time that ZeRO's traffic for one layer and micro-batch takes, beside the forward and beside the backward pass.

    Stage 2 reduces gradients every micro-batch, since no GPU may keep them whole; stage 3 gathers weights in both passes.
    """
    if zero_stage < 2:
        return 0.0, 0.0
    parameters, where = layer_parameters(m.model), (tensor_parallel, replicas_per_rack, racks, slowdown)
    reduce = hierarchical_seconds(m, parameters, m.precision.gradient_bytes, *where)
    gather = hierarchical_seconds(m, parameters, m.precision.working_parameter_bytes, *where) if zero_stage == 3 else 0.0
    return gather, gather + reduce


def wan_tail_seconds(stage_bytes: Num, gbps: float, rtt_ms: float, round_trips: float, layers: Num, layer_backward: float) -> Num:
    """Exposed part of the exchange between sites of the stage that ends last: its last layer's share, or the excess, and the round trips."""
    return exposed_tail_seconds(8 * stage_bytes / (gbps * 1e9), layer_backward, layers) + round_trips * rtt_ms / 1e3


def optimizer_seconds(gpu: Accelerator, held_bytes: Num) -> Num:
    """Time of the optimiser step: every held byte of state is read and written once in HBM."""
    return 2 * held_bytes / gpu.hbm_bytes_per_second


def layers_per_chunk(layers: Num, virtual_stages: Num) -> Num:
    """Layers of the largest of the v chunks of a stage."""
    return np.ceil(layers / virtual_stages)


def group_racks(data_parallel: int, replicas_per_rack: int) -> int:
    """Racks that hold one stage's replicas: the all-reduce group between racks."""
    return math.ceil(data_parallel / replicas_per_rack)


def days_to_train(tokens: float, tokens_per_step: float, step_seconds: float, availability: float) -> float:
    """Days of wall time: tokens / batch steps, at the share of time in which steps advance."""
    return tokens / tokens_per_step * step_seconds / availability / 86_400


def model_flop_utilisation(model_flop: float, gpus: int, peak: float, seconds: float) -> float:
    """MFU: the model's FLOP (no recompute) over what the GPUs could do at dense peak in the time."""
    return model_flop / (gpus * peak * seconds)
