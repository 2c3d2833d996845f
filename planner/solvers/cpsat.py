"""Run a CP-SAT model."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from queue import Empty, Queue

from ortools.sat.python import cp_model

from planner.solvers import signals
from planner.solvers.outcome import Outcome, Stop, agreed, attempted, believed, broken_by_integers, integer_value
from planner.solvers.progress import begin_cpsat, end, models_wanted
from planner.solvers.signals import Deadline

SOLVER = f"CP-SAT {version('ortools')}"

# Total over the native statuses; a test walks the enum.
STOP_BY_STATUS = {
    cp_model.OPTIMAL: Stop.PROVED,
    cp_model.INFEASIBLE: Stop.PROVED,
    cp_model.FEASIBLE: Stop.LIMIT,
    cp_model.UNKNOWN: Stop.LIMIT,
    cp_model.MODEL_INVALID: Stop.FAILED,
}
# Ctrl-C that reached another thread is seen only when the main one wakes: ten times a second costs nothing.
WAKE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class CpsatValues:
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
    presolve: bool = True,
    interruptible: bool = False,
) -> Outcome[CpsatValues]:
    """Solve a CP-SAT model, on one thread unless asked otherwise, so that a run repeats byte for byte.

    `infeasible` must be the answer of a second run too, with presolve turned (OR-Tools #5274, #5295).

    Parameters
    ----------
    effort
        Limit in CP-SAT's own units of work, about a second each, which ends a run at the same point every time.
    presolve
        Off makes a second, independent run of the same model.
    interruptible
        Whether Ctrl-C stops the search at once and returns its incumbent; otherwise it is raised after the call. Where
        signals end searches, or an interrupter was given, these stop it in any case.
    """
    clock = Deadline(time_limit)

    def once(*, presolve: bool) -> Outcome[CpsatValues]:
        limits = {"time_limit": clock.limit, "gap": gap, "effort": effort}
        how = {"seed": seed, "threads": threads, "presolve": presolve, "interruptible": interruptible}
        return attempted(lambda: _run(model, **limits, **how), SOLVER)  # type: ignore[arg-type]

    outcome = once(presolve=presolve)
    return agreed(outcome, once(presolve=not presolve)) if outcome.infeasible else outcome


def _run(
    model: cp_model.CpModel,
    *,
    time_limit: float | None,
    gap: float | None,
    seed: int,
    threads: int | None,
    effort: float | None,
    presolve: bool,
    interruptible: bool,
) -> Outcome[CpsatValues]:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = threads or 1
    solver.parameters.random_seed = seed
    # CP-SAT would take Ctrl-C for itself and return as if a limit had been reached.
    solver.parameters.catch_sigint_signal = False
    solver.parameters.cp_model_presolve = presolve
    if time_limit is not None:
        solver.parameters.max_time_in_seconds = max(time_limit, 0.0)
    if effort is not None:
        solver.parameters.max_deterministic_time = effort
    if gap is not None:
        solver.parameters.relative_gap_limit = gap
    stem = begin_cpsat(model, solver) if models_wanted() else None
    clock = Deadline()
    watched = interruptible or signals.interruptible()
    status, interrupted = _solve_watched(solver, model) if watched else (solver.solve(model), False)
    outcome = _outcome(solver, model, status, interrupted=interrupted, seconds=clock.elapsed)
    solution = [int(value) for value in solver.response_proto.solution] if outcome.solution is not None else None
    broken = "" if solution is None else broken_by_integers(model.proto, solution)
    if solution is not None and not broken and model.has_objective():
        outcome = replace(outcome, objective=integer_value(model.proto, solution))
    allowed = (gap or 0.0) * max(1.0, abs(outcome.objective or 0.0))
    minimize = not model.has_objective() or (model.proto.objective.scaling_factor or 1.0) > 0
    return end(stem, believed(outcome, broken=broken, minimize=minimize, allowed=allowed))


def _outcome(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    status: cp_model.CpSolverStatus,
    *,
    interrupted: bool,
    seconds: float,
) -> Outcome[CpsatValues]:
    stop, solved = STOP_BY_STATUS[status], status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    bounded = solved and model.has_objective()
    return Outcome(
        stop=Stop.INTERRUPTED if interrupted and stop is not Stop.PROVED else stop,
        solution=CpsatValues(solver.value) if solved else None,
        objective=solver.objective_value if bounded else None,
        bound=solver.best_objective_bound if bounded else None,
        infeasible=status == cp_model.INFEASIBLE,
        detail=solver.status_name(status),
        solver=SOLVER,
        variables=len(model.proto.variables),
        constraints=len(model.proto.constraints),
        effort=solver.response_proto.deterministic_time,
        seconds=seconds,
    )


def _solve_watched(solver: cp_model.CpSolver, model: cp_model.CpModel) -> tuple[cp_model.CpSolverStatus, bool]:
    """Solve in a thread of its own, as Ctrl-C reaches the main thread alone and only between its own steps."""
    finished: Queue[cp_model.CpSolverStatus | BaseException] = Queue()

    def work() -> None:
        try:
            finished.put(solver.solve(model))
        except BaseException as error:  # raised again where the caller waits
            finished.put(error)

    threading.Thread(target=work, daemon=True).start()
    interrupted = False
    while True:
        try:
            status = finished.get(timeout=WAKE_SECONDS)
            break
        except KeyboardInterrupt:
            interrupted = True
        except Empty:
            interrupted = interrupted or signals.interrupted()
            if interrupted:
                solver.stop_search()
    if isinstance(status, BaseException):
        raise status
    return status, interrupted or signals.interrupted()
