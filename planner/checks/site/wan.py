"""Rules of the wide area, replayed: every route walked, every state loaded, every edge priced, from physics alone."""

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
from planner.plan.wan import WanDemand, WanPlan

ROUNDING_GBPS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the wide area had to join, recomputed from sites and layout."""

    fibre: Fibre
    window_seconds: float
    forms: tuple[Form, ...]
    form: Form | None
    demands: dict[tuple[str, str, str], Demand]
    rtt_ms: gradient_exchange.Rtt


def asked(c: PlanPhysics) -> Asked | None:
    """Recompute the question; None where it does not arise, or where sites or layout are too broken for it."""
    m, held = c.metrics, c.plan.layout
    if not c.wan.designed or len(c.standing) < 2 or m is None or held is None:
        return None
    places = {x.site.id: (x.node.latitude, x.node.longitude) for x in c.standing}
    groups: dict[str, list[str]] = {}
    for x in c.standing:
        if x.site.id in c.replicas:
            groups.setdefault(x.authority.interconnection, []).append(x.site.id)
    net = fibre.fibre_of(c.wan, wan_demands.places_of(c.wan, places))
    rtt = partial(_shortest_rtt_ms, net, fibre.graph(net))
    a, size = held.assumptions, m.gradient_bytes_per_stage
    window = gradient_exchange.counted_window_seconds(
        c.wan, size, len(c.replicas), m.wan_window_seconds, a.wan_gbps, a.wan_rtt_ms
    )
    offered = gradient_exchange.forms(groups, size, rtt)
    form = wan_demands.chosen(c.wan, offered, window, rtt)
    demands = (
        *wan_demands.sync_demands(c.wan, form, window, rtt),
        *wan_demands.traffic_demands(c.wan, sorted(places), net.node),
    )
    return Asked(
        fibre=net,
        window_seconds=window,
        forms=offered,
        form=form,
        demands={(d.name, d.a, d.b): d for d in demands},
        rtt_ms=rtt,
    )


def _shortest_rtt_ms(net: Fibre, graph: object, a: str, b: str) -> float:
    found = fibre.routes(net, graph, min(a, b), max(a, b), 1)
    return net.rtt_ms(found[0]) if found else math.inf


def designed(c: PlanPhysics) -> Iterator[Violation]:
    """Design the wide area where the instance asks for it and two sites are open, and only there."""
    wanted = c.wan.designed and c.instance.wan is not None and len(c.standing) > 1
    held = c.plan.wan is not None
    if wanted != held:
        yield broken(
            "designed",
            f"{int(held)} designs of the wide area held, {int(wanted)} expected with {len(c.standing)} sites",
        )
    if c.plan.wan is not None:
        yield from must_be("designed", "protection", c.plan.wan.protection, c.wan.protection or "none")


def fastest_form(c: PlanPhysics, q: Asked, held: WanPlan) -> Iterator[Violation]:
    """Exchange gradients in the form that needs least, in the time that the step counts on, each form's figures as they follow."""
    yield from must_equal("fastest_form", "window_seconds", held.window_seconds, q.window_seconds, " s")
    yield from must_be("fastest_form", "exchange", held.exchange, q.form.name if q.form else None)
    yield from must_be("fastest_form", "forms", sorted(f.name for f in held.forms), sorted(f.name for f in q.forms))
    need = gradient_exchange.form_need_gbps(q.form, c.wan, q.window_seconds, q.rtt_ms) if q.form else math.inf
    for f in q.forms:
        rate = gradient_exchange.form_need_gbps(f, c.wan, q.window_seconds, q.rtt_ms)
        took = gradient_exchange.seconds(f, c.wan, need, q.rtt_ms) if math.isfinite(need) else None
        for x in (x for x in held.forms if x.name == f.name):
            yield from must_be(f"fastest_form[{f.name}]", "order", x.order, f.order)
            yield from must_equal(
                f"fastest_form[{f.name}]", "link_gbps", x.link_gbps, rate if math.isfinite(rate) else None, " Gbps"
            )
            yield from must_equal(f"fastest_form[{f.name}]", "seconds", x.seconds, took, " s")


def demands(_: PlanPhysics, q: Asked, held: WanPlan) -> Iterator[Violation]:
    """State every demand once, the exchange whole, and of the rest what is carried and what is missing."""
    stated = Counter((d.name, d.a, d.b) for d in held.demands)
    for key in sorted(set(stated) | set(q.demands)):
        if stated[key] != int(key in q.demands):
            yield broken(_named("demands", *key), f"{stated[key]} entries, {int(key in q.demands)} expected")
    for d, x in _known(q, held):
        rule, share = _named("demands", d.name, d.a, d.b), math.fsum(r.share for r in d.routes)
        rate = x.gbps(q.rtt_ms(d.a, d.b))
        rate = rate if math.isfinite(rate) else x.gbps(0.0)
        yield from must_be(rule, "priority", d.priority, x.priority)
        yield from must_equal(rule, "requested_gbps", d.requested_gbps, rate, " Gbps")
        yield from at_most(rule, share, 1.0, "of the demand on its routes", "of it")
        if x.priority == 0:
            yield from must_equal(rule, "share of the exchange that is carried", share, 1.0)
            yield from at_most(rule, len(d.routes), 1, "routes of one link of the exchange", "allowed")
        if (
            abs(d.admitted_gbps - rate * share) > TOLERANCE * rate
            or abs(d.missing_gbps - rate * (1 - share)) > TOLERANCE * rate
        ):
            yield broken(
                rule,
                f"{show(d.admitted_gbps)} Gbps carried and {show(d.missing_gbps)} missing stated, {show(share)} of {show(rate)} routed",
            )


def _named(rule: str, name: str, a: str, b: str) -> str:
    return f"{rule}[{name}, {a}, {b}]"


def _known(q: Asked, held: WanPlan) -> Iterator[tuple[WanDemand, Demand]]:
    for d in held.demands:
        if (d.name, d.a, d.b) in q.demands:
            yield d, q.demands[d.name, d.a, d.b]


def routes(c: PlanPhysics, q: Asked, held: WanPlan) -> Iterator[Violation]:
    """Lead each route from end to end within the longest round trip, its length, time and rate as they follow; back it by one that shares no edge."""
    for d, x in _known(q, held):
        rule = _named("routes", d.name, d.a, d.b)
        for r in d.routes:
            yield from at_most(rule, 0.0, r.share, "of the demand at least", "on a route")
            for what, edges, rtt, gbps in (
                ("route", r.edges, r.rtt_ms, r.gbps),
                ("backup", r.backup_edges, r.backup_rtt_ms, r.backup_gbps),
            ):
                if edges is None:
                    continue
                fault = _astray(q.fibre, edges, d.a, d.b)
                if fault:
                    yield broken(rule, f"{what}: {fault}")
                    continue
                found = q.fibre.rtt_ms(edges)
                yield from must_equal(rule, f"{what}'s rtt_ms", rtt, found, " ms")
                yield from must_equal(rule, f"{what}'s gbps", gbps, r.share * x.gbps(found), " Gbps")
                if x.priority == 0 and c.grid.rules.max_rtt_ms is not None:
                    yield from at_most(rule, found, c.grid.rules.max_rtt_ms, f"ms round trip of the {what}", "ms limit")
            if not _astray(q.fibre, r.edges, d.a, d.b):
                yield from must_equal(rule, "route_km", r.route_km, q.fibre.km(r.edges), " km")
            yield from _backed(c.wan, q.fibre, rule, r.edges, r.backup_edges)


def _astray(net: Fibre, edges: tuple[str, ...], a: str, b: str) -> str | None:
    """Walk a route; say where it breaks off."""
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
        yield broken(
            rule,
            f"{int(backup is not None)} backup routes that share {len(shared)} edges ({', '.join(shared)}), 1 that shares 0 expected",
        )


def capacity(c: PlanPhysics, q: Asked, held: WanPlan) -> Iterator[Violation]:
    """Carry on each edge, whichever one edge is cut, no more than its wavelengths do."""
    lit = {e.id: e.wavelengths * c.wan.wavelength_gbps for e in held.edges}
    cuts = sorted(e for e, x in q.fibre.edges.items() if x.cut) if c.wan.protection == "one_cut" else []
    peak: dict[str, float] = {}
    for cut in (None, *cuts):
        state = f"{cut!r} is cut" if cut else "nothing is cut"
        for e, gbps in sorted(_loads(q, held, cut).items()):
            peak[e] = max(peak.get(e, 0.0), gbps)
            if gbps > lit.get(e, 0.0) * (1 + TOLERANCE) + ROUNDING_GBPS:
                yield broken(f"capacity[{e}]", f"{show(gbps)} Gbps while {state} > {show(lit.get(e, 0.0))} Gbps lit")
    for x in held.edges:
        yield from must_equal(f"capacity[{x.id}]", "peak_gbps", x.peak_gbps, peak.get(x.id, 0.0), " Gbps")


def _loads(q: Asked, held: WanPlan, cut: str | None) -> dict[str, float]:
    """Add up what each edge carries while one is cut."""
    loads: dict[str, float] = {}
    for d, x in _known(q, held):
        for r in d.routes:
            edges = (r.backup_edges or ()) if cut in r.edges else r.edges
            known = tuple(e for e in edges if e in q.fibre.edges)
            for e in known:
                loads[e] = loads.get(e, 0.0) + r.share * x.gbps(q.fibre.rtt_ms(known))
    return loads


def edges(c: PlanPhysics, q: Asked, held: WanPlan) -> Iterator[Violation]:
    """Light only fibre that is there, within its pairs, at its price."""
    for name, count in sorted(Counter(e.id for e in held.edges).items()):
        if count > 1 or name not in q.fibre.edges:
            yield broken(f"edges[{name}]", f"{count} entries for {int(name in q.fibre.edges)} edges of that id")
    for e in held.edges:
        x, rule = q.fibre.edges.get(e.id), f"edges[{e.id}]"
        if x is None:
            continue
        most = x.max_pairs * c.wan.max_wavelengths_per_pair
        yield from must_be(rule, "ends", {e.a, e.b}, {x.a, x.b})
        yield from must_equal(rule, "route_km", e.route_km, x.route_km, " km")
        yield from at_most(rule, 1, e.wavelengths, "wavelengths at least", "wavelengths lit")
        yield from at_most(rule, e.wavelengths, most, "wavelengths", f"wavelengths on {x.max_pairs} fibre pairs")
        yield from must_equal(rule, "fibre_pairs", e.fibre_pairs, wide.fibre_pairs(c.wan, e.wavelengths))
        yield from must_equal(rule, "capacity_gbps", e.capacity_gbps, e.wavelengths * c.wan.wavelength_gbps, " Gbps")
        yield from must_equal(
            rule, "usd_per_year", e.usd_per_year, fibre.usd_per_year(x, c.wan, c.grid, e.wavelengths), " USD"
        )
    yield from must_equal("edges", "capex_usd", held.capex_usd, priced(q, c.wan, held), " USD")


def priced(q: Asked, wan: Wan, held: WanPlan) -> float:
    """Price the fibre and the wavelengths of a design."""
    return math.fsum(
        fibre.capex_usd(q.fibre.edges[e.id], wan, e.wavelengths) for e in held.edges if e.id in q.fibre.edges
    )


def exact(c: PlanPhysics) -> WanPlan | None:
    """Return the design with the price that its wavelengths give it."""
    q, held = asked(c), c.plan.wan
    return held if q is None or held is None else held.model_copy(update={"capex_usd": priced(q, c.wan, held)})


def figure(c: PlanPhysics) -> float | None:
    """Recompute what the design makes least: yearly cost, or wavelengths times route-km where nothing is priced."""
    q, held = asked(c), c.plan.wan
    if q is None or held is None:
        return None
    known = [(q.fibre.edges[e.id], e.wavelengths) for e in held.edges if e.id in q.fibre.edges]
    if any(e.pair_usd or e.wavelength_usd for e in q.fibre.edges.values()):
        return sum(fibre.usd_per_year(e, c.wan, c.grid, n) for e, n in known)
    return sum(e.route_km * n for e, n in known)


def replay(c: PlanPhysics) -> Iterator[Violation]:
    """Ask the rules of a design that is held and whose question can be recomputed."""
    q, held = asked(c), c.plan.wan
    if q is not None and held is not None:
        for rule in (fastest_form, demands, routes, capacity, edges):
            yield from rule(c, q, held)


RULES: tuple[Rule, ...] = (designed, replay)
