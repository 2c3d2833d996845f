"""Run a Pyomo model on HiGHS."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import highspy
import numpy as np
import pyomo.core as pyo  # pyomo.environ also loads the plugins of every solver, in as much time again
from pyomo.version import version as pyomo_version

from planner.solvers.deadline import Deadline
from planner.solvers.highs_from_pyomo import highs_model
from planner.solvers.lazy_constraints import Duals, Rows, Search
from planner.solvers.outcome import Outcome
from planner.solvers.points import broken_by, value_of
from planner.solvers.running.model_files import begin_highs, end, models_wanted, write_highs
from planner.solvers.statuses import FEASIBILITY, HIGHS, STOP_BY_STATUS, require_highs
from planner.solvers.verdicts import agreed, attempted, believed

SOLVER = f"{HIGHS} through Pyomo {pyomo_version}"
ABSOLUTE_GAP = 1e-6  # A dollar where objectives are in millions, and far below one rack.
ENUMERATION = 1 << 16  # the rule of presolve that lost better solutions of 1 split in 300, and called the rest optimal
_Native = highspy.HighsModelStatus
UNDECIDED = "UnboundedOrInfeasible"


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a solution, read by variable."""

    of: Callable[[Any], float]


@dataclass(frozen=True, slots=True)
class _Search:
    """How a run searches: gaps, seed, threads and presolve."""

    gap: float
    absolute_gap: float
    seed: int
    threads: int
    presolve: bool

    @property
    def options(self) -> dict[str, Any]:
        """Return what HiGHS takes beside gaps, threads and time."""
        return {
            "random_seed": self.seed,
            "presolve": "on" if self.presolve else "off",
            "presolve_rule_off": ENUMERATION,
            "mip_feasibility_tolerance": FEASIBILITY,
            "primal_feasibility_tolerance": FEASIBILITY,
            "dual_feasibility_tolerance": FEASIBILITY,
        }


def run(
    model: pyo.ConcreteModel,
    *,
    time_limit: float | None = None,
    gap: float | None = None,
    absolute_gap: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    presolve: bool = True,
) -> Outcome[Values]:
    """Solve a Pyomo model; on one thread unless asked otherwise, and to a gap of zero, so that a run repeats exactly.

    A model with rows that are added as they are broken has them as `model.lazy`.

    Parameters
    ----------
    absolute_gap
        Distance of bound and incumbent, in the objective's unit, that counts as proven; None: 1e-6.
    presolve
        Off makes a second, independent run of the same model.
    """
    require_highs()
    deadline = Deadline(time_limit)
    distance = ABSOLUTE_GAP if absolute_gap is None else absolute_gap
    solve = _solve if getattr(model, "lazy", None) is None else _solve_lazily

    def once(*, presolve: bool) -> Outcome[Values]:
        how = _Search(gap or 0.0, distance, seed, threads or 1, presolve)
        return attempted(lambda: solve(model, deadline.limit, how), SOLVER)

    outcome = once(presolve=presolve)
    if outcome.detail == UNDECIDED and presolve:  # presolve alone cannot tell the two apart; the simplex can
        return once(presolve=False)
    return agreed(outcome, once(presolve=not presolve)) if outcome.infeasible else outcome


def _solve(model: pyo.ConcreteModel, time_limit: float | None, how: _Search) -> Outcome[Values]:
    """Solve a model with all its rows stated."""
    clock, built = Deadline(), highs_model(model)
    h = built.h
    gaps = {"mip_rel_gap": how.gap, "mip_abs_gap": how.absolute_gap, "threads": how.threads}
    for key, option in (how.options | gaps).items():
        h.setOptionValue(key, option)
    if time_limit is not None:
        h.setOptionValue("time_limit", max(time_limit, 0.0))
    stem = begin_highs(h, *built.names) if models_wanted() else None
    h.run()
    status, info, lp = h.getModelStatus(), h.getInfo(), h.getLp()
    solved = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    x = np.asarray(h.getSolution().col_value) if solved else None
    outcome = Outcome(
        stop=STOP_BY_STATUS[status],
        solution=None if x is None else Values(partial(built.value, x=x)),
        objective=value_of(lp, x) if x is not None and built.has_goal else None,
        bound=_bound(info, optimal=status == _Native.kOptimal) if built.has_goal else None,
        distance=how.absolute_gap,
        infeasible=status == _Native.kInfeasible,
        detail=str(status.name)[1:],
        solver=SOLVER,
        variables=model.nvariables(),
        constraints=model.nconstraints(),
        seconds=clock.elapsed,
    )
    broken = "" if x is None else broken_by(lp, x)
    allowed = how.gap * max(1.0, abs(outcome.objective or 0.0))
    return end(stem, believed(outcome, broken=broken, minimize=_minimizes(lp), allowed=allowed))


def _bound(info: Any, *, optimal: bool) -> float | None:
    """Return what no solution is better than: of a model without integers its optimum, none before that."""
    if info.mip_node_count >= 0:
        return float(info.mip_dual_bound) if math.isfinite(info.mip_dual_bound) else None
    return float(info.objective_function_value) if optimal else None


def _minimizes(lp: Any) -> bool:
    return bool(lp.sense_ == highspy.ObjSense.kMinimize)


def _solve_lazily(model: pyo.ConcreteModel, time_limit: float | None, how: _Search) -> Outcome[Values]:
    """Solve a model whose lazy rows are added as they are broken."""
    clock, rows = Deadline(time_limit), model.lazy
    gaps = {"mip_rel_gap": how.gap, "mip_abs_gap": how.absolute_gap}
    search = Search(model, rows, how.options | gaps | {"threads": how.threads}, time_limit)
    stem = begin_highs(search.h) if models_wanted() else None
    result = search.search(how.gap, how.absolute_gap)
    search.restore()
    write_highs(stem, search.h)  # once more, with the rows that were added
    point, lp = result.point, search.h.getLp()

    def value(v: Any) -> float:
        return float(point[search.column[id(v)]]) if point is not None and id(v) in search.column else 0.0

    outcome = Outcome(
        stop=STOP_BY_STATUS[result.status],
        solution=None if point is None else Values(value),
        objective=result.objective if point is None else value_of(lp, point),
        bound=result.bound,
        distance=how.absolute_gap,
        infeasible=result.infeasible and result.status == _Native.kInfeasible,
        detail=str(result.status.name)[1:],
        solver=SOLVER,
        variables=model.nvariables(),
        constraints=model.nconstraints() + result.rows,
        seconds=clock.elapsed,
    )
    broken = "" if point is None else broken_by(lp, point)
    allowed = how.gap * max(1.0, abs(outcome.objective or 0.0))
    return end(stem, believed(outcome, broken=broken, minimize=_minimizes(lp), allowed=allowed))


def duals(model: pyo.ConcreteModel) -> Duals | None:
    """Solve a model without integers and return the dual of each row; None where it has no optimum."""
    require_highs()
    lazy: Rows | None = getattr(model, "lazy", None)
    if lazy is not None:
        options = _Search(0.0, ABSOLUTE_GAP, 0, 1, True).options
        return Search(model, lazy, options | {"threads": 1}, None).duals()
    built = highs_model(model)
    built.h.setOptionValue("threads", 1)
    built.h.run()
    if built.h.getModelStatus() != _Native.kOptimal:
        return None
    return Duals(stated=built.duals(built.h.getSolution().row_dual))
