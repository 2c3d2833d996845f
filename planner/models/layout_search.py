"""Branch and bound over the rows of the layout space: a first layout soon, then the fastest, with a bound at any time."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from planner.models.layout_best import Best, best_of_row
from planner.models.layout_cells import NARROW
from planner.models.layout_counts import Span
from planner.models.layout_floors import Floors, Key, Wanted
from planner.models.layout_order import Leaf, Queue
from planner.models.layout_question import Base, Problem, at_hops, bases
from planner.models.layout_space import Flags, Ints, Row, RowTable, Select, most_counts, row_bounds, row_table
from planner.physics import step
from planner.solvers.outcome import Stop

AT_ONCE = 8  # ways to cut a layer whose rows are bounded before the best of them are opened
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
    paces: list[Base]  # of the space
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
    paces: list[Base] = field(default_factory=list)  # all ways to cut a layer
    number: dict[int, int] = field(default_factory=dict)  # which of them a base is, by its identity
    best: Best | None = None
    row: Row | None = None  # of the best
    opened: dict[tuple[int, int], Row] = field(default_factory=dict)
    floors: dict[tuple[int, int], float] = field(default_factory=dict)  # of the opened rows
    unsearched: float = math.inf  # the bound of a part that the limit cut short

    @property
    def over(self) -> bool:
        """Whether the time is out; the first layout is waited for."""
        return self.best is not None and self.time_limit is not None and time.perf_counter() - self.started > self.time_limit

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
            self.progress(f"layout: incumbent {better.seconds * tokens:.4g} s/step, bound {low * tokens:.4g}, gap {1 - low / better.seconds:.1%}")


def search(
    problem: Problem,
    *,
    time_limit: float | None = None,
    progress: Callable[[str], None] | None = None,
    table: RowTable | None = None,
    near: Sequence[step.Cut] = (),
    paces: list[Base] | None = None,
    floors: Floors | None = None,
    margin: float = 1.0,
    beyond: float = 1.0,
) -> Search:
    """Open rows in order of their bounds until none can beat the incumbent.

    `table`: the rows to search, where not all; `near`: layouts of questions like this one, whose rows are opened first;
    `paces`: all ways to cut a layer, where they are known, `floors`: what was proven of them before; `margin`: how far
    beyond the incumbent to find floors out, and `beyond`: to find them out exactly.
    """
    run = Run(problem=problem, started=time.perf_counter(), time_limit=time_limit, progress=progress, beyond=beyond, known=floors)
    queue, rest = Queue(problem, margin=margin, over=lambda: run.over), math.inf
    if table is None:
        run.paces = bases(problem) if paces is None else paces
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
        paces=table.bases if table is not None else run.paces,
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
        way, zero = run.number[id(table.bases[int(table.base[held[0]])])], int(table.zero[held[0]])
        rest = np.ones(len(held), dtype=bool)
        for i, number in enumerate(held.tolist() if (way, zero) in single else ()):
            own = way, zero, int(table.pipeline[number]), int(table.virtual_stages[number]), bool(table.filled[number])
            if own in rows:
                rows[own], rest[i] = min(rows[own], float(bounds[i])), False
        np.minimum.at(pairs[way], table.pipeline[held[rest]], bounds[rest])
    found = Floors(pairs, rows)
    return found if run.known is None or run.wanted is None else run.known.updated(found, run.wanted)


def _start(run: Run, queue: Queue, near: Sequence[step.Cut]) -> float:
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
    for k in range(0, len(paces), AT_ONCE):
        if run.over:
            return min(least[k:])
        queue.add(row_table(run.problem, paces[k : k + AT_ONCE], cutoff=run.cutoff * queue.margin, wanted=_select(run, paces[k : k + AT_ONCE])))
        queue.cutoff, tries = run.cutoff, 0
        for leaf in queue:
            run.take(leaf, min(least))
            queue.cutoff, tries = run.cutoff, tries + 1
            if run.cutoff < math.inf and tries >= TRIES:
                break
    return math.inf


def _select(run: Run, paces: list[Base]) -> Select | None:
    """Return what tells which rows of some ways to cut a layer are wanted; None where all are."""
    wanted = run.wanted
    if wanted is None:
        return None
    return lambda index, zero, p, v, filled: wanted.rows(run.number[id(paces[index])], zero, p, v, filled)


def _leaves_of(run: Run, cut: step.Cut) -> Iterator[Leaf]:
    """Yield the parts of the rows that a layout belongs to: with as many replicas as fit or few less, then, without any layout yet, all of them."""
    for base in run.paces:
        if base.shape.tensor_parallel == cut.tensor_parallel and base.shape.micro_batch == cut.micro_batch and base.order == cut.schedule:
            table = row_table(run.problem, [at_hops(run.problem, base)], wanted=partial(_of_cut, cut))
            held = [i for i in range(len(table)) if is_row_of(table.row(i, 0.0), cut)]
            for i in held:
                most = int(most_counts(run.problem, base, table.pipeline[[i]], table.filled[[i]])[0][0])
                span = Span(replicas=(max(1, int(most / NARROW)), most), batches=(cut.micro_batches, cut.micro_batches))
                yield Leaf(key=(0, i), row=table.row(i, float(table.bound[i])), span=span)
            if run.best is None:
                yield from Queue(run.problem, table.part(np.array(held, dtype=np.int64)))


def _of_cut(cut: step.Cut, _: int, zero: int, p: Ints, v: Ints, filled: Flags) -> Flags:
    own = (p == cut.pipeline_parallel) & (v == cut.virtual_stages) & (filled == (cut.micro_batches >= p))
    return np.asarray(own & (zero == cut.zero_stage))


def _in_promise(problem: Problem, paces: list[Base]) -> list[Base]:
    """Order ways to cut a layer by their bounds on a sample of pipelines, those first of which one may fit memory."""
    layers = problem.machine.model.layers
    stages = problem.options("pipeline_parallel", range(1, layers + 1))
    some = sorted({stages[min(len(stages) - 1, len(stages) * k // SAMPLES)] for k in range(SAMPLES)} | {stages[0], stages[-1]}) if stages else []
    pairs = sorted({(p, v) for p in some for v in (1, layers // p) if p > 1 or v == 1})
    p, v = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    options = problem.options("zero_stage", range(4))

    def promise(base: Base) -> float:
        own = (p > 1) | (not base.packed)
        own &= (v == 1) | (base.order == "1f1b")
        least = math.inf
        for zero in sorted({options[min(1, len(options) - 1)], options[-1]} if options else ()):
            bound, room, fits = row_bounds(problem, base, zero, p[own], v[own], np.ones(int(own.sum()), dtype=bool))
            least = float(np.min(bound, initial=least, where=room & fits))
        return least

    return sorted(paces, key=promise)


def least_of(problem: Problem, base: Base) -> float:
    """Bound all layouts of a way to cut a layer from below, in seconds per sequence: every GPU at its pace, no fill and no tails."""
    m = problem.machine
    units = max(1, problem.most_racks * m.rack.gpus // base.shape.gpus)
    return (m.model.layers * base.least_layer + base.head) / (base.shape.micro_batch * units)


def is_row_of(row: Row, cut: step.Cut) -> bool:
    """Tell whether a layout belongs to a row."""
    held = (cut.pipeline_parallel, cut.virtual_stages, cut.micro_batches >= cut.pipeline_parallel, cut.zero_stage, cut.schedule, cut.stages_per_rack)
    kept = row.base.shape.recompute if cut.recompute == "full" else cut.recompute
    own = replace(cut.shape, recompute=kept) == row.base.shape and (cut.recompute != "full" or row.base.recomputes != "none")
    return own and held == (row.pipeline, row.virtual_stages, row.filled, row.zero, row.base.order, row.stages_per_rack)
