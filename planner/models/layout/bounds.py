"""Parts of rows: ranges of replicas and of micro-batches, bounded from below and split until they are narrow."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from planner.models.layout.columns import (
    Flags,
    Floats,
    Ints,
    RowTable,
    bound_between,
    least_layer,
    most_counts,
    replica_caps,
)
from planner.models.layout.data import LayerStrategy, Problem
from planner.models.layout.memory_bounds import least_stage, least_whole_stage

NARROW = 1.05  # of a range's ends, from which on its counts are taken one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Ranges of counts of rows of one way to cut a layer and one ZeRO stage; one entry each."""

    row: Ints  # of the table
    fewest: Ints
    most: Ints  # replicas
    shallowest: Ints
    deepest: Ints  # micro-batches
    bound: Floats

    def __len__(self) -> int:
        return len(self.row)

    def part(self, which: Any) -> "Cells":
        """Return some of the cells."""
        return Cells(**{f.name: getattr(self, f.name)[which] for f in fields(self)})


def narrow(table: RowTable, cells: Cells) -> Flags:
    """Say which cells need no more splitting; the micro-batches of a filled pipeline follow from the replicas."""
    deep = table.filled[cells.row] | (cells.deepest <= cells.shallowest * NARROW)
    return np.asarray((cells.most <= cells.fewest * NARROW) & deep)


def whole(problem: Problem, table: RowTable, rows: Ints, cutoff: float) -> Cells:
    """Return the cells that hold all counts of some rows that could be under the cutoff; a pipeline that is filled takes what the batch leaves."""
    base, p, filled = table.layer_strategies[table.base[rows[0]]], table.pipeline[rows], table.filled[rows]
    most, _ = most_counts(problem, base, p, filled)
    least = np.ceil(problem.machine.model.layers / p) * base.least_layer / (cutoff * base.shape.micro_batch)
    free = problem.pin("data_parallel_by_site") is None and not problem.shared
    sites = (replica_caps(problem, base, p) > 0).sum(axis=0) if free else 1
    fewest = np.maximum(np.maximum(1, sites), np.floor(least).astype(np.int64))
    shallowest, deepest = np.where(filled, p, 1), np.full(len(rows), np.iinfo(np.int64).max)
    replicas, batches = problem.pin("data_parallel"), problem.pin("microbatches_per_step")
    if replicas is not None:
        fewest, most = np.maximum(fewest, replicas), np.minimum(most, replicas)
    if batches is not None:
        shallowest, deepest = np.maximum(shallowest, batches), np.minimum(deepest, batches)
    return _counted(problem, table, base, rows, fewest, most, shallowest, deepest)


def split(problem: Problem, table: RowTable, cells: Cells) -> Cells:
    """Split cells in two, at the middle of the wider of their ranges."""
    base = table.layer_strategies[table.base[cells.row[0]]]
    filled = table.filled[cells.row]
    deep = ~filled & (cells.deepest / cells.shallowest > cells.most / cells.fewest)
    middle = np.sqrt(np.where(deep, cells.shallowest * 1.0 * cells.deepest, cells.fewest * 1.0 * cells.most)).astype(
        np.int64
    )
    low = (np.where(deep, cells.most, middle), np.where(deep, middle, cells.deepest))
    high = (np.where(deep, cells.fewest, middle + 1), np.where(deep, middle + 1, cells.shallowest))
    return _counted(
        problem,
        table,
        base,
        np.concatenate([cells.row, cells.row]),
        np.concatenate([cells.fewest, high[0]]),
        np.concatenate([low[0], cells.most]),
        np.concatenate([cells.shallowest, high[1]]),
        np.concatenate([low[1], cells.deepest]),
    )


def _counted(
    problem: Problem,
    table: RowTable,
    base: LayerStrategy,
    rows: Ints,
    fewest: Ints,
    most: Ints,
    shallowest: Ints,
    deepest: Ints,
) -> Cells:
    """Return the cells that hold any counts within the batch, not bounded yet."""
    total = problem.most_sequences // base.shape.micro_batch
    deepest = np.minimum(deepest, np.where(table.filled[rows], total, table.pipeline[rows] - 1))
    some = (fewest <= most) & (fewest * shallowest <= total)
    rows, fewest, most, shallowest, deepest = (x[some] for x in (rows, fewest, most, shallowest, deepest))
    most, deepest = np.minimum(most, total // shallowest), np.minimum(deepest, total // fewest)
    some = shallowest <= deepest
    rows, fewest, most, shallowest, deepest = (x[some] for x in (rows, fewest, most, shallowest, deepest))
    return Cells(row=rows, fewest=fewest, most=most, shallowest=shallowest, deepest=deepest, bound=np.zeros(len(rows)))


def bounded(problem: Problem, table: RowTable, cells: Cells, cutoff: float) -> Cells:
    """Return the cells under the cutoff with their bounds: of even stages, of those that memory leaves, of whole layers where cells are narrow."""
    if not len(cells):
        return cells
    base, zero = table.layer_strategies[table.base[cells.row[0]]], int(table.zero[cells.row[0]])
    cells = _under(problem, table, cells, np.arange(len(cells)), np.zeros(len(cells)), cutoff)
    for floor_of in (least_stage, least_whole_stage):
        which = np.flatnonzero(narrow(table, cells)) if floor_of is least_whole_stage else np.arange(len(cells))
        c = cells.part(which)
        if not len(c):
            continue
        p, v = table.pipeline[c.row], table.virtual_stages[c.row]
        floor = floor_of(problem, base, zero, p, v, c.shallowest, c.most, least_layer(problem, base, zero, p, c.fewest))
        if np.any(floor):
            cells = _under(problem, table, cells, which[floor > 0], floor[floor > 0], cutoff)
    return cells


def _under(problem: Problem, table: RowTable, cells: Cells, which: Ints, floor: Floats, cutoff: float) -> Cells:
    """Bound some of the cells with the least time of their largest stages; return all that are left under the cutoff."""
    c, told = cells.part(which), cells.bound.copy()
    base, zero = table.layer_strategies[table.base[cells.row[0]]], int(table.zero[cells.row[0]])
    p, v, fits = table.pipeline[c.row], table.virtual_stages[c.row], np.isfinite(floor)
    low = bound_between(
        problem, base, zero, p, v, fewest=c.fewest, most=c.most, deepest=c.deepest, floor=np.where(fits, floor, 0.0)
    )
    told[which] = np.where(fits, np.maximum(told[which], low), np.inf)
    return replace(cells, bound=told).part(told < cutoff)
