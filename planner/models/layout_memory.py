"""How many layers memory leaves each stage of a row, and which rows hold a layout at all."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.models.layout_space import Base, Ints, Problem, Row, RowTable, replica_caps
from planner.physics import step
from planner.physics.steptime import Shape


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
