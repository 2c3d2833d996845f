"""Lower bounds of candidate columns in seconds per sequence: computed from physics, or known from earlier searches."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.models.layout.columns import ColumnTable, Flags, Floats, Ints, max_counts, packing, pipelines
from planner.models.layout.data import LayerStrategy, Problem, list_layer_strategies
from planner.physics.training import stage_memory, step

EPS = 1e-9  # of a layer: above the rounding of the sums, far below one layer
MAX_KNOWN_COLUMNS = 2000  # with a bound of their own: looking them up must cost less than it saves

# By the index of a layer strategy and a ZeRO stage, over arrays of stages, virtual stages and filled.
ColumnFilter = Callable[[int, int, Ints, Ints, Flags], Flags]
ColumnKey = tuple[int, int, int, int, bool]  # layer strategy, ZeRO stage, stages, virtual stages, filled


def column_table(
    problem: Problem,
    strategies: list[LayerStrategy] | None = None,
    *,
    cutoff: float = math.inf,
    keep: ColumnFilter | None = None,
) -> ColumnTable:
    """Bound the columns of some layer strategies (None: of all) and drop those that cannot hold the model.

    Columns that even stages alone make as slow as the cutoff are left out before their bounds are computed, and so are
    those that `keep` rejects.
    """
    strategies = list_layer_strategies(problem) if strategies is None else strategies
    zero_stages = problem.options("zero_stage", range(4))
    blocks, without_replicas, over_memory = [], 0, 0
    for index, strategy in enumerate(strategies):
        p, v, filled = pipelines(problem, strategy)
        kept = [np.ones(len(p), dtype=bool) if keep is None else keep(index, z, p, v, filled) for z in zero_stages]
        some = np.flatnonzero(np.logical_or.reduce(kept)) if kept else np.empty(0, dtype=np.int64)
        some = some[_bound_even_stages(problem, strategy, p[some], filled[some]) < cutoff] if len(some) else some
        for zero_stage, which in zip(zero_stages, kept, strict=True):
            own = some[which[some]]
            if not len(own):
                continue
            bound, possible, fits = bound_columns(problem, strategy, zero_stage, p[own], v[own], filled[own])
            without_replicas += int(np.sum(~possible))
            over_memory += int(np.sum(possible & ~fits))
            i, rest = own[possible & fits], bound[possible & fits]
            blocks.append((np.full(len(i), index), np.full(len(i), zero_stage), p[i], v[i], filled[i], rest))
    arrays: list[Any] = [np.concatenate(c) for c in zip(*blocks, strict=True)] or [np.empty(0, dtype=np.int64)] * 6
    order = np.argsort(arrays[5], kind="stable")
    strategy_index, stages, p, v, filled, bound = (a[order] for a in arrays)
    return ColumnTable(
        problem=problem,
        layer_strategies=strategies,
        strategy_index=strategy_index,
        zero_stage=stages,
        pipeline=p,
        virtual_stages=v,
        filled=filled.astype(bool),
        bound=bound,
        without_replicas=without_replicas,
        over_memory=over_memory,
    )


def bound_strategy(problem: Problem, strategy: LayerStrategy) -> float:
    """Bound all columns of a layer strategy: every GPU at work all the time, no pipeline bubble and no tails."""
    m = problem.machine
    units = max(1, problem.max_racks * m.rack.gpus // strategy.shape.gpus)
    seconds = m.model.layers * strategy.min_layer_seconds + strategy.head_seconds
    return seconds / (strategy.shape.micro_batch * units)


def _bound_even_stages(problem: Problem, strategy: LayerStrategy, p: Ints, filled: Flags) -> Floats:
    """Bound columns by the time of even stages at the most replicas, without pipeline bubble and tails."""
    replicas, _ = max_counts(problem, strategy, p, filled)
    stage = np.ceil(problem.machine.model.layers / p) * strategy.min_layer_seconds
    return np.asarray(stage / (np.maximum(replicas, 1) * strategy.shape.micro_batch))


def bound_columns(
    problem: Problem, strategy: LayerStrategy, zero_stage: int, p: Ints, v: Ints, filled: Flags
) -> tuple[Floats, Flags, Flags]:
    """Bound columns by the most even stages, the most replicas and the largest batch.

    Returned beside the bounds: where racks and batch allow any replicas, and where the model may fit memory.
    """
    replicas, micro_batches = max_counts(problem, strategy, p, filled)
    possible = (replicas >= 1) & (replicas * strategy.shape.gpus >= strategy.shape.expert_parallel)
    most, one = np.maximum(replicas, 1), np.ones_like(replicas)
    bound = bound_ranges(
        problem, strategy, zero_stage, p, v, min_replicas=one, max_replicas=most, max_micro_batches=micro_batches
    )
    return bound, possible, _may_fit_memory(problem, strategy, zero_stage, p, v, filled, most)


def bound_ranges(
    problem: Problem,
    strategy: LayerStrategy,
    zero_stage: int,
    p: Ints,
    v: Ints,
    *,
    min_replicas: Any,
    max_replicas: Any,
    max_micro_batches: Any,
    min_stage_seconds: Any = 0.0,
) -> Floats:
    """Bound columns whose replicas and micro-batches lie in ranges.

    `min_stage_seconds`: of the largest stage, where it is known to take longer than an even one. Pipeline sends are
    those of the fewest replicas, the slowest stage is shared by the most, and what a step takes once by the largest
    batch.
    """
    b = strategy.shape.micro_batch
    slowest, once, each = min_step_terms(
        problem,
        strategy,
        zero_stage,
        p,
        v,
        max_micro_batches,
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        min_stage_seconds=min_stage_seconds,
    )
    largest = np.minimum(problem.max_sequences // b, max_replicas * np.maximum(max_micro_batches, 1.0))
    return np.asarray(((slowest + each) / max_replicas + once / largest) / b, dtype=np.float64)


def _min_group_racks(problem: Problem, replicas_per_rack: Any, replicas: Any) -> Any:
    """Bound the racks of the largest replica group, the replicas spread over all sites."""
    sites = max(1, sum(x > 0 for x in problem.racks))
    return np.ceil(np.ceil(replicas / sites) / replicas_per_rack)


def _sharded_times(
    problem: Problem, strategy: LayerStrategy, zero_stage: int, replicas_per_rack: Any, min_replicas: Any
) -> tuple[Any, step.ShardedTimes]:
    """Return the racks of the smallest largest group and the times of a layer in it, with what ZeRO exposes."""
    racks, slowdown = _min_group_racks(problem, replicas_per_rack, min_replicas), problem.conditions.allreduce_slowdown
    return racks, step.sharded_times(
        problem.machine,
        strategy.shape,
        strategy.times,
        zero_stage=zero_stage,
        replicas_per_rack=replicas_per_rack,
        racks=racks,
        slowdown=slowdown,
    )


def min_layer_seconds(problem: Problem, strategy: LayerStrategy, zero_stage: int, p: Ints, replicas: Ints) -> Floats:
    """Bound the time of a layer with so many replicas or more: what ZeRO exposes with it and no full recompute."""
    _, r, _ = packing(problem, strategy, p)
    _, times = _sharded_times(problem, strategy, zero_stage, r, replicas)
    return np.broadcast_to(np.asarray(times.layer_seconds, dtype=np.float64), p.shape)


def min_slowest_stage_seconds(layers: int, p: Any, layer: Any, head: float) -> Any:
    """Bound the time of the slowest of p stages of whole layers, the last of which runs the head besides.

    With k layers on each other stage the last holds the rest, layers - k·(p - 1): its time falls with k, theirs grows,
    and the two cross at the mean.
    """
    k = (layers * layer + head) / (p * layer)
    crossing = np.minimum(np.ceil(k - EPS) * layer, (layers - np.floor(k + EPS) * (p - 1)) * layer + head)
    return np.maximum(crossing, layer + head)


def min_step_terms(
    problem: Problem,
    strategy: LayerStrategy,
    zero_stage: int,
    p: Any,
    v: Any,
    micro_batches: Any,
    *,
    min_replicas: Any,
    max_replicas: Any,
    min_stage_seconds: Any = 0.0,
) -> tuple[Any, Any, Any]:
    """Bound three terms of a step: the slowest stage, what the step takes once, and what each micro-batch pays besides.

    The most even stages, of which the largest takes no less than `min_stage_seconds`; the collectives of the fewest
    replicas, the shards of the most; nothing between sites.
    """
    m, layers = problem.machine, problem.machine.model.layers
    q, r, _ = packing(problem, strategy, np.asarray(p))
    racks, times = _sharded_times(problem, strategy, zero_stage, r, min_replicas)
    layer = times.layer_seconds + strategy.min_layer_seconds - strategy.layer_seconds
    even = np.ceil(layers / p)
    stage = np.maximum(even * layer, min_stage_seconds)
    slowest = np.maximum(
        stage + np.where(p == 1, strategy.head_seconds, 0.0),
        min_slowest_stage_seconds(layers, p, layer, strategy.head_seconds),
    )
    send = np.where(p == 1, 0.0, np.where(q >= p, strategy.send_inside_rack, strategy.send_between_racks))
    bubble = step.pipeline_bubble_seconds(
        times, strategy.schedule, p, v, stage, send_seconds=send, micro_batches=micro_batches
    )
    if strategy.schedule == "zb-h1":
        # Where sends take longer than the passes that hide them, fewer micro-batches have a shorter bubble.
        one = step.pipeline_bubble_seconds(times, strategy.schedule, p, v, stage, send_seconds=send, micro_batches=1)
        bubble = np.minimum(bubble, one)
    tails = step.tail_parts(
        m,
        strategy.shape,
        problem.conditions,
        pipeline=p,
        zero_stage=zero_stage,
        replicas_per_rack=r,
        racks=racks,
        replicas=max_replicas,
        max_layers=even,
        backward_seconds=strategy.times.backward_seconds,
        sites=1,
    )
    each = m.software.microbatch_seconds + step.exposed_send_seconds(m, times, v, layers / p, send)
    return slowest, bubble + sum(tails.values()), each


def _may_fit_memory(
    problem: Problem, strategy: LayerStrategy, zero_stage: int, p: Ints, v: Ints, filled: Flags, replicas: Ints
) -> Flags:
    """Return which columns may fit memory: an upper bound on the layers that all stages hold reaches the model's.

    With k stages behind it a stage holds at least (s + a·((v-1)·p + k + 1)/v)·l bytes for l layers; the sum over k of
    1/(s + a·…) is at most the integral from 0. Under ZB-H1 every stage holds p micro-batches.
    """
    m, limit = problem.machine, problem.memory_limit
    state = stage_memory.gpu_state_bytes(
        m, strategy.shape, strategy.weights, layers=1, ends=0, zero_stage=zero_stage, replicas=replicas
    )
    activation = strategy.min_layer_bytes
    if strategy.schedule == "zb-h1":
        layers = limit * p / (state + activation * p)
    else:
        low, slope = state + activation * (v - 1) * p / v, activation / v
        layers = limit / slope * np.log((low + slope * p) / low)
    return np.asarray(np.where(filled, layers, limit * p / (state + activation)) >= m.model.layers)


@dataclass(frozen=True, slots=True)
class RemainingColumns:
    """Columns whose known bounds are under a target: all of some pairs but `excluded`, and `extra` ones of other pairs.

    A pair is a layer strategy with a number of stages.
    """

    pairs: Flags
    extra: tuple[ColumnKey, ...]
    excluded: tuple[ColumnKey, ...]

    @property
    def strategies(self) -> Ints:
        """Indices of the layer strategies with a remaining column."""
        return np.union1d(np.flatnonzero(self.pairs.any(axis=1)), [k[0] for k in self.extra]).astype(np.int64)

    def select(self, strategy: int, zero_stage: int, p: Ints, v: Ints, filled: Flags) -> Flags:
        """Return which pipelines of a layer strategy and a ZeRO stage remain."""
        remain = np.asarray(self.pairs[strategy, p])
        for keys, value in ((self.extra, True), (self.excluded, False)):
            for key in keys:
                if key[:2] == (strategy, zero_stage):
                    remain[(p == key[2]) & (v == key[3]) & (filled == key[4])] = value
        return remain


@dataclass(frozen=True, slots=True)
class KnownBounds:
    """Seconds per sequence that no layout is under, proven by earlier searches.

    A pair of a layer strategy and a number of stages has one bound for all its columns, but for those with their own.
    """

    pairs: Floats
    columns: dict[ColumnKey, float] = field(default_factory=dict)

    def of(self, key: ColumnKey) -> float:
        """Return the bound of a column."""
        return self.columns.get(key, float(self.pairs[key[0], key[2]]))

    def mostly_under(self, target: float) -> bool:
        """Return whether most pairs have a bound under a target; index 0 is no number of stages."""
        real = self.pairs[:, 1:]
        return bool(2 * np.count_nonzero(real < target) > real.size)

    def remaining(self, target: float) -> RemainingColumns:
        """Return the columns with bounds under a target."""
        pairs = self.pairs < target
        pairs[:, 0] = False
        extra = tuple(k for k, x in self.columns.items() if x < target and not pairs[k[0], k[2]])
        excluded = tuple(k for k, x in self.columns.items() if x >= target and pairs[k[0], k[2]])
        return RemainingColumns(pairs, extra, excluded)

    def where(self, valid: Flags) -> "KnownBounds":
        """Return the bounds of the pairs where they are valid, and zero for the others."""
        columns = {k: x for k, x in self.columns.items() if valid[k[0], k[2]]}
        return KnownBounds(np.where(valid, self.pairs, 0.0), columns)

    def updated(self, new: "KnownBounds", searched: RemainingColumns) -> "KnownBounds":
        """Return the bounds after a search of some columns proved new ones for them."""
        single = set(searched.excluded)
        kept = {k: x for k, x in self.columns.items() if k in single or not searched.pairs[k[0], k[2]]}
        return KnownBounds(np.where(searched.pairs, new.pairs, self.pairs), kept | new.columns)

    @classmethod
    def highest(cls, several: Sequence["KnownBounds"]) -> "KnownBounds":
        """Return the highest of several bounds of each column."""
        pairs = np.maximum.reduce([b.pairs for b in several])
        columns = {k: max(b.of(k) for b in several) for k in {k for b in several for k in b.columns}}
        if len(columns) > MAX_KNOWN_COLUMNS:  # those above the bound of their pair may go: the pair's is then theirs
            columns = {k: x for k, x in columns.items() if x < pairs[k[0], k[2]]}
        return cls(pairs, columns)
