"""Run a Pyomo MILP on CP-SAT: a second back end of another kind, whose arithmetic is exact."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import highspy
import numpy as np
import pyomo.core as pyo
from ortools.sat.python import cp_model

from planner.solvers import cpsat
from planner.solvers.highs import ABSOLUTE_GAP, HighsModel, highs_model
from planner.solvers.outcome import Floats, Outcome, Stop, Values, entries_of, value_of
from planner.solvers.signals import Deadline

DIGITS = 9  # Of the largest coefficient of a row; with values up to 1e7 and a hundred terms, sums stay within 64 bits.
OBJECTIVE_SCALE = 1e6  # Objectives in millions of dollars are counted in dollars, which is finer than a rack.
UNIT = 1e-3  # of continuous variables: megawatts are then in kilowatts
EXACT = 1e-6
# Widened rows admit solutions a little better than any exact one, and the last of these gains can take for ever.
PROOF_EFFORT = 10.0
FARTHEST = 2.0**62  # side of a row: beyond it, and beyond all sums of columns, there is none
WHOLE = 2.0**53  # CP-SAT reports objectives as floating point, whole up to here.


@dataclass(frozen=True, slots=True)
class _Translation:
    """A Pyomo MILP as a CP-SAT model: columns, their steps, the objective's scale and a bound on its rounding error."""

    cp: cp_model.CpModel
    columns: list[cp_model.IntVar]
    steps: Floats
    scale: float
    error: float


def run(
    model: pyo.ConcreteModel,
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
    deadline, built = Deadline(time_limit), highs_model(model)

    def solve(translation: _Translation, effort: float | None = None) -> Outcome[Values]:
        return cpsat.run(translation.cp, time_limit=deadline.limit, effort=effort, seed=seed, threads=threads)

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
        objective = value_of(built.lp, point) if built.has_goal else None
    if objective is not None and proof.bound is not None and outcome.bound is not None:
        proven = (min(proof.bound, outcome.bound) - relaxed.error) / exact.scale
        bound = float(built.lp.offset_ + (proven if built.minimizes else -proven))
    result = replace(outcome.with_solution(solution), objective=objective, bound=bound, seconds=deadline.elapsed)
    if outcome.infeasible and not proof.infeasible:
        return replace(result, stop=Stop.FAILED, infeasible=False, detail="infeasible in multiples of the unit alone")
    distance = ABSOLUTE_GAP if absolute_gap is None else absolute_gap
    if objective is not None and result.proved and (bound is None or abs(objective - bound) > distance):
        return replace(result, stop=Stop.LIMIT, detail="optimal among multiples of the unit")
    return result


def restate(model: pyo.ConcreteModel) -> cp_model.CpModel:
    """Return a Pyomo MILP as a CP-SAT model, rows widened by rounding: infeasible, it proves that the MILP is."""
    return _translate(highs_model(model), relax=True, scale=OBJECTIVE_SCALE).cp


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

    rows, at, factors = entries_of(lp)  # by row
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
    if abs(side) < FARTHEST:
        return rounded(side)
    return int(cp_model.INT_MAX if side > 0 else cp_model.INT_MIN)
