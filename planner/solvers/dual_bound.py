"""A bound that needs no trust in floating point: from the duals of a relaxation, added up in exact fractions.

For any duals y of rows `low <= A x <= high`, the minimum of c x is at least the sum of y times the side that it presses
on, plus each reduced cost c - A'y times the bound of its column that makes it least (Neumaier and Shcherbina, 2004,
Mathematical Programming 99, 283-296). The duals may be wrong by any rounding: the bound is then weaker, never false.
"""

import math
from fractions import Fraction
from typing import Any

import highspy
import pyomo.core as pyo

from planner.solvers.highs_from_pyomo import highs_model
from planner.solvers.statuses import require_highs

MAX_NONZEROS = 300_000  # whose fractions take a few seconds


def lower_bound(model: pyo.ConcreteModel, *, time_limit: float | None = None) -> float | None:
    """Return a proven lower bound on a model that minimizes, from its relaxation; None where it has none."""
    require_highs()
    h = highs_model(model).h
    lp = h.getLp()
    if lp.sense_ != highspy.ObjSense.kMinimize or len(lp.a_matrix_.value_) > MAX_NONZEROS:
        return None
    h.setOptionValue("solve_relaxation", True)
    if time_limit is not None:
        h.setOptionValue("time_limit", max(time_limit, 0.0))
    h.run()
    solution = h.getSolution()
    return bound_of(lp, list(solution.row_dual)) if solution.dual_valid else None


def bound_of(lp: Any, duals: list[float]) -> float | None:
    """Return the bound that duals give of a model in HiGHS, rounded down; None where a column or side is unbounded."""
    total, reduced = Fraction(lp.offset_), [Fraction(c) for c in lp.col_cost_]
    y = [Fraction(d) for d in duals]
    for row, column, value in _entries(lp):
        if y[row]:
            reduced[column] -= y[row] * Fraction(value)
    pairs = [(y, lp.row_lower_, lp.row_upper_), (reduced, lp.col_lower_, lp.col_upper_)]
    for multipliers, lower, upper in pairs:
        for m, low, high in zip(multipliers, lower, upper, strict=True):
            side = low if m > 0 else high
            if m and not math.isfinite(side):
                return None
            total += m * Fraction(side) if m else 0
    found = float(total)
    return found if Fraction(found) <= total else math.nextafter(found, -math.inf)


def _entries(lp: Any) -> list[tuple[int, int, float]]:
    """Return row, column and value of each entry of the matrix."""
    matrix = lp.a_matrix_
    start, index, value = list(matrix.start_), list(matrix.index_), list(matrix.value_)
    by_column = matrix.format_ == highspy.MatrixFormat.kColwise
    entries = []
    for owner in range(len(start) - 1):
        for k in range(start[owner], start[owner + 1]):
            entries.append((index[k], owner, value[k]) if by_column else (owner, index[k], value[k]))
    return entries
