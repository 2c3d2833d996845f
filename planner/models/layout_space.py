"""The declared space of layouts as numpy tables of rows with lower bounds.

A row is a way to cut a layer with a number of stages and of virtual stages, and whether the pipeline is filled (m >= p) or
not. Free within a row: the ZeRO stage, replicas by site, the number of micro-batches, and the layers of every stage with
how many of them are recomputed.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.models.layout_question import Base, Problem, bases
from planner.physics import schedule, step

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the space with a lower bound, in seconds per sequence."""

    base: Base
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
    bases: list[Base]
    base: Ints
    pipeline: Ints
    virtual_stages: Ints
    filled: NDArray[np.bool_]
    bound: Floats
    declared: int
    no_room: int
    memory: int

    def __len__(self) -> int:
        return len(self.bound)

    def row(self, i: int) -> Row:
        """Return row i."""
        base, p = self.bases[self.base[i]], int(self.pipeline[i])
        q, r, spread = packing(self.problem, base, np.array(p))
        return Row(
            base=base,
            pipeline=p,
            virtual_stages=int(self.virtual_stages[i]),
            filled=bool(self.filled[i]),
            stages_per_rack=int(q),
            replicas_per_rack=int(r),
            racks_per_replica=spread,
            bound=float(self.bound[i]),
        )


def packing(problem: Problem, base: Base, p: Any) -> tuple[Any, Any, int]:
    """Return stages in a rack, replicas of a stage in a rack, and racks of a replica's stage."""
    gpus, unit = problem.machine.rack.gpus, base.shape.gpus
    q = np.minimum(p, max(1, gpus // unit)) if base.packed else np.ones_like(p)
    wanted = problem.pin("stages_per_rack")
    q = q if wanted is None else np.full_like(p, wanted)
    r = np.maximum(1, gpus // (q * unit))
    fixed = problem.pin("replicas_per_rack")
    return q, (r if fixed is None else np.full_like(r, fixed)), -(-unit // gpus)


def replica_caps(problem: Problem, base: Base, p: Any) -> Any:
    """Most replicas by site: a rack carries q stages of r replicas, so r for every ceil(p/q) racks; shape (sites, ...)."""
    q, r, spread = packing(problem, base, np.asarray(p))
    groups = -(-np.asarray(p) // q) * spread
    fits = q * r * base.shape.gpus <= problem.machine.rack.gpus * spread
    return np.stack([np.where(fits, r * (racks // groups), 0) for racks in problem.racks])


def row_table(problem: Problem) -> RowTable:
    """Build every row with its bound and drop those that cannot hold the model."""
    layers = problem.machine.model.layers
    fixed = problem.pin("layers_per_stage")
    stages = problem.options("pipeline_parallel", range(1, layers + 1) if fixed is None else [len(fixed)])
    deep = [(p, v) for p in stages for v in problem.options("virtual_stages", range(1, layers // p + 1 if p > 1 else 2))]
    pairs = {
        True: np.array(deep, dtype=np.int64).reshape(-1, 2),
        False: np.array([(p, v) for p, v in deep if p > 1 and v == 1], dtype=np.int64).reshape(-1, 2),
    }
    paces, blocks, declared, no_room, by_memory = bases(problem), [], 0, 0, 0
    for (index, base), filled in itertools.product(enumerate(paces), (True, False)):
        p, v = pairs[filled][:, 0], pairs[filled][:, 1]
        own = (p > 1) | (not base.packed)
        if base.order == "zb-h1":
            own &= v == 1
        p, v = p[own], v[own]
        bound, room, fits = _row_bounds(problem, base, p, v, filled=filled)
        declared += len(p)
        no_room += int(np.sum(~room))
        by_memory += int(np.sum(room & ~fits))
        i = np.flatnonzero(room & fits)
        blocks.append((np.full(len(i), index), p[i], v[i], np.full(len(i), filled), bound[i]))
    columns: list[Any] = [np.concatenate(c) for c in zip(*blocks, strict=True)] if blocks else [np.empty(0, dtype=np.int64)] * 5
    order = np.argsort(columns[4], kind="stable")
    base_, p_, v_, filled_, bound_ = (c[order] for c in columns)
    return RowTable(
        problem=problem,
        bases=paces,
        base=base_,
        pipeline=p_,
        virtual_stages=v_,
        filled=filled_,
        bound=bound_,
        declared=declared,
        no_room=no_room,
        memory=by_memory,
    )


def _row_bounds(problem: Problem, base: Base, p: Ints, v: Ints, *, filled: bool) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Bound rows from below in seconds per sequence; say where replicas and batch leave room, and where memory may fit.

    The most even stages, the most replicas and the largest batch, tails left out: no layout of the row is faster.
    """
    b, most = base.shape.micro_batch, problem.most_sequences
    caps = replica_caps(problem, base, p).sum(axis=0)
    if filled:
        replicas, room = np.minimum(caps, most // (b * p)), np.ones(len(p), dtype=bool)
        batches = np.full(len(p), np.inf)
    else:
        batches = np.minimum(p - 1, most // b).astype(float)
        replicas, room = np.minimum(caps, most // b), p > 1
    room &= (replicas >= 1) & (replicas * base.shape.gpus >= base.shape.expert_parallel)
    at_most = np.maximum(replicas, 1)
    slowest, fill, each = least_terms(problem, base, p, v, batches)
    bound = (slowest + each) / (at_most * b) + np.maximum(fill / most, fill / (np.maximum(batches, 1) * at_most * b))
    return bound, room, _may_fit(problem, base, p, v, filled=filled, replicas=at_most)


def least_terms(problem: Problem, base: Base, p: Any, v: Any, batches: Any) -> tuple[Any, Any, Any]:
    """Return the least pace of a micro-batch, the least fill, and what each micro-batch pays besides: the most even stages, no ZeRO traffic."""
    m, layers = problem.machine, problem.machine.model.layers
    even = np.ceil(layers / p) * base.least_layer
    pace = np.maximum(even, (layers * base.least_layer + base.head) / p)
    q, _, _ = packing(problem, base, np.asarray(p))
    hop = np.where(p == 1, 0.0, np.where(q >= p, base.hop_inside, base.hop_between))
    free = step.Paces(times=base.times, sharding=0.0, free_forward=base.times.forward, free_backward=base.times.backward)
    fill = step.bubble_of(free, base.order, p, v, even, hop=hop, micro_batches=batches)
    return pace, fill, m.software.microbatch_seconds + step.exposed_each(m, free, v, layers / p, hop)


def _may_fit(problem: Problem, base: Base, p: Ints, v: Ints, *, filled: bool, replicas: Ints) -> NDArray[np.bool_]:
    """Say which rows may fit memory: the sum of what the stages can hold, bounded by an integral, must reach all layers.

    With k stages behind it a stage holds at least (s + a·((v-1)·p + k + 1)/v)·l bytes for l layers; the sum over k of
    1/(s + a·…) is at most the integral from 0. Under ZB-H1 every stage holds p micro-batches.
    """
    m = problem.machine
    zero = max(problem.options("zero_stage", range(4)), default=3)
    state = step.held_state_bytes(m, base.shape, base.weights, layers=1, ends=0, zero_stage=zero, replicas=replicas)
    activation, room = base.least_bytes, problem.memory_limit
    if not filled:
        return np.asarray(room * p / (state + activation) >= m.model.layers)
    if base.order == "zb-h1":
        return np.asarray(room * p / (state + activation * p) >= m.model.layers)
    low, slope = state + activation * (v - 1) * p / v, activation / v
    return np.asarray(room / slope * np.log((low + slope * p) / low) >= m.model.layers)


def effective(row: Row, batches: Any) -> Any:
    """Count a row's micro-batches with what uneven rounds of interleaving lose."""
    return schedule.effective_micro_batches(batches, row.pipeline, row.virtual_stages)
