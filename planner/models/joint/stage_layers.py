"""Layers and recomputed layers of every stage of a column under its memory, for the fastest step: all are listed.

Sets: stages i, and patterns k = (layers n, recomputed layers r) of a stage. Parameters: bytes on a GPU and seconds of
each pattern, seconds of its largest chunk, and what a step takes once at a largest chunk and most layers.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from planner.models.joint.stage_split import Column, Stages
from planner.models.joint.strategy_space import Flags, Floats, Ints
from planner.models.joint.time_bounds import RowConditions
from planner.physics.training import memory, schedule, step_prediction
from planner.physics.training.collectives import front_layers

ROUNDING = 1e-6  # relative: more than the rounding of sums in another order amounts to
SLACK = 1e-12  # relative: bytes that differ by less fit


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """The patterns of a column's stages under some conditions: layers and recomputed layers, each by all stages."""

    stages: Stages

    @property
    def column(self) -> Column:
        """The column whose layers are split over stages by patterns."""
        return self.stages.column

    @cached_property
    def table(self) -> Ints:
        """Layers and recomputed layers by stage pattern, shape (patterns, 2); at least those others cannot hold."""
        s, most = self.column.strategy, int(self.stages.sizes[-1])
        fewest = s.problem.layers - (self.column.p - 1) * most
        sizes = range(max(self.column.v, fewest), most + 1)
        largest = int(s.recomputes != "none")
        return np.array([(n, r) for n in sizes for r in range(largest * n + 1)], dtype=np.int64)

    @cached_property
    def fits(self) -> Any:
        """Whether, by (stage, pattern), a GPU has the memory, and pins and rules allow the layers."""
        # The first stage has all front layers, in its first chunk.
        c, s = self.column, self.column.strategy
        stage, (layers, repeats) = np.arange(c.p)[:, None], self.table.T[:, None, :]
        front = front_layers(s.machine.model) * (stage == 0)
        parts = memory.memory_by_part(
            s.machine,
            s.shape,
            self.stages.counts,
            stage=stage,
            layers=layers,
            recomputed=repeats,
            front=front,
            zero_stage=c.zero,
            replicas=self.stages.conditions.shards,
            order=s.order,
        )
        holds_front = -(-layers // c.v) >= front
        wanted = s.problem.layers_of(c.p)
        if wanted is not None:
            holds_front = holds_front & (layers == np.array(wanted)[:, None])
        return holds_front & (sum(parts.values()) <= s.problem.memory_limit * (1 + SLACK))

    @cached_property
    def seconds(self) -> Floats:
        """Seconds of a step of each layer pattern on each stage, the head and unequal chunks included."""
        c, x, host = self.column, self.stages.pipeline, self.stages.pipeline.machine.software.host_seconds
        layers, repeats = self.table[:, 0], self.table[:, 1]
        each = step_prediction.stage_seconds(x, self.stages.sharded, c.v, layers, repeats, self.stages.send) + host
        stage = np.arange(c.p)[:, None]
        ends = step_prediction.end_seconds(x, stage, c.p)
        without_waits = self.stages.effective * (each[None, :] + ends)
        if c.v == 1 or c.strategy.order != "1f1b":
            return np.asarray(without_waits)
        layer, repeat = float(self.stages.sharded.layer_seconds), x.times.recompute_seconds
        counts = self.stages.counts
        least = schedule.min_excess_seconds(counts, layers[None, :], repeats[None, :] + 0 * stage, layer, repeat)
        in_time = self.fits & (without_waits + np.where(stage == c.p - 1, 0.0, least) <= self.stages.cutoff)
        wait = np.full(without_waits.shape, np.inf)  # of patterns that are too slow by a bound of it already
        alike = step_prediction.alike_stages(x, c.p)
        for i in np.unique(alike).tolist():
            for k in np.flatnonzero(in_time[alike == i].any(axis=0)).tolist():
                n, r = int(layers[k]), int(repeats[k])
                found = step_prediction.excess_seconds(x, self.stages.sharded, counts, n, r, stage=i)
                wait[alike == i, k] = found
        return np.asarray(without_waits + wait)

    @cached_property
    def chunks(self) -> Floats:
        """Seconds of the largest chunk of each layer pattern of a stage."""
        layers, repeats = self.table[:, 0], self.table[:, 1]
        x, v = self.stages.pipeline, self.column.v
        return np.asarray(step_prediction.chunk_seconds(x, self.stages.sharded, v, layers, repeats))


def fastest_split(column: Column, conditions: RowConditions, seconds: float) -> tuple[float, int]:
    """Return a column's fastest split over `seconds` a step (inf: none as fast), and how many patterns were compared.

    All splits are listed. For each maximum of layers and of chunk seconds, the smallest limit on stage seconds is
    sought at which sums of the stages' layers reach the model's: a set of sums is the bits of a number, and a stage
    that may have n layers shifts it by n. A bound of 1 less `ROUNDING`, or more, confirms that no split is faster.
    """
    limit = seconds * (1 + ROUNDING)
    x = Patterns(stages=Stages(column=column, conditions=conditions, cutoff=limit))
    fine = x.fits & (x.seconds <= limit)
    if not np.all(fine.any(axis=1)):
        return math.inf, int(fine.sum())
    best = min((_fastest(x, allowed, limit) for allowed in _allowed(x, fine)), default=limit)
    return (best / seconds if best < limit else math.inf), int(fine.sum())


def _allowed(x: Patterns, fine: Flags) -> Iterator[Flags]:
    """Yield the layer patterns that stages may have together: all, or by the number a rule has chunks recompute."""
    problem, v, layers = x.column.strategy.problem, x.column.v, x.table[:, 0]
    if not problem.recomputes_alike:
        yield fine
        return
    most = -(-int(layers.max()) // v)
    for each in range(most + 1) if problem.rules.recompute == "chunks alike" else (0, most):
        allowed = fine & (x.table[:, 1] == schedule.recomputed_alike(layers, v, each))[None, :]
        if np.all(allowed.any(axis=1)):
            yield allowed


def _fastest(x: Patterns, fine: Flags, limit: float) -> float:
    """Return the seconds a step of the fastest split of allowed layer patterns; the limit where none is below it."""
    layers, used = x.table[:, 0], fine.any(axis=0)
    floor, best = float(np.where(fine, x.seconds, np.inf).min(axis=1).max()), limit
    for most in np.unique(layers[used]).tolist():
        for chunk in np.unique(x.chunks[used & (layers <= most)]).tolist():
            once = x.stages.once(chunk, most)
            if once + floor > best:
                break  # a larger chunk takes longer
            within = fine & ((layers <= most) & (x.chunks <= chunk))[None, :]
            # The least limit on the seconds of stages under which some split has all layers, if any has.
            values: list[float] = np.unique(x.seconds[within & (x.seconds <= best - once)]).tolist()
            if values and _holds(x, within & (x.seconds <= values[-1])):
                at = bisect_left(values[:-1], True, key=lambda high: _holds(x, within & (x.seconds <= high)))
                best = min(best, values[at] + once)
    return best


def _holds(x: Patterns, allowed: Flags) -> bool:
    """Return whether allowed patterns sum to the model's layers, with a recomputed one where a pin asks for it."""
    total, repeats = x.column.strategy.problem.layers, x.table[:, 1] > 0
    some = x.column.strategy.recomputes == "some"
    whole = (2 << total) - 1
    without, reached = 1, 0  # sums without a recomputed layer, and with one
    for row in allowed:
        plain, full = np.unique(x.table[row & ~repeats, 0]).tolist(), np.unique(x.table[row & repeats, 0]).tolist()
        either = sorted({*plain, *full})
        reached = _shifted(reached, either) | _shifted(without, full)
        without, reached = _shifted(without, plain) & whole, reached & whole
    return bool((reached | (0 if some else without)) >> total & 1)


def _shifted(sums: int, layers: list[int]) -> int:
    found = 0
    for n in layers:
        found |= sums << n
    return found
