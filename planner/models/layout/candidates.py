"""The counts of replicas and micro-batches of a column that could be fastest, and their step time."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.models.layout.bounds import min_step_terms
from planner.models.layout.columns import Column, Floats, Ints, max_replicas, max_replicas_by_site
from planner.models.layout.data import Problem
from planner.physics.training import step
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step import ShardedTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRanges:
    """Ranges of a column's replicas and, where they do not fill the pipeline, of its micro-batches; ends included."""

    replicas: tuple[int, int]
    micro_batches: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Counts of replicas and micro-batches of a column that could beat a cutoff, as arrays."""

    replicas: Ints
    micro_batches: Ints
    by_site: Ints
    shards: Ints  # replicas of the smallest site that works, over which ZeRO shards
    racks: Ints
    bound: Floats

    def select(self, which: Any) -> "Candidates":
        """Return some of the candidates."""
        return Candidates(
            replicas=self.replicas[which],
            micro_batches=self.micro_batches[which],
            by_site=self.by_site[:, which],
            shards=self.shards[which],
            racks=self.racks[which],
            bound=self.bound[which],
        )


def split_replicas(caps: Ints, replicas: Ints) -> Ints:
    """Split replicas over sites as evenly as the caps permit; shape (sites, n).

    The even split has the smallest largest group and the largest smallest one: no other is faster or takes less memory.
    """
    order = np.argsort(caps, kind="stable")
    left, shares = replicas.copy(), np.zeros((len(caps), len(replicas)), dtype=np.int64)
    for rank, site in enumerate(order):
        shares[site] = np.minimum(caps[site], left // (len(caps) - rank))
        left = left - shares[site]
    return shares


def count_pairs(problem: Problem, column: Column, d: Ints, ranges: CountRanges | None = None) -> tuple[Ints, Ints]:
    """Pair numbers of replicas with the numbers of micro-batches that could be fastest with them.

    A filled pipeline takes as many micro-batches as the batch allows. Interleaved, complete rounds may be faster, and
    fewer micro-batches than p + (p-1)/v have less in flight. A pipeline that is not filled may take any number below p.
    """
    p, v = column.pipeline, column.virtual_stages
    total, pinned = _max_micro_batches_of_step(problem, column), problem.pin("microbatches_per_step")
    low, high = (1, p - 1) if ranges is None else ranges.micro_batches
    if pinned is not None:
        d = d if column.filled or low <= pinned <= high else d[:0]
        return d, np.full(len(d), pinned)
    if not column.filled:
        each = np.maximum(np.minimum(high, total // d) - low + 1, 0)
        first = np.cumsum(each) - each
        return np.repeat(d, each), low + np.arange(int(each.sum())) - np.repeat(first, each)
    if v == 1:
        return d, total // d
    m = total // d
    early = [np.minimum(m, p + k) for k in range((p - 1) // v + 1)]
    pairs = np.unique(np.concatenate([d * (total + 1) + x for x in (m, m // p * p, *early)]))
    return pairs // (total + 1), pairs % (total + 1)


def _max_micro_batches_of_step(problem: Problem, column: Column) -> int:
    """Return the most micro-batches of all replicas in one step."""
    return problem.max_sequences // column.layer_strategy.shape.micro_batch


def _max_micro_batches(problem: Problem, column: Column, d: Ints) -> Ints:
    """Return the most micro-batches with each number of replicas, none where the column does not allow them."""
    total, pinned = _max_micro_batches_of_step(problem, column), problem.pin("microbatches_per_step")
    m = total // d if column.filled else np.minimum(total // d, column.pipeline - 1)
    if pinned is None:
        return m
    return np.where((m >= pinned) & (column.filled == (pinned >= column.pipeline)), pinned, 0)


def _replica_counts(problem: Problem, column: Column, cutoff: float, ranges: CountRanges | None) -> Ints:
    """List a column's numbers of replicas, but for those too few for the cutoff even without bubble and tails."""
    strategy, p, total = column.layer_strategy, column.pipeline, _max_micro_batches_of_step(problem, column)
    caps = max_replicas_by_site(problem, strategy, p)
    stage = math.ceil(problem.machine.model.layers / p) * strategy.min_layer_seconds
    fast_enough = math.floor(stage / (cutoff * strategy.shape.micro_batch))
    first, last = (1, total) if ranges is None else ranges.replicas
    low = max(1 if problem.shared else int((caps > 0).sum()), fast_enough, first)
    high = min(int(max_replicas(problem, strategy, p)), total // p if column.filled else total, last)
    pinned, shares = problem.pin("data_parallel"), problem.pin("data_parallel_by_site")
    if shares is None:
        if pinned is None:
            return np.arange(low, high + 1)
        return np.array([pinned] if low <= pinned <= high else [], dtype=np.int64)
    by_site = np.array([shares.get(s, 0) for s in problem.sites])
    count = int(by_site.sum())
    possible = np.all(by_site <= caps) and first <= count <= high and pinned in (None, count)
    return np.array([count] if possible else [], dtype=np.int64)


def _bound_counts(problem: Problem, column: Column, d: Ints, m: Ints) -> Floats:
    """Bound the seconds per sequence of counts of replicas and micro-batches: even stages, least tails."""
    p, v = np.array(column.pipeline), np.array(column.virtual_stages)
    slowest, once, each = min_step_terms(
        problem, column.layer_strategy, column.zero_stage, p, v, m, min_replicas=d, max_replicas=d
    )
    m = np.maximum(m, 1)
    total = column.effective_micro_batches(m) * (slowest + each) + once
    return np.asarray(total / (m * d * column.layer_strategy.shape.micro_batch), dtype=np.float64)


def candidates(problem: Problem, column: Column, cutoff: float, ranges: CountRanges | None = None) -> Candidates | None:
    """List the counts of a column (in ranges) whose time on even stages is under the cutoff, the fastest first.

    Fewer micro-batches never make a sequence faster but by complete rounds, so the most that replicas allow bound all
    others.
    """
    shape, p = column.layer_strategy.shape, column.pipeline
    d = _replica_counts(problem, column, cutoff, ranges)
    m = _max_micro_batches(problem, column, d)
    d, m = d[m >= 1], m[m >= 1]
    if not len(d):
        return None
    rounds = column.effective_micro_batches(m) / m
    d = d[_bound_counts(problem, column, d, m) / rounds < cutoff]
    if not len(d):
        return None
    d, m = count_pairs(problem, column, d, ranges)
    d, m = d[m >= 1], m[m >= 1]
    bound = _bound_counts(problem, column, d, m)
    order = np.argsort(bound, kind="stable")
    order = order[bound[order] < cutoff]
    if not len(order):
        return None
    d, m, bound = d[order], m[order], bound[order]
    pinned = problem.pin("data_parallel_by_site")
    if pinned is None:
        by_site = split_replicas(max_replicas_by_site(problem, column.layer_strategy, p), d)
    else:
        by_site = np.repeat(np.array([pinned.get(s, 0) for s in problem.sites])[:, None], len(d), axis=1)
    shards = d if problem.shared else np.where(by_site > 0, by_site, np.iinfo(np.int64).max).min(axis=0)
    # The racks of a replica's CP ranks sum gradients too; those that TP takes besides have other weights.
    spread = min(shape.context_parallel, column.racks_per_replica)
    c = Candidates(
        replicas=d,
        micro_batches=m,
        by_site=by_site,
        shards=shards,
        racks=np.ceil(by_site.max(axis=0) / column.replicas_per_rack).astype(np.int64) * spread,
        bound=bound,
    ).select(shards * shape.gpus >= shape.expert_parallel)
    return c if len(c.replicas) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The step time of a column's candidates, as the physics adds it up, for any split of layers."""

    problem: Problem
    column: Column

    def layer(self, racks: Any) -> ShardedTimes:
        """Return the times of a layer with what ZeRO exposes; broadcasts over the racks of a group."""
        return step.sharded_times(
            self.problem.machine,
            self.column.layer_strategy.shape,
            self.column.layer_strategy.times,
            zero_stage=self.column.zero_stage,
            replicas_per_rack=self.column.replicas_per_rack,
            racks=racks,
            slowdown=self.problem.conditions.allreduce_slowdown,
        )

    def max_stage_seconds(self, c: Candidates, layer_times: ShardedTimes, cutoff: float) -> float:
        """Return the most time that the slowest stage may take for some candidate to be under a cutoff.

        What the cutoff leaves beside pipeline bubble and tails, both of even stages.
        """
        even = math.ceil(self.problem.machine.model.layers / self.column.pipeline)
        stage = even * np.asarray(layer_times.layer_seconds)
        once, each = self.terms(layer_times, c.racks, c.shards, c.micro_batches, stage, even)
        total = cutoff * c.replicas * c.micro_batches * self.column.layer_strategy.shape.micro_batch
        return float(np.max((total - once) / self.column.effective_micro_batches(c.micro_batches) - each))

    def per_sequence(
        self, c: Candidates, layer_times: ShardedTimes, *, slowest: Any, stage_seconds: Any, largest: Any
    ) -> Floats:
        """Return seconds per sequence; broadcasts over candidates.

        `slowest`: seconds of the slowest stage with its head; `stage_seconds`: of the largest stage without the head;
        `largest`: its layers.
        """
        once, each = self.terms(layer_times, c.racks, c.shards, c.micro_batches, stage_seconds, largest)
        total = self.column.effective_micro_batches(c.micro_batches) * (slowest + each) + once
        sequences = c.replicas * c.micro_batches * self.column.layer_strategy.shape.micro_batch
        return np.asarray(total / sequences, dtype=np.float64)

    def of_split(
        self, c: Candidates, layer_times: ShardedTimes, layers: tuple[int, ...], recomputed: tuple[int, ...]
    ) -> float:
        """Return the seconds per sequence of a single candidate with the layers of every stage."""
        layer, strategy = float(np.asarray(layer_times.layer_seconds).ravel()[0]), self.column.layer_strategy
        stage = [n * layer + r * strategy.times.recompute_seconds for n, r in zip(layers, recomputed, strict=True)]
        slowest = max([*stage[:-1], stage[-1] + strategy.head_seconds])
        seconds = self.per_sequence(c, layer_times, slowest=slowest, stage_seconds=max(stage), largest=max(layers))
        return float(seconds[0])

    def terms(
        self, layer_times: ShardedTimes, racks: Any, shards: Any, micro_batches: Any, stage_seconds: Any, largest: Any
    ) -> tuple[Any, Any]:
        """Return what a step takes once (bubble and tails) and what each micro-batch takes beside the slowest stage."""
        column, strategy, m = self.column, self.column.layer_strategy, self.problem.machine
        p, v, send = column.pipeline, column.virtual_stages, column.send_seconds
        bubble = step.pipeline_bubble_seconds(
            layer_times, strategy.schedule, p, v, stage_seconds, send_seconds=send, micro_batches=micro_batches
        )
        each = m.software.microbatch_seconds + step.exposed_send_seconds(m, layer_times, v, m.model.layers / p, send)
        tails = step.tail_parts(
            m,
            strategy.shape,
            self.problem.conditions,
            pipeline=p,
            zero_stage=column.zero_stage,
            replicas_per_rack=column.replicas_per_rack,
            racks=racks,
            replicas=shards,
            max_layers=largest,
            backward_seconds=strategy.times.backward_seconds,
            sites=self._sites(),
        )
        return bubble + sum(tails.values()), each

    def _sites(self) -> int:
        """Count the sites that train."""
        pinned = self.problem.pin("data_parallel_by_site")
        if pinned is not None:
            return sum(d > 0 for d in pinned.values())
        caps = max_replicas_by_site(self.problem, self.column.layer_strategy, self.column.pipeline)
        return int((caps > 0).sum())

    def strategy(self, c: Candidates, layers: tuple[int, ...], recomputed: tuple[int, ...]) -> ParallelStrategy:
        """Return the parallel strategy of a single candidate with the layers of every stage."""
        column, shape = self.column, self.column.layer_strategy.shape
        return ParallelStrategy.of_shape(
            shape,
            pipeline_parallel=column.pipeline,
            data_parallel_by_site=tuple(int(x) for x in c.by_site[:, 0]),
            virtual_stages=column.virtual_stages,
            micro_batches=int(c.micro_batches[0]),
            recompute="full" if any(recomputed) else shape.recompute,
            zero_stage=column.zero_stage,
            layers_per_stage=layers,
            replicas_per_rack=column.replicas_per_rack,
            schedule=column.layer_strategy.schedule,
            stages_per_rack=column.stages_per_rack,
            recomputed_layers_per_stage=recomputed if any(recomputed) else (),
        )
