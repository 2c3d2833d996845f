"""Decide how the sites are joined: routes, wavelengths by fibre edge and what is carried, as a MILP.

First the gradient exchange, whole; then as much of the traffic as the fibre can carry, priority by priority; then the
minimum yearly cost of that. Where all of it can be carried, one solve shows it.
"""

import math
from dataclasses import replace
from typing import Any

import pyomo.core as pyo

from planner.instance.instance import Instance
from planner.models.requests import Options, WanRequest
from planner.models.wan.data import WanData, gather
from planner.models.wan.model import build, cost, shares
from planner.models.wan.report import with_plan
from planner.plan.wan import WanPlan
from planner.solvers import highs
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome, Stop, relative_gap

PRIORITY_GAP = 1e-6  # of a priority's traffic: below it a step counts as proven
ROUNDING = 1e-7  # of a priority's traffic, given back so that rounding leaves room for the next solve


def solve(instance: Instance, request: WanRequest, options: Options) -> Outcome[WanPlan]:
    """Return the design of the wide area; where it cannot carry the exchange, `detail` says what is missing where."""
    deadline = Deadline(options.time_limit)
    data = gather(instance, request)
    without_route = [d for d, x in data.demands.items() if not x.priority and not data.options[d]]
    if without_route:
        detail = "; ".join(_no_route(data, d) for d in without_route)
        return Outcome(stop=Stop.PROVED, infeasible=True, detail=detail, seconds=deadline.elapsed)
    m, traffic = stated(data), routed_traffic(data)
    outcome = _run(m, options, deadline)
    proven = True
    if outcome.infeasible and traffic:
        m.all.deactivate()
        outcome, proven = _by_priority(m, data, traffic, options, deadline)
    if outcome.infeasible:
        outcome = _missing_capacity(data, options, deadline)
    if outcome.solution is None:
        return replace(outcome.with_solution(None), seconds=deadline.elapsed)
    return with_plan(data, m, outcome, options.seed, deadline, proven=proven)


def stated(data: WanData) -> pyo.ConcreteModel:
    """State that the exchange and all traffic that has a route are carried, at the least cost."""
    m = build(data)
    m.all = pyo.Constraint(routed_traffic(data), rule=lambda m, d: shares(m, data, d) >= 1)
    m.goal = pyo.Objective(expr=cost(m, data))
    return m


def routed_traffic(data: WanData) -> list[str]:
    """Return the traffic that has a route."""
    return [d for d, x in data.demands.items() if x.priority and data.options[d]]


def _run(m: Any, options: Options, deadline: Deadline) -> Outcome[highs.Values]:
    return highs.run(
        m, time_limit=deadline.limit, gap=options.gap, absolute_gap=0.0, seed=options.seed, threads=options.threads
    )


def _by_priority(
    m: Any, data: WanData, traffic: list[str], options: Options, deadline: Deadline
) -> tuple[Outcome[highs.Values], bool]:
    """Maximize the Gbps of each priority in turn, then minimize the cost; also return whether every step was proven."""
    proven = True
    m.admitted_before = pyo.ConstraintList()
    for level in sorted({data.demands[d].priority for d in traffic}):
        rates = {d: data.requested_gbps(d) for d in traffic if data.demands[d].priority == level}
        total = max(sum(rates.values()), 1e-12)
        admitted = sum(rate / total * shares(m, data, d) for d, rate in rates.items())
        m.goal.set_value(-admitted)
        outcome = _run(m, options, deadline)
        if outcome.objective is None:
            return outcome, False
        proven &= (relative_gap(outcome.objective, outcome.bound) or 0.0) <= PRIORITY_GAP
        m.admitted_before.add(admitted >= -outcome.objective - ROUNDING)
    m.goal.set_value(cost(m, data))
    return _run(m, options, deadline), proven


def _no_route(data: WanData, demand: str) -> str:
    """Say why a link of the exchange has no route at all."""
    d = data.demands[demand]
    rtt = data.rtt_ms(d.a, d.b)
    limit = data.grid.rules.max_rtt_ms
    if math.isinf(rtt):
        return f"{demand}: no fibre route"
    if d.trips * rtt / 1e3 >= d.window_seconds:
        window = f"the window of {d.window_seconds * 1e3:,.1f} ms"
        return f"{demand}: {d.trips:g} round trips of {rtt:,.1f} ms fill {window}"
    if limit is not None and rtt > limit:
        return f"{demand}: {rtt:,.1f} ms round trip on the shortest route > {limit:,.1f} ms"
    return (
        f"{demand}: no two routes that share no edge, both within the window and the longest round trip, "
        f"{_gbps(data.requested_gbps(demand))} at stake"
    )


def _missing_capacity(data: WanData, options: Options, deadline: Deadline) -> Outcome[highs.Values]:
    """Say on which edges how much is missing for the exchange alone, at the minimum sum over edges."""
    m = build(data, elastic=True)
    for d, i in m.share:
        if data.demands[d].priority:
            m.share[d, i].fix(0.0)
    m.goal = pyo.Objective(expr=sum(m.missing.values()))
    outcome = _run(m, options, deadline)
    if outcome.solution is None:
        return outcome
    of = outcome.solution.of
    chosen = [(d, data.options[d][i]) for d, i in m.share if of(m.share[d, i]) > 0.5]
    parts = []
    for e, missing in ((e, of(m.missing[e])) for e in sorted(m.missing)):
        if missing > 1e-6:
            users = ", ".join(d for d, o in chosen if e in o.primary or e in (o.backup or ()))
            pairs = data.fibre.edges[e].max_pairs
            parts.append(f"{e}: {_gbps(missing)} missing beyond its {pairs} fibre pair(s), for {users}")
    return Outcome(stop=Stop.PROVED, infeasible=True, detail="; ".join(parts), solver=outcome.solver)


def _gbps(x: float) -> str:
    return f"{x:,.6g} Gbps"
