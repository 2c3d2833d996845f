"""The declared space of layouts as numpy tables of rows with lower bounds.

A row is a choice of tensor parallelism, micro-batch, recompute, sequence parallelism, stages, virtual stages and whether
a stage's pipeline is filled (m >= p) or not. Free within a row: the ZeRO stage, replicas by site, the number of
micro-batches and the layers of every stage.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.handoff import LayoutRequest
from planner.instance import Instance
from planner.physics import memory, step, steptime
from planner.physics.step import Conditions
from planner.physics.steptime import LayerTimes, Machine, Shape
from planner.physics.transformer import layer_parameters
from planner.pins import pinned

MICRO_BATCHES = (1, 2, 4, 8, 16)
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The layout question: machine, racks by site, network, limits and pins."""

    machine: Machine
    conditions: Conditions
    sites: tuple[str, ...]
    racks: tuple[int, ...]
    most_sequences: int
    memory_limit: float
    pins: dict[str, Any] = field(default_factory=dict)

    def options(self, pin: str, free: Iterable[Any]) -> list[Any]:
        """Return the pinned value where it is among the free ones, else all of them."""
        wanted = self.pins.get(f"layout.{pin}")
        return [x for x in free if wanted is None or x == wanted]


def problem_of(instance: Instance, request: LayoutRequest) -> Problem:
    """Read the layout question from an instance and what the site split passed on."""
    machine = step.machine_of(instance)
    tokens = instance.limits.max_batch_tokens
    if tokens is None:
        raise ValueError("limits.max_batch_tokens is missing")
    sites = tuple(sorted(request.racks_by_site))
    return Problem(
        machine=machine,
        conditions=Conditions(
            hop_slowdown=request.hop_slowdown,
            allreduce_slowdown=request.allreduce_slowdown,
            wan_gbps=request.wan_gbps,
            wan_rtt_ms=request.wan_rtt_ms or 0.0,
            wan_round_trips=instance.wan.round_trips if instance.wan else 1.0,
        ),
        sites=sites,
        racks=tuple(request.racks_by_site[s] for s in sites),
        most_sequences=math.floor(tokens / machine.sequence),
        memory_limit=step.memory_limit_bytes(instance),
        pins={p: pinned(instance, p) for p in instance.pins if p.startswith("layout.")},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The choices that set a layer's pace, with the pace."""

    shape: Shape
    replicas_per_rack: int
    times: LayerTimes
    head: float
    hop: float

    @property
    def layer(self) -> float:
        """Forward and backward of one layer without what ZeRO exposes."""
        return self.times.forward + self.times.backward


def bases(problem: Problem) -> list[Base]:
    """List every pace of the declared space, in a fixed order."""
    m = problem.machine
    shared = math.gcd(m.model.heads, m.model.kv)
    degrees = [t for t in range(1, m.rack.gpus + 1) if shared % t == 0]
    found = []
    for t, b in itertools.product(problem.options("tensor_parallel", degrees), problem.options("microbatch_sequences", MICRO_BATCHES)):
        packings = [problem.pins.get("layout.replicas_per_rack", m.rack.gpus // t)]
        for r, recompute, parallel in itertools.product(packings, memory.RECOMPUTE_MODES, (False, True)):
            fits = r * t <= m.rack.gpus and b <= problem.most_sequences and not (parallel and t == 1)
            if fits and problem.options("recompute", [recompute]) and problem.options("sequence_parallel", [parallel]):
                shape = Shape(tensor_parallel=t, micro_batch=b, recompute=recompute, sequence_parallel=parallel)
                found.append(
                    Base(
                        shape=shape,
                        replicas_per_rack=r,
                        times=steptime.layer_times(m, shape),
                        head=steptime.head_seconds(m, shape),
                        hop=steptime.hop_seconds(m, shape, problem.conditions.hop_slowdown),
                    )
                )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the space with a lower bound, in seconds per sequence."""

    base: Base
    pipeline: int
    virtual_stages: int
    filled: bool
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTable:
    """The rows that may hold the model, by columns, in order of their bounds; and how many were excluded by which argument."""

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
        return Row(
            base=self.bases[self.base[i]],
            pipeline=int(self.pipeline[i]),
            virtual_stages=int(self.virtual_stages[i]),
            filled=bool(self.filled[i]),
            bound=float(self.bound[i]),
        )


def replica_caps(problem: Problem, replicas_per_rack: int, pipeline: Any) -> Any:
    """Most replicas by site: whole racks carry one stage each, so r times the whole pipelines of racks; shape (sites, ...)."""
    return np.stack([replicas_per_rack * (racks // np.asarray(pipeline)) for racks in problem.racks])


def row_table(problem: Problem) -> RowTable:
    """Build every row with its bound and drop those that cannot hold the model."""
    layers = problem.machine.model.layers
    fixed = problem.pins.get("layout.layers_per_stage")
    stages = problem.options("pipeline_parallel", range(1, layers + 1) if fixed is None else [len(fixed)])
    deep = [(p, v) for p in stages for v in problem.options("virtual_stages", range(1, layers // p + 1 if p > 1 else 2))]
    pairs = {
        True: np.array(deep, dtype=np.int64).reshape(-1, 2),
        False: np.array([(p, v) for p, v in deep if p > 1 and v == 1], dtype=np.int64).reshape(-1, 2),
    }
    paces, blocks, no_room, by_memory = bases(problem), [], 0, 0
    for (index, base), filled in itertools.product(enumerate(paces), (True, False)):
        p, v = pairs[filled][:, 0], pairs[filled][:, 1]
        bound, room, fits = _row_bounds(problem, base, p, v, filled=filled)
        no_room += int(np.sum(~room))
        by_memory += int(np.sum(room & ~fits))
        i = np.flatnonzero(room & fits)
        blocks.append((np.full(len(i), index), p[i], v[i], np.full(len(i), filled), bound[i]))
    columns: list[Any] = [np.concatenate(c) for c in zip(*blocks, strict=True)] if blocks else [np.empty(0, dtype=np.int64)] * 5
    order = np.argsort(columns[4], kind="stable")
    base_, p_, v_, filled_, bound_ = (c[order] for c in columns)
    return RowTable(
        bases=paces,
        base=base_,
        pipeline=p_,
        virtual_stages=v_,
        filled=filled_,
        bound=bound_,
        declared=len(paces) * sum(len(x) for x in pairs.values()),
        no_room=no_room,
        memory=by_memory,
    )


def _row_bounds(problem: Problem, base: Base, p: Ints, v: Ints, *, filled: bool) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Bound rows from below in seconds per sequence; say where replicas and batch leave room, and where memory may fit.

    The most even stages, the most replicas and the largest batch, tails left out: no layout of the row is faster.
    """
    layers, b, most = problem.machine.model.layers, base.shape.micro_batch, problem.most_sequences
    caps = replica_caps(problem, base.replicas_per_rack, p).sum(axis=0)
    if filled:
        replicas, room = np.minimum(caps, most // (b * p)), np.ones(len(p), dtype=bool)
        batches = np.full(len(p), np.inf)
    else:
        batches = np.minimum(p - 1, most // b).astype(float)
        replicas, room = np.minimum(caps, most // b), p > 1
    room &= replicas >= 1
    even = np.ceil(layers / p)
    slowest = np.maximum(even * base.layer, (layers * base.layer + base.head) / p)
    fill = steptime.fill_seconds(p, steptime.layers_per_chunk(even, v) * base.layer, base.hop)
    at_most = np.maximum(replicas, 1)
    bound = slowest / (at_most * b) + np.maximum(fill / most, fill / (np.maximum(batches, 1) * at_most * b))
    return bound, room, _may_fit(problem, base, p, v, filled=filled, replicas=at_most)


def _may_fit(problem: Problem, base: Base, p: Ints, v: Ints, *, filled: bool, replicas: Ints) -> NDArray[np.bool_]:
    """Say which rows may fit memory: the sum of what the stages can hold, bounded by an integral, must reach all layers.

    With k stages behind it a stage holds at least (s + a·c(k))·l bytes for l layers, c(k) growing by one chunk a stage
    (two interleaved); the sum over k of 1/(s + a·c(k)) is at most the integral from 0.
    """
    m, s = problem.machine, base.shape
    zero = max(problem.options("zero_stage", range(4)), default=3)
    state = memory.state_bytes(layer_parameters(m.model) / s.tensor_parallel, m.precision, zero_stage=zero, shards=replicas)
    # The middle one of three stages: neither embedding nor head, one micro-batch in flight.
    one = step.stage_memory(m, s, pipeline=3, virtual_stages=1, micro_batches=1, zero_stage=0, shards=1, stage=np.array(1), layers=np.array(1))
    activation = float(one["activations"])
    room = problem.memory_limit
    if not filled:
        return np.asarray(room * p / (state + activation) >= m.model.layers)
    start, slope = np.where(v == 1, 0.0, ((v - 1) * p - 1) / v), np.where(v == 1, 1.0, 2 / v)
    low = state + activation * start
    held = room / (activation * slope) * np.log((low + activation * slope * p) / low)
    return np.asarray(held >= m.model.layers)
