"""Run a CP-SAT model, on CP-SAT or on HiGHS."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ortools.sat.python import cp_model

from planner.solvers import signals
from planner.solvers.outcome import Outcome, Stop, Values, believed, broken_by_integers, linear_rows, run_twice
from planner.solvers.progress import begin_cpsat, end
from planner.solvers.signals import Deadline
from planner.solvers.statuses import HIGHS, INFEASIBLE, linear_program, loaded, require_highs, run_at_once, stop_of

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
    """Solve a CP-SAT model, on one thread unless set otherwise, so that a run repeats byte for byte.

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
        stem, clock, watched = begin_cpsat(model, solver), Deadline(), interruptible or signals.interruptible()
        status, interrupted = _solve_watched(solver, model) if watched else (solver.solve(model), False)
        stop, solved = STOP_BY_STATUS[status], status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        return _believed(
            model,
            [int(value) for value in solver.response_proto.solution] if solved else None,
            stem,
            stop=Stop.INTERRUPTED if interrupted and stop is not Stop.PROVED else stop,
            solution=Values(solver.value) if solved else None,
            bound=solver.best_objective_bound if solved else None,
            infeasible=status == cp_model.INFEASIBLE,
            detail=solver.status_name(status),
            solver=SOLVER,
            seconds=clock.elapsed,
        )

    return run_twice(once, SOLVER, presolve=presolve)


def _believed(model: cp_model.CpModel, point: list[int] | None, stem: Path | None, **found: Any) -> Outcome[Values]:
    """Return as much of the outcome that CP-SAT or HiGHS `found` as its figures bear out, written into the index."""
    proto, goal = model.proto, model.proto.objective
    broken, scale = "" if point is None else broken_by_integers(proto, point), goal.scaling_factor or 1.0
    found |= {"variables": len(proto.variables), "constraints": len(proto.constraints)}
    if not model.has_objective():
        found["bound"] = None
    elif point is not None and not broken:
        total = sum(factor * point[column] for column, factor in zip(goal.vars, goal.coeffs, strict=True))
        found["objective"] = float((total + goal.offset) * scale)
    return end(stem, believed(Outcome(**found), broken=broken, minimize=scale > 0))


def _solve_watched(solver: cp_model.CpSolver, model: cp_model.CpModel) -> tuple[cp_model.CpSolverStatus, bool]:
    """Run CP-SAT in a thread of its own, as Ctrl-C reaches the main thread alone and only between its own steps."""
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


FAR = 2**62  # CP-SAT writes a side without a limit as one beyond this.


def run_on_highs(
    model: cp_model.CpModel,
    *,
    time_limit: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    presolve: bool = True,
    repeat: bool = True,
) -> Outcome[Values]:
    """Solve a CP-SAT model of linear rows on HiGHS, where the relaxation is so tight that branching beats learning.

    Its solution is read by variable, not by expression. Tolerances are those of HiGHS, as narrower ones (1e-9) have
    made it call 2 the optimum where 1 is. A solution is rounded and checked against the rows in whole numbers; a proof
    is worth a second run without `presolve`, and `infeasible` too where `repeat` asks. Ctrl-C in the main thread stops
    the search at once and returns its incumbent. ValueError: a rule is not linear, or holds only under a condition.
    """
    require_highs()
    deadline, goal, rows, costs = Deadline(time_limit), model.proto.objective, [], dict[int, int]()
    for _, row, (low, high) in linear_rows(model.proto):
        kept = {column: factor for column, factor in row.items() if factor}
        rows.append((kept, None if low < -FAR else low, None if high > FAR else high))
    for column, factor in zip(goal.vars, goal.coeffs, strict=True):
        costs[column] = costs.get(column, 0) + factor
    domains = [list(variable.domain) for variable in model.proto.variables]
    lp = linear_program([(domain[0], domain[-1], True) for domain in domains], rows, costs, goal.offset)

    def value(point: Sequence[int], expression: cp_model.LinearExprT) -> int:
        if not isinstance(expression, cp_model.IntVar):
            raise TypeError(f"a value is read by variable (is {type(expression).__name__})")
        return point[expression.index]

    def once(presolve: bool) -> Outcome[Values]:
        switch = "on" if presolve else "off"
        options = {"mip_rel_gap": 0.0, "threads": threads or 1, "random_seed": seed, "presolve": switch}
        stem, result = run_at_once(loaded(lp), options, deadline.limit)
        point = None if result.point is None else [round(value) for value in result.point]
        # All variables are bounded, so that of the two only one can be.
        infeasible = result.status in INFEASIBLE
        return _believed(
            model,
            point,
            stem,
            stop=Stop.PROVED if infeasible else stop_of(result.status),
            solution=None if point is None else Values(partial(value, point)),
            bound=None if infeasible or result.bound is None else (goal.scaling_factor or 1.0) * result.bound,
            infeasible=infeasible,
            detail=str(result.status.name)[1:],
            solver=HIGHS,
            seconds=deadline.elapsed,
        )

    return replace(run_twice(once, HIGHS, presolve=presolve, repeat=repeat), seconds=deadline.elapsed)
