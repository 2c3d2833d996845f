"""Compute the seconds of parts of a training step: a layer's passes, collectives of ranks, and once-a-step parts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.instance.instance import Instance
from planner.instance.software import RecomputeModule
from planner.instance.workload import Experts
from planner.physics import Num
from planner.physics.training import operations
from planner.physics.training.memory import Weights, layer_bytes, repeated_modules
from planner.physics.training.operations import KINDS, Kind, LayerOperation, LayerShape, Machine
from planner.physics.training.schedule import PipelineCounts
from planner.physics.training.transformer import LayerKind, layer_kinds

SECONDS_PER_DAY = 86_400
BACKWARD_LAUNCHES = 1.5  # operations launched in a layer's backward pass over those of its forward pass
# Operations of a layer that modules of selective recompute run again, by how their names begin; of norms see below.
# Without the output of an activation its cast, which the product behind it reads, is made again too.
REPEATED: dict[RecomputeModule, tuple[str, ...]] = {
    "mla_up_proj": ("Q up", "KV up", "cast for Q up", "cast for KV up"),
    "mlp": ("FFN", "cast for FFN"),
    "moe": ("router", "dispatch", "experts", "shared experts", "cast for experts", "cast for shared experts"),
    "moe_act": ("experts activation", "cast for experts out"),
    "shared_experts": ("shared experts", "cast for shared experts"),
}


@dataclass(frozen=True, slots=True)
class Level:
    """A network level of a collective: how many parts of the level below a group joins, and a GPU's share of links."""

    ranks: Num  # a group of 32 GPUs on four racks of 8 has 8 at the scale-up level, and 4 above it
    bytes_per_second: Num  # in one direction
    latency_seconds: float
    reduces_in_network: bool = False


def reduce_scatter_terms(levels: Sequence[Level]) -> tuple[Num, Num]:
    """Compute a reduce-scatter's seconds of steps, and seconds by byte of the tensor (Thakur 2005; Klenk 2020)."""
    # Level by level, each on the share that the one below left. At each level a ring takes (n-1)·alpha +
    # (n-1)/n·S/beta. A switch that reduces saves steps, not bytes: every rank still sends all parts but its own.
    steps_seconds, seconds_per_byte, share = 0.0, 0.0, 1.0
    for level in levels:
        n = level.ranks
        steps = np.minimum(n - 1, 1) if level.reduces_in_network else n - 1
        steps_seconds = steps_seconds + steps * level.latency_seconds
        seconds_per_byte = seconds_per_byte + share * (n - 1) / (n * level.bytes_per_second)
        share = share / n
    return steps_seconds, seconds_per_byte


def reduce_scatter(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Compute the seconds to reduce `size_bytes` (the entire tensor) and leave each rank its part."""
    steps_seconds, seconds_per_byte = reduce_scatter_terms(levels)
    return steps_seconds + seconds_per_byte * size_bytes


all_gather = reduce_scatter  # the same steps, backwards, until every rank has the entire tensor


def all_reduce(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Compute the seconds of a layer's all-reduce of `size_bytes` (Thakur 2005; in switch Klenk 2020, Graham 2016)."""
    # A ring takes 2·(n-1)·alpha + 2·(n-1)/n·S/beta at each level. S is the entire tensor: a TP all-reduce moves b·s·h
    # elements, not 1/t of them. Where the switches reduce and multicast, each rank sends and receives S once: 2·alpha +
    # S/beta.
    total: Num = 0.0
    for level in levels:
        n = np.asarray(level.ranks)
        ring = 2 * (n - 1) * level.latency_seconds + 2 * (n - 1) / n * size_bytes / level.bytes_per_second
        switch = np.where(n > 1, 2 * level.latency_seconds + size_bytes / level.bytes_per_second, 0.0)
        total = total + (np.minimum(ring, switch) if level.reduces_in_network else ring)
        size_bytes = size_bytes / n
    return total


def all_to_all(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Compute the seconds for every rank to send `size_bytes` in equal parts to all ranks, itself among them."""
    # In a group of N, the traffic that crosses level k goes to the ranks in the same part of the level above and
    # another part of this one: (n_k - 1)·(ranks below) / N of a rank's bytes. Levels are different links and work at
    # the same time, so the slowest sets the time; their latencies add.
    group = math.prod(np.asarray(level.ranks) for level in levels)
    below: Num = 1.0
    busiest: Num = 0.0
    latency: Num = 0.0
    for level in levels:
        n = np.asarray(level.ranks)
        busiest = np.maximum(busiest, size_bytes * (n - 1) * below / group / level.bytes_per_second)
        latency = latency + np.minimum(n - 1, 1) * level.latency_seconds
        below = below * n
    return busiest + latency


def exposed_behind_chunks(each: Num, work: Num, layers: Num, chunks: Num, batches: Num) -> Num:
    """Compute the seconds of a collective for each layer that passes of a pipeline do not hide."""
    # A stage has l layers in v chunks, and runs a chunk for n micro-batches before it goes on to the next, w = `work`
    # seconds a layer; each layer's collective takes e = `each` seconds, one after another. Backward: a layer's
    # gradients are ready as the last of the n passes leaves it. From a chunk on, the collectives take e for each layer
    # of it and of the chunks after it, and overlap the rest of its last pass and n passes of each chunk after it. The
    # longest exposed time starts with the first chunk or the last one: max(e, e·l/v - (l/v - 1)·w, e·l - (((v - 1)·n +
    # 1)·l/v - 1)·w). Forward is its mirror: a layer's weights are needed as the first pass comes to it. With v = 1 the
    # formula is that of `exposed_tail_seconds`; it never falls with l.
    size = layers / chunks
    last, first = each * size - (size - 1) * work, each * layers - (((chunks - 1) * batches + 1) * size - 1) * work
    return np.maximum(each, np.maximum(last, first))


def exposed_tail_seconds(total_seconds: Num, backward_seconds: Num, layers: Num) -> Num:
    """Compute the exposed seconds of a per-layer collective, those that the concurrent backward pass does not hide."""
    # Layer k's exchange starts when its gradients are ready, so at the end at least the last layer's exchange remains,
    # or the part of all exchanges that exceeds the other layers' backward passes.
    return np.maximum(total_seconds / layers, total_seconds - (layers - 1) * backward_seconds)


def group_levels(m: Machine, *, stride: int, ranks: Num, slowdown: Num = 1.0) -> tuple[Level, ...]:
    """Return the levels of a collective of `ranks` GPUs, `stride` GPUs apart: the scale-up domain, then the NICs."""
    # A group larger than its part of the domain fills whole domains; each GPU carries its share over its own NIC.
    inside = max(1, min(ranks, m.rack.gpus // stride)) if stride <= m.rack.gpus else 1
    return (scale_up(m, inside), nic(m, ranks / inside, slowdown))


def scale_up(m: Machine, ranks: Num) -> Level:
    """Return the scale-up domain as the level of a collective with `ranks` ranks in it."""
    g = m.gpu
    rate = g.scale_up_bytes_per_second * g.scale_up_efficiency
    return Level(ranks, rate, g.scale_up_latency_seconds, reduces_in_network=g.scale_up_reduces)


def nic(m: Machine, ranks: Num, slowdown: Num = 1.0) -> Level:
    """Return the NICs as the level of a collective between scale-up domains; a slowdown stretches its rate."""
    g = m.gpu
    return Level(ranks, g.nic_bytes_per_second * g.nic_efficiency / slowdown, g.nic_latency_seconds)


def context_exchange(m: Machine, s: LayerShape, slowdown: float) -> tuple[float, float]:
    """Compute the seconds of passing keys and values round CP ranks in a pass (Thakur 2005), and those of the NIC."""
    # A hierarchical all-gather of what all ranks of one TP rank have: inside the rack, then over c racks, where each
    # GPU carries its share over its own NIC: (c-1)/c · K·c/κ bytes of K, at the NIC's rate over the slowdown.
    if s.context_parallel == 1:
        return 0.0, 0.0
    model, latent = m.model, m.model.latent_attention
    elements = 2 * model.kv * model.head if latent is None else latent.kv_rank + latent.head_rope  # of a token
    size = s.micro_batch * m.sequence * elements / s.tensor_parallel * m.precision.collective_bytes
    near, far = group_levels(m, stride=s.tensor_parallel, ranks=s.context_parallel, slowdown=slowdown)
    whole = float(all_gather(size, (near, far))) + m.software.collective_seconds
    return whole, float(all_gather(size / near.ranks, (far,)))  # none inside a rack


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Times in seconds of one mean layer and micro-batch on one GPU, forward and backward in all and by part."""

    forward_seconds: float
    backward_seconds: float
    recompute_seconds: float  # that full recompute adds to the backward pass, beyond what selective recompute has there
    weight_gradient_seconds: float  # of the backward pass, for which nothing later in it waits: ZB-H1 moves them
    parts: dict[str, float]  # their sum: forward and backward without full recompute


def _sum(listed: list[LayerOperation], kind: Kind) -> float:
    return math.fsum(o.seconds for o in listed if o.kind == kind)


def overlaps_tensors(m: Machine) -> bool:
    """Return whether a layer's TP exchanges under sequence parallelism overlap its products."""
    # Under FP4 no release of Megatron-Bridge overlaps them (scripts/performance/configs, tp_comm_overlap).
    return "tensor" in m.software.overlaps and m.precision.compute != "fp4"


def tensor_seconds(m: Machine, s: LayerShape, *, gathered: float) -> tuple[float, float]:
    """Compute the seconds of a TP exchange of b·s·h elements of a layer, `gathered` bytes each, and of its copies."""
    # A framework that divides sequences along another dimension than the first copies what it gathered, and what it is
    # about to scatter (torch.distributed._functional_collectives, all_gather_tensor and reduce_scatter_tensor).
    levels = group_levels(m, stride=1, ranks=s.tensor_parallel)
    elements = s.tokens(m.sequence) * m.model.hidden
    size, whole = elements * m.precision.collective_bytes, elements * gathered
    if not s.sequence_parallel:
        return float(all_reduce(size, levels)), 0.0
    copied = 2 * (whole + size) * m.software.copies_split_sequences
    return float(all_gather(whole, levels) + reduce_scatter(size, levels)), copied / operations.hbm_rate(m)


def end_exchange_seconds(m: Machine, s: LayerShape) -> tuple[float, float]:
    """Compute the seconds of a micro-batch's TP exchanges of the embedding and of the head, forward and backward.

    Both divide the vocabulary: ranks sum the embeddings of the tokens, and the gradients of the head's input; the
    loss sums its largest logits, the sums of their exponentials and the labels' logits, the latter two at once where
    it is fused (Megatron-LM: Shoeybi 2019, section 3; fused_cross_entropy.py).
    """
    if s.tensor_parallel == 1:
        return 0.0, 0.0
    one = sum(tensor_seconds(m, s, gathered=m.precision.collective_bytes)) + m.software.collective_seconds
    return one, one + (2 if m.software.fused_loss else 3) * m.software.collective_seconds


def tensor_exchange_seconds(m: Machine, s: LayerShape, kind: LayerKind, *, of_ffn: bool = False) -> float:
    """Compute the exposed seconds of a layer's TP exchanges in one pass, or of those of its FFN alone.

    1-D: an all-reduce of the entire b·s·h tensor behind attention and behind the FFN (Narayanan 2021, section 2.3);
    under sequence parallelism a reduce-scatter and an all-gather of as many elements (Korthikanti 2022, section 4.2),
    of which the framework may hide a share. Routed experts take their tokens split as they are: no exchange. 2-D (t =
    t_in x t_out): every product's result is reduced over t_in and its input's gradient over t_out.
    """
    t, model = s.tensor_parallel, m.model
    if t == 1:
        return 0.0
    start, overlaps = m.software.collective_seconds, s.sequence_parallel and overlaps_tensors(m)
    exposed = 1 - m.software.tensor_overlap if overlaps else 1.0
    if s.tensor_inner == 1:
        experts = model.experts if kind.routed else None
        count = (2 if experts is None or experts.shared_ffn else 1) - of_ffn
        # Transformer Engine casts before it gathers (pytorch/distributed.py, gather_along_first_dim: _all_gather_fp8,
        # _all_gather_mxfp8, _all_gather_nvfp4), and keeps the cast.
        wide = m.precision.collective_bytes
        gathered = min(wide, operations.stored_bytes(m)) if m.software.keeps_cast_inputs else wide
        exchange, copies = tensor_seconds(m, s, gathered=gathered)
        return count * (exchange * exposed + copies + start)
    element = s.tokens(m.sequence) * m.precision.collective_bytes
    # The input and output widths of the products that are divided.
    attention, hidden = model.heads * model.head, model.hidden
    width = model.experts.shared_ffn if kind.routed and model.experts is not None else model.ffn_width
    ffn = [(hidden, width), (width, hidden)] + ([(hidden, width)] if model.gated_ffn else []) if width else []
    widths = ffn if of_ffn else [(hidden, attention + 2 * model.kv * model.head), (attention, hidden), *ffn]
    total: Num = 0.0
    inner, outer = s.tensor_inner, t // s.tensor_inner
    for d_in, d_out in widths:
        total += all_reduce(element * d_out / outer, group_levels(m, stride=1, ranks=inner)) + start
        total += all_reduce(element * d_in / inner, group_levels(m, stride=inner, ranks=outer)) + start
    return float(total) / 2 * exposed  # one of the two belongs to the forward pass, the other to the backward


def domains_of_token(experts: Experts, domains: float) -> float:
    """Compute the mean number of n domains with experts of a token, k at random in g of G groups (arXiv 2412.19437)."""
    # Without groups it is n·(1 - (1 - 1/n)^k). A domain of whole groups, q = G/n of them, has j of the token's groups
    # with the probability of drawing g from G, and then none of its experts with (1 - j/g)^k; a domain that is part of
    # a group has the group with g/G (node-limited routing, section 2.1.2).
    k, total, own = experts.per_token, experts.groups, experts.groups_per_token
    if domains >= total:
        return domains * own / total * (1 - (1 - total / (domains * own)) ** k)
    q = round(total / domains)
    ways = math.comb(total, own)
    drawn = ((j, math.comb(q, j) * math.comb(total - q, own - j) / ways) for j in range(min(q, own) + 1))
    missed = math.fsum(chance * (1 - j / own) ** k for j, chance in drawn)
    return domains * (1 - missed)


def overlaps_experts(m: Machine, s: LayerShape) -> bool:
    """Return whether the exchange of a layer's experts overlaps the passes of another micro-batch."""
    # Megatron-Core has it without whole layers or mixtures of experts that run again, under the pipelines of
    # `schedule.may_overlap_experts`.
    limited = operations.limits_expert_overlap(m, s)
    kept_apart = limited and (not s.experts_overlap or "moe" in repeated_modules(m, s))
    return "experts" in m.software.overlaps and not kept_apart


def expert_exchange_seconds(m: Machine, s: LayerShape, passes: float = math.inf) -> float:
    """Compute the exposed seconds of a layer's dispatch of tokens to experts and combining of results, in one pass.

    Two all-to-alls of k·h elements a token, or as many copies as there are domains with experts of it over the NICs,
    and as GPUs with such over the links of the domain, those that came by NIC among them (DeepSeek-V3, arXiv
    2412.19437, section 3.2.2; DeepEP and HybridEP alike). The busiest rank sets the time: it receives more than its
    share where routing is not even. Of what overlaps, `passes` hide their own seconds at most.
    """
    experts = m.model.experts
    if experts is None or s.expert_parallel == 1:
        return 0.0
    own = s.tokens(m.sequence) / s.tensor_parallel
    one = m.expert_imbalance * own * m.model.hidden * m.precision.collective_bytes
    near, far = group_levels(m, stride=1, ranks=s.expert_parallel)
    if m.software.dispatcher == "all_to_all":
        seconds = float(all_to_all(experts.per_token * one, (near, far)))
    else:
        copies = (domains_of_token(experts, s.expert_parallel), domains_of_token(experts, float(far.ranks)))
        each = [float(all_to_all(n * one, (level,))) for n, level in zip(copies, (near, far), strict=True)]
        seconds = max(each)
    hidden = m.software.expert_overlap * seconds if overlaps_experts(m, s) else 0.0
    return 2 * (seconds - min(hidden, passes) + m.software.dispatch_seconds)


def _repeated(
    m: Machine, s: LayerShape, kind: LayerKind, forward: list[LayerOperation], expert: float
) -> tuple[list[LayerOperation], float]:
    """Return a layer's operations that selective recompute runs again, and the seconds of all that runs again."""
    # The norms among them are those whose outputs modules discard (memory.py, `stored_tensors`), with the casts of
    # these for products. Unfused scores, a share of other GEMMs, and exchanges (`expert` seconds) come on top.
    modules, latent = repeated_modules(m, s), m.model.latent_attention
    if not modules:
        return [], 0.0
    names = tuple(name for module in modules for name in REPEATED.get(module, ()))
    before_attention, before_ffn = False, "mlp" in modules and not kind.routed
    if "layernorm" in modules:
        before_attention, before_ffn = latent is not None, before_ffn or kind.routed
        names += ("cast for shared experts in",)
        if latent is not None:
            names += ("cast for KV down", "cast for Q up" if latent.q_rank is None else "cast for Q down")
    norms = [o for o in forward if o.name == "norm"]
    repeated = [o for o, twice in zip(norms, (before_attention, before_ffn), strict=True) if twice]
    repeated += [o for o in forward if o.name.startswith(names)]
    unfused = 0.0
    if not m.software.flash_attention and "core_attn" in modules:
        unfused = _sum(forward, "attention") + math.fsum(o.seconds for o in forward if o.name.startswith("softmax"))
    products = m.software.selective_gemm_share * (_sum(forward, "gemm") - _sum(repeated, "gemm"))
    seconds = unfused + math.fsum(o.seconds for o in repeated) + products
    if {"moe", "shared_experts"} & set(modules) if kind.routed else "mlp" in modules:
        seconds += tensor_exchange_seconds(m, s, kind, of_ffn=True)
    return repeated, seconds + (expert if "moe" in modules else 0.0)


def kind_times(m: Machine, s: LayerShape, kind: LayerKind, nic_slowdown: float = 1.0) -> LayerTimes:
    """Compute the seconds of a kind of layer: operations, exchanges (CP at the NIC's slowdown), waits for launches."""
    ops = operations.layer_operations(m, s, routed=kind.routed, window=kind.window)
    tensor = tensor_exchange_seconds(m, s, kind)
    context, _ = context_exchange(m, s, nic_slowdown)
    if "context" in m.software.overlaps:  # exposed is the time beyond attention
        context = max(0.0, context - _sum(ops.forward, "attention"))
    work = math.fsum(o.seconds for o in ops.forward)
    expert = expert_exchange_seconds(m, s, work / 2) if kind.routed else 0.0
    repeated, selective = _repeated(m, s, kind, ops.forward, expert)
    forward = work + tensor + context + expert
    # The backward pass sends keys and values again, and their gradients back: twice the forward's exchange.
    backward = math.fsum(o.seconds for o in ops.backward) + tensor + 2 * context + expert + selective
    host = layer_bytes(m, s, front=not kind.routed).offloaded / m.gpu.host_bytes_per_second
    forward_wait, backward_wait = max(0.0, host - forward), max(0.0, host - backward)
    launch = max(m.software.launch_seconds, m.software.overlap_launch_seconds if overlaps_experts(m, s) else 0.0)
    # How the names of operations begin that the host launches: of all, or with graphs of routed experts' or none.
    by_host = {"none": ("",), "whole": ()}.get(m.software.cuda_graphs, ("experts", "dispatch", "cast for experts"))
    launches, repeats = (launch * sum(o.name.startswith(by_host) for o in x) for x in (ops.forward, repeated))
    backward_launches = BACKWARD_LAUNCHES * launches + repeats
    waits = max(0.0, launches - forward) + max(0.0, backward_launches - backward)
    parts = {part: _sum(ops.forward, part) + _sum(ops.backward, part) for part in KINDS} | {
        "recompute": selective,
        "tensor_parallel": 2 * tensor,
        "context_parallel": 3 * context,
        "expert_parallel": 2 * expert,
        "launch": waits,
        "offload": forward_wait + backward_wait,
    }
    recomputed = forward
    if not kind.routed and m.software.recompute_stops_early:
        # No backward pass reads what the FFN returns: torch.utils.checkpoint stops before its last product, with the
        # sum and the reduce-scatter behind it (early_stop; the compiler leaves them out as well).
        last = math.fsum(o.seconds for o in ops.forward if o.name in ("FFN out", "cast for FFN out"))
        last += [o.seconds for o in ops.forward if o.name == "residual"][-1]
        recomputed -= last + tensor_exchange_seconds(m, s, kind, of_ffn=True) / (2 if s.sequence_parallel else 1)
    return LayerTimes(
        forward_seconds=max(forward, launches) + forward_wait,
        backward_seconds=max(backward, backward_launches) + backward_wait,
        recompute_seconds=max(recomputed, launches) - selective,
        weight_gradient_seconds=math.fsum(o.weight_gradient_seconds for o in ops.backward),
        parts=parts,
    )


def layer_times(m: Machine, s: LayerShape, nic_slowdown: float = 1.0, *, front: bool = False) -> LayerTimes:
    """Compute the times of a mean layer, with experts where the model has any, or of a dense one at the `front`."""
    # The mean over full and windowed attention, which alternate on stages.
    dense = front or m.model.experts is None
    kinds = [k for k in layer_kinds(m.model) if k.routed != dense]
    layers = sum(k.layers for k in kinds)
    each = [(k.layers / layers, kind_times(m, s, k, nic_slowdown)) for k in kinds]
    passes = ("forward_seconds", "backward_seconds", "recompute_seconds", "weight_gradient_seconds")
    mean = {name: math.fsum(w * getattr(x, name) for w, x in each) for name in passes}
    parts = {part: math.fsum(w * x.parts[part] for w, x in each) for part in each[0][1].parts}
    return LayerTimes(**mean, parts=parts)


def pipeline_send_bytes(m: Machine, s: LayerShape) -> float:
    """Compute the bytes that a TP rank sends to the next stage: 1/t of b·s·h if scattered (Narayanan 2021), or all."""
    size = s.tokens(m.sequence) * m.model.hidden * m.precision.collective_bytes
    return size / s.tensor_parallel if m.software.pipeline_scatter or s.sequence_parallel else size


def pipeline_send_seconds(m: Machine, s: LayerShape, slowdown: float, *, inside: bool = False) -> float:
    """Compute the seconds of a pipeline send, by NIC or `inside` a rack, and of the TP ranks' all-gather behind it.

    Under sequence parallelism the next layer wants its input split as it arrives: no gather (Narayanan 2021, section
    4.1; Korthikanti 2022, section 4.2).
    """
    level, size, gather = scale_up(m, 2) if inside else nic(m, 2, slowdown), pipeline_send_bytes(m, s), 0.0
    if m.software.pipeline_scatter and not s.sequence_parallel:
        gather = float(all_gather(size * s.tensor_parallel, group_levels(m, stride=1, ranks=s.tensor_parallel)))
    crossing = float(level.latency_seconds + size / level.bytes_per_second)
    return crossing + gather + m.software.pipeline_start_seconds


def ranks_in_rack(m: Machine, s: LayerShape, replicas_per_rack: Num) -> Num:
    """Count the ranks of one rack with the same layer weights: its replicas, and their CP ranks in this rack."""
    one_rack = s.gpus <= m.rack.gpus
    return replicas_per_rack * s.context_parallel if one_rack else max(1, m.rack.gpus // s.tensor_parallel)


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """Replicas that exchange layer weights, by rack and site; ZeRO divides over `shards`, `slowdown` between racks."""

    replicas_per_rack: Num
    racks: Num
    shards: Num = 1
    slowdown: Num = 1.0


def replica_exchange(m: Machine, s: LayerShape, weights: Weights, group: ReplicaGroup) -> Callable[..., Num]:
    """Return the seconds in which a group's replicas reduce-scatter or gather layer weights, by bytes of an element.

    They are exchanged inside the rack, then between racks by NICs: those of `layers` layers (1), `end` embeddings (0).
    """
    # Routed experts are shared by one in `expert_parallel` of the GPUs. The racks of CP ranks are among the group's.
    inside, racks, slowdown = ranks_in_rack(m, s, group.replicas_per_rack), group.racks, group.slowdown
    steps, by_byte = reduce_scatter_terms((scale_up(m, inside), nic(m, racks, slowdown)))
    more_steps, by_expert_byte = 0.0, 0.0
    if weights.experts:
        gpus = inside * s.tensor_parallel
        near = np.maximum(1, gpus // s.expert_parallel)
        far = np.maximum(1.0, racks * gpus / (s.expert_parallel * near))
        more_steps, by_expert_byte = reduce_scatter_terms((scale_up(m, near), nic(m, far, slowdown)))

    def seconds(element_bytes: float, *, layers: Num = 1.0, end: Num = 0.0) -> Num:
        shared = (layers * weights.shared + end * weights.end) * element_bytes
        return steps + more_steps + shared * by_byte + layers * weights.experts * element_bytes * by_expert_byte

    return seconds


def allreduce_layer_seconds(m: Machine, s: LayerShape, weights: Weights, replicas_per_rack: Num, racks: Num) -> Num:
    """Compute the seconds to all-reduce a layer's gradients between racks at the NIC's ideal rate (Thakur 2005)."""
    # Each GPU sends its share of the rack's sum round a ring: 2·(n-1)·alpha + 2·(n-1)/n·S/beta.
    g = m.gpu
    size = weights.layer * m.precision.gradient_bytes / ranks_in_rack(m, s, replicas_per_rack)
    return 2 * (racks - 1) * g.nic_latency_seconds + 2 * (racks - 1) / racks * size / g.nic_bytes_per_second


def data_parallel_tail_seconds(
    m: Machine,
    s: LayerShape,
    w: Weights,
    group: ReplicaGroup,
    times: LayerTimes,
    counts: PipelineCounts,
    *,
    zero_stage: int,
    layers: Num,
    end: Num,
) -> Num:
    """Compute the exposed seconds of the replicas' exchange of a stage of some `layers` (Rajbhandari 2020, section 7).

    Layer by layer, gradients are reduced behind the backward passes of the last micro-batches and spread again
    (ZeRO-0), or updated working weights are gathered behind the forward passes of the first ones (ZeRO-1), where the
    framework overlaps them; that of the embeddings (`end` of them) comes after all. ZeRO-2 and 3 have reduced theirs in
    every micro-batch, so only the last layer's is left; ZeRO-3 gathers weights when it next needs them.
    """
    spread_bytes = m.precision.gradient_bytes if zero_stage == 0 else operations.gathered_bytes(m)
    exchange, rate = replica_exchange(m, s, w, group), m.software.data_efficiency

    def reduced_and_spread(layers: Num, end: Num) -> tuple[Num, Num]:
        reduced = exchange(m.precision.gradient_bytes, layers=layers, end=end)
        return reduced / rate, exchange(spread_bytes, layers=layers, end=end) / rate if zero_stage < 3 else 0.0

    reduce, spread = reduced_and_spread(1.0, 0.0)
    last = sum(reduced_and_spread(0.0, end)) if np.any(np.asarray(end) > 0) else 0.0
    if zero_stage == 0:
        reduce, spread = reduce + spread, 0.0
    before, after = spread * layers, reduce * layers
    chunks, p, micro_batches = counts.virtual_stages, counts.pipeline, counts.micro_batches
    first, final = counts.rounds or (np.minimum(micro_batches, p), (micro_batches - 1) % p + 1)  # p, or the fewer left
    if "parameters" in m.software.overlaps:
        before = exposed_behind_chunks(spread, times.forward_seconds, layers, chunks, first)
    if zero_stage >= 2:
        return reduce + before + last
    if "gradients" in m.software.overlaps:
        after = exposed_behind_chunks(reduce, times.backward_seconds, layers, chunks, final)
    return before + after + last


def sharding_traffic_seconds(
    m: Machine, s: LayerShape, w: Weights, zero_stage: int, group: ReplicaGroup, *, layers: Num = 1.0, end: Num = 0.0
) -> tuple[Num, Num]:
    """Compute the seconds of ZeRO's traffic in a micro-batch, forward and backward (Rajbhandari 2020, section 7)."""
    # Stage 2 reduces gradients every micro-batch, since no GPU may keep them all; stage 3 gathers weights in both
    # passes.
    if zero_stage < 2:
        return 0.0, 0.0
    exchange = replica_exchange(m, s, w, group)
    reduce = exchange(m.precision.gradient_bytes, layers=layers, end=end)
    if zero_stage == 2:
        return 0.0, reduce
    gather = exchange(operations.gathered_bytes(m), layers=layers, end=end)
    return gather, gather + reduce


def wan_tail_seconds(
    stage_bytes: Num, gbps: float, rtt_ms: float, round_trips: float, layers: Num, backward_seconds: float
) -> Num:
    """Compute the exposed seconds of the WAN exchange of the stage that ends last, round trips included."""
    return exposed_tail_seconds(8 * stage_bytes / (gbps * 1e9), backward_seconds, layers) + round_trips * rtt_ms / 1e3


def days_to_train(tokens: float, tokens_per_step: float, step_seconds: float, availability: float) -> float:
    """Compute the days to train: tokens over those of a step, at the share of time in which steps advance."""
    return tokens / tokens_per_step * step_seconds / availability / SECONDS_PER_DAY


def days_of(instance: Instance, seconds_per_sequence: float) -> float:
    """Compute the days to train on all tokens of an instance from the seconds a sequence."""
    w = instance.workload
    return float(days_to_train(w.tokens, w.sequence_length, seconds_per_sequence, w.availability))
