"""The rows of the space in order of their bounds, taken apart by their counts of replicas and micro-batches, and no earlier than needed."""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.models.layout_cells import Cells, bounded, narrow, split, whole
from planner.models.layout_counts import Span
from planner.models.layout_question import Problem
from planner.models.layout_space import Floats, Ints, Row, RowTable

FIRST = 128  # cells split at once while there is no layout
AT_ONCE = 1024  # and with one


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A row, told apart by its key, with narrow ranges of its counts; the row's bound is that of these."""

    key: tuple[int, int]
    row: Row
    span: Span


class Queue:
    """Narrow parts of the rows of tables in order of their bounds: rows are bounded by all their counts, then split, when their own bounds come up.

    `cutoff`, which may fall on the way: parts that are as slow are not yielded, and dropped where they are slower by `margin`.
    `over`: says when to stop short.
    """

    def __init__(self, problem: Problem, *tables: RowTable, margin: float = 1.0, over: Callable[[], bool] = lambda: False) -> None:
        self.problem, self.cutoff, self.margin, self.over = problem, math.inf, margin, over
        self.tables: list[RowTable] = []
        self.hopeless = 0
        self._heap: list[tuple[float, int, int, Any]] = []
        self._number = itertools.count()
        for table in tables:
            self.add(table)

    def add(self, table: RowTable) -> None:
        """Take in the rows of a table, those of a way to cut a layer and a ZeRO stage together."""
        self.tables.append(table)
        keys = table.base * 4 + table.zero
        order = np.argsort(keys, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(order) else ():
            self._push(float(table.bound[own].min()), len(self.tables) - 1, own)

    def _push(self, bound: float, table: int, held: Any) -> None:
        heapq.heappush(self._heap, (bound, next(self._number), table, held))

    @property
    def bound(self) -> float:
        """No row still to come is under this."""
        return self._heap[0][0] if self._heap else math.inf

    @property
    def reach(self) -> float:
        """What is as slow as this is dropped."""
        return self.cutoff * self.margin

    def left(self) -> Iterator[tuple[RowTable, Ints, Floats]]:
        """Yield what is still held: rows of a table, all of one way to cut a layer and one ZeRO stage, and the bounds of parts of them."""
        for bound, _, number, held in self._heap:
            table = self.tables[number]
            if isinstance(held, Cells):
                yield table, held.row, held.bound
            elif isinstance(held, tuple):
                yield table, np.array([held[0]]), np.array([bound])
            else:
                yield table, held, table.bound[held]

    def __iter__(self) -> Iterator[Leaf]:
        """Yield every part of a row that memory does not rule out and that is under the cutoff."""
        while self._heap and self.bound < self.cutoff and not self.over():
            bound, _, table, held = heapq.heappop(self._heap)
            if isinstance(held, Cells):
                self._split(table, held)
            elif isinstance(held, tuple):
                index, span = held
                yield Leaf(key=(table, index), row=self.tables[table].row(index, bound), span=span)
            else:
                self._take(table, held)

    def _take(self, number: int, rows: Ints) -> None:
        """Bound rows of one way to cut a layer by all their counts together."""
        table = self.tables[number]
        self._put_off(number, rows, table.bound[rows])
        rows = rows[table.bound[rows] < self.cutoff]
        if len(rows):
            cells = whole(self.problem, table, rows, self.reach)
            possible = bounded(self.problem, table, cells, math.inf)
            self.hopeless += len(cells) - len(possible)
            self._keep(number, possible.part(possible.bound < self.reach))

    def _put_off(self, number: int, held: Any, bound: Floats) -> None:
        """Push what is as slow as the cutoff but may be asked for by another question."""
        which = (bound >= self.cutoff) & (bound < self.reach)
        if which.any():
            self._push(float(bound[which].min()), number, held.part(which) if isinstance(held, Cells) else held[which])

    def _split(self, number: int, cells: Cells) -> None:
        """Split the best of some cells."""
        self._put_off(number, cells, cells.bound)
        cells = cells.part(cells.bound < self.cutoff)
        most = AT_ONCE if math.isfinite(self.cutoff) else FIRST
        if len(cells) > most:
            order = np.argpartition(cells.bound, most)
            self._keep(number, cells.part(order[most:]))
            cells = cells.part(order[:most])
        if len(cells):
            table = self.tables[number]
            self._keep(number, bounded(self.problem, table, split(self.problem, table, cells), self.reach))

    def _keep(self, number: int, cells: Cells) -> None:
        ripe = narrow(self.tables[number], cells)
        for i in np.flatnonzero(ripe):
            replicas, batches = (int(cells.fewest[i]), int(cells.most[i])), (int(cells.shallowest[i]), int(cells.deepest[i]))
            self._push(float(cells.bound[i]), number, (int(cells.row[i]), Span(replicas=replicas, batches=batches)))
        rest = cells.part(~ripe)
        if len(rest):
            self._push(float(rest.bound.min()), number, rest)
