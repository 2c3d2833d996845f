"""The best split of sites by the model of their rules, as the section of a plan: what tests hold the rules to."""

from dataclasses import replace
from typing import Any

import pyomo.core as pyo

from planner.instance.instance import Instance
from planner.models import Options, SitesRequest
from planner.models.sites.model import SplitSolution, build, dispatch, excess_of, penalty_musd, security_space
from planner.models.sites.report import link_of, sites_plan
from planner.models.sites.split_data import (
    SplitData,
    block_of,
    construction_musd,
    energy_musd,
    expected_musd,
    gather,
    scenarios,
)
from planner.physics.site import cost
from planner.plan.plan_sections import SitesPlan
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Values
from planner.solvers.signals import Deadline


def asking(instance: Instance, racks: int | None) -> Instance:
    """Return a question of so many racks in all."""
    return instance if racks is None else instance.replaced(pins={**instance.pins, "sites.racks": racks})


def yearly_musd(m: Any, data: SplitData) -> Any:
    """Return energy, sites and lines spread over their lives, and the excess of soft rules, in M$ per year."""
    prices = data.grid.prices
    construction = cost.annuity(prices.discount_rate, prices.site_life_years) * construction_musd(m, data)
    return expected_musd(m, data, energy_musd(m, data)) + construction + penalty_musd(m, data)


def read(m: Any, data: SplitData, values: Values) -> SplitSolution:
    """Read a solution, integers rounded, and set the model to it."""
    for var in m.component_data_objects(pyo.Var):
        value = values.of(var)
        var.set_value(round(value) if var.is_integer() or var.is_binary() else value, skip_validation=True)
    counts = [
        {name: n for name, variable in of.items() if (n := round(variable.value))}
        for of in (m.modules, m.circuits, m.steps)
    ]
    own, years = dispatch(m, data), {name: dispatch(block_of(m, name), x) for name, x in scenarios(data).items()}
    flows = {"generated": own.generated, "flow": own.flow, "scenarios": years}
    return SplitSolution(modules=counts[0], circuits=counts[1], steps=counts[2], excess=excess_of(m), **flows)


def split(
    instance: Instance, request: SitesRequest | None = None, options: Options | None = None
) -> Outcome[SitesPlan]:
    """Return the best split by the model of the rules: most racks where the total is free, then least yearly cost."""
    data, deadline = gather(instance, request or SitesRequest()), Deadline(options.time_limit if options else None)
    m = build(data)
    if data.pins.racks is None:
        m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
        first = highs.run(m, absolute_gap=0.99, time_limit=deadline.limit)
        if first.solution is None or not first.proved:
            return first.with_solution(None)
        most = sum(read(m, data, first.solution).modules.values())
        m.del_component(m.goal)
        m.max_racks = pyo.Constraint(expr=sum(m.modules.values()) == most)
    m.goal = pyo.Objective(expr=yearly_musd(m, data))
    outcome = highs.run(m, time_limit=deadline.limit)
    if outcome.solution is None or outcome.objective is None or outcome.bound is None:
        return outcome.with_solution(None)
    solution, space = read(m, data, outcome.solution), {} if data.network is None else security_space(data.network)
    outcome = replace(outcome, objective=outcome.objective * 1e6, bound=outcome.bound * 1e6, distance=1.0)
    pairs = [pair for pair in data.pairs if set(pair) <= set(solution.modules)]
    links = (link_of(data, p, 0, required_gbps=0.0) for p in pairs)
    certificate = outcome.certificate(formulation="split", minimizes="yearly cost", seed=0, space=space)
    return outcome.with_solution(sites_plan(data, solution, {}, links=tuple(links), certificate=certificate))
