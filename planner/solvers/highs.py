"""Run a Pyomo model on HiGHS."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import highspy
import pyomo.environ as pyo
from pyomo.contrib.solver.common.results import SolutionStatus
from pyomo.contrib.solver.solvers.highs import Highs
from pyomo.version import version as pyomo_version

from planner.solvers.lazy_constraints import Duals, Rows, Search
from planner.solvers.outcome import Outcome
from planner.solvers.statuses import FEASIBILITY, HIGHS, STOP_BY_STATUS

SOLVER = f"{HIGHS} through Pyomo {pyomo_version}"
_Native = highspy.HighsModelStatus


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a solution, read by variable."""

    of: Callable[[Any], float]


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
    """Solve the model; one thread unless told otherwise, and to a gap of zero, so that a run repeats byte for byte.

    A model with rows that are found on the way has them as `model.lazy`.

    Parameters
    ----------
    absolute_gap
        Distance of bound and incumbent, in the objective's unit, that counts as proven; None: 1e-6.
    presolve
        Off makes a second, independent run of the same question.
    """
    outcome, status = _run(model, time_limit, gap, absolute_gap, seed, threads, presolve)
    if status == _Native.kUnboundedOrInfeasible and presolve:
        # Presolve alone cannot tell the two apart; the simplex can.
        outcome, _ = _run(model, time_limit, gap, absolute_gap, seed, threads, False)
    return outcome


def _run(
    model: pyo.ConcreteModel,
    time_limit: float | None,
    gap: float | None,
    absolute_gap: float | None,
    seed: int,
    threads: int | None,
    presolve: bool,
) -> tuple[Outcome[Values], Any]:
    lazy = getattr(model, "lazy", None)
    if lazy is not None:
        return _run_lazily(model, lazy, time_limit, gap, absolute_gap, seed, threads, presolve)
    solver = Highs()
    started = time.perf_counter()
    results = solver.solve(
        model,
        load_solutions=False,
        raise_exception_on_nonoptimal_result=False,
        threads=threads or 1,
        time_limit=None if time_limit is None else max(time_limit, 0.0),
        rel_gap=gap or 0.0,
        abs_gap=1e-6 if absolute_gap is None else absolute_gap,
        solver_options=_options(seed, presolve),
    )
    # The wrapper keeps no native status; this attribute is the only way to it.
    status = solver._solver_model.getModelStatus()
    held = results.solution_status in (SolutionStatus.feasible, SolutionStatus.optimal)
    primals = results.solution_loader.get_vars() if held else None
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
        seconds=time.perf_counter() - started,
    )
    return outcome, status


def duals(model: pyo.ConcreteModel) -> Duals | None:
    """Solve a model without integers and return the dual of each row; None where it has no optimum."""
    lazy = getattr(model, "lazy", None)
    if lazy is not None:
        return Search(model, lazy, _options(0, True) | {"threads": 1}, None).duals()
    results = Highs().solve(model, load_solutions=False, raise_exception_on_nonoptimal_result=False, threads=1)
    if results.solution_status is not SolutionStatus.optimal:
        return None
    return Duals(stated=results.solution_loader.get_duals())


def _options(seed: int, presolve: bool) -> dict[str, Any]:
    return {
        "random_seed": seed,
        "presolve": "on" if presolve else "off",
        "mip_feasibility_tolerance": FEASIBILITY,
        "primal_feasibility_tolerance": FEASIBILITY,
        "dual_feasibility_tolerance": FEASIBILITY,
    }


def _run_lazily(
    model: pyo.ConcreteModel,
    lazy: Rows,
    time_limit: float | None,
    gap: float | None,
    absolute_gap: float | None,
    seed: int,
    threads: int | None,
    presolve: bool,
) -> tuple[Outcome[Values], Any]:
    started = time.perf_counter()
    gaps = {"mip_rel_gap": gap or 0.0, "mip_abs_gap": 1e-6 if absolute_gap is None else absolute_gap}
    search = Search(model, lazy, _options(seed, presolve) | gaps | {"threads": threads or 1}, time_limit)
    found = search.search(gaps["mip_rel_gap"], gaps["mip_abs_gap"])
    point = found.point
    outcome = Outcome(
        stop=STOP_BY_STATUS[found.status],
        solution=None
        if point is None
        else Values(lambda v: float(point[search.column[id(v)]]) if id(v) in search.column else 0.0),
        objective=found.objective,
        bound=found.bound,
        infeasible=found.infeasible and found.status == _Native.kInfeasible,
        detail=str(found.status.name)[1:],
        solver=SOLVER,
        variables=model.nvariables(),
        constraints=model.nconstraints() + found.rows,
        seconds=time.perf_counter() - started,
    )
    return outcome, found.status
