"""Restate a Pyomo MILP in CP-SAT: a second backend of another kind, to confirm what the first one proved."""

import math
from typing import Any

import pyomo.environ as pyo
from ortools.sat.python import cp_model
from pyomo.repn import generate_standard_repn

DIGITS = 9  # Of the largest coefficient of a row; with values up to 1e7 and a hundred terms, sums stay within 64 bits.
EXACT = 1e-6


def restate(model: pyo.ConcreteModel, *, unit: float = 1e-3, relax: bool = True) -> cp_model.CpModel:
    """Return the model over integers; continuous variables count in multiples of `unit`.

    Parameters
    ----------
    relax
        Widen each row by what rounding can cost, so that an infeasible restatement proves the model infeasible. Without
        it, the restatement is exact where data and solutions are multiples of `unit`.
    """
    cp = cp_model.CpModel()
    of: dict[int, tuple[cp_model.IntVar, float]] = {}
    for var in model.component_data_objects(pyo.Var):
        step = unit if var.is_continuous() else 1.0
        if var.lb is None or var.ub is None:
            raise ValueError(f"{var.name}: needs both bounds to be counted in integers")
        low, high = math.ceil(var.lb / step - EXACT), math.floor(var.ub / step + EXACT)
        if relax and var.is_continuous():
            low, high = math.floor(var.lb / step), math.ceil(var.ub / step)
        of[id(var)] = cp.new_int_var(low, high, var.name), step
    for row in model.component_data_objects(pyo.Constraint, active=True):
        _row(cp, of, row, relax)
    goal = next(model.component_data_objects(pyo.Objective, active=True), None)
    if goal is not None:
        repn = generate_standard_repn(goal.expr)
        sign = 1 if goal.sense == pyo.minimize else -1
        scale = 1e6  # M$ to $, and finer than a rack.
        terms = [
            round(sign * c * of[id(v)][1] * scale) * of[id(v)][0]
            for c, v in zip(repn.linear_coefs, repn.linear_vars, strict=True)
        ]
        cp.minimize(sum(terms))
    return cp


def _row(cp: cp_model.CpModel, of: dict[int, tuple[cp_model.IntVar, float]], row: Any, relax: bool) -> None:
    repn = generate_standard_repn(row.body)
    terms = [(c * of[id(v)][1], *of[id(v)]) for c, v in zip(repn.linear_coefs, repn.linear_vars, strict=True) if c]
    # A power of ten keeps decimal data exact.
    scale = 10.0 ** (DIGITS - math.ceil(math.log10(max((abs(c) for c, _, _ in terms), default=1.0))))
    error = EXACT
    for c, var, step in terms:
        most = max(abs(b) for b in var.proto.domain)
        rounding = abs(c * scale - round(c * scale))
        error += max(rounding, EXACT * 1e-3) * most + (abs(c) * scale / 2 if step != 1.0 else 0.0)
    error = error if relax else 0.5
    body = sum(round(c * scale) * var for c, var, _ in terms)
    if row.has_ub():
        cp.add(body <= math.floor((pyo.value(row.upper) - repn.constant) * scale + error)).with_name(row.name)
    if row.has_lb():
        cp.add(body >= math.ceil((pyo.value(row.lower) - repn.constant) * scale - error)).with_name(row.name)
