"""Decide how the sites are joined: routes, wavelengths by fibre edge and what is carried, as a MILP.

First the gradient exchange, whole; then as much of the traffic as the fibre can carry, priority by priority; then the
least yearly cost of that. Where all of it can be carried, one solve shows it.
"""

import math
import time
from collections.abc import Iterator
from typing import Any

import pyomo.environ as pyo

from planner.instance.instance import Instance
from planner.models.requests import Options, WanRequest
from planner.models.wan.data import Question, ask
from planner.models.wan.rules import build, cost, loads, priced, shares
from planner.physics.site import fibre, gradient_exchange, wan
from planner.plan.certificate import Certificate
from planner.plan.wan import ExchangeForm, WanDemand, WanEdge, WanPlan, WanRoute
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop, relative_gap

PROVEN_GAP = 1e-9
LEAST_SHARE = 1e-7  # of a demand; less on a route is rounding
FORMULATION = (
    "MILP over routes: whole wavelengths and fibre pairs by edge, each link of the exchange on one route, traffic split over routes; "
    "under protection a diverse route stands in for each, and spare wavelengths are shared between cuts; "
    "most traffic by priority first, then least cost"
)
Shares = dict[tuple[str, int], float]


def solve(instance: Instance, request: WanRequest, options: Options) -> Outcome[WanPlan]:
    """Return the design of the wide area for the open sites; where the exchange cannot be carried, `detail` says what is missing where."""
    started = time.perf_counter()
    q = ask(instance, request)
    stuck = [d for d, x in q.demands.items() if not x.priority and not q.options[d]]
    if stuck:
        return Outcome(
            stop=Stop.PROVED,
            infeasible=True,
            detail="; ".join(_no_route(q, d) for d in stuck),
            seconds=time.perf_counter() - started,
        )
    m = build(q)
    bulk = [d for d, x in q.demands.items() if x.priority and q.options[d]]
    m.all = pyo.Constraint(bulk, rule=lambda m, d: shares(m, q, d) >= 1)
    m.goal = pyo.Objective(expr=cost(m, q))
    outcome = _run(m, options)
    proven = True
    if outcome.infeasible and bulk:
        m.all.deactivate()
        outcome, proven = _by_priority(m, q, bulk, options)
    if outcome.infeasible:
        outcome = _short(q, options)
    if outcome.solution is None:
        return Outcome(
            stop=outcome.stop,
            infeasible=outcome.infeasible,
            detail=outcome.detail,
            seconds=time.perf_counter() - started,
        )
    return _with_plan(q, m, outcome, options, started, proven=proven)


def _run(m: Any, options: Options) -> Outcome[highs.Values]:
    return highs.run(
        m, time_limit=options.time_limit, gap=options.gap, absolute_gap=0.0, seed=options.seed, threads=options.threads
    )


def _by_priority(m: Any, q: Question, bulk: list[str], options: Options) -> tuple[Outcome[highs.Values], bool]:
    """Admit the most Gbps of each priority, those before it kept, then cost least; tell whether each step was proven."""
    proven = True
    m.kept = pyo.ConstraintList()
    for level in sorted({q.demands[d].priority for d in bulk}):
        rates = {d: q.requested_gbps(d) for d in bulk if q.demands[d].priority == level}
        whole = max(sum(rates.values()), 1e-12)
        m.goal.set_value(-sum(rate / whole * shares(m, q, d) for d, rate in rates.items()))
        outcome = _run(m, options)
        if outcome.objective is None:
            return outcome, False
        proven &= (relative_gap(outcome.objective, outcome.bound) or 0.0) <= 1e-6
        # A little is given back, so that rounding leaves room for the next solve.
        m.kept.add(sum(rate / whole * shares(m, q, d) for d, rate in rates.items()) >= -outcome.objective - 1e-7)
    m.goal.set_value(cost(m, q))
    return _run(m, options), proven


def _no_route(q: Question, demand: str) -> str:
    """Say why a link of the exchange has no route at all."""
    d = q.demands[demand]
    rtt, wait = q.rtt_ms(d.a, d.b), d.trips * q.rtt_ms(d.a, d.b) / 1e3
    limit = q.grid.rules.max_rtt_ms
    if math.isinf(rtt):
        return f"{demand}: no fibre route"
    if wait >= d.window_seconds:
        return f"{demand}: {d.trips:g} round trips of {rtt:,.1f} ms fill the window of {d.window_seconds * 1e3:,.1f} ms"
    if limit is not None and rtt > limit:
        return f"{demand}: {rtt:,.1f} ms round trip on the shortest route > {limit:,.1f} ms"
    return f"{demand}: no two routes that share no edge, both within the window and the longest round trip, {_gbps(q.requested_gbps(demand))} at stake"


def _short(q: Question, options: Options) -> Outcome[highs.Values]:
    """Say on which edges how much is missing for the exchange alone: the least sum over edges, the traffic left out."""
    m = build(q, elastic=True)
    for d, i in m.share:
        if q.demands[d].priority:
            m.share[d, i].fix(0.0)
    m.goal = pyo.Objective(expr=sum(m.missing.values()))
    outcome = _run(m, options)
    if outcome.solution is None:
        return outcome
    of = outcome.solution.of
    over = {e: of(m.missing[e]) for e in m.missing if of(m.missing[e]) > 1e-6}
    held = [(d, q.options[d][i]) for d, i in m.share if of(m.share[d, i]) > 0.5]
    said = [
        f"{e}: {_gbps(x)} missing beyond its {q.fibre.edges[e].most_pairs} fibre pair(s), for {', '.join(_users(held, e))}"
        for e, x in sorted(over.items())
    ]
    return Outcome(stop=Stop.PROVED, infeasible=True, detail="; ".join(said), solver=outcome.solver)


def _users(held: list[tuple[str, Any]], edge: str) -> list[str]:
    return [d for d, o in held if edge in o.primary or edge in (o.backup or ())]


def _gbps(x: float) -> str:
    return f"{x:,.6g} Gbps"


def _with_plan(
    q: Question, m: Any, outcome: Outcome[highs.Values], options: Options, started: float, *, proven: bool
) -> Outcome[WanPlan]:
    of = outcome.solution.of if outcome.solution else float
    held: Shares = {key: min(of(m.share[key]), 1.0) for key in m.share if of(m.share[key]) > LEAST_SHARE}
    edges = tuple(_edges(q, held))
    value = sum(e.usd_per_year for e in edges) if priced(q) else sum(e.route_km * e.wavelengths for e in edges)
    scale = 1e6 if priced(q) else 1e3
    bound = None if outcome.bound is None else min(outcome.bound * scale, value)
    gap = relative_gap(value, bound)
    done = proven and gap is not None and gap <= PROVEN_GAP
    certificate = Certificate(
        status="optimal" if done else "feasible",
        objective=value,
        bound=bound,
        gap=gap,
        solver=outcome.solver,
        formulation=FORMULATION,
        variables=outcome.variables,
        constraints=outcome.constraints,
        seconds=time.perf_counter() - started,
        seed=options.seed,
        minimizes="yearly cost of fibre and wavelengths, USD"
        if priced(q)
        else "wavelengths times route-km, as nothing is priced",
        given=_given(q.request),
        space={
            "demands": len(q.demands),
            "edges": len(q.fibre.edges),
            "routes": q.wan.routes,
            "options": sum(len(o) for o in q.options.values()),
        },
        binding=tuple(_binding(q, edges)),
    )
    plan = WanPlan(
        exchange=q.form.name if q.form else None,
        window_seconds=q.request.exchange.window_seconds,
        forms=_forms(q),
        protection="one_cut" if q.protected else "none",
        demands=tuple(_demand(q, d, held, edges) for d in q.demands),
        edges=edges,
        capex_usd=math.fsum(fibre.capex_usd(q.fibre.edges[e.id], q.wan, e.wavelengths) for e in edges),
        certificate=certificate,
    )
    stop = outcome.stop if proven else Stop.LIMIT
    return Outcome(
        stop=stop, solution=plan, objective=value, bound=bound, solver=outcome.solver, seconds=certificate.seconds
    )


def _given(r: WanRequest) -> str:
    return f"sites {', '.join(r.sites)}; {r.exchange.stage_bytes:.6g} bytes a stage within {r.exchange.window_seconds:.6g} s"


def _edges(q: Question, held: Shares) -> Iterator[WanEdge]:
    """Light each edge for the shares that are held: no more than the solver did, and fewer where a wavelength costs nothing."""
    peak: dict[str, float] = {}
    for (e, _), terms in loads(q).items():
        peak[e] = max(peak.get(e, 0.0), math.fsum(rate * held.get((d, i), 0.0) for d, i, rate in terms))
    for e, gbps in sorted(peak.items()):
        x, waves = q.fibre.edges[e], min(wan.wavelengths(q.wan, gbps * (1 - 1e-9)), q.most_waves(q.fibre.edges[e]))
        if waves:
            yield WanEdge(
                id=e,
                a=x.a,
                b=x.b,
                route_km=x.route_km,
                peak_gbps=gbps,
                wavelengths=waves,
                fibre_pairs=wan.fibre_pairs(q.wan, waves),
                capacity_gbps=waves * q.wan.wavelength_gbps,
                usd_per_year=fibre.usd_per_year(x, q.wan, q.grid, waves),
            )


def _binding(q: Question, edges: tuple[WanEdge, ...]) -> Iterator[str]:
    for e in edges:
        if e.wavelengths == q.most_waves(q.fibre.edges[e.id]):
            yield f"fibre_pairs[{e.id}]"


def _forms(q: Question) -> tuple[ExchangeForm, ...]:
    """Set the forms side by side at the rate that the chosen one needs."""
    window = q.request.exchange.window_seconds
    rate = gradient_exchange.form_need_gbps(q.form, q.wan, window, q.rtt_ms) if q.form else math.inf
    found = []
    for f in q.forms:
        need = gradient_exchange.form_need_gbps(f, q.wan, window, q.rtt_ms)
        took = gradient_exchange.seconds(f, q.wan, rate, q.rtt_ms) if math.isfinite(rate) else None
        found.append(
            ExchangeForm.model_validate(
                {"name": f.name, "order": f.order, "link_gbps": need if math.isfinite(need) else None, "seconds": took}
            )
        )
    return tuple(found)


def _demand(q: Question, key: str, held: Shares, edges: tuple[WanEdge, ...]) -> WanDemand:
    d, asked = q.demands[key], q.requested_gbps(key)
    routes = tuple(_route(q, key, i, held[key, i]) for i in range(len(q.options[key])) if (key, i) in held)
    share = min(math.fsum(r.share for r in routes), 1.0)
    share = 1.0 if share > 1 - 1e-6 else share
    full = {e.id for e in edges if e.wavelengths == q.most_waves(q.fibre.edges[e.id])}
    on = {e for o in q.options[key] for e in (*o.primary, *(o.backup or ()))}
    return WanDemand(
        name=d.name,
        a=d.a,
        b=d.b,
        priority=d.priority,
        requested_gbps=asked,
        admitted_gbps=asked * share,
        missing_gbps=asked * (1 - share),
        saturated_edges=tuple(sorted(full & on)) if share < 1 else (),
        routes=routes,
    )


def _route(q: Question, key: str, option: int, share: float) -> WanRoute:
    o = q.options[key][option]
    return WanRoute(
        share=share,
        edges=o.primary,
        route_km=q.fibre.km(o.primary),
        rtt_ms=q.fibre.rtt_ms(o.primary),
        gbps=share * o.gbps,
        backup_edges=o.backup,
        backup_rtt_ms=None if o.backup is None else q.fibre.rtt_ms(o.backup),
        backup_gbps=None if o.backup is None else share * o.backup_gbps,
    )
