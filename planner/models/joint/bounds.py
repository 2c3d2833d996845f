"""Lower bounds on the time of a sequence: even stages on a network that slows nothing above its transport."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.models.joint.space import Flags, Floats, Ints, Strategy
from planner.physics.training import schedule, stage_memory, step
from planner.physics.training.blocks import block_step, interleaving
from planner.physics.training.blocks.block_step import Fibre

EPS = 1e-9  # relative, by which sums in another order may differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Pipelines of one strategy and ZeRO stage with counts of replicas and micro-batches; one entry each."""

    p: Ints
    v: Ints
    d: Ints
    m: Ints
    replicas_per_rack: Ints
    stage_racks: Ints
    block_replicas: Ints
    inside: Flags

    def __len__(self) -> int:
        return len(self.p)

    def part(self, which: Any) -> "Rows":
        """Return some of the rows."""
        return replace(self, **{name: getattr(self, name)[which] for name in self.__slots__})

    def blocks(self) -> Ints:
        """Count the blocks that hold the replicas."""
        return -(-self.d // self.block_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What rows meet of the network.

    Racks of an all-reduce, replicas that share ZeRO's state, slowdowns, and what joins the sites.
    """

    racks: Any
    shards: Any
    send: Any
    allreduce: Any
    fibre: Fibre | None = None


def min_slowest_seconds(layers: int, p: Any, layer: Any, head: float) -> Any:
    """Return the least time of the slowest of p stages of whole layers, the last of which has the head besides.

    With k layers on each other stage the last holds the rest, layers - k·(p - 1): its time falls with k, theirs
    grows, and the two cross at the mean.
    """
    k = (layers * layer + head) / (p * layer)
    crossing = np.minimum(np.ceil(k - EPS) * layer, (layers - np.floor(k + EPS) * (p - 1)) * layer + head)
    return np.maximum(crossing, layer + head)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a step takes at least.

    Seconds of an effective micro-batch, what unequal chunks wait for, and what comes once.
    """

    each: Floats
    wait: Floats
    once: Floats


def even_seconds(s: Strategy, zero: int, rows: Rows, c: Conditions) -> Floats:
    """Bound the step of rows from below.

    The most even stages, all of them in memory, nothing recomputed unless all is.
    """
    t = terms(s, zero, rows, c)
    return np.asarray(
        schedule.effective_micro_batches(rows.m, rows.p, rows.v) * t.each + t.wait + t.once, dtype=np.float64
    )


def terms(s: Strategy, zero: int, rows: Rows, c: Conditions) -> Terms:
    """Return the least terms of the step of rows."""
    x, layers, software = s.pipeline(zero, inside=False), s.problem.layers, s.machine.software
    p, v, m = rows.p, rows.v, rows.m
    sharded = block_step.sharded_times(x, replicas_per_rack=rows.replicas_per_rack, racks=c.racks, slowdown=c.allreduce)
    even = np.ceil(layers / p)
    recompute = even if s.recomputes == "all" else np.zeros_like(even)
    send = np.where(rows.inside, s.pipeline(zero, inside=True).send(c.send, p), x.send(c.send, p))
    stage = block_step.stage_seconds(x, sharded, v, even, recompute, send) + np.where(p == 1, x.head, 0.0)
    layer = sharded.layer_seconds + (x.times.recompute_seconds if s.recomputes == "all" else 0.0)
    slowest = np.maximum(stage, min_slowest_seconds(layers, p, layer, x.head))
    wait = interleaving.min_excess_seconds(p, v, m, even, recompute, sharded.layer_seconds, x.times.recompute_seconds)
    once = block_step.once_parts(
        x,
        sharded,
        c.fibre,
        pipeline=p,
        virtual_stages=v,
        micro_batches=m,
        chunk=block_step.chunk_seconds(x, sharded, v, even, recompute),
        max_layers=even,
        replicas_per_rack=rows.replicas_per_rack,
        racks=c.racks,
        shards=c.shards,
        send=send,
        slowdown=c.allreduce,
    )
    each = np.asarray(slowest + software.microbatch_seconds, dtype=np.float64)
    return Terms(each, np.asarray(wait, dtype=np.float64), np.asarray(sum(once.values()) + 0 * each, dtype=np.float64))


def min_terms(s: Strategy, rows: Rows, total: int) -> tuple[Floats, Floats]:
    """Return the least seconds of a micro-batch and those that come once, under any ZeRO stage.

    Gradients and optimiser take none.
    """
    x, layers, software, p, v = s.between, s.problem.layers, s.machine.software, rows.p, rows.v
    phi = s.problem.transport_slowdown
    sharded = block_step.sharded_times(x, replicas_per_rack=1, racks=1, slowdown=1.0)
    even = np.ceil(layers / p)
    recompute = even if s.recomputes == "all" else np.zeros_like(even)
    send = np.where(rows.inside, s.within.send(phi, p), x.send(phi, p))
    stage = block_step.stage_seconds(x, sharded, v, even, recompute, send) + np.where(p == 1, x.head, 0.0)
    layer = sharded.layer_seconds + (x.times.recompute_seconds if s.recomputes == "all" else 0.0)
    slowest = np.maximum(stage, min_slowest_seconds(layers, p, layer, x.head))
    chunk = block_step.chunk_seconds(x, sharded, v, even, recompute)
    fills = [
        step.pipeline_bubble_seconds(sharded, x.order, p, v, chunk * v, send_seconds=send, micro_batches=m)
        for m in (rows.m, np.maximum(rows.p, total))
    ]
    once = np.minimum(*fills) + software.step_seconds
    each: Floats = slowest + software.microbatch_seconds
    return each, np.asarray(once + 0 * each, dtype=np.float64)


MOST_ENTRIES = 1 << 21  # of a table of rows by stages, worked out at a time


def may_fit(s: Strategy, zero: int, rows: Rows, shards: Any) -> Flags:
    """Return which rows may hold the model in memory.

    What the stages can hold, layers divisible and chunks even, must reach all layers. A stage with n chunks in flight
    keeps at least (state + a·n/v)·l bytes for l layers.
    """
    problem, widest = s.problem, int(rows.p.max(initial=1))
    state = np.broadcast_to(
        stage_memory.gpu_state_bytes(s.machine, s.shape, s.weights, layers=1, ends=0, zero_stage=zero, replicas=shards),
        rows.p.shape,
    )
    least = s.bytes.kept if s.recomputes == "none" else min(s.bytes.kept, s.bytes.checkpoint)
    found = np.zeros(len(rows), dtype=bool)
    size = max(1, MOST_ENTRIES // widest)
    for at in range(0, len(rows), size):
        some = slice(at, at + size)
        p, v, m = (x[some, None] for x in (rows.p, rows.v, rows.m))
        stage = np.arange(int(rows.p[some].max()))[None, :]
        flying = schedule.chunks_in_flight(s.order, stage, p, v, m)
        max_layers = problem.memory_limit / (state[some, None] + least * np.maximum(flying, 0) / v)
        found[some] = np.where(stage < p, max_layers, 0.0).sum(axis=1) >= problem.layers * (1 - EPS)
    return found
