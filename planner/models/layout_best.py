"""The exact best of one row: every count of replicas and micro-batches that could win, with its fastest split of layers."""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from planner.models.layout_question import Problem
from planner.models.layout_space import Floats, Ints, Row, effective, least_terms, replica_caps
from planner.models.layout_stages import HAIR, Stages
from planner.physics import step
from planner.physics.step import Cut, Paces


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best layout of a row and its seconds per sequence."""

    seconds: float
    cut: Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Replica and micro-batch counts of a row that could beat a cutoff, with what follows from them; one entry each."""

    replicas: Ints
    batches: Ints
    by_site: Ints
    least: Ints  # replicas of the smallest site that works
    racks: Ints
    bound: Floats

    def part(self, which: Any) -> "Candidates":
        """Return some of the candidates."""
        return Candidates(
            replicas=self.replicas[which],
            batches=self.batches[which],
            by_site=self.by_site[:, which],
            least=self.least[which],
            racks=self.racks[which],
            bound=self.bound[which],
        )


def split_replicas(caps: Ints, replicas: Ints) -> Ints:
    """Split replica counts over sites as evenly as the caps permit; shape (sites, n).

    The even split makes the largest group least and the smallest most: no other is faster or takes less memory.
    """
    order = np.argsort(caps, kind="stable")
    left, shares = replicas.copy(), np.zeros((len(caps), len(replicas)), dtype=np.int64)
    for rank, site in enumerate(order):
        shares[site] = np.minimum(caps[site], left // (len(caps) - rank))
        left = left - shares[site]
    return shares


def counts(problem: Problem, row: Row, d: Ints) -> tuple[Ints, Ints]:
    """Pair numbers of replicas with the numbers of micro-batches that could be best with them.

    A filled pipeline takes as many micro-batches as the batch holds. Interleaved, whole rounds may be better, and fewer
    micro-batches than p + (p-1)/v hold less in flight. A pipeline that is not filled may take any number below p.
    """
    b, p, v = row.base.shape.micro_batch, row.pipeline, row.virtual_stages
    most, wanted = problem.most_sequences // b, problem.pin("microbatches_per_step")
    if wanted is not None:
        return d, np.full(len(d), wanted)
    if not row.filled:
        each = np.minimum(p - 1, most // d)
        return np.repeat(d, each), np.concatenate([np.arange(1, c + 1) for c in each]) if len(each) else d
    if v == 1:
        return d, most // d
    m = most // d
    early = [np.minimum(m, p + k) for k in range((p - 1) // v + 1)]
    pairs = np.unique(np.concatenate([d * (most + 1) + x for x in (m, m // p * p, *early)]))
    return pairs // (most + 1), pairs % (most + 1)


def most_batches(problem: Problem, row: Row, d: Ints) -> Ints:
    """Return the most micro-batches with each number of replicas, none where the row does not allow them."""
    most, wanted = problem.most_sequences // row.base.shape.micro_batch, problem.pin("microbatches_per_step")
    m = np.minimum(most // d, row.pipeline - 1) if not row.filled else most // d
    if wanted is None:
        return m
    return np.where((m >= wanted) & (row.filled == (wanted >= row.pipeline)), wanted, 0)


def replica_numbers(problem: Problem, row: Row, cutoff: float) -> Ints:
    """List the numbers of replicas that a row may have; those too few for the cutoff even without fill and tails are left out."""
    b, p = row.base.shape.micro_batch, row.pipeline
    caps, most = replica_caps(problem, row.base, p), problem.most_sequences // b
    slowest = math.ceil(problem.machine.model.layers / p) * row.base.least_layer
    low, top = max(1, int((caps > 0).sum()), math.floor(slowest / (cutoff * b))), min(int(caps.sum()), most // p if row.filled else most)
    wanted, shares = problem.pin("data_parallel"), problem.pin("data_parallel_by_site")
    if shares is None:
        return np.arange(low, top + 1) if wanted is None else np.array([wanted] if low <= wanted <= top else [], dtype=np.int64)
    asked = np.array([shares.get(s, 0) for s in problem.sites])
    total = int(asked.sum())
    held = np.all(asked <= caps) and 1 <= total <= top and wanted in (None, total)
    return np.array([total] if held else [], dtype=np.int64)


def _untailed(problem: Problem, row: Row, d: Ints, m: Ints) -> Floats:
    """Bound the time per sequence of counts of replicas and micro-batches from below: even stages, least tails."""
    pace, once, each = least_terms(problem, row.base, row.zero, np.array(row.pipeline), np.array(row.virtual_stages), m, fewest=d, most=d)
    m = np.maximum(m, 1)
    return np.asarray((effective(row, m) * (pace + each) + once) / (m * d * row.base.shape.micro_batch), dtype=np.float64)


def candidates(problem: Problem, row: Row, cutoff: float) -> Candidates | None:
    """List the replica and micro-batch counts of a row whose time on even stages is under the cutoff, the fastest first.

    Fewer micro-batches never make a sequence faster but by whole rounds, so the most that replicas leave bound all others.
    """
    shape, p = row.base.shape, row.pipeline
    d = replica_numbers(problem, row, cutoff)
    m = most_batches(problem, row, d)
    d, m = d[m >= 1], m[m >= 1]
    if not len(d):
        return None
    lost = effective(row, m) / m
    d = d[_untailed(problem, row, d, m) / lost < cutoff]
    if not len(d):
        return None
    d, m = counts(problem, row, d)
    d, m = d[m >= 1], m[m >= 1]
    bound = _untailed(problem, row, d, m)
    order = np.argsort(bound, kind="stable")
    order = order[bound[order] < cutoff]
    d, m, bound = d[order], m[order], bound[order]
    caps, asked = replica_caps(problem, row.base, p), problem.pin("data_parallel_by_site")
    shares = split_replicas(caps, d)
    if asked is not None:
        shares = np.repeat(np.array([asked.get(s, 0) for s in problem.sites])[:, None], len(d), axis=1)
    least = np.where(shares > 0, shares, np.iinfo(np.int64).max).min(axis=0)
    found = Candidates(
        replicas=d, batches=m, by_site=shares, least=least, racks=np.ceil(shares.max(axis=0) / row.replicas_per_rack).astype(np.int64), bound=bound
    )
    found = found.part(least * shape.gpus >= shape.expert_parallel) if len(d) else found
    return found if len(found.replicas) else None


def best_of_row(problem: Problem, row: Row, cutoff: float, over: Callable[[], bool] = lambda: False) -> Best | None:
    """Find the fastest layout of a row that is faster than the cutoff, exactly unless it is `over` before; None where there is none.

    Counts are taken up in the order of their bounds: first those of even stages, then those of the least budget that
    memory leaves with as many chunks in flight and the most shards.
    """
    c = candidates(problem, row, cutoff)
    if c is None:
        return None
    times, search = Times(problem=problem, row=row), Depths(problem=problem, row=row, candidates=c)
    bound, best = search.bounds(times, search.even, np.arange(len(c.replicas))), None
    waiting = [(float(bound[i]), int(i)) for i in np.flatnonzero((search.depth <= search.deepest) & (bound < cutoff))]
    heapq.heapify(waiting)
    told: set[int] = set()
    while waiting and not over():
        low, i = heapq.heappop(waiting)
        if low >= cutoff:
            break
        depth = int(search.depth[i])
        if depth not in told:
            told.add(depth)
            own = np.flatnonzero(search.depth == depth)
            bound[own] = search.bounds(times, search.floor(depth), own)
        if bound[i] > low:
            heapq.heappush(waiting, (float(bound[i]), i))
        elif not search.hopeless(i):
            one = c.part(slice(i, i + 1))
            found = _best_split(times, one, pace_of(problem, row, one.racks), cutoff)
            best, cutoff = (found, found.seconds) if found is not None else (best, cutoff)
    return best


@dataclass(frozen=True, kw_only=True)
class Depths:
    """What memory asks of the candidates of a row, by how deep the micro-batches fill the pipeline: beyond `full` no more are in flight."""

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
        return np.broadcast_to(np.asarray(pace_of(self.problem, self.row, self.candidates.racks).layer, dtype=np.float64), self.depth.shape)

    @property
    def free(self) -> bool:
        """Whether layers and recomputation are the search's to place."""
        return self.problem.pin("layers_per_stage") is None and self.problem.pin("recomputed_layers_per_stage") is None

    @cached_property
    def even(self) -> float:
        """Least time of the largest stage."""
        base = self.row.base
        again = base.times.again if base.recomputes == "all" else 0.0
        return math.ceil(self.problem.machine.model.layers / self.row.pipeline) * float(self.layer.min() + again)

    @cached_property
    def deepest(self) -> int:
        """The deepest filling with which memory holds all layers with the most shards; 0 where none does."""
        depths, most = np.unique(self.depth), int(self.candidates.least.max())
        if not self.free:
            return int(depths[-1])
        low, high = 0, len(depths)
        while low < high:
            middle = (low + high) // 2
            fits = self._stages(most, int(depths[middle]), self.row.base.layer).feasible
            low, high = (middle + 1, high) if fits else (low, middle)
        return int(depths[low - 1]) if low else 0

    def floor(self, depth: int) -> float:
        """Return the least budget with which memory holds all layers at a depth; infinite where it never does."""
        if not self.free:
            return self.even
        own = self.depth == depth
        easiest = self._stages(int(self.candidates.least[own].max()), depth, float(self.layer[own].min()))
        first = easiest.first_budget()
        return math.inf if first is None else float(easiest.budgets[first])

    def hopeless(self, i: int) -> bool:
        """Tell whether no layers fit with a candidate's shards, or fewer, and micro-batches; shards matter where ZeRO divides state."""
        if not self.free or self.row.zero == 0:
            return False
        m, shards = int(self.candidates.batches[i]), int(self.candidates.least[i])
        if shards > self.none_below.get(m, 0) and not self._stages(shards, m, float(self.layer[i])).feasible:
            self.none_below[m] = shards
        return shards <= self.none_below.get(m, 0)

    def _stages(self, replicas: int, batches: int, layer: float) -> Stages:
        most = self.problem.machine.model.layers - (self.row.pipeline - 1) * self.row.virtual_stages
        return Stages(problem=self.problem, row=self.row, replicas=replicas, batches=batches, layer=layer, most_layers=most)

    def bounds(self, times: "Times", budget: float, which: Ints) -> Floats:
        """Bound the time per sequence of some candidates whose largest stage takes at least a budget."""
        if not math.isfinite(budget):
            return np.full(len(which), math.inf)
        c, base, p, layers = self.candidates.part(which), self.row.base, self.row.pipeline, self.problem.machine.model.layers
        again = base.times.again if base.recomputes == "all" else 0.0
        even = math.ceil(layers / p)
        stage = np.maximum(budget, even * (self.layer[which] + again))
        least = np.maximum(stage + (base.head if p == 1 else 0.0), (layers * (self.layer[which] + again) + base.head) / p)
        return times.per_sequence(c, pace_of(self.problem, self.row, c.racks), pace_seconds=least, stage_seconds=stage, most=even)


def _best_split(times: "Times", c: Candidates, pace: Paces, cutoff: float) -> Best | None:
    """Find the fastest split of layers for one count of replicas and micro-batches.

    Budgets of the largest stage are tried upwards from the least that holds all layers, and for each the paces that the
    last stage with its head may set, until no larger one can win.
    """
    problem, row, layer = times.problem, times.row, float(np.asarray(pace.layer).ravel()[0])
    layers, p, fixed = problem.machine.model.layers, row.pipeline, problem.pin("layers_per_stage")
    sequences = int(c.replicas[0] * c.batches[0]) * row.base.shape.micro_batch
    in_time = min(layers, cutoff * sequences / float(effective(row, int(c.batches[0]))) / layer)
    most_layers = max(1, min(layers - (p - 1) * row.virtual_stages, math.floor(in_time) + 1))
    if fixed is not None:
        most_layers = max(fixed)
    stages = Stages(problem=problem, row=row, replicas=int(c.least[0]), batches=int(c.batches[0]), layer=layer, most_layers=most_layers)
    if fixed is not None or problem.pin("recomputed_layers_per_stage") is not None:
        return _fixed_split(times, c, pace, stages, cutoff)
    start = stages.first_budget()
    if start is None:
        return None
    even, least_pace, best = math.ceil(layers / p), (layers * layer + row.base.head) / p, None
    for budget in stages.budgets[start:]:
        if times.one(c, pace, max(float(budget), least_pace), float(budget), even) >= cutoff:
            break
        found = _best_pace(times, c, pace, stages, float(budget), cutoff)
        if found is not None:
            best, cutoff = found, found.seconds
    return best


def _best_pace(times: "Times", c: Candidates, pace: Paces, stages: Stages, budget: float, cutoff: float) -> Best | None:
    """Find the fastest pace for one budget: the last stage holds what the others leave, or more, so that the largest is smaller."""
    row, layers = times.row, times.problem.machine.model.layers
    caps = stages.caps(budget)
    needed = max(stages.least, layers - int(caps[:-1].sum()))
    even, best = math.ceil(layers / row.pipeline), None
    for last in range(needed, int(caps[-1]) + 1):
        own = stages.seconds(last, row.pipeline - 1)
        slowest = max(budget if row.pipeline > 1 else 0.0, own + row.base.head)
        if own > budget * (1 + HAIR) or times.one(c, pace, slowest, budget, even) >= cutoff:
            break
        most = stages.size_needed(budget, slowest * (1 + HAIR))
        if most is None:
            continue
        held, again = stages.spread(budget, slowest * (1 + HAIR), most)
        seconds = times.of_split(c, pace, held, again)
        if seconds < cutoff:
            best, cutoff = Best(seconds=seconds, cut=times.cut(c, held, again)), seconds
        if most == even:
            break
    return best


def _fixed_split(times: "Times", c: Candidates, pace: Paces, stages: Stages, cutoff: float) -> Best | None:
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
        stages.most_in_flight(n, r, stages.room[i]) < stages.chunks[i] for i, (n, r) in enumerate(zip(layers, again, strict=True))
    ):
        return None
    seconds = times.of_split(c, pace, tuple(layers), again)
    return Best(seconds=seconds, cut=times.cut(c, tuple(layers), again)) if seconds < cutoff else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The step time of a row, as physics.step adds it up, with the split of layers left open."""

    problem: Problem
    row: Row

    def per_sequence(self, c: Candidates, pace: Paces, *, pace_seconds: Any, stage_seconds: Any, most: Any) -> Floats:
        """Seconds per sequence at a pace, a time of the largest stage without the head, and its layers; broadcasts over candidates."""
        once, each = self.terms(pace, c.racks, c.least, c.batches, stage_seconds, most)
        total = effective(self.row, c.batches) * (pace_seconds + each) + once
        return np.asarray(total / (c.replicas * c.batches * self.row.base.shape.micro_batch), dtype=np.float64)

    def one(self, c: Candidates, pace: Paces, pace_seconds: float, stage_seconds: float, most: int) -> float:
        """Seconds per sequence of a single candidate."""
        return float(self.per_sequence(c, pace, pace_seconds=pace_seconds, stage_seconds=stage_seconds, most=most)[0])

    def of_split(self, c: Candidates, pace: Paces, layers: tuple[int, ...], again: tuple[int, ...]) -> float:
        """Seconds per sequence of a single candidate with the layers of every stage."""
        layer = float(np.asarray(pace.layer).ravel()[0])
        stage = [n * layer + r * self.row.base.times.again for n, r in zip(layers, again, strict=True)]
        return self.one(
            c, pace, max(*stage[:-1], stage[-1] + self.row.base.head) if len(stage) > 1 else stage[0] + self.row.base.head, max(stage), max(layers)
        )

    def terms(self, pace: Paces, racks: Any, replicas: Any, batches: Any, stage_seconds: Any, most: Any) -> tuple[Any, Any]:
        """Return the seconds that a step takes once (fill and tails) and besides the slowest stage for each micro-batch."""
        row, base, p, v = self.row, self.row.base, self.row.pipeline, self.row.virtual_stages
        fill = step.bubble_of(pace, base.order, p, v, stage_seconds, hop=row.hop, micro_batches=batches)
        m = self.problem.machine
        each = m.software.microbatch_seconds + step.exposed_each(m, pace, v, m.model.layers / p, row.hop)
        tails = step.tail_parts(
            m,
            base.shape,
            self.problem.conditions,
            pipeline=p,
            zero_stage=self.row.zero,
            replicas_per_rack=row.replicas_per_rack,
            racks=racks,
            replicas=replicas,
            most_layers=most,
            layer_backward=base.times.backward,
            sites=self._sites(),
        )
        return fill + sum(tails.values()), each

    def _sites(self) -> int:
        asked = self.problem.pin("data_parallel_by_site")
        if asked is not None:
            return sum(d > 0 for d in asked.values())
        return int((replica_caps(self.problem, self.row.base, self.row.pipeline) > 0).sum())

    def cut(self, c: Candidates, layers: tuple[int, ...], again: tuple[int, ...]) -> Cut:
        """Return the layout in full."""
        row, s = self.row, self.row.base.shape
        return Cut(
            tensor_parallel=s.tensor_parallel,
            pipeline_parallel=row.pipeline,
            data_parallel_by_site=tuple(int(x) for x in c.by_site[:, 0]),
            virtual_stages=row.virtual_stages,
            micro_batch=s.micro_batch,
            micro_batches=int(c.batches[0]),
            recompute="full" if any(again) else s.recompute,
            sequence_parallel=s.sequence_parallel,
            zero_stage=self.row.zero,
            layers_per_stage=layers,
            replicas_per_rack=row.replicas_per_rack,
            context_parallel=s.context_parallel,
            expert_parallel=s.expert_parallel,
            tensor_inner=s.tensor_inner,
            schedule=row.base.order,
            stages_per_rack=row.stages_per_rack,
            recomputed_layers_per_stage=again if any(again) else (),
        )


def pace_of(problem: Problem, row: Row, racks: Any) -> Paces:
    """Return the pace of a layer in a row ; broadcasts over the racks of a group."""
    return step.paces(
        problem.machine,
        row.base.shape,
        row.base.times,
        zero_stage=row.zero,
        replicas_per_rack=row.replicas_per_rack,
        racks=racks,
        slowdown=problem.conditions.allreduce_slowdown,
    )
