"""A Pyomo model handed to HiGHS in one piece, and the bound in exact fractions that the duals of its relaxation prove.

For any duals y of rows `low <= A x <= high`, the minimum of c x is at least the sum of y times the side that it presses
on, plus each reduced cost c - A'y times the bound of its column that makes it least (Neumaier and Shcherbina, 2004,
Mathematical Programming 99, 283-296). The duals may be wrong by any rounding: the bound is then weaker, never false.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt
import pyomo.core as pyo
from pyomo.core.base.enums import SortComponents
from pyomo.repn.linear import LinearRepnVisitor
from pyomo.repn.util import VarRecorder

from planner.solvers.statuses import linear_program, require_highs, silent

INF = highspy.kHighsInf


@dataclass(frozen=True, slots=True)
class HighsModel:
    """A model in HiGHS: the column of each variable by its id, the constraint of each row, whether it has a goal."""

    h: Any
    column: dict[int, int]
    rows: tuple[Any, ...]
    has_goal: bool
    variables: dict[int, Any]

    def copied(self) -> "HighsModel":
        """Return the model for another run, which knows nothing of the first."""
        highs = silent()
        highs.passModel(self.h.getLp())
        return replace(self, h=highs)

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Return the names of columns and rows."""
        columns = sorted(self.column, key=self.column.__getitem__)
        return [self.variables[column].name for column in columns], [row.name for row in self.rows]

    def value(self, variable: Any, point: npt.NDArray[np.float64]) -> float:
        """Return the value of a variable at a point.

        One that is fixed has none in HiGHS; one that no row and no objective mentions is free, so zero.
        """
        at = self.column.get(id(variable))
        return float(point[at]) if at is not None else float(variable.value) if variable.fixed else 0.0

    def duals(self, row_dual: Any) -> dict[Any, float]:
        """Return the dual of each constraint of the model, of which further rows may follow."""
        return {row: float(dual) for row, dual in zip(self.rows, row_dual, strict=False)}


def highs_model(model: pyo.ConcreteModel) -> HighsModel:
    """Return a linear Pyomo model in HiGHS, which is silent and stops at Ctrl-C and at an interrupter."""
    highs, linear = silent(), _Linear()
    goals = list(model.component_data_objects(pyo.Objective, active=True))
    rows = list(model.component_data_objects(pyo.Constraint, active=True))
    lp = linear.lp(rows, goals[0] if goals else None)
    highs.passModel(lp)
    return HighsModel(highs, linear.column, tuple(rows), bool(goals), linear.variables)


class _Linear:
    """The columns of a model in the order in which its rows mention them, and its rows."""

    def __init__(self) -> None:
        self.variables: dict[int, Any] = {}
        self.column: dict[int, int] = {}
        recorder = VarRecorder(self.variables, SortComponents.UNSORTED)
        self._visitor = LinearRepnVisitor({}, var_recorder=recorder)

    def _terms(self, expression: Any) -> tuple[dict[int, float], float]:
        found = self._visitor.walk_expression(expression)
        if found.nonlinear is not None:
            raise ValueError(f"not linear: {expression}")
        column = self.column
        return {column.setdefault(key, len(column)): factor for key, factor in found.linear.items()}, float(
            found.constant
        )

    def lp(self, rows: list[Any], goal: Any) -> Any:
        """Return the arrays of the model as HiGHS has them."""
        stated = []
        for row in rows:
            low, body, high = row.to_bounded_expression(evaluate_bounds=True)
            terms, constant = self._terms(body)
            stated.append((terms, None if low is None else low - constant, None if high is None else high - constant))
        costs, offset = ({}, 0.0) if goal is None else self._terms(goal.expr)
        variables = [self.variables[key] for key in self.column]
        columns = [(*variable.bounds, variable.is_integer() or variable.is_binary()) for variable in variables]
        lp = linear_program(columns, stated, costs, offset)
        if goal is not None and goal.sense == pyo.maximize:
            lp.sense_ = highspy.ObjSense.kMaximize
        return lp


MAX_NONZEROS = 300_000  # whose fractions take a few seconds


def lower_bound(model: pyo.ConcreteModel, *, time_limit: float | None = None) -> float | None:
    """Return a proven lower bound on a model that minimizes, from its relaxation; None where it has none."""
    require_highs()
    highs = highs_model(model).h
    lp = highs.getLp()
    if lp.sense_ != highspy.ObjSense.kMinimize or len(lp.a_matrix_.value_) > MAX_NONZEROS:
        return None
    highs.setOptionValue("solve_relaxation", True)
    if time_limit is not None:
        highs.setOptionValue("time_limit", max(time_limit, 0.0))
    highs.run()
    solution = highs.getSolution()
    return bound_of(lp, list(solution.row_dual)) if solution.dual_valid else None


def has_no_point(highs: Any, time_limit: float | None = None) -> bool:
    """Return whether a ray of the duals proves in exact fractions that the relaxation of a model in HiGHS has no point.

    The rows, added up with a ray as their factors, then ask for more than the bounds of all columns allow (Farkas).
    """
    if len(highs.getLp().a_matrix_.value_) > MAX_NONZEROS:
        return False
    options = {"solve_relaxation": True, "presolve": "off", "time_limit": INF if time_limit is None else time_limit}
    for key, option in options.items():
        highs.setOptionValue(key, option)
    highs.changeColsCost(highs.getNumCol(), np.arange(highs.getNumCol(), dtype=np.int32), np.zeros(highs.getNumCol()))
    highs.changeObjectiveOffset(0.0)
    highs.run()
    _, found, ray = highs.getDualRay()
    lp = highs.getLp()
    return bool(found) and any((bound_of(lp, [sign * y for y in ray]) or 0.0) > 0 for sign in (1, -1))


def bound_of(lp: Any, duals: list[float]) -> float | None:
    """Return the bound that duals give of a model in HiGHS, rounded down; None where a column or side is unbounded."""
    total, reduced = Fraction(lp.offset_), [Fraction(cost) for cost in lp.col_cost_]
    y = [Fraction(dual) for dual in duals]
    for row, column, value in _entries(lp):
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


def _entries(lp: Any) -> list[tuple[int, int, float]]:
    matrix = lp.a_matrix_
    start, index, value = list(matrix.start_), list(matrix.index_), list(matrix.value_)
    by_column = matrix.format_ == highspy.MatrixFormat.kColwise
    entries = []
    for owner in range(len(start) - 1):
        for k in range(start[owner], start[owner + 1]):
            entries.append((index[k], owner, value[k]) if by_column else (owner, index[k], value[k]))
    return entries
