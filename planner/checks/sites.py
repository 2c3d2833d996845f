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
from planner.physics.site import wan as wide
from planner.physics.site.fibre import Demand, SiteFibre
from planner.physics.site.grid import usable_interconnect_mw
from planner.physics.site.wan import Form
from planner.plan.certificate import Violation
from planner.plan.plan_sections import LEAST_CAPITAL, Link, WanDemand, WanPlan


def known_site(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that each site is on a node that may hold one, once."""
    sites = physics.plan.sites.sites if physics.plan.sites else ()
    may = {node.id for node in physics.grid.nodes if node.site}
    for name, count in sorted(Counter(site.id for site in sites).items()):
        if name not in may:
            yield broken(f"known_site[{name}]", f"{name!r} is none of the {len(may)} nodes where a site may stand")
        if count > 1:
            yield broken(f"known_site[{name}]", f"{count} entries > 1")
    if physics.plan.sites is not None and not sites:
        yield broken("known_site", "0 open sites < 1")


def site_figures(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that a site's place, racks, GPUs, power and area are those that the instance gives."""
    hardware = physics.instance.hardware
    for place in physics.standing:
        site, rule = place.site, f"site_figures[{place.site.id}]"
        yield from must_be(rule, "balancing_authority", site.balancing_authority, place.node.balancing_authority)
        yield from must_be(rule, "interconnection", site.interconnection, place.authority.interconnection)
        yield from must_be(rule, "latitude", site.latitude, place.node.latitude)
        yield from must_be(rule, "longitude", site.longitude, place.node.longitude)
        yield from must_equal(
            rule, f"racks of {site.modules:,} modules", site.racks, site.modules * hardware.racks_per_module
        )
        yield from must_equal(rule, "gpus", site.gpus, site.racks * physics.gpus_per_rack)
        yield from must_equal(rule, "it_mw", site.it_mw, physics.it_mw(site.id, site.racks), " MW")
        yield from must_equal(rule, "facility_mw", site.facility_mw, physics.load_mw(site.id, site.racks), " MW")
        yield from must_equal(rule, "cooling_m2", site.cooling_m2, physics.cooling_m2(site.id, site.racks), " m²")
        usable = usable_interconnect_mw(physics.grid, place.node, physics.built, physics.steps.get(place.node.id, 0))
        expected = usable if physics.grid.rules.interconnect.enabled else None
        yield from must_equal(rule, "interconnect_mw", site.interconnect_mw, expected, " MW")


def facility_power(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the draw of all sites is within the limit."""
    limit = physics.instance.limits.facility_power_mw
    if limit is not None:
        drawn = sum(physics.load_mw(site, racks) for site, racks in physics.racks_by_site.items())
        limit += physics.excess("facility_power")
        yield from at_most("facility_power", drawn, limit, "MW drawn by all sites", "MW limit")


def new_circuits(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that circuits are built only where they can be, and no more than can."""
    limit = {line.id: line.max_circuits for line in physics.grid.new_lines}
    for new_line in physics.plan.sites.new_lines if physics.plan.sites else ():
        rule, circuits = f"new_circuits[{new_line.line}]", f"{new_line.circuits} circuits"
        if new_line.line not in limit:
            yield broken(rule, f"{circuits} in none of the {len(limit)} corridors that can be built")
        elif new_line.circuits < 1 or physics.built[new_line.line] > limit[new_line.line]:
            yield broken(
                rule, f"{circuits} (in all {physics.built[new_line.line]}) are not from 1 to {limit[new_line.line]}"
            )


def upgrades(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that only interconnect that can be bought is bought, and no more than can."""
    limit = {node.id: node.upgrade.max_steps for node in physics.grid.nodes if node.upgrade}
    for upgrade in physics.plan.sites.upgrades if physics.plan.sites else ():
        rule, steps = f"upgrades[{upgrade.node}]", f"{upgrade.steps} steps"
        if upgrade.node not in limit:
            yield broken(rule, f"{steps} at a node that is none of the {len(limit)} that can be upgraded")
        elif upgrade.steps < 1 or physics.steps[upgrade.node] > limit[upgrade.node]:
            yield broken(
                rule, f"{steps} (in all {physics.steps[upgrade.node]}) are not from 1 to {limit[upgrade.node]}"
            )


def ready(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that nothing in use comes too late."""
    limit = physics.grid.rules.ready_within_months
    if limit is None:
        return
    lead = {line.id: line.lead_months for line in physics.grid.new_lines}
    step = {node.id: node.upgrade.lead_months for node in physics.grid.nodes if node.upgrade}
    for place in physics.standing:
        yield from at_most(
            f"ready[{place.site.id}]", place.node.ready_months, limit, "months to the site", "months at most"
        )
    for line in physics.built:
        yield from at_most(f"ready[{line}]", lead[line], limit, "months to the line", "months at most")
    for node in physics.steps:
        yield from at_most(f"ready[{node}]", step[node], limit, "months to the upgrade", "months at most")


def interconnect(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that a share of a site's load fits on the circuits that remain under the rule's reading."""
    rule = physics.grid.rules.interconnect
    fed = physics.plan.sites.generation_mw if physics.plan.sites else {}
    for place in physics.standing if rule.enabled else ():
        usable = (
            usable_interconnect_mw(physics.grid, place.node, physics.built, physics.steps.get(place.node.id, 0)) or 0.0
        )
        draw = physics.load_mw(place.site.id, place.site.racks)
        if rule.reading == "import_share":
            own = place.node.generation_mw if physics.grid.rules.grid_model == "none" else fed.get(place.node.id, 0.0)
            draw = max(draw + place.node.load_mw - own, 0.0)
        name, left = f"interconnect[{place.site.id}]", f"MW, {rule.share:.0%} of the site's draw"
        yield from at_most(name, rule.share * draw, usable + physics.excess(name), left, f"MW usable ({rule.reading})")


def area(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the cooling of a site fits on its land."""
    for place in physics.standing:
        need = physics.cooling_m2(place.site.id, place.site.racks)
        if need is not None and place.node.area_m2 is not None:
            name = f"area[{place.site.id}]"
            yield from at_most(name, need, place.node.area_m2 + physics.excess(name), "m² of cooling", "m² of land")


def site_count(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that no more sites are open than the rules allow."""
    if physics.grid.rules.max_sites is not None:
        limit = physics.grid.rules.max_sites + round(physics.excess("site_count"))
        yield from at_most("site_count", len(physics.standing), limit, "open sites", "sites allowed")


def min_site(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that no site is smaller than the minimum size."""
    minimum = physics.grid.rules.min_site_modules
    for place in physics.standing:
        yield from at_most(
            f"min_site[{place.site.id}]", minimum, place.site.modules, "modules at least", "modules at the site"
        )


def share_balance(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that no site is larger than a multiple of the smallest."""
    rule = physics.grid.rules.share_balance
    if rule.enabled and physics.standing:
        smallest = min(place.site.racks for place in physics.standing)
        limit, right = rule.max_ratio * smallest, f"racks, {rule.max_ratio:g} times {smallest:,}"
        for place in physics.standing:
            yield from at_most(f"share_balance[{place.site.id}]", float(place.site.racks), limit, "racks", right)


def fault_split(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that sites are in enough interconnections, with no more than a share of all racks in any one."""
    rule = physics.grid.rules.fault_split
    if not rule.enabled or not physics.standing:
        return
    racks: Counter[str] = Counter()
    for place in physics.standing:
        racks[place.authority.interconnection] += place.site.racks
    minimum, right = rule.min_interconnections, "interconnections with a site"
    yield from at_most("fault_split", minimum, len(racks), "interconnections at least", right)
    total = sum(racks.values())
    limit, right = rule.max_share * total, f"racks, {rule.max_share:.0%} of {total:,}"
    for name, count in sorted(racks.items()):
        yield from at_most(f"fault_split[{name}]", float(count), limit, "racks", right)


def rtt(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that no two sites are farther apart than the longest round trip."""
    limit = physics.grid.rules.max_rtt_ms
    for one, other in combinations(physics.standing, 2) if limit is not None else ():
        rule, ms = f"rtt[{one.site.id}, {other.site.id}]", wan.rtt_ms(physics.wan, route_km(physics, one, other))
        yield from at_most(rule, ms, limit or 0.0, "ms round trip", "ms limit")


def route_km(physics: PlanPhysics, one: PoweredSite, other: PoweredSite) -> float:
    """Return the length of the fibre route between two sites."""
    return physics.route_km(one.site.id, other.site.id)


def links(physics: PlanPhysics) -> Iterator[tuple[str, Link, PoweredSite, PoweredSite]]:
    """Yield the links between two known sites."""
    for link in physics.plan.sites.links if physics.plan.sites else ():
        one, other = physics.site_named(link.a), physics.site_named(link.b)
        if one is not None and other is not None and link.a != link.b:
            yield f"{link.a}, {link.b}", link, one, other


def linked(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that every two open sites are joined by one link, and nothing else is."""
    if physics.plan.sites is None:
        return
    pairs = {frozenset(pair) for pair in combinations((place.site.id for place in physics.standing), 2)}
    links = Counter(frozenset((link.a, link.b)) for link in physics.plan.sites.links)
    for pair in sorted(pairs | set(links), key=sorted):
        if links[pair] != int(pair in pairs):
            yield broken(f"linked[{', '.join(sorted(pair))}]", f"{links[pair]} links, {int(pair in pairs)} expected")


def link_figures(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that a link's route, round trip, capacity, fibre and price follow from its ends and wavelengths."""
    for name, link, one, other in links(physics):
        rule, km = f"link_figures[{name}]", route_km(physics, one, other)
        yield from must_equal(rule, "route_km", link.route_km, km, " km")
        yield from must_equal(rule, "rtt_ms", link.rtt_ms, wan.rtt_ms(physics.wan, km), " ms")
        yield from must_equal(
            rule, "capacity_gbps", link.capacity_gbps, link.wavelengths * physics.wan.wavelength_gbps, " Gbps"
        )
        yield from must_equal(rule, "fibre_pairs", link.fibre_pairs, wan.fibre_pairs(physics.wan, link.wavelengths))
        yield from must_equal(rule, "usd_per_year", link.usd_per_year, physics.link_usd_per_year(link), " USD")


def wan_capacity(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that each link has the wavelengths for its required rate, within the fibre that can be leased."""
    for name, link, _, _ in links(physics):
        rule, limit = f"wan_capacity[{name}]", physics.wan.max_wavelengths_per_pair * physics.wan.max_fibre_pairs
        gbps, right = link.wavelengths * physics.wan.wavelength_gbps, f"Gbps of {link.wavelengths} wavelengths"
        yield from at_most(rule, link.required_gbps, gbps, "Gbps required", right)
        yield from at_most(rule, link.wavelengths, limit, "wavelengths", "wavelengths on all fibre that can be leased")
        yield from at_most(rule, 0, link.wavelengths, "wavelengths at least", "wavelengths")


def wan_need(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that each link requires the rate at which the layout counts on exchanging gradients, with headroom."""
    layout = physics.plan.layout
    if layout is None or len(physics.replicas) < 2:
        return
    gbps = layout.assumptions.wan_gbps
    if gbps is None:
        yield broken(
            "wan_need", f"{len(physics.replicas)} sites exchange gradients > 1, and no rate is assumed between them"
        )
        return
    what = f"Gbps: {show(gbps)} Gbps assumed, times {show(physics.wan.headroom_factor)}"
    for name, link, _, _ in links(physics):
        if {link.a, link.b} <= set(physics.replicas):
            yield from at_most(
                f"wan_need[{name}]", gbps * physics.wan.headroom_factor, link.required_gbps, what, "Gbps required"
            )


def pins(physics: PlanPhysics) -> Iterator[Violation]:
    """Check the racks in all, the racks of single sites and the number of open sites against the instance's pins."""
    if physics.plan.sites is None:
        return
    planned, pinned = physics.racks_by_site, physics.instance.pins
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


def demand(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that every site has racks: a positive number of them."""
    for site, racks in sorted(physics.racks_by_site.items()):
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
    rtt_ms: wide.Rtt


def requirements(physics: PlanPhysics) -> Requirements | None:
    """Return the requirements; None where no design is needed, or where sites or layout are too broken for it."""
    metrics, layout = physics.metrics, physics.plan.layout
    if not physics.wan.designed or len(physics.standing) < 2 or metrics is None or layout is None:
        return None
    places = {place.site.id: (place.node.latitude, place.node.longitude) for place in physics.standing}
    groups: dict[str, list[str]] = {}
    for place in physics.standing:
        if place.site.id in physics.replicas:
            groups.setdefault(place.authority.interconnection, []).append(place.site.id)
    net = fibre.fibre_of(physics.wan, fibre.places_of(physics.wan, places))
    graph = fibre.graph(net)

    def rtt(start: str, end: str) -> float:
        """Return the milliseconds of the shortest route between two sites, infinity where none joins them."""
        routes = fibre.routes(net, graph, min(start, end), max(start, end), 1)
        return net.rtt_ms(routes[0]) if routes else math.inf

    assumptions, size = layout.assumptions, metrics.gradient_bytes_per_stage
    window = wide.assumed_window_seconds(
        physics.wan,
        size,
        len(physics.replicas),
        metrics.wan_window_seconds,
        assumptions.wan_gbps,
        assumptions.wan_rtt_ms,
    )
    offered = wide.forms(groups, size, rtt)
    form = fibre.choose_form(physics.wan, offered, window, rtt)
    demands = (
        *fibre.sync_demands(physics.wan, form, window, rtt),
        *fibre.traffic_demands(physics.wan, sorted(places), net.node),
    )
    return Requirements(
        fibre=net,
        window_seconds=window,
        forms=offered,
        form=form,
        demands={(demand.name, demand.a, demand.b): demand for demand in demands},
        rtt_ms=rtt,
    )


def designed(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the wide area is designed where the instance asks for it and two sites are open, and only there."""
    wanted = physics.wan.designed and physics.instance.wan is not None and len(physics.standing) > 1
    planned = physics.plan.wan is not None
    if wanted != planned:
        expected = f"{int(wanted)} expected with {len(physics.standing)} sites"
        yield broken("designed", f"{int(planned)} designs of the wide area planned, {expected}")
    if physics.plan.wan is not None:
        yield from must_be("designed", "protection", physics.plan.wan.protection, physics.wan.protection or "none")


def fastest_form(physics: PlanPhysics, req: Requirements, design: WanPlan) -> Iterator[Violation]:
    """Check that the exchange takes the form of the lowest rate in the time that the step assumes."""
    yield from must_equal("fastest_form", "window_seconds", design.window_seconds, req.window_seconds, " s")
    yield from must_be("fastest_form", "exchange", design.exchange, req.form.name if req.form else None)
    yield from must_be(
        "fastest_form", "forms", sorted(form.name for form in design.forms), sorted(form.name for form in req.forms)
    )
    need = wide.form_need_gbps(req.form, physics.wan, req.window_seconds, req.rtt_ms) if req.form else math.inf
    for form in req.forms:
        rate = wide.form_need_gbps(form, physics.wan, req.window_seconds, req.rtt_ms)
        took = wide.seconds(form, physics.wan, need, req.rtt_ms) if math.isfinite(need) else None
        for stated in (other for other in design.forms if other.name == form.name):
            yield from must_be(f"fastest_form[{form.name}]", "order", stated.order, form.order)
            finite = rate if math.isfinite(rate) else None
            yield from must_equal(f"fastest_form[{form.name}]", "link_gbps", stated.link_gbps, finite, " Gbps")
            yield from must_equal(f"fastest_form[{form.name}]", "seconds", stated.seconds, took, " s")


def demands(_: PlanPhysics, req: Requirements, design: WanPlan) -> Iterator[Violation]:
    """Check that every demand is stated once, the exchange carried whole, the rest as carried and missing."""
    entries = Counter((demand.name, demand.a, demand.b) for demand in design.demands)
    for key in sorted(set(entries) | set(req.demands)):
        if entries[key] != int(key in req.demands):
            yield broken(_named("demands", *key), f"{entries[key]} entries, {int(key in req.demands)} expected")
    for demand, given in _known(req, design):
        rule = _named("demands", demand.name, demand.a, demand.b)
        share = math.fsum(route.share for route in demand.routes)
        rate = given.gbps(req.rtt_ms(demand.a, demand.b))
        rate = rate if math.isfinite(rate) else given.gbps(0.0)
        yield from must_be(rule, "priority", demand.priority, given.priority)
        yield from must_equal(rule, "requested_gbps", demand.requested_gbps, rate, " Gbps")
        yield from at_most(rule, share, 1.0, "of the demand on its routes", "of it")
        if given.priority == 0:
            yield from must_equal(rule, "share of the exchange that is carried", share, 1.0)
            yield from at_most(rule, len(demand.routes), 1, "routes of one link of the exchange", "allowed")
        errors = demand.admitted_gbps - rate * share, demand.missing_gbps - rate * (1 - share)
        if max(map(abs, errors)) > TOLERANCE * rate:
            stated = f"{show(demand.admitted_gbps)} Gbps carried and {show(demand.missing_gbps)} missing stated"
            yield broken(rule, f"{stated}, {show(share)} of {show(rate)} routed")


def _named(rule: str, name: str, start: str, end: str) -> str:
    return f"{rule}[{name}, {start}, {end}]"


def _known(req: Requirements, design: WanPlan) -> Iterator[tuple[WanDemand, Demand]]:
    for demand in design.demands:
        if (demand.name, demand.a, demand.b) in req.demands:
            yield demand, req.demands[demand.name, demand.a, demand.b]


def routes(physics: PlanPhysics, req: Requirements, design: WanPlan) -> Iterator[Violation]:
    """Check that each route goes from end to end within the longest round trip, and that its backup shares no edge.

    Its length, round trip and rate must be those of its edges.
    """
    for demand, stated in _known(req, design):
        rule = _named("routes", demand.name, demand.a, demand.b)
        for route in demand.routes:
            yield from at_most(rule, 0.0, route.share, "of the demand at least", "on a route")
            for what, edges, rtt, gbps in (
                ("route", route.edges, route.rtt_ms, route.gbps),
                ("backup", route.backup_edges, route.backup_rtt_ms, route.backup_gbps),
            ):
                if edges is None:
                    continue
                fault = _astray(req.fibre, edges, demand.a, demand.b)
                if fault:
                    yield broken(rule, f"{what}: {fault}")
                    continue
                found = req.fibre.rtt_ms(edges)
                yield from must_equal(rule, f"{what}'s rtt_ms", rtt, found, " ms")
                yield from must_equal(rule, f"{what}'s gbps", gbps, route.share * stated.gbps(found), " Gbps")
                if stated.priority == 0 and physics.grid.rules.max_rtt_ms is not None:
                    yield from at_most(
                        rule, found, physics.grid.rules.max_rtt_ms, f"ms round trip of the {what}", "ms limit"
                    )
            if not _astray(req.fibre, route.edges, demand.a, demand.b):
                yield from must_equal(rule, "route_km", route.route_km, req.fibre.km(route.edges), " km")
            yield from _backed(physics.wan, req.fibre, rule, route.edges, route.backup_edges)


def _astray(net: SiteFibre, edges: tuple[str, ...], start: str, end: str) -> str | None:
    """Walk a route, and say where it breaks off; None where it arrives."""
    at = start
    for name in edges:
        edge = net.edges.get(name)
        if edge is None or at not in (edge.a, edge.b):
            return f"{name!r} does not go on from {at!r}"
        at = edge.b if at == edge.a else edge.a
    return None if at == end else f"it ends at {at!r} and not at {end!r}"


def _backed(
    wan: Wan, net: SiteFibre, rule: str, edges: tuple[str, ...], backup: tuple[str, ...] | None
) -> Iterator[Violation]:
    if wan.protection != "one_cut":
        yield from must_be(rule, "backup", backup, None)
        return
    shared = sorted(edge for edge in set(edges) & set(backup or ()) if edge in net.edges and net.edges[edge].cut)
    if backup is None or shared:
        stated = f"{int(backup is not None)} backup routes that share {len(shared)} edges ({', '.join(shared)})"
        yield broken(rule, f"{stated}, 1 that shares 0 expected")


def capacity(physics: PlanPhysics, req: Requirements, design: WanPlan) -> Iterator[Violation]:
    """Check that each edge carries no more than its wavelengths do, whichever one edge is cut."""
    lit_gbps = {edge.id: edge.wavelengths * physics.wan.wavelength_gbps for edge in design.edges}
    survives = physics.wan.protection == "one_cut"
    cuts = sorted(name for name, edge in req.fibre.edges.items() if edge.cut and survives)
    peak: dict[str, float] = {}
    for cut in (None, *cuts):
        state = f"{cut!r} is cut" if cut else "nothing is cut"
        for name, gbps in sorted(_loads(req, design, cut).items()):
            peak[name] = max(peak.get(name, 0.0), gbps)
            limit = lit_gbps.get(name, 0.0)
            if gbps > limit * (1 + TOLERANCE) + ROUNDING_GBPS:
                yield broken(f"capacity[{name}]", f"{show(gbps)} Gbps while {state} > {show(limit)} Gbps lit")
    for edge in design.edges:
        yield from must_equal(f"capacity[{edge.id}]", "peak_gbps", edge.peak_gbps, peak.get(edge.id, 0.0), " Gbps")


def _loads(req: Requirements, design: WanPlan, cut: str | None) -> dict[str, float]:
    loads: dict[str, float] = {}
    for demand, stated in _known(req, design):
        for route in demand.routes:
            edges = (route.backup_edges or ()) if cut in route.edges else route.edges
            known = tuple(name for name in edges if name in req.fibre.edges)
            for name in known:
                loads[name] = loads.get(name, 0.0) + route.share * stated.gbps(req.fibre.rtt_ms(known))
    return loads


def edges(physics: PlanPhysics, req: Requirements, design: WanPlan) -> Iterator[Violation]:
    """Check that wavelengths are only on fibre that exists, within its pairs, at its price."""
    for name, count in sorted(Counter(edge.id for edge in design.edges).items()):
        if count > 1 or name not in req.fibre.edges:
            yield broken(f"edges[{name}]", f"{count} entries for {int(name in req.fibre.edges)} edges of that id")
    for edge in design.edges:
        offered, rule = req.fibre.edges.get(edge.id), f"edges[{edge.id}]"
        if offered is None:
            continue
        limit = offered.max_pairs * physics.wan.max_wavelengths_per_pair
        yield from must_be(rule, "ends", {edge.a, edge.b}, {offered.a, offered.b})
        yield from must_equal(rule, "route_km", edge.route_km, offered.route_km, " km")
        yield from at_most(rule, 1, edge.wavelengths, "wavelengths at least", "wavelengths lit")
        yield from at_most(
            rule, edge.wavelengths, limit, "wavelengths", f"wavelengths on {offered.max_pairs} fibre pairs"
        )
        yield from must_equal(rule, "fibre_pairs", edge.fibre_pairs, wide.fibre_pairs(physics.wan, edge.wavelengths))
        yield from must_equal(
            rule, "capacity_gbps", edge.capacity_gbps, edge.wavelengths * physics.wan.wavelength_gbps, " Gbps"
        )
        usd = fibre.usd_per_year(offered, physics.wan, physics.grid, edge.wavelengths)
        yield from must_equal(rule, "usd_per_year", edge.usd_per_year, usd, " USD")
    yield from must_equal("edges", "capex_usd", design.capex_usd, priced(req, physics.wan, design), " USD")


def priced(req: Requirements, wan: Wan, design: WanPlan) -> float:
    """Return the price of the fibre and the wavelengths of a design."""
    return math.fsum(
        fibre.capex_usd(req.fibre.edges[edge.id], wan, edge.wavelengths)
        for edge in design.edges
        if edge.id in req.fibre.edges
    )


def repriced(physics: PlanPhysics) -> WanPlan | None:
    """Return the design with the price that its wavelengths give it."""
    req, design = requirements(physics), physics.plan.wan
    return (
        design
        if req is None or design is None
        else design.model_copy(update={"capex_usd": priced(req, physics.wan, design)})
    )


def objective(physics: PlanPhysics) -> float | None:
    """Compute the design's objective: capital or yearly cost in USD, or wavelengths times route-km without prices."""
    req, design = requirements(physics), physics.plan.wan
    if req is None or design is None:
        return None
    known = [(req.fibre.edges[edge.id], edge.wavelengths) for edge in design.edges if edge.id in req.fibre.edges]
    if any(edge.pair_usd or edge.wavelength_usd for edge in req.fibre.edges.values()):
        if design.certificate.minimizes == LEAST_CAPITAL:
            return priced(req, physics.wan, design)
        return sum(fibre.usd_per_year(edge, physics.wan, physics.grid, wavelengths) for edge, wavelengths in known)
    return sum(edge.route_km * wavelengths for edge, wavelengths in known)


def replay(physics: PlanPhysics) -> Iterator[Violation]:
    """Check a design whose requirements can be recomputed."""
    req, design = requirements(physics), physics.plan.wan
    if req is not None and design is not None:
        for rule in (fastest_form, demands, routes, capacity, edges):
            yield from rule(physics, req, design)


WAN_RULES: tuple[Rule, ...] = (designed, replay)
