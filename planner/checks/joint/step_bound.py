"""Lower bounds on the time of a sequence, from physics: stages as even as can be, on a network without contention.

Nothing is slower than the transport itself, fibre is free, ZeRO shares its state among all replicas, and no layer is
recomputed unless all are. First by pipeline with its most replicas, then by replicas and micro-batches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.checks.joint.columns import Cut, Floats, Ints, Pipelines
from planner.checks.joint.racks import MaxRacks, max_sites
from planner.instance.instance import Instance
from planner.physics.training import schedule, stage_memory, step
from planner.physics.training.blocks import block_step, interleaving
from planner.physics.training.process_groups import front_layers, weights_of
from planner.physics.training.step import ShardedTimes

ROUNDING = 1e-9  # of a mean number of layers that is whole but for rounding
MOST_CELLS = 1 << 21  # worked out at a time


@dataclass(frozen=True, slots=True)
class Rows:
    """Pipelines of a cut with the most replicas and the fewest micro-batches that each may have, and least seconds.

    Of a micro-batch, of what comes once, and of a sequence in all, under any ZeRO stage.
    """

    pipelines: Pipelines
    replicas: Ints
    micro_batches: Ints
    each: Floats
    once: Floats
    seconds: Floats

    def part(self, which: Any) -> "Rows":
        """Return some of the rows."""
        rest = (getattr(self, name)[which] for name in self.__slots__[1:])
        return Rows(self.pipelines.part(which), *rest)

    def __len__(self) -> int:
        return len(self.replicas)


def total_micro_batches(cut: Cut) -> int:
    """Return the micro-batches that a step holds over all replicas."""
    return cut.space.sequences // cut.shape.micro_batch


def most_replicas(cut: Cut, x: Pipelines, racks: MaxRacks) -> Ints:
    """Bound the replicas of each pipeline: whole blocks within the most racks, a micro-batch for each of its rounds.

    Where they are pinned it has so many, or none at all.
    """
    kinds, at = np.unique(x.wired, return_inverse=True)
    most = np.array([racks(int(w)) for w in kinds], dtype=np.int64)[at]
    found = np.minimum(most // x.block_racks * x.block_replicas, total_micro_batches(cut) // min_micro_batches(x))
    wanted = pinned_replicas(cut.space.instance)
    if wanted is not None:
        found = np.where(found >= wanted, wanted, 0)
    return np.where(found * cut.shape.gpus >= cut.shape.expert_parallel, found, 0)


def pinned_replicas(instance: Instance) -> int | None:
    """Return the replicas that pins ask for, in all or by site; None where they are free."""
    by_site = instance.pins.get("layout.data_parallel_by_site")
    return instance.pins.get("layout.data_parallel") if by_site is None else sum(by_site.values())


def min_micro_batches(x: Pipelines) -> Ints:
    """Return the fewest micro-batches: one, or a whole round under interleaving."""
    return np.where(x.v > 1, x.p, 1)


def first_rows(cut: Cut, x: Pipelines, racks: MaxRacks, limit: float) -> Rows:
    """Bound every pipeline of a cut, and return those whose least seconds a sequence are below a limit."""
    b = cut.shape.micro_batch
    d = most_replicas(cut, x, racks) if len(x) else x.p
    each = cut.least_layers * _layer_seconds(cut) / np.maximum(x.p * b, 1)
    few = np.flatnonzero((d > 0) & (each / np.maximum(d, 1) < cut.step_limits(x, each, 0.0, d, limit)[0]))
    return rows_of(cut, x.part(few), d[few], limit)


def rows_of(cut: Cut, x: Pipelines, d: Ints, limit: float) -> Rows:
    """Bound pipelines with at most so many replicas, and return those below a limit in seconds a sequence."""
    if not len(x):
        none = np.empty(0)
        return Rows(x, d, d, none, none, none)
    sharded = block_step.sharded_times(cut.timed(0, inside=False), replicas_per_rack=1, racks=1, slowdown=1.0)
    stages = EvenStages(cut, 0, x, sharded)
    once = stages.least_fill + cut.machine.software.step_seconds
    each = np.minimum(stages.each, stages.each_of_whole_chunks)
    seconds = (each / d + once / total_micro_batches(cut)) / cut.shape.micro_batch
    return limited(cut, Rows(x, d, min_micro_batches(x), each, once, seconds), limit)


def _layer_seconds(cut: Cut) -> float:
    times = cut.times.times
    return times.forward_seconds + times.backward_seconds


@dataclass(frozen=True, slots=True)
class EvenStages:
    """The most even stages of pipelines under one ZeRO stage: what a micro-batch takes at least, and the bubble."""

    cut: Cut
    zero_stage: int
    x: Pipelines
    sharded: ShardedTimes

    @property
    def layers(self) -> Floats:
        """Layers of the largest stage at least."""
        return np.ceil(self.cut.least_layers / self.x.p - ROUNDING)

    @property
    def send(self) -> Floats:
        """Seconds of one exchange between stages."""
        phi, inside = self.cut.space.transport_slowdown, -(-self.x.p // self.x.stages_per_rack) == 1
        near, far = (self.cut.timed(self.zero_stage, inside=k).send(phi, self.x.p) for k in (True, False))
        return np.asarray(np.where(inside, near, far), dtype=np.float64)

    def _stage(self, layers: Floats) -> Floats:
        """Least seconds of a micro-batch on a stage with so many layers."""
        x, pipeline = self.x, self.cut.timed(self.zero_stage, inside=False)
        stage = block_step.stage_seconds(pipeline, self.sharded, x.v, layers, np.zeros_like(layers), self.send)
        return np.asarray(stage + np.where(x.p == 1, pipeline.head, 0.0), dtype=np.float64)

    @property
    def largest(self) -> Floats:
        """Least seconds of a micro-batch on the largest stage, which is the one that waits for its chunks."""
        return self._stage(self.layers) + self.cut.machine.software.microbatch_seconds

    def _each(self, layers: Floats) -> Floats:
        """Least seconds of a micro-batch where the largest stage has so many layers, or the last one and its head."""
        cut, x, pipeline, stage = self.cut, self.x, self.cut.timed(self.zero_stage, inside=False), self._stage(layers)
        layer = self.sharded.layer_seconds
        total = cut.least_layers * layer + pipeline.head
        mean = total / (x.p * layer)
        others, last = np.ceil(mean - ROUNDING) * layer, total - np.floor(mean + ROUNDING) * (x.p - 1) * layer
        slowest = np.maximum(np.minimum(others, last), x.v * layer + pipeline.head)
        return np.asarray(np.maximum(stage, slowest) + cut.machine.software.microbatch_seconds, dtype=np.float64)

    @property
    def each(self) -> Floats:
        """Least seconds of a micro-batch on the slowest stage."""
        return self._each(self.layers)

    @property
    def each_of_whole_chunks(self) -> Floats:
        """Least seconds where its chunks are alike, and nothing waits for a larger one."""
        return self._each(np.ceil(self.layers / self.x.v) * self.x.v)

    @property
    def wait_of_a_round(self) -> Floats:
        """Seconds that unequal chunks add to a round of micro-batches but the first two, at least."""
        x, times = self.x, self.cut.times.times
        found = interleaving.min_excess_seconds(
            x.p,
            x.v,
            3 * x.p,
            self.layers,
            np.zeros_like(self.layers),
            self.sharded.layer_seconds,
            times.recompute_seconds,
        )
        return np.asarray(found, dtype=np.float64)

    @property
    def chunk(self) -> Floats:
        """Seconds of the largest chunk at least."""
        pipeline = self.cut.timed(self.zero_stage, inside=False)
        found = block_step.chunk_seconds(pipeline, self.sharded, self.x.v, self.layers, np.zeros_like(self.layers))
        return np.asarray(found, dtype=np.float64)

    def fill(self, micro_batches: Any) -> Floats:
        """Seconds of filling and draining the pipeline at least."""
        x, chunk = self.x, self.chunk
        order, send, m = self.cut.schedule, self.send, micro_batches
        found = step.pipeline_bubble_seconds(
            self.sharded, order, x.p, x.v, chunk * x.v, send_seconds=send, micro_batches=m
        )
        return np.asarray(found, dtype=np.float64)

    @property
    def least_fill(self) -> Floats:
        """The least over all micro-batches: it changes steadily with them, up to a full pipeline."""
        return np.minimum(self.fill(1), self.fill(self.x.p))


COARSE = 6  # parts of a pipeline whose last stage, with the fewest chunks in flight, first stands for all of a part


def holds(cut: Cut, zero_stage: int, x: Pipelines, d: Ints, m: Ints, limit: Any) -> NDArray[np.bool_]:
    """Return which pipelines may hold all layers, in memory and in time for a limit in seconds a sequence.

    A stage with l layers fills at least l times the state of one, and for each chunk in flight at least l/v times what
    a layer keeps when it is recomputed; and it takes at least l layers' seconds a micro-batch.
    """
    shape, machine, found = cut.shape, cut.machine, np.zeros(len(x), dtype=bool)
    own, weights = stage_memory.layer_bytes(machine, shape), weights_of(machine, shape)
    state = stage_memory.gpu_state_bytes(
        machine, shape, weights, layers=1, ends=0, zero_stage=zero_stage, replicas=d
    ) + np.zeros(len(x))
    kept = own.kept if cut.repeats == "no" else min(own.kept, own.checkpoint)
    front = front_layers(machine.model)  # of the first stage, taken to need no room and no time
    in_time = np.floor(limit * d * shape.micro_batch / _layer_seconds(cut) * (1 + ROUNDING))

    def layers(some: Any, stage: Ints) -> Floats:
        p, v = x.p[some, None], x.v[some, None]
        flying = np.maximum(schedule.chunks_in_flight(cut.schedule, stage, p, v, m[some, None]), 0)
        most = np.floor(cut.space.memory_limit / (state[some, None] + kept * flying / v) * (1 + ROUNDING))
        return np.asarray(np.minimum(most, in_time[some, None]), dtype=np.float64)

    roomy = (
        np.minimum(np.floor(cut.space.memory_limit / state * (1 + ROUNDING)), in_time) * x.p + front >= cut.space.layers
    )
    few = np.flatnonzero(roomy)
    ends = x.p[few, None] * np.arange(COARSE + 1)[None, :] // COARSE
    coarse = layers(few, ends[:, 1:] - 1) * np.diff(ends, axis=1)
    few = few[coarse.sum(axis=1) + front >= cut.space.layers]
    at, size = 0, max(1, MOST_CELLS // max(1, int(x.p[few].max(initial=1))))
    while at < len(few):
        some = few[at : at + size]
        stage = np.arange(int(x.p[some].max()))[None, :]
        each = np.where(stage < x.p[some, None], layers(some, stage), 0.0)
        found[some] = each.sum(axis=1) + front >= cut.space.layers
        at += size
    return found


@dataclass(frozen=True, slots=True)
class Cells:
    """Counts of replicas for pipelines under one ZeRO stage, one entry each, with the parts of their least time.

    `fill` is what a full pipeline adds to `once` beside one with a single micro-batch.
    """

    x: Pipelines
    d: Ints
    each: Floats
    largest: Floats
    whole: Floats
    wait: Floats
    once: Floats
    fill: Floats

    def part(self, which: Any) -> "Cells":
        """Return some of the cells."""
        own = {name: getattr(self, name)[which] for name in self.__slots__ if name != "x"}
        return Cells(x=self.x.part(which), **own)

    def __len__(self) -> int:
        return len(self.d)

    def step_seconds(self, m: Any) -> Floats:
        """Return the least seconds of a step with so many micro-batches."""
        p, v = self.x.p, self.x.v
        rounds, waits = schedule.effective_micro_batches(m, p, v), np.maximum(0, m // p - 2)
        unequal = np.maximum(rounds * self.each, m * self.largest + waits * self.wait)
        slowest = np.minimum(unequal, rounds * self.whole)
        part = np.where(p > 1, (np.minimum(m, p) - 1) / np.maximum(p - 1, 1), 0.0)
        return np.asarray(slowest + self.once + part * self.fill, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The counts of replicas and micro-batches of a cut's rows that may take less than a limit, by ZeRO stage."""

    cut: Cut
    rows: Rows
    limit: float  # seconds a sequence, on a clock
    stop: Callable[[], bool] = lambda: False

    @cached_property
    def _pin(self) -> tuple[int | None, int | None]:
        i = self.cut.space.instance
        return pinned_replicas(i), i.pins.get("layout.microbatches_per_step")

    def cells(self, zero_stage: int) -> Iterator[Cells]:
        """Yield the replicas that may be in time, block after block of rows."""
        rows, wanted = self._rows(zero_stage), self._pin[0]
        low, high = self._fewest(rows), rows.replicas
        if wanted is not None:
            low, high = np.maximum(low, wanted), np.minimum(high, wanted)
        counts = np.maximum(high - low + 1, 0)
        ends, at = np.cumsum(counts), 0
        while at < len(rows):
            done = int(ends[at - 1]) if at else 0
            to = max(at + 1, int(np.searchsorted(ends, done + MOST_CELLS // 16, side="right")))
            row = np.repeat(np.arange(at, to), counts[at:to])
            if len(row):
                d = np.arange(len(row)) + done - (ends - counts)[row] + low[row]
                x, m = rows.pipelines.part(row), rows.micro_batches[row]
                fits = np.flatnonzero(holds(self.cut, zero_stage, x, d, m, self._of_steps(x, d)))
                yield self._in_time(self._cells(zero_stage, x.part(fits), d[fits], d[fits]))
            at = to

    def _fewest(self, rows: Rows) -> Ints:
        """Return the fewest replicas with which rows may be in time."""
        return _row_limits(self.cut, rows, self.limit)[1]

    def _of_steps(self, x: Pipelines, d: Ints) -> Any:
        """Return the limit on seconds of steps a sequence with so many replicas."""
        return self.limit / self.cut.space.stretch(d, x.p * self.cut.shape.gpus)

    def _rows(self, zero_stage: int) -> Rows:
        """Return the rows that may be in time, and in memory, under a ZeRO stage.

        Its traffic is that of the racks which the fewest replicas fill, its state is shared by the most.
        """
        rows = self.rows
        cells = self._cells(zero_stage, rows.pipelines, rows.replicas, np.minimum(self._fewest(rows), rows.replicas))
        each, once = np.maximum(rows.each, cells.each), np.maximum(rows.once, self._once(cells))
        seconds = (each / rows.replicas + once / total_micro_batches(self.cut)) / self.cut.shape.micro_batch
        rows = limited(self.cut, replace(rows, each=each, once=once, seconds=seconds), self.limit)
        left = _row_limits(self.cut, rows, self.limit)[0] / self.cut.shape.micro_batch
        fine = holds(self.cut, zero_stage, rows.pipelines, rows.replicas, rows.micro_batches, left)
        return rows.part(np.flatnonzero(fine))

    def _in_time(self, cells: Cells) -> Cells:
        least = (cells.each / cells.d + self._once(cells) / total_micro_batches(self.cut)) / self.cut.shape.micro_batch
        return cells.part(np.flatnonzero(least < self._of_steps(cells.x, cells.d)))

    @staticmethod
    def _once(cells: Cells) -> Floats:
        return cells.once + np.minimum(cells.fill, 0.0)

    def _cells(self, zero_stage: int, x: Pipelines, d: Ints, fewest: Ints) -> Cells:
        """Time pipelines whose replicas share ZeRO's state and fill the racks of the fewest."""
        cut = self.cut
        phi, pipeline = cut.space.transport_slowdown, cut.timed(zero_stage, inside=False)
        blocks = -(-fewest // x.block_replicas)
        racks = -(-blocks // max_sites(cut.space.instance)) * x.stage_racks
        sharded = block_step.sharded_times(pipeline, replicas_per_rack=x.replicas_per_rack, racks=racks, slowdown=phi)
        stages = EvenStages(cut, zero_stage, x, sharded)
        parts = block_step.once_parts(
            pipeline,
            sharded,
            None,
            pipeline=x.p,
            virtual_stages=x.v,
            micro_batches=1,
            chunk=stages.chunk,
            max_layers=stages.layers,
            replicas_per_rack=x.replicas_per_rack,
            racks=racks,
            shards=d,
            send=stages.send,
            slowdown=phi,
        )
        once = np.asarray(sum(parts.values()) + 0.0 * d, dtype=np.float64)
        fill = stages.fill(x.p) - stages.fill(1)
        return Cells(x, d, stages.each, stages.largest, stages.each_of_whole_chunks, stages.wait_of_a_round, once, fill)

    def micro_batches(self, cells: Cells) -> Iterator[tuple[Cells, Ints]]:
        """Yield cells with the micro-batches that may be in time, one entry for each."""
        b, total, wanted = self.cut.shape.micro_batch, total_micro_batches(self.cut), self._pin[1]
        limit = np.asarray(self._of_steps(cells.x, cells.d) + 0.0 * cells.each)
        spare = limit * cells.d * b - cells.each
        fewest = np.where(spare > 0, self._once(cells) / np.maximum(spare, 1e-300) * (1 - ROUNDING), np.inf)
        low = np.maximum(np.ceil(np.minimum(fewest, 2.0**62)), min_micro_batches(cells.x)).astype(np.int64)
        high = total // cells.d
        if wanted is not None:
            low, high = np.maximum(low, wanted), np.minimum(high, wanted)
        counts = np.maximum(high - low + 1, 0)
        ends, step = np.cumsum(counts), MOST_CELLS // 8
        for done in range(0, int(ends[-1]) if len(ends) else 0, step):
            place = np.arange(done, min(done + step, int(ends[-1])))
            which = np.searchsorted(ends, place, side="right")
            m = place - (ends - counts)[which] + low[which]
            found = cells.part(which)
            few = np.flatnonzero(found.step_seconds(m) < limit[which] * found.d * m * b)
            if len(few):
                yield found.part(few), m[few]
            if self.stop():
                return


def _row_limits(cut: Cut, rows: Rows, limit: float) -> tuple[Floats, Ints]:
    """Return the limit on the steps of a micro-batch of rows, and the fewest replicas with which they keep it."""
    once, most = rows.once / total_micro_batches(cut), limit * cut.shape.micro_batch
    return cut.step_limits(rows.pipelines, rows.each, once, rows.replicas, most)


def limited(cut: Cut, rows: Rows, limit: float) -> Rows:
    """Return the rows whose least seconds a sequence are below a limit on a clock."""
    left, fewest = _row_limits(cut, rows, limit)
    return rows.part(np.flatnonzero((rows.seconds < left / cut.shape.micro_batch) & (fewest <= rows.replicas)))
