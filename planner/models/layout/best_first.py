"""The rows of the space in order of their bounds, taken apart by their counts of replicas and micro-batches, and no earlier than needed."""

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from planner.models.layout.bounds import NARROW, Cells, bounded, narrow, split, whole
from planner.models.layout.columns import Flags, Floats, Ints, Row, RowTable, Select, most_counts, row_bounds, row_table
from planner.models.layout.columns_dp_microbatch import Span
from planner.models.layout.data import LayerStrategy, Problem, at_hops, layer_strategies
from planner.models.layout.known_bounds import Floors, Key, Wanted
from planner.models.layout.pricing import Best, best_of_row
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.solvers.outcome import Stop

FIRST = 128  # cells split at once while there is no layout
ROWS_AT_ONCE = 1024  # and with one


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

    def __init__(
        self, problem: Problem, *tables: RowTable, margin: float = 1.0, over: Callable[[], bool] = lambda: False
    ) -> None:
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
        most = ROWS_AT_ONCE if math.isfinite(self.cutoff) else FIRST
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
            replicas, batches = (
                (int(cells.fewest[i]), int(cells.most[i])),
                (int(cells.shallowest[i]), int(cells.deepest[i])),
            )
            self._push(float(cells.bound[i]), number, (int(cells.row[i]), Span(replicas=replicas, batches=batches)))
        rest = cells.part(~ripe)
        if len(rest):
            self._push(float(rest.bound.min()), number, rest)


STRATEGIES_AT_ONCE = 8  # ways to cut a layer whose rows are bounded before the best of them are opened
TRIES = 2  # parts of them that are opened while the table grows
AHEAD = 1.08  # of the incumbent: floors below this are of little use to questions to come
SAMPLES = 12  # pipelines on which ways to cut a layer are compared at first


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What the search holds: the incumbent, the proven bound and where the space went."""

    best: Best | None
    bound: float
    stop: Stop
    opened: list[Row]
    queue: Queue
    seconds: float
    paces: list[LayerStrategy]  # of the space
    floors: Floors | None = None  # that no layout is under


@dataclass(slots=True, kw_only=True)
class Run:
    """A search under way."""

    problem: Problem
    started: float
    time_limit: float | None
    progress: Callable[[str], None] | None
    beyond: float = 1.0  # how far beyond the best layout rows are searched to their end
    known: Floors | None = None  # that searches before this one found
    wanted: Wanted | None = None  # rows that these leave
    paces: list[LayerStrategy] = field(default_factory=list)  # all ways to cut a layer
    number: dict[int, int] = field(default_factory=dict)  # which of them a base is, by its identity
    best: Best | None = None
    row: Row | None = None  # of the best
    opened: dict[tuple[int, int], Row] = field(default_factory=dict)
    floors: dict[tuple[int, int], float] = field(default_factory=dict)  # of the opened rows
    unsearched: float = math.inf  # the bound of a part that the limit cut short

    @property
    def over(self) -> bool:
        """Whether the time is out; the first layout is waited for."""
        return (
            self.best is not None
            and self.time_limit is not None
            and time.perf_counter() - self.started > self.time_limit
        )

    @property
    def target(self) -> float:
        """Seconds per sequence that a better layout must be under."""
        return self.best.seconds if self.best else math.inf

    @property
    def cutoff(self) -> float:
        """Seconds per sequence under which layouts are searched."""
        return self.target * self.beyond

    def take(self, leaf: Leaf, bound: float) -> None:
        """Search a part of a row; `bound`: no layout of the space is under it."""
        self.opened.setdefault(leaf.key, leaf.row)
        floor = self.open(leaf.row, bound, leaf.span)
        self.floors[leaf.key] = min(floor, self.floors.get(leaf.key, math.inf))
        if self.over:
            self.unsearched = min(self.unsearched, leaf.row.bound)

    def open(self, row: Row, bound: float, span: Span | None = None) -> float:
        """Search a row, or a span of its counts, for a better layout; return what none is under. `bound`: none of the space is under it."""
        cutoff = self.cutoff
        better = best_of_row(self.problem, row, cutoff, lambda: self.over, span)
        if better is not None and better.seconds < self.target:
            self._hold(better, row, bound)
        return cutoff if better is None else better.seconds

    def _hold(self, better: Best, row: Row, bound: float) -> None:
        self.best, self.row = better, row
        if self.progress is not None:
            tokens = better.cut.data_parallel * better.cut.micro_batches * better.cut.micro_batch
            low = min(bound, better.seconds)
            self.progress(
                f"layout: incumbent {better.seconds * tokens:.4g} s/step, bound {low * tokens:.4g}, gap {1 - low / better.seconds:.1%}"
            )


def search(
    problem: Problem,
    *,
    time_limit: float | None = None,
    progress: Callable[[str], None] | None = None,
    table: RowTable | None = None,
    near: Sequence[ParallelStrategy] = (),
    paces: list[LayerStrategy] | None = None,
    floors: Floors | None = None,
    margin: float = 1.0,
    beyond: float = 1.0,
) -> Search:
    """Open rows in order of their bounds until none can beat the incumbent.

    `table`: the rows to search, where not all; `near`: layouts of questions like this one, whose rows are opened first;
    `paces`: all ways to cut a layer, where they are known, `floors`: what was proven of them before; `margin`: how far
    beyond the incumbent to find floors out, and `beyond`: to find them out exactly.
    """
    run = Run(
        problem=problem,
        started=time.perf_counter(),
        time_limit=time_limit,
        progress=progress,
        beyond=beyond,
        known=floors,
    )
    queue, rest = Queue(problem, margin=margin, over=lambda: run.over), math.inf
    if table is None:
        run.paces = layer_strategies(problem) if paces is None else paces
        rest = _start(run, queue, near)
    else:
        queue.add(table)
    queue.cutoff = run.cutoff
    for leaf in queue:
        run.take(leaf, min(leaf.row.bound, queue.bound, rest))
        queue.cutoff = run.cutoff
    bound = min(run.unsearched, queue.bound, rest, run.target)
    opened = [row for row in run.opened.values() if row.bound < run.target]
    if run.best is not None and run.row is not None and not any(is_row_of(row, run.best.cut) for row in opened):
        opened.append(run.row)
    return Search(
        best=run.best,
        bound=bound,
        stop=Stop.PROVED if bound >= run.target else Stop.LIMIT,
        opened=opened,
        queue=queue,
        seconds=time.perf_counter() - run.started,
        paces=table.layer_strategies if table is not None else run.paces,
        floors=_floors(run, queue) if table is None and bound >= run.target else None,
    )


def _floors(run: Run, queue: Queue) -> Floors:
    """Return what a finished search proves of rows: what is held no more is as slow as the queue's reach."""
    pairs = np.full((len(run.paces), run.problem.machine.model.layers + 1), queue.reach)
    rows: dict[Key, float] = dict.fromkeys(run.wanted.more if run.wanted is not None else (), queue.reach)
    for at, row in run.opened.items():
        own = run.number[id(row.base)], row.zero, row.pipeline, row.virtual_stages, row.filled
        rows[own] = min(run.floors[at], queue.reach)  # other parts of the row may have been dropped
    single = {own[:2] for own in rows}
    for table, held, bounds in queue.left():
        way, zero = run.number[id(table.layer_strategies[int(table.base[held[0]])])], int(table.zero[held[0]])
        rest = np.ones(len(held), dtype=bool)
        for i, number in enumerate(held.tolist() if (way, zero) in single else ()):
            own = way, zero, int(table.pipeline[number]), int(table.virtual_stages[number]), bool(table.filled[number])
            if own in rows:
                rows[own], rest[i] = min(rows[own], float(bounds[i])), False
        np.minimum.at(pairs[way], table.pipeline[held[rest]], bounds[rest])
    found = Floors(pairs, rows)
    return found if run.known is None or run.wanted is None else run.known.updated(found, run.wanted)


def _start(run: Run, queue: Queue, near: Sequence[ParallelStrategy]) -> float:
    """Give the queue its rows, a few ways to cut a layer at a time, and open the first parts that come up; return a bound for what it did not get."""
    for cut in near:
        held, low = run.best, min(least_of(run.problem, base) for base in run.paces)
        for leaf in _leaves_of(run, cut):
            run.open(leaf.row, low, leaf.span)
            if run.best is not held:
                break
    if run.known is not None and (run.cutoff == math.inf or run.known.mostly_under(run.target * AHEAD)):
        run.known = None  # of no use, or soon passed by most layouts of questions to come: found out anew
    run.wanted = None if run.known is None else run.known.wanted(run.target)
    own = np.arange(len(run.paces)) if run.wanted is None else run.wanted.ways
    paces = [at_hops(run.problem, run.paces[i]) for i in own]
    run.number = {id(base): int(i) for base, i in zip(paces, own, strict=True)}
    paces = paces if run.cutoff < math.inf else _in_promise(run.problem, paces)
    least = [least_of(run.problem, base) for base in paces]
    for k in range(0, len(paces), STRATEGIES_AT_ONCE):
        if run.over:
            return min(least[k:])
        queue.add(
            row_table(
                run.problem,
                paces[k : k + STRATEGIES_AT_ONCE],
                cutoff=run.cutoff * queue.margin,
                wanted=_select(run, paces[k : k + STRATEGIES_AT_ONCE]),
            )
        )
        queue.cutoff, tries = run.cutoff, 0
        for leaf in queue:
            run.take(leaf, min(least))
            queue.cutoff, tries = run.cutoff, tries + 1
            if run.cutoff < math.inf and tries >= TRIES:
                break
    return math.inf


def _select(run: Run, paces: list[LayerStrategy]) -> Select | None:
    """Return what tells which rows of some ways to cut a layer are wanted; None where all are."""
    wanted = run.wanted
    if wanted is None:
        return None
    return lambda index, zero, p, v, filled: wanted.rows(run.number[id(paces[index])], zero, p, v, filled)


def _leaves_of(run: Run, cut: ParallelStrategy) -> Iterator[Leaf]:
    """Yield the parts of the rows that a layout belongs to: with as many replicas as fit or few less, then, without any layout yet, all of them."""
    for base in run.paces:
        if (
            base.shape.tensor_parallel == cut.tensor_parallel
            and base.shape.micro_batch == cut.micro_batch
            and base.order == cut.schedule
        ):
            table = row_table(run.problem, [at_hops(run.problem, base)], wanted=partial(_of_cut, cut))
            held = [i for i in range(len(table)) if is_row_of(table.row(i, 0.0), cut)]
            for i in held:
                most = int(most_counts(run.problem, base, table.pipeline[[i]], table.filled[[i]])[0][0])
                span = Span(replicas=(max(1, int(most / NARROW)), most), batches=(cut.micro_batches, cut.micro_batches))
                yield Leaf(key=(0, i), row=table.row(i, float(table.bound[i])), span=span)
            if run.best is None:
                yield from Queue(run.problem, table.part(np.array(held, dtype=np.int64)))


def _of_cut(cut: ParallelStrategy, _: int, zero: int, p: Ints, v: Ints, filled: Flags) -> Flags:
    own = (p == cut.pipeline_parallel) & (v == cut.virtual_stages) & (filled == (cut.micro_batches >= p))
    return np.asarray(own & (zero == cut.zero_stage))


def _in_promise(problem: Problem, paces: list[LayerStrategy]) -> list[LayerStrategy]:
    """Order ways to cut a layer by their bounds on a sample of pipelines, those first of which one may fit memory."""
    layers = problem.machine.model.layers
    stages = problem.options("pipeline_parallel", range(1, layers + 1))
    some = (
        sorted(
            {stages[min(len(stages) - 1, len(stages) * k // SAMPLES)] for k in range(SAMPLES)} | {stages[0], stages[-1]}
        )
        if stages
        else []
    )
    pairs = sorted({(p, v) for p in some for v in (1, layers // p) if p > 1 or v == 1})
    p, v = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    options = problem.options("zero_stage", range(4))

    def promise(base: LayerStrategy) -> float:
        own = (p > 1) | (not base.packed)
        own &= (v == 1) | (base.order == "1f1b")
        least = math.inf
        for zero in sorted({options[min(1, len(options) - 1)], options[-1]} if options else ()):
            bound, room, fits = row_bounds(problem, base, zero, p[own], v[own], np.ones(int(own.sum()), dtype=bool))
            least = float(np.min(bound, initial=least, where=room & fits))
        return least

    return sorted(paces, key=promise)


def least_of(problem: Problem, base: LayerStrategy) -> float:
    """Bound all layouts of a way to cut a layer from below, in seconds per sequence: every GPU at its pace, no fill and no tails."""
    m = problem.machine
    units = max(1, problem.most_racks * m.rack.gpus // base.shape.gpus)
    return (m.model.layers * base.least_layer + base.head) / (base.shape.micro_batch * units)


def is_row_of(row: Row, cut: ParallelStrategy) -> bool:
    """Tell whether a layout belongs to a row."""
    held = (
        cut.pipeline_parallel,
        cut.virtual_stages,
        cut.micro_batches >= cut.pipeline_parallel,
        cut.zero_stage,
        cut.schedule,
        cut.stages_per_rack,
    )
    kept = row.base.shape.recompute if cut.recompute == "full" else cut.recompute
    own = replace(cut.shape, recompute=kept) == row.base.shape and (
        cut.recompute != "full" or row.base.recomputes != "none"
    )
    return own and held == (row.pipeline, row.virtual_stages, row.filled, row.zero, row.base.order, row.stages_per_rack)
