"""Layers and recomputed layers of every stage of a column under its memory, for the fastest step: a CP-SAT model.

Sets: stages i, and patterns k = (layers n, recomputed layers r) of a stage. Parameters: bytes on a GPU and seconds of
each pattern, seconds of its largest chunk, and what a step takes once at a largest chunk and most layers. Times are
rounded down to whole parts of the step, so that the optimum is a lower bound within `ROUNDING` of it.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from planner.models.joint.bounds import Conditions
from planner.models.joint.space import Floats, Ints
from planner.models.joint.split import Column, Stages
from planner.physics.training import stage_memory
from planner.physics.training.blocks import block_step
from planner.physics.training.process_groups import front_layers
from planner.solvers import cpsat
from planner.solvers.cpsat import Values
from planner.solvers.outcome import Outcome

UNITS = 10**9  # whole parts of the longest step that times are counted in
ROUNDING = 1e-6  # relative: more than the rounding of three times amounts to
SLACK = 1e-12  # relative: bytes that differ by less fit


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """The patterns of a column's stages under some conditions: layers and recomputed layers, each by all stages."""

    stages: Stages

    @property
    def column(self) -> Column:
        """The column that is split."""
        return self.stages.column

    @cached_property
    def table(self) -> Ints:
        """List layers and recomputed layers; shape (patterns, 2): a stage has what the others cannot hold."""
        s, most = self.column.strategy, int(self.stages.sizes[-1])
        fewest = s.problem.layers - (self.column.p - 1) * most
        sizes = range(max(self.column.v, fewest), most + 1)
        largest = int(s.recomputes != "none")
        return np.array([(n, r) for n in sizes for r in range(largest * n + 1)], dtype=np.int64)

    @cached_property
    def fits(self) -> Any:
        """Say whether a GPU of a stage has the memory of a pattern; shape (stages, patterns).

        The first stage has all front layers, in its first chunk.
        """
        c, s = self.column, self.column.strategy
        front = front_layers(s.machine.model) * (np.arange(c.p)[:, None] == 0)
        parts = stage_memory.memory_by_part(
            s.machine,
            s.shape,
            pipeline=c.p,
            virtual_stages=c.v,
            micro_batches=c.m,
            zero_stage=c.zero,
            replicas=self.stages.conditions.shards,
            stage=np.arange(c.p)[:, None],
            layers=self.table[None, :, 0],
            recomputed=self.table[None, :, 1],
            front=front,
            order=s.order,
        )
        holds_front = -(-self.table[None, :, 0] // c.v) >= front
        return holds_front & (sum(parts.values()) <= s.problem.memory_limit * (1 + SLACK))

    @cached_property
    def seconds(self) -> Floats:
        """Seconds of a step of each pattern on each stage, the head and unequal chunks included."""
        c, x, host = self.column, self.stages.pipeline, self.stages.pipeline.machine.software.microbatch_seconds
        layers, repeats = self.table[:, 0], self.table[:, 1]
        each = block_step.stage_seconds(x, self.stages.sharded, c.v, layers, repeats, self.stages.send) + host
        one = c.v == 1 or c.strategy.order != "1f1b"
        usual, last = (
            np.array(
                [
                    0.0
                    if one
                    else block_step.excess_seconds(x, self.stages.sharded, c.p, c.v, c.m, int(n), int(r), last=last)
                    for n, r in self.table
                ]
            )
            for last in (False, True)
        )
        stage = np.arange(c.p)[:, None]
        ends = np.where(stage == c.p - 1, x.head, 0.0) + block_step.front_seconds(x, stage)
        wait = np.where(stage == c.p - 1, last[None, :], usual[None, :])
        return np.asarray(self.stages.effective * (each[None, :] + ends) + wait)

    @cached_property
    def chunks(self) -> Floats:
        """Seconds of the largest chunk of each pattern."""
        x, c = self.stages.pipeline, self.column
        return np.asarray(block_step.chunk_seconds(x, self.stages.sharded, c.v, self.table[:, 0], self.table[:, 1]))


def fastest_split(
    column: Column, conditions: Conditions, seconds: float, *, time_limit: float | None = None, seed: int = 0
) -> Outcome[Values]:
    """Return the fastest split of a column by CP-SAT; `seconds` are those of the step of the split to compare with.

    Its objective and bound are in parts of these: 1 less `ROUNDING`, or more, confirms that no split is faster.
    """
    stages = Stages(column=column, conditions=conditions, cutoff=seconds * (1 + ROUNDING))
    x = Patterns(stages=stages)
    unit = seconds / UNITS
    model = cp_model.CpModel()
    kept = (x.fits & (x.seconds <= seconds * (1 + ROUNDING))).nonzero()
    chosen = {(int(i), int(k)): model.new_bool_var(f"stage {i} pattern {k}") for i, k in zip(*kept, strict=True)}
    choose_patterns(model, x, chosen)
    place_layers(model, x, chosen)
    recompute_some(model, x, chosen)
    slowest = slowest_stage(model, x, chosen, unit)
    once = once_a_step(model, x, chosen, unit)
    model.minimize(slowest + once)
    found = cpsat.run(model, time_limit=time_limit, seed=seed)
    value, bound = found.objective, found.bound
    return replace(
        found,
        objective=None if value is None else value / UNITS,
        bound=None if bound is None else bound / UNITS,
    )


Chosen = dict[tuple[int, int], Any]


def choose_patterns(model: cp_model.CpModel, x: Patterns, chosen: Chosen) -> None:
    """Require one pattern of every stage."""
    for i in range(x.column.p):
        model.add_exactly_one([v for (j, _), v in chosen.items() if j == i])


def place_layers(model: cp_model.CpModel, x: Patterns, chosen: Chosen) -> None:
    """Require that the stages have all layers of the model."""
    layers = sum(int(x.table[k, 0]) * v for (_, k), v in chosen.items())
    model.add(layers == x.column.strategy.problem.layers)


def recompute_some(model: cp_model.CpModel, x: Patterns, chosen: Chosen) -> None:
    """Require a recomputed layer where a pin asks for some."""
    if x.column.strategy.recomputes == "some":
        model.add_bool_or([v for (_, k), v in chosen.items() if x.table[k, 1]])


def slowest_stage(model: cp_model.CpModel, x: Patterns, chosen: Chosen, unit: float) -> Any:
    """Return the time of the slowest stage: no less than that of any."""
    slowest = model.new_int_var(0, 2 * UNITS, "slowest stage")
    for (i, k), v in chosen.items():
        model.add(slowest >= math.floor(float(x.seconds[i, k]) / unit)).only_enforce_if(v)
    return slowest


def once_a_step(model: cp_model.CpModel, x: Patterns, chosen: Chosen, unit: float) -> Any:
    """Return what a step takes once: by its largest chunk, which fills the pipeline, and by its most layers."""
    patterns = sorted({k for _, k in chosen})
    chunks = np.unique(x.chunks[patterns])
    most = sorted({int(x.table[k, 0]) for k in patterns})
    largest = model.new_int_var(0, max(len(chunks) - 1, 0), "largest chunk")
    widest = model.new_int_var(0, max(len(most) - 1, 0), "most layers")
    for (_, k), v in chosen.items():
        model.add(largest >= int(np.searchsorted(chunks, x.chunks[k]))).only_enforce_if(v)
        model.add(widest >= most.index(int(x.table[k, 0]))).only_enforce_if(v)
    table = [min(math.floor(x.stages.once(float(chunk), n) / unit), 2 * UNITS) for chunk in chunks for n in most]
    once = model.new_int_var(0, 2 * UNITS, "once a step")
    model.add_element(largest * len(most) + widest, table, once)
    return once
