"""Seconds of the parts of a training step: a layer's passes, exchanges between ranks, and what comes once a step."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.instance.hardware import Accelerator
from planner.physics.num import Num
from planner.physics.training.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    exposed_tail_seconds,
    reduce_scatter,
)
from planner.physics.training.operations import Machine, Operation, Shape, head_seconds, layer_operations
from planner.physics.training.process_groups import (
    LayerKind,
    Weights,
    group_levels,
    kv_elements,
    layer_kinds,
    nic,
    scale_up,
)

__all__ = ["LayerTimes", "Machine", "Shape", "head_seconds", "layer_times"]

BACKWARD_LAUNCHES = 1.5  # operations launched in a layer's backward pass over those of its forward pass


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Seconds of one mean layer and micro-batch on one GPU, forward and backward in all and by part.

    `again` is what full recompute adds to the backward pass of a layer, `weight_gradient` the part of the backward pass
    that nothing later in it waits for (which ZB-H1 moves). The parts sum to forward and backward without `again`.
    """

    forward: float
    backward: float
    again: float
    weight_gradient: float
    parts: dict[str, float]


def _sum(operations: list[Operation], kind: str) -> float:
    return math.fsum(o.seconds for o in operations if o.kind == kind)


def tensor_exchange_seconds(m: Machine, s: Shape, kind: LayerKind) -> float:
    """Exposed time of a layer's TP exchanges in one pass.

    1-D: an all-reduce of the whole b·s·h tensor behind attention and behind the FFN (Narayanan 2021); under sequence
    parallelism a reduce-scatter and an all-gather of the same volume, of which the framework may hide a share. Routed
    experts take their tokens split as they are: no exchange. 2-D (t = t_in x t_out): every product's result is reduced
    over t_in and its input's gradient over t_out.
    """
    t, model = s.tensor_parallel, m.model
    if t == 1:
        return 0.0
    element = s.micro_batch * m.sequence / s.context_parallel * m.precision.collective_bytes
    start, exposed = m.software.collective_seconds, 1 - m.software.tensor_overlap if s.sequence_parallel else 1.0
    experts = model.experts if kind.routed else None
    if s.tensor_inner == 1:
        times = 2 if experts is None or experts.shared_ffn else 1
        levels = group_levels(m, stride=1, ranks=t)
        size = element * model.hidden
        each = (
            all_gather(size, levels) + reduce_scatter(size, levels) if s.sequence_parallel else all_reduce(size, levels)
        )
        return float(times * (each + start) * exposed)
    total: Any = 0.0
    inner, outer = s.tensor_inner, t // s.tensor_inner
    for d_in, d_out in _linear_layers(m, kind):
        total += all_reduce(element * d_out / outer, group_levels(m, stride=1, ranks=inner)) + start
        total += all_reduce(element * d_in / inner, group_levels(m, stride=inner, ranks=outer)) + start
    return float(total) / 2 * exposed  # one of the two belongs to the forward pass, the other to the backward


def _linear_layers(m: Machine, kind: LayerKind) -> list[tuple[int, int]]:
    """Input and output widths of a layer's products that 2-D tensor parallelism divides."""
    model, experts = m.model, m.model.experts
    inner, h = model.heads * model.head, model.hidden
    width = experts.shared_ffn if kind.routed and experts is not None else model.ffn_width
    ffn = [(h, width), (width, h)] + ([(h, width)] if model.gated_ffn else []) if width else []
    return [(h, inner + 2 * model.kv * model.head), (inner, h), *ffn]


def context_exchange_seconds(m: Machine, s: Shape, attention: float) -> float:
    """Exposed time of passing keys and values round the CP ranks in one pass: what the framework does not run beside attention."""
    if s.context_parallel == 1:
        return 0.0
    size = s.micro_batch * m.sequence * kv_elements(m.model) / s.tensor_parallel * m.precision.collective_bytes
    time = (
        float(all_gather(size, group_levels(m, stride=s.tensor_parallel, ranks=s.context_parallel)))
        + m.software.collective_seconds
    )
    beside = m.software.context_overlap * time
    return time - beside + max(0.0, beside - attention)


def expert_exchange_seconds(m: Machine, s: Shape) -> float:
    """Exposed time of dispatching tokens to their experts and combining the results, in one pass: two all-to-alls of k·h a token.

    Where the framework sends a token once to each domain that holds experts of it and spreads it there, the NICs carry
    the domains' expected number for k experts at random, n·(1 - (1 - 1/n)^k) of n, not k copies.
    """
    experts = m.model.experts
    if experts is None or s.expert_parallel == 1:
        return 0.0
    own = s.micro_batch * m.sequence / s.context_parallel / s.tensor_parallel
    size = own * experts.per_token * m.model.hidden * m.precision.collective_bytes
    near, far = group_levels(m, stride=1, ranks=s.expert_parallel)
    if m.software.expert_once_per_domain and far.ranks > 1:
        copies = far.ranks * (1 - (1 - 1 / far.ranks) ** experts.per_token)
        far = replace(far, bytes_per_second=far.bytes_per_second * experts.per_token / copies)
    each = float(all_to_all(size, (near, far))) + m.software.collective_seconds
    return 2 * each * (1 - m.software.expert_overlap)


def kind_times(m: Machine, s: Shape, kind: LayerKind) -> LayerTimes:
    """Time one layer of a kind: its operations, its exchanges, and the launches that the GPU waits for."""
    ops = layer_operations(m, s, routed=kind.routed, window=kind.window)
    tensor = tensor_exchange_seconds(m, s, kind)
    attention = _sum(ops.forward, "attention")
    context = context_exchange_seconds(m, s, attention)
    expert = expert_exchange_seconds(m, s) if kind.routed else 0.0
    unfused = (
        0.0
        if m.software.flash_attention
        else attention + math.fsum(o.seconds for o in ops.forward if o.name == "softmax and dropout")
    )
    repeated = m.software.selective_gemm_share * _sum(ops.forward, "matrix")
    selective = unfused + repeated if s.recompute == "selective" else 0.0
    forward = math.fsum(o.seconds for o in ops.forward) + tensor + context + expert
    backward = math.fsum(o.seconds for o in ops.backward) + tensor + 2 * context + expert + selective
    host = m.software.launch_seconds * len(ops.forward)
    again = max(forward, host)
    waits = max(0.0, host - forward) + max(0.0, BACKWARD_LAUNCHES * host - backward)
    parts = {
        kind: _sum(ops.forward, kind) + _sum(ops.backward, kind)
        for kind in ("matrix", "attention", "vector", "quantise")
    }
    parts |= {
        "recompute": selective,
        "tensor_parallel": 2 * tensor,
        "context_parallel": 3 * context,
        "expert_parallel": 2 * expert,
        "launch": waits,
    }
    return LayerTimes(
        forward=max(forward, host),
        backward=max(backward, BACKWARD_LAUNCHES * host),
        again=again,
        weight_gradient=math.fsum(o.weight_gradient for o in ops.backward),
        parts=parts,
    )


def layer_times(m: Machine, s: Shape) -> LayerTimes:
    """Time the mean layer of the model: its kinds weighted by their numbers, as stages hold them where kinds alternate."""
    kinds = [(k.layers / m.model.layers, kind_times(m, s, k)) for k in layer_kinds(m.model)]
    return LayerTimes(
        forward=math.fsum(w * x.forward for w, x in kinds),
        backward=math.fsum(w * x.backward for w, x in kinds),
        again=math.fsum(w * x.again for w, x in kinds),
        weight_gradient=math.fsum(w * x.weight_gradient for w, x in kinds),
        parts={part: math.fsum(w * x.parts[part] for w, x in kinds) for part in kinds[0][1].parts},
    )


def hop_bytes(m: Machine, s: Shape) -> float:
    """Bytes that one TP rank sends in a pipeline exchange: its 1/t of b·s·h where scattered (Narayanan 2021), else all of it."""
    size = s.micro_batch * m.sequence / s.context_parallel * m.model.hidden * m.precision.collective_bytes
    return size / s.tensor_parallel if m.software.pipeline_scatter or s.sequence_parallel else size


def pipeline_send_nic_seconds(m: Machine, s: Shape) -> float:
    """NIC time of one pipeline exchange at the ideal rate."""
    return hop_bytes(m, s) / m.gpu.nic_bytes_per_second


def pipeline_send_seconds(m: Machine, s: Shape, slowdown: float, *, inside: bool = False) -> float:
    """Time of one pipeline exchange: over the NIC at its slowdown (or inside the scale-up domain), then an all-gather among the TP ranks.

    Under sequence parallelism the next layer wants its input split as it arrives: no gather.
    """
    level = scale_up(m, 2) if inside else nic(m, 2, slowdown)
    gather = 0.0
    if m.software.pipeline_scatter and not s.sequence_parallel:
        gather = float(
            all_gather(hop_bytes(m, s) * s.tensor_parallel, group_levels(m, stride=1, ranks=s.tensor_parallel))
        )
    return (
        float(level.latency_seconds + hop_bytes(m, s) / level.bytes_per_second)
        + gather
        + m.software.pipeline_start_seconds
    )


def exposed_pipeline_send_seconds(
    micro_batches: Num,
    virtual_stages: Num,
    one_hop_seconds: Num,
    forward_window: Num,
    backward_window: Num,
    *,
    overlap: float = 1.0,
) -> Num:
    """Exchange time per step that compute does not hide, each way: what the framework does not overlap, and the excess over the chunk's window.

    Plain 1F1B hides none of it: each of its passes waits for the one before to cross and come back.
    """
    hidden = np.where(np.asarray(virtual_stages) > 1, overlap, 0.0) * one_hop_seconds
    excess = np.maximum(0.0, hidden - forward_window) + np.maximum(0.0, hidden - backward_window)
    return micro_batches * virtual_stages * (2 * (one_hop_seconds - hidden) + excess)


def hierarchical_seconds(
    m: Machine,
    s: Shape,
    weights: Weights,
    element_bytes: float,
    replicas_per_rack: Num,
    racks: Num,
    slowdown: Num,
    *,
    layers: Num = 1.0,
    end: Num = 0.0,
) -> Num:
    """Time to reduce-scatter, or as well to gather, the weights of layers (and of `end` embeddings) over a site's replicas.

    Inside the rack first, then between racks, each GPU its share over its own NIC. Routed experts are shared by fewer
    GPUs: one in `expert_parallel` of those that hold the rest.
    """
    inside = (
        replicas_per_rack * s.context_parallel if s.gpus <= m.rack.gpus else max(1, m.rack.gpus // s.tensor_parallel)
    )
    shared = (layers * weights.shared + end * weights.end) * element_bytes
    total = reduce_scatter(shared, (scale_up(m, inside), nic(m, racks, slowdown)))
    if weights.experts:
        gpus = replicas_per_rack * s.gpus
        near = np.maximum(1, gpus // s.expert_parallel)
        far = np.maximum(1.0, racks * gpus / (s.expert_parallel * near))
        total = total + reduce_scatter(
            layers * weights.experts * element_bytes, (scale_up(m, near), nic(m, far, slowdown))
        )
    return total


def ring_seconds(m: Machine, s: Shape, weights: Weights, replicas_per_rack: Num, racks: Num) -> Num:
    """Gradients of one layer all-reduced between the `racks` of a group at the NIC's ideal rate, each GPU its share of the rack's sum."""
    g = m.gpu
    size = weights.layer * m.precision.gradient_bytes / (replicas_per_rack * s.context_parallel)
    return 2 * (racks - 1) * g.nic_latency_seconds + 2 * (racks - 1) / racks * size / g.nic_bytes_per_second


def data_parallel_tail_seconds(
    m: Machine,
    s: Shape,
    weights: Weights,
    replicas_per_rack: Num,
    racks: Num,
    slowdown: float,
    *,
    zero_stage: int,
    layers: Num,
    layer_backward: Num,
    end: Num,
) -> Num:
    """Exposed part of the hierarchical exchange of the stage that ends last.

    Its layers' exchanges run beside its backward pass, but for the share that the framework exposes in any case; that of
    the embeddings (`end` of them) comes after all. Gradients are reduced and then spread again (ZeRO-0), or the updated
    working weights are (ZeRO-1). ZeRO-2 and 3 have reduced theirs in every micro-batch, so only the last layer's is left;
    ZeRO-3 gathers weights when it next needs them.
    """
    spread_bytes = m.precision.gradient_bytes if zero_stage == 0 else m.precision.working_parameter_bytes
    where = (replicas_per_rack, racks, slowdown)

    def both(number: Num, ends: Num) -> tuple[Num, Num]:
        reduce = hierarchical_seconds(m, s, weights, m.precision.gradient_bytes, *where, layers=number, end=ends)
        spread = (
            hierarchical_seconds(m, s, weights, spread_bytes, *where, layers=number, end=ends)
            if zero_stage < 3
            else 0.0
        )
        return reduce, spread

    one_reduce, one_spread = both(1.0, 0.0)
    last = sum(both(0.0, end)) if np.any(np.asarray(end) > 0) else 0.0
    if zero_stage <= 1:
        total = (one_reduce + one_spread) * layers
        return np.maximum(exposed_tail_seconds(total, layer_backward, layers), m.software.data_exposed * total) + last
    return (
        one_reduce
        + np.maximum(
            exposed_tail_seconds(one_spread * layers, layer_backward, layers),
            m.software.data_exposed * one_spread * layers,
        )
        + last
    )


def sharding_traffic_seconds(
    m: Machine, s: Shape, weights: Weights, zero_stage: int, replicas_per_rack: Num, racks: Num, slowdown: float
) -> tuple[Num, Num]:
    """Time that ZeRO's traffic for one layer and micro-batch takes, beside the forward and beside the backward pass.

    Stage 2 reduces gradients every micro-batch, since no GPU may keep them whole; stage 3 gathers weights in both passes.
    """
    if zero_stage < 2:
        return 0.0, 0.0
    where = (replicas_per_rack, racks, slowdown)
    reduce = hierarchical_seconds(m, s, weights, m.precision.gradient_bytes, *where)
    gather = (
        hierarchical_seconds(m, s, weights, m.precision.working_parameter_bytes, *where) if zero_stage == 3 else 0.0
    )
    return gather, gather + reduce


def wan_tail_seconds(
    stage_bytes: Num, gbps: float, rtt_ms: float, round_trips: float, layers: Num, layer_backward: float
) -> Num:
    """Exposed part of the exchange between sites of the stage that ends last: its last layer's share, or the excess, and the round trips."""
    return exposed_tail_seconds(8 * stage_bytes / (gbps * 1e9), layer_backward, layers) + round_trips * rtt_ms / 1e3


def optimizer_seconds(gpu: Accelerator, held_bytes: Num) -> Num:
    """Time of the optimiser step: every held byte of state is read and written once in HBM."""
    return 2 * held_bytes / (gpu.hbm_bytes_per_second * gpu.hbm_efficiency)


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
