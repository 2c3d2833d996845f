"""The exact optimum of a column: every count of replicas and micro-batches that could win, with its fastest split."""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from planner.models.layout.bounds import min_slowest_stage_seconds
from planner.models.layout.candidates import Candidates, CountRanges, StepTimes, candidates
from planner.models.layout.columns import Column, Floats, Ints
from planner.models.layout.data import Problem
from planner.models.layout.layer_split import EPS, Stages
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step import ShardedTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A layout and its seconds per sequence."""

    seconds: float
    strategy: ParallelStrategy


def price_column(
    problem: Problem,
    column: Column,
    cutoff: float,
    stopped: Callable[[], bool] = lambda: False,
    ranges: CountRanges | None = None,
) -> Solution | None:
    """Find the fastest layout of a column, or of ranges of its counts, under the cutoff; None where there is none.

    Exact unless `stopped` ends the search. Counts are taken up in the order of their bounds: first those of even
    stages, then, for all with as many micro-batches in flight, those of the splits that the easiest of them allows.
    """
    c = candidates(problem, column, cutoff, ranges)
    if c is None:
        return None
    times = StepTimes(problem=problem, column=column)
    depths = Depths(problem=problem, column=column, times=times, candidates=c)
    bound, best = depths.bounds(depths.even_stage_seconds, np.arange(len(c.replicas))), None
    bound[depths.depth > depths.deepest] = math.inf
    sharpened: set[int] = set()
    while not stopped():
        i = int(np.argmin(bound))
        if bound[i] >= cutoff:
            break
        depth = int(depths.depth[i])
        if depth not in sharpened:
            sharpened.add(depth)
            bound[depths.depth == depth] = depths.sharpen(bound, depth, cutoff)
            continue
        bound[i] = math.inf
        if not depths.infeasible(i):
            one = c.select(slice(i, i + 1))
            better = _fastest_split(times, one, times.layer(one.racks), cutoff)
            best, cutoff = (better, better.seconds) if better is not None else (best, cutoff)
    return best


@dataclass(frozen=True, kw_only=True)
class Depths:
    """Bounds on a column's candidates from memory, which depends on how deep their micro-batches fill the pipeline."""

    problem: Problem
    column: Column
    times: StepTimes
    candidates: Candidates
    infeasible_shards: dict[int, int] = field(default_factory=dict)  # most proven too few, by micro-batches

    @cached_property
    def depth(self) -> Ints:
        """Micro-batches of each candidate as far as they add to what is in flight."""
        p, v = self.column.pipeline, self.column.virtual_stages
        return np.minimum(self.candidates.micro_batches, p if v == 1 else p - (-(p - 1) // v))

    @cached_property
    def layer_seconds(self) -> Floats:
        """Seconds of a layer by candidate."""
        layer = self.times.layer(self.candidates.racks).layer_seconds
        return np.broadcast_to(np.asarray(layer, dtype=np.float64), self.depth.shape)

    @property
    def free(self) -> bool:
        """Whether the search is free to place layers and recompute."""
        return self.problem.pin("layers_per_stage") is None and self.problem.pin("recomputed_layers_per_stage") is None

    @property
    def even_layers(self) -> int:
        """Layers of the largest stage, stages as even as can be."""
        return math.ceil(self.problem.machine.model.layers / self.column.pipeline)

    @cached_property
    def even_stage_seconds(self) -> float:
        """Least time of the largest stage."""
        return self.even_layers * float(self.layer_seconds.min() + self.column.layer_strategy.pinned_recompute_seconds)

    @cached_property
    def deepest(self) -> int:
        """The deepest filling with which memory holds all layers with the most shards, 0 where none does.

        A single depth is not tested: its splits show it.
        """
        depths, shards = np.unique(self.depth), int(self.candidates.shards.max())
        if not self.free or len(depths) == 1:
            return int(depths[-1])
        low, high = 0, len(depths)
        while low < high:
            middle = (low + high) // 2
            stages = self._stages(shards, int(depths[middle]), self.column.layer_strategy.layer_seconds)
            low, high = (middle + 1, high) if stages.feasible else (low, middle)
        return int(depths[low - 1]) if low else 0

    def sharpen(self, bound: Floats, depth: int, cutoff: float) -> Floats:
        """Sharpen the bounds of the candidates of one depth by the least stage that memory allows, then by splits.

        Whatever any of them holds in a time the easiest holds too, which has the most shards and the least layer time.
        """
        raised, own = bound[self.depth == depth], np.flatnonzero(self.depth == depth)
        open_ = np.flatnonzero(raised < cutoff)
        raised[open_] = self.bounds(self._min_stage_seconds(own[open_], cutoff), own[open_])
        open_ = np.flatnonzero(raised < cutoff)
        if len(open_) > 1 and self.free:
            raised[open_] = self._bound_by_splits(own[open_], cutoff)
        return np.asarray(raised, dtype=np.float64)

    def _min_stage_seconds(self, own: Ints, cutoff: float) -> float:
        """Return the least budget with which memory holds all layers; infinite where none under the cutoff does."""
        if not self.free:
            return self.even_stage_seconds
        easiest = self._easiest(own, cutoff)
        return math.inf if easiest.first_budget is None else float(easiest.budgets[easiest.first_budget])

    def _bound_by_splits(self, own: Ints, cutoff: float) -> Floats:
        """Bound some candidates by the splits of the easiest of them; infinite where none is under the cutoff."""
        c, easiest = self.candidates.select(own), self._easiest(own, cutoff)
        bound, layer_times = np.full(len(own), math.inf), self.times.layer(c.racks)
        tried = splits(self.times, c, layer_times, easiest, np.full(len(own), cutoff))
        split = next(tried, None)
        while split is not None:
            seconds = self.times.per_sequence(
                c, layer_times, slowest=split.slowest, stage_seconds=split.budget, largest=split.largest
            )
            bound = np.minimum(bound, seconds)
            split = _next_split(tried, np.minimum(bound, cutoff))
        return bound

    def infeasible(self, i: int) -> bool:
        """Return whether the layers do not fit with a candidate's shards; ZeRO makes them matter."""
        if not self.free or self.column.zero_stage == 0:
            return False
        m, shards = int(self.candidates.micro_batches[i]), int(self.candidates.shards[i])
        proven = self.infeasible_shards.get(m, 0)
        if shards > proven and not self._stages(shards, m, float(self.layer_seconds[i])).feasible:
            self.infeasible_shards[m] = proven = shards
        return shards <= proven

    def _easiest(self, own: Ints, cutoff: float) -> Stages:
        """Return the stages of candidates of one depth, with the most shards and the least layer time among them."""
        c, depth = self.candidates.select(own), int(self.depth[own[0]])
        longest = self.times.max_stage_seconds(c, self.times.layer(c.racks), cutoff) * (1 + EPS)
        stages = self._stages(int(c.shards.max()), depth, float(self.layer_seconds[own].min()))
        return replace(stages, max_seconds=longest)

    def _stages(self, shards: int, micro_batches: int, layer_seconds: float) -> Stages:
        """Return the stages of the column with so many shards and micro-batches."""
        most = self.problem.machine.model.layers - (self.column.pipeline - 1) * self.column.virtual_stages
        return Stages(
            problem=self.problem,
            column=self.column,
            shards=shards,
            micro_batches=micro_batches,
            layer_seconds=layer_seconds,
            max_layers=most,
        )

    def bounds(self, budget: float, which: Ints) -> Floats:
        """Bound the seconds per sequence of some candidates whose largest stage takes at least a budget."""
        if not math.isfinite(budget):
            return np.full(len(which), math.inf)
        c, strategy, p = self.candidates.select(which), self.column.layer_strategy, self.column.pipeline
        layer = self.layer_seconds[which] + strategy.pinned_recompute_seconds
        stage = np.maximum(budget, self.even_layers * layer)
        slowest = np.maximum(
            stage + (strategy.head_seconds if p == 1 else 0.0),
            min_slowest_stage_seconds(self.problem.machine.model.layers, p, layer, strategy.head_seconds),
        )
        layer_times = self.times.layer(c.racks)
        return self.times.per_sequence(c, layer_times, slowest=slowest, stage_seconds=stage, largest=self.even_layers)


@dataclass(frozen=True, slots=True)
class Split:
    """A split of layers over stages, by what the step time depends on."""

    budget: float  # seconds of the largest stage
    slowest: float  # seconds of the slowest stage, with the head where it is the last
    largest: int  # layers of a stage


def splits(
    times: StepTimes, c: Candidates, layer_times: ShardedTimes, stages: Stages, cutoff: Floats
) -> Generator[Split, Floats, None]:
    """Yield the splits of layers with which some candidate may be under its cutoff; take back the cutoffs as they fall.

    Budgets of the largest stage are tried upwards from the least in which all layers fit, and for each the sizes of the
    last stage, whose head may make it the slowest, until no larger one can win.
    """
    column, layers = times.column, times.problem.machine.model.layers
    start, head = stages.first_budget, column.layer_strategy.head_seconds
    if start is None:
        return
    even = math.ceil(layers / column.pipeline)
    fastest = float(min_slowest_stage_seconds(layers, column.pipeline, stages.layer_seconds, head))

    def too_slow(slowest: float, budget: float) -> bool:
        seconds = times.per_sequence(c, layer_times, slowest=slowest, stage_seconds=budget, largest=even)
        return bool(np.all(seconds >= cutoff))

    while start < len(stages.budgets):
        budget = float(stages.budgets[start])
        if too_slow(max(budget, fastest), budget):
            return
        start, caps = stages.next_budget(start), stages.caps(budget)
        for last in range(max(stages.min_layers, layers - int(caps[:-1].sum())), int(caps[-1]) + 1):
            seconds = stages.seconds(last, column.pipeline - 1)
            slowest = max(budget if column.pipeline > 1 else 0.0, seconds + head)
            if seconds > budget * (1 + EPS) or too_slow(slowest, budget):
                break
            largest = stages.min_largest(budget, slowest * (1 + EPS))
            if largest is not None:
                cutoff = yield Split(budget, slowest, largest)
            if largest == even:
                break


def _next_split(tried: Generator[Split, Floats, None], cutoff: Floats) -> Split | None:
    """Return the next split that may be under the cutoffs; None where there is none."""
    try:
        return tried.send(cutoff)
    except StopIteration:
        return None


def _fastest_split(times: StepTimes, c: Candidates, layer_times: ShardedTimes, cutoff: float) -> Solution | None:
    """Find the fastest split of layers for one count of replicas and micro-batches."""
    problem, column, layer = times.problem, times.column, float(np.asarray(layer_times.layer_seconds).ravel()[0])
    layers, p, pinned = problem.machine.model.layers, column.pipeline, problem.pin("layers_per_stage")
    longest = times.max_stage_seconds(c, layer_times, cutoff)
    max_layers = max(1, min(layers - (p - 1) * column.virtual_stages, math.floor(min(layers, longest / layer)) + 1))
    stages = Stages(
        problem=problem,
        column=column,
        shards=int(c.shards[0]),
        micro_batches=int(c.micro_batches[0]),
        layer_seconds=layer,
        max_layers=max_layers if pinned is None else max(pinned),
        max_seconds=longest * (1 + EPS),
    )
    if pinned is not None or problem.pin("recomputed_layers_per_stage") is not None:
        return _pinned_split(times, c, layer_times, stages, cutoff)
    best, tried = None, splits(times, c, layer_times, stages, np.array([cutoff]))
    split = next(tried, None)
    while split is not None:
        sizes, recomputed = stages.split_layers(split.budget, split.slowest * (1 + EPS), split.largest)
        seconds = times.of_split(c, layer_times, sizes, recomputed)
        if seconds < cutoff:
            best, cutoff = Solution(seconds=seconds, strategy=times.strategy(c, sizes, recomputed)), seconds
        split = _next_split(tried, np.array([cutoff]))
    return best


def _pinned_split(
    times: StepTimes, c: Candidates, layer_times: ShardedTimes, stages: Stages, cutoff: float
) -> Solution | None:
    """Time the split that pins give: the layers of every stage, those recomputed, or both."""
    problem, p = times.problem, times.column.pipeline
    layers, pinned = problem.pin("layers_per_stage"), problem.pin("recomputed_layers_per_stage")
    if layers is None:
        even, rest = divmod(problem.machine.model.layers, p)
        layers = [even + (i < rest) for i in range(p)]
        stages = replace(stages, max_layers=max(layers), max_seconds=math.inf)
    needed = [stages.min_recomputed(n, i) if n >= stages.min_layers else None for i, n in enumerate(layers)]
    if len(layers) != p or any(r is None for r in needed):
        return None
    recomputed = tuple(int(r or 0) for r in needed) if pinned is None else tuple(pinned)
    if len(recomputed) != p or not all((f or 0) <= r <= n for r, n, f in zip(recomputed, layers, needed, strict=True)):
        return None
    if pinned is not None:
        in_flight = [
            stages.max_in_flight(n, r, stages.capacity_bytes[i])
            for i, (n, r) in enumerate(zip(layers, recomputed, strict=True))
        ]
        if any(n < k for n, k in zip(in_flight, stages.chunks_in_flight, strict=True)):
            return None
    seconds = times.of_split(c, layer_times, tuple(layers), recomputed)
    solution = Solution(seconds=seconds, strategy=times.strategy(c, tuple(layers), recomputed))
    return solution if seconds < cutoff else None
