"""Run a CP-SAT model of linear rows on HiGHS, for models whose relaxation is so tight that branching beats learning."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ortools.sat.python import cp_model

from planner.solvers.outcome import Outcome, Stop, Values, believed, broken_by_integers, integer_value, run_twice
from planner.solvers.progress import end
from planner.solvers.signals import Deadline
from planner.solvers.statuses import HIGHS, INFEASIBLE, linear_program, loaded, require_highs, run_at_once, stop_of

FAR = 2**62  # CP-SAT writes a side without a limit as one beyond this.


def run(
    model: cp_model.CpModel,
    *,
    time_limit: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    presolve: bool = True,
    repeat: bool = True,
) -> Outcome[Values]:
    """Solve a CP-SAT model of linear rows to a gap of zero; its solution is read by variable, not by expression.

    Tolerances are those of HiGHS, as narrower ones (1e-9) have made it call 2 the optimum where 1 is. A solution is
    rounded and checked against the rows in whole numbers; a proof is worth a second run without `presolve`, and
    `infeasible` too where `repeat` asks. Ctrl-C in the main thread stops the search at once and returns its incumbent.
    ValueError: a rule of the model is not linear, or holds only under a condition.
    """
    require_highs()
    deadline, lp, proto = Deadline(time_limit), _lp(model), model.proto
    goal = model.has_objective()
    scale = (proto.objective.scaling_factor or 1.0) if goal else 1.0  # below 0 where it is maximized

    def once(presolve: bool) -> Outcome[Values]:
        options = {
            "mip_rel_gap": 0.0,
            "threads": threads or 1,
            "random_seed": seed,
            "presolve": "on" if presolve else "off",
        }
        stem, result = run_at_once(loaded(lp), options, deadline.limit)
        point = None if result.point is None else [round(value) for value in result.point]
        if point is not None and broken_by_integers(proto, point):
            point = None  # some row is broken once the point is rounded
        # All variables are bounded, so that of the two only one can be.
        infeasible = result.status in INFEASIBLE
        stop = Stop.PROVED if infeasible else stop_of(result.status)
        outcome = Outcome(
            stop=Stop.FAILED if stop is Stop.PROVED and point is None and not infeasible else stop,
            solution=None if point is None else Values(partial(_value, point)),
            objective=integer_value(proto, point) if point is not None and goal else None,
            bound=scale * result.bound if goal and not infeasible and result.bound is not None else None,
            infeasible=infeasible,
            detail=str(result.status.name)[1:],
            solver=HIGHS,
            variables=len(proto.variables),
            constraints=len(proto.constraints),
            seconds=deadline.elapsed,
        )
        return end(stem, believed(outcome, minimize=scale > 0))

    return replace(run_twice(once, HIGHS, presolve=presolve, repeat=repeat), seconds=deadline.elapsed)


def _value(point: Sequence[int], expression: cp_model.LinearExprT) -> int:
    if not isinstance(expression, cp_model.IntVar):
        raise TypeError(f"a value is read by variable (is {type(expression).__name__})")
    return point[expression.index]


def _lp(model: cp_model.CpModel) -> Any:
    proto, rows = model.proto, []
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
        rows.append((kept, None if low < -FAR else low, None if high > FAR else high))
    domains, costs, offset = [list(variable.domain) for variable in proto.variables], dict[int, int](), 0.0
    if model.has_objective():
        offset = proto.objective.offset
        for column, factor in zip(proto.objective.vars, proto.objective.coeffs, strict=True):
            costs[column] = costs.get(column, 0) + factor
    return linear_program([(domain[0], domain[-1], True) for domain in domains], rows, costs, offset)
