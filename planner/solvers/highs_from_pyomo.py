"""Hand a Pyomo model to HiGHS in one piece; Pyomo's own interface adds variable by variable, which takes longer."""

import threading
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt
import pyomo.core as pyo
from pyomo.core.base.enums import SortComponents
from pyomo.repn.linear import LinearRepnVisitor
from pyomo.repn.util import VarRecorder

from planner.solvers.signals import watch

INF = highspy.kHighsInf


@dataclass(frozen=True, slots=True)
class HighsModel:
    """A model in HiGHS: the column of each variable by its id, the constraint of each row, whether it has a goal."""

    h: Any
    column: dict[int, int]
    rows: tuple[Any, ...]
    has_goal: bool
    variables: dict[int, Any]

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Return the names of columns and rows."""
        columns = sorted(self.column, key=self.column.__getitem__)
        return [self.variables[v].name for v in columns], [row.name for row in self.rows]

    def value(self, v: Any, x: npt.NDArray[np.float64]) -> float:
        """Return the value of a variable at a point.

        One that is fixed has none in HiGHS; one that no row and no objective mentions is free, so zero.
        """
        at = self.column.get(id(v))
        return float(x[at]) if at is not None else float(v.value) if v.fixed else 0.0

    def duals(self, row_dual: Any) -> dict[Any, float]:
        """Return the dual of each constraint of the model, of which further rows may follow."""
        return {row: float(dual) for row, dual in zip(self.rows, row_dual, strict=False)}


def highs_model(model: pyo.ConcreteModel) -> HighsModel:
    """Return a linear Pyomo model in HiGHS, which is silent and stops at Ctrl-C and at an interrupter."""
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    # HiGHS has one handler of Ctrl-C a process, which only the main thread gets to see.
    h.HandleKeyboardInterrupt = threading.current_thread() is threading.main_thread()
    watch(h)
    linear = _Linear()
    goals = list(model.component_data_objects(pyo.Objective, active=True))
    rows = list(model.component_data_objects(pyo.Constraint, active=True))
    lp = linear.lp(rows, goals[0] if goals else None)
    h.passModel(lp)
    return HighsModel(h, linear.column, tuple(rows), bool(goals), linear.variables)


class _Linear:
    """The columns of a model in the order in which its rows mention them, and its rows."""

    def __init__(self) -> None:
        self.variables: dict[int, Any] = {}
        self.column: dict[int, int] = {}
        recorder = VarRecorder(self.variables, SortComponents.UNSORTED)
        self._visitor = LinearRepnVisitor({}, var_recorder=recorder)

    def _terms(self, expression: Any) -> tuple[dict[int, float], float]:
        """Return the coefficients of an expression by column, and its constant."""
        found = self._visitor.walk_expression(expression)
        if found.nonlinear is not None:
            raise ValueError(f"not linear: {expression}")
        column = self.column
        return {column.setdefault(v, len(column)): c for v, c in found.linear.items()}, float(found.constant)

    def lp(self, rows: list[Any], goal: Any) -> Any:
        """Return the arrays of the model as HiGHS has them."""
        starts: list[int] = [0]
        index: list[int] = []
        values: list[float] = []
        low, high = [], []
        for row in rows:
            lower, body, upper = row.to_bounded_expression(evaluate_bounds=True)
            terms, constant = self._terms(body)
            index += terms.keys()
            values += terms.values()
            starts.append(len(index))
            low.append(-INF if lower is None else lower - constant)
            high.append(INF if upper is None else upper - constant)
        costs, offset = ({}, 0.0) if goal is None else self._terms(goal.expr)
        lp, columns = highspy.HighsLp(), [self.variables[v] for v in self.column]
        lp.num_col_, lp.num_row_ = len(columns), len(rows)
        lp.row_lower_, lp.row_upper_ = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = np.array(starts, dtype=np.int32), np.array(index, dtype=np.int32)
        lp.a_matrix_.value_ = np.array(values, dtype=np.float64)
        bounds = [v.bounds for v in columns]
        lp.col_lower_ = np.array([-INF if x is None else x for x, _ in bounds], dtype=np.float64)
        lp.col_upper_ = np.array([INF if x is None else x for _, x in bounds], dtype=np.float64)
        whole, free = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
        lp.integrality_ = [whole if v.is_integer() or v.is_binary() else free for v in columns]
        lp.col_cost_ = np.array([costs.get(i, 0.0) for i in range(len(columns))], dtype=np.float64)
        lp.offset_ = offset
        if goal is not None and goal.sense == pyo.maximize:
            lp.sense_ = highspy.ObjSense.kMaximize
        return lp
