"""Run a Pyomo model on HiGHS."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import highspy
import pyomo.environ as pyo
from pyomo.contrib.solver.common.results import SolutionStatus
from pyomo.contrib.solver.solvers.highs import Highs
from pyomo.version import version as pyomo_version

from planner.solvers.deadline import Deadline
from planner.solvers.lazy_constraints import Duals, Rows, Search
from planner.solvers.outcome import Outcome
from planner.solvers.statuses import FEASIBILITY, HIGHS, STOP_BY_STATUS

SOLVER = f"{HIGHS} through Pyomo {pyomo_version}"
ABSOLUTE_GAP = 1e-6  # A dollar where objectives are in millions, and far below one rack.
_Native = highspy.HighsModelStatus


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
    distance = ABSOLUTE_GAP if absolute_gap is None else absolute_gap
    solve = _solve if getattr(model, "lazy", None) is None else _solve_lazily
    outcome, status = solve(model, time_limit, _Search(gap or 0.0, distance, seed, threads or 1, presolve))
    if status == _Native.kUnboundedOrInfeasible and presolve:
        # Presolve alone cannot tell the two apart; the simplex can.
        outcome, _ = solve(model, time_limit, _Search(gap or 0.0, distance, seed, threads or 1, False))
    return outcome


def _solve(model: pyo.ConcreteModel, time_limit: float | None, how: _Search) -> tuple[Outcome[Values], Any]:
    """Solve a model with all its rows stated; return the native status beside the outcome."""
    solver, clock = Highs(), Deadline()
    results = solver.solve(
        model,
        load_solutions=False,
        raise_exception_on_nonoptimal_result=False,
        threads=how.threads,
        time_limit=None if time_limit is None else max(time_limit, 0.0),
        rel_gap=how.gap,
        abs_gap=how.absolute_gap,
        solver_options=how.options,
    )
    # The wrapper keeps no native status; this attribute is the only way to it.
    status = solver._solver_model.getModelStatus()
    solved = results.solution_status in (SolutionStatus.feasible, SolutionStatus.optimal)
    primals = results.solution_loader.get_vars() if solved else None
    outcome = Outcome(
        stop=STOP_BY_STATUS[status],
        # A variable that no row and no objective mentions is not passed to the solver: its value is free, so zero.
        solution=None if primals is None else Values(lambda v: float(primals.get(v, 0.0))),
        objective=results.incumbent_objective,
        bound=results.objective_bound,
        infeasible=status == _Native.kInfeasible,
        detail=str(status.name)[1:],
        solver=SOLVER,
        variables=model.nvariables(),
        constraints=model.nconstraints(),
        seconds=clock.elapsed,
    )
    return outcome, status


def _solve_lazily(model: pyo.ConcreteModel, time_limit: float | None, how: _Search) -> tuple[Outcome[Values], Any]:
    """Solve a model whose lazy rows are added as they are broken; return the native status beside the outcome."""
    clock, rows = Deadline(time_limit), model.lazy
    gaps = {"mip_rel_gap": how.gap, "mip_abs_gap": how.absolute_gap}
    search = Search(model, rows, how.options | gaps | {"threads": how.threads}, time_limit)
    result = search.search(how.gap, how.absolute_gap)
    point = result.point

    def value(v: Any) -> float:
        return float(point[search.column[id(v)]]) if point is not None and id(v) in search.column else 0.0

    outcome = Outcome(
        stop=STOP_BY_STATUS[result.status],
        solution=None if point is None else Values(value),
        objective=result.objective,
        bound=result.bound,
        infeasible=result.infeasible and result.status == _Native.kInfeasible,
        detail=str(result.status.name)[1:],
        solver=SOLVER,
        variables=model.nvariables(),
        constraints=model.nconstraints() + result.rows,
        seconds=clock.elapsed,
    )
    return outcome, result.status


def duals(model: pyo.ConcreteModel) -> Duals | None:
    """Solve a model without integers and return the dual of each row; None where it has no optimum."""
    lazy: Rows | None = getattr(model, "lazy", None)
    if lazy is not None:
        options = _Search(0.0, ABSOLUTE_GAP, 0, 1, True).options
        return Search(model, lazy, options | {"threads": 1}, None).duals()
    results = Highs().solve(model, load_solutions=False, raise_exception_on_nonoptimal_result=False, threads=1)
    if results.solution_status is not SolutionStatus.optimal:
        return None
    return Duals(stated=results.solution_loader.get_duals())
