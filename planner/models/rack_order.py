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
RunContents = tuple[Counts, Counts, Counts]  # of a stripe by a run: the stripe's width, and two places behind its start


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


def leaving(stages: int, blocks: int, stripes: Ints, sizes: Ints, *, wrap: bool, shares: bool = True) -> Floats:
    """Count the traffic that leaves runs of `sizes` units of a site's rack order, racks ordered in stripes.

    By numbers of stripes and sizes: the most pipeline flows that leave or enter a run, each of a unit, the most
    all-reduces that leave one, and the largest share of a stage's units, which is left at zero without `shares`.
    """
    found = np.zeros((len(stripes), len(sizes), 3))
    if not len(sizes):
        return found
    edges, low, first = _tiles(stages * blocks, tuple(sizes.tolist()))
    step = max(1, MOST_EDGES // len(edges))
    for some in (slice(at, at + step) for at in range(0, len(stripes), step)):
        n = stripes[some].astype(np.int32)  # which divides in half the time, and holds any number of units
        runs = _Runs(stages, blocks, n, edges[:, None].astype(np.int32), low, first)
        found[some, :, 0] = runs.flows(wrap=wrap).T
        found[some, :, 1] = runs.allreduces().T
        if shares:
            found[some, :, 2] = runs.most_of_a_stage().T / blocks
    return found


@lru_cache(maxsize=16)
def _tiles(every: int, sizes: tuple[int, ...]) -> tuple[Ints, Ints, Ints]:
    """Tile the rack order by runs of each size; return all edges, the lower edge of each run, and each size's first."""
    size, order = np.array(sizes), np.arange(len(sizes))
    count = -(-every // size)
    first = np.cumsum(count) - count
    low = np.arange(int(count.sum())) + np.repeat(order, count)  # each size has an edge more than runs
    start = np.repeat(first + order, count + 1)
    return np.minimum((np.arange(len(start)) - start) * np.repeat(size, count + 1), every), low, first


class _Runs:
    """Runs of equal size that tile the rack order's units, one size after another, under numbers of stripes.

    A stripe is w stages wide, and each of its parts of a block takes w units. A run lies between the edges `low` and
    `low + 1`; those of a size begin at `first`.
    """

    def __init__(self, stages: int, blocks: int, stripes: Counts, edges: Counts, low: Ints, first: Ints) -> None:
        # Stripes have a column each; edges, the ends of all runs and those of a size ascending, a row each.
        self.blocks, self.stripes, self.edges, self.low, self.first = blocks, stripes, edges, low, first
        small, larger = np.divmod(stages, stripes)
        ahead = larger * (small + 1) * blocks
        k = np.where(edges < ahead, edges // ((small + 1) * blocks), larger + (edges - ahead) // (small * blocks))
        # Of each edge: its stripe, the width of that, and the units from its start.
        self.stripe, self.width = k, small + (k < larger)
        self.behind = edges - (k * small + np.minimum(k, larger)) * blocks

    def flows(self, *, wrap: bool) -> Counts:
        """Count the most pipeline flows that leave or enter a run of each size in the rack order.

        Flows go along a stripe to the next unit of a block's part, from its last unit to the first in the next stripe,
        and with `wrap` from the last stripe to the first. Sources and targets of each kind ascend together, so those
        with both ends in a run lie one after another: as many as start before its end, less those that end before it.
        """
        parts = self.behind // self.width
        lasts = self.stripe * self.blocks + parts  # units before an edge that are the last of their parts
        starts = lasts + (self.behind > parts * self.width)  # and that are the first
        others = (self.stripes - 1) * self.blocks
        out, into = self._crossing(self.edges - lasts, self.edges - starts)
        more = self._crossing(np.minimum(lasts, others), np.maximum(starts - self.blocks, 0))
        out, into = out + more[0], into + more[1]
        if wrap:  # these go back: a target comes before its source
            more = self._crossing(np.minimum(starts, self.blocks), np.maximum(lasts - others, 0))
            out, into = out + more[1], into + more[0]
        return self._most(np.maximum(out, into))

    def _crossing(self, source: Counts, target: Counts) -> tuple[Counts, Counts]:
        """Return the flows out of runs of the rack order and into them, given starts and ends before each edge."""
        starts, ends, begun, ended = (x[at] for x in (source, target) for at in (self.low, self.low + 1))
        within = np.maximum(0, ended - starts)
        return ends - starts - within, ended - begun - within

    def stripes_met(self) -> tuple[Counts, tuple[RunContents, RunContents]]:
        """Count the whole stripes inside each run of the rack order, and return its parts of those at its ends."""
        # The contents are the width, and two places after the stripe's start; those of the last stripe are empty where
        # it is the first.
        (k, width, start), (k_end, width_end, end) = (
            (self.stripe[at], self.width[at], self.behind[at]) for at in (self.low, self.low + 1)
        )
        several = k_end > k
        first = width, start, np.where(several, width * self.blocks, end)
        return k_end - k - 1, (first, (width_end, np.zeros_like(start), np.where(several, end, 0)))

    def allreduces(self) -> Counts:
        """Count the most stages with racks both in a run of each size and elsewhere: all-reduces that leave it."""
        # A stripe that a run holds whole has none. Of any other it meets one stage a unit, w at the most, and holds
        # those whole whose units of the first block and of the last are both in it.
        cut = np.zeros((1, 1), dtype=np.int32)
        for wide, start, end in self.stripes_met()[1]:
            whole = np.minimum(wide, end - (self.blocks - 1) * wide) - start
            cut = cut + np.minimum(end - start, wide) - np.maximum(0, whole)
        return self._most(cut)

    def most_of_a_stage(self) -> Counts:
        """Count the most units of one stage in a run of each size of the rack order."""
        amid, ends = self.stripes_met()
        whole = np.where(amid > 0, self.blocks, 0)
        return self._most(np.maximum.reduce([whole, *(-(-(end - start) // wide) for wide, start, end in ends)]))

    def _most(self, of_runs: Counts) -> Counts:
        found: Counts = np.maximum.reduceat(of_runs, self.first)
        return found


def first_run(stages: int, blocks: int, stripes: Ints, sizes: Ints, *, wrap: bool) -> tuple[Ints, Ints]:
    """Count the pipeline flows and all-reduces that leave or enter the first run of `sizes` units of the rack order.

    The counts are in closed form, by stripes (rows) and sizes (columns), and at most the maximum over all runs. The
    first run holds k whole stripes, and of the next q whole parts of blocks and r stages of one more.
    """
    n, size = np.asarray(stripes, dtype=np.int64)[:, None], np.asarray(sizes, dtype=np.int64)[None, :]
    small, larger = stages // n, stages % n
    at = size // blocks
    in_larger = at < larger * (small + 1)
    k = np.where(in_larger, at // (small + 1), larger + (at - larger * (small + 1)) // small)
    width = np.where(in_larger, small + 1, small)
    q, r = np.divmod(size - (k * small + np.minimum(k, larger)) * blocks, width)
    begun = q + (r > 0)
    leaves = np.where(k > 0, blocks - begun, 0) + (r > 0) + np.where(k + 1 < n, q, 0)
    enters = np.where(k + 1 < n, np.where(k > 0, blocks, begun), 0) if wrap else np.zeros_like(leaves)
    around = np.where(q == 0, r, np.where(q == blocks - 1, width - r, width))
    return np.maximum(leaves, enters), around if blocks > 1 else np.zeros_like(around)


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
