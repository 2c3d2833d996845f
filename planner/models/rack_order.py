"""The order of a site's racks in stripes, and what crosses leaf domains, pods and zones on it: counted, not estimated.

A unit is the racks of one rack stage of one block, side by side, which no run of racks parts.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.cluster import fold, width
from planner.physics.network.clos_fabric import Design
from planner.plan.plan_sections import Assignment

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Counts = NDArray[np.int32]
MOST_EDGES = 1 << 15  # of runs under all numbers of stripes, counted at a time


@lru_cache(maxsize=4096)
def units(stages: int, blocks: int, stripes: int) -> Ints:
    """Return the place of every unit (a block's rack stage) in the order of a site's racks; shape (stages, blocks)."""
    # A stripe lays its part of each block side by side, stage by stage; then the next stripe follows. One stripe: whole
    # pipelines side by side; as many as stages: whole all-reduce groups. The larger stripes come first.
    found, first = np.empty((stages, blocks), dtype=np.int64), 0
    for k in range(stripes):
        size = stages // stripes + (k < stages % stripes)
        inside = np.arange(size)[:, None] + size * np.arange(blocks)[None, :]
        found[first : first + size] = first * blocks + inside
        first += size
    found.flags.writeable = False
    return found


def rank_order(stages: int, blocks: int, stripes: int, unit_racks: int) -> list[list[int]]:
    """List the racks of each rack stage in the order of ranks: block by block, the racks of a unit side by side."""
    at = units(stages, blocks, stripes)[:, :, None] * unit_racks + np.arange(unit_racks)[None, None, :]
    return [[int(rack) for rack in row] for row in at.reshape(stages, -1)]


def leaf_local_shares(stages: int, blocks: int, stripes: int, unit_racks: int, sizes: Ints) -> Floats:
    """Return the share of all-reduce groups whole under one leaf in an order of racks, by size of leaf domain."""
    at = units(stages, blocks, stripes) * unit_racks
    first, last = at.min(axis=1)[:, None], at.max(axis=1)[:, None] + unit_racks - 1
    return np.asarray((first // sizes == last // sizes).mean(axis=0), dtype=np.float64)


def leaving(
    stages: int, blocks: int, stripes: Ints, sizes: Ints, *, wrap: bool, shares: bool = True, first_only: bool = False
) -> Floats:
    """Count the traffic that leaves runs of `sizes` units of a site's rack order, racks ordered in stripes.

    By numbers of stripes and sizes: the most pipeline flows that leave or enter a run, each of a unit, the most
    all-reduces that leave one, and the largest share of a stage's units, which is left at zero without `shares`. Runs
    of equal size tile the order; `first_only` counts the first of them alone, which bounds the most from below.
    """
    found = np.zeros((len(stripes), len(sizes), 3))
    if not len(sizes):
        return found
    edges, low, first = _tiles(stages * blocks, tuple(sizes.tolist()), first_only=first_only)
    step = max(1, MOST_EDGES // len(edges))
    for some in (slice(at, at + step) for at in range(0, len(stripes), step)):
        n = stripes[some].astype(np.int32)  # which divides in half the time, and holds any number of units
        for kind, of_runs in enumerate(_out_of_runs(stages, blocks, n, edges, low, wrap=wrap)[: 2 + shares]):
            found[some, :, kind] = np.maximum.reduceat(of_runs, first).T
    found[..., 2] /= blocks
    return found


@lru_cache(maxsize=16)
def _tiles(every: int, sizes: tuple[int, ...], *, first_only: bool) -> tuple[Counts, Ints, Ints]:
    """Tile the rack order by runs of each size; return all edges, the lower edge of each run, and each size's first."""
    size, order = np.array(sizes), np.arange(len(sizes))
    count = np.ones_like(size) if first_only else -(-every // size)
    first = np.cumsum(count) - count
    low = np.arange(int(count.sum())) + np.repeat(order, count)  # each size has an edge more than runs
    start = np.repeat(first + order, count + 1)
    edges = np.minimum((np.arange(len(start)) - start) * np.repeat(size, count + 1), every)
    return edges[:, None].astype(np.int32), low, first


def _out_of_runs(
    stages: int, blocks: int, stripes: Counts, edges: Counts, low: Ints, *, wrap: bool
) -> tuple[Counts, Counts, Counts]:
    """Count, of each run of the rack order, flows across its ends, all-reduces across them, and units of one stage.

    A run lies between the edges `low` and `low + 1`. Edges and runs have a row each, numbers of stripes a column. A
    stripe is w stages wide, and each of its parts of a block takes w units.
    """
    small, larger = np.divmod(stages, stripes)
    ahead = larger * (small + 1) * blocks
    # Of each edge: its stripe, the width of that, and the units from its start.
    k = np.where(edges < ahead, edges // ((small + 1) * blocks), larger + (edges - ahead) // (small * blocks))
    width, behind = small + (k < larger), edges - (k * small + np.minimum(k, larger)) * blocks

    def crossing(source: Counts, target: Counts) -> tuple[Counts, Counts]:  # flows out of runs and into them
        starts, ends, begun, ended = (x[at] for x in (source, target) for at in (low, low + 1))
        within = np.maximum(0, ended - starts)
        return ends - starts - within, ended - begun - within

    # Flows go along a stripe to the next unit of a block's part, from its last unit to the first in the next stripe,
    # and with `wrap` from the last stripe to the first. Sources and targets of each kind ascend together, so those with
    # both ends in a run lie one after another: as many as start before its end, less those that end before it.
    parts = behind // width
    lasts = k * blocks + parts  # units before an edge that are the last of their parts
    starts = lasts + (behind > parts * width)  # and that are the first
    others = (stripes - 1) * blocks
    out, into = crossing(edges - lasts, edges - starts)
    more = crossing(np.minimum(lasts, others), np.maximum(starts - blocks, 0))
    out, into = out + more[0], into + more[1]
    if wrap:  # these go back: a target comes before its source
        more = crossing(np.minimum(starts, blocks), np.maximum(lasts - others, 0))
        out, into = out + more[1], into + more[0]
    # A run's parts of the stripes at its ends: the width, and two places after the stripe's start; those of the last
    # stripe are empty where it is the first. A stripe that a run holds whole has no all-reduce that leaves it. Of any
    # other it meets one stage a unit, w at the most, and holds those whole whose units of the first block and of the
    # last are both in it.
    (k, width, start), (k_end, width_end, end) = ((k[at], width[at], behind[at]) for at in (low, low + 1))
    first = width, start, np.where(k_end > k, width * blocks, end)
    cut, stage = np.zeros_like(start), np.where(k_end - k > 1, blocks, 0)
    for wide, begin, stop in (first, (width_end, np.zeros_like(start), np.where(k_end > k, end, 0))):
        cut += np.minimum(stop - begin, wide) - np.maximum(0, np.minimum(wide, stop - (blocks - 1) * wide) - begin)
        stage = np.maximum(stage, -(-(stop - begin) // wide))
    return np.maximum(out, into), cut, stage


def assignment(order: list[list[int]], design: Design) -> tuple[Assignment, ...]:
    """Return every stage's pieces by leaf domain, racks in rank order; a piece ends where the domain changes."""
    pieces, size, digits = list[Assignment](), design.domain_racks, width(design.racks)
    for stage, racks in enumerate(order):
        first = 0
        for k in range(1, len(racks) + 1):
            if k == len(racks) or racks[k] // size != racks[first] // size:
                domain, own = racks[first] // size, fold(racks[first:k], digits)
                pieces.append(Assignment(stage=stage, leaf_domain=domain, racks=own))
                first = k
    return tuple(pieces)
