"""Lower bounds on the time of a sequence: even stages on a network that slows nothing above its transport."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.models.fabric.template_table import ArrayTable
from planner.models.joint.strategy_space import Flags, Floats, Ints, Strategy, StrategyRows
from planner.physics.training import memory, schedule, step_prediction
from planner.physics.training.data_parallel import ReplicaGroup
from planner.physics.training.schedule import smaller_chunks_first
from planner.physics.training.step_prediction import LayoutFibre, pipeline_bubble_seconds
from planner.physics.training.transformer import front_layers

EPS = 1e-9  # relative, by which sums in another order may differ


@dataclass(frozen=True, slots=True, kw_only=True)
class RowConditions:
    """Network conditions of time bounds: an all-reduce's racks, replicas sharing ZeRO's state, slowdowns, fibre."""

    racks: Any
    shards: Any
    send: Any
    allreduce: Any
    fibre: LayoutFibre | None = None


def min_slowest_seconds(layers: int, p: Any, layer: Any, head: float) -> Any:
    """Bound from below the seconds of the slowest of p stages of whole layers, the last with the head too."""
    # With k layers on each other stage the last holds the rest, layers - k·(p - 1): its time falls with k, theirs
    # grows, and the two cross at the mean.
    k = (layers * layer + head) / (p * layer)
    crossing = np.minimum(np.ceil(k - EPS) * layer, (layers - np.floor(k + EPS) * (p - 1)) * layer + head)
    return np.maximum(crossing, layer + head)


@dataclass(frozen=True, slots=True)
class Terms(ArrayTable):
    """Lower bounds on a step's time by term in seconds: of an effective micro-batch, of waits, of what comes once."""

    each: Floats
    wait: Floats
    once: Floats
    layer: Floats  # of a micro-batch, nothing recomputed

    def seconds(self, rows: StrategyRows) -> Floats:
        """Return the lower bound on the seconds of a step that its terms add up to."""
        effective = schedule.effective_micro_batches(rows.m, rows.p, rows.v)
        return np.asarray(effective * self.each + self.wait + self.once, dtype=np.float64)


def terms(s: Strategy, zero: int | None, rows: StrategyRows, c: RowConditions) -> Terms:
    """Bound a step's time from below by terms and rows: the most even stages, all in memory, nothing recomputed."""
    # `zero` None: under any ZeRO stage, whose own work is left out with waits and all that replicas exchange.
    x, within = (s.pipeline(zero or 0, inside=inside) for inside in (False, True))
    p, v, m, layers, software = rows.p, rows.v, rows.m, s.least_layers, s.machine.software
    group = ReplicaGroup(rows.replicas_per_rack, racks=c.racks, shards=c.shards, slowdown=c.allreduce)
    sharded = step_prediction.sharded_times(x, group)
    even, most = np.ceil(layers / p), np.ceil(s.problem.layers / p)
    recompute = np.zeros_like(even)
    send = np.where(rows.racks == rows.stage_racks, within.send(c.send, p), x.send(c.send, p))
    stage = step_prediction.stage_seconds(sharded, v, even, recompute, send) + np.where(p == 1, x.ends, 0.0)
    slowest = np.maximum(stage, min_slowest_seconds(layers, p, sharded.layer_seconds, x.head))
    counts, chunk = schedule.PipelineCounts(p, v, m), step_prediction.chunk_seconds(sharded, v, most, recompute)
    wait: Any = 0.0
    if zero is None:
        once = pipeline_bubble_seconds(sharded, counts, chunk * v, send) + software.step_seconds
    else:
        wait = schedule.min_excess_seconds(counts, even, recompute, sharded.layer_seconds, x.times.recompute_seconds)
        # Either the largest stage waits, or the slowest one is slower: not both of every split.
        wait = np.maximum(0.0, wait - schedule.effective_micro_batches(m, p, v) * (slowest - stage))
        parts = step_prediction.once_parts(sharded, c.fibre, counts, most, chunk, send, alone=True)
        once = sum(parts.values())
    each = np.asarray(slowest + software.host_seconds, dtype=np.float64)
    return Terms(each, *(np.asarray(y + 0 * each, dtype=np.float64) for y in (wait, once, sharded.layer_seconds)))


MOST_ENTRIES = 1 << 14  # of a table of rows by stages, worked out at a time: few enough for a processor's cache
MOST_SECONDS = 1e30  # beyond any stage: it cannot hold the layers
NEWTON_STEPS = 6  # towards the least time that holds all layers; each is a bound


def min_stage_seconds_in_memory(s: Strategy, zero: int, rows: StrategyRows, layer_seconds: Any) -> Floats:
    """Bound from below the seconds of rows' slowest stage by the layers that memory lets stages hold.

    The bound is infinite where the stages cannot hold all layers; elsewhere it is 0 where `layer_seconds` is 0.

    Layers divisible and chunks even: a stage with n chunks in flight and l layers, r of them recomputed, keeps at
    least state·l + n/v·(kept·l - saved·r) bytes, for l·a + r·b seconds. So the maximum layers of a stage within T
    seconds are concave in T: T/a until memory is full, less steep as each further layer takes others to recompute, and
    constant once all are. Newton's steps towards the T whose layers sum to the model's come from below.
    """
    found = np.full(len(rows), np.inf)
    recompute = s.between.times.recompute_seconds
    each = np.broadcast_to(np.asarray(layer_seconds, dtype=np.float64), rows.p.shape)
    timed = bool(np.any(each > 0))
    may = np.flatnonzero(_may_hold_layers(s, zero, rows))  # mostly few
    may = may[np.argsort(rows.p[may])]  # rows of about as many stages together, to waste few table entries
    size = max(1, MOST_ENTRIES // int(rows.p.max(initial=1)))
    for first in range(0, len(may), size):
        some = may[first : first + size]
        own = rows.part(some)
        x = _memory_of(s, zero, own)
        holding = _holds_whole_layers(s, own, x)
        if not holding.all():
            some, own, x = some[holding], own.part(holding), x.part(holding)
        if len(some):
            found[some] = _min_stage_seconds(s, own, x, each[some, None], recompute) if timed else 0.0
    return found


def _may_hold_layers(s: Strategy, zero: int, rows: StrategyRows) -> Flags:
    """Return which rows of a time bound may hold all layers if every stage had the memory of one without ends."""
    # The last stage has the fewest in flight; so none of the others holds more whole layers than it would without ends.
    m, p, v = s.machine, rows.p, rows.v
    state = memory.gpu_state_bytes(m, s.shape, s.weights, layers=1, ends=0, zero_stage=zero, replicas=rows.d)
    flying = np.maximum(schedule.chunks_in_flight(s.order, p - 1, p, v, rows.m), 1) / v
    each = np.zeros(len(rows))
    for recomputed, kept in ((0, s.bytes.kept), (1, s.bytes.checkpoint)):
        if recomputed and s.recomputes == "none":
            continue
        work = float(memory.working_bytes(m, s.shape, s.weights, s.bytes, zero_stage=zero, recomputed=recomputed))
        room = max(s.problem.memory_limit - work, 0.0)
        each = np.maximum(each, np.floor(room / (np.asarray(state) + flying * kept) * (1 + EPS)))
    dense = front_layers(m.model)
    front = dense + (v - 1) * min(dense, 1)
    may: Flags = p * each + front >= s.problem.layers
    return may


@dataclass(frozen=True, slots=True)
class _Memory(ArrayTable):
    """Memory for time bounds by row and stage: bytes left for layers, chunks in flight by v; a layer's state by row."""

    there: Flags
    room: Floats
    recomputing: Floats  # bytes left for layers where one of them runs again
    flying: Floats
    larger: Floats  # micro-batches in flight of a larger chunk
    state: Floats
    front: Ints  # layers of a stage that may need no room


def _memory_of(s: Strategy, zero: int, rows: StrategyRows) -> _Memory:
    """Compute bytes for time bounds that each row's stages have left for layers after ends and working memory."""
    m = s.machine
    p, v, micro = (x[:, None] for x in (rows.p, rows.v, rows.m))
    stage = np.arange(int(rows.p.max(initial=1)))[None, :]

    def state(layers: int, ends: int) -> Floats:
        numbers = {"layers": layers, "ends": ends, "zero_stage": zero}
        found = memory.gpu_state_bytes(m, s.shape, s.weights, **numbers, replicas=rows.d)
        return np.broadcast_to(np.asarray(found, dtype=np.float64), rows.p.shape)[:, None]

    head = memory.head_bytes(m, s.shape, s.weights) + memory.gradient_copy_bytes(m, s.shape, s.weights)

    def room(recomputed: int) -> Floats:
        work = float(memory.working_bytes(m, s.shape, s.weights, s.bytes, zero_stage=zero, recomputed=recomputed))
        taken = memory.end_copies(m.model, stage, p) * state(0, 1) + np.where(stage == p - 1, max(work, head), work)
        return np.asarray(np.maximum(s.problem.memory_limit - taken, 0.0), dtype=np.float64)

    flying = np.maximum(schedule.chunks_in_flight(s.order, stage, p, v, micro), 1) / v
    dense = front_layers(m.model)
    front = np.where(stage == 0, dense + (v - 1) * min(dense, 1), 0)  # with what fills up their chunks
    larger = schedule.larger_in_flight(p, micro, smaller_first=smaller_chunks_first(m.model, stage))
    return _Memory(stage < p, room(0), room(1), flying, *np.broadcast_arrays(larger, state(1, 0), front))


def _holds_whole_layers(s: Strategy, rows: StrategyRows, x: _Memory) -> Flags:
    """Return which rows of a time bound hold all layers as whole ones, by `schedule.layers_in_flight`."""
    # A stage holds the larger of two numbers of layers: all keep their activations, or all are recomputed.
    v = rows.v[:, None]

    def most(room: Floats, kept: float) -> Floats:
        each, whole = x.state + x.larger * kept, v * (x.state + x.flying * kept)
        alike = np.floor(room / whole * (1 + EPS))
        left = np.maximum(room * (1 + EPS) - alike * whole, 0.0)
        more = np.maximum(left / each, (left - v * x.flying * kept) / x.state)
        return np.asarray(alike * v + np.minimum(np.floor(more), v - 1), dtype=np.float64)

    found = most(x.room, s.bytes.kept)
    if s.recomputes != "none":
        found = np.maximum(found, most(x.recomputing, s.bytes.checkpoint))
    every = np.where(x.there, found + x.front, v)
    fits: Flags = (every >= v).all(axis=1) & (np.where(x.there, found + x.front, 0.0).sum(axis=1) >= s.problem.layers)
    return fits


def _min_stage_seconds(s: Strategy, rows: StrategyRows, x: _Memory, a: Floats, recompute: float) -> Floats:
    layers, there, state = s.least_layers * (1 - EPS), x.there, x.state
    least = s.bytes.kept if s.recomputes == "none" else min(s.bytes.kept, s.bytes.checkpoint)
    front = x.front
    # Smaller chunks first keep fewer layers in flight than the mean of all, by at most those that v - 1 layers save.
    room = x.room + (rows.v[:, None] - 1) * np.maximum(0.0, x.flying - x.larger) * s.bytes.kept
    most = np.where(there, front + room / (state + least * x.flying), 0.0)
    free, saved = most, s.bytes.kept - s.bytes.checkpoint
    slope = np.zeros_like(most)
    if s.recomputes != "none" and saved > 0 and recompute > 0:
        free = np.where(there, front + room / (state + s.bytes.kept * x.flying), 0.0)
        slope = 1 / (a + recompute * (state + x.flying * s.bytes.kept) / (x.flying * saved))
    bent, flat = a * free, a * free + (most - free) / np.where(slope > 0, slope, 1.0)
    seconds = layers / rows.p * a[:, 0]
    for _ in range(NEWTON_STEPS):
        t = seconds[:, None]
        early, late = t < bent, (t >= bent) & (t < flat)
        fitting = np.where(early, t / a, np.where(late, free + (t - bent) * slope, most)).sum(axis=1)
        rising = np.where(early, np.where(there, 1 / a, 0.0), np.where(late, slope, 0.0)).sum(axis=1)
        short = np.maximum(layers - fitting, 0.0)
        step = np.where(rising > 0, short / np.maximum(rising, 1e-300), np.where(short > 0, np.inf, 0.0))
        seconds = np.minimum(seconds + step, MOST_SECONDS)
        if not np.any(short[seconds < MOST_SECONDS] > 0):
            break
    if s.problem.recomputes_alike and np.any(slope > 0) and not front.any():  # layers at the front may be faster
        # With r of them recomputed a stage holds free + r·saved/(state/flying + kept) layers, up to the most that it
        # ever does. The sum is concave in r, so Newton's steps towards the r at which it holds the model come from
        # below.
        rise, repeated = np.where(there, x.flying * saved / (state + x.flying * s.bytes.kept), 0.0), np.zeros(len(rows))
        for _ in range(NEWTON_STEPS):
            holding = free + repeated[:, None] * rise
            short = np.maximum(layers - np.minimum(holding, most).sum(axis=1), 0.0)
            rising = np.where(holding < most, rise, 0.0).sum(axis=1)
            repeated += np.where(rising > 0, short / np.maximum(rising, 1e-300), 0.0)
        recomputed = np.ceil(repeated / rows.v - EPS) * rows.v  # of each chunk
        mean = layers / rows.p  # the largest stage has at least as many, and recomputes all of them at most
        seconds = np.maximum(seconds, mean * a[:, 0] + np.minimum(recomputed, mean) * recompute)
    return np.asarray(np.where(seconds >= MOST_SECONDS, np.inf, seconds * (1 - EPS)))
