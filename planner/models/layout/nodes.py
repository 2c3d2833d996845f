"""Branch-and-bound nodes, columns with ranges of replicas and micro-batches: bounded, branched, queued best first."""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from planner.models.layout.bounds import bound_ranges, min_layer_seconds
from planner.models.layout.candidates import CountRanges
from planner.models.layout.columns import Column, ColumnTable, Flags, Floats, Ints, max_counts, max_replicas_by_site
from planner.models.layout.data import LayerStrategy, Problem
from planner.models.layout.memory_bounds import min_stage_of_divisible_layers, min_stage_of_whole_layers

# Ratio of a range's ends from which on its counts are enumerated: branching further costs more than timing them all.
NARROW_RATIO = 1.05
# Nodes branched at once. Numpy needs many to pay; before an incumbent cuts them off few, so that it is found soon.
BATCH_WITHOUT_INCUMBENT = 128
BATCH = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Nodes of columns of one layer strategy and one ZeRO stage, as arrays: ranges of counts with a lower bound."""

    column: Ints  # index in the table
    min_replicas: Ints
    max_replicas: Ints
    min_micro_batches: Ints
    max_micro_batches: Ints
    bound: Floats

    def __len__(self) -> int:
        return len(self.column)

    def select(self, which: Any) -> "Nodes":
        """Return some of the nodes."""
        return Nodes(**{f.name: getattr(self, f.name)[which] for f in fields(self)})


def is_narrow(table: ColumnTable, nodes: Nodes) -> Flags:
    """Return which nodes need no more branching; in a filled pipeline the micro-batches follow from the replicas."""
    narrow = table.filled[nodes.column] | (nodes.max_micro_batches <= nodes.min_micro_batches * NARROW_RATIO)
    return np.asarray((nodes.max_replicas <= nodes.min_replicas * NARROW_RATIO) & narrow)


def root_nodes(problem: Problem, table: ColumnTable, columns: Ints, cutoff: float) -> Nodes:
    """Return the nodes that span all counts of some columns that could be under the cutoff.

    In a filled pipeline replicas take the micro-batches that the batch leaves them.
    """
    strategy, _ = table.strategy_at(columns[0])
    p, filled = table.pipeline[columns], table.filled[columns]
    high, _ = max_counts(problem, strategy, p, filled)
    stage = np.ceil(problem.machine.model.layers / p) * strategy.min_layer_seconds
    fast_enough = np.floor(stage / (cutoff * strategy.shape.micro_batch)).astype(np.int64)
    every_site = problem.pin("data_parallel_by_site") is None and not problem.shared
    sites = (max_replicas_by_site(problem, strategy, p) > 0).sum(axis=0) if every_site else 1
    low = np.maximum(np.maximum(1, sites), fast_enough)
    first, last = np.where(filled, p, 1), np.full(len(columns), np.iinfo(np.int64).max)
    replicas, micro_batches = problem.pin("data_parallel"), problem.pin("microbatches_per_step")
    if replicas is not None:
        low, high = np.maximum(low, replicas), np.minimum(high, replicas)
    if micro_batches is not None:
        first, last = np.maximum(first, micro_batches), np.minimum(last, micro_batches)
    return _within_batch(problem, table, strategy, columns, low, high, first, last)


def branch(problem: Problem, table: ColumnTable, nodes: Nodes) -> Nodes:
    """Branch every node in two, at the middle of the wider of its ranges."""
    strategy, _ = table.strategy_at(nodes.column[0])
    low, high, first, last = nodes.min_replicas, nodes.max_replicas, nodes.min_micro_batches, nodes.max_micro_batches
    on_micro_batches = ~table.filled[nodes.column] & (last / first > high / low)
    middle = np.sqrt(np.where(on_micro_batches, first * 1.0 * last, low * 1.0 * high)).astype(np.int64)
    return _within_batch(
        problem,
        table,
        strategy,
        np.concatenate([nodes.column, nodes.column]),
        np.concatenate([low, np.where(on_micro_batches, low, middle + 1)]),
        np.concatenate([np.where(on_micro_batches, high, middle), high]),
        np.concatenate([first, np.where(on_micro_batches, middle + 1, first)]),
        np.concatenate([np.where(on_micro_batches, middle, last), last]),
    )


def _within_batch(
    problem: Problem,
    table: ColumnTable,
    strategy: LayerStrategy,
    columns: Ints,
    low: Ints,
    high: Ints,
    first: Ints,
    last: Ints,
) -> Nodes:
    """Narrow ranges of replicas (low, high) and micro-batches (first, last) to the batch; drop empty ones."""
    total = problem.max_sequences // strategy.shape.micro_batch
    last = np.minimum(last, np.where(table.filled[columns], total, table.pipeline[columns] - 1))
    some = (low <= high) & (low * first <= total)
    columns, low, high, first, last = (x[some] for x in (columns, low, high, first, last))
    high, last = np.minimum(high, total // first), np.minimum(last, total // low)
    some = first <= last
    columns, low, high, first, last = (x[some] for x in (columns, low, high, first, last))
    return Nodes(
        column=columns,
        min_replicas=low,
        max_replicas=high,
        min_micro_batches=first,
        max_micro_batches=last,
        bound=np.zeros(len(columns)),
    )


def bound_nodes(problem: Problem, table: ColumnTable, nodes: Nodes, cutoff: float) -> Nodes:
    """Bound nodes and return those under the cutoff.

    By even stages, then by the stages that memory allows: of divisible layers, and of whole ones where nodes are
    narrow.
    """
    if not len(nodes):
        return nodes
    strategy, zero_stage = table.strategy_at(nodes.column[0])
    nodes = _raise_bounds(problem, table, nodes, np.arange(len(nodes)), np.zeros(len(nodes)), cutoff)
    for min_stage in (min_stage_of_divisible_layers, min_stage_of_whole_layers):
        divisible = min_stage is min_stage_of_divisible_layers
        which = np.arange(len(nodes)) if divisible else np.flatnonzero(is_narrow(table, nodes))
        n = nodes.select(which)
        if not len(n):
            continue
        p, v = table.pipeline[n.column], table.virtual_stages[n.column]
        layer = min_layer_seconds(problem, strategy, zero_stage, p, n.min_replicas)
        seconds = min_stage(problem, strategy, zero_stage, p, v, n.min_micro_batches, n.max_replicas, layer)
        if np.any(seconds):
            nodes = _raise_bounds(problem, table, nodes, which[seconds > 0], seconds[seconds > 0], cutoff)
    return nodes


def _raise_bounds(
    problem: Problem, table: ColumnTable, nodes: Nodes, which: Ints, stage_seconds: Floats, cutoff: float
) -> Nodes:
    """Bound some of the nodes by the least time of their largest stages; return all nodes still under the cutoff."""
    strategy, zero_stage = table.strategy_at(nodes.column[0])
    n, bound = nodes.select(which), nodes.bound.copy()
    fits = np.isfinite(stage_seconds)
    raised = bound_ranges(
        problem,
        strategy,
        zero_stage,
        table.pipeline[n.column],
        table.virtual_stages[n.column],
        min_replicas=n.min_replicas,
        max_replicas=n.max_replicas,
        max_micro_batches=n.max_micro_batches,
        min_stage_seconds=np.where(fits, stage_seconds, 0.0),
    )
    bound[which] = np.where(fits, np.maximum(bound[which], raised), np.inf)
    return replace(nodes, bound=bound).select(bound < cutoff)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A narrow node, ready to be priced: a column with the node's bound, and its ranges of counts."""

    key: tuple[int, int]  # of the column: its table in the queue, its index there
    column: Column
    ranges: CountRanges


class BestFirstQueue:
    """The open nodes of the columns of tables, in order of their bounds.

    A column is bounded by all its counts, then branched, when its own bound comes up. Nodes as slow as `cutoff`, which
    may fall on the way, are not yielded; they are dropped where they are slower by `bound_tolerance`. `stopped`: when
    to stop short.
    """

    def __init__(
        self,
        problem: Problem,
        *tables: ColumnTable,
        bound_tolerance: float = 1.0,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.problem, self.cutoff, self.bound_tolerance, self.stopped = problem, math.inf, bound_tolerance, stopped
        self.tables: list[ColumnTable] = []
        self.over_memory = 0
        self._heap: list[tuple[float, int, int, Any]] = []
        self._number = itertools.count()
        for table in tables:
            self.add(table)

    def add(self, table: ColumnTable) -> None:
        """Queue the columns of a table, those of one layer strategy and one ZeRO stage together."""
        self.tables.append(table)
        keys = table.strategy_index * 4 + table.zero_stage
        order = np.argsort(keys, kind="stable")
        for columns in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(order) else ():
            self._push(float(table.bound[columns].min()), len(self.tables) - 1, columns)

    def _push(self, bound: float, table: int, entry: Any) -> None:
        """Push columns, nodes, or one narrow node (its column and ranges)."""
        heapq.heappush(self._heap, (bound, next(self._number), table, entry))

    @property
    def bound(self) -> float:
        """The least bound of an open node."""
        return self._heap[0][0] if self._heap else math.inf

    @property
    def discard_bound(self) -> float:
        """The bound from which on nodes are dropped."""
        return self.cutoff * self.bound_tolerance

    def remaining(self) -> Iterator[tuple[ColumnTable, Ints, Floats]]:
        """Yield the open nodes: columns of a table, all of one layer strategy and ZeRO stage, with their bounds."""
        for bound, _, number, entry in self._heap:
            table = self.tables[number]
            if isinstance(entry, Nodes):
                yield table, entry.column, entry.bound
            elif isinstance(entry, tuple):
                yield table, np.array([entry[0]]), np.array([bound])
            else:
                yield table, entry, table.bound[entry]

    def __iter__(self) -> Iterator[Leaf]:
        """Yield every narrow node that memory does not rule out and that is under the cutoff."""
        while self._heap and self.bound < self.cutoff and not self.stopped():
            bound, _, table, entry = heapq.heappop(self._heap)
            if isinstance(entry, Nodes):
                self._branch(table, entry)
            elif isinstance(entry, tuple):
                index, ranges = entry
                yield Leaf(key=(table, index), column=self.tables[table].column(index, bound), ranges=ranges)
            else:
                self._expand_columns(table, entry)

    def _expand_columns(self, number: int, columns: Ints) -> None:
        """Bound columns of one layer strategy by all their counts together."""
        table = self.tables[number]
        self._defer(number, columns, table.bound[columns])
        columns = columns[table.bound[columns] < self.cutoff]
        if len(columns):
            nodes = root_nodes(self.problem, table, columns, self.discard_bound)
            possible = bound_nodes(self.problem, table, nodes, math.inf)
            self.over_memory += len(nodes) - len(possible)
            self._push_nodes(number, possible.select(possible.bound < self.discard_bound))

    def _defer(self, number: int, entry: Any, bound: Floats) -> None:
        """Push back what is as slow as the cutoff, but whose bounds later problems may need."""
        which = (bound >= self.cutoff) & (bound < self.discard_bound)
        if which.any():
            rest = entry.select(which) if isinstance(entry, Nodes) else entry[which]
            self._push(float(bound[which].min()), number, rest)

    def _branch(self, number: int, nodes: Nodes) -> None:
        """Branch the best of some nodes."""
        self._defer(number, nodes, nodes.bound)
        nodes = nodes.select(nodes.bound < self.cutoff)
        most = BATCH if math.isfinite(self.cutoff) else BATCH_WITHOUT_INCUMBENT
        if len(nodes) > most:
            order = np.argpartition(nodes.bound, most)
            self._push_nodes(number, nodes.select(order[most:]))
            nodes = nodes.select(order[:most])
        if len(nodes):
            table = self.tables[number]
            branched = branch(self.problem, table, nodes)
            self._push_nodes(number, bound_nodes(self.problem, table, branched, self.discard_bound))

    def _push_nodes(self, number: int, nodes: Nodes) -> None:
        """Push the narrow nodes one by one, and the others together."""
        narrow = is_narrow(self.tables[number], nodes)
        for i in np.flatnonzero(narrow):
            ranges = CountRanges(
                replicas=(int(nodes.min_replicas[i]), int(nodes.max_replicas[i])),
                micro_batches=(int(nodes.min_micro_batches[i]), int(nodes.max_micro_batches[i])),
            )
            self._push(float(nodes.bound[i]), number, (int(nodes.column[i]), ranges))
        rest = nodes.select(~narrow)
        if len(rest):
            self._push(float(rest.bound.min()), number, rest)
