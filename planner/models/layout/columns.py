"""The declared space of layouts as numpy tables of rows with lower bounds.

A row is a way to cut a layer with a ZeRO stage, a number of stages and of virtual stages, and whether the pipeline is filled
(m >= p) or not. Free within a row: replicas by site, the number of micro-batches, and the layers of every stage with how
many of them are recomputed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.models.layout.data import LayerStrategy, Problem, layer_strategies
from planner.physics.training import schedule, stage_memory, step

HAIR = 1e-9  # of a layer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Select = Callable[
    [int, int, Ints, Ints, Flags], Flags
]  # of a way to cut a layer and a ZeRO stage, by stages, virtual stages and filled


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the space with a lower bound, in seconds per sequence."""

    base: LayerStrategy
    zero: int
    pipeline: int
    virtual_stages: int
    filled: bool
    stages_per_rack: int
    replicas_per_rack: int
    racks_per_replica: int
    bound: float

    @property
    def hop(self) -> float:
        """One pipeline exchange: inside the rack where that holds all stages."""
        if self.pipeline == 1:
            return 0.0
        return self.base.hop_inside if self.stages_per_rack >= self.pipeline else self.base.hop_between


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTable:
    """The rows that may hold the model, by columns, in order of their bounds; and how many were excluded by which argument."""

    problem: Problem
    layer_strategies: list[LayerStrategy]
    base: Ints
    zero: Ints
    pipeline: Ints
    virtual_stages: Ints
    filled: Flags
    bound: Floats
    no_room: int
    memory: int

    def __len__(self) -> int:
        return len(self.bound)

    def part(self, which: Flags | Ints) -> "RowTable":
        """Return the table of some of the rows."""
        kept = {k: getattr(self, k)[which] for k in ("base", "zero", "pipeline", "virtual_stages", "filled", "bound")}
        return replace(self, **kept)

    def row(self, i: int, bound: float) -> Row:
        """Return row i with its sharpened bound."""
        base, p = self.layer_strategies[self.base[i]], int(self.pipeline[i])
        q, r, spread = packing(self.problem, base, np.array(p))
        return Row(
            base=base,
            zero=int(self.zero[i]),
            pipeline=p,
            virtual_stages=int(self.virtual_stages[i]),
            filled=bool(self.filled[i]),
            stages_per_rack=int(q),
            replicas_per_rack=int(r),
            racks_per_replica=spread,
            bound=bound,
        )


def packing(problem: Problem, base: LayerStrategy, p: Any) -> tuple[Any, Any, int]:
    """Return stages in a rack, replicas of a stage in a rack, and racks of a replica's stage."""
    gpus, unit = problem.machine.rack.gpus, base.shape.gpus
    q = np.minimum(p, max(1, gpus // unit)) if base.packed else np.ones_like(p)
    wanted = problem.pin("stages_per_rack")
    q = q if wanted is None else np.full_like(p, wanted)
    r = np.maximum(1, gpus // (q * unit))
    fixed = problem.pin("replicas_per_rack")
    return q, (r if fixed is None else np.full_like(r, fixed)), -(-unit // gpus)


def replica_caps(problem: Problem, base: LayerStrategy, p: Any) -> Any:
    """Most replicas by site: a rack carries q stages of r replicas, so r for every ceil(p/q) racks; shape (sites, ...)."""
    q, r, spread = packing(problem, base, np.asarray(p))
    groups = -(-np.asarray(p) // q) * spread
    fits = q * r * base.shape.gpus <= problem.machine.rack.gpus * spread
    return np.stack([np.where(fits, r * (racks // groups), 0) for racks in problem.racks])


def most_replicas(problem: Problem, base: LayerStrategy, p: Any) -> Any:
    """Most replicas of all sites together; shape of p."""
    caps = replica_caps(problem, base, p).sum(axis=0)
    if problem.racks_in_all is None:
        return caps
    return np.minimum(caps, replica_caps(replace(problem, sites=("all",), racks=(problem.racks_in_all,)), base, p)[0])


def row_table(
    problem: Problem,
    paces: list[LayerStrategy] | None = None,
    *,
    cutoff: float = math.inf,
    wanted: Select | None = None,
) -> RowTable:
    """Build every row of some ways to cut a layer (all, unless told) with its bound, and drop those that cannot hold the model.

    Rows that even stages alone make as slow as the cutoff are left out, their bounds not worked out, and so are those that
    are not `wanted`.
    """
    paces = layer_strategies(problem) if paces is None else paces
    zeros = problem.options("zero_stage", range(4))
    blocks, no_room, by_memory = [], 0, 0
    for index, base in enumerate(paces):
        p, v, filled = pipelines(problem, base)
        own = [np.ones(len(p), dtype=bool) if wanted is None else wanted(index, zero, p, v, filled) for zero in zeros]
        some = np.flatnonzero(np.logical_or.reduce(own)) if own else np.empty(0, dtype=np.int64)
        some = some[_plain_bounds(problem, base, p[some], filled[some]) < cutoff] if len(some) else some
        for zero, which in zip(zeros, own, strict=True):
            of = some[which[some]]
            if not len(of):
                continue
            bound, room, fits = row_bounds(problem, base, zero, p[of], v[of], filled[of])
            no_room += int(np.sum(~room))
            by_memory += int(np.sum(room & ~fits))
            i = of[room & fits]
            blocks.append((np.full(len(i), index), np.full(len(i), zero), p[i], v[i], filled[i], bound[room & fits]))
    columns: list[Any] = (
        [np.concatenate(c) for c in zip(*blocks, strict=True)] if blocks else [np.empty(0, dtype=np.int64)] * 6
    )
    return _in_order(problem, paces, columns, no_room, by_memory)


def declared_rows(problem: Problem, paces: list[LayerStrategy]) -> int:
    """Count the rows of some ways to cut a layer."""
    return sum(len(pipelines(problem, base)[0]) for base in paces) * len(problem.options("zero_stage", range(4)))


def pipelines(problem: Problem, base: LayerStrategy) -> tuple[Ints, Ints, Flags]:
    """Return the pipelines of a way to cut a layer: their stages, virtual stages, and whether they are filled."""
    layers, fixed = problem.machine.model.layers, problem.pin("layers_per_stage")
    stages = tuple(problem.options("pipeline_parallel", range(1, layers + 1) if fixed is None else [len(fixed)]))
    least = layers if fixed is None else min(fixed)  # a stage has a layer for each virtual stage at least
    return _pipelines(stages, layers, least, problem.pin("virtual_stages"), base.packed, base.order == "1f1b")


@lru_cache(maxsize=64)
def _pipelines(
    stages: tuple[int, ...], layers: int, least: int, wanted: int | None, packed: bool, interleaved: bool
) -> tuple[Ints, Ints, Flags]:
    several = [p for p in stages if p > 1 or not packed]
    most = [min(layers // p, least) if p > 1 and interleaved else 1 for p in several]
    deep = [(p, v, True) for p, n in zip(several, most, strict=True) for v in range(1, n + 1) if wanted in (None, v)]
    rows = np.array(deep + [(p, v, False) for p, v, _ in deep if p > 1 and v == 1], dtype=np.int64).reshape(-1, 3)
    found = rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2] > 0
    for column in found:
        column.flags.writeable = False
    return found


def _plain_bounds(problem: Problem, base: LayerStrategy, p: Ints, filled: Flags) -> Floats:
    """Bound rows by the pace of even stages at the most replicas, no fill and no tails."""
    replicas, _ = most_counts(problem, base, p, filled)
    return np.asarray(
        np.ceil(problem.machine.model.layers / p)
        * base.least_layer
        / (np.maximum(replicas, 1) * base.shape.micro_batch)
    )


def _in_order(
    problem: Problem, paces: list[LayerStrategy], columns: list[Any], no_room: int, by_memory: int
) -> RowTable:
    order = np.argsort(columns[5], kind="stable")
    base, zero, p, v, filled, bound = (c[order] for c in columns)
    return RowTable(
        problem=problem,
        layer_strategies=paces,
        base=base,
        zero=zero,
        pipeline=p,
        virtual_stages=v,
        filled=filled.astype(bool),
        bound=bound,
        no_room=no_room,
        memory=by_memory,
    )


def row_bounds(
    problem: Problem, base: LayerStrategy, zero: int, p: Ints, v: Ints, filled: Flags
) -> tuple[Floats, Flags, Flags]:
    """Bound rows from below in seconds per sequence; say where replicas and batch leave room, and where memory may fit.

    The most even stages and the largest batch.
    """
    replicas, batches = most_counts(problem, base, p, filled)
    room = (replicas >= 1) & (replicas * base.shape.gpus >= base.shape.expert_parallel)
    at_most = np.maximum(replicas, 1)
    bound = bound_between(problem, base, zero, p, v, fewest=np.ones_like(at_most), most=at_most, deepest=batches)
    return bound, room, _may_fit(problem, base, zero, p, v, filled, at_most)


def most_counts(problem: Problem, base: LayerStrategy, p: Ints, filled: Flags) -> tuple[Ints, Floats]:
    """Return the most replicas and micro-batches of rows (infinite where the pipeline is filled)."""
    most = problem.most_sequences // base.shape.micro_batch
    caps = most_replicas(problem, base, p)
    return np.minimum(caps, np.where(filled, most // p, most)), np.where(filled, np.inf, np.minimum(p - 1, most))


def bound_between(
    problem: Problem,
    base: LayerStrategy,
    zero: int,
    p: Ints,
    v: Ints,
    *,
    fewest: Any,
    most: Any,
    deepest: Any,
    floor: Any = 0.0,
) -> Floats:
    """Bound rows with so many replicas, and no more micro-batches than the deepest filling, from below in seconds per sequence.

    `floor`: the least time of the largest stage, where it is known to be more than even. Exchanges are those of the fewest
    replicas, the pace is shared by the most, and what comes once a step by the largest batch.
    """
    b = base.shape.micro_batch
    slowest, once, each = least_terms(problem, base, zero, p, v, deepest, fewest=fewest, most=most, floor=floor)
    largest = np.minimum(problem.most_sequences // b, most * np.maximum(deepest, 1.0))
    return np.asarray(((slowest + each) / most + once / largest) / b, dtype=np.float64)


def _least_racks(problem: Problem, replicas_per_rack: Any, replicas: Any) -> Any:
    """Return the racks of the largest group at least, the replicas spread over all sites."""
    return np.ceil(np.ceil(replicas / max(1, sum(x > 0 for x in problem.racks))) / replicas_per_rack)


def least_layer(problem: Problem, base: LayerStrategy, zero: int, p: Ints, replicas: Ints) -> Floats:
    """Return the least time of a layer with so many replicas or more, what ZeRO exposes with it and nothing recomputed."""
    _, r, _ = packing(problem, base, p)
    racks, slow = _least_racks(problem, r, replicas), problem.conditions.allreduce_slowdown
    pace = step.sharded_times(
        problem.machine, base.shape, base.times, zero_stage=zero, replicas_per_rack=r, racks=racks, slowdown=slow
    )
    return np.broadcast_to(np.asarray(pace.layer_seconds, dtype=np.float64), p.shape)


def least_pace(layers: int, p: Any, layer: Any, head: float) -> Any:
    """Return the least time of the slowest of p stages of whole layers, the last of which has the head besides.

    With k layers on each other stage the last holds the rest, layers - k·(p - 1): its time falls with k, theirs grows, and
    the two cross at the mean.
    """
    k = (layers * layer + head) / (p * layer)
    crossing = np.minimum(np.ceil(k - HAIR) * layer, (layers - np.floor(k + HAIR) * (p - 1)) * layer + head)
    return np.maximum(crossing, layer + head)


def least_terms(
    problem: Problem,
    base: LayerStrategy,
    zero: int,
    p: Any,
    v: Any,
    batches: Any,
    *,
    fewest: Any,
    most: Any,
    floor: Any = 0.0,
) -> tuple[Any, Any, Any]:
    """Return the least pace of a micro-batch, what a step takes at least once, and what each micro-batch pays besides.

    The most even stages, of which the largest takes no less than the floor; the exchanges of the fewest replicas, the
    shards of the most; nothing between sites.
    """
    m, layers = problem.machine, problem.machine.model.layers
    q, r, _ = packing(problem, base, np.asarray(p))
    racks = _least_racks(problem, r, fewest)
    slow = problem.conditions.allreduce_slowdown
    pace = step.sharded_times(
        m, base.shape, base.times, zero_stage=zero, replicas_per_rack=r, racks=racks, slowdown=slow
    )
    layer = pace.layer_seconds + base.least_layer - base.layer
    even = np.ceil(layers / p)
    stage = np.maximum(even * layer, floor)
    slowest = np.maximum(stage + np.where(p == 1, base.head, 0.0), least_pace(layers, p, layer, base.head))
    hop = np.where(p == 1, 0.0, np.where(q >= p, base.hop_inside, base.hop_between))
    fill = step.pipeline_bubble_seconds(pace, base.order, p, v, stage, send_seconds=hop, micro_batches=batches)
    if (
        base.order == "zb-h1"
    ):  # where exchanges take longer than the passes that hide them, fewer micro-batches fill it faster
        fill = np.minimum(
            fill, step.pipeline_bubble_seconds(pace, base.order, p, v, stage, send_seconds=hop, micro_batches=1)
        )
    tails = step.tail_parts(
        m,
        base.shape,
        problem.conditions,
        pipeline=p,
        zero_stage=zero,
        replicas_per_rack=r,
        racks=racks,
        replicas=most,
        max_layers=even,
        backward_seconds=base.times.backward_seconds,
        sites=1,
    )
    return (
        slowest,
        fill + sum(tails.values()),
        m.software.microbatch_seconds + step.exposed_send_seconds(m, pace, v, layers / p, hop),
    )


def _may_fit(
    problem: Problem, base: LayerStrategy, zero: int, p: Ints, v: Ints, filled: Flags, replicas: Ints
) -> Flags:
    """Say which rows may fit memory: the sum of what the stages can hold, bounded by an integral, must reach all layers.

    With k stages behind it a stage holds at least (s + a·((v-1)·p + k + 1)/v)·l bytes for l layers; the sum over k of
    1/(s + a·…) is at most the integral from 0. Under ZB-H1 every stage holds p micro-batches.
    """
    m = problem.machine
    state = stage_memory.gpu_state_bytes(
        m, base.shape, base.weights, layers=1, ends=0, zero_stage=zero, replicas=replicas
    )
    activation, room = base.least_bytes, problem.memory_limit
    if base.order == "zb-h1":
        many = room * p / (state + activation * p)
    else:
        low, slope = state + activation * (v - 1) * p / v, activation / v
        many = room / slope * np.log((low + slope * p) / low)
    return np.asarray(np.where(filled, many, room * p / (state + activation)) >= m.model.layers)


def effective(row: Row, batches: Any) -> Any:
    """Count a row's micro-batches with what uneven rounds of interleaving lose."""
    return schedule.effective_micro_batches(batches, row.pipeline, row.virtual_stages)
