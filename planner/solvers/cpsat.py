"""Run a CP-SAT model, on CP-SAT or on HiGHS; run a Pyomo MILP on CP-SAT, a back end whose arithmetic is exact."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import highspy
import numpy as np
from ortools.sat.python import cp_model

from planner.solvers import highs, signals
from planner.solvers.highs import HighsModel
from planner.solvers.model_files import begin_cpsat, end
from planner.solvers.outcome import Floats, Outcome, Stop, Values, believed, run_twice
from planner.solvers.search_deadline import Deadline

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
DIGITS = 9  # Of the largest coefficient of a row; with values up to 1e7 and a hundred terms, sums stay within 64 bits.
OBJECTIVE_SCALE = 1e6  # Objectives in millions of dollars are counted in dollars, which is finer than a rack.
UNIT = 1e-3  # of continuous variables: megawatts are then in kilowatts
EXACT = 1e-6
# Widened rows admit solutions a little better than any exact one, and the last of these gains can take for ever.
PROOF_EFFORT = 10.0
FARTHEST = 2.0**62  # side of a row: beyond it, and beyond all sums of columns, there is none, as CP-SAT writes it
WHOLE = 2.0**53  # CP-SAT reports objectives as floating point, whole up to here.


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

    def once(presolve: bool) -> Outcome[Values]:
        solver, limit = cp_model.CpSolver(), Deadline(time_limit).limit
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


def broken_by_integers(proto: Any, point: Sequence[int]) -> str:
    """Return which row of a CP-SAT model a point breaks, nothing where it keeps all; all rows here are linear."""
    if len(point) != len(proto.variables):
        return f"{len(point)} values for {len(proto.variables)} variables"

    for i, variable in enumerate(proto.variables):
        if not _in_domain(point[i], list(variable.domain)):
            return f"variable {variable.name or i} is {point[i]}, outside its domain"
    for name, row, domain in linear_rows(proto):
        if not _in_domain(sum(factor * int(point[column]) for column, factor in row.items()), domain):
            return f"constraint {name} does not hold"
    return ""


def linear_rows(proto: Any) -> Iterator[tuple[str, dict[int, int], list[int]]]:
    """Yield name, factors by variable and domain of each row of a CP-SAT model. ValueError: one is not linear."""
    for i, constraint in enumerate(proto.constraints):
        name, row = constraint.name or str(i), dict[int, int]()
        if len(constraint.enforcement_literal) or not (constraint.has_linear() or constraint.has_bool_or()):
            raise ValueError(f"{name}: is not a linear row")
        if constraint.has_bool_or():  # also what a row without variables becomes
            literals = list(constraint.bool_or.literals)
            terms = [(literal, 1) if literal >= 0 else (-literal - 1, -1) for literal in literals]
            domain = [1 - sum(literal < 0 for literal in literals), (1 << 63) - 1]
        else:
            terms = list(zip(constraint.linear.vars, constraint.linear.coeffs, strict=True))
            domain = list(constraint.linear.domain)
        for column, factor in terms:
            row[column] = row.get(column, 0) + factor
        yield name, row, domain


def _in_domain(value: int, domain: Sequence[int]) -> bool:
    return any(low <= value <= high for low, high in zip(domain[::2], domain[1::2], strict=True))


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
    highs.require_highs()
    deadline, goal, rows, costs = Deadline(time_limit), model.proto.objective, [], dict[int, int]()
    for _, row, (low, high) in linear_rows(model.proto):
        kept = {column: factor for column, factor in row.items() if factor}
        rows.append((kept, None if low < -FARTHEST else low, None if high > FARTHEST else high))
    for column, factor in zip(goal.vars, goal.coeffs, strict=True):
        costs[column] = costs.get(column, 0) + factor
    domains = [list(variable.domain) for variable in model.proto.variables]
    lp = highs.linear_program([(domain[0], domain[-1], True) for domain in domains], rows, costs, goal.offset)

    def value(point: Sequence[int], expression: cp_model.LinearExprT) -> int:
        if not isinstance(expression, cp_model.IntVar):
            raise TypeError(f"a value is read by variable (is {type(expression).__name__})")
        return point[expression.index]

    def once(presolve: bool) -> Outcome[Values]:
        switch = "on" if presolve else "off"
        options = {"mip_rel_gap": 0.0, "threads": threads or 1, "random_seed": seed, "presolve": switch}
        stem, result = highs.run_at_once(highs.loaded(lp, options), deadline.limit)
        point = None if result.point is None else [round(value) for value in result.point]
        # All variables are bounded, so that of the two only one can be.
        infeasible = result.status in highs.INFEASIBLE
        return _believed(
            model,
            point,
            stem,
            stop=Stop.PROVED if infeasible else highs.stop_of(result.status),
            solution=None if point is None else Values(partial(value, point)),
            bound=None if infeasible or result.bound is None else (goal.scaling_factor or 1.0) * result.bound,
            infeasible=infeasible,
            detail=str(result.status.name)[1:],
            solver=highs.HIGHS,
            seconds=deadline.elapsed,
        )

    return replace(run_twice(once, highs.HIGHS, presolve=presolve, repeat=repeat), seconds=deadline.elapsed)


@dataclass(frozen=True, slots=True)
class _Translation:
    """A Pyomo MILP as a CP-SAT model: columns, their steps, the objective's scale and a bound on its rounding error."""

    cp: cp_model.CpModel
    columns: list[cp_model.IntVar]
    steps: Floats
    scale: float
    error: float


def run_pyomo(
    model: Any,
    *,
    time_limit: float | None = None,
    absolute_gap: float | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Outcome[Values]:
    """Solve a Pyomo MILP with bounded variables, continuous ones in thousandths.

    A solution keeps every row exactly. Bound and infeasibility are those of the model with rows widened by what
    rounding can cost, so that they hold for every solution, not only for those in thousandths.
    """
    deadline, built = Deadline(time_limit), highs.highs_model(model)

    def solve(translation: _Translation, effort: float | None = None) -> Outcome[Values]:
        return run(translation.cp, time_limit=deadline.limit, effort=effort, seed=seed, threads=threads)

    exact = relaxed = _translate(built, relax=False, scale=None)
    outcome = proof = solve(exact)
    values = None if outcome.solution is None else [int(outcome.solution.of(column)) for column in exact.columns]
    if np.any(exact.steps != 1.0):  # there may be solutions between multiples of the unit
        relaxed = _translate(built, relax=True, scale=exact.scale)
        for column, value in zip(relaxed.columns, values or (), strict=values is not None):
            relaxed.cp.add_hint(column, value)
        proof = solve(relaxed, PROOF_EFFORT) if outcome.proved else Outcome(stop=Stop.LIMIT)
    solution = objective = bound = None
    if values is not None:
        point = exact.steps * np.asarray(values, dtype=np.float64)
        solution = Values(partial(built.value, point=point))
        objective = float(np.dot(built.lp.col_cost_, point) + built.lp.offset_) if built.has_goal else None
    if objective is not None and proof.bound is not None and outcome.bound is not None:
        proven = (min(proof.bound, outcome.bound) - relaxed.error) / exact.scale
        bound = float(built.lp.offset_ + (proven if built.minimizes else -proven))
    result = replace(outcome.with_solution(solution), objective=objective, bound=bound, seconds=deadline.elapsed)
    if outcome.infeasible and not proof.infeasible:
        return replace(result, stop=Stop.FAILED, infeasible=False, detail="infeasible in multiples of the unit alone")
    distance = highs.ABSOLUTE_GAP if absolute_gap is None else absolute_gap
    if objective is not None and result.proved and (bound is None or abs(objective - bound) > distance):
        return replace(result, stop=Stop.LIMIT, detail="optimal among multiples of the unit")
    return result


def restate(model: Any) -> cp_model.CpModel:
    """Return a Pyomo MILP as a CP-SAT model, rows widened by rounding: infeasible, it proves that the MILP is."""
    return _translate(highs.highs_model(model), relax=True, scale=OBJECTIVE_SCALE).cp


def _translate(built: HighsModel, *, relax: bool, scale: float | None) -> _Translation:
    """Return a MILP from HiGHS as a CP-SAT model, rows widened by their rounding error where it is to `relax`."""
    # Without `scale` the objective has as many digits as CP-SAT reports exactly. Rows have whole coefficients, by a
    # power of ten, which keeps decimal data exact.
    lp, cp, (names, row_names) = built.lp, cp_model.CpModel(), built.names
    lower, upper = np.asarray(lp.col_lower_), np.asarray(lp.col_upper_)
    endless = ~np.isfinite(lower) | ~np.isfinite(upper)
    if endless.any():
        raise ValueError(f"{names[int(endless.argmax())]}: needs both bounds to be counted in integers")
    whole = np.asarray([kind == highspy.HighsVarType.kInteger for kind in lp.integrality_], dtype=bool)
    steps = np.where(whole, 1.0, UNIT)
    low, high = np.ceil(lower / steps - EXACT), np.floor(upper / steps + EXACT)
    if relax:
        low, high = np.where(whole, low, np.floor(lower / steps)), np.where(whole, high, np.ceil(upper / steps))
    columns = [cp.new_int_var(int(a), int(b), name) for a, b, name in zip(low, high, names, strict=True)]
    largest = np.maximum(np.abs(low), np.abs(high))

    rows, at, factors = highs.entries_of(lp)  # by row
    peaks = np.zeros(lp.num_row_)
    np.maximum.at(peaks, rows, np.abs(factors * steps[at]))
    scales = 10.0 ** (DIGITS - np.ceil(np.log10(np.where(peaks > 0, peaks, 1.0))))
    factors = factors * steps[at] * scales[rows]
    rounding = np.maximum(np.abs(factors - np.round(factors)), EXACT * 1e-3) * largest[at]
    errors = np.bincount(rows, rounding + np.where(whole[at], 0.0, np.abs(factors) / 2), lp.num_row_) + EXACT
    errors = errors if relax else np.full(lp.num_row_, 0.5)
    least, most = np.asarray(lp.row_lower_) * scales - errors, np.asarray(lp.row_upper_) * scales + errors
    starts = np.searchsorted(rows, np.arange(lp.num_row_ + 1))
    for i, name in enumerate(row_names):
        part = slice(starts[i], starts[i + 1])
        terms = [columns[column] for column in at[part]], [round(factor) for factor in factors[part]]
        sides = _side(least[i], math.ceil), _side(most[i], math.floor)
        cp.add_linear_constraint(cp_model.LinearExpr.weighted_sum(*terms), *sides).with_name(name)

    error, costs = 0.0, np.asarray(lp.col_cost_) * steps
    if scale is None:
        total = float(np.abs(costs) @ np.maximum(largest, 1.0))
        scale = 10.0 ** math.floor(math.log10(WHOLE / total)) if total else 1.0
    if built.has_goal:
        costs = costs * scale if built.minimizes else -costs * scale
        error = float(np.abs(costs - np.round(costs)) @ largest + np.where(whole, 0.0, np.abs(costs) / 2).sum())
        cp.minimize(cp_model.LinearExpr.weighted_sum(columns, [round(cost) for cost in costs]))
    return _Translation(cp, columns, steps, scale, error)


def _side(side: float, rounded: Callable[[float], int]) -> int:
    """Return a side of a MILP's row as a whole number for CP-SAT, that of no side where it is beyond the farthest."""
    return rounded(side) if abs(side) < FARTHEST else int(cp_model.INT_MAX if side > 0 else cp_model.INT_MIN)
