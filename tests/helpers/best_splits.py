"""The best split of sites by the model of their rules, as the section of a plan: what tests hold the rules to."""

from dataclasses import replace
from typing import Any

import pyomo.core as pyo

from planner.instance.instance import Instance
from planner.models import Options, SitesRequest
from planner.models.joint.shapes.chosen_sites import sites_plan
from planner.models.sites.split_data import SplitData, capital_musd, energy_musd, gather, rack_musd, scenario_musd
from planner.models.sites.split_model import build
from planner.physics.site import cost
from planner.plan.plan_sections import SitesPlan
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Values
from planner.solvers.search_deadline import Deadline


def asking(instance: Instance, racks: int | None) -> Instance:
    """Return a question of so many racks in all."""
    return instance if racks is None else instance.replaced(pins={**instance.pins, "sites.racks": racks})


def yearly_musd(m: Any, data: SplitData) -> Any:
    """Return energy, sites and lines spread over their lives, and the excess of soft rules, in M$ per year."""
    prices = data.grid.prices
    construction = capital_musd(m, data) - rack_musd(data) * sum(m.modules.values())
    construction *= cost.annuity(prices.discount_rate, prices.site_life_years)
    return yearly_energy_musd(m, data) + construction + m.penalty_musd


def yearly_energy_musd(m: Any, data: SplitData) -> Any:
    """Return the weighted mean of the energy of the grid's own year and the scenarios, or where robust the worst."""
    costs = {"": energy_musd(m, data)} | scenario_musd(m, data)
    if data.grid.rules.scenarios == "expected":
        weight = {scenario.name: scenario.weight for scenario in data.grid.scenarios}
        weight[""] = max(0.0, 1.0 - sum(weight.values()))  # they sum to 1
        return sum(weight[name] * usd for name, usd in costs.items())
    m.worst_energy = pyo.Var(domain=pyo.NonNegativeReals)
    m.worst = pyo.Constraint(list(costs), rule=lambda m, name: m.worst_energy >= costs[name])
    return m.worst_energy


def read(m: Any, values: Values) -> list[str]:
    """Set the model to a solution, integers rounded, and return the open sites."""
    for var in m.component_data_objects(pyo.Var):
        value = values.of(var)
        var.set_value(round(value) if var.is_integer() or var.is_binary() else value, skip_validation=True)
    return [site for site, size in m.modules.items() if round(size.value)]


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
        read(m, first.solution)
        most = sum(round(size.value) for size in m.modules.values())
        m.del_component(m.goal)
        m.max_racks = pyo.Constraint(expr=sum(m.modules.values()) == most)
    m.goal = pyo.Objective(expr=yearly_musd(m, data))
    outcome = highs.run(m, time_limit=deadline.limit)
    if outcome.solution is None or outcome.objective is None or outcome.bound is None:
        return outcome.with_solution(None)
    opened, space = read(m, outcome.solution), {} if data.network is None else m.lazy.space
    outcome = replace(outcome, objective=outcome.objective * 1e6, bound=outcome.bound * 1e6, distance=1.0)
    lit = {pair: 0 for pair in data.pairs if set(pair) <= set(opened)}
    certificate = outcome.certificate(formulation="split", minimizes="yearly cost", seed=0, space=space)
    return outcome.with_solution(sites_plan(m, data, {}, lit=lit, certificate=certificate))
