"""Layers and recomputed layers of every stage of a column under its memory, for the fastest step: all are listed.

Sets: stages i, and patterns k = (layers n, recomputed layers r) of a stage. Parameters: bytes on a GPU and seconds of
each pattern, seconds of its largest chunk, and what a step takes once at a largest chunk and most layers.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from planner.models.joint.stage_split import Column, Stages
from planner.models.joint.strategy_space import Flags, Floats, Ints
from planner.models.joint.time_bounds import RowConditions
from planner.physics.training import memory, schedule, step_prediction
from planner.physics.training.transformer import front_layers

ROUNDING = 1e-6  # relative: more than the rounding of sums in another order amounts to
SLACK = 1e-12  # relative: bytes that differ by less fit


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """The patterns of a column's stages under some conditions: layers and recomputed layers, each by all stages."""

    stages: Stages
    table: Ints  # layers and recomputed layers, shape (patterns, 2)
    fits: Flags  # by (stage, pattern): a GPU has the memory, and pins and rules allow the layers
    seconds: Floats  # of a step by (stage, pattern), the head and unequal chunks included
    chunks: Floats  # of the largest chunk, by pattern


def patterns_of(stages: Stages) -> Patterns:
    """List the patterns of some stages, of as many layers at least as others cannot hold, with their seconds."""
    c, s, x, most = stages.column, stages.column.strategy, stages.pipeline, int(stages.sizes[-1])
    sizes = range(max(c.v, s.problem.layers - (c.p - 1) * most), most + 1)
    repeated = int(s.recomputes != "none")
    table = np.array([(n, r) for n in sizes for r in range(repeated * n + 1)], dtype=np.int64)
    stage, (layers, repeats) = np.arange(c.p)[:, None], table.T[:, None, :]
    front = front_layers(s.machine.model) * (stage == 0)  # in its first chunk
    parts = memory.memory_by_part(
        s.machine,
        s.shape,
        stages.counts,
        stage=stage,
        layers=layers,
        recomputed=repeats,
        front=front,
        zero_stage=c.zero,
        replicas=stages.conditions.shards,
        order=s.order,
    )
    fits = (-(-layers // c.v) >= front) & (sum(parts.values()) <= s.problem.memory_limit * (1 + SLACK))
    if (wanted := s.problem.layers_of(c.p)) is not None:
        fits = fits & (layers == np.array(wanted)[:, None])
    own = x, stages.sharded, c.v, layers, repeats
    each = step_prediction.stage_seconds(*own, stages.send) + x.machine.software.host_seconds
    seconds = stages.effective * (each + step_prediction.end_seconds(x, stage, c.p))
    if c.v > 1 and s.order == "1f1b":
        layer, repeat = float(stages.sharded.layer_seconds), x.times.recompute_seconds
        least = schedule.min_excess_seconds(stages.counts, layers, repeats + 0 * stage, layer, repeat)
        in_time = fits & (seconds + np.where(stage == c.p - 1, 0.0, least) <= stages.cutoff)
        wait = np.full(seconds.shape, np.inf)  # of patterns that are too slow by a bound of it already
        alike = step_prediction.alike_stages(x, c.p)
        for i in np.unique(alike).tolist():
            for k in np.flatnonzero(in_time[alike == i].any(axis=0)).tolist():
                wait[alike == i, k] = step_prediction.excess_seconds(
                    x, stages.sharded, stages.counts, *table[k].tolist(), stage=i
                )
        seconds = seconds + wait
    chunks = step_prediction.chunk_seconds(*own)[0]
    return Patterns(stages=stages, table=table, fits=fits, seconds=seconds, chunks=chunks)


def fastest_split(column: Column, conditions: RowConditions, seconds: float) -> tuple[float, int]:
    """Return a column's fastest split over `seconds` a step (inf: none as fast), and how many patterns were compared.

    All splits are listed. For each maximum of layers and of chunk seconds, the smallest limit on stage seconds is
    sought at which sums of the stages' layers reach the model's: a set of sums is the bits of a number, and a stage
    that may have n layers shifts it by n. A bound of 1 less `ROUNDING`, or more, confirms that no split is faster.
    """
    limit, problem = seconds * (1 + ROUNDING), column.strategy.problem
    x = patterns_of(Stages(column=column, conditions=conditions, cutoff=limit))
    fine, allowed = x.fits & (x.seconds <= limit), list[Flags]()
    if np.all(fine.any(axis=1)):
        allowed = [fine]
        if problem.recomputes_alike:  # the patterns that stages may have together are of one number by the rule
            layers, repeats = x.table.T
            most = -(-int(layers.max()) // column.v)
            numbers = range(most + 1) if problem.rules.recompute == "chunks alike" else (0, most)
            alike = (fine & (repeats == schedule.recomputed_alike(layers, column.v, each)) for each in numbers)
            allowed = [some for some in alike if np.all(some.any(axis=1))]
    best = min((_fastest(x, some, limit) for some in allowed), default=limit)
    return (best / seconds if best < limit else math.inf), int(fine.sum())


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
    of, repeats = x.stages.column.strategy, x.table[:, 1] > 0
    total, some = of.problem.layers, of.recomputes == "some"
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
