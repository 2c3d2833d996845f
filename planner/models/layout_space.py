"""The declared space of layouts as numpy tables: rows, lower bounds on them, and the exact best of one row.

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
from planner.physics.step import Conditions, Cut, Paces
from planner.physics.steptime import LayerTimes, Machine, Shape
from planner.physics.transformer import layer_parameters
from planner.pins import pinned

MICRO_BATCHES = (1, 2, 4, 8, 16)
CELLS = 1_000_000  # candidates times stages that are looked at together
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
    shards: Ints
    racks: Ints
    bound: Floats

    def part(self, which: Any) -> "Candidates":
        """Return some of the candidates."""
        return Candidates(
            replicas=self.replicas[which],
            batches=self.batches[which],
            by_site=self.by_site[:, which],
            shards=self.shards[which],
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


def candidates(problem: Problem, row: Row, cutoff: float) -> Candidates | None:
    """List the replica and micro-batch counts of a row whose time without tails is under the cutoff, the fastest first."""
    b, p = row.base.shape.micro_batch, row.pipeline
    caps = replica_caps(problem, row.base.replicas_per_rack, p)
    used = caps > 0
    most = problem.most_sequences // b
    top = min(int(caps.sum()), most // p if row.filled else most)
    wanted = problem.pins.get("layout.data_parallel")
    low = max(1, int(used.sum()))
    d = np.arange(low, top + 1) if wanted is None else np.array([wanted] if low <= wanted <= top else [], dtype=np.int64)
    shares_pin = problem.pins.get("layout.data_parallel_by_site")
    if shares_pin is not None:
        asked = np.array([shares_pin.get(s, 0) for s in problem.sites])
        d = d[d == asked.sum()] if np.all(asked <= caps) else d[:0]
    if row.filled:
        m = most // d
        m = m if row.virtual_stages == 1 else m // p * p
    else:
        counts = np.minimum(p - 1, most // d)
        d, m = np.repeat(d, counts), np.concatenate([np.arange(1, c + 1) for c in counts]) if len(counts) else d
    m_pin = problem.pins.get("layout.microbatches_per_step")
    if m_pin is not None:
        allowed = (m_pin <= m) if row.filled else (m == m_pin)
        allowed &= (m_pin >= p) if row.filled else True
        allowed &= row.virtual_stages == 1 or m_pin % p == 0
        d, m = d[allowed], np.full(int(allowed.sum()), m_pin)
    bound = np.asarray(bound_without_tails(problem, row, d, m), dtype=np.float64)
    order = np.argsort(bound, kind="stable")
    order = order[(m[order] >= 1) & (bound[order] < cutoff)]
    d, m, bound = d[order], m[order], bound[order]
    if not len(d):
        return None
    shares = split_replicas(caps, d) if shares_pin is None else np.repeat(asked[:, None], len(d), axis=1)
    positive = np.where(shares > 0, shares, np.iinfo(np.int64).max)
    return Candidates(
        replicas=d,
        batches=m,
        by_site=shares,
        shards=positive.min(axis=0),
        racks=np.ceil(shares.max(axis=0) / row.base.replicas_per_rack).astype(np.int64),
        bound=bound,
    )


def bound_without_tails(problem: Problem, row: Row, replicas: Ints, batches: Ints) -> Any:
    """Bound a row's layouts with these counts from below: the most even stages, no tails; seconds per sequence."""
    layers, base = problem.machine.model.layers, row.base
    even = math.ceil(layers / row.pipeline)
    slowest = max(even * base.layer, (layers * base.layer + base.head) / row.pipeline)
    fill = steptime.fill_seconds(row.pipeline, steptime.layers_per_chunk(even, row.virtual_stages) * base.layer, base.hop)
    return (slowest + fill / np.maximum(batches, 1)) / (replicas * base.shape.micro_batch)


def layer_caps(problem: Problem, row: Row, zero_stage: int, shards: Ints, batches: Ints) -> Ints:
    """Most layers that memory leaves each stage; shape (n, stages); below zero where even an empty stage does not fit."""
    caps = stage_caps(
        problem,
        row.base.shape,
        zero_stage,
        pipeline=row.pipeline,
        virtual_stages=row.virtual_stages,
        shards=shards[:, None],
        batches=batches[:, None],
        stage=np.arange(row.pipeline)[None, :],
    )
    return np.broadcast_to(caps, (len(shards), row.pipeline))


def stage_caps(problem: Problem, shape: Shape, zero_stage: int, *, pipeline: Any, virtual_stages: Any, shards: Any, batches: Any, stage: Any) -> Ints:
    """Most layers that memory leaves a stage; broadcasts.

    Memory is linear in whole chunks of v layers and then in single layers, so three evaluations give the cap.
    """

    def held(layers: Any) -> dict[str, Any]:
        return step.stage_memory(
            problem.machine,
            shape,
            pipeline=pipeline,
            virtual_stages=virtual_stages,
            micro_batches=batches,
            zero_stage=zero_stage,
            shards=shards,
            stage=stage,
            layers=np.asarray(layers),
        )

    empty, one, chunk = held(0), held(1), held(virtual_stages)
    room = problem.memory_limit - sum(empty.values())
    per_chunk = sum(chunk.values()) - sum(empty.values())
    per_layer = one["state"] - empty["state"]
    whole = np.floor(room / per_chunk)
    left = room - whole * per_chunk - (one["activations"] - empty["activations"])
    caps = whole * virtual_stages + np.where(left >= 0, np.minimum(np.floor(left / per_layer), virtual_stages - 1), 0)
    return np.asarray(np.where(room < 0, -1, caps)).astype(np.int64)


def possible_rows(problem: Problem, table: RowTable) -> Ints:
    """Return the rows that hold a layout at all, in their order: tried at the most replicas and the fewest micro-batches in flight."""
    fits = np.zeros(len(table), dtype=bool)
    for index, base in enumerate(table.bases):
        rows = np.flatnonzero(table.base == index)
        if len(rows):
            fits[rows] = _fits_somehow(problem, base, table.pipeline[rows], table.virtual_stages[rows], table.filled[rows])
    return np.flatnonzero(fits)


def _fits_somehow(problem: Problem, base: Base, p: Ints, v: Ints, filled: NDArray[np.bool_]) -> NDArray[np.bool_]:
    most, layers = problem.most_sequences // base.shape.micro_batch, problem.machine.model.layers
    caps = replica_caps(problem, base.replicas_per_rack, p)
    batches = np.where(filled, p, 1)
    replicas = np.minimum(caps.sum(axis=0), most // batches)
    used = np.maximum((caps > 0).sum(axis=0), 1)
    shards = np.maximum(np.minimum(np.where(caps > 0, caps, np.iinfo(np.int64).max).min(axis=0), replicas // used), 1)
    stage = np.arange(p.max())[None, :]
    inside = stage < p[:, None]
    fits = np.zeros(len(p), dtype=bool)
    for zero in problem.options("zero_stage", range(4)):
        held = stage_caps(
            problem,
            base.shape,
            zero,
            pipeline=p[:, None],
            virtual_stages=v[:, None],
            shards=shards[:, None],
            batches=batches[:, None],
            stage=np.minimum(stage, p[:, None] - 1),
        )
        enough = np.where(inside, held, 0).sum(axis=1) >= layers
        fits |= enough & np.all(~inside | (held >= v[:, None]), axis=1)
    return fits


def best_of_row(problem: Problem, row: Row, cutoff: float, *, zero_stages: list[int] | None = None) -> Best | None:
    """Find the fastest layout of a row that is faster than the cutoff, exactly; None where there is none."""
    found = candidates(problem, row, cutoff)
    best: Best | None = None
    if found is None:
        return None
    for zero in problem.options("zero_stage", zero_stages or list(range(4))):
        start, size = 0, 64
        some = _within_memory(problem, row, zero, found)
        while start < len(some.replicas):
            limit = best.seconds if best else cutoff
            if some.bound[start] >= limit:
                break
            better = _best_at_zero(problem, row, zero, some.part(slice(start, start + size)), limit)
            best = better or best
            start, size = start + size, min(size * 4, max(64, CELLS // row.pipeline))
    return best


def _within_memory(problem: Problem, row: Row, zero: int, c: Candidates) -> Candidates:
    """Leave out the candidates with more micro-batches in flight than memory holds at the most shards: caps fall with every one."""
    counts = np.unique(c.batches)
    low, high = 0, len(counts)  # counts[:low] are known to fit, counts[high:] not to
    while low < high:
        middle = (low + high) // 2
        caps = layer_caps(problem, row, zero, c.shards.max(keepdims=True), counts[middle : middle + 1])
        fits = caps.min() >= row.virtual_stages and caps.sum() >= problem.machine.model.layers
        low, high = (middle + 1, high) if fits else (low, middle)
    return c.part(c.batches <= counts[low - 1]) if low else c.part(slice(0, 0))


def _best_at_zero(problem: Problem, row: Row, zero: int, c: Candidates, cutoff: float) -> Best | None:
    """Try every size of the largest stage, least first, until no larger one can win."""
    base, v = row.base, row.virtual_stages
    layers, b, p = problem.machine.model.layers, base.shape.micro_batch, row.pipeline
    caps = layer_caps(problem, row, zero, c.shards, c.batches)
    fixed = problem.pins.get("layout.layers_per_stage")
    fits = np.all(caps >= (v if fixed is None else np.array(fixed)), axis=1) & (caps.sum(axis=1) >= layers)
    if not fits.any():
        return None
    pace = pace_of(problem, row, zero, c.racks)
    layer = pace.layer + np.zeros(len(c.replicas))
    best: tuple[float, int, int, int] | None = None
    for most in range(math.ceil(layers / p), layers + 1) if fixed is None else [max(fixed)]:
        if np.all(most * layer / (c.replicas * b) >= cutoff):
            break
        held = np.minimum(caps, most)
        last = np.maximum(v, layers - held[:, :-1].sum(axis=1)) if fixed is None else np.full(len(layer), fixed[-1])
        possible = fits & (last <= held[:, -1])
        if not possible.any():
            continue
        seconds = np.where(possible, _seconds_per_sequence(problem, row, zero, c, pace, most, last), np.inf)
        i = int(np.argmin(seconds))
        if seconds[i] < cutoff:
            cutoff, best = float(seconds[i]), (float(seconds[i]), i, most, int(last[i]))
        if p == 1:
            break
    if best is None:
        return None
    seconds_, i, most, last_layers = best
    stages = tuple(fixed) if fixed is not None else spread_layers(caps[i], most, last_layers, layers, v)
    return Best(
        seconds=seconds_,
        cut=Cut(
            tensor_parallel=base.shape.tensor_parallel,
            pipeline_parallel=p,
            data_parallel_by_site=tuple(int(x) for x in c.by_site[:, i]),
            virtual_stages=v,
            micro_batch=b,
            micro_batches=int(c.batches[i]),
            recompute=base.shape.recompute,
            sequence_parallel=base.shape.sequence_parallel,
            zero_stage=zero,
            layers_per_stage=stages,
            replicas_per_rack=base.replicas_per_rack,
        ),
    )


def _seconds_per_sequence(problem: Problem, row: Row, zero: int, c: Candidates, pace: Paces, most: int, last: Ints) -> Floats:
    """Time each candidate with its largest and its last stage given; the sum that physics.step makes of a layout in full."""
    once, each = step_terms(problem, row, zero, pace=pace, racks=c.racks, shards=c.shards, most=most)
    slowest = np.maximum(most * pace.layer, last * pace.layer + row.base.head)
    total: Floats = (c.batches * (slowest + each) + once) / (c.replicas * c.batches * row.base.shape.micro_batch)
    return total


def pace_of(problem: Problem, row: Row, zero: int, racks: Any) -> Paces:
    """Return the pace of a layer in a row at one ZeRO stage; broadcasts over the racks of a group."""
    return step.paces(
        problem.machine,
        row.base.times,
        tensor_parallel=row.base.shape.tensor_parallel,
        zero_stage=zero,
        replicas_per_rack=row.base.replicas_per_rack,
        racks=racks,
        slowdown=problem.conditions.allreduce_slowdown,
    )


def step_terms(problem: Problem, row: Row, zero: int, *, pace: Paces, racks: Any, shards: Any, most: Any) -> tuple[Any, Any]:
    """Return the seconds that a step takes once (fill and tails) and besides the slowest stage for each micro-batch (exposed hops)."""
    base, p, v = row.base, row.pipeline, row.virtual_stages
    chunk = steptime.layers_per_chunk(most, v)
    hop = base.hop if p > 1 else 0.0
    fill = steptime.fill_seconds(p, chunk * pace.layer, hop)
    each = steptime.exposed_hops_seconds(1, v, hop, chunk * pace.free_forward, chunk * pace.free_backward)
    caps = replica_caps(problem, base.replicas_per_rack, p)
    tails = step.tail_parts(
        problem.machine,
        problem.conditions,
        tensor_parallel=base.shape.tensor_parallel,
        pipeline=p,
        zero_stage=zero,
        replicas_per_rack=base.replicas_per_rack,
        racks=racks,
        shards=shards,
        most_layers=most,
        layer_backward=base.times.backward,
        sites=int((caps > 0).sum()),
    )
    return fill + sum(tails.values()), each


def spread_layers(caps: Ints, most: int, last: int, layers: int, least: int) -> tuple[int, ...]:
    """Spread the layers, no stage over its cap or `most`, the last with `last`; the excess leaves the first stages, which hold most in flight."""
    held = np.minimum(caps, most)
    held[-1] = last
    over = int(held.sum()) - layers
    while over > 0:
        for i in range(len(held) - 1):
            if over and held[i] > least and held[i] == held[:-1].max():
                held[i] -= 1
                over -= 1
    return tuple(int(x) for x in held)
