"""Run HiGHS on arrays of any library, or on a Pyomo model; rows that are lazy are added once a solution breaks them.

For any duals y of rows `low <= A x <= high`, the minimum of c x is at least the sum of y times the side that it presses
on, plus each reduced cost c - A'y times the bound of its column that makes it least (Neumaier and Shcherbina, 2004,
Mathematical Programming 99, 283-296). The duals may be wrong by any rounding: the bound is then weaker, never false.
"""

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from planner.errors import InputError
from planner.solvers.model_files import begin_highs, end, models_wanted, write_highs
from planner.solvers.outcome import TOLERANCE, Floats, Outcome, Stop, Values, believed, run_twice
from planner.solvers.search_deadline import Deadline
from planner.solvers.signals import asked_to_end, interrupted, interruptible

HIGHS = f"HiGHS {highspy.HIGHS_VERSION_MAJOR}.{highspy.HIGHS_VERSION_MINOR}.{highspy.HIGHS_VERSION_PATCH}"

SERIES, FIRST_PATCH = (1, 13), 1  # as in pyproject.toml, which says what is wrong with other series

_Status = highspy.HighsModelStatus
INFEASIBLE = (_Status.kInfeasible, _Status.kUnboundedOrInfeasible)
# Total over the native statuses; a test walks the enum. Pyomo's own conditions are coarser: they lose the interrupt.
# Every formulation here is bounded, so that kUnbounded is no answer.
_NAMES_BY_STOP = {
    Stop.PROVED: "Optimal Infeasible",
    Stop.LIMIT: "TimeLimit IterationLimit SolutionLimit MemoryLimit ObjectiveBound ObjectiveTarget",
    Stop.INTERRUPTED: "Interrupt HighsInterrupt",
    Stop.FAILED: "Unbounded UnboundedOrInfeasible ModelEmpty Notset LoadError ModelError PresolveError SolveError "
    "PostsolveError Unknown",
}
STOP_BY_STATUS = {getattr(_Status, f"k{name}"): stop for stop, own in _NAMES_BY_STOP.items() for name in own.split()}
WHOLE = 1e-5  # from a whole number
MAX_NONZEROS = 300_000  # whose fractions take a few seconds
_Strategy = highspy.simplex_constants.SimplexStrategy
FEASIBILITY = 1e-9  # A megawatt-sized row is then kept to a milliwatt; the checks allow 1e-6 of a figure.
LOOSE = 1e-6  # A row with more slack than this does not matter at a relaxation's optimum.
_DUAL, _PRIMAL = (int(value) for value in (_Strategy.kSimplexStrategyDual, _Strategy.kSimplexStrategyPrimal))
SOLVER = f"{HIGHS} through Pyomo {version('pyomo')}"
ABSOLUTE_GAP = 1e-6  # A dollar where objectives are in millions, and far below one rack.
ENUMERATION = 1 << 16  # the rule of presolve that lost better solutions of 1 split in 300, and called the rest optimal
SMALL = 2000  # columns of a MILP whose root is solved faster than by a second presolve or a first jump
# Of 32 MILPs over sites of 100 to 300 columns both take 74 % longer, and find nothing that the root does not.
QUICK_ROOT = {"mip_allow_restart": False, "mip_heuristic_run_feasibility_jump": False}
FEASIBILITIES = ("mip_feasibility_tolerance", "primal_feasibility_tolerance", "dual_feasibility_tolerance")
OPTIONS: dict[str, Any] = dict.fromkeys(FEASIBILITIES, FEASIBILITY)
OPTIONS |= {"threads": 1, "presolve": "on", "presolve_rule_off": ENUMERATION}


def stop_of(status: highspy.HighsModelStatus) -> Stop:
    """Return why a HiGHS run ended; one that had no time left because it was told to end was interrupted."""
    stop = STOP_BY_STATUS[status]
    return Stop.INTERRUPTED if stop is Stop.LIMIT and interrupted() else stop


def loaded(lp: Any, options: Mapping[str, Any] = OPTIONS) -> Any:
    """Return a HiGHS with a model and options, which is silent and stops at Ctrl-C and at an interrupter."""
    highs = highspy.Highs()
    for key, option in {"output_flag": False, **options}.items():
        highs.setOptionValue(key, option)
    # HiGHS has one handler of Ctrl-C a process, which only the main thread gets to see.
    highs.HandleKeyboardInterrupt = threading.current_thread() is threading.main_thread()
    if interruptible():
        asked = asked_to_end()
        for callback in (highs.cbSimplexInterrupt, highs.cbIpmInterrupt, highs.cbMipInterrupt):
            # HiGHS asks every few milliseconds of its work.
            callback.subscribe(lambda event: event.interrupt() if asked() else None)
    highs.passModel(lp)
    return highs


def linear_program(
    columns: Sequence[tuple[float | None, float | None, bool]],
    rows: Sequence[tuple[Mapping[int, float], float | None, float | None]],
    costs: Mapping[int, float],
    offset: float = 0.0,
) -> Any:
    """Return a minimizing linear program as HiGHS arrays: `columns`: least, largest, whole?; `rows`: factors, ends."""
    lp, infinite = highspy.HighsLp(), highspy.kHighsInf

    def limits(values: Iterable[float | None], none: float) -> Floats:
        return np.array([none if value is None else value for value in values], dtype=np.float64)

    lp.num_col_, lp.num_row_, lp.offset_ = len(columns), len(rows), offset
    lp.col_lower_ = limits((low for low, _, _ in columns), -infinite)
    lp.col_upper_ = limits((high for _, high, _ in columns), infinite)
    lp.row_lower_ = limits((low for _, low, _ in rows), -infinite)
    lp.row_upper_ = limits((high for _, _, high in rows), infinite)
    whole, free = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    lp.integrality_ = [whole if integer else free for _, _, integer in columns]
    lp.col_cost_ = np.array([costs.get(i, 0.0) for i in range(len(columns))], dtype=np.float64)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0, *(len(row) for row, _, _ in rows)], dtype=np.int32)
    lp.a_matrix_.index_ = np.array([i for row, _, _ in rows for i in row], dtype=np.int32)
    lp.a_matrix_.value_ = np.array([factor for row, _, _ in rows for factor in row.values()], dtype=np.float64)
    return lp


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a HiGHS search: the best point that keeps all rows, the bound, and the number of lazy rows."""

    status: Any
    point: Floats | None
    bound: float | None
    rows: int = 0


def run_at_once(
    highs: Any, time_limit: float | None, names: Iterable[Sequence[str]] = ()
) -> tuple[Path | None, SearchResult]:
    """Run HiGHS on a model with all its rows; return the file stem of the model, if it is written, and the result."""
    if time_limit is not None:
        highs.setOptionValue("time_limit", max(time_limit, 0.0))
    stem = begin_highs(highs, *names)
    highs.run()
    status, info = highs.getModelStatus(), highs.getInfo()
    if status == _Status.kModelEmpty:  # neither columns nor rows, as of fibre that carries nothing: the empty point
        return stem, SearchResult(status=_Status.kOptimal, point=np.empty(0), bound=float(highs.getLp().offset_))
    solved = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    point = np.asarray(highs.getSolution().col_value) if solved else None
    bound = None  # for a model without integers its optimum, none before it is reached
    if info.mip_node_count >= 0 and math.isfinite(info.mip_dual_bound):
        bound = float(info.mip_dual_bound)
    elif info.mip_node_count < 0 and status == _Status.kOptimal:
        bound = float(info.objective_function_value)
    return stem, SearchResult(status=status, point=point, bound=bound)


def require_highs() -> None:
    """Refuse a HiGHS whose answers are not known to be right: InputError if another series is installed."""
    installed = (highspy.HIGHS_VERSION_MAJOR, highspy.HIGHS_VERSION_MINOR, highspy.HIGHS_VERSION_PATCH)
    if installed[:2] != SERIES or installed[2] < FIRST_PATCH:
        wanted = f"highspy>={SERIES[0]}.{SERIES[1]}.{FIRST_PATCH},<{SERIES[0]}.{SERIES[1] + 1}"
        raise InputError(
            f"highspy: must be {wanted} (is {'.'.join(map(str, installed))}), "
            f"other versions give wrong optima; install it: pip install '{wanted}'"
        )


def entries_of(lp: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
    """Return row, column and value of each entry of the matrix of a HiGHS model."""
    matrix = lp.a_matrix_
    start, index = np.asarray(matrix.start_, dtype=np.int64), np.asarray(matrix.index_, dtype=np.int64)
    owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
    rows, columns = (index, owner) if str(matrix.format_).endswith("kColwise") else (owner, index)
    return rows, columns, np.asarray(matrix.value_, dtype=np.float64)


def broken_by(lp: Any, point: Floats) -> str:
    """Return which row, bound or whole column of a HiGHS model a point breaks; nothing where it keeps all."""
    lower, upper = np.asarray(lp.col_lower_), np.asarray(lp.col_upper_)
    if len(point) != len(lower) or not np.all(np.isfinite(point)):
        return f"{int(np.isfinite(point).sum())} values for {len(lower)} columns"
    whole = np.asarray([int(kind) == 1 for kind in lp.integrality_], dtype=bool)
    if len(whole):
        fraction = np.where(whole, np.abs(point - np.round(point)), 0.0)
        if fraction.max(initial=0.0) > WHOLE:
            return f"column {int(fraction.argmax())} is {float(point[fraction.argmax()]):g}, a whole number expected"
    rows, columns, values = entries_of(lp)
    terms = values * point[columns]
    total, size = (np.bincount(rows, each, lp.num_row_).astype(np.float64) for each in (terms, np.abs(terms)))
    sides = np.asarray(lp.row_lower_), np.asarray(lp.row_upper_)
    for what, at, sum_of, low, high in (("column", point, np.abs(point), lower, upper), ("row", total, size, *sides)):
        excess = np.maximum(low - at, at - high) - TOLERANCE * np.maximum(1.0, sum_of)
        if excess.max(initial=-1.0) > 0:
            i = int(excess.argmax())
            return f"{what} {i} is {float(at[i]):g}, not from {float(low[i]):g} to {float(high[i]):g}"
    return ""


@dataclass(frozen=True, slots=True)
class HighsModel:
    """A model as HiGHS reads it: its arrays, the column of each variable by id, and the constraint of each row."""

    lp: Any
    column: dict[int, int]
    rows: tuple[Any, ...]
    has_goal: bool
    minimizes: bool  # the objective, if any
    variables: dict[int, Any]

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Return the names of columns and rows of a HiGHS model."""
        return [self.variables[key].name for key in self.column], [row.name for row in self.rows]

    def value(self, variable: Any, point: Floats) -> float:
        """Return a Pyomo variable's value at a point of HiGHS; a fixed one is not in it, one in no row is zero."""
        at = self.column.get(id(variable))
        return float(point[at]) if at is not None else float(variable.value) if variable.fixed else 0.0


def highs_model(model: Any) -> HighsModel:
    """Return a linear Pyomo model as HiGHS reads it, its columns in the order in which its rows mention them."""
    # Pyomo takes a second to load, which runs on other libraries' arrays do without.
    import pyomo.core as pyo
    from pyomo.core.base.enums import SortComponents
    from pyomo.repn.linear import LinearRepnVisitor
    from pyomo.repn.util import VarRecorder

    column, variables = dict[int, int](), dict[int, Any]()
    visitor = LinearRepnVisitor({}, var_recorder=VarRecorder(variables, SortComponents.UNSORTED))

    def terms(expression: Any) -> tuple[dict[int, float], float]:
        linear = visitor.walk_expression(expression)
        if linear.nonlinear is not None:
            raise ValueError(f"not linear: {expression}")
        factors = {column.setdefault(key, len(column)): factor for key, factor in linear.linear.items()}
        return factors, float(linear.constant)

    goal = next(model.component_data_objects(pyo.Objective, active=True), None)
    rows = tuple(model.component_data_objects(pyo.Constraint, active=True))
    stated = []
    for row in rows:
        low, body, high = row.to_bounded_expression(evaluate_bounds=True)
        factors, constant = terms(body)
        stated.append((factors, None if low is None else low - constant, None if high is None else high - constant))
    costs, offset = ({}, 0.0) if goal is None else terms(goal.expr)
    mentioned = [variables[key] for key in column]
    columns = [(*variable.bounds, variable.is_integer() or variable.is_binary()) for variable in mentioned]
    lp = linear_program(columns, stated, costs, offset)
    minimizes = goal is None or goal.sense != pyo.maximize
    lp.sense_ = highspy.ObjSense.kMinimize if minimizes else highspy.ObjSense.kMaximize
    return HighsModel(lp, column, rows, goal is not None, minimizes, variables)


def bound_of(lp: Any, duals: list[float]) -> float | None:
    """Return the bound that duals prove of a HiGHS model, rounded down; None where a column or side is unbounded."""
    total, reduced = Fraction(lp.offset_), [Fraction(cost) for cost in lp.col_cost_]
    y = [Fraction(dual) for dual in duals]
    for row, column, value in zip(*(each.tolist() for each in entries_of(lp)), strict=True):
        if y[row]:
            reduced[column] -= y[row] * Fraction(value)
    for multipliers, lower, upper in ((y, lp.row_lower_, lp.row_upper_), (reduced, lp.col_lower_, lp.col_upper_)):
        for multiplier, low, high in zip(multipliers, lower, upper, strict=True):
            side = low if multiplier > 0 else high
            if multiplier and not math.isfinite(side):
                return None
            total += multiplier * Fraction(side) if multiplier else 0
    found = float(total)
    return found if Fraction(found) <= total else math.nextafter(found, -math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyRow:
    """One lazy row `values · x[columns] <= upper` over the columns of its source."""

    columns: npt.NDArray[np.int64]
    values: Floats
    upper: float


class HighsSearch:
    """A search by HiGHS of one MILP, translated once; its source of lazy rows, if any, adds them as points break them.

    The source has `columns`, Pyomo variables; `gates`, whole columns and the binaries without which they are zero;
    `known()`, the rows met so far; `forget()`, after which none is in HiGHS; and `broken(point, whole, quick)`, those
    that a point breaks: `whole` if its integers are, `quick` if slow rows may be left out.
    """

    def __init__(self, model: Any, rows: Any, options: dict[str, Any], time_limit: float | None) -> None:
        self.stated = highs_model(model)
        self.h, self.column = loaded(self.stated.lp, options), self.stated.column
        self.rows, self.deadline = rows, Deadline(time_limit)
        columns, integer = () if rows is None else rows.columns, highspy.HighsVarType.kInteger
        for column in columns:  # one that no row mentions is not in HiGHS yet
            if column is not None and id(column) not in self.column:
                self.column[id(column)] = self.h.getNumCol()
                low, high = (column.value, column.value) if column.fixed else (column.lb, column.ub)
                self.h.addCol(0.0, low, high, 0, np.empty(0, dtype=np.int32), np.empty(0))
                if column.is_integer() or column.is_binary():
                    self.h.changeColIntegrality(self.column[id(column)], integer)
        self.at = np.asarray([-1 if column is None else self.column[id(column)] for column in columns], dtype=np.int64)
        lp = self.h.getLp()
        self.whole = np.flatnonzero([kind == integer for kind in lp.integrality_]).astype(np.int32)
        self.low, self.high = np.asarray(lp.col_lower_)[self.whole], np.asarray(lp.col_upper_)[self.whole]
        self.sense = 1.0 if lp.sense_ == highspy.ObjSense.kMinimize else -1.0
        self.lazy = set[int]()
        self.add([] if rows is None else rows.known())

    def add(self, rows: Sequence[LazyRow], *, kept: bool = False) -> None:
        """Add lazy rows to HiGHS; a column without a variable is zero. Rows `kept` are never dropped."""
        if not rows:
            return
        columns = [self.at[row.columns] for row in rows]
        starts = np.cumsum([0, *(np.count_nonzero(each >= 0) for each in columns[:-1])]).astype(np.int32)
        index, values = np.concatenate(columns), np.concatenate([row.values for row in rows])
        index, values = index[index >= 0].astype(np.int32), values[index >= 0]
        low, high = np.full(len(rows), -highspy.kHighsInf), np.asarray([row.upper for row in rows])
        self.h.addRows(len(rows), low, high, len(index), starts, index, values)
        if not kept:
            self.lazy |= {*range(self.h.getNumRow() - len(rows), self.h.getNumRow())}

    def run(self) -> Any:
        """Run the HiGHS solver on the present MILP until the deadline and return its model status."""
        if self.deadline.passed:
            return _Status.kTimeLimit
        # HiGHS counts the time of all its runs together.
        self.h.setOptionValue("time_limit", self.h.getRunTime() + self.deadline.left)
        try:
            self.h.run()
        except Exception:  # of compiled code, which may raise anything
            return _Status.kSolveError
        status = self.h.getModelStatus()
        if status == _Status.kOptimal and broken_by(self.h.getLp(), self.point()):
            return _Status.kSolveError  # rows are cut off around its points: a wrong one would cut off right ones
        return status

    def point(self) -> Floats:
        """Return the values of all columns of the HiGHS solver's solution."""
        return np.asarray(self.h.getSolution().col_value)

    def relax(self, fixed: Floats | None = None, *, quick: bool = False, turned: bool = False) -> Any:
        """Run the HiGHS solver, integers relaxed or fixed at whole values, adding lazy rows until none is broken."""
        # `turned`: the objective is another one than in the run before. The point is then still feasible, and the
        # primal simplex starts from it; new rows are for the dual simplex. Measured on 10,000 buses: two thirds of the
        # time of the dual alone.
        if fixed is not None:
            self.h.changeColsBounds(len(self.whole), self.whole, fixed, fixed)
        kinds = np.full(len(self.whole), int(highspy.HighsVarType.kContinuous), dtype=np.uint8)
        self.h.changeColsIntegrality(len(self.whole), self.whole, kinds)
        if turned:
            self.h.setOptionValue("simplex_strategy", _PRIMAL)
        while True:
            status = self.run()
            self.h.setOptionValue("simplex_strategy", _DUAL)
            if status != _Status.kOptimal or self.rows is None:
                return status
            point = np.where(self.at >= 0, self.point()[self.at], 0.0)
            rows = self.rows.broken(point, whole=fixed is not None, quick=quick)
            if not rows:
                return status
            self.add(rows)

    def tighten(self) -> Any:
        """Tighten by HiGHS each gated column's big-M to its largest value relaxed, which adds lazy rows too."""
        # A tie `x <= bound · gate` with a loose bound lets a relaxation open a hundredth of everything.
        lp = self.h.getLp()
        costs, every = np.asarray(lp.col_cost_), np.arange(lp.num_col_, dtype=np.int32)
        none = np.zeros(len(every))
        for column, gate in self.rows.gates:
            at = self.at[column]
            none[at] = -self.sense
            self.h.changeColsCost(len(every), every, none)
            none[at] = 0.0
            status = self.relax(quick=True, turned=True)
            if status not in (_Status.kOptimal, _Status.kTimeLimit):
                return status
            if status == _Status.kOptimal:
                values = np.asarray([1.0, -np.floor(self.point()[at] + 1e-6)])
                self.add([LazyRow(columns=np.asarray([column, gate]), values=values, upper=0.0)], kept=True)
        self.h.changeColsCost(len(every), every, costs)
        self.forget(sorted(self.lazy))
        status = self.relax()
        if status == _Status.kOptimal:
            slack = np.asarray(self.h.getLp().row_upper_) - np.asarray(self.h.getSolution().row_value)
            self.forget([i for i in sorted(self.lazy) if slack[i] > LOOSE])
        return status

    def forget(self, rows: list[int]) -> None:
        """Drop lazy rows from the HiGHS solver, dense as they are; the few that matter are added again."""
        kept = np.delete(np.arange(self.h.getNumRow()), rows)
        place = dict(zip(kept.tolist(), range(len(kept)), strict=True))
        self.h.deleteRows(len(rows), np.asarray(rows, dtype=np.int32))
        self.lazy = {place[i] for i in self.lazy if i in place}
        self.rows.forget()

    def restore(self) -> None:
        """Make the integers in the HiGHS solver whole and free again."""
        kinds = np.full(len(self.whole), int(highspy.HighsVarType.kInteger), dtype=np.uint8)
        self.h.changeColsBounds(len(self.whole), self.whole, self.low, self.high)
        self.h.changeColsIntegrality(len(self.whole), self.whole, kinds)

    def search(self, relative_gap: float, absolute_gap: float) -> SearchResult:
        """Run the HiGHS solver to the best point that satisfies all rows of its MILP, lazy ones included."""
        # The integers of each solution are fixed and the other columns solved again until all rows hold: mostly the
        # value stays and the proof is done. Where no values of the other columns complete the integers, the rows that
        # were added exclude them.
        status = self.relax(quick=True)
        if status == _Status.kOptimal:
            status = self.tighten()
        point: Floats | None = None
        value = bound = None
        while status == _Status.kOptimal:
            self.restore()
            status = self.run()
            if status in INFEASIBLE:
                break
            dual = float(self.h.getInfo().mip_dual_bound)
            if math.isfinite(dual):  # the better of the bound and that of the run just made
                bound = dual if bound is None else self.sense * max(self.sense * dual, self.sense * bound)
            if not self.h.getSolution().value_valid:
                break
            outer, stated = status, self.h.getNumRow()
            inner = self.relax(np.round(self.point()[self.whole]))
            if inner == _Status.kOptimal:
                candidate = self.h.getInfo().objective_function_value
                if value is None or self.sense * candidate < self.sense * value:
                    point, value = self.point(), candidate
            elif inner not in INFEASIBLE:
                status = inner
                break
            same = self.h.getNumRow() == stated  # the next run would answer the same
            met = False  # bound and value, within the gaps; rounding of 1e-9 counts as none
            if value is not None and bound is not None:
                met = abs(value - bound) <= max(absolute_gap, relative_gap * abs(value), 1e-9 * abs(value))
            if outer != _Status.kOptimal or met or same:
                # Without a row that excludes it, a point that nothing completes shows that one answer is wrong.
                status = outer if inner == _Status.kOptimal else _Status.kUnknown
                break
            status = _Status.kOptimal
        return SearchResult(status=status, point=point, bound=bound, rows=len(self.lazy))


def run(
    model: Any,
    *,
    time_limit: float | None = None,
    gap: float | None = None,
    absolute_gap: float | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Outcome[Values]:
    """Solve a Pyomo model on HiGHS; on one thread unless set otherwise, to a gap of zero, so that runs repeat exactly.

    A model with rows that are added as they are broken has them as `model.lazy`. `absolute_gap`: of bound and
    incumbent, in the objective's unit, that counts as proven; None: 1e-6.
    """
    require_highs()
    deadline, lazy = Deadline(time_limit), getattr(model, "lazy", None)
    distance = ABSOLUTE_GAP if absolute_gap is None else absolute_gap
    stated = cache(highs_model)  # once, for both runs

    def once(presolve: bool) -> Outcome[Values]:
        options = OPTIONS | {"mip_rel_gap": gap or 0.0, "mip_abs_gap": distance, "random_seed": seed}
        options |= {"threads": threads or 1, "presolve": "on" if presolve else "off"}
        clock = Deadline(deadline.limit)
        if lazy is not None:
            search = HighsSearch(model, lazy, options, clock.seconds)
            built, h, stem = search.stated, search.h, begin_highs(search.h)
            result = search.search(gap or 0.0, distance)
            search.restore()
            write_highs(stem, h)  # once more, with the rows that were added
        else:
            built = stated(model)
            options |= QUICK_ROOT if len(built.column) < SMALL else {}
            h, names = loaded(built.lp, options), built.names if models_wanted() else ()
            stem, result = run_at_once(h, clock.seconds, names)
        lp, point = h.getLp(), result.point
        outcome = Outcome(
            stop=stop_of(result.status),
            solution=None if point is None else Values(partial(built.value, point=point)),
            objective=float(np.dot(lp.col_cost_, point) + lp.offset_) if point is not None and built.has_goal else None,
            bound=result.bound if built.has_goal else None,
            distance=distance,
            infeasible=result.status == _Status.kInfeasible and (lazy is None or point is None),
            detail=str(result.status.name)[1:],
            solver=SOLVER,
            variables=model.nvariables(),
            constraints=model.nconstraints() + result.rows,
            seconds=clock.elapsed,
        )
        broken = "" if point is None else broken_by(lp, point)
        allowed = (gap or 0.0) * max(1.0, abs(outcome.objective or 0.0))
        return end(stem, believed(outcome, broken=broken, minimize=built.minimizes, allowed=allowed))

    return run_twice(once, SOLVER)


def lower_bound(model: Any, *, time_limit: float | None = None) -> float | None:
    """Return a lower bound on a minimizing Pyomo model, proven by its relaxation in HiGHS; None where it has none."""
    require_highs()
    search = HighsSearch(model, None, OPTIONS, time_limit)  # lazy rows would only raise it
    if not search.stated.minimizes or len(search.h.getLp().a_matrix_.value_) > MAX_NONZEROS:
        return None
    search.relax()
    solution = search.h.getSolution()
    return bound_of(search.h.getLp(), list(solution.row_dual)) if solution.dual_valid else None


def refuted(model: Any, *, time_limit: float | None = None) -> bool:
    """Return whether a dual ray of its relaxation proves in exact fractions that a Pyomo model is infeasible."""
    # The rows, lazy ones included, added up with a ray as their factors, then ask for more than the bounds of all
    # columns allow (Farkas).
    require_highs()
    search = HighsSearch(model, getattr(model, "lazy", None), OPTIONS, time_limit)
    search.relax()
    h = search.h
    if len(h.getLp().a_matrix_.value_) > MAX_NONZEROS:
        return False
    for key, option in {"solve_relaxation": True, "presolve": "off"}.items():
        h.setOptionValue(key, option)
    h.changeColsCost(h.getNumCol(), np.arange(h.getNumCol(), dtype=np.int32), np.zeros(h.getNumCol()))
    h.changeObjectiveOffset(0.0)
    search.run()
    _, found, ray = h.getDualRay()
    return bool(found) and any((bound_of(h.getLp(), [sign * y for y in ray]) or 0.0) > 0 for sign in (1, -1))
