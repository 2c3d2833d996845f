"""Seconds of collectives in a step: all-reduce and others over network levels; exchanges of TP, CP, EP and stages."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.instance.workload import Experts
from planner.physics import Num
from planner.physics.training import operations
from planner.physics.training.memory import repeated_modules
from planner.physics.training.operations import LayerShape, Machine
from planner.physics.training.parallel_strategy import expert_gpus_of_rack
from planner.physics.training.transformer import LayerKind


class Level(NamedTuple):  # which takes a third of the time of a dataclass to make
    """A network level of a collective: how many parts of the level below a group joins, and a GPU's rate there."""

    ranks: Num  # a group of 32 GPUs on four racks of 8 has 8 at the scale-up level, and 4 above it
    bytes_per_second: Num  # in one direction
    latency_seconds: float
    reduces_in_network: bool = False


def reduce_scatter_terms(levels: Sequence[Level]) -> tuple[Num, Num]:
    """Compute the seconds of a reduce-scatter's steps, and those by byte of the tensor (Thakur 2005; Klenk 2020)."""
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
    """Compute the seconds of a reduce-scatter of `size_bytes` (the entire tensor), of which a rank keeps its part."""
    steps_seconds, seconds_per_byte = reduce_scatter_terms(levels)
    return steps_seconds + seconds_per_byte * size_bytes


all_gather = reduce_scatter  # the same steps, backwards, until every rank has the entire tensor


def all_reduce(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Compute the seconds of an all-reduce of `size_bytes` (Thakur 2005; in switch Klenk 2020, Graham 2016)."""
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
    """Compute the seconds of an all-to-all: every rank sends `size_bytes` in equal parts to all ranks, itself too."""
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
    """Return the network levels of a collective of `ranks` GPUs, `stride` apart: scale-up domain, then the NICs."""
    # A group larger than its part of the domain fills whole domains; each GPU carries its share over its own NIC.
    inside = max(1, min(ranks, m.rack.gpus // stride)) if stride <= m.rack.gpus else 1
    return (scale_up(m, inside), nic(m, ranks / inside, slowdown))


def scale_up(m: Machine, ranks: Num) -> Level:
    """Return the scale-up domain as the network level of a collective with `ranks` ranks in it."""
    g = m.gpu
    rate = g.scale_up_bytes_per_second * g.scale_up_efficiency
    return Level(ranks, rate, g.scale_up_latency_seconds, reduces_in_network=g.scale_up_reduces)


def nic(m: Machine, ranks: Num, slowdown: Num = 1.0) -> Level:
    """Return the NICs as the network level of a collective between scale-up domains; a slowdown stretches its rate."""
    g = m.gpu
    return Level(ranks, g.nic_bytes_per_second * g.nic_efficiency / slowdown, g.nic_latency_seconds)


def context_exchange(m: Machine, s: LayerShape, slowdown: float) -> tuple[float, float]:
    """Compute the seconds of a pass's all-gather of keys and values over CP ranks (Thakur 2005), and of the NIC."""
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


def overlaps_tensors(m: Machine) -> bool:
    """Return whether a layer's TP collectives under sequence parallelism overlap its products."""
    # Under FP4 no release of Megatron-Bridge overlaps them (scripts/performance/configs, tp_comm_overlap).
    return "tensor" in m.software.overlaps and m.precision.compute != "fp4"


def tensor_seconds(m: Machine, s: LayerShape, *, gathered: float) -> tuple[float, float]:
    """Compute the seconds of a TP collective of b·s·h elements of a layer, `gathered` bytes each, and of its copies."""
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
    """Compute the seconds of a micro-batch's TP collectives of the embedding and of the head, forward and backward.

    Both divide the vocabulary: ranks sum the embeddings of the tokens, and the gradients of the head's input; the
    loss sums its largest logits, the sums of their exponentials and the labels' logits, the latter two at once where
    it is fused (Megatron-LM: Shoeybi 2019, section 3; fused_cross_entropy.py).
    """
    if s.tensor_parallel == 1:
        return 0.0, 0.0
    one = sum(tensor_seconds(m, s, gathered=m.precision.collective_bytes)) + m.software.collective_seconds
    return one, one + (2 if m.software.fused_loss else 3) * m.software.collective_seconds


def tensor_exchange_seconds(m: Machine, s: LayerShape, kind: LayerKind, *, of_ffn: bool = False) -> float:
    """Compute the exposed seconds of a layer's TP collectives in one pass, or of those of its FFN alone.

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
    """Compute over how many of n domains an all-to-all sends a token, k experts in g of G groups (arXiv 2412.19437)."""
    # Without groups it is n·(1 - (1 - 1/n)^k). A domain of whole groups, q = G/n of them, has j of the token's groups
    # with the probability of drawing g from G, and then none of its experts with (1 - j/g)^k; a domain that is part of
    # a group has the group with g/G (node-limited routing, section 2.1.2).
    k, total, own = experts.per_token, experts.groups, experts.groups_per_token
    if domains >= total:
        return domains * own / total * (1 - (1 - total / (domains * own)) ** k)
    q = round(total / domains)
    ways = math.comb(total, own)
    drawn = ((j, math.comb(q, j) * math.comb(total - q, own - j) / ways) for j in range(min(q, own) + 1))
    return domains * (1 - math.fsum(chance * (1 - j / own) ** k for j, chance in drawn))


def limits_expert_overlap(m: Machine, s: LayerShape) -> bool:
    """Return whether it depends on pipeline and recompute that the experts' all-to-all overlaps operations."""
    software, divided = m.software, m.model.experts is not None and s.expert_parallel > 1
    return divided and "experts" in software.overlaps and software.expert_overlap_layouts == "interleaved"


def overlaps_experts(m: Machine, s: LayerShape) -> bool:
    """Return whether the all-to-all collectives of a layer's experts overlap the passes of another micro-batch."""
    # Megatron-Core has it without whole layers or mixtures of experts that run again, under the pipelines of
    # `schedule.may_overlap_experts`.
    kept_apart = limits_expert_overlap(m, s) and (not s.experts_overlap or "moe" in repeated_modules(m, s))
    divided = m.model.experts is not None and s.expert_parallel > 1
    return divided and "experts" in m.software.overlaps and not kept_apart


def expert_exchange_seconds(m: Machine, s: LayerShape, passes: float = math.inf) -> float:
    """Compute the exposed seconds of the experts' all-to-all collectives of a layer in one pass: dispatch and combine.

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
    inside = expert_gpus_of_rack(m, s)
    near, far = scale_up(m, inside), nic(m, s.expert_parallel / inside)
    if m.software.dispatcher == "all_to_all":
        seconds = float(all_to_all(experts.per_token * one, (near, far)))
    else:
        copies = (domains_of_token(experts, s.expert_parallel), domains_of_token(experts, float(far.ranks)))
        seconds = max(float(all_to_all(n * one, (level,))) for n, level in zip(copies, (near, far), strict=True))
    hidden = m.software.expert_overlap * seconds if overlaps_experts(m, s) else 0.0
    return 2 * (seconds - min(hidden, passes) + m.software.dispatch_seconds)


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
    return float(level.latency_seconds + size / level.bytes_per_second) + gather + m.software.pipeline_start_seconds
