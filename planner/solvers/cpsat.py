"""Run a CP-SAT model."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from queue import Empty, Queue

from ortools.sat.python import cp_model

from planner.solvers.outcome import Outcome, Stop

SOLVER = f"CP-SAT {version('ortools')}"

# Total over the native statuses; a test walks the enum.
STOP_BY_STATUS = {
    cp_model.OPTIMAL: Stop.PROVED,
    cp_model.INFEASIBLE: Stop.PROVED,
    cp_model.FEASIBLE: Stop.LIMIT,
    cp_model.UNKNOWN: Stop.LIMIT,
    cp_model.MODEL_INVALID: Stop.FAILED,
}


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a solution, read by variable."""

    of: Callable[[cp_model.LinearExprT], int]


def run(
    model: cp_model.CpModel,
    *,
    time_limit: float | None = None,
    gap: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    effort: float | None = None,
    interruptible: bool = False,
) -> Outcome[Values]:
    """Solve the model; one thread unless told otherwise, so that a run repeats byte for byte.

    `effort` is a limit in CP-SAT's own units of work, about a second each, which ends a run at the same point every time.
    Ctrl-C stops the search at once where it is `interruptible`, and what is held then comes back; otherwise it is raised
    after the call.
    """
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = threads or 1
    solver.parameters.random_seed = seed
    # CP-SAT would take Ctrl-C for itself and return as if a limit had been reached.
    solver.parameters.catch_sigint_signal = False
    if time_limit is not None:
        solver.parameters.max_time_in_seconds = max(time_limit, 0.0)
    if effort is not None:
        solver.parameters.max_deterministic_time = effort
    if gap is not None:
        solver.parameters.relative_gap_limit = gap
    started = time.perf_counter()
    status, interrupted = _watched(solver, model) if interruptible else (solver.solve(model), False)
    held = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    bounded = held and model.has_objective()
    return Outcome(
        stop=Stop.INTERRUPTED if interrupted and STOP_BY_STATUS[status] is not Stop.PROVED else STOP_BY_STATUS[status],
        solution=Values(solver.value) if held else None,
        objective=solver.objective_value if bounded else None,
        bound=solver.best_objective_bound if bounded else None,
        infeasible=status == cp_model.INFEASIBLE,
        detail=solver.status_name(status),
        solver=SOLVER,
        variables=len(model.proto.variables),
        constraints=len(model.proto.constraints),
        effort=solver.response_proto.deterministic_time,
        seconds=time.perf_counter() - started,
    )


def _watched(solver: cp_model.CpSolver, model: cp_model.CpModel) -> tuple[cp_model.CpSolverStatus, bool]:
    """Solve in a thread of its own, as Ctrl-C reaches the main thread alone and only between its own steps."""
    if threading.current_thread() is not threading.main_thread():
        return solver.solve(model), False
    found: Queue[cp_model.CpSolverStatus | BaseException] = Queue()

    def work() -> None:
        try:
            found.put(solver.solve(model))
        except BaseException as error:  # raised again where the caller waits
            found.put(error)

    threading.Thread(target=work, daemon=True).start()
    interrupted = False
    while True:
        try:
            status = found.get(timeout=0.1)  # a signal that another thread was given is seen only when this one wakes
            break
        except KeyboardInterrupt:
            interrupted = True
        except Empty:
            if interrupted:
                solver.stop_search()
    if isinstance(status, BaseException):
        raise status
    return status, interrupted
