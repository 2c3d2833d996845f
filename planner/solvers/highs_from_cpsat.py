"""Run a CP-SAT model of linear rows on HiGHS, for models whose relaxation is so tight that branching beats learning."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import highspy
import numpy as np
from ortools.sat.python import cp_model

from planner.solvers.cpsat import CpsatValues
from planner.solvers.outcome import Outcome, Stop, agreed, attempted, believed, broken_by_integers, integer_value
from planner.solvers.progress import begin_highs, end, models_wanted
from planner.solvers.signals import Deadline
from planner.solvers.statuses import HIGHS, require_highs, silent, stop_of

INF = highspy.kHighsInf
FAR = 2**62  # CP-SAT writes a side without a limit as one beyond this.


def run(
    model: cp_model.CpModel,
    *,
    time_limit: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    presolve: bool = True,
    repeat: bool = True,
) -> Outcome[CpsatValues]:
    """Solve a CP-SAT model of linear rows to a gap of zero; its solution is read by variable, not by expression.

    Tolerances are those of HiGHS, as narrower ones (1e-9) have made it call 2 the optimum where 1 is. A solution is
    rounded and checked against the rows in whole numbers; a proof is worth a second run without `presolve`. Ctrl-C in
    the main thread stops the search at once and returns its incumbent.

    Parameters
    ----------
    repeat
        Whether `infeasible` must be the answer of a second run too, with presolve turned.

    Raises
    ------
    ValueError
        If a rule of the model is not linear, or holds only under a condition.
    """
    require_highs()
    deadline, lp = Deadline(time_limit), _lp(model)

    def once(*, presolve: bool) -> Outcome[CpsatValues]:
        how = {"threads": threads or 1, "random_seed": seed, "presolve": "on" if presolve else "off"}
        return attempted(lambda: _run(model, lp, deadline, how), HIGHS)

    outcome = once(presolve=presolve)
    outcome = agreed(outcome, once(presolve=not presolve)) if repeat and outcome.infeasible else outcome
    return replace(outcome, seconds=deadline.elapsed)


def _run(model: cp_model.CpModel, lp: Any, deadline: Deadline, options: dict[str, Any]) -> Outcome[CpsatValues]:
    highs, proto = silent(), model.proto
    highs.passModel(lp)
    limit = {} if deadline.limit is None else {"time_limit": deadline.limit}
    for key, value in ({"mip_rel_gap": 0.0} | options | limit).items():
        highs.setOptionValue(key, value)
    stem = begin_highs(highs) if models_wanted() else None
    highs.run()
    status, info = highs.getModelStatus(), highs.getInfo()
    point: list[int] | None = None
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        point = [round(value) for value in highs.getSolution().col_value]
        point = None if broken_by_integers(proto, point) else point  # some row is broken once the point is rounded
    # All variables are bounded, so that of the two only one can be.
    infeasible = status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
    stop = Stop.PROVED if infeasible else stop_of(status)
    bounded = model.has_objective() and not infeasible and np.isfinite(info.mip_dual_bound)
    scale = (proto.objective.scaling_factor or 1.0) if model.has_objective() else 1.0  # below 0 where it is maximized
    outcome = Outcome(
        stop=Stop.FAILED if stop is Stop.PROVED and point is None and not infeasible else stop,
        solution=None if point is None else CpsatValues(partial(_value, point)),
        objective=integer_value(proto, point) if point is not None and model.has_objective() else None,
        bound=scale * info.mip_dual_bound if bounded else None,
        infeasible=infeasible,
        detail=str(status.name)[1:],
        solver=HIGHS,
        variables=len(proto.variables),
        constraints=len(proto.constraints),
        seconds=deadline.elapsed,
    )
    return end(stem, believed(outcome, minimize=scale > 0))


def _value(point: Sequence[int], expression: cp_model.LinearExprT) -> int:
    if not isinstance(expression, cp_model.IntVar):
        raise TypeError(f"a value is read by variable (is {type(expression).__name__})")
    return point[expression.index]


def _lp(model: cp_model.CpModel) -> Any:
    """Return the arrays of a model as HiGHS has them."""
    proto, starts, index, values, sides = model.proto, [0], list[int](), list[float](), list[tuple[float, float]]()
    for constraint in proto.constraints:
        row: dict[int, int] = {}
        if len(constraint.enforcement_literal) or not (constraint.has_linear() or constraint.has_bool_or()):
            raise ValueError(f"{constraint.name}: is not a linear row")
        if constraint.has_bool_or():  # also what a row without variables becomes
            low, high = 1, FAR + 1
            for literal in constraint.bool_or.literals:
                row[max(literal, -literal - 1)] = row.get(max(literal, -literal - 1), 0) + (1 if literal >= 0 else -1)
                low -= literal < 0
        else:
            low, high = list(constraint.linear.domain)
            for column, factor in zip(constraint.linear.vars, constraint.linear.coeffs, strict=True):
                row[column] = row.get(column, 0) + factor
        kept = {column: factor for column, factor in row.items() if factor}
        index += kept
        values += kept.values()
        starts.append(len(index))
        sides.append((-INF if low < -FAR else low, INF if high > FAR else high))
    lp, domains = highspy.HighsLp(), [list(variable.domain) for variable in proto.variables]
    lp.num_col_, lp.num_row_ = len(domains), len(sides)
    cost = np.zeros(len(domains))
    if model.has_objective():
        np.add.at(cost, list(proto.objective.vars), list(proto.objective.coeffs))
        lp.offset_ = proto.objective.offset
    lp.col_cost_ = cost
    lp.col_lower_ = np.asarray([domain[0] for domain in domains], dtype=float)
    lp.col_upper_ = np.asarray([domain[-1] for domain in domains], dtype=float)
    lp.row_lower_ = np.asarray([low for low, _ in sides], dtype=float)
    lp.row_upper_ = np.asarray([high for _, high in sides], dtype=float)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = np.asarray(starts), np.asarray(index, dtype=np.int32)
    lp.a_matrix_.value_ = np.asarray(values, dtype=float)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * len(domains)
    return lp
