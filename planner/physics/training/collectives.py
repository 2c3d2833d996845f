"""Seconds of collectives in the alpha-beta form, level by level of the network; rates are bytes/s in one direction."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.physics.num import Num


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of the network: how many parts of the level below a group joins, and one GPU's share of its links.

    A group of 32 GPUs on four racks of 8 has 8 ranks at the scale-up level and 4 above it.
    """

    name: str
    ranks: Num
    bytes_per_second: Num
    latency_seconds: float
    reduces_in_network: bool = False


def reduce_scatter_terms(levels: Sequence[Level]) -> tuple[Num, Num]:
    """Compute the two terms of a reduce-scatter: the seconds of its steps, and its seconds by byte of the tensor.

    Level by level, each on the share that the one below left. At each level a ring takes (n-1)·alpha + (n-1)/n·S/beta
    (Thakur 2005). A switch that reduces saves steps, not bytes: every rank still sends all parts but its own (Klenk
    2020).
    """
    steps_seconds: Num = 0.0
    seconds_per_byte: Num = 0.0
    share: Num = 1.0
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


def all_gather(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Compute the seconds until every rank has all `size_bytes`: the steps of the reduce-scatter, backwards."""
    return reduce_scatter(size_bytes, levels)


def all_reduce(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Compute the seconds to reduce `size_bytes` on every rank.

    A ring takes 2·(n-1)·alpha + 2·(n-1)/n·S/beta at each level (Thakur 2005). S is the entire tensor: a TP all-reduce
    moves b·s·h elements, not 1/t of them. Where the switches reduce and multicast, each rank sends and receives S once:
    2·alpha + S/beta (Klenk 2020; Graham 2016).
    """
    total: Num = 0.0
    for level in levels:
        n = np.asarray(level.ranks)
        ring = 2 * (n - 1) * level.latency_seconds + 2 * (n - 1) / n * size_bytes / level.bytes_per_second
        switch = np.where(n > 1, 2 * level.latency_seconds + size_bytes / level.bytes_per_second, 0.0)
        total = total + (np.minimum(ring, switch) if level.reduces_in_network else ring)
        size_bytes = size_bytes / n
    return total


def all_to_all(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Compute the seconds for every rank to send `size_bytes` in equal parts to all ranks, itself among them.

    In a group of N, the traffic that crosses level k goes to the ranks in the same part of the level above and another
    part of this one: (n_k - 1)·(ranks below) / N of a rank's bytes. Levels are different links and work at the same
    time, so the slowest sets the time; their latencies add.
    """
    group: Num = 1.0
    for level in levels:
        group = group * np.asarray(level.ranks)
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
    """Compute the seconds of a collective for each layer that passes of a pipeline do not hide.

    A stage has l layers in v chunks, and runs a chunk for n micro-batches before it goes on to the next, w = `work`
    seconds a layer; each layer's collective takes e = `each` seconds, one after another. Backward: a layer's gradients
    are ready as the last of the n passes leaves it. From a chunk on, the collectives take e for each layer of it and of
    the chunks after it, and overlap the rest of its last pass and n passes of each chunk after it. The longest exposed
    time starts with the first chunk or the last one: max(e, e·l/v - (l/v - 1)·w, e·l - (((v - 1)·n + 1)·l/v - 1)·w).
    Forward is its mirror: a layer's weights are needed as the first pass comes to it. With v = 1 the formula is that of
    `exposed_tail_seconds`; it never falls with l.
    """
    size = layers / chunks
    last, first = each * size - (size - 1) * work, each * layers - (((chunks - 1) * batches + 1) * size - 1) * work
    return np.maximum(each, np.maximum(last, first))


def exposed_tail_seconds(total_seconds: Num, backward_seconds: Num, layers: Num) -> Num:
    """Compute the seconds of a per-layer collective that the concurrent backward pass does not hide.

    Layer k's exchange starts when its gradients are ready, so at the end at least the last layer's exchange remains,
    or the part of all exchanges that exceeds the other layers' backward passes.
    """
    return np.maximum(total_seconds / layers, total_seconds - (layers - 1) * backward_seconds)
