"""A knapsack of thirty rows that takes a solver minutes, for CP-SAT and through Pyomo."""

import random

import pyomo.environ as pyo
from ortools.sat.python import cp_model


def weights() -> list[list[int]]:
    r = random.Random(1)
    return [[r.randint(1, 1000) for _ in range(300)] for _ in range(31)]


def knapsack() -> cp_model.CpModel:
    model, (*rows, values) = cp_model.CpModel(), weights()
    picks = [model.new_bool_var(f"{i}") for i in range(300)]
    for row in rows:
        model.add(cp_model.LinearExpr.weighted_sum(picks, row) <= 40_000)
    model.maximize(cp_model.LinearExpr.weighted_sum(picks, values))
    return model


def pyomo_knapsack() -> pyo.ConcreteModel:
    m, (*rows, values) = pyo.ConcreteModel(), weights()
    m.x = pyo.Var(range(300), domain=pyo.Binary)
    m.rows = pyo.ConstraintList()
    for row in rows:
        m.rows.add(pyo.sum_product(dict(enumerate(row)), m.x) <= 40_000)
    m.goal = pyo.Objective(expr=pyo.sum_product(dict(enumerate(values)), m.x), sense=pyo.maximize)
    return m
