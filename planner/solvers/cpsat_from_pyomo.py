"""Run a Pyomo MILP on CP-SAT: a second back end of another kind, whose arithmetic is exact."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pyomo.core as pyo
from ortools.sat.python import cp_model
from pyomo.repn import generate_standard_repn

from planner.solvers import cpsat
from planner.solvers.highs import ABSOLUTE_GAP, HighsValues
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.signals import Deadline

DIGITS = 9  # Of the largest coefficient of a row; with values up to 1e7 and a hundred terms, sums stay within 64 bits.
OBJECTIVE_SCALE = 1e6  # Objectives in millions of dollars are counted in dollars, which is finer than a rack.
UNIT = 1e-3  # Megawatts are counted in kilowatts.
EXACT = 1e-6
# Widened rows admit solutions a little better than any exact one, and the last of these gains can take for ever.
PROOF_EFFORT = 10.0
WHOLE = 2.0**53  # CP-SAT reports objectives as floating point, whole up to here.


@dataclass(frozen=True, slots=True)
class _Translation:
    """A model over integers: the column and step of each variable, and a bound on the objective's rounding error."""

    cp: cp_model.CpModel
    columns: dict[int, tuple[cp_model.IntVar, float]] = field(default_factory=dict)  # by id of the Pyomo variable
    scale: float = OBJECTIVE_SCALE
    error: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether all variables are whole, so that no solution lies between multiples of the unit."""
        return all(step == 1.0 for _, step in self.columns.values())


def run(
    model: pyo.ConcreteModel,
    *,
    time_limit: float | None = None,
    gap: float | None = None,
    absolute_gap: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    presolve: bool = True,
    unit: float = UNIT,
) -> Outcome[HighsValues]:
    """Solve a Pyomo MILP with bounded variables, continuous ones in multiples of `unit`.

    A solution keeps every row exactly. Bound and infeasibility are those of the model with rows widened by what
    rounding can cost, so that they hold for every solution, not only for those in multiples of the unit.
    """
    deadline = Deadline(time_limit)

    def solve(translation: _Translation, effort: float | None = None) -> Outcome[cpsat.CpsatValues]:
        limits = {"time_limit": deadline.limit, "gap": gap, "effort": effort, "threads": threads}
        return cpsat.run(translation.cp, seed=seed, presolve=presolve, **limits)  # type: ignore[arg-type]

    exact = _translate(model, unit, relax=False, scale=None)
    outcome = proof = solve(exact)
    if not exact.whole:
        relaxed = _translate(model, unit, relax=True, scale=exact.scale)
        if outcome.solution is not None:
            for key, (column, _) in relaxed.columns.items():
                relaxed.cp.add_hint(column, outcome.solution.of(exact.columns[key][0]))
        proof = solve(relaxed, PROOF_EFFORT) if outcome.proved else Outcome(stop=Stop.LIMIT)
        exact = replace(exact, error=relaxed.error)
    result = _in_model_units(model, exact, outcome, proof)
    value, bound = result.objective, result.bound
    distance = max(ABSOLUTE_GAP if absolute_gap is None else absolute_gap, (gap or 0.0) * abs(value or 0.0))
    if value is not None and result.proved and (bound is None or abs(value - bound) > distance):
        result = replace(result, stop=Stop.LIMIT, detail="optimal among multiples of the unit")
    return replace(result, seconds=deadline.elapsed)


def restate(model: pyo.ConcreteModel, *, unit: float = UNIT, relax: bool = True) -> cp_model.CpModel:
    """Return a Pyomo MILP over integers; continuous variables count in multiples of `unit`.

    Parameters
    ----------
    relax
        Widen each row by what rounding can cost, so that an infeasible restatement proves the model infeasible. Without
        it, the restatement is exact where data and solutions are multiples of `unit`.
    """
    return _translate(model, unit, relax=relax, scale=OBJECTIVE_SCALE).cp


def _in_model_units(
    model: pyo.ConcreteModel,
    exact: _Translation,
    outcome: Outcome[cpsat.CpsatValues],
    proof: Outcome[cpsat.CpsatValues],
) -> Outcome[HighsValues]:
    """Return the outcome of the exact restatement in the model's units, with the bound of the relaxed one."""
    solution = objective = bound = None
    goal = _objective(model)
    if outcome.solution is not None:
        of = outcome.solution.of
        values = {key: of(column) * step for key, (column, step) in exact.columns.items()}
        solution = HighsValues(lambda variable: values.get(id(variable), 0.0))
    if goal is not None and outcome.solution is not None:
        repn = generate_standard_repn(goal.expr)
        sign = 1.0 if goal.sense == pyo.minimize else -1.0
        terms = zip(repn.linear_coefs, repn.linear_vars, strict=True)
        objective = float(repn.constant + sum(factor * values[id(variable)] for factor, variable in terms))
        if proof.bound is not None and outcome.bound is not None:
            bound = float(repn.constant + sign * (min(proof.bound, outcome.bound) - exact.error) / exact.scale)
    stated = replace(outcome.with_solution(solution), objective=objective, bound=bound)
    if outcome.infeasible and not proof.infeasible:
        return replace(stated, stop=Stop.FAILED, infeasible=False, detail="infeasible in multiples of the unit alone")
    return stated


def _translate(model: pyo.ConcreteModel, unit: float, *, relax: bool, scale: float | None) -> _Translation:
    """Return the model over integers; without `scale` the objective has as many digits as CP-SAT reports exactly."""
    translation = _Translation(cp_model.CpModel())
    for var in model.component_data_objects(pyo.Var):
        step = unit if var.is_continuous() else 1.0
        lb, ub = (var.value, var.value) if var.fixed else (var.lb, var.ub)
        if lb is None or ub is None:
            raise ValueError(f"{var.name}: needs both bounds to be counted in integers")
        low, high = math.ceil(lb / step - EXACT), math.floor(ub / step + EXACT)
        if relax and var.is_continuous():
            low, high = math.floor(lb / step), math.ceil(ub / step)
        translation.columns[id(var)] = translation.cp.new_int_var(low, high, var.name), step
    for row in model.component_data_objects(pyo.Constraint, active=True):
        _add_row(translation, row, relax=relax)
    goal = _objective(model)
    return translation if goal is None else _with_objective(translation, goal, scale)


def _objective(model: pyo.ConcreteModel) -> Any:
    return next(model.component_data_objects(pyo.Objective, active=True), None)


def _largest(column: cp_model.IntVar) -> int:
    return int(max(abs(bound) for bound in column.proto.domain))


def _terms(translation: _Translation, repn: Any) -> list[tuple[float, cp_model.IntVar, float]]:
    pairs = zip(repn.linear_coefs, repn.linear_vars, strict=True)
    return [
        (factor * translation.columns[id(variable)][1], *translation.columns[id(variable)])
        for factor, variable in pairs
        if factor
    ]


def _with_objective(translation: _Translation, goal: Any, scale: float | None) -> _Translation:
    """Add the objective in whole coefficients; return the translation with a bound on their rounding error, scaled."""
    terms = _terms(translation, generate_standard_repn(goal.expr))
    if scale is None:
        total = sum(abs(factor) * max(_largest(column), 1) for factor, column, _ in terms)
        scale = 10.0 ** math.floor(math.log10(WHOLE / total)) if total else 1.0
    sign, error = (1 if goal.sense == pyo.minimize else -1), 0.0
    for factor, column, step in terms:
        rounding = abs(factor * scale - round(factor * scale))
        error += rounding * _largest(column) + (abs(factor) * scale / 2 if step != 1.0 else 0.0)
    translation.cp.minimize(sum(round(sign * factor * scale) * column for factor, column, _ in terms))
    return replace(translation, scale=scale, error=error)


def _add_row(translation: _Translation, row: Any, *, relax: bool) -> None:
    """Add a row with whole coefficients, widened by their rounding error where it is relaxed."""
    repn = generate_standard_repn(row.body)
    terms = _terms(translation, repn)
    # A power of ten keeps decimal data exact.
    scale = 10.0 ** (DIGITS - math.ceil(math.log10(max((abs(factor) for factor, _, _ in terms), default=1.0))))
    error = EXACT
    for factor, column, step in terms:
        rounding = abs(factor * scale - round(factor * scale))
        half_step = abs(factor) * scale / 2 if step != 1.0 else 0.0
        error += max(rounding, EXACT * 1e-3) * _largest(column) + half_step
    error = error if relax else 0.5
    body = sum(round(factor * scale) * column for factor, column, _ in terms)
    if row.has_ub():
        translation.cp.add(body <= math.floor((pyo.value(row.upper) - repn.constant) * scale + error)).with_name(
            row.name
        )
    if row.has_lb():
        translation.cp.add(body >= math.ceil((pyo.value(row.lower) - repn.constant) * scale - error)).with_name(
            row.name
        )
