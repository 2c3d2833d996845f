"""A Pyomo model handed to HiGHS in one piece, and the bound in exact fractions that the duals of its relaxation prove.

For any duals y of rows `low <= A x <= high`, the minimum of c x is at least the sum of y times the side that it presses
on, plus each reduced cost c - A'y times the bound of its column that makes it least (Neumaier and Shcherbina, 2004,
Mathematical Programming 99, 283-296). The duals may be wrong by any rounding: the bound is then weaker, never false.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt
import pyomo.core as pyo
from pyomo.core.base.enums import SortComponents
from pyomo.repn.linear import LinearRepnVisitor
from pyomo.repn.util import VarRecorder

from planner.solvers.outcome import entries_of
from planner.solvers.statuses import linear_program


@dataclass(frozen=True, slots=True)
class HighsModel:
    """A model as HiGHS reads it: its arrays, the column of each variable by id, and the constraint of each row."""

    lp: Any
    column: dict[int, int]
    rows: tuple[Any, ...]
    has_goal: bool
    variables: dict[int, Any]

    @property
    def minimizes(self) -> bool:
        """Whether its goal, if any, is to be as low as possible."""
        return bool(self.lp.sense_ == highspy.ObjSense.kMinimize)

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Return the names of columns and rows."""
        return [self.variables[key].name for key in self.column], [row.name for row in self.rows]

    def value(self, variable: Any, point: npt.NDArray[np.float64]) -> float:
        """Return the value of a variable at a point; a fixed one has none in HiGHS, one in no row is free, so zero."""
        at = self.column.get(id(variable))
        return float(point[at]) if at is not None else float(variable.value) if variable.fixed else 0.0


def highs_model(model: pyo.ConcreteModel) -> HighsModel:
    """Return a linear Pyomo model as HiGHS reads it, its columns in the order in which its rows mention them."""
    column, variables = dict[int, int](), dict[int, Any]()
    visitor = LinearRepnVisitor({}, var_recorder=VarRecorder(variables, SortComponents.UNSORTED))

    def terms(expression: Any) -> tuple[dict[int, float], float]:
        linear = visitor.walk_expression(expression)
        if linear.nonlinear is not None:
            raise ValueError(f"not linear: {expression}")
        factors = {column.setdefault(key, len(column)): factor for key, factor in linear.linear.items()}
        return factors, float(linear.constant)

    goal = next(model.component_data_objects(pyo.Objective, active=True), None)
    rows = tuple(model.component_data_objects(pyo.Constraint, active=True))
    stated = []
    for row in rows:
        low, body, high = row.to_bounded_expression(evaluate_bounds=True)
        factors, constant = terms(body)
        stated.append((factors, None if low is None else low - constant, None if high is None else high - constant))
    costs, offset = ({}, 0.0) if goal is None else terms(goal.expr)
    mentioned = [variables[key] for key in column]
    columns = [(*variable.bounds, variable.is_integer() or variable.is_binary()) for variable in mentioned]
    lp = linear_program(columns, stated, costs, offset)
    if goal is not None and goal.sense == pyo.maximize:
        lp.sense_ = highspy.ObjSense.kMaximize
    return HighsModel(lp, column, rows, goal is not None, variables)


MAX_NONZEROS = 300_000  # whose fractions take a few seconds


def bound_of(lp: Any, duals: list[float]) -> float | None:
    """Return the bound that duals give of a model in HiGHS, rounded down; None where a column or side is unbounded."""
    total, reduced = Fraction(lp.offset_), [Fraction(cost) for cost in lp.col_cost_]
    y = [Fraction(dual) for dual in duals]
    for row, column, value in zip(*(each.tolist() for each in entries_of(lp)), strict=True):
        if y[row]:
            reduced[column] -= y[row] * Fraction(value)
    pairs = [(y, lp.row_lower_, lp.row_upper_), (reduced, lp.col_lower_, lp.col_upper_)]
    for multipliers, lower, upper in pairs:
        for multiplier, low, high in zip(multipliers, lower, upper, strict=True):
            side = low if multiplier > 0 else high
            if multiplier and not math.isfinite(side):
                return None
            total += multiplier * Fraction(side) if multiplier else 0
    found = float(total)
    return found if Fraction(found) <= total else math.nextafter(found, -math.inf)
