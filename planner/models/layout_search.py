"""Branch and bound over the rows of the layout space: a first layout soon, then the fastest, with a bound at any time."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from planner.models.layout_best import Best, best_of_row
from planner.models.layout_counts import Span
from planner.models.layout_order import Leaf, Queue
from planner.models.layout_question import Base, Problem, bases
from planner.models.layout_space import Floats, Row, RowTable, row_bounds, row_table
from planner.physics import step
from planner.solvers.outcome import Stop

AT_ONCE = 8  # ways to cut a layer whose rows are bounded before the best of them are opened
TRIES = 2  # parts of them that are opened while the table grows
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
    floors: Floats | None = None  # seconds per sequence that no layout is under, by way to cut a layer and stages of the pipeline


@dataclass(slots=True, kw_only=True)
class Run:
    """A search under way."""

    problem: Problem
    started: float
    time_limit: float | None
    progress: Callable[[str], None] | None
    best: Best | None = None
    row: Row | None = None  # of the best
    opened: dict[tuple[int, int], Row] = field(default_factory=dict)
    unsearched: float = math.inf  # the bound of a part that the limit cut short

    @property
    def over(self) -> bool:
        """Whether the time is out; the first layout is waited for."""
        return self.best is not None and self.time_limit is not None and time.perf_counter() - self.started > self.time_limit

    @property
    def cutoff(self) -> float:
        """Seconds per sequence that a layout must be under."""
        return self.best.seconds if self.best else math.inf

    def take(self, leaf: Leaf, bound: float) -> None:
        """Search a part of a row; `bound`: no layout of the space is under it."""
        self.opened.setdefault(leaf.key, leaf.row)
        self.open(leaf.row, bound, leaf.span)
        if self.over:
            self.unsearched = min(self.unsearched, leaf.row.bound)

    def open(self, row: Row, bound: float, span: Span | None = None) -> None:
        """Search a row, or a span of its counts, for a better layout; `bound`: no layout of the space is under it."""
        better = best_of_row(self.problem, row, self.cutoff, lambda: self.over, span)
        if better is None:
            return
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
    near: step.Cut | None = None,
    paces: list[Base] | None = None,
    floors: Floats | None = None,
    margin: float = 1.0,
) -> Search:
    """Open rows in order of their bounds until none can beat the incumbent.

    `table`: the rows to search, where not all; `near`: a layout of a question like this one, whose row is opened first;
    `paces`: all ways to cut a layer, where they are known, `floors`: what was proven of them before; `margin`: how far
    beyond the incumbent to find floors out.
    """
    run = Run(problem=problem, started=time.perf_counter(), time_limit=time_limit, progress=progress)
    queue, rest = Queue(problem, margin=margin, over=lambda: run.over), math.inf
    if table is None:
        paces = bases(problem) if paces is None else paces
        rest = _start(run, queue, paces, near, floors)
    else:
        queue.add(table)
    queue.cutoff = run.cutoff
    for leaf in queue:
        run.take(leaf, min(leaf.row.bound, queue.bound, rest))
        queue.cutoff = run.cutoff
    bound = min(run.unsearched, queue.bound, rest, run.cutoff)
    opened = list(run.opened.values())
    if run.best is not None and run.row is not None and not any(is_row_of(row, run.best.cut) for row in opened):
        opened.append(run.row)
    return Search(
        best=run.best,
        bound=bound,
        stop=Stop.PROVED if bound >= run.cutoff else Stop.LIMIT,
        opened=opened,
        queue=queue,
        seconds=time.perf_counter() - run.started,
        floors=_floors(run, queue, paces, floors) if paces is not None and bound >= run.cutoff else None,
    )


def _floors(run: Run, queue: Queue, paces: list[Base], known: Floats | None) -> Floats:
    """Return what a finished search proves by way to cut a layer and stages: what is held no more is as slow as the queue's reach."""
    number = {id(base): i for i, base in enumerate(paces)}
    found = np.full((len(paces), run.problem.machine.model.layers + 1), queue.reach)
    for base, pipelines, bounds in queue.left():
        np.minimum.at(found[number[id(base)]], pipelines, bounds)
    for row in run.opened.values():
        found[number[id(row.base)], row.pipeline] = min(found[number[id(row.base)], row.pipeline], run.cutoff)
    return found if known is None else np.where(known >= run.cutoff, known, found)


def _start(run: Run, queue: Queue, paces: list[Base], near: step.Cut | None, floors: Floats | None) -> float:
    """Give the queue its rows, a few ways to cut a layer at a time, and open the first parts that come up; return a bound for what it did not get."""
    for leaf in _leaves_of(run, paces, near) if near is not None else ():
        run.open(leaf.row, min(least_of(run.problem, base) for base in paces), leaf.span)
        if run.best is not None:
            break
    wanted = None if floors is None or run.best is None else floors < run.cutoff
    if wanted is not None:
        wanted[:, 0] = False  # no pipeline has no stages
        some, none = (np.flatnonzero(wanted.any(axis=1) == own) for own in (True, False))
        queue.add(row_table(run.problem, [paces[i] for i in none], wanted=wanted[none]))  # declared, with no row to search
        paces, wanted = [paces[i] for i in some], wanted[some]
    paces = paces if run.best is not None else _in_promise(run.problem, paces)
    least = [least_of(run.problem, base) for base in paces]
    for k in range(0, len(paces), AT_ONCE):
        if run.over:
            return min(least[k:])
        own = slice(k, k + AT_ONCE)
        reach = run.cutoff * queue.margin
        queue.add(row_table(run.problem, paces[own], cutoff=reach, wanted=None if wanted is None else wanted[own]))
        queue.cutoff, tries = run.cutoff, 0
        for leaf in queue:
            run.take(leaf, min(least))
            queue.cutoff, tries = run.cutoff, tries + 1
            if run.best is not None and tries >= TRIES:
                break
    return math.inf


def _leaves_of(run: Run, paces: list[Base], cut: step.Cut) -> Iterator[Leaf]:
    """Yield the parts of the rows that a layout belongs to."""
    for base in paces:
        if base.shape.tensor_parallel == cut.tensor_parallel and base.shape.micro_batch == cut.micro_batch:
            table = row_table(run.problem, [base])
            own = (table.pipeline == cut.pipeline_parallel) & (table.virtual_stages == cut.virtual_stages) & (table.zero == cut.zero_stage)
            held = [i for i in np.flatnonzero(own) if is_row_of(table.row(int(i), 0.0), cut)]
            yield from Queue(run.problem, table.part(np.array(held, dtype=np.int64)))


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
