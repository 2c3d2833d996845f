"""Hand a Pyomo model to HiGHS in one piece; Pyomo's own interface adds variable by variable, which takes longer."""

import threading
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt
import pyomo.environ as pyo
from pyomo.common.errors import InfeasibleConstraintException
from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler

from planner.solvers.signals import watch

_AT_MOST, _AT_LEAST = 1, -1  # kinds of rows of Pyomo's standard form; 0: equality
_COMPILER = LinearStandardFormCompiler()


@dataclass(frozen=True, slots=True)
class HighsModel:
    """A model in HiGHS: the column of each variable by its id, the constraint of each row, whether it has a goal."""

    h: Any
    column: dict[int, int]
    rows: tuple[Any, ...]
    has_goal: bool = False

    def value(self, v: Any, x: npt.NDArray[np.float64]) -> float:
        """Return the value of a variable at a point.

        One that is fixed has none in HiGHS; one that no row and no objective mentions is free, so zero.
        """
        at = self.column.get(id(v))
        return float(x[at]) if at is not None else float(v.value) if v.fixed else 0.0

    def duals(self, row_dual: Any) -> dict[Any, float]:
        """Return the dual of each constraint; of one with two sides the sum of both."""
        found: dict[Any, float] = {}
        for constraint, dual in zip(self.rows, row_dual, strict=False):
            found[constraint] = found.get(constraint, 0.0) + float(dual)
        return found


def highs_model(model: pyo.ConcreteModel) -> HighsModel:
    """Return a linear Pyomo model in HiGHS, which is silent and stops at Ctrl-C and at an interrupter.

    Where constants alone break a constraint, the model is one row of zeros that cannot hold either.
    """
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    # HiGHS has one handler of Ctrl-C a process, which only the main thread gets to see.
    h.HandleKeyboardInterrupt = threading.current_thread() is threading.main_thread()
    watch(h)
    try:
        form = _COMPILER.write(model, mixed_form=True, set_sense=None)
    except InfeasibleConstraintException:
        h.addCol(0.0, 0.0, 0.0, 0, np.empty(0, dtype=np.int32), np.empty(0))
        h.addRow(1.0, highspy.kHighsInf, 0, np.empty(0, dtype=np.int32), np.empty(0))
        return HighsModel(h, {}, ())
    h.passModel(_lp(form))
    column = {id(v): i for i, v in enumerate(form.columns)}
    return HighsModel(h, column, tuple(r.constraint for r in form.rows), bool(form.objectives))


def _lp(form: Any) -> Any:
    """Return the arrays of a standard form as HiGHS has them, columns in the order in which rows mention them."""
    lp, count = highspy.HighsLp(), len(form.columns)
    kinds, rhs = np.array([r.bound_type for r in form.rows]), np.asarray(form.rhs, dtype=np.float64)
    lp.num_col_, lp.num_row_ = count, len(rhs)
    lp.row_lower_ = np.where(kinds == _AT_MOST, -highspy.kHighsInf, rhs)
    lp.row_upper_ = np.where(kinds == _AT_LEAST, highspy.kHighsInf, rhs)
    bounds = [v.bounds for v in form.columns]
    lp.col_lower_ = np.array([-highspy.kHighsInf if low is None else low for low, _ in bounds], dtype=np.float64)
    lp.col_upper_ = np.array([highspy.kHighsInf if high is None else high for _, high in bounds], dtype=np.float64)
    whole, free = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    lp.integrality_ = [whole if v.is_integer() or v.is_binary() else free for v in form.columns]
    matrix = form.A.tocsc()
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    if form.objectives:
        lp.col_cost_, lp.offset_ = form.c.toarray()[0], float(form.c_offset[0])
        maximizes = form.objectives[0].sense == pyo.maximize
        lp.sense_ = highspy.ObjSense.kMaximize if maximizes else highspy.ObjSense.kMinimize
    else:
        lp.col_cost_ = np.zeros(count)
    return lp
