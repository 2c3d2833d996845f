"""Decide how many megawatts go where, and what joins them: a MILP over the grid, in two proven solves.

First the most racks where the total is free, then the minimum yearly cost for that total. Power flows by transport
(each corridor within its rating, lossless), by the DC equations, with contingencies where asked (lazy rows), or not at
all. Every two open sites are joined by a link: a mesh, of which a ring uses a part.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyomo.core as pyo

from planner.instance.instance import Instance
from planner.models.requests import Options, SitesRequest
from planner.models.sites.data import SplitData, gather
from planner.models.sites.model import build, yearly_musd
from planner.models.sites.report import MaxRacksProof, with_plan
from planner.models.sites.solution import SplitSolution, read
from planner.plan.sites import SitesPlan
from planner.solvers import highs
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome
from planner.solvers.registry import run_milp

MAX_RACKS_SHARE = 0.7  # of the time; the rest is for the cost: a split that is large but dear is a poor answer


def solve(instance: Instance, request: SitesRequest, options: Options) -> Outcome[SitesPlan]:
    """Return the split with the most racks (where the total is free), and among those of minimum yearly cost."""
    return solve_data(gather(instance, request), options)


def solve_data(
    data: SplitData, options: Options, *, sites: int | None = None, excluded: Sequence[frozenset[str]] = ()
) -> Outcome[SitesPlan]:
    """Solve a split; `sites` fixes the number of open sites, and none of the `excluded` sets may be open as a whole."""
    deadline = Deadline(options.time_limit)
    m = build(data, sites=sites)
    m.no_good = pyo.Constraint(
        range(len(excluded)), rule=lambda m, i: sum(1 - x if s in excluded[i] else x for s, x in m.open.items()) >= 1
    )
    proof = solution = None
    if data.racks is None:
        limit = None if deadline.limit is None else MAX_RACKS_SHARE * deadline.left
        first, solution = _max_racks(m, data, replace(options, time_limit=limit))
        if solution is None:
            return replace(first.with_solution(None), bound=None, seconds=deadline.elapsed)
        bound = solution.total if first.bound is None else math.floor(first.bound + 1e-6)
        proof = MaxRacksProof(modules=solution.total, bound=max(bound, solution.total), stop=first.stop)
        m.max_racks = pyo.Constraint(expr=sum(m.modules.values()) == solution.total)
    m.goal = pyo.Objective(expr=yearly_musd(m, data))
    limits = {"time_limit": deadline.limit, "gap": options.gap, "seed": options.seed, "threads": options.threads}
    outcome = run_milp(m, solver=options.solver, **limits)
    if outcome.solution is not None:
        solution = _shortest_flows(m, data, outcome.solution, replace(options, time_limit=deadline.limit))
    elif solution is None:
        return replace(outcome.with_solution(None), bound=None, seconds=deadline.elapsed)
    # Without a cheaper split in time, that of the first solve is returned, with the bound that was reached.
    return with_plan(data, m, solution, proof, outcome, options.seed, deadline)


def _max_racks(m: Any, data: SplitData, options: Options) -> tuple[Outcome[highs.Values], SplitSolution | None]:
    """Maximize the modules; a bound less than one module away is a proof, whatever gap was asked."""
    m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
    limits = {"time_limit": options.time_limit, "seed": options.seed, "threads": options.threads}
    outcome = run_milp(m, solver=options.solver, absolute_gap=0.99, **limits)
    m.del_component(m.goal)
    return outcome, None if outcome.solution is None else read(m, data, outcome.solution)


def _shortest_flows(m: Any, data: SplitData, values: highs.Values, options: Options) -> SplitSolution:
    """Keep the decisions and minimize the flows: the cost leaves these free, and loops would confuse a reader."""
    solution = read(m, data, values)
    # Under dc, angles leave no choice.
    if not solution.flow or data.network is not None:
        return solution
    for var in m.component_data_objects(pyo.Var):
        # What a soft rule is exceeded by stays as it was chosen: it has a price, and the flows have none.
        if var.is_integer() or var.is_binary() or var.parent_component().local_name.endswith("_excess"):
            var.fix()
    # With the integers fixed, only the rows of the power flow matter.
    power_flow = {id(m.component(name)) for name in ("balance", "generation", "rating")}
    others = [c for c in m.component_objects(pyo.Constraint, active=True) if id(c) not in power_flow]
    for component in others:
        component.deactivate()
    corridors = list(m.flow)
    m.size = pyo.Var(corridors, domain=pyo.NonNegativeReals)
    m.forward = pyo.Constraint(corridors, rule=lambda m, k: m.flow[k] <= m.size[k])
    m.backward = pyo.Constraint(corridors, rule=lambda m, k: -m.flow[k] <= m.size[k])
    m.goal.deactivate()
    m.length = pyo.Objective(expr=sum(m.size.values()))
    outcome = highs.run(m, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    if outcome.solution is not None:
        of = outcome.solution.of
        generated, flow = ({k: of(v) for k, v in variables.items()} for variables in (m.generated, m.flow))
        solution = replace(solution, generated=generated, flow=flow)
    for part in (m.length, m.forward, m.backward, m.size):
        m.del_component(part)
    for component in others:
        component.activate()
    return solution
