"""The best split of sites by the model of their rules, as the section of a plan: what tests hold the rules to."""

from dataclasses import replace

import pyomo.core as pyo

from planner.instance.instance import Instance
from planner.models import Options, SitesRequest
from planner.models.sites.model import build, read, security_space, yearly_musd
from planner.models.sites.report import link_of, sites_plan
from planner.models.sites.split_data import gather
from planner.plan.plan_sections import SitesPlan
from planner.solvers import highs
from planner.solvers.outcome import Outcome
from planner.solvers.signals import Deadline


def split(
    instance: Instance, request: SitesRequest | None = None, options: Options | None = None
) -> Outcome[SitesPlan]:
    """Return the best split by the model of the rules: most racks where the total is free, then least yearly cost."""
    data, deadline = gather(instance, request or SitesRequest()), Deadline(options.time_limit if options else None)
    m = build(data)
    if data.racks is None:
        m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
        first = highs.run(m, absolute_gap=0.99, time_limit=deadline.limit)
        if first.solution is None or not first.proved:
            return first.with_solution(None)
        most = read(m, data, first.solution).total
        m.del_component(m.goal)
        m.max_racks = pyo.Constraint(expr=sum(m.modules.values()) == most)
    m.goal = pyo.Objective(expr=yearly_musd(m, data))
    outcome = highs.run(m, time_limit=deadline.limit)
    if outcome.solution is None or outcome.objective is None or outcome.bound is None:
        return outcome.with_solution(None)
    solution, space = read(m, data, outcome.solution), {} if data.network is None else security_space(data.network)
    outcome = replace(outcome, objective=outcome.objective * 1e6, bound=outcome.bound * 1e6, distance=1.0)
    pairs = [pair for pair in data.pairs if set(pair) <= set(solution.modules)]
    n = len(solution.modules)
    links = (link_of(data, p, data.wavelengths(p, n) or 0, required_gbps=data.need_gbps(p, n)) for p in pairs)
    certificate = outcome.certificate(formulation="split", minimizes="yearly cost", seed=0, space=space)
    return outcome.with_solution(sites_plan(data, solution, {}, links=tuple(links), certificate=certificate))
