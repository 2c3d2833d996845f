"""The search for the curve: a heap of ranges, columns and shapes by their gaps, until all are within epsilon.

Each node is a set of plans with floors of seconds and capital; its gap is how far no incumbent covers these. A node
whose gap is no more than epsilon is closed: each of its plans has an incumbent that is at most so much worse in both.
The node of the largest gap is opened first, so that at any moment the largest gap left is what is proven.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.models.joint import bounds
from planner.models.joint.bounds import Rows
from planner.models.joint.columns import (
    Pipes,
    column_at,
    columns_of,
    free_seconds,
    in_memory,
    min_seconds,
    min_terms,
    pipelines_of,
    terms_under_zero,
)
from planner.models.joint.curve.capital_floor import CapitalFloor
from planner.models.joint.curve.front import Front
from planner.models.joint.curve.pricing import Pricing
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.space import Floats, Ints, Strategy
from planner.models.joint.split import Column
from planner.models.joint.tree.tree import days
from planner.models.joint.world import Shape, World, open_sites, shapes, spared

HOT = 0.5  # of the largest gap of a batch, from which on its ranges are opened
SLOWEST = 20.0  # times the least floor of the table: slower plans are outside the box
NARROW = 0.3  # of its blocks, within which a range is not halved under any ZeRO stage
STALE = 0.98  # of its gap when it was pushed, below which a node waits anew
CUTS = 1.1  # cutoffs of ranges that are within this factor share one
NEVER = 1e18  # seconds a sequence, in place of infinity
COLUMN_STEP = 0.5  # of capital: columns are priced once a step of half the gap


@dataclass(frozen=True, slots=True)
class TableRows:
    """Pipelines of a strategy: least seconds of a micro-batch and once a batch, racks and rails of a block."""

    strategy: Strategy
    rows: Rows
    each: Floats
    once: Floats
    racks: Ints
    rails: Ints

    def ranged(self, at: Ints, high: Ints) -> Rows:
        """Return some pipelines with as many replicas as so many blocks hold."""
        return replace(self.rows.part(at), d=np.minimum(high * self.rows.block_replicas[at], self.rows.d[at]))

    def seconds(self, at: Ints, rows: Rows) -> Floats:
        """Bound the seconds a sequence of some pipelines with up to their replicas, on a clock."""
        found = min_seconds(self.strategy, rows, self.each[at], self.once[at]) / self.strategy.shape.micro_batch
        return np.asarray(found, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Pipelines of a strategy, under a ZeRO stage or any, with more than `low` and at most `high` blocks; floors."""

    of: TableRows
    zero: int | None
    at: Ints
    low: Ints
    high: Ints
    seconds: Floats
    usd: Floats

    def part(self, which: Any) -> "Ranges":
        """Return some of the ranges."""
        some = (x[which] for x in (self.at, self.low, self.high, self.seconds, self.usd))
        return Ranges(self.of, self.zero, *some)


@dataclass(frozen=True, slots=True)
class Group:
    """Columns of a pipeline with as many blocks at so many sites (0: any), least bound first, from a place on."""

    strategy: Strategy
    zero: int
    table: Rows
    times: Floats
    place: int = 0
    sites: int = 0


@dataclass(frozen=True, slots=True)
class ShapesLeft:
    """Shapes of a column over so many sites that were not opened yet, times ascending."""

    column: Column
    sites: int
    rest: Iterator[Shape]


@dataclass(kw_only=True)
class CurveSearch:
    """The open nodes by their gaps, largest first, and the incumbents."""

    world: World
    epsilon: float
    progress: Callable[["CurveSearch"], None] = lambda _: None
    front: Front = field(default_factory=Front)
    heap: list[tuple[float, int, float, float, Any]] = field(default_factory=list)
    order: Iterator[int] = field(default_factory=itertools.count)
    proven: float = math.inf  # gap that no plan of the box exceeds
    tried: set[tuple[float, int]] = field(default_factory=set)

    @property
    def within(self) -> float:
        """The gap within which plans are left out: a little below epsilon, so that rounding opens no node for ever."""
        return self.epsilon * (1 - 1e-9)

    @cached_property
    def floor(self) -> CapitalFloor:
        """Floors of capital."""
        return CapitalFloor(world=self.world)

    @cached_property
    def pricing(self) -> Pricing:
        """What prices columns and shapes."""
        return Pricing(world=self.world, front=self.front, floor=self.floor)

    @cached_property
    def table(self) -> list[TableRows]:
        """The pipelines of every strategy that may hold the model, with floors under any ZeRO stage."""
        found = []
        for s in self.world.strategies():
            self.world.deadline.check()
            keys, rows = pipelines_of(self.world, s)
            fitting = np.flatnonzero(in_memory(self.world, s)) if len(keys) else np.empty(0, dtype=np.int64)
            if not len(fitting):
                continue
            rows, t, total = rows.part(fitting), s.pipelines, self._sequences(s)
            names = t.p * (1 << 32) + t.v
            order = np.argsort(names)
            at = order[np.searchsorted(names[order], rows.p * (1 << 32) + rows.v)]
            each, once = (x[at] for x in min_terms(self.world, s, total))
            found.append(TableRows(s, rows, each, once / total, t.racks[at], t.rails[at]))
        return found

    def _sequences(self, s: Strategy) -> int:
        """Return the most micro-batches of a step."""
        return s.problem.max_sequences // s.shape.micro_batch

    def open_all(self) -> None:
        """Open every range of blocks of every pipeline: (most/2, most], (most/4, most/2], ..."""
        for of in self.table:
            most = np.maximum(of.rows.blocks(), 1)
            at, high = np.arange(len(of.rows)), most.copy()
            while len(at):
                low = high // 2
                self._push(Ranges(of, None, at, low, high, np.zeros(len(at)), np.zeros(len(at))), bounded=True)
                at, high = at[low > 0], low[low > 0]

    def box(self) -> None:
        """Fix the box before the search: plans that are many times slower than the least floor are outside."""
        least = [float(of.seconds(np.arange(len(of.rows)), of.rows).min()) for of in self.table]
        deadline = self.world.problem.instance.limits.deadline_days
        late = math.inf if deadline is None else deadline / days(self.world.problem, 1.0)
        self.front.slowest = min(late * (1 + 1e-9), SLOWEST * min(least, default=math.inf))

    def run(self) -> None:
        """Open nodes, the largest gap first, until none exceeds epsilon."""
        self.open_all()
        while self.heap:
            self.world.deadline.check()
            was, _, t, c, what = heapq.heappop(self.heap)
            if isinstance(what, Ranges):
                self._note(-was)
                self._open_ranges(-was, what)
                continue
            now = self.front.gap(t, c)
            if now <= self.epsilon:
                continue
            if now < -was * (1 - 1e-9):
                self._push_node(t, c, what)
                continue
            self._note(now)
            if isinstance(what, Group):
                self._open_group(t, c, min(0.5, now), what)
            elif isinstance(what, ShapesLeft):
                self._open_shapes(t, c, what)
            else:
                after = self.pricing.step(t, c, self.within, what)
                if after is not None:
                    self._push_node(*after)
        self._note(self.epsilon)

    def _note(self, gap: float) -> None:
        """Lower what is proven to the largest gap left."""
        self.proven = min(self.proven, max(gap, self.epsilon))
        self.progress(self)

    def _push_node(self, t: float, c: float, what: Any) -> None:
        """Open a node unless an incumbent is within epsilon of it."""
        gap = self.front.gap(t, c)
        if gap > self.epsilon:
            heapq.heappush(self.heap, (-gap, next(self.order), t, c, what))

    def _push(self, x: Ranges, *, bounded: bool = False) -> None:
        """Open ranges; `bounded`: with floors of their own, no lower than those that they have."""
        if not len(x.at):
            return
        if bounded:
            rows = x.of.ranged(x.at, x.high)
            usd = np.maximum(x.usd, self.floor.usd((x.low + 1) * x.of.racks[x.at], x.of.rails[x.at]))
            seconds = np.maximum(x.seconds, x.of.seconds(x.at, rows))
            x = replace(x, usd=usd, seconds=seconds)
            kept = np.flatnonzero(self.front.gaps(seconds, usd) > self.epsilon)
            if x.zero is not None and len(kept):
                seconds[kept] = np.maximum(seconds[kept], self.sharp(x.of, x.zero, x.at[kept], rows.part(kept)).keys)
            x = x.part(kept)
        gaps = self.front.gaps(x.seconds, x.usd)
        kept = np.flatnonzero(gaps > self.epsilon)
        if len(kept):
            worst = int(np.argmax(gaps))
            entry = float(x.seconds[worst]), float(x.usd[worst]), x.part(kept)
            heapq.heappush(self.heap, (-float(gaps[worst]), next(self.order), *entry))

    def sharp(self, of: TableRows, zero: int, at: Ints, rows: Rows) -> Pipes:
        """Sharpen the floors of pipelines under a ZeRO stage whose state all their replicas share, in memory."""
        s, total = of.strategy, self._sequences(of.strategy)
        t, once = terms_under_zero(s, zero, rows)
        in_memory_seconds = bounds.min_stage_seconds_in_memory(s, zero, rows, rows.d, t.layer)
        each = np.maximum(t.each, in_memory_seconds + s.machine.software.microbatch_seconds)
        finite = np.where(np.isfinite(each), each, NEVER)
        seconds = min_seconds(s, rows, finite, once / total) / s.shape.micro_batch
        keys = np.maximum(np.where(np.isfinite(each), seconds, np.inf), of.seconds(at, rows))
        return Pipes(keys, rows, each, once)

    def _open_ranges(self, was: float, x: Ranges) -> None:
        """Take the ranges of the largest gaps: halve wide ones, give others a ZeRO stage, then open their columns."""
        gaps = self.front.gaps(x.seconds, x.usd)
        now = float(gaps.max())
        if now < was * STALE:
            self._push(x)
            return
        hot = gaps >= now * HOT
        self._push(x.part(~hot))
        x = x.part(hot)
        share = NARROW if x.zero is None else max(now / 4, self.epsilon / 2)
        wide = (x.high > x.low + 1) & (x.high > (x.low + 1) * (1 + share))
        for upper in (True, False):
            part = x.part(wide)
            middle = (part.low + part.high) // 2
            half = replace(part, low=middle) if upper else replace(part, high=middle)
            self._push(half, bounded=True)
        x = x.part(~wide)
        if x.zero is not None:
            self._open_columns(now, x)
            return
        s = x.of.strategy
        for zero in s.problem.zero_stages:
            any_pipeline = zero in s.machine.software.zero_stages_under(2)
            some = np.arange(len(x.at)) if any_pipeline else np.flatnonzero(x.of.rows.p[x.at] == 1)
            self._push(replace(x.part(some), zero=zero), bounded=True)

    def _open_columns(self, now: float, x: Ranges) -> None:
        """Open the columns of ranges whose times are below what their capital leaves open; the others wait."""
        if not len(x.at) or x.zero is None:
            return
        pipes = self.sharp(x.of, x.zero, x.at, x.of.ranged(x.at, x.high))
        seconds = np.maximum(x.seconds, pipes.keys)  # columns below were opened before
        cuts = np.array([self.front.cutoff(usd, max(self.within, HOT * now)) for usd in x.usd.tolist()])
        order = np.argsort(cuts)
        order = order[seconds[order] < cuts[order]]
        while len(order):
            some = order[cuts[order] <= cuts[order[0]] * CUTS]
            order = order[len(some) :]
            cut = float(min(cuts[some].max(), NEVER))
            self._list_columns(x.part(some), pipes.part(some), seconds[some], cut)
            seconds[some] = np.maximum(seconds[some], cut)
        self._push(replace(x, seconds=seconds))

    def _list_columns(self, x: Ranges, pipes: Pipes, done: Floats, cut: float) -> None:
        """Open the columns of ranges under a cutoff, those of a pipeline with as many blocks together."""
        if x.zero is None:
            return
        found = columns_of(self.world, x.of.strategy, x.zero, pipes, cut)
        if found is None:
            return
        times, table = found
        blocks, big = table.blocks(), 1 << 32
        names, own = np.unique(
            np.concatenate([pipes.rows.p * big + pipes.rows.v, table.p * big + table.v]), return_inverse=True
        )
        del names
        ranges, entries = own[: len(x.at)] * big + x.high, own[len(x.at) :] * big + blocks
        order = np.argsort(ranges, kind="stable")
        place = np.minimum(np.searchsorted(ranges[order], entries), len(order) - 1)
        of = order[place]
        inside = (own[of] == own[len(x.at) :]) & (x.low[of] < blocks) & (blocks <= x.high[of])
        usd = np.maximum(x.usd[of], self.floor.usd(blocks * x.of.racks[x.at][of], x.of.rails[x.at][of]))
        open_ = inside & (times >= done[of] * (1 - 1e-12)) & (self.front.gaps(times, usd) > self.epsilon)
        some = np.flatnonzero(open_)
        some = some[np.lexsort((table.m[some], table.d[some], times[some], entries[some]))]
        if not len(some):
            return
        same = [np.diff(y[some]) == 0 for y in (entries, table.d, table.m)]
        some = some[np.append(True, ~(same[0] & same[1] & same[2]))]
        self.world.count("columns", len(some))
        for at in np.split(some, np.flatnonzero(np.diff(entries[some])) + 1):
            group = Group(x.of.strategy, x.zero, table.part(at), times[at])
            self._push_node(float(times[at[0]]), float(usd[at[0]]), group)

    def _open_group(self, t: float, c: float, gap: float, x: Group) -> None:
        """Open a group at each number of sites; of one at known sites its next column, and the rest behind it."""
        column = column_at(x.strategy, x.zero, x.table, x.place)
        if not x.sites:
            for k in open_sites(self.world, column):
                usd = max(c, self.pricing.column_floor(column, k))
                if k == open_sites(self.world, column)[0]:
                    self._price_once(column, usd, gap)
                self._push_node(t, usd, replace(x, sites=k))
            return
        exact = max(t, free_seconds(self.world, column, min(self.front.cutoff(c, self.within), NEVER)))
        if math.isfinite(exact) and self.front.gap(exact, c) > self.epsilon:
            self.world.count("column nodes")
            before = len(self.front.plans), self.front.gap(exact, c)
            self._price_once(column, c, before[1])
            for choice in spared(self.world, column):
                self._push_node(exact, c, ShapesLeft(choice, x.sites, shapes(choice, x.sites)))
        if x.place + 1 < len(x.times):
            self._push_node(float(x.times[x.place + 1]), c, replace(x, place=x.place + 1))

    def _price_once(self, column: Column, usd: float, gap: float) -> None:
        """Price the column of least floor once for each step of capital, covered or not: it covers those like it."""
        if not usd <= self.front.most_usd:
            return
        step = max(0.005, 2.0 ** math.floor(math.log2(min(max(gap, 1e-3), 0.5)))) * COLUMN_STEP
        bucket = step, math.floor(math.log(usd) / step)
        if bucket not in self.tried:
            self.tried.add(bucket)
            self.pricing.try_column(column, usd * (1 + step))

    def _open_shapes(self, t: float, c: float, x: ShapesLeft) -> None:
        """Open the next shape of a column, and those behind it where they may still be of use."""
        world, phi = self.world, self.world.problem.transport_slowdown
        for shape in x.rest:
            world.deadline.check()
            q = ShapeProblem(world=world, column=x.column, shape=shape)
            if math.isinf(q.min_stretch):  # never enough racks at all sites; less even shapes may differ
                continue
            cut = self.front.cutoff(c, self.within)
            fewest = max(shape.min_replicas, (x.column.d - 1) // len(shape.blocks) + 1)
            even = replace(q, shape=replace(shape, min_replicas=fewest))
            least = even.bound(phi, phi, min(cut, NEVER), q.best_fibre, stretch=q.free_stretch)
            if not least < cut:
                return
            own = max(t, q.bound(phi, phi, min(cut, NEVER), q.best_fibre))
            bare = float(self.floor.at_sites(q.racks, x.sites))
            usd = max(c, bare + q.racks * q.traffic.rails * self.floor.floor.rail_usd)
            world.count("shapes")
            self._push_node(own, usd, self.pricing.begin(q))
            self._push_node(max(t, least), c, x)
            return
