"""HiGHS for models of any library: statuses, tolerance, arrays, a run; without Pyomo, which takes a second to load."""

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from planner.errors import InputError
from planner.solvers.outcome import Stop
from planner.solvers.progress import begin_highs, models_wanted
from planner.solvers.signals import interrupted, watch

HIGHS = f"HiGHS {highspy.HIGHS_VERSION_MAJOR}.{highspy.HIGHS_VERSION_MINOR}.{highspy.HIGHS_VERSION_PATCH}"
FEASIBILITY = 1e-9  # A megawatt-sized row is then kept to a milliwatt; the checks allow 1e-6 of a figure.

SERIES = (
    1,
    13,
)  # 1.14.0 returns wrong optima, 1.15 cannot share a process with OR-Tools 9.15; pyproject.toml has it too
FIRST_PATCH = 1  # of the series

_Native = highspy.HighsModelStatus

# Total over the native statuses; a test walks the enum. Pyomo's own conditions are coarser: they lose the interrupt.
STOP_BY_STATUS = {
    _Native.kOptimal: Stop.PROVED,
    _Native.kInfeasible: Stop.PROVED,
    _Native.kTimeLimit: Stop.LIMIT,
    _Native.kIterationLimit: Stop.LIMIT,
    _Native.kSolutionLimit: Stop.LIMIT,
    _Native.kMemoryLimit: Stop.LIMIT,
    _Native.kObjectiveBound: Stop.LIMIT,
    _Native.kObjectiveTarget: Stop.LIMIT,
    _Native.kInterrupt: Stop.INTERRUPTED,
    _Native.kHighsInterrupt: Stop.INTERRUPTED,
    # Every formulation here is bounded, so neither of these is an answer.
    _Native.kUnbounded: Stop.FAILED,
    _Native.kUnboundedOrInfeasible: Stop.FAILED,
    _Native.kModelEmpty: Stop.FAILED,
    _Native.kNotset: Stop.FAILED,
    _Native.kLoadError: Stop.FAILED,
    _Native.kModelError: Stop.FAILED,
    _Native.kPresolveError: Stop.FAILED,
    _Native.kSolveError: Stop.FAILED,
    _Native.kPostsolveError: Stop.FAILED,
    _Native.kUnknown: Stop.FAILED,
}


def stop_of(status: highspy.HighsModelStatus) -> Stop:
    """Return why a run ended; one that had no time left because its end was asked for was interrupted."""
    stop = STOP_BY_STATUS[status]
    return Stop.INTERRUPTED if stop is Stop.LIMIT and interrupted() else stop


def silent() -> Any:
    """Return a HiGHS without a model, which is silent and stops at Ctrl-C and at an interrupter."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    # HiGHS has one handler of Ctrl-C a process, which only the main thread gets to see.
    highs.HandleKeyboardInterrupt = threading.current_thread() is threading.main_thread()
    watch(highs)
    return highs


def linear_program(
    columns: Sequence[tuple[float | None, float | None, bool]],
    rows: Sequence[tuple[Mapping[int, float], float | None, float | None]],
    costs: Mapping[int, float],
    offset: float = 0.0,
) -> Any:
    """Return the arrays of a model that minimizes; a limit that is None is none.

    Parameters
    ----------
    columns
        Least and largest value, and whether whole.
    rows
        Factors by column, and the least and largest sum.
    """
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_, lp.offset_ = len(columns), len(rows), offset
    lp.col_lower_, lp.col_upper_ = _limits((low, high) for low, high, _ in columns)
    lp.row_lower_, lp.row_upper_ = _limits((low, high) for _, low, high in rows)
    whole, free = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    lp.integrality_ = [whole if integer else free for _, _, integer in columns]
    lp.col_cost_ = np.array([costs.get(i, 0.0) for i in range(len(columns))], dtype=np.float64)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0, *(len(row) for row, _, _ in rows)], dtype=np.int32)
    lp.a_matrix_.index_ = np.array([i for row, _, _ in rows for i in row], dtype=np.int32)
    lp.a_matrix_.value_ = np.array([factor for row, _, _ in rows for factor in row.values()], dtype=np.float64)
    return lp


def _limits(
    pairs: Iterable[tuple[float | None, float | None]],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    every = list(pairs)
    low = [-highspy.kHighsInf if low is None else low for low, _ in every]
    high = [highspy.kHighsInf if high is None else high for _, high in every]
    return np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a search: the best point that keeps all rows, the bound, and how many lazy rows there were."""

    status: Any
    point: npt.NDArray[np.float64] | None
    bound: float | None
    infeasible: bool
    rows: int = 0


def run_at_once(
    highs: Any, options: Mapping[str, Any], time_limit: float | None, names: Iterable[Sequence[str]] = ()
) -> tuple[Path | None, SearchResult]:
    """Run HiGHS on a model with all its rows; return the file stem of the model, if it is written, and the result."""
    limit = {} if time_limit is None else {"time_limit": max(time_limit, 0.0)}
    for key, option in {**options, **limit}.items():
        highs.setOptionValue(key, option)
    stem = begin_highs(highs, *names) if models_wanted() else None
    highs.run()
    status, info, optimal = highs.getModelStatus(), highs.getInfo(), highspy.HighsModelStatus.kOptimal
    solved = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    point = np.asarray(highs.getSolution().col_value) if solved else None
    bound = None  # for a model without integers its optimum, none before it is reached
    if info.mip_node_count >= 0 and math.isfinite(info.mip_dual_bound):
        bound = float(info.mip_dual_bound)
    elif info.mip_node_count < 0 and status == optimal:
        bound = float(info.objective_function_value)
    infeasible = status == highspy.HighsModelStatus.kInfeasible
    return stem, SearchResult(status=status, point=point, bound=bound, infeasible=infeasible)


def require_highs() -> None:
    """Refuse a HiGHS whose answers are not known to be right.

    Raises
    ------
    InputError
        If another series than the pinned one is installed.
    """
    installed = (highspy.HIGHS_VERSION_MAJOR, highspy.HIGHS_VERSION_MINOR, highspy.HIGHS_VERSION_PATCH)
    if installed[:2] != SERIES or installed[2] < FIRST_PATCH:
        wanted = f"highspy>={SERIES[0]}.{SERIES[1]}.{FIRST_PATCH},<{SERIES[0]}.{SERIES[1] + 1}"
        raise InputError(
            f"highspy: must be {wanted} (is {'.'.join(map(str, installed))}), "
            f"other versions give wrong optima; install it: pip install '{wanted}'"
        )
