"""Run a CP-SAT model of linear rows on HiGHS, for models whose relaxation is so tight that branching beats learning."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import highspy
import numpy as np
from ortools.sat.python import cp_model

from planner.solvers.cpsat import CpsatValues
from planner.solvers.outcome import Outcome, Stop, agreed, attempted, believed, broken_by_integers, integer_value
from planner.solvers.progress import begin_highs, end, models_wanted
from planner.solvers.signals import Deadline, watch
from planner.solvers.statuses import HIGHS, require_highs, stop_of

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
    deadline, rows = Deadline(time_limit), _rows(model)

    def once(*, presolve: bool) -> Outcome[CpsatValues]:
        how = {"seed": seed, "threads": threads, "presolve": presolve}
        return attempted(lambda: _run(model, rows, deadline, **how), HIGHS)  # type: ignore[arg-type]

    outcome = once(presolve=presolve)
    outcome = agreed(outcome, once(presolve=not presolve)) if repeat and outcome.infeasible else outcome
    return replace(outcome, seconds=deadline.elapsed)


def _run(
    model: cp_model.CpModel,
    rows: "Sequence[Row]",
    deadline: Deadline,
    *,
    seed: int,
    threads: int | None,
    presolve: bool,
) -> Outcome[CpsatValues]:
    highs = highspy.Highs()
    options = {
        "output_flag": False,
        "threads": threads or 1,
        "random_seed": seed,
        "mip_rel_gap": 0.0,
        "presolve": "on" if presolve else "off",
    }
    for key, value in options.items():
        highs.setOptionValue(key, value)
    highs.passModel(_lp(model, rows))
    if deadline.limit is not None:
        highs.setOptionValue("time_limit", deadline.limit)
    # HiGHS has one handler of Ctrl-C a process, which only the main thread gets to see.
    highs.HandleKeyboardInterrupt = threading.current_thread() is threading.main_thread()
    watch(highs)
    stem = begin_highs(highs) if models_wanted() else None
    highs.run()
    status, info = highs.getModelStatus(), highs.getInfo()
    solution = _rounded(highs, rows)
    # All variables are bounded, so that of the two only one can be.
    infeasible = status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
    stop = Stop.PROVED if infeasible else stop_of(status)
    bounded = model.has_objective() and not infeasible and np.isfinite(info.mip_dual_bound)
    scale = (
        (model.proto.objective.scaling_factor or 1.0) if model.has_objective() else 1.0
    )  # below 0 where it is maximized
    outcome = Outcome(
        stop=Stop.FAILED if stop is Stop.PROVED and solution is None and not infeasible else stop,
        solution=None if solution is None else _values(solution),
        objective=integer_value(model.proto, solution) if solution is not None and model.has_objective() else None,
        bound=scale * info.mip_dual_bound if bounded else None,
        infeasible=infeasible,
        detail=str(status.name)[1:],
        solver=HIGHS,
        variables=len(model.proto.variables),
        constraints=len(model.proto.constraints),
        seconds=deadline.elapsed,
    )
    broken = "" if solution is None else broken_by_integers(model.proto, solution)
    return end(stem, believed(outcome, broken=broken, minimize=scale > 0))


def _rounded(highs: highspy.Highs, rows: "Sequence[Row]") -> list[int] | None:
    """Return the incumbent in whole numbers; None where there is none, or where it breaks a row once rounded."""
    if highs.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    point = [round(value) for value in highs.getSolution().col_value]
    kept = all(low <= sum(factor * point[column] for column, factor in row.items()) <= high for row, low, high in rows)
    return point if kept else None


def _values(solution: Sequence[int]) -> CpsatValues:
    def of(expression: cp_model.LinearExprT) -> int:
        if not isinstance(expression, cp_model.IntVar):
            raise TypeError(f"a value is read by variable (is {type(expression).__name__})")
        return solution[expression.index]

    return CpsatValues(of)


Row = tuple[dict[int, int], int, int]


def _rows(model: cp_model.CpModel) -> list[Row]:
    rows = []
    for constraint in model.proto.constraints:
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
        rows.append(({column: factor for column, factor in row.items() if factor}, low, high))
    return rows


def _lp(model: cp_model.CpModel, rows: Sequence[Row]) -> Any:
    lp, domains = highspy.HighsLp(), [list(variable.domain) for variable in model.proto.variables]
    lp.num_col_, lp.num_row_ = len(domains), len(rows)
    cost = np.zeros(len(domains))
    if model.has_objective():
        for column, factor in zip(model.proto.objective.vars, model.proto.objective.coeffs, strict=True):
            cost[column] += factor
        lp.offset_ = model.proto.objective.offset
    lp.col_cost_ = cost
    lp.col_lower_ = np.asarray([domain[0] for domain in domains], dtype=float)
    lp.col_upper_ = np.asarray([domain[-1] for domain in domains], dtype=float)
    lp.row_lower_ = np.asarray([-highspy.kHighsInf if low < -FAR else low for _, low, _ in rows], dtype=float)
    lp.row_upper_ = np.asarray([highspy.kHighsInf if high > FAR else high for _, _, high in rows], dtype=float)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0, *(len(row) for row, _, _ in rows)])
    lp.a_matrix_.index_ = np.asarray([column for row, _, _ in rows for column in row])
    lp.a_matrix_.value_ = np.asarray([factor for row, _, _ in rows for factor in row.values()], dtype=float)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * len(domains)
    return lp
