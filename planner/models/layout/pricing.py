"""The exact best of one row: every count of replicas and micro-batches that could win, with its fastest split of layers."""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.models.layout.columns import Floats, Ints, Row, effective, least_pace, replica_caps
from planner.models.layout.columns_dp_microbatch import Candidates, Span, candidates
from planner.models.layout.data import Problem
from planner.models.layout.layer_split import HAIR, Stages
from planner.physics.training import step
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step import ShardedTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best layout of a row and its seconds per sequence."""

    seconds: float
    cut: ParallelStrategy


def best_of_row(
    problem: Problem, row: Row, cutoff: float, over: Callable[[], bool] = lambda: False, span: Span | None = None
) -> Best | None:
    """Find the fastest layout of a row, or of a span of its counts, under the cutoff, exactly unless it is `over` before; None where there is none.

    Counts are taken up in the order of their bounds: first those of even stages, then, for all that fill the pipeline as
    deep, those of the splits that the easiest of them has.
    """
    c = candidates(problem, row, cutoff, span)
    if c is None:
        return None
    times, search = Times(problem=problem, row=row), Depths(problem=problem, row=row, candidates=c)
    bound, best = search.bounds(times, search.even, np.arange(len(c.replicas))), None
    bound[search.depth > search.deepest] = math.inf
    told: set[int] = set()
    while not over():
        i = int(np.argmin(bound))
        if bound[i] >= cutoff:
            break
        depth = int(search.depth[i])
        if depth not in told:
            told.add(depth)
            bound[search.depth == depth] = search.of_depth(times, bound, depth, cutoff)
            continue
        bound[i] = math.inf
        if not search.hopeless(i):
            one = c.part(slice(i, i + 1))
            found = _best_split(times, one, pace_of(problem, row, one.racks), cutoff)
            best, cutoff = (found, found.seconds) if found is not None else (best, cutoff)
    return best


@dataclass(frozen=True, kw_only=True)
class Depths:
    """What memory asks of the candidates of a row, by how deep the micro-batches fill the pipeline."""

    problem: Problem
    row: Row
    candidates: Candidates
    none_below: dict[int, int] = field(default_factory=dict)  # shards, by micro-batches, with which no layers fit

    @cached_property
    def depth(self) -> Ints:
        """Micro-batches of each candidate as far as they add to what is in flight."""
        p, v = self.row.pipeline, self.row.virtual_stages
        return np.minimum(self.candidates.batches, p if v == 1 else p - (-(p - 1) // v))

    @cached_property
    def layer(self) -> Floats:
        """Pace of a layer by candidate."""
        return np.broadcast_to(
            np.asarray(pace_of(self.problem, self.row, self.candidates.racks).layer_seconds, dtype=np.float64),
            self.depth.shape,
        )

    @property
    def free(self) -> bool:
        """Whether layers and recomputation are the search's to place."""
        return self.problem.pin("layers_per_stage") is None and self.problem.pin("recomputed_layers_per_stage") is None

    @cached_property
    def even(self) -> float:
        """Least time of the largest stage."""
        base = self.row.base
        again = base.times.recompute_seconds if base.recomputes == "all" else 0.0
        return math.ceil(self.problem.machine.model.layers / self.row.pipeline) * float(self.layer.min() + again)

    @cached_property
    def deepest(self) -> int:
        """The deepest filling with which memory holds all layers with the most shards, 0 where none does; a single one is left to its splits."""
        depths, most = np.unique(self.depth), int(self.candidates.least.max())
        if not self.free or len(depths) == 1:
            return int(depths[-1])
        low, high = 0, len(depths)
        while low < high:
            middle = (low + high) // 2
            fits = self._stages(most, int(depths[middle]), self.row.base.layer).feasible
            low, high = (middle + 1, high) if fits else (low, middle)
        return int(depths[low - 1]) if low else 0

    def of_depth(self, times: "Times", bound: Floats, depth: int, cutoff: float) -> Floats:
        """Sharpen the bounds of the candidates of one depth: by the least stage that memory leaves, then by the splits of the easiest of them.

        What any of them holds in a time the easiest holds too, which has the most shards and the least pace of a layer.
        """
        found, own = bound[self.depth == depth], np.flatnonzero(self.depth == depth)
        few = np.flatnonzero(found < cutoff)
        found[few] = self.bounds(times, self._floor(times, own[few], cutoff), own[few])
        few = np.flatnonzero(found < cutoff)
        if len(few) > 1 and self.free:
            found[few] = self._of_splits(times, own[few], cutoff)
        return np.asarray(found, dtype=np.float64)

    def _floor(self, times: "Times", own: Ints, cutoff: float) -> float:
        """Return the least budget with which memory holds all layers; infinite where none in time for the cutoff does."""
        if not self.free:
            return self.even
        easiest = self._easiest(times, own, cutoff)
        return math.inf if easiest.first_budget is None else float(easiest.budgets[easiest.first_budget])

    def _of_splits(self, times: "Times", own: Ints, cutoff: float) -> Floats:
        """Bound the time per sequence of some candidates by the splits of the easiest; infinite where none is under the cutoff."""
        c, easiest = self.candidates.part(own), self._easiest(times, own, cutoff)
        found, pace = np.full(len(own), math.inf), pace_of(self.problem, self.row, c.racks)
        tried = splits(times, c, pace, easiest, np.full(len(own), cutoff))
        split = next(tried, None)
        while split is not None:
            found = np.minimum(
                found, times.per_sequence(c, pace, pace_seconds=split.pace, stage_seconds=split.budget, most=split.most)
            )
            split = _next_split(tried, np.minimum(found, cutoff))
        return found

    def hopeless(self, i: int) -> bool:
        """Tell whether no layers fit with a candidate's shards, or fewer, and micro-batches; shards matter where ZeRO divides state."""
        if not self.free or self.row.zero == 0:
            return False
        m, shards = int(self.candidates.batches[i]), int(self.candidates.least[i])
        if shards > self.none_below.get(m, 0) and not self._stages(shards, m, float(self.layer[i])).feasible:
            self.none_below[m] = shards
        return shards <= self.none_below.get(m, 0)

    def _easiest(self, times: "Times", own: Ints, cutoff: float) -> Stages:
        """Return the stages of candidates of one depth as they are with the most shards and the least pace of a layer, in time for a cutoff."""
        c, depth = self.candidates.part(own), int(self.depth[own[0]])
        in_time = times.stage_in(c, pace_of(self.problem, self.row, c.racks), cutoff) * (1 + HAIR)
        return replace(self._stages(int(c.least.max()), depth, float(self.layer[own].min())), most_seconds=in_time)

    def _stages(self, replicas: int, batches: int, layer: float) -> Stages:
        most = self.problem.machine.model.layers - (self.row.pipeline - 1) * self.row.virtual_stages
        return Stages(
            problem=self.problem, row=self.row, replicas=replicas, batches=batches, layer=layer, most_layers=most
        )

    def bounds(self, times: "Times", budget: float, which: Ints) -> Floats:
        """Bound the time per sequence of some candidates whose largest stage takes at least a budget."""
        if not math.isfinite(budget):
            return np.full(len(which), math.inf)
        c, base, p, layers = (
            self.candidates.part(which),
            self.row.base,
            self.row.pipeline,
            self.problem.machine.model.layers,
        )
        again = base.times.recompute_seconds if base.recomputes == "all" else 0.0
        even = math.ceil(layers / p)
        stage = np.maximum(budget, even * (self.layer[which] + again))
        least = np.maximum(
            stage + (base.head if p == 1 else 0.0), least_pace(layers, p, self.layer[which] + again, base.head)
        )
        return times.per_sequence(
            c, pace_of(self.problem, self.row, c.racks), pace_seconds=least, stage_seconds=stage, most=even
        )


@dataclass(frozen=True, slots=True)
class Split:
    """Layers on stages, told apart by what the step time depends on."""

    budget: float  # seconds of the largest stage
    pace: float  # of the slowest, with the head where it is the last
    most: int  # layers of a stage


def splits(
    times: "Times", c: Candidates, pace: ShardedTimes, stages: Stages, cutoff: Floats
) -> Generator[Split, Floats, None]:
    """Yield the splits of layers with which some candidate may be under its cutoff; take back the cutoffs as they fall.

    Budgets of the largest stage are tried upwards from the least that holds all layers, and for each the paces that the
    last stage with its head may set, until no larger one can win.
    """
    row, layers = times.row, times.problem.machine.model.layers
    start = stages.first_budget
    if start is None:
        return
    even, quickest = (
        math.ceil(layers / row.pipeline),
        float(least_pace(layers, row.pipeline, stages.layer, row.base.head)),
    )

    def late(pace_seconds: float, budget: float) -> bool:
        return bool(
            np.all(times.per_sequence(c, pace, pace_seconds=pace_seconds, stage_seconds=budget, most=even) >= cutoff)
        )

    while start < len(stages.budgets):
        budget = float(stages.budgets[start])
        if late(max(budget, quickest), budget):
            return
        start, caps = stages.next_budget(start), stages.caps(budget)
        for last in range(max(stages.least, layers - int(caps[:-1].sum())), int(caps[-1]) + 1):
            own = stages.seconds(last, row.pipeline - 1)
            slowest = max(budget if row.pipeline > 1 else 0.0, own + row.base.head)
            if own > budget * (1 + HAIR) or late(slowest, budget):
                break
            most = stages.size_needed(budget, slowest * (1 + HAIR))
            if most is not None:
                cutoff = yield Split(budget, slowest, most)
            if most == even:
                break


def _next_split(tried: Generator[Split, Floats, None], cutoff: Floats) -> Split | None:
    """Return the next split that may be under the cutoffs; None where there is none."""
    try:
        return tried.send(cutoff)
    except StopIteration:
        return None


def _best_split(times: "Times", c: Candidates, pace: ShardedTimes, cutoff: float) -> Best | None:
    """Find the fastest split of layers for one count of replicas and micro-batches."""
    problem, row, layer = times.problem, times.row, float(np.asarray(pace.layer_seconds).ravel()[0])
    layers, p, fixed = problem.machine.model.layers, row.pipeline, problem.pin("layers_per_stage")
    in_time = times.stage_in(c, pace, cutoff)
    most_layers = max(1, min(layers - (p - 1) * row.virtual_stages, math.floor(min(layers, in_time / layer)) + 1))
    if fixed is not None:
        most_layers = max(fixed)
    stages = Stages(
        problem=problem,
        row=row,
        replicas=int(c.least[0]),
        batches=int(c.batches[0]),
        layer=layer,
        most_layers=most_layers,
        most_seconds=in_time * (1 + HAIR),
    )
    if fixed is not None or problem.pin("recomputed_layers_per_stage") is not None:
        return _fixed_split(times, c, pace, stages, cutoff)
    best, tried = None, splits(times, c, pace, stages, np.array([cutoff]))
    split = next(tried, None)
    while split is not None:
        held, again = stages.spread(split.budget, split.pace * (1 + HAIR), split.most)
        seconds = times.of_split(c, pace, held, again)
        if seconds < cutoff:
            best, cutoff = Best(seconds=seconds, cut=times.cut(c, held, again)), seconds
        split = _next_split(tried, np.array([cutoff]))
    return best


def _fixed_split(times: "Times", c: Candidates, pace: ShardedTimes, stages: Stages, cutoff: float) -> Best | None:
    """Time the split that pins give: the layers of every stage, those recomputed, or both."""
    problem, p = times.problem, times.row.pipeline
    layers = problem.pin("layers_per_stage")
    asked = problem.pin("recomputed_layers_per_stage")
    if layers is None:
        even, rest = divmod(problem.machine.model.layers, p)
        layers = [even + (i < rest) for i in range(p)]
        stages = Stages(
            problem=problem,
            row=times.row,
            replicas=stages.replicas,
            batches=stages.batches,
            layer=stages.layer,
            most_layers=max(layers),
        )
    fewest = [stages.fewest_recomputed(n, i) if n >= stages.least else None for i, n in enumerate(layers)]
    if len(layers) != p or any(r is None for r in fewest):
        return None
    again = tuple(int(r or 0) for r in fewest) if asked is None else tuple(asked)
    if len(again) != p or any(r > n or (r < (f or 0)) for r, n, f in zip(again, layers, fewest, strict=True)):
        return None
    if asked is not None and any(
        stages.most_in_flight(n, r, stages.room[i]) < stages.chunks[i]
        for i, (n, r) in enumerate(zip(layers, again, strict=True))
    ):
        return None
    seconds = times.of_split(c, pace, tuple(layers), again)
    return Best(seconds=seconds, cut=times.cut(c, tuple(layers), again)) if seconds < cutoff else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The step time of a row, as physics.step adds it up, with the split of layers left open."""

    problem: Problem
    row: Row

    def stage_in(self, c: Candidates, pace: ShardedTimes, cutoff: float) -> float:
        """Return the seconds that the slowest stage may take for a candidate to be under a cutoff: what even stages leave beside fill and tails."""
        even = math.ceil(self.problem.machine.model.layers / self.row.pipeline)
        once, each = self.terms(pace, c.racks, c.least, c.batches, even * np.asarray(pace.layer_seconds), even)
        step = cutoff * c.replicas * c.batches * self.row.base.shape.micro_batch
        return float(np.max((step - once) / effective(self.row, c.batches) - each))

    def per_sequence(
        self, c: Candidates, pace: ShardedTimes, *, pace_seconds: Any, stage_seconds: Any, most: Any
    ) -> Floats:
        """Seconds per sequence at a pace, a time of the largest stage without the head, and its layers; broadcasts over candidates."""
        once, each = self.terms(pace, c.racks, c.least, c.batches, stage_seconds, most)
        total = effective(self.row, c.batches) * (pace_seconds + each) + once
        return np.asarray(total / (c.replicas * c.batches * self.row.base.shape.micro_batch), dtype=np.float64)

    def one(self, c: Candidates, pace: ShardedTimes, pace_seconds: float, stage_seconds: float, most: int) -> float:
        """Seconds per sequence of a single candidate."""
        return float(self.per_sequence(c, pace, pace_seconds=pace_seconds, stage_seconds=stage_seconds, most=most)[0])

    def of_split(self, c: Candidates, pace: ShardedTimes, layers: tuple[int, ...], again: tuple[int, ...]) -> float:
        """Seconds per sequence of a single candidate with the layers of every stage."""
        layer = float(np.asarray(pace.layer_seconds).ravel()[0])
        stage = [n * layer + r * self.row.base.times.recompute_seconds for n, r in zip(layers, again, strict=True)]
        return self.one(
            c,
            pace,
            max(*stage[:-1], stage[-1] + self.row.base.head) if len(stage) > 1 else stage[0] + self.row.base.head,
            max(stage),
            max(layers),
        )

    def terms(
        self, pace: ShardedTimes, racks: Any, replicas: Any, batches: Any, stage_seconds: Any, most: Any
    ) -> tuple[Any, Any]:
        """Return the seconds that a step takes once (fill and tails) and besides the slowest stage for each micro-batch."""
        row, base, p, v = self.row, self.row.base, self.row.pipeline, self.row.virtual_stages
        fill = step.pipeline_bubble_seconds(
            pace, base.order, p, v, stage_seconds, send_seconds=row.hop, micro_batches=batches
        )
        m = self.problem.machine
        each = m.software.microbatch_seconds + step.exposed_send_seconds(m, pace, v, m.model.layers / p, row.hop)
        tails = step.tail_parts(
            m,
            base.shape,
            self.problem.conditions,
            pipeline=p,
            zero_stage=self.row.zero,
            replicas_per_rack=row.replicas_per_rack,
            racks=racks,
            replicas=replicas,
            max_layers=most,
            backward_seconds=base.times.backward_seconds,
            sites=self._sites(),
        )
        return fill + sum(tails.values()), each

    def _sites(self) -> int:
        asked = self.problem.pin("data_parallel_by_site")
        if asked is not None:
            return sum(d > 0 for d in asked.values())
        return int((replica_caps(self.problem, self.row.base, self.row.pipeline) > 0).sum())

    def cut(self, c: Candidates, layers: tuple[int, ...], again: tuple[int, ...]) -> ParallelStrategy:
        """Return the layout in full."""
        row, shape = self.row, self.row.base.shape
        return ParallelStrategy.of_shape(
            shape,
            pipeline_parallel=row.pipeline,
            data_parallel_by_site=tuple(int(x) for x in c.by_site[:, 0]),
            virtual_stages=row.virtual_stages,
            micro_batches=int(c.batches[0]),
            recompute="full" if any(again) else shape.recompute,
            zero_stage=row.zero,
            layers_per_stage=layers,
            replicas_per_rack=row.replicas_per_rack,
            schedule=row.base.order,
            stages_per_rack=row.stages_per_rack,
            recomputed_layers_per_stage=again if any(again) else (),
        )


def pace_of(problem: Problem, row: Row, racks: Any) -> ShardedTimes:
    """Return the pace of a layer in a row ; broadcasts over the racks of a group."""
    return step.sharded_times(
        problem.machine,
        row.base.shape,
        row.base.times,
        zero_stage=row.zero,
        replicas_per_rack=row.replicas_per_rack,
        racks=racks,
        slowdown=problem.conditions.allreduce_slowdown,
    )
