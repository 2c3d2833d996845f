"""Time of collectives in the alpha-beta form, level by level of the network; rates are bytes per second, one direction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.physics.num import Num


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Describe one level of the network as a group meets it: how many parts of the level below it joins, and one GPU's share of its links.

    A group of 32 GPUs on four racks of 8 has 8 ranks at the scale-up level and 4 above it. The lowest level is the
    scale-up domain, with 1 rank where the group has one GPU in each. `launch_seconds` is spent once per collective
    at every level with more than one rank. `tree` lets a level without reduction in its switches take logarithmic steps.
    """

    name: str
    ranks: Num
    bytes_per_second: Num
    latency_seconds: float
    launch_seconds: float = 0.0
    reduces_in_network: bool = False
    tree: bool = False


def _launch(level: Level) -> Num:
    """Return the time to start a collective at a level: none where a single rank has nobody to talk to."""
    return np.where(np.asarray(level.ranks) > 1, level.launch_seconds, 0.0)


def _steps(level: Level) -> Num:
    """Count the latencies of a reduce-scatter: 1 by switch, log2(n) by tree, n-1 by ring (never more than the ring's)."""
    n = np.asarray(level.ranks)
    if level.reduces_in_network:
        return np.minimum(n - 1, 1)
    return np.minimum(n - 1, np.log2(n)) if level.tree else n - 1


def reduce_scatter(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Return the time to reduce `size_bytes` (the whole tensor) and leave each rank its part, (n-1)·alpha + (n-1)/n·S/beta per level (Thakur 2005).

    Level by level, each on the share that the one below left. NCCL takes the ring; its PAT (since 2.23; Jeaugey 2025,
    arXiv 2506.20252), like recursive halving, has log2(n)·alpha: `Level.tree`. A switch that reduces saves steps, not
    bytes: every rank receives only its S/n, but still sends all parts except its own, (n-1)/n·S, and takes one alpha
    (Klenk 2020).
    """
    total: Num = 0.0
    for level in levels:
        n = np.asarray(level.ranks)
        total = total + _steps(level) * level.latency_seconds + (n - 1) / n * size_bytes / level.bytes_per_second + _launch(level)
        size_bytes = size_bytes / n
    return total


def all_gather(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Return the time until every rank holds the whole `size_bytes`: the steps of the reduce-scatter, backwards (Thakur 2005).

    A switch that multicasts has each rank send its S/n once, but still receive (n-1)/n·S (Klenk 2020).
    """
    return reduce_scatter(size_bytes, levels)


def all_reduce(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Return the time to reduce `size_bytes` on every rank: a ring's 2·(n-1)·alpha + 2·(n-1)/n·S/beta at each level (Thakur 2005).

    S is the whole tensor: a TP all-reduce moves b·s·h elements, not 1/t of them. Where the switches reduce and multicast,
    each rank sends and receives S once: 2·alpha + S/beta (Klenk 2020; Graham 2016). With `Level.tree` the highest level
    of the group takes the lesser of the ring and the pipelined double binary tree, 2·log2(n)·alpha + 2·S/beta (Sanders
    2009; NCCL since 2.4); below it a tree would leave the sum with its two roots, not a share with every rank. NCCL
    has PAT for the halves alone, so there an all-reduce may take longer than a reduce-scatter and an all-gather.
    """
    total: Num = 0.0
    for k, level in enumerate(levels):
        n = np.asarray(level.ranks)
        time = 2 * (n - 1) * level.latency_seconds + 2 * (n - 1) / n * size_bytes / level.bytes_per_second
        if level.reduces_in_network:
            switch = np.where(n > 1, 2 * level.latency_seconds + size_bytes / level.bytes_per_second, 0.0)
            time = np.minimum(time, switch)
        elif level.tree:
            above = math.prod((np.asarray(x.ranks) for x in levels[k + 1 :]), start=1.0)
            tree = 2 * np.log2(n) * level.latency_seconds + 2 * size_bytes / level.bytes_per_second
            time = np.where(above > 1, time, np.minimum(time, tree))
        total = total + time + _launch(level)
        size_bytes = size_bytes / n
    return total


def all_to_all(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Return the time for every rank to send `size_bytes` in equal parts to all N ranks of the group, itself among them.

    At the lowest level (n_0 - 1)/N of it stays inside the scale-up domain; all else leaves by the GPU's own NIC. What
    crosses a higher level k is all that leaves the part below: the sum of (n_j - 1)·(ranks below j)/N over j >= k, which
    is 1 - (ranks below k)/N. Levels are different links and work at the same time, so the slowest sets the time; their
    latencies add.
    """
    ranks = [np.asarray(level.ranks) for level in levels]
    group = math.prod(ranks, start=1.0)
    busiest: Num = 0.0
    latency: Num = 0.0
    further: Num = 0.0
    for k, level in reversed(list(enumerate(levels))):
        here = size_bytes * (ranks[k] - 1) * math.prod(ranks[:k], start=1.0)
        further = here + further if k else here
        busiest = np.maximum(busiest, further / group / level.bytes_per_second)
        latency = latency + np.minimum(ranks[k] - 1, 1) * level.latency_seconds + _launch(level)
    return busiest + latency


def point_to_point(size_bytes: Num, level: Level) -> Num:
    """Return the time to send `size_bytes` to another rank of a level, alpha + S/beta (Hockney 1994); none where it has a single rank."""
    return np.where(np.asarray(level.ranks) > 1, level.launch_seconds + level.latency_seconds + size_bytes / level.bytes_per_second, 0.0)


def exposed_tail_seconds(total_seconds: Num, layer_backward_seconds: Num, layers: Num) -> Num:
    """Return what is left of a per-layer collective after the backward pass that it runs beside.

    Layer k's exchange starts when its gradients are ready, so at the end at least the last layer's exchange remains,
    or all that did not fit beside the other layers' backward.
    """
    return np.maximum(total_seconds / layers, total_seconds - (layers - 1) * layer_backward_seconds)
