"""Write a solution of the wide area as the plan's section: routes, edges, forms of the exchange and what is proven."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.models.wan.data import WanData
from planner.models.wan.model import loads, priced, scale
from planner.physics.site import fibre, gradient_exchange, wan
from planner.plan.declared import LEAST_YEARLY, ON_TRUST, UNPRICED, WAN_FORMULATION
from planner.plan.wan import LEAST_CAPITAL, ExchangeForm, WanDemand, WanEdge, WanPlan, WanRoute
from planner.solvers import highs
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome, Stop, relative_gap

PROVEN_GAP = 1e-9  # relative; above what rounding leaves between the recomputed objective and the solver's bound
MIN_SHARE = 1e-7  # of a demand; less on a route is rounding
WHOLE_SHARE = 1 - 1e-6  # of a demand; more is all of it
Shares = dict[tuple[str, int], float]


def with_plan(
    data: WanData, m: Any, outcome: Outcome[highs.Values], seed: int, deadline: Deadline, *, proven: bool
) -> Outcome[WanPlan]:
    """Return the outcome with the plan's section, its objective recomputed from the physics."""
    of = outcome.solution.of if outcome.solution else float
    shares: Shares = {key: min(x, 1.0) for key, v in m.share.items() if (x := of(v)) > MIN_SHARE}
    edges = tuple(_edges(data, shares))
    capital = math.fsum(fibre.capex_usd(data.fibre.edges[e.id], data.wan, e.wavelengths) for e in edges)
    yearly = capital if data.request.capital else sum(e.usd_per_year for e in edges)
    value = yearly if priced(data) else sum(e.route_km * e.wavelengths for e in edges)
    bound = None if outcome.bound is None else min(outcome.bound * scale(data), value)
    gap = relative_gap(value, bound)
    result = replace(
        outcome.with_solution(shares),
        stop=Stop.PROVED if proven and gap is not None and gap <= PROVEN_GAP else Stop.LIMIT,
        objective=value,
        bound=bound,
        seconds=deadline.elapsed,
    )
    r = data.request
    size, window = r.exchange.stage_bytes, r.exchange.window_seconds
    certificate = result.certificate(
        formulation=WAN_FORMULATION,
        minimizes=(LEAST_CAPITAL if r.capital else LEAST_YEARLY) if priced(data) else UNPRICED,
        seed=seed,
        given=f"sites {', '.join(r.sites)}; {size:.6g} bytes a stage within {window:.6g} s",
        space={
            "demands": len(data.demands),
            "edges": len(data.fibre.edges),
            "routes": data.wan.routes,
            "options": sum(len(o) for o in data.options.values()),
        },
        binding=tuple(f"fibre_pairs[{e.id}]" for e in edges if _full(data, e)),
    )
    certificate = certificate.model_copy(update={"checked": ON_TRUST})
    plan = WanPlan(
        exchange=data.form.name if data.form else None,
        window_seconds=window,
        forms=_forms(data),
        protection="one_cut" if data.protected else "none",
        demands=tuple(_demand(data, d, shares, edges) for d in data.demands),
        edges=edges,
        capex_usd=capital,
        certificate=certificate,
    )
    return replace(result.with_solution(plan), stop=outcome.stop if proven else Stop.LIMIT, detail="")


def _full(data: WanData, edge: WanEdge) -> bool:
    """Return whether no more wavelengths can be lit on an edge."""
    return edge.wavelengths == data.max_wavelengths(data.fibre.edges[edge.id])


def _edges(data: WanData, shares: Shares) -> Iterator[WanEdge]:
    """Yield each edge lit for its load: no more than the solver did, and fewer where a wavelength costs nothing."""
    peak: dict[str, float] = {}
    for (e, _), terms in loads(data).items():
        peak[e] = max(peak.get(e, 0.0), math.fsum(rate * shares.get((d, i), 0.0) for d, i, rate in terms))
    for e, gbps in sorted(peak.items()):
        x = data.fibre.edges[e]
        waves = min(wan.wavelengths(data.wan, gbps * (1 - 1e-9)), data.max_wavelengths(x))
        if waves:
            yield WanEdge(
                id=e,
                a=x.a,
                b=x.b,
                route_km=x.route_km,
                peak_gbps=gbps,
                wavelengths=waves,
                fibre_pairs=wan.fibre_pairs(data.wan, waves),
                capacity_gbps=waves * data.wan.wavelength_gbps,
                usd_per_year=fibre.usd_per_year(x, data.wan, data.grid, waves),
            )


def _forms(data: WanData) -> tuple[ExchangeForm, ...]:
    """Return the forms side by side at the rate that the chosen one needs."""
    window = data.request.exchange.window_seconds
    needs = {f: gradient_exchange.form_need_gbps(f, data.wan, window, data.rtt_ms) for f in data.forms}
    rate = needs[data.form] if data.form else math.inf
    forms = []
    for f, need in needs.items():
        seconds = gradient_exchange.seconds(f, data.wan, rate, data.rtt_ms) if math.isfinite(rate) else None
        link_gbps = need if math.isfinite(need) else None
        fields = {"name": f.name, "order": f.order, "link_gbps": link_gbps, "seconds": seconds}
        forms.append(ExchangeForm.model_validate(fields))
    return tuple(forms)


def _demand(data: WanData, key: str, shares: Shares, edges: tuple[WanEdge, ...]) -> WanDemand:
    d, requested, options = data.demands[key], data.requested_gbps(key), data.options[key]
    routes = tuple(_route(data, key, i, shares[key, i]) for i in range(len(options)) if (key, i) in shares)
    share = math.fsum(r.share for r in routes)
    share = 1.0 if share > WHOLE_SHARE else share
    full = {e.id for e in edges if _full(data, e)}
    used = {e for o in options for e in (*o.primary, *(o.backup or ()))}
    return WanDemand(
        name=d.name,
        a=d.a,
        b=d.b,
        priority=d.priority,
        requested_gbps=requested,
        admitted_gbps=requested * share,
        missing_gbps=requested * (1 - share),
        saturated_edges=tuple(sorted(full & used)) if share < 1 else (),
        routes=routes,
    )


def _route(data: WanData, key: str, option: int, share: float) -> WanRoute:
    o, net = data.options[key][option], data.fibre
    return WanRoute(
        share=share,
        edges=o.primary,
        route_km=net.km(o.primary),
        rtt_ms=net.rtt_ms(o.primary),
        gbps=share * o.gbps,
        backup_edges=o.backup,
        backup_rtt_ms=None if o.backup is None else net.rtt_ms(o.backup),
        backup_gbps=None if o.backup is None else share * o.backup_gbps,
    )
