"""HiGHS without a model: its statuses and its tolerance; without Pyomo, which takes a second to load."""

import threading
from typing import Any

import highspy

from planner.errors import InputError
from planner.solvers.outcome import Stop
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
