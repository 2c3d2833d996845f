"""Rules of the site split and of the wide area: grid, land and links; every route walked and every edge priced."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from planner.checks import power_flow
from planner.checks.rule import TOLERANCE, Rule, at_most, broken, must_be, must_equal, show
from planner.instance.network import Wan
from planner.physics.plan_physics import PlanPhysics, PoweredSite
from planner.physics.site import fibre, wan
from planner.physics.site import wan as gradient_exchange
from planner.physics.site import wan as wide
from planner.physics.site.fibre import Demand, SiteFibre
from planner.physics.site.grid import usable_interconnect_mw
from planner.physics.site.wan import Form
from planner.plan.certificate import Violation
from planner.plan.plan_sections import LEAST_CAPITAL, Link, WanDemand, WanPlan


def known_site(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each site is on a node that may hold one, once."""
    sites = c.plan.sites.sites if c.plan.sites else ()
    may = {n.id for n in c.grid.nodes if n.site}
    for s, count in sorted(Counter(s.id for s in sites).items()):
        if s not in may:
            yield broken(f"known_site[{s}]", f"{s!r} is none of the {len(may)} nodes where a site may stand")
        if count > 1:
            yield broken(f"known_site[{s}]", f"{count} entries > 1")
    if c.plan.sites is not None and not sites:
        yield broken("known_site", "0 open sites < 1")


def site_figures(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a site's place, racks, GPUs, power and area are those that the instance gives."""
    h = c.instance.hardware
    for x in c.standing:
        s, rule = x.site, f"site_figures[{x.site.id}]"
        yield from must_be(rule, "balancing_authority", s.balancing_authority, x.node.balancing_authority)
        yield from must_be(rule, "interconnection", s.interconnection, x.authority.interconnection)
        yield from must_be(rule, "latitude", s.latitude, x.node.latitude)
        yield from must_be(rule, "longitude", s.longitude, x.node.longitude)
        yield from must_equal(rule, f"racks of {s.modules:,} modules", s.racks, s.modules * h.racks_per_module)
        yield from must_equal(rule, "gpus", s.gpus, s.racks * c.gpus_per_rack)
        yield from must_equal(rule, "it_mw", s.it_mw, c.it_mw(s.id, s.racks), " MW")
        yield from must_equal(rule, "facility_mw", s.facility_mw, c.load_mw(s.id, s.racks), " MW")
        yield from must_equal(rule, "cooling_m2", s.cooling_m2, c.cooling_m2(s.id, s.racks), " m²")
        usable = usable_interconnect_mw(c.grid, x.node, c.built, c.steps.get(x.node.id, 0))
        expected = usable if c.grid.rules.interconnect.enabled else None
        yield from must_equal(rule, "interconnect_mw", s.interconnect_mw, expected, " MW")


def facility_power(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the draw of all sites is within the limit."""
    limit = c.instance.limits.facility_power_mw
    if limit is not None:
        drawn = sum(c.load_mw(site, racks) for site, racks in c.racks_by_site.items())
        limit += c.excess("facility_power")
        yield from at_most("facility_power", drawn, limit, "MW drawn by all sites", "MW limit")


def new_circuits(c: PlanPhysics) -> Iterator[Violation]:
    """Check that circuits are built only where they can be, and no more than can."""
    limit = {x.id: x.max_circuits for x in c.grid.new_lines}
    for n in c.plan.sites.new_lines if c.plan.sites else ():
        rule, circuits = f"new_circuits[{n.line}]", f"{n.circuits} circuits"
        if n.line not in limit:
            yield broken(rule, f"{circuits} in none of the {len(limit)} corridors that can be built")
        elif n.circuits < 1 or c.built[n.line] > limit[n.line]:
            yield broken(rule, f"{circuits} (in all {c.built[n.line]}) are not from 1 to {limit[n.line]}")


def upgrades(c: PlanPhysics) -> Iterator[Violation]:
    """Check that only interconnect that can be bought is bought, and no more than can."""
    limit = {n.id: n.upgrade.max_steps for n in c.grid.nodes if n.upgrade}
    for u in c.plan.sites.upgrades if c.plan.sites else ():
        rule, steps = f"upgrades[{u.node}]", f"{u.steps} steps"
        if u.node not in limit:
            yield broken(rule, f"{steps} at a node that is none of the {len(limit)} that can be upgraded")
        elif u.steps < 1 or c.steps[u.node] > limit[u.node]:
            yield broken(rule, f"{steps} (in all {c.steps[u.node]}) are not from 1 to {limit[u.node]}")


def ready(c: PlanPhysics) -> Iterator[Violation]:
    """Check that nothing in use comes too late."""
    limit = c.grid.rules.ready_within_months
    if limit is None:
        return
    lead = {line.id: line.lead_months for line in c.grid.new_lines}
    step = {n.id: n.upgrade.lead_months for n in c.grid.nodes if n.upgrade}
    for x in c.standing:
        yield from at_most(f"ready[{x.site.id}]", x.node.ready_months, limit, "months to the site", "months at most")
    for line in c.built:
        yield from at_most(f"ready[{line}]", lead[line], limit, "months to the line", "months at most")
    for node in c.steps:
        yield from at_most(f"ready[{node}]", step[node], limit, "months to the upgrade", "months at most")


def interconnect(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a share of a site's load fits on the circuits that remain under the rule's reading."""
    rule = c.grid.rules.interconnect
    fed = c.plan.sites.generation_mw if c.plan.sites else {}
    for x in c.standing if rule.enabled else ():
        usable = usable_interconnect_mw(c.grid, x.node, c.built, c.steps.get(x.node.id, 0)) or 0.0
        draw = c.load_mw(x.site.id, x.site.racks)
        if rule.reading == "import_share":
            own = x.node.generation_mw if c.grid.rules.grid_model == "none" else fed.get(x.node.id, 0.0)
            draw = max(draw + x.node.load_mw - own, 0.0)
        name, left = f"interconnect[{x.site.id}]", f"MW, {rule.share:.0%} of the site's draw"
        yield from at_most(name, rule.share * draw, usable + c.excess(name), left, f"MW usable ({rule.reading})")


def area(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the cooling of a site fits on its land."""
    for x in c.standing:
        need = c.cooling_m2(x.site.id, x.site.racks)
        if need is not None and x.node.area_m2 is not None:
            name = f"area[{x.site.id}]"
            yield from at_most(name, need, x.node.area_m2 + c.excess(name), "m² of cooling", "m² of land")


def site_count(c: PlanPhysics) -> Iterator[Violation]:
    """Check that no more sites are open than the rules allow."""
    if c.grid.rules.max_sites is not None:
        limit = c.grid.rules.max_sites + round(c.excess("site_count"))
        yield from at_most("site_count", len(c.standing), limit, "open sites", "sites allowed")


def min_site(c: PlanPhysics) -> Iterator[Violation]:
    """Check that no site is smaller than the minimum size."""
    minimum = c.grid.rules.min_site_modules
    for x in c.standing:
        yield from at_most(f"min_site[{x.site.id}]", minimum, x.site.modules, "modules at least", "modules at the site")


def share_balance(c: PlanPhysics) -> Iterator[Violation]:
    """Check that no site is larger than a multiple of the smallest."""
    rule = c.grid.rules.share_balance
    if rule.enabled and c.standing:
        smallest = min(x.site.racks for x in c.standing)
        limit, right = rule.max_ratio * smallest, f"racks, {rule.max_ratio:g} times {smallest:,}"
        for x in c.standing:
            yield from at_most(f"share_balance[{x.site.id}]", float(x.site.racks), limit, "racks", right)


def fault_split(c: PlanPhysics) -> Iterator[Violation]:
    """Check that sites are in enough interconnections, with no more than a share of all racks in any one."""
    rule = c.grid.rules.fault_split
    if not rule.enabled or not c.standing:
        return
    racks: Counter[str] = Counter()
    for x in c.standing:
        racks[x.authority.interconnection] += x.site.racks
    minimum, right = rule.min_interconnections, "interconnections with a site"
    yield from at_most("fault_split", minimum, len(racks), "interconnections at least", right)
    total = sum(racks.values())
    limit, right = rule.max_share * total, f"racks, {rule.max_share:.0%} of {total:,}"
    for i, count in sorted(racks.items()):
        yield from at_most(f"fault_split[{i}]", float(count), limit, "racks", right)


def rtt(c: PlanPhysics) -> Iterator[Violation]:
    """Check that no two sites are farther apart than the longest round trip."""
    limit = c.grid.rules.max_rtt_ms
    for a, b in combinations(c.standing, 2) if limit is not None else ():
        rule, ms = f"rtt[{a.site.id}, {b.site.id}]", wan.rtt_ms(c.wan, route_km(c, a, b))
        yield from at_most(rule, ms, limit or 0.0, "ms round trip", "ms limit")


def route_km(c: PlanPhysics, a: PoweredSite, b: PoweredSite) -> float:
    """Return the length of the fibre route between two sites."""
    return c.route_km(a.site.id, b.site.id)


def links(c: PlanPhysics) -> Iterator[tuple[str, Link, PoweredSite, PoweredSite]]:
    """Yield the links between two known sites."""
    for k in c.plan.sites.links if c.plan.sites else ():
        a, b = c.site_named(k.a), c.site_named(k.b)
        if a is not None and b is not None and k.a != k.b:
            yield f"{k.a}, {k.b}", k, a, b


def linked(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every two open sites are joined by one link, and nothing else is."""
    if c.plan.sites is None:
        return
    pairs = {frozenset(p) for p in combinations((x.site.id for x in c.standing), 2)}
    links = Counter(frozenset((k.a, k.b)) for k in c.plan.sites.links)
    for pair in sorted(pairs | set(links), key=sorted):
        if links[pair] != int(pair in pairs):
            yield broken(f"linked[{', '.join(sorted(pair))}]", f"{links[pair]} links, {int(pair in pairs)} expected")


def link_figures(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a link's route, round trip, capacity, fibre and price follow from its ends and wavelengths."""
    for name, k, a, b in links(c):
        rule, km = f"link_figures[{name}]", route_km(c, a, b)
        yield from must_equal(rule, "route_km", k.route_km, km, " km")
        yield from must_equal(rule, "rtt_ms", k.rtt_ms, wan.rtt_ms(c.wan, km), " ms")
        yield from must_equal(rule, "capacity_gbps", k.capacity_gbps, k.wavelengths * c.wan.wavelength_gbps, " Gbps")
        yield from must_equal(rule, "fibre_pairs", k.fibre_pairs, wan.fibre_pairs(c.wan, k.wavelengths))
        yield from must_equal(rule, "usd_per_year", k.usd_per_year, c.link_usd_per_year(k), " USD")


def wan_capacity(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each link has the wavelengths for its required rate, within the fibre that can be leased."""
    for name, k, _, _ in links(c):
        rule, limit = f"wan_capacity[{name}]", c.wan.max_wavelengths_per_pair * c.wan.max_fibre_pairs
        gbps, right = k.wavelengths * c.wan.wavelength_gbps, f"Gbps of {k.wavelengths} wavelengths"
        yield from at_most(rule, k.required_gbps, gbps, "Gbps required", right)
        yield from at_most(rule, k.wavelengths, limit, "wavelengths", "wavelengths on all fibre that can be leased")
        yield from at_most(rule, 0, k.wavelengths, "wavelengths at least", "wavelengths")


def wan_need(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each link requires the rate at which the layout counts on exchanging gradients, with headroom."""
    layout = c.plan.layout
    if layout is None or len(c.replicas) < 2:
        return
    gbps = layout.assumptions.wan_gbps
    if gbps is None:
        yield broken("wan_need", f"{len(c.replicas)} sites exchange gradients > 1, and no rate is assumed between them")
        return
    what = f"Gbps: {show(gbps)} Gbps assumed, times {show(c.wan.headroom_factor)}"
    for name, k, _, _ in links(c):
        if {k.a, k.b} <= set(c.replicas):
            yield from at_most(
                f"wan_need[{name}]", gbps * c.wan.headroom_factor, k.required_gbps, what, "Gbps required"
            )


def pins(c: PlanPhysics) -> Iterator[Violation]:
    """Check the racks in all, the racks of single sites and the number of open sites against the instance's pins."""
    if c.plan.sites is None:
        return
    planned, pinned = c.racks_by_site, c.instance.pins
    if "sites.racks" in pinned:
        what = "racks at all sites against the pin"
        yield from must_equal("pins[sites.racks]", what, sum(planned.values()), pinned["sites.racks"])
    if "sites.max_sites" in pinned:
        limit = pinned["sites.max_sites"]
        yield from at_most("pins[sites.max_sites]", len(planned), limit, "open sites", "sites pinned")
    for path, racks in sorted(pinned.items()):
        if path.startswith("sites.racks."):
            stated = planned.get(path.removeprefix("sites.racks."), 0)
            yield from must_equal(f"pins[{path}]", "racks against the pin", stated, racks)


def demand(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every site has racks: a positive number of them."""
    for site, racks in sorted(c.racks_by_site.items()):
        if racks < 1:
            yield broken(f"demand[{site}]", f"{racks:,} racks < 1")


RULES: tuple[Rule, ...] = (
    known_site, site_figures, demand, facility_power, *power_flow.YEAR_RULES, new_circuits, upgrades, ready,
    interconnect, area, site_count, min_site, share_balance, fault_split, rtt, linked, link_figures,
    wan_capacity, wan_need, pins,
)  # fmt: skip


ROUNDING_GBPS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """The demands on the wide area and its fibre, recomputed from sites and layout."""

    fibre: SiteFibre
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
    net = fibre.fibre_of(c.wan, fibre.places_of(c.wan, places))
    graph = fibre.graph(net)

    def rtt(a: str, b: str) -> float:
        """Return the milliseconds of the shortest route between two sites, infinity where none joins them."""
        routes = fibre.routes(net, graph, min(a, b), max(a, b), 1)
        return net.rtt_ms(routes[0]) if routes else math.inf

    a, size = layout.assumptions, m.gradient_bytes_per_stage
    window = gradient_exchange.assumed_window_seconds(
        c.wan, size, len(c.replicas), m.wan_window_seconds, a.wan_gbps, a.wan_rtt_ms
    )
    offered = gradient_exchange.forms(groups, size, rtt)
    form = fibre.choose_form(c.wan, offered, window, rtt)
    demands = (*fibre.sync_demands(c.wan, form, window, rtt), *fibre.traffic_demands(c.wan, sorted(places), net.node))
    return Requirements(
        fibre=net,
        window_seconds=window,
        forms=offered,
        form=form,
        demands={(d.name, d.a, d.b): d for d in demands},
        rtt_ms=rtt,
    )


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


def _astray(net: SiteFibre, edges: tuple[str, ...], a: str, b: str) -> str | None:
    """Walk a route, and say where it breaks off; None where it arrives."""
    at = a
    for name in edges:
        e = net.edges.get(name)
        if e is None or at not in (e.a, e.b):
            return f"{name!r} does not go on from {at!r}"
        at = e.b if at == e.a else e.a
    return None if at == b else f"it ends at {at!r} and not at {b!r}"


def _backed(
    wan: Wan, net: SiteFibre, rule: str, edges: tuple[str, ...], backup: tuple[str, ...] | None
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
    """Compute the design's objective: capital or yearly cost in USD, or wavelengths times route-km without prices."""
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


WAN_RULES: tuple[Rule, ...] = (designed, replay)
