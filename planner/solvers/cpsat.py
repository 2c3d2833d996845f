"""Run a CP-SAT model."""

from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

from ortools.sat.python import cp_model

from planner.solvers import signals
from planner.solvers.outcome import Outcome, Stop, Values, believed, broken_by_integers, integer_value, run_twice
from planner.solvers.progress import begin_cpsat, end
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


def run(
    model: cp_model.CpModel,
    *,
    time_limit: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    effort: float | None = None,
    presolve: bool = True,
    interruptible: bool = False,
) -> Outcome[Values]:
    """Solve a CP-SAT model, on one thread unless asked otherwise, so that a run repeats byte for byte.

    `infeasible` must be the answer of a second run too, with presolve turned (OR-Tools #5274, #5295). `effort`: limit
    in CP-SAT's own units of work, about a second each, which ends a run at the same point every time. `interruptible`:
    whether Ctrl-C returns the incumbent at once, else it is raised after the call; where signals end searches, or an
    interrupter was given, these stop it in any case.
    """
    deadline = Deadline(time_limit)

    def once(presolve: bool) -> Outcome[Values]:
        solver, limit = cp_model.CpSolver(), deadline.limit
        solver.parameters.num_workers = threads or 1
        solver.parameters.random_seed = seed
        # CP-SAT would take Ctrl-C for itself and return as if a limit had been reached.
        solver.parameters.catch_sigint_signal = False
        solver.parameters.cp_model_presolve = presolve
        if limit is not None:
            solver.parameters.max_time_in_seconds = max(limit, 0.0)
        if effort is not None:
            solver.parameters.max_deterministic_time = effort
        return _answered(solver, model, watched=interruptible or signals.interruptible())

    return run_twice(once, SOLVER, presolve=presolve)


def _answered(solver: cp_model.CpSolver, model: cp_model.CpModel, *, watched: bool) -> Outcome[Values]:
    stem, proto, clock = begin_cpsat(model, solver), model.proto, Deadline()
    status, interrupted = _solve_watched(solver, model) if watched else (solver.solve(model), False)
    stop, solved, goal = STOP_BY_STATUS[status], status in (cp_model.OPTIMAL, cp_model.FEASIBLE), model.has_objective()
    point = [int(value) for value in solver.response_proto.solution] if solved else []
    broken = broken_by_integers(proto, point) if solved else ""
    outcome = Outcome(
        stop=Stop.INTERRUPTED if interrupted and stop is not Stop.PROVED else stop,
        solution=Values(solver.value) if solved else None,
        objective=integer_value(proto, point) if solved and goal and not broken else None,
        bound=solver.best_objective_bound if solved and goal else None,
        infeasible=status == cp_model.INFEASIBLE,
        detail=solver.status_name(status),
        solver=SOLVER,
        variables=len(proto.variables),
        constraints=len(proto.constraints),
        effort=solver.response_proto.deterministic_time,
        seconds=clock.elapsed,
    )
    minimize = not goal or (proto.objective.scaling_factor or 1.0) > 0
    return end(stem, believed(outcome, broken=broken, minimize=minimize))


def _solve_watched(solver: cp_model.CpSolver, model: cp_model.CpModel) -> tuple[cp_model.CpSolverStatus, bool]:
    """Solve in a thread of its own, as Ctrl-C reaches the main thread alone and only between its own steps."""
    interrupted = False
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(solver.solve, model)
        while True:
            try:
                return answer.result(timeout=WAKE_SECONDS), interrupted or signals.interrupted()
            except KeyboardInterrupt:
                interrupted = True
            except TimeoutError:
                interrupted = interrupted or signals.interrupted()
                if interrupted:
                    solver.stop_search()
