"""The rows of the space in order of their bounds, sharpened by what memory asks for, and no earlier than needed."""

import heapq
import math
from collections.abc import Iterator

import numpy as np

from planner.models.layout_question import Base, Problem
from planner.models.layout_space import Flags, Floats, Ints, Row, RowTable, bound_over_replicas, least_layer, most_counts
from planner.physics import schedule, step

BLOCK = 64, 2048  # rows sharpened at first, and at most at a time
HALVINGS = 40


class Queue:
    """Rows in order of sharpened bounds: a block of the table is sharpened when its own bounds come up."""

    def __init__(self, problem: Problem, table: RowTable) -> None:
        self.problem, self.table = problem, table
        self._next, self._size = 0, BLOCK[0]
        self._heap: list[tuple[float, int]] = []
        self.hopeless = 0

    @property
    def bound(self) -> float:
        """No row still to come is under this."""
        waiting = float(self.table.bound[self._next]) if self._next < len(self.table) else math.inf
        return min(waiting, self._heap[0][0] if self._heap else math.inf)

    def __iter__(self) -> Iterator[Row]:
        """Yield every row that memory does not rule out."""
        while True:
            while self._next < len(self.table) and (not self._heap or self.table.bound[self._next] < self._heap[0][0]):
                self._sharpen()
            if not self._heap:
                return
            bound, i = heapq.heappop(self._heap)
            yield self.table.row(i, bound)

    def _sharpen(self) -> None:
        which = np.arange(self._next, min(self._next + self._size, len(self.table)))
        bounds = self.table.bound[which] if self.table.sharp else sharpened(self.problem, self.table, which)
        for i, bound in zip(which, bounds, strict=True):
            if math.isfinite(bound):
                heapq.heappush(self._heap, (float(bound), int(i)))
        self.hopeless += int(np.sum(~np.isfinite(bounds)))
        self._next, self._size = self._next + len(which), min(2 * self._size, BLOCK[1])


def sharpened(problem: Problem, table: RowTable, which: Ints) -> Floats:
    """Bound rows again with the least time of a stage in which memory holds all layers; infinite where it never does."""
    found = table.bound[which].copy()
    if problem.pin("layers_per_stage") is not None or problem.pin("recomputed_layers_per_stage") is not None:
        return found
    keys = np.stack([table.base[which], table.zero[which]])
    for index, zero in sorted({(int(a), int(b)) for a, b in keys.T}):
        own = np.flatnonzero((keys[0] == index) & (keys[1] == zero))
        base, p, v, filled = table.bases[index], table.pipeline[which[own]], table.virtual_stages[which[own]], table.filled[which[own]]
        replicas, batches = most_counts(problem, base, p, filled)
        at_most = np.maximum(replicas, 1)
        layer = least_layer(problem, base, zero, p, at_most // 2 + 1)
        floor = least_stage(problem, base, zero, p, v, filled, at_most, layer)
        found[own] = np.maximum(found[own], bound_over_replicas(problem, base, zero, p, v, batches, at_most, floor))
    return found


def least_stage(problem: Problem, base: Base, zero: int, p: Ints, v: Ints, filled: Flags, replicas: Ints, layer: Floats) -> Floats:
    """Return the least time of the largest stage, its layers taken as divisible: by bisection, since what the stages hold grows with it.

    In a time S a stage recomputes at most (S - l·x)/y layers, so memory lets it hold l layers with
    l·(s + n·a) <= room + n·(a - c)·(S - l·x)/y, and never more than S/x or, all recomputed, room/(s + n·c).
    """
    m = problem.machine
    layers, x, y = m.model.layers, layer[:, None], base.times.again
    state = step.held_state_bytes(m, base.shape, base.weights, layers=1, ends=0, zero_stage=zero, replicas=replicas)
    s = np.broadcast_to(np.asarray(state, dtype=np.float64), p.shape)[:, None]
    stage = np.arange(int(p.max()))[None, :]
    batches = np.where(filled, p, 1)[:, None]
    chunks = schedule.chunks_in_flight(base.order, np.minimum(stage, p[:, None] - 1), p[:, None], v[:, None], batches)
    n = np.broadcast_to(np.asarray(chunks), (len(p), stage.shape[1])) / v[:, None]
    gathered = 2 * base.weights.layer * m.precision.working_parameter_bytes if zero >= 3 else 0.0
    inside, room, kept, checkpoint = stage < p[:, None], problem.memory_limit - gathered, base.bytes.kept, base.bytes.checkpoint

    def held(seconds: Floats) -> Floats:
        t = seconds[:, None]
        if base.recomputes == "none":
            most = np.minimum(t / x, room / (s + n * kept))
        elif base.recomputes == "all":
            most = np.minimum(t / (x + y), room / (s + n * checkpoint))
        else:
            saved = n * max(0.0, kept - checkpoint) / y
            some = np.minimum((room + saved * t) / (s + n * kept + saved * x), room / (s + n * min(kept, checkpoint)))
            most = np.minimum(t / x, np.maximum(some, room / (s + n * kept)))
        return np.asarray(np.where(inside, most, 0.0).sum(axis=1), dtype=np.float64)

    low, high = layers / p * layer, layers * (layer + y) * (1 + 1e-9)
    possible = held(high) >= layers
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = held(middle) >= layers
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(possible, low, np.inf)
