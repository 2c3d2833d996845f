"""HiGHS for models of any library: statuses, tolerance, arrays, a run; without Pyomo, which takes a second to load."""

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import highspy
import numpy as np

from planner.errors import InputError
from planner.solvers.outcome import Floats, Stop
from planner.solvers.progress import begin_highs
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


def stop_of(status: highspy.HighsModelStatus) -> Stop:
    """Return why a HiGHS run ended; one that had no time left because it was told to end was interrupted."""
    stop = STOP_BY_STATUS[status]
    return Stop.INTERRUPTED if stop is Stop.LIMIT and interrupted() else stop


def loaded(lp: Any) -> Any:
    """Return a HiGHS with a model, which is silent and stops at Ctrl-C and at an interrupter."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
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
    highs: Any, options: Mapping[str, Any], time_limit: float | None, names: Iterable[Sequence[str]] = ()
) -> tuple[Path | None, SearchResult]:
    """Run HiGHS on a model with all its rows; return the file stem of the model, if it is written, and the result."""
    limit = {} if time_limit is None else {"time_limit": max(time_limit, 0.0)}
    for key, option in {**options, **limit}.items():
        highs.setOptionValue(key, option)
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
