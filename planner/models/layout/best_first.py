"""The branch-and-bound search for the fastest layout: nodes are priced in order of their bounds until none can win."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from planner.models.layout.bounds import (
    ColumnFilter,
    ColumnKey,
    KnownBounds,
    RemainingColumns,
    bound_columns,
    bound_strategy,
    column_table,
)
from planner.models.layout.candidates import CountRanges
from planner.models.layout.columns import Column, ColumnTable, Flags, Ints, max_counts
from planner.models.layout.data import LayerStrategy, Problem, list_layer_strategies, with_send_times
from planner.models.layout.nodes import NARROW_RATIO, BestFirstQueue, Leaf
from planner.models.layout.pricing import Solution, price_column
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Stop

# Layer strategies whose columns join the queue at once: an early incumbent then excludes most of the others unbounded.
STRATEGIES_AT_ONCE = 8
LEAVES_PER_STEP = (
    2  # priced before more columns join: the first is rarely the best, later ones are better priced at the end
)
# Of the incumbent. Known bounds that mostly lie below exclude little here and nothing from faster problems to come.
USEFUL_BOUND = 1.08
SAMPLED_PIPELINES = 12  # on which layer strategies are compared at first: enough to order them, a fraction of the table


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search leaves: its best layout, the proven bound, and the columns that it priced."""

    best: Solution | None
    bound: float
    stop: Stop
    expanded: list[Column]
    queue: BestFirstQueue
    layer_strategies: list[LayerStrategy]  # of the space
    known_bounds: KnownBounds | None = None  # on all columns


@dataclass(slots=True, kw_only=True)
class Search:
    """A search under way."""

    problem: Problem
    deadline: Deadline
    progress: Callable[[str], None] | None
    exact_tolerance: float = 1.0  # of the incumbent: columns under it are searched to their optimum
    known_bounds: KnownBounds | None = None  # that earlier searches proved
    remaining: RemainingColumns | None = None  # columns that these bounds do not exclude
    layer_strategies: list[LayerStrategy] = field(default_factory=list)
    strategy_index: dict[int, int] = field(default_factory=dict)  # by the identity of a layer strategy
    best: Solution | None = None
    column: Column | None = None  # of the best
    expanded: dict[tuple[int, int], Column] = field(default_factory=dict)
    column_bounds: dict[tuple[int, int], float] = field(default_factory=dict)  # of the expanded columns
    unsearched_bound: float = math.inf  # of a node that the time limit cut short

    @property
    def stopped(self) -> bool:
        """Whether the time is out; the first layout is waited for."""
        return self.best is not None and self.deadline.passed

    @property
    def target(self) -> float:
        """Seconds per sequence that a better layout must be under."""
        return self.best.seconds if self.best else math.inf

    @property
    def cutoff(self) -> float:
        """Seconds per sequence under which layouts are searched."""
        return self.target * self.exact_tolerance

    def take(self, leaf: Leaf, bound: float) -> None:
        """Price a leaf; no layout of the space is under `bound`."""
        self.expanded.setdefault(leaf.key, leaf.column)
        proven = self.price(leaf, bound)
        self.column_bounds[leaf.key] = min(proven, self.column_bounds.get(leaf.key, math.inf))
        if self.stopped:
            self.unsearched_bound = min(self.unsearched_bound, leaf.column.bound)

    def price(self, leaf: Leaf, bound: float) -> float:
        """Search a leaf for a better layout and return what none of it is under; none of the space is under `bound`."""
        cutoff = self.cutoff
        better = price_column(self.problem, leaf.column, cutoff, lambda: self.stopped, leaf.ranges)
        if better is not None and better.seconds < self.target:
            self._accept(better, leaf.column, bound)
        return cutoff if better is None else better.seconds

    def _accept(self, better: Solution, column: Column, bound: float) -> None:
        """Make a layout the incumbent."""
        self.best, self.column = better, column
        if self.progress is not None:
            strategy = better.strategy
            sequences = strategy.data_parallel * strategy.micro_batches * strategy.micro_batch
            low = min(bound, better.seconds)
            steps = f"incumbent {better.seconds * sequences:.4g} s/step, bound {low * sequences:.4g}"
            self.progress(f"layout: {steps}, gap {1 - low / better.seconds:.1%}")

    def filter_of(self, strategies: list[LayerStrategy]) -> ColumnFilter | None:
        """Return the filter that keeps the remaining columns of some layer strategies; None where all remain."""
        remaining = self.remaining
        if remaining is None:
            return None
        indices = [self.strategy_index[id(s)] for s in strategies]
        return lambda index, *column: remaining.select(indices[index], *column)


def search(
    problem: Problem,
    *,
    time_limit: float | None = None,
    progress: Callable[[str], None] | None = None,
    table: ColumnTable | None = None,
    warm_starts: Sequence[ParallelStrategy] = (),
    layer_strategies: list[LayerStrategy] | None = None,
    known_bounds: KnownBounds | None = None,
    bound_tolerance: float = 1.0,
    exact_tolerance: float = 1.0,
) -> SearchResult:
    """Find the fastest layout by pricing nodes in order of their bounds until none can beat the incumbent.

    Parameters
    ----------
    table : columns to search, where not all.
    warm_starts : layouts of similar problems, whose columns are priced first.
    layer_strategies, known_bounds : all layer strategies and bounds on their columns, where earlier searches left them.
    bound_tolerance : of the incumbent; bounds of slower columns are not worked out.
    exact_tolerance : of the incumbent; columns under it are searched to their optimum.
    """
    run = Search(
        problem=problem,
        deadline=Deadline(time_limit),
        progress=progress,
        exact_tolerance=exact_tolerance,
        known_bounds=known_bounds,
    )
    queue = BestFirstQueue(problem, bound_tolerance=bound_tolerance, stopped=lambda: run.stopped)
    unqueued_bound = math.inf
    if table is None:
        run.layer_strategies = list_layer_strategies(problem) if layer_strategies is None else layer_strategies
        _price_warm_starts(run, warm_starts)
        unqueued_bound = _fill_queue(run, queue)
    else:
        run.layer_strategies = table.layer_strategies
        queue.add(table)
    queue.cutoff = run.cutoff
    for leaf in queue:
        run.take(leaf, min(leaf.column.bound, queue.bound, unqueued_bound))
        queue.cutoff = run.cutoff
    bound = min(run.unsearched_bound, queue.bound, unqueued_bound, run.target)
    proved = bound >= run.target
    expanded = [column for column in run.expanded.values() if column.bound < run.target]
    missing = run.best is not None and not any(is_column_of(c, run.best.strategy) for c in expanded)
    if missing and run.column is not None:
        expanded.append(run.column)
    return SearchResult(
        best=run.best,
        bound=bound,
        stop=Stop.PROVED if proved else Stop.LIMIT,
        expanded=expanded,
        queue=queue,
        layer_strategies=run.layer_strategies,
        known_bounds=_proven_bounds(run, queue) if table is None and proved else None,
    )


def _proven_bounds(run: Search, queue: BestFirstQueue) -> KnownBounds:
    """Return what a finished search proves of columns: one that left the queue is as slow as its discard bound."""
    pairs = np.full((len(run.layer_strategies), run.problem.machine.model.layers + 1), queue.discard_bound)
    extra = run.remaining.extra if run.remaining is not None else ()
    columns: dict[ColumnKey, float] = dict.fromkeys(extra, queue.discard_bound)
    for at, column in run.expanded.items():
        index = run.strategy_index[id(column.layer_strategy)]
        key = index, column.zero_stage, column.pipeline, column.virtual_stages, column.filled
        # Other nodes of the column may have been dropped.
        columns[key] = min(run.column_bounds[at], queue.discard_bound)
    single = {key[:2] for key in columns}
    for table, nodes, bounds in queue.remaining():
        layer_strategy, zero_stage = table.strategy_at(int(nodes[0]))
        index = run.strategy_index[id(layer_strategy)]
        rest = np.ones(len(nodes), dtype=bool)
        for i, n in enumerate(nodes.tolist() if (index, zero_stage) in single else ()):
            key = index, zero_stage, int(table.pipeline[n]), int(table.virtual_stages[n]), bool(table.filled[n])
            if key in columns:
                columns[key], rest[i] = min(columns[key], float(bounds[i])), False
        np.minimum.at(pairs[index], table.pipeline[nodes[rest]], bounds[rest])
    new = KnownBounds(pairs, columns)
    if run.known_bounds is None or run.remaining is None:
        return new
    return run.known_bounds.updated(new, run.remaining)


def _price_warm_starts(run: Search, warm_starts: Sequence[ParallelStrategy]) -> None:
    """Price the nodes of each warm start until one is better than the incumbent."""
    for strategy in warm_starts:
        before, bound = run.best, min(bound_strategy(run.problem, s) for s in run.layer_strategies)
        for leaf in _leaves_of(run, strategy):
            run.price(leaf, bound)
            if run.best is not before:
                break


def _fill_queue(run: Search, queue: BestFirstQueue) -> float:
    """Queue columns, a few layer strategies at a time, and price the first leaves; return a bound on those left out."""
    known = run.known_bounds
    if known is not None and (run.cutoff == math.inf or known.mostly_under(run.target * USEFUL_BOUND)):
        run.known_bounds = known = None
    run.remaining = None if known is None else known.remaining(run.target)
    indices = np.arange(len(run.layer_strategies)) if run.remaining is None else run.remaining.strategies
    strategies = [with_send_times(run.problem, run.layer_strategies[i]) for i in indices]
    run.strategy_index = {id(s): int(i) for s, i in zip(strategies, indices, strict=True)}
    if run.cutoff == math.inf:
        strategies = _by_sampled_bound(run.problem, strategies)
    bounds = [bound_strategy(run.problem, s) for s in strategies]
    for k in range(0, len(strategies), STRATEGIES_AT_ONCE):
        if run.stopped:
            return min(bounds[k:])
        some = strategies[k : k + STRATEGIES_AT_ONCE]
        cutoff = run.cutoff * queue.bound_tolerance
        queue.add(column_table(run.problem, some, cutoff=cutoff, keep=run.filter_of(some)))
        queue.cutoff = run.cutoff
        for priced, leaf in enumerate(queue, start=1):
            run.take(leaf, min(bounds))
            queue.cutoff = run.cutoff
            if run.cutoff < math.inf and priced >= LEAVES_PER_STEP:
                break
    return math.inf


def _leaves_of(run: Search, strategy: ParallelStrategy) -> Iterator[Leaf]:
    """Yield nodes of a layout's columns: those with about the most replicas, then all while there is no incumbent."""
    for layer_strategy in run.layer_strategies:
        shape = layer_strategy.shape
        same = shape.tensor_parallel == strategy.tensor_parallel and shape.micro_batch == strategy.micro_batch
        if not same or layer_strategy.schedule != strategy.schedule:
            continue
        here = with_send_times(run.problem, layer_strategy)
        table = column_table(run.problem, [here], keep=partial(_matches, strategy))
        own = [i for i in range(len(table)) if is_column_of(table.column(i, 0.0), strategy)]
        for i in own:
            most = int(max_counts(run.problem, layer_strategy, table.pipeline[[i]], table.filled[[i]])[0][0])
            ranges = CountRanges(
                replicas=(max(1, int(most / NARROW_RATIO)), most),
                micro_batches=(strategy.micro_batches, strategy.micro_batches),
            )
            yield Leaf(key=(0, i), column=table.column(i, float(table.bound[i])), ranges=ranges)
        if run.best is None:
            yield from BestFirstQueue(run.problem, table.select(np.array(own, dtype=np.int64)))


def _matches(strategy: ParallelStrategy, _: int, zero_stage: int, p: Ints, v: Ints, filled: Flags) -> Flags:
    """Return which pipelines have the stages and the ZeRO stage of a layout."""
    same = (
        (p == strategy.pipeline_parallel) & (v == strategy.virtual_stages) & (filled == (strategy.micro_batches >= p))
    )
    return np.asarray(same & (zero_stage == strategy.zero_stage))


def _by_sampled_bound(problem: Problem, strategies: list[LayerStrategy]) -> list[LayerStrategy]:
    """Order layer strategies by their bounds on a sample of pipelines, those that may fit memory first."""
    layers = problem.machine.model.layers
    stages = problem.options("pipeline_parallel", range(1, layers + 1))
    last = len(stages) - 1
    sampled = {stages[min(last, len(stages) * k // SAMPLED_PIPELINES)] for k in range(SAMPLED_PIPELINES) if stages}
    if stages:
        sampled |= {stages[0], stages[-1]}
    pairs = sorted({(p, v) for p in sampled for v in (1, layers // p) if p > 1 or v == 1})
    p, v = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    options = problem.options("zero_stage", range(4))
    zero_stages = sorted({options[min(1, len(options) - 1)], options[-1]}) if options else []

    def sampled_bound(strategy: LayerStrategy) -> float:
        own = (p > 1) | (not strategy.packed)
        own &= (v == 1) | (strategy.schedule == "1f1b")
        filled, low = np.ones(int(own.sum()), dtype=bool), math.inf
        for zero_stage in zero_stages:
            bound, possible, fits = bound_columns(problem, strategy, zero_stage, p[own], v[own], filled)
            low = float(np.min(bound, initial=low, where=possible & fits))
        return low

    return sorted(strategies, key=sampled_bound)


def is_column_of(column: Column, strategy: ParallelStrategy) -> bool:
    """Return whether a layout belongs to a column."""
    own, full = column.layer_strategy, strategy.recompute == "full"
    shape = replace(strategy.shape, recompute=own.shape.recompute if full else strategy.recompute)
    return (shape == own.shape and (not full or own.recomputes != "none")) and (
        strategy.pipeline_parallel,
        strategy.virtual_stages,
        strategy.micro_batches >= strategy.pipeline_parallel,
        strategy.zero_stage,
        strategy.schedule,
        strategy.stages_per_rack,
    ) == (
        column.pipeline,
        column.virtual_stages,
        column.filled,
        column.zero_stage,
        own.schedule,
        column.stages_per_rack,
    )
