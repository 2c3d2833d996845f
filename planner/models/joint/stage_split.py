"""The fastest split of layers over the stages of one column, with whole layers recomputed where memory asks for it."""

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from operator import or_
from typing import Any, Self, TypeVar

import numpy as np

from planner.models.joint.strategy_space import Flags, Floats, Ints, Strategy
from planner.models.joint.time_bounds import RowConditions
from planner.physics import Num, Tick, no_tick, ticking
from planner.physics.training import memory, schedule, step_prediction
from planner.physics.training.data_parallel import ReplicaGroup
from planner.physics.training.parallel_strategy import RackBlock
from planner.physics.training.schedule import PipelineCounts
from planner.physics.training.step_prediction import Pipeline, ShardedTimes, pipeline_bubble_seconds
from planner.physics.training.transformer import front_layers

EPS = 1e-12  # relative: sums of the same floats in another order; bytes that differ by less fit
NO_FIT = 1 << 30  # layers to recompute where not even that makes room


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column, whose layers stages split: a strategy with its stages, replicas and micro-batches, but no network."""

    strategy: Strategy
    zero: int
    p: int
    v: int
    d: int
    m: int
    spare_target: float = 0.0  # share of time in which a site is to have enough racks; 0: it has no spare ones
    spares_wired: bool = False  # idle GPUs of its racks are cabled as spares
    lanes: int = 0  # of every NIC, where failures are counted by link; 0: any

    @property
    def block(self) -> RackBlock:
        """Block of racks that holds whole replicas of the column whose layers are split; every column has one."""
        block = self.strategy.block(self.p)
        if block is None:
            raise ValueError("joint: a column without a block")
        return block

    @property
    def replica_gpus(self) -> int:
        """GPUs of a replica of the column whose layers are split over stages."""
        return self.p * self.strategy.shape.gpus

    @property
    def sequences(self) -> int:
        """Sequences of a step of the column whose layers are split over stages."""
        return self.d * self.m * self.strategy.shape.micro_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSplit:
    """The split of a column's layers: layers and recomputed layers by stage, with the seconds of a step."""

    seconds: float
    layers: tuple[int, ...]
    recomputed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits on stages that admit a split of layers, and the seconds of a step that it takes at most within them."""

    seconds: float
    stage: float
    chunk: float
    most: int


T = TypeVar("T", LayerSplit, Thresholds)
# Whatever stages recompute.
ALONE = "pipeline", "counts", "sharded", "send", "effective", "sizes", "least_sizes", "_alone"
KEPT = *ALONE, "_tails"
BY_SIZE = "_needed", "recomputed", "chunk"  # by stage and size, whatever unequal chunks wait
OVER_FIBRE = *ALONE, *BY_SIZE, "seconds", "_steps", "_up_to"  # whatever the fibre


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The stages to split a column's layers over; `cutoff`: seconds a step from which a split is useless.

    Everything grows with the layers of a stage: seconds, those of its largest chunk, and layers to recompute. So a
    split is as fast as the limits that it keeps on the three, and limits admit a split if the most layers that each
    stage may have sum to the model's.
    """

    column: Column
    conditions: RowConditions
    cutoff: float = math.inf
    forced: int = -1  # a stage that recomputes a layer whatever memory asks for; -1: none
    each: int = -1  # layers that every chunk recomputes, by a rule of the framework; -1: any number
    exact: bool = True  # unequal chunks by the order of events, else by their lower bound
    waits: bool = True  # unequal chunks wait for each other; without: a bound for any number of rounds
    tick: Tick = no_tick  # called now and then in long computations; may raise

    @cached_property
    def pipeline(self) -> Pipeline:
        """Times of the pipeline over whose stages the layers are split."""
        return self.column.strategy.pipeline(self.column.zero, inside=self.column.block.rack_stages == 1)

    @cached_property
    def sharded(self) -> ShardedTimes:
        """Seconds of one layer and micro-batch of a stage in a split under ZeRO, exposed traffic included."""
        per_rack, c = self.column.block.replicas_per_rack, self.conditions
        group = ReplicaGroup(replicas_per_rack=per_rack, racks=c.racks, shards=c.shards, slowdown=c.allreduce)
        return step_prediction.sharded_times(self.pipeline, group)

    @cached_property
    def counts(self) -> PipelineCounts:
        """Stages, chunks of a stage and micro-batches of the column that is split."""
        return PipelineCounts(self.column.p, self.column.v, self.column.m)

    @cached_property
    def send(self) -> float:
        """Seconds of one exchange between stages of the column that is split."""
        return float(self.pipeline.send(self.conditions.send, self.column.p))

    @cached_property
    def effective(self) -> float:
        """Micro-batches of a step with the loss of short rounds, by which a stage's seconds count in a split."""
        return float(schedule.effective_micro_batches(self.column.m, self.column.p, self.column.v))

    @cached_property
    def sizes(self) -> Ints:
        """Sizes of a stage in a split: numbers of layers, from one a chunk, whose seconds are within the cutoff."""
        c, problem, shape = self.column, self.column.strategy.problem, self.column.strategy.shape
        # A framework runs experts in whole groups, and interleaved micro-batches in whole rounds.
        if c.d * shape.gpus % problem.expert_group(shape) or (c.v > 1 and problem.rules.whole_rounds and c.m % c.p):
            return np.arange(0)
        most = problem.layers - (c.p - 1) * c.v
        if math.isfinite(self.cutoff):
            spared = max(0.0, -self.pipeline.first_excess_seconds)  # by a first stage with faster layers
            in_time = (self.cutoff / self.effective + spared) / float(self.sharded.layer_seconds)
            most = min(most, math.floor(in_time * (1 + 1e-9)))
        return np.arange(c.v, max(most, c.v - 1) + 1)

    @cached_property
    def least_sizes(self) -> Ints:
        """Fewest layers of each stage: one a chunk, and on the first stage all front layers in its first chunk."""
        c = self.column
        return np.where(np.arange(c.p) == 0, step_prediction.least_first_stage(self.pipeline, c.v), c.v)

    @cached_property
    def recomputed(self) -> Ints:
        """Layers that each stage recomputes at each size: the fewest that memory asks for, or those pinned.

        `NO_FIT` where it cannot hold the size. Shape (stages, sizes).
        """
        wanted = self.column.strategy.problem.pin("recomputed_layers_per_stage")
        if wanted is None and self.each < 0:
            return self._needed
        alike = schedule.recomputed_alike(self.sizes[None, :], self.column.v, self.each)
        pinned = (np.array(wanted)[:, None] if self.each < 0 else alike) + 0 * self._needed
        fits = (self._needed <= pinned) & (pinned <= self.sizes[None, :])
        if self.column.strategy.recomputes == "none":
            fits &= pinned == 0
        return np.where(fits, pinned, NO_FIT)

    def used_bytes(self, stages: Ints, layers: Ints, recomputed: Any) -> Floats:
        """Compute the bytes on a GPU of some stages of a split, of whose layers some are recomputed."""
        c, s = self.column, self.column.strategy
        layers_of = {"layers": layers, "recomputed": recomputed, "front": front_layers(s.machine.model) * (stages == 0)}
        how: Any = {"zero_stage": c.zero, "replicas": self.conditions.shards, "order": s.order}
        parts = memory.memory_by_part(s.machine, s.shape, self.counts, stage=stages, **layers_of, **how)
        return np.asarray(sum(parts.values()), dtype=np.float64)

    @cached_property
    def _needed(self) -> Ints:
        """Fewest layers that each stage must recompute to hold each size (its columns), `NO_FIT` where it cannot."""
        s, stages, sizes = self.column.strategy, np.arange(self.column.p)[:, None], self.sizes
        limit = s.problem.memory_limit * (1 + EPS)
        if s.recomputes == "none":
            return np.where(self.used_bytes(stages, sizes[None, :], 0) <= limit, 0, NO_FIT)
        # With none, one and all layers recomputed: the first takes room to run again, each of the others frees as much.
        levels = np.stack([0 * sizes, 0 * sizes + 1, sizes])[:, None, :]
        none, one, every = self.used_bytes(stages, sizes[None, :], levels)
        saved = (one - every) / np.maximum(sizes - 1, 1)
        more = np.divide(one - limit, saved, out=np.where(one <= limit, 0.0, np.inf), where=saved > 0)
        some = np.where(more <= sizes - 1, 1 + np.ceil(np.maximum(more, 0.0)), NO_FIT).astype(np.int64)
        return np.where((none <= limit) & (stages != self.forced) & (self.each <= 0), 0, some)

    def stage_seconds(self, stages: Ints, layers: Ints, recomputed: Ints) -> Floats:
        """Compute the seconds a step of some stages, the head included, without what unequal chunks wait."""
        x, c = self.pipeline, self.column
        each = step_prediction.stage_seconds(self.sharded, c.v, layers, recomputed, self.send)
        ends = step_prediction.end_seconds(x, stages, c.p)
        return np.asarray(self.effective * (each + ends + x.machine.software.host_seconds), dtype=np.float64)

    @cached_property
    def seconds(self) -> Floats:
        """Compute the seconds a step by stage and size, head and unequal chunks included; infinite where none fits."""
        c, x, recompute, sizes = self.column, self.pipeline, self.recomputed, self.sizes[None, :]
        fits = recompute < NO_FIT
        recompute = np.where(fits, recompute, 0)
        seconds = self.stage_seconds(np.arange(c.p)[:, None], sizes, recompute)
        # Unequal chunks wait as long as a bound says; by the order of events from the mean size on.
        wait, layer, repeat = np.zeros(fits.shape), float(self.sharded.layer_seconds), x.times.recompute_seconds
        if self.waits:
            wait = schedule.min_excess_seconds(self.counts, sizes, recompute, layer, repeat)
            wait[-1] = np.maximum(0.0, wait[-1] - self.effective * x.head)  # which fills the last chunk
        if self.waits and self.exact and c.v > 1 and c.strategy.order == "1f1b":
            mean = c.v if c.strategy.problem.layers_of(c.p) is not None else c.strategy.problem.layers // c.p
            alike = step_prediction.alike_stages(x, c.p)
            patterns = {
                (int(self.sizes[j]), int(recompute[i, j]), int(alike[i]))
                for i, j in zip(*np.nonzero(fits), strict=True)
                if self.sizes[j] >= mean or i == c.p - 1  # the head makes small last stages slow too
            }
            with ticking(self.tick):
                for n, r, i in sorted(patterns):
                    own = (recompute[:, n - c.v] == r) & (alike == i)
                    wait[own, n - c.v] = step_prediction.excess_seconds(self.sharded, self.counts, n, r, stage=i)
        return np.where(fits, seconds + wait, np.inf)

    @cached_property
    def chunk(self) -> Floats:
        """Seconds of the largest chunk of the stages of each size."""
        recompute = np.where(self.recomputed < NO_FIT, self.recomputed, 0)
        return np.asarray(step_prediction.chunk_seconds(self.sharded, self.column.v, self.sizes[None, :], recompute))

    @cached_property
    def _alone(self) -> dict[str, Num]:
        """Parts of a step that come once at one site, but for filling the pipeline, by the most layers of a stage."""
        most = np.arange(1, self.column.strategy.problem.layers + 1)
        parts = step_prediction.once_parts(self.sharded, None, self.counts, most, 0.0, self.send)
        return {name: np.broadcast_to(part, most.shape) for name, part in parts.items() if name != "pipeline_bubble"}

    @cached_property
    def _tails(self) -> list[Floats]:
        """Parts of a step that come once, the exchange between sites included, by the most layers of a stage."""
        most = np.arange(1, self.column.strategy.problem.layers + 1)
        between = step_prediction.between_sites_seconds(self.pipeline, self.conditions.fibre, self.counts, most)
        return list((self._alone | {"between_sites": np.broadcast_to(between, most.shape)}).values())

    def once(self, chunk: float, most: int) -> float:
        """Seconds that a step takes once at a largest chunk and most layers of a stage."""
        return sum((float(part[most - 1]) for part in self._tails), start=float(self._filling(chunk)))

    def _filling(self, chunk: Num) -> Num:
        return pipeline_bubble_seconds(self.sharded, self.counts, chunk * self.column.v, self.send)

    @cached_property
    def _steps(self) -> tuple[Floats, Any]:
        """Bound the seconds a step of the largest stage of a split by its layers, and those to fill the pipeline."""
        return self.seconds.min(axis=0), self._filling(self.chunk.min(axis=0))

    @cached_property
    def min_seconds_by_most(self) -> Floats:
        """Bound the seconds of a step by the layers of a split's largest stage, one entry a size."""
        stage, filling = self._steps
        return np.asarray((stage + (np.sum(self._tails, axis=0)[self.sizes - 1] + filling)) * (1 - EPS))

    @cached_property
    def _up_to(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Most seconds, and most of a largest chunk, over sizes of a stage up to each; the distinct ones in order."""
        seconds, chunk = self.seconds, self.chunk
        most_seconds, most_chunk = np.maximum.accumulate(seconds, axis=1), np.maximum.accumulate(chunk, axis=1)
        return most_seconds, most_chunk, _increasing(seconds), _increasing(chunk[seconds < np.inf])

    def _least(self, limited: Floats, other: Floats, limit: float, most: int) -> float:
        """Return the least limit on stage or chunk seconds that admits a split under one on the other, or infinity."""
        # Each size of a stage, from one layer a chunk on, opens at its own limit. The open sizes and the `v - 1` layers
        # below them must hold the model, and each stage its fewest layers.
        c, places = self.column, most - self.column.v + 1
        needed, fewest = c.strategy.problem.layers - c.p * (c.v - 1), self.least_sizes - c.v
        opened_at = np.where(other[:, :places] <= limit, limited[:, :places], np.inf)
        last = np.partition(opened_at, needed - 1, axis=None)[needed - 1]
        return float(max(last, opened_at[np.arange(c.p), fewest].max()))

    def least(self) -> Thresholds | None:
        """Return the limits of the fastest split of layers; None where none takes less than the cutoff."""
        if self._has_rule:
            return self._best_alike(lambda stages: stages.least())
        c, wanted, found = self.column, self.column.strategy.problem.layers_of(self.column.p), None
        if not len(self.sizes):
            return None
        if wanted is not None:  # those that the layers keep, if they fit memory
            layers = np.array(wanted)
            if layers.max() > self.sizes[-1] or np.any(layers < self.least_sizes):
                return None
            where = np.arange(c.p), layers - c.v
            stage, chunk = float(self.seconds[where].max()), float(self.chunk[where].max())
            found = Thresholds(stage + self.once(chunk, max(wanted)), stage, chunk, max(wanted))
            return found if found.seconds < self.cutoff else None
        best, largest = self.cutoff, self.min_seconds_by_most
        if not (largest < best).any():
            return None
        # For each most layers the least stage time at each largest chunk.
        by_seconds, by_chunk, values, chunks = self._up_to
        mean = -(-c.strategy.problem.layers // c.p)
        for most in range(max(mean, int(self.least_sizes.max())), int(self.sizes[-1]) + 1):
            if largest[most - c.v] >= best:
                continue
            self.tick()
            at = len(chunks)
            while at > 0:
                least = self._least(by_seconds, by_chunk, float(chunks[at - 1]), most)
                if least >= best:  # a stage that takes as long as the best step, or longer, is of no use
                    break
                stage = float(values[np.searchsorted(values, least)])
                at = int(np.searchsorted(chunks, self._least(by_chunk, by_seconds, stage, most)))
                chunk = float(chunks[at])
                seconds = stage + self.once(chunk, most)
                if seconds < best:
                    best, found = seconds, Thresholds(seconds, stage, chunk, most)
        return found

    @property
    def _has_rule(self) -> bool:
        """Whether a framework rule binds the layers that stages recompute, and none of its numbers is set."""
        return self.each < 0 and self.column.strategy.problem.recomputes_alike

    @cached_property
    def _alike(self) -> Iterator[Self]:
        """The stages under each number of layers that chunks recompute alike; whoever iterates copies them."""
        return itertools.tee(self._numbers(), 1)[0]

    def _under_rule(self, known: Self, changed: Callable[[Self], Self]) -> Self:
        """Take a rule's alternative stages from others that are known, each changed; return these stages."""
        self.__dict__["_alike"] = itertools.tee(map(changed, copy(known._alike)), 1)[0]
        return self

    def _numbers(self) -> Iterator[Self]:
        """Yield the stages under each number that a rule of the framework has every chunk recompute, if any."""
        # Numbers above one under which memory already holds all sizes that it ever can are left out.
        strategy = self.column.strategy
        rule = strategy.problem.rules.recompute
        if not self._has_rule or not len(self.sizes):
            return
        most = -(-int(self.sizes[-1]) // self.column.v)
        numbers = range(1 if rule == "chunks alike" else most, most + 1) if strategy.recomputes != "none" else ()
        stages = self
        for each in itertools.chain((0,) if strategy.recomputes != "some" else (), numbers):
            stages = stages._with((*KEPT, "_needed") if min(stages.each, each) > 0 else KEPT, each=each)
            fits = stages.recomputed < NO_FIT
            layers_kept = int((np.cumprod(fits, axis=1).sum(axis=1) + self.column.v - 1).sum())
            if layers_kept >= strategy.problem.layers or strategy.problem.layers_of(self.column.p) is not None:
                yield stages
            if np.all(fits == (stages._needed < NO_FIT)):
                return

    def _best_alike(self, solve: Callable[[Self], T | None]) -> T | None:
        # The largest stage of a split has the mean of the layers at least.
        best, v, layers = None, self.column.v, -(-self.column.strategy.problem.layers // self.column.p)
        for stages in copy(self._alike):
            cutoff = self.cutoff if best is None else best.seconds
            if stages.each > 0:
                own = stages.sharded, v, layers, schedule.recomputed_alike(layers, v, stages.each)
                stage = float(step_prediction.stage_seconds(*own, stages.send))
                stage -= max(0.0, -stages.pipeline.first_excess_seconds)
                once = stages.once(float(step_prediction.chunk_seconds(*own)), layers)
                if stages.effective * stage + once >= cutoff:
                    break  # as are those of more
            best = solve(stages if best is None else stages.over(self.conditions, cutoff)) or best
        return best

    @cached_property
    def bounding(self) -> Self:
        """The same stages with the waits of unequal chunks at their lower bound; stages of one chunk have none."""
        if not self.exact or self.column.v == 1:
            return self
        return self._with(KEPT, exact=False)._under_rule(self, lambda stages: stages.bounding)

    def over(self, conditions: RowConditions, cutoff: float) -> Self:
        """Return the same stages of a split over some fibre, under a cutoff that is no higher; all else is the same."""
        if self._has_rule:
            found = self._with(ALONE, conditions=conditions, cutoff=cutoff)
            return found._under_rule(self, lambda stages: stages.over(conditions, cutoff))
        alone = self.bounding
        if len(alone.sizes):
            _ = alone._alone, alone._steps, alone._up_to  # once for all fibre
        timed = alone._with(OVER_FIBRE, conditions=conditions, cutoff=cutoff)
        if alone is self:
            return timed
        found = timed._with(ALONE, exact=self.exact)
        found.__dict__["bounding"] = timed
        return found

    def _with(self, kept: tuple[str, ...], **changes: Any) -> Self:
        found, known = replace(self, **changes), self.__dict__
        found.__dict__.update({name: known[name] for name in kept if name in known})
        return found

    def fastest(self) -> LayerSplit | None:
        """Return the fastest split of layers over the stages; None where none beats the cutoff."""
        if self._has_rule:
            return self._best_alike(lambda stages: stages.fastest())
        stages = self
        if self.exact and self.column.v > 1:
            # Sizes that a bound excludes go first: the order of events, which takes long, is left few patterns.
            bound = self.bounding
            if bound.least() is None:
                return None
            stages, few = bound._with(KEPT, exact=True), np.flatnonzero(bound.min_seconds_by_most < self.cutoff)
            stages.__dict__["sizes"] = bound.sizes[: few[-1] + 1]
            stages.__dict__.update({name: bound.__dict__[name][:, : few[-1] + 1] for name in BY_SIZE})
        limits = stages.least()
        found = None if limits is None else stages.spread(limits)
        # Where a pin asks for recomputed layers and memory for none, some stage recomputes one.
        if found is None or self.column.strategy.recomputes != "some" or any(found.recomputed):
            return found
        found_at = (replace(self, forced=i).fastest() for i in range(self.column.p))
        return min((x for x in found_at if x is not None), key=lambda x: x.seconds, default=None)

    def spread(self, t: Thresholds) -> LayerSplit:
        """Spread the layers over stages within limits, the largest stages relieved first."""
        c, wanted = self.column, self.column.strategy.problem.layers_of(self.column.p)
        if wanted is not None:
            sizes = np.array(wanted)
        else:  # every size of a stage up to its most keeps the limits
            most_seconds, most_chunk, *_ = self._up_to
            within = ((most_seconds <= t.stage) & (most_chunk <= t.chunk)).sum(axis=1)
            sizes = np.minimum(within + c.v - 1, max(t.most, c.v - 1))
        surplus = int(sizes.sum()) - c.strategy.problem.layers
        while surplus > 0:
            spare = sizes > self.least_sizes
            top = sizes[spare].max()
            for i in np.flatnonzero(spare & (sizes == top))[:surplus]:
                sizes[i] -= 1
                surplus -= 1
        recomputed = self.recomputed[np.arange(c.p), sizes - c.v]
        return LayerSplit(seconds=t.seconds, layers=tuple(sizes.tolist()), recomputed=tuple(recomputed.tolist()))


def _increasing(values: Floats) -> Floats:
    """Return the distinct finite stage seconds in order, the largest of those that differ by rounding only."""
    found = np.unique(values[np.isfinite(values)])
    return np.asarray(found[np.append(np.diff(found) > EPS * found[1:], True)[: len(found)]])


ROUNDING = 1e-6  # relative: more than the rounding of sums in another order amounts to


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """The patterns of a column's stages under some conditions: layers and recomputed layers, each by all stages."""

    stages: Stages
    table: Ints  # layers and recomputed layers, shape (patterns, 2)
    fits: Flags  # by (stage, pattern): a GPU has the memory, and pins and rules allow the layers
    seconds: Floats  # of a step by (stage, pattern), the head and unequal chunks included
    chunks: Floats  # of the largest chunk, by pattern


def patterns_of(stages: Stages) -> Patterns:
    """List the patterns of some stages, of as many layers at least as others cannot hold, with their seconds."""
    c, s, x, most = stages.column, stages.column.strategy, stages.pipeline, int(stages.sizes[-1])
    sizes = range(max(c.v, s.problem.layers - (c.p - 1) * most), most + 1)
    repeated = int(s.recomputes != "none")
    table = np.array([(n, r) for n in sizes for r in range(repeated * n + 1)], dtype=np.int64)
    stage, (layers, repeats) = np.arange(c.p)[:, None], table.T[:, None, :]
    front = front_layers(s.machine.model) * (stage == 0)  # in its first chunk
    used = stages.used_bytes(stage, layers, repeats)
    fits = (-(-layers // c.v) >= front) & (used <= s.problem.memory_limit * (1 + EPS))
    if (wanted := s.problem.layers_of(c.p)) is not None:
        fits = fits & (layers == np.array(wanted)[:, None])
    seconds = stages.stage_seconds(stage, layers, repeats)
    if c.v > 1 and s.order == "1f1b":
        layer, repeat = float(stages.sharded.layer_seconds), x.times.recompute_seconds
        least = schedule.min_excess_seconds(stages.counts, layers, repeats + 0 * stage, layer, repeat)
        in_time = fits & (seconds + np.where(stage == c.p - 1, 0.0, least) <= stages.cutoff)
        wait = np.full(seconds.shape, np.inf)  # of patterns that are too slow by a bound of it already
        alike = step_prediction.alike_stages(x, c.p)
        for i in np.unique(alike).tolist():
            for k in np.flatnonzero(in_time[alike == i].any(axis=0)).tolist():
                own = stages.sharded, stages.counts, *table[k].tolist()
                wait[alike == i, k] = step_prediction.excess_seconds(*own, stage=i)
        seconds = seconds + wait
    chunks = step_prediction.chunk_seconds(stages.sharded, c.v, layers, repeats)[0]
    return Patterns(stages=stages, table=table, fits=fits, seconds=seconds, chunks=chunks)


def fastest_split(column: Column, conditions: RowConditions, seconds: float) -> tuple[float, int]:
    """Return a column's fastest split over `seconds` a step (inf: none as fast), and how many patterns it compared.

    All splits are listed. For each maximum of layers and of chunk seconds, the smallest limit on stage seconds is
    sought at which sums of the stages' layers reach the model's: a set of sums is the bits of a number, and a stage
    that may have n layers shifts it by n. A bound of 1 less `ROUNDING`, or more, confirms that no split is faster.
    """
    limit, problem = seconds * (1 + ROUNDING), column.strategy.problem
    x = patterns_of(Stages(column=column, conditions=conditions, cutoff=limit))
    fine, allowed = x.fits & (x.seconds <= limit), list[Flags]()
    if np.all(fine.any(axis=1)):
        allowed = [fine]
        if problem.recomputes_alike:  # the patterns that stages may have together are of one number by the rule
            largest = -(-int(x.table[:, 0].max()) // column.v)
            numbers = range(largest + 1) if problem.rules.recompute == "chunks alike" else (0, largest)
            recomputed = (schedule.recomputed_alike(x.table[:, 0], column.v, each) for each in numbers)
            alike = (fine & (x.table[:, 1] == own) for own in recomputed)
            allowed = [some for some in alike if np.all(some.any(axis=1))]
    best, layers = limit, x.table[:, 0]
    for some in allowed:
        used, floor = some.any(axis=0), float(np.where(some, x.seconds, np.inf).min(axis=1).max())
        for most in np.unique(layers[used]).tolist():
            for chunk in np.unique(x.chunks[used & (layers <= most)]).tolist():
                once = x.stages.once(chunk, most)
                if once + floor > best:
                    break  # a larger chunk takes longer
                within = some & ((layers <= most) & (x.chunks <= chunk))[None, :]
                # The least limit on the seconds of stages under which some split has all layers, if any has.
                values: list[float] = np.unique(x.seconds[within & (x.seconds <= best - once)]).tolist()
                if values and _holds(x, within, values[-1]):
                    at = bisect_left(values[:-1], True, key=partial(_holds, x, within))
                    best = min(best, values[at] + once)
    return (best / seconds if best < limit else math.inf), int(fine.sum())


def _holds(x: Patterns, allowed: Flags, high: float) -> bool:
    """Return whether allowed patterns within a limit on stage seconds sum to the model's layers."""
    # Of them one recomputes a layer where a pin asks for it.
    of, repeats = x.stages.column.strategy, x.table[:, 1] > 0
    total, some = of.problem.layers, of.recomputes == "some"
    whole = (2 << total) - 1
    without, reached = 1, 0  # sums without a recomputed layer, and with one
    for row in allowed & (x.seconds <= high):
        plain, full = np.unique(x.table[row & ~repeats, 0]).tolist(), np.unique(x.table[row & repeats, 0]).tolist()
        reached = _shifted(reached, sorted({*plain, *full})) | _shifted(without, full)
        without, reached = _shifted(without, plain) & whole, reached & whole
    return bool((reached | (0 if some else without)) >> total & 1)


def _shifted(sums: int, layers: list[int]) -> int:
    return reduce(or_, (sums << n for n in layers), 0)
