"""Parts of rows: ranges of replicas and of micro-batches, bounded from below and split until they are narrow."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from planner.models.layout_question import Base, Problem
from planner.models.layout_space import Flags, Floats, Ints, RowTable, bound_between, least_layer, most_counts, replica_caps
from planner.physics import step

NARROW = 1.05  # of a range's ends, from which on its counts are taken one by one
HALVINGS = 22


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
    base, p, filled = table.bases[table.base[rows[0]]], table.pipeline[rows], table.filled[rows]
    most, _ = most_counts(problem, base, p, filled)
    least = np.ceil(problem.machine.model.layers / p) * base.least_layer / (cutoff * base.shape.micro_batch)
    sites = (replica_caps(problem, base, p) > 0).sum(axis=0) if problem.pin("data_parallel_by_site") is None else 1
    fewest = np.maximum(np.maximum(1, sites), np.floor(least).astype(np.int64))
    none = np.zeros(len(rows), dtype=np.int64)
    return _counted(problem, table, base, rows, fewest, most, np.where(filled, p, 1), none + np.iinfo(np.int64).max)


def split(problem: Problem, table: RowTable, cells: Cells) -> Cells:
    """Split cells in two, at the middle of the wider of their ranges."""
    base = table.bases[table.base[cells.row[0]]]
    filled = table.filled[cells.row]
    deep = ~filled & (cells.deepest / cells.shallowest > cells.most / cells.fewest)
    middle = np.sqrt(np.where(deep, cells.shallowest * 1.0 * cells.deepest, cells.fewest * 1.0 * cells.most)).astype(np.int64)
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


def _counted(problem: Problem, table: RowTable, base: Base, rows: Ints, fewest: Ints, most: Ints, shallowest: Ints, deepest: Ints) -> Cells:
    """Return the cells that hold any counts within the batch, not bounded yet."""
    total = problem.most_sequences // base.shape.micro_batch
    deepest = np.minimum(deepest, np.where(table.filled[rows], total, table.pipeline[rows] - 1))
    some = (fewest <= most) & (fewest * shallowest <= total)
    rows, fewest, most, shallowest, deepest = (x[some] for x in (rows, fewest, most, shallowest, deepest))
    most, deepest = np.minimum(most, total // shallowest), np.minimum(deepest, total // fewest)
    some = shallowest <= deepest
    rows, fewest, most, shallowest, deepest = (x[some] for x in (rows, fewest, most, shallowest, deepest))
    return Cells(row=rows, fewest=fewest, most=most, shallowest=shallowest, deepest=deepest, bound=np.zeros(len(rows)))


def bounded(problem: Problem, table: RowTable, cells: Cells, cutoff: float, *, memory: bool) -> Cells:
    """Return the cells under the cutoff with their bounds: first those of even stages, then those of stages that memory leaves."""
    for floored in (False, True):
        if not len(cells) or (floored and not memory):
            return cells
        first = cells.row[0]
        base, zero = table.bases[table.base[first]], int(table.zero[first])
        p, v = table.pipeline[cells.row], table.virtual_stages[cells.row]
        floor = np.zeros(len(cells))
        if floored:
            layer = least_layer(problem, base, zero, p, cells.fewest)
            floor = least_stage(problem, base, zero, p, v, cells.shallowest, cells.most, layer)
        fits = np.isfinite(floor)
        floor = np.where(fits, floor, 0.0)
        told = bound_between(problem, base, zero, p, v, fewest=cells.fewest, most=cells.most, deepest=cells.deepest, floor=floor)
        kept = fits & (told < cutoff)
        cells = Cells(**{f.name: getattr(cells, f.name)[kept] for f in fields(cells) if f.name != "bound"}, bound=told[kept])
    return cells


def least_stage(problem: Problem, base: Base, zero: int, p: Ints, v: Ints, batches: Ints, replicas: Ints, layer: Floats) -> Floats:
    """Return the least time of the largest stage with which memory holds all layers, taken as divisible; infinite where it never does.

    By bisection, since what the stages hold grows with it.
    """
    layers, again = problem.machine.model.layers, base.times.again
    held = _Held.of(problem, base, zero, p, v, batches, replicas, layer)
    unit = layer + (again if base.recomputes == "all" else 0.0)
    low, high = layers / p * unit, layers * (layer + again) * (1 + 1e-9)
    least = np.where(held.layers(low) >= layers * (1 - 1e-9), low, np.inf)
    which = np.flatnonzero(~np.isfinite(least))
    if not len(which):
        return least
    held, low, high = held.part(which), low[which], high[which]
    possible = held.layers(high) >= layers * (1 - 1e-9)
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        enough = held.layers(middle) >= layers * (1 - 1e-9)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    least[which] = np.where(possible, low, np.inf)
    return least


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """What the stages of rows hold in a time t, from above.

    A stage with n micro-batches in flight keeps l layers in l·(s + n·a) bytes, s their state and a what one keeps. In t it
    runs t/x, and recomputes at most (t - l·x)/y of them, so that l·(s + n·a) <= room + n·(a - c)·(t - l·x)/y, and never more
    than room/(s + n·c). From the last stage to the first n grows by `slope` a stage until it reaches `cap`. Each of the three
    is constant or convex in n, so that its sum over stages is at most its integral, half a stage further at both ends.
    """

    room: float
    kept: float
    least: float  # c, or a where nothing saves
    saved: float  # (a - c)/y
    state: Floats
    pace: Floats
    first: Floats
    slope: Floats
    cap: Floats
    rising: Floats  # stages before the cap
    stages: Floats

    @classmethod
    def of(cls, problem: Problem, base: Base, zero: int, p: Ints, v: Ints, batches: Ints, replicas: Ints, layer: Floats) -> "_Held":
        """Read it from the physics of a way to cut a layer."""
        m, b, all_again = problem.machine, base.bytes, base.recomputes == "all"
        state = step.held_state_bytes(m, base.shape, base.weights, layers=1, ends=0, zero_stage=zero, replicas=replicas)
        gathered = 2 * base.weights.layer * m.precision.working_parameter_bytes if zero >= 3 else 0.0
        kept = b.checkpoint if all_again else b.kept
        least = min(kept, b.checkpoint) if base.recomputes == "any" else kept
        one = np.ones(len(p))
        first, slope = np.where(v == 1, 1.0, ((v - 1) * p + 1) / v), np.where(v == 1, 1.0, 2 / v)
        cap = np.minimum(batches, p) if base.order == "zb-h1" else batches
        rising = np.zeros(len(p)) if base.order == "zb-h1" else np.clip(np.floor((cap - first) / slope + 1e-9) + 1, 0, p)
        return cls(
            room=max(0.0, problem.memory_limit - gathered),
            kept=kept,
            least=least,
            saved=(kept - least) / base.times.again,
            state=state * one,
            pace=layer + (base.times.again if all_again else 0.0),
            first=first,
            slope=slope,
            cap=cap * one,
            rising=rising,
            stages=p * one,
        )

    def part(self, which: Ints) -> "_Held":
        """Return what some of the rows hold."""
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        return _Held(**{k: x[which] if isinstance(x, np.ndarray) else x for k, x in values.items()})

    def layers(self, seconds: Floats) -> Floats:
        """Bound the layers that all stages hold in a time from above."""
        s, t = self.state, seconds
        whole = t / self.pace
        mixed = self.kept + self.saved * self.pace
        free = (self.room / whole - s) / self.kept  # most in flight with which all that the time allows is kept
        some = np.full_like(s, np.inf)
        if self.saved > 0:
            some = (self.room * (mixed - self.least) - self.saved * t * s) / (self.saved * t * self.least)
        k1 = self._stages_up_to(free)
        k2 = np.maximum(k1, self._stages_up_to(some))
        n1, n2, n3 = (self._in_flight(k) for k in (k1, k2, self.rising))
        part = self.saved * t / mixed
        partly = part * (k2 - k1) + (self.room - part * s) / (mixed * self.slope) * np.log((s + mixed * n2) / (s + mixed * n1))
        fully = self.room / (self.least * self.slope) * np.log((s + self.least * n3) / (s + self.least * n2))
        at_cap = np.minimum((self.room + self.saved * self.cap * t) / (s + mixed * self.cap), self.room / (s + self.least * self.cap))
        return np.asarray(k1 * whole + partly + fully + (self.stages - self.rising) * np.minimum(whole, at_cap), dtype=np.float64)

    def _stages_up_to(self, in_flight: Floats) -> Floats:
        return np.asarray(np.clip(np.floor((in_flight - self.first) / self.slope) + 1, 0, self.rising), dtype=np.float64)

    def _in_flight(self, stages: Floats) -> Floats:
        """Micro-batches in flight half a stage beyond so many stages."""
        return self.first + self.slope * (stages - 0.5)
