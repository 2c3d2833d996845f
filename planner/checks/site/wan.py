"""Checks of the wide area: every route walked, every state loaded, every edge priced anew, from physics alone."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from planner.checks.rule import TOLERANCE, Rule, at_most, broken, must_be, must_equal, show
from planner.instance.wan import Wan
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import fibre, gradient_exchange, wan_demands
from planner.physics.site import wan as wide
from planner.physics.site.fibre import Fibre
from planner.physics.site.gradient_exchange import Form
from planner.physics.site.wan_demands import Demand
from planner.plan.certificate import Violation
from planner.plan.wan import LEAST_CAPITAL, WanDemand, WanPlan

ROUNDING_GBPS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What the wide area must join, recomputed from sites and layout."""

    fibre: Fibre
    window_seconds: float
    forms: tuple[Form, ...]
    form: Form | None
    demands: dict[tuple[str, str, str], Demand]
    rtt_ms: gradient_exchange.Rtt


def requirements(c: PlanPhysics) -> Requirements | None:
    """Return the requirements; None where no design is needed, or where sites or layout are too broken for it."""
    m, layout = c.metrics, c.plan.layout
    if not c.wan.designed or len(c.standing) < 2 or m is None or layout is None:
        return None
    places = {x.site.id: (x.node.latitude, x.node.longitude) for x in c.standing}
    groups: dict[str, list[str]] = {}
    for x in c.standing:
        if x.site.id in c.replicas:
            groups.setdefault(x.authority.interconnection, []).append(x.site.id)
    net = fibre.fibre_of(c.wan, wan_demands.places_of(c.wan, places))
    rtt = partial(_shortest_rtt_ms, net, fibre.graph(net))
    a, size = layout.assumptions, m.gradient_bytes_per_stage
    window = gradient_exchange.assumed_window_seconds(
        c.wan, size, len(c.replicas), m.wan_window_seconds, a.wan_gbps, a.wan_rtt_ms
    )
    offered = gradient_exchange.forms(groups, size, rtt)
    form = wan_demands.choose_form(c.wan, offered, window, rtt)
    demands = (
        *wan_demands.sync_demands(c.wan, form, window, rtt),
        *wan_demands.traffic_demands(c.wan, sorted(places), net.node),
    )
    return Requirements(
        fibre=net,
        window_seconds=window,
        forms=offered,
        form=form,
        demands={(d.name, d.a, d.b): d for d in demands},
        rtt_ms=rtt,
    )


def _shortest_rtt_ms(net: Fibre, graph: object, a: str, b: str) -> float:
    routes = fibre.routes(net, graph, min(a, b), max(a, b), 1)
    return net.rtt_ms(routes[0]) if routes else math.inf


def designed(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the wide area is designed where the instance asks for it and two sites are open, and only there."""
    wanted = c.wan.designed and c.instance.wan is not None and len(c.standing) > 1
    planned = c.plan.wan is not None
    if wanted != planned:
        expected = f"{int(wanted)} expected with {len(c.standing)} sites"
        yield broken("designed", f"{int(planned)} designs of the wide area planned, {expected}")
    if c.plan.wan is not None:
        yield from must_be("designed", "protection", c.plan.wan.protection, c.wan.protection or "none")


def fastest_form(c: PlanPhysics, req: Requirements, design: WanPlan) -> Iterator[Violation]:
    """Check that the exchange takes the form of the lowest rate in the time that the step assumes."""
    yield from must_equal("fastest_form", "window_seconds", design.window_seconds, req.window_seconds, " s")
    yield from must_be("fastest_form", "exchange", design.exchange, req.form.name if req.form else None)
    yield from must_be("fastest_form", "forms", sorted(f.name for f in design.forms), sorted(f.name for f in req.forms))
    need = gradient_exchange.form_need_gbps(req.form, c.wan, req.window_seconds, req.rtt_ms) if req.form else math.inf
    for f in req.forms:
        rate = gradient_exchange.form_need_gbps(f, c.wan, req.window_seconds, req.rtt_ms)
        took = gradient_exchange.seconds(f, c.wan, need, req.rtt_ms) if math.isfinite(need) else None
        for x in (x for x in design.forms if x.name == f.name):
            yield from must_be(f"fastest_form[{f.name}]", "order", x.order, f.order)
            finite = rate if math.isfinite(rate) else None
            yield from must_equal(f"fastest_form[{f.name}]", "link_gbps", x.link_gbps, finite, " Gbps")
            yield from must_equal(f"fastest_form[{f.name}]", "seconds", x.seconds, took, " s")


def demands(_: PlanPhysics, req: Requirements, design: WanPlan) -> Iterator[Violation]:
    """Check that every demand is stated once, the exchange carried whole, the rest as carried and missing."""
    entries = Counter((d.name, d.a, d.b) for d in design.demands)
    for key in sorted(set(entries) | set(req.demands)):
        if entries[key] != int(key in req.demands):
            yield broken(_named("demands", *key), f"{entries[key]} entries, {int(key in req.demands)} expected")
    for d, x in _known(req, design):
        rule, share = _named("demands", d.name, d.a, d.b), math.fsum(r.share for r in d.routes)
        rate = x.gbps(req.rtt_ms(d.a, d.b))
        rate = rate if math.isfinite(rate) else x.gbps(0.0)
        yield from must_be(rule, "priority", d.priority, x.priority)
        yield from must_equal(rule, "requested_gbps", d.requested_gbps, rate, " Gbps")
        yield from at_most(rule, share, 1.0, "of the demand on its routes", "of it")
        if x.priority == 0:
            yield from must_equal(rule, "share of the exchange that is carried", share, 1.0)
            yield from at_most(rule, len(d.routes), 1, "routes of one link of the exchange", "allowed")
        errors = d.admitted_gbps - rate * share, d.missing_gbps - rate * (1 - share)
        if max(map(abs, errors)) > TOLERANCE * rate:
            stated = f"{show(d.admitted_gbps)} Gbps carried and {show(d.missing_gbps)} missing stated"
            yield broken(rule, f"{stated}, {show(share)} of {show(rate)} routed")


def _named(rule: str, name: str, a: str, b: str) -> str:
    return f"{rule}[{name}, {a}, {b}]"


def _known(req: Requirements, design: WanPlan) -> Iterator[tuple[WanDemand, Demand]]:
    for d in design.demands:
        if (d.name, d.a, d.b) in req.demands:
            yield d, req.demands[d.name, d.a, d.b]


def routes(c: PlanPhysics, req: Requirements, design: WanPlan) -> Iterator[Violation]:
    """Check that each route goes from end to end within the longest round trip, and that its backup shares no edge.

    Its length, round trip and rate must be those of its edges.
    """
    for d, x in _known(req, design):
        rule = _named("routes", d.name, d.a, d.b)
        for r in d.routes:
            yield from at_most(rule, 0.0, r.share, "of the demand at least", "on a route")
            for what, edges, rtt, gbps in (
                ("route", r.edges, r.rtt_ms, r.gbps),
                ("backup", r.backup_edges, r.backup_rtt_ms, r.backup_gbps),
            ):
                if edges is None:
                    continue
                fault = _astray(req.fibre, edges, d.a, d.b)
                if fault:
                    yield broken(rule, f"{what}: {fault}")
                    continue
                found = req.fibre.rtt_ms(edges)
                yield from must_equal(rule, f"{what}'s rtt_ms", rtt, found, " ms")
                yield from must_equal(rule, f"{what}'s gbps", gbps, r.share * x.gbps(found), " Gbps")
                if x.priority == 0 and c.grid.rules.max_rtt_ms is not None:
                    yield from at_most(rule, found, c.grid.rules.max_rtt_ms, f"ms round trip of the {what}", "ms limit")
            if not _astray(req.fibre, r.edges, d.a, d.b):
                yield from must_equal(rule, "route_km", r.route_km, req.fibre.km(r.edges), " km")
            yield from _backed(c.wan, req.fibre, rule, r.edges, r.backup_edges)


def _astray(net: Fibre, edges: tuple[str, ...], a: str, b: str) -> str | None:
    """Walk a route, and say where it breaks off; None where it arrives."""
    at = a
    for name in edges:
        e = net.edges.get(name)
        if e is None or at not in (e.a, e.b):
            return f"{name!r} does not go on from {at!r}"
        at = e.b if at == e.a else e.a
    return None if at == b else f"it ends at {at!r} and not at {b!r}"


def _backed(
    wan: Wan, net: Fibre, rule: str, edges: tuple[str, ...], backup: tuple[str, ...] | None
) -> Iterator[Violation]:
    if wan.protection != "one_cut":
        yield from must_be(rule, "backup", backup, None)
        return
    shared = sorted(e for e in set(edges) & set(backup or ()) if e in net.edges and net.edges[e].cut)
    if backup is None or shared:
        stated = f"{int(backup is not None)} backup routes that share {len(shared)} edges ({', '.join(shared)})"
        yield broken(rule, f"{stated}, 1 that shares 0 expected")


def capacity(c: PlanPhysics, req: Requirements, design: WanPlan) -> Iterator[Violation]:
    """Check that each edge carries no more than its wavelengths do, whichever one edge is cut."""
    lit_gbps = {e.id: e.wavelengths * c.wan.wavelength_gbps for e in design.edges}
    cuts = sorted(e for e, x in req.fibre.edges.items() if x.cut) if c.wan.protection == "one_cut" else []
    peak: dict[str, float] = {}
    for cut in (None, *cuts):
        state = f"{cut!r} is cut" if cut else "nothing is cut"
        for e, gbps in sorted(_loads(req, design, cut).items()):
            peak[e] = max(peak.get(e, 0.0), gbps)
            limit = lit_gbps.get(e, 0.0)
            if gbps > limit * (1 + TOLERANCE) + ROUNDING_GBPS:
                yield broken(f"capacity[{e}]", f"{show(gbps)} Gbps while {state} > {show(limit)} Gbps lit")
    for x in design.edges:
        yield from must_equal(f"capacity[{x.id}]", "peak_gbps", x.peak_gbps, peak.get(x.id, 0.0), " Gbps")


def _loads(req: Requirements, design: WanPlan, cut: str | None) -> dict[str, float]:
    """Return what each edge carries while one is cut."""
    loads: dict[str, float] = {}
    for d, x in _known(req, design):
        for r in d.routes:
            edges = (r.backup_edges or ()) if cut in r.edges else r.edges
            known = tuple(e for e in edges if e in req.fibre.edges)
            for e in known:
                loads[e] = loads.get(e, 0.0) + r.share * x.gbps(req.fibre.rtt_ms(known))
    return loads


def edges(c: PlanPhysics, req: Requirements, design: WanPlan) -> Iterator[Violation]:
    """Check that wavelengths are only on fibre that exists, within its pairs, at its price."""
    for name, count in sorted(Counter(e.id for e in design.edges).items()):
        if count > 1 or name not in req.fibre.edges:
            yield broken(f"edges[{name}]", f"{count} entries for {int(name in req.fibre.edges)} edges of that id")
    for e in design.edges:
        x, rule = req.fibre.edges.get(e.id), f"edges[{e.id}]"
        if x is None:
            continue
        limit = x.max_pairs * c.wan.max_wavelengths_per_pair
        yield from must_be(rule, "ends", {e.a, e.b}, {x.a, x.b})
        yield from must_equal(rule, "route_km", e.route_km, x.route_km, " km")
        yield from at_most(rule, 1, e.wavelengths, "wavelengths at least", "wavelengths lit")
        yield from at_most(rule, e.wavelengths, limit, "wavelengths", f"wavelengths on {x.max_pairs} fibre pairs")
        yield from must_equal(rule, "fibre_pairs", e.fibre_pairs, wide.fibre_pairs(c.wan, e.wavelengths))
        yield from must_equal(rule, "capacity_gbps", e.capacity_gbps, e.wavelengths * c.wan.wavelength_gbps, " Gbps")
        usd = fibre.usd_per_year(x, c.wan, c.grid, e.wavelengths)
        yield from must_equal(rule, "usd_per_year", e.usd_per_year, usd, " USD")
    yield from must_equal("edges", "capex_usd", design.capex_usd, priced(req, c.wan, design), " USD")


def priced(req: Requirements, wan: Wan, design: WanPlan) -> float:
    """Return the price of the fibre and the wavelengths of a design."""
    return math.fsum(
        fibre.capex_usd(req.fibre.edges[e.id], wan, e.wavelengths) for e in design.edges if e.id in req.fibre.edges
    )


def repriced(c: PlanPhysics) -> WanPlan | None:
    """Return the design with the price that its wavelengths give it."""
    req, design = requirements(c), c.plan.wan
    return (
        design if req is None or design is None else design.model_copy(update={"capex_usd": priced(req, c.wan, design)})
    )


def objective(c: PlanPhysics) -> float | None:
    """Return what the design minimizes: capital or yearly cost, or wavelengths times route-km without prices."""
    req, design = requirements(c), c.plan.wan
    if req is None or design is None:
        return None
    known = [(req.fibre.edges[e.id], e.wavelengths) for e in design.edges if e.id in req.fibre.edges]
    if any(e.pair_usd or e.wavelength_usd for e in req.fibre.edges.values()):
        if design.certificate.minimizes == LEAST_CAPITAL:
            return priced(req, c.wan, design)
        return sum(fibre.usd_per_year(e, c.wan, c.grid, n) for e, n in known)
    return sum(e.route_km * n for e, n in known)


def replay(c: PlanPhysics) -> Iterator[Violation]:
    """Check a design whose requirements can be recomputed."""
    req, design = requirements(c), c.plan.wan
    if req is not None and design is not None:
        for rule in (fastest_form, demands, routes, capacity, edges):
            yield from rule(c, req, design)


RULES: tuple[Rule, ...] = (designed, replay)
