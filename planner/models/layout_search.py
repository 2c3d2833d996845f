"""Branch and bound over the rows of the layout space: a first layout soon, then the fastest, with a bound at any time."""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.models.layout_best import Best, best_of_row
from planner.models.layout_memory import Memory, Proof, is_alike
from planner.models.layout_order import Queue
from planner.models.layout_question import Base, Problem, bases
from planner.models.layout_space import Row, RowTable, joined, packing, row_bounds, row_table
from planner.physics import step
from planner.solvers.outcome import Stop

AT_ONCE = 8  # ways to cut a layer whose rows are bounded before the best of them are opened
TRIES = 8, 2  # rows of each that are opened while the table grows: before the first layout, and after
UNHURRIED = 10.0  # seconds of a limit from which tables that others can share are worth their time
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


@dataclass(slots=True, kw_only=True)
class Run:
    """A search under way."""

    problem: Problem
    started: float
    time_limit: float | None
    progress: Callable[[str], None] | None
    best: Best | None = None
    row: Row | None = None  # of the best

    @property
    def over(self) -> bool:
        """Whether the time is out; the first layout is waited for."""
        return self.best is not None and self.time_limit is not None and time.perf_counter() - self.started > self.time_limit

    @property
    def cutoff(self) -> float:
        """Seconds per sequence that a layout must be under."""
        return self.best.seconds if self.best else math.inf

    def open(self, row: Row, bound: float) -> None:
        """Search a row for a better layout; `bound`: no layout of the space is under it."""
        better = best_of_row(self.problem, row, self.cutoff, lambda: self.over)
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
    memory: Memory | None = None,
) -> Search:
    """Open rows in order of their bounds until none can beat the incumbent.

    `table`: the rows to search, where not all; `near`: a layout of a question like this one, whose row is opened first;
    `memory`: what earlier searches of the whole space learned, and this one adds to.
    """
    run = Run(problem=problem, started=time.perf_counter(), time_limit=time_limit, progress=progress)
    rest = math.inf
    opened: list[Row] = []
    memory = memory if table is None and is_alike(problem, problem) else None
    if table is None:
        table, rest, opened = _start(run, (memory.near(problem) if memory else None) or near, memory)
    queue = Queue(problem, table)
    bound, stop = math.inf, Stop.PROVED
    for row in queue:
        if run.best is not None and row.bound >= run.best.seconds:
            break
        opened.append(row)
        low = min(row.bound, queue.bound)
        run.open(row, min(low, rest))
        if run.over and low < run.cutoff:
            bound, stop = low, Stop.LIMIT
            break
    if rest < run.cutoff:
        bound, stop = min(bound, rest), Stop.LIMIT
    if run.best is not None and run.row is not None:
        bound = min(bound, run.best.seconds)
        if not any(is_row_of(row, run.best.cut) for row in opened):
            opened.append(run.row)
        if memory is not None and stop is Stop.PROVED:
            memory.keep(Proof(problem=problem, best=run.best, opened=opened))
    return Search(best=run.best, bound=bound, stop=stop, opened=opened, queue=queue, seconds=time.perf_counter() - run.started)


def _start(run: Run, near: step.Cut | None, memory: Memory | None) -> tuple[RowTable, float, list[Row]]:
    """Return the table of rows, a bound for what is not in it, and the rows that earlier searches opened and excluded for this one.

    Without a layout to start from, the table is built a few ways to cut a layer at a time, and the best rows of each are tried.
    """
    paces = bases(run.problem) if memory is None else memory.paces(run.problem)
    for row in _rows_of(run.problem, paces, near):
        run.open(row, min(least_of(run.problem, base) for base in paces))
    if run.best is not None and memory is not None and (run.time_limit is None or run.time_limit > UNHURRIED):
        table, carried = memory.rows(run.problem, paces, run.cutoff)
        return table, math.inf, carried
    paces = paces if run.best is not None else _in_promise(run.problem, paces)
    least = [least_of(run.problem, base) for base in paces]
    tables: list[RowTable] = []
    for k in range(0, len(paces), AT_ONCE):
        if run.over:
            return joined(run.problem, tables), min(least[k:]), []
        table = row_table(run.problem, paces[k : k + AT_ONCE], cutoff=run.cutoff)
        tables.append(table)
        for row in _promising(run, table):
            run.open(row, min(least))
    return joined(run.problem, tables), math.inf, []


def _rows_of(problem: Problem, paces: list[Base], cut: step.Cut | None) -> Iterator[Row]:
    """Yield the rows that a layout belongs to."""
    for base in paces if cut is not None else ():
        if cut is not None and base.shape.tensor_parallel == cut.tensor_parallel and base.shape.micro_batch == cut.micro_batch:
            p = cut.pipeline_parallel
            q, r, spread = packing(problem, base, np.array(p))
            row = Row(
                base=base,
                zero=cut.zero_stage,
                pipeline=p,
                virtual_stages=cut.virtual_stages,
                filled=cut.micro_batches >= p,
                stages_per_rack=int(q),
                replicas_per_rack=int(r),
                racks_per_replica=spread,
                bound=0.0,
            )
            if is_row_of(row, cut):
                yield row


def _promising(run: Run, table: RowTable) -> Iterator[Row]:
    """Yield the first rows of a table that may beat the incumbent; before there is one, in the order in which memory leaves them."""
    found: Iterator[Row] = itertools.islice(Queue(run.problem, table), TRIES[0])
    if run.best is not None:
        found = (table.row(i, float(table.bound[i])) for i in range(min(TRIES[1], len(table))))
    for row in found:
        if row.bound >= run.cutoff or run.over:
            return
        yield row


def _in_promise(problem: Problem, paces: list[Base]) -> list[Base]:
    """Order ways to cut a layer by their bounds on a sample of pipelines, those first of which one may fit memory."""
    layers = problem.machine.model.layers
    stages = problem.options("pipeline_parallel", range(1, layers + 1))
    some = sorted({stages[min(len(stages) - 1, len(stages) * k // SAMPLES)] for k in range(SAMPLES)} | {stages[0]}) if stages else []
    pairs = sorted({(p, v) for p in some for v in (1, layers // p) if p > 1 or v == 1})
    p, v = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    zero = min(problem.options("zero_stage", (1, 0, 2, 3)), default=1)

    def promise(base: Base) -> float:
        own = (p > 1) | (not base.packed)
        own &= (v == 1) | (base.order == "1f1b")
        bound, room, fits = row_bounds(problem, base, zero, p[own], v[own], np.ones(int(own.sum()), dtype=bool))
        return float(np.min(bound, initial=math.inf, where=room & fits))

    return sorted(paces, key=promise)


def least_of(problem: Problem, base: Base) -> float:
    """Bound all layouts of a way to cut a layer from below, in seconds per sequence: every GPU at its pace, no fill and no tails."""
    m = problem.machine
    units = max(1, sum(problem.racks) * m.rack.gpus // base.shape.gpus)
    return (m.model.layers * base.least_layer + base.head) / (base.shape.micro_batch * units)


def is_row_of(row: Row, cut: step.Cut) -> bool:
    """Tell whether a layout belongs to a row."""
    held = (cut.pipeline_parallel, cut.virtual_stages, cut.micro_batches >= cut.pipeline_parallel, cut.zero_stage, cut.schedule, cut.stages_per_rack)
    kept = row.base.shape.recompute if cut.recompute == "full" else cut.recompute
    own = replace(cut.shape, recompute=kept) == row.base.shape and (cut.recompute != "full" or row.base.recomputes != "none")
    return own and held == (row.pipeline, row.virtual_stages, row.filled, row.zero, row.base.order, row.stages_per_rack)
