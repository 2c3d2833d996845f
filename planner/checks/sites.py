"""Rules of the site split and of the wide area: grid, land and links; every route walked and every edge priced."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

from planner.checks import power_flow
from planner.checks.rule import TOLERANCE, Violations, at_most, broken, figures, must_be, must_equal, needs, once, show
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import cost, site_power, wan, wan_exchange
from planner.physics.site.grid import usable_interconnect_mw
from planner.physics.site.wan import Demand, Edge, SiteFibre
from planner.plan.plan_sections import LayoutMetrics, LayoutPlan, Link, SitesPlan, WanDemand, WanPlan

WATT_MW = 1e-6  # to which generation is written
ROUNDING_GBPS = 1e-6


@needs("sites")
def known_site(physics: PlanPhysics, plan: SitesPlan) -> Violations:
    """Check that each site of a plan is on a grid node that may hold one, and on it once."""
    may = {node.id for node in physics.grid.nodes if node.site}
    for name, count in sorted(Counter(site.id for site in plan.sites).items()):
        if count > int(name in may):
            yield broken(f"known_site[{name}]", f"{count} sites; one at each of {len(may)} nodes that may hold one")
    if not plan.sites:
        yield broken("known_site", "0 open sites < 1")


def site_figures(physics: PlanPhysics) -> Violations:
    """Check that a site's place, racks, GPUs, power and area are those that the instance gives."""
    for place in physics.standing:
        site, node, hardware = place.site, place.node, physics.instance.hardware
        rule, drawn = f"site_figures[{site.id}]", (hardware, site.racks, physics.fabric_mw(site.id))
        usable = usable_interconnect_mw(physics.grid, node, physics.built, physics.steps.get(node.id, 0))
        for name in ("balancing_authority", "latitude", "longitude"):
            yield from must_be(rule, name, getattr(site, name), getattr(node, name))
        powers = ("it_mw", "facility_mw", "cooling_m2")
        found: dict[str, Any] = {name: getattr(site_power, name)(*drawn) for name in powers}
        found |= {"racks": site.modules * hardware.racks_per_module, "gpus": site.racks * physics.gpus_per_rack}
        found["interconnection"] = place.authority.interconnection
        found["interconnect_mw"] = usable if physics.grid.rules.interconnect.enabled else None
        yield from figures(rule, site, found)


@needs("sites")
def bought(physics: PlanPhysics, plan: SitesPlan) -> Violations:
    """Check that circuits are built and interconnect is bought only where they can be, and no more than can."""
    lines = {line.id: line.max_circuits for line in physics.grid.new_lines}
    nodes = {node.id: node.upgrade.max_steps for node in physics.grid.nodes if node.upgrade}
    rows = [("new_circuits", own.line, own.circuits, "circuits", physics.built, lines) for own in plan.new_lines]
    rows += [("upgrades", own.node, own.steps, "steps", physics.steps, nodes) for own in plan.upgrades]
    for rule, name, count, what, in_all, limits in rows:
        if name not in in_all or name not in limits:
            yield broken(f"{rule}[{name}]", f"{count} {what} where none can be had")
        elif count < 1 or in_all[name] > limits[name]:
            yield broken(f"{rule}[{name}]", f"{count} {what} (in all {in_all[name]}) are not from 1 to {limits[name]}")


def waits(physics: PlanPhysics) -> Iterator[tuple[str, str, float]]:
    """Yield (kind, name, months until ready) of each site, new line and upgrade that the checked plan uses."""
    yield from (("site", place.site.id, place.node.ready_months) for place in physics.standing)
    lines = (line for line in physics.grid.new_lines if line.id in physics.built)
    yield from (("line", line.id, line.lead_months) for line in lines)
    nodes = (node for node in physics.grid.nodes if node.id in physics.steps)
    yield from (("upgrade", node.id, node.upgrade.lead_months) for node in nodes if node.upgrade)


def each_site(physics: PlanPhysics) -> Violations:
    """Check each site's land, circuits by the rule's reading, least modules, and balance with the smallest site."""
    rules, rule = physics.grid.rules, physics.grid.rules.interconnect
    fed = physics.plan.sites.generation_mw if physics.plan.sites else {}
    smallest = min((place.site.racks for place in physics.standing), default=0)
    for site, node in ((place.site, place.node) for place in physics.standing):
        draw, usable = physics.load_mw(site.id, site.racks), None
        if rule.reading == "import_share":
            own = node.generation_mw if rules.grid_model == "none" else fed.get(node.id, 0.0)
            draw = max(draw + node.load_mw - own - WATT_MW, 0.0)
        if rule.enabled:
            usable = usable_interconnect_mw(physics.grid, node, physics.built, physics.steps.get(node.id, 0)) or 0.0
        cooled = site_power.cooling_m2(physics.instance.hardware, site.racks, physics.fabric_mw(site.id))
        ratio = rules.share_balance.max_ratio
        most, times = ratio * smallest if rules.share_balance.enabled else None, f"racks, {ratio:g} times {smallest:,}"
        share, reading = f"MW, {rule.share:.0%} of the site's draw", f"MW usable ({rule.reading})"
        for name, left, right, left_is, right_is in (
            ("interconnect", rule.share * draw, usable, share, reading),
            ("area", cooled, node.area_m2, "m² of cooling", "m² of land"),
            ("min_site", rules.min_site_modules, site.modules, "modules at least", "modules at the site"),
            ("share_balance", float(site.racks), most, "racks", times),
        ):
            yield from power_flow.within(physics, f"{name}[{site.id}]", left, right, left_is, right_is, "")


def all_sites(physics: PlanPhysics) -> Violations:
    """Check a plan's sites together: draw, number, interconnections and their shares, distances, racks, lead times."""
    rules, split, racks = physics.grid.rules, physics.grid.rules.fault_split, Counter[str]()
    for place in physics.standing:
        racks[place.authority.interconnection] += place.site.racks
    drawn = sum(physics.load_mw(site, count) for site, count in physics.racks_by_site.items())
    limit, share = physics.instance.limits.facility_power_mw, f"racks, {split.max_share:.0%} of {racks.total():,}"
    rows: list[tuple[str, float, float | None, str, str]] = [
        ("facility_power", drawn, limit, "MW drawn by all sites", "MW limit"),
        ("site_count", len(physics.standing), rules.max_sites, "open sites", "sites allowed"),
    ]
    if split.enabled and racks:
        sides = "interconnections at least", "interconnections with a site"
        rows.append(("fault_split", split.min_interconnections, len(racks), *sides))
        most = split.max_share * racks.total()
        rows += [(f"fault_split[{name}]", float(count), most, "racks", share) for name, count in sorted(racks.items())]
    for one, other in combinations((place.site.id for place in physics.standing), 2):
        ms = wan.rtt_ms(physics.wan, physics.route_km(one, other))
        rows.append((f"rtt[{one}, {other}]", ms, rules.max_rtt_ms, "ms round trip", "ms limit"))
    for kind, name, months in waits(physics):
        rows.append((f"ready[{name}]", months, rules.ready_within_months, f"months to the {kind}", "months at most"))
    for site, count in sorted(physics.racks_by_site.items()):
        rows.append((f"demand[{site}]", 1, count, "rack at least", "racks"))
    for row in rows:
        yield from power_flow.within(physics, *row, "")


def joins_two_sites(physics: PlanPhysics, link: Link) -> bool:
    """Return whether a link of a checked plan is between two of its sites, both known."""
    return link.a != link.b and {link.a, link.b} <= physics.places.keys()


@needs("sites")
def link_figures(physics: PlanPhysics, plan: SitesPlan) -> Violations:
    """Check that one link joins every two open sites, its figures, and that it fits fibre and the assumed exchange."""
    known, limit = sorted(physics.places), physics.wan.max_wavelengths_per_pair * physics.wan.max_fibre_pairs
    yield from once("linked", "links", (tuple(sorted({link.a, link.b})) for link in plan.links), combinations(known, 2))
    layout, training, headroom = physics.plan.layout, set(physics.replicas), physics.wan.headroom_factor
    assumed = layout.assumptions.wan_gbps if layout is not None else None
    if layout is not None and len(training) > 1 and assumed is None:
        yield broken("wan_need", f"{len(training)} sites exchange gradients > 1, and no rate is assumed between them")
    for link in (link for link in plan.links if joins_two_sites(physics, link)):
        km, gbps = physics.route_km(link.a, link.b), link.wavelengths * physics.wan.wavelength_gbps
        prices = wan.link_prices(physics.wan, {name: physics.places[name] for name in (link.a, link.b)})
        name = f"{link.a}, {link.b}"
        found = {"route_km": km, "rtt_ms": wan.rtt_ms(physics.wan, km), "capacity_gbps": gbps}
        found["fibre_pairs"] = wan.fibre_pairs(physics.wan, link.wavelengths)
        found["usd_per_year"] = cost.link_usd_per_year(physics.grid, physics.wan, prices, link.wavelengths)
        yield from figures(f"link_figures[{name}]", link, found)
        rule, lit = f"wan_capacity[{name}]", f"Gbps of {link.wavelengths} wavelengths"
        yield from at_most(rule, link.required_gbps, gbps, "Gbps required", lit)
        yield from at_most(rule, link.wavelengths, limit, "wavelengths", "wavelengths on all fibre that can be leased")
        yield from at_most(rule, 0, link.wavelengths, "wavelengths at least", "wavelengths")
        if assumed is not None and {link.a, link.b} <= training:
            what = f"Gbps: {show(assumed)} Gbps assumed, times {show(headroom)}"
            yield from at_most(f"wan_need[{name}]", assumed * headroom, link.required_gbps, what, "Gbps required")


@needs("sites")
def pins(physics: PlanPhysics, _: SitesPlan) -> Violations:
    """Check the racks in all, the racks of single sites and the number of open sites against the instance's pins."""
    planned, pinned = physics.racks_by_site, physics.instance.pins
    stated = {f"sites.racks.{site}": racks for site, racks in planned.items()} | {"sites.racks": sum(planned.values())}
    for path, racks in sorted(pinned.items()):
        if path.startswith("sites.racks"):
            yield from must_equal(f"pins[{path}]", "racks against the pin", stated.get(path, 0), racks)
    limit = pinned.get("sites.max_sites")
    yield from at_most("pins[sites.max_sites]", len(planned), limit, "open sites", "sites pinned")


class Requirements(NamedTuple):
    """The demands on the wide area and its fibre between sites, recomputed from sites and layout for the check."""

    fibre: SiteFibre
    window_seconds: float
    forms: tuple[wan_exchange.Form, ...]
    form: wan_exchange.Form | None
    demands: dict[tuple[str, str, str], Demand]
    rtt_ms: wan_exchange.Rtt

    def stated(self, design: WanPlan) -> Iterator[tuple[str, WanDemand, Demand]]:
        """Yield each wide-area demand of a fibre design: its name in brackets, as stated, and as recomputed."""
        for demand in design.demands:
            key = demand.name, demand.a, demand.b
            if key in self.demands:
                yield f"[{', '.join(key)}]", demand, self.demands[key]

    def lit(self, design: WanPlan) -> list[tuple[Edge, int]]:
        """Return the fibre edges of a checked design that exist, each with its wavelengths."""
        return [(self.fibre.edges[edge.id], edge.wavelengths) for edge in design.edges if edge.id in self.fibre.edges]

    def capex_usd(self, physics: PlanPhysics, design: WanPlan) -> float:
        """Recompute the capital of the wavelengths of a fibre design, in USD."""
        return math.fsum(cost.link_capex_usd(physics.wan, edge.prices, waves) for edge, waves in self.lit(design))


def window_seconds(physics: PlanPhysics, layout: LayoutPlan, metrics: LayoutMetrics) -> float:
    """Recompute the seconds in which the step assumes that sites exchange gradients."""
    size, assumed = metrics.gradient_bytes_per_stage, layout.assumptions
    rates = metrics.wan_window_seconds, assumed.wan_gbps, assumed.wan_rtt_ms
    return wan_exchange.assumed_window_seconds(physics.wan, size, len(physics.replicas), *rates)


def requirements(physics: PlanPhysics) -> Requirements | None:
    """Recompute the demands on the wide area; None if no fibre design is needed, or sites or layout are broken."""
    metrics, layout, places = physics.metrics, physics.plan.layout, physics.places
    if not physics.wan.designed or len(physics.standing) < 2 or metrics is None or layout is None:
        return None
    groups: dict[str, list[str]] = {}
    for place in (place for place in physics.standing if place.site.id in physics.replicas):
        groups.setdefault(place.authority.interconnection, []).append(place.site.id)
    net = wan.fibre_of(physics.wan, wan.places_of(physics.wan, places))

    def rtt(start: str, end: str) -> float:
        routes = net.routes(min(start, end), max(start, end), 1)
        return net.rtt_ms(routes[0]) if routes else math.inf

    window = window_seconds(physics, layout, metrics)
    offered = wan_exchange.forms(groups, metrics.gradient_bytes_per_stage, rtt)
    form = wan_exchange.choose_form(physics.wan, offered, window, rtt)
    exchange = wan.sync_demands(physics.wan, form, window, rtt)
    every = (*exchange, *wan.traffic_demands(physics.wan, sorted(places), net.node))
    demands = {(demand.name, demand.a, demand.b): demand for demand in every}
    return Requirements(net, window, offered, form, demands, rtt)


def designed(physics: PlanPhysics) -> Violations:
    """Check that the wide area is designed just where the instance asks for it, between two sites or more, and how."""
    design, sites = physics.plan.wan, len(physics.standing)
    wanted = physics.wan.designed and physics.instance.wan is not None and sites > 1
    if wanted != (design is not None):
        expected = f"{int(wanted)} expected with {sites} sites"
        yield broken("designed", f"{int(not wanted)} designs of the wide area planned, {expected}")
    if design is not None:
        yield from must_be("designed", "protection", design.protection, physics.wan.protection or "none")
        req = requirements(physics)
        for rule in (fastest_form, demands, routes, capacity, edges):
            yield from rule(physics, req, design) if req is not None else ()


def fastest_form(physics: PlanPhysics, req: Requirements, design: WanPlan) -> Violations:
    """Check that sites exchange gradients in the form of the lowest rate in the time that the step assumes."""
    chosen = {"window_seconds": req.window_seconds, "exchange": req.form.name if req.form else None}
    yield from figures("fastest_form", design, chosen)
    names = [sorted(form.name for form in forms) for forms in (design.forms, req.forms)]
    yield from must_be("fastest_form", "forms", *names)
    need = wan_exchange.form_need_gbps(req.form, physics.wan, req.window_seconds, req.rtt_ms) if req.form else math.inf
    for form in req.forms:
        rate = wan_exchange.form_need_gbps(form, physics.wan, req.window_seconds, req.rtt_ms)
        took = wan_exchange.seconds(form, physics.wan, need, req.rtt_ms) if math.isfinite(need) else None
        found = {"order": form.order, "link_gbps": rate if math.isfinite(rate) else None, "seconds": took}
        for stated in (other for other in design.forms if other.name == form.name):
            yield from figures(f"fastest_form[{form.name}]", stated, found)


def demands(_: PlanPhysics, req: Requirements, design: WanPlan) -> Violations:
    """Check that a fibre design states every demand once, carries the exchange whole and the rest as it says."""
    yield from once("demands", "entries", ((own.name, own.a, own.b) for own in design.demands), req.demands)
    for name, demand, given in req.stated(design):
        rule, share = f"demands{name}", math.fsum(route.share for route in demand.routes)
        rate = given.gbps(req.rtt_ms(demand.a, demand.b))
        rate = rate if math.isfinite(rate) else given.gbps(0.0)
        yield from figures(rule, demand, {"priority": given.priority, "requested_gbps": rate})
        yield from at_most(rule, share, 1.0, "of the demand on its routes", "of it")
        if given.priority == 0:
            yield from must_equal(rule, "share of the exchange that is carried", share, 1.0)
            yield from at_most(rule, len(demand.routes), 1, "routes of one link of the exchange", "allowed")
        errors = demand.admitted_gbps - rate * share, demand.missing_gbps - rate * (1 - share)
        if max(map(abs, errors)) > TOLERANCE * rate:
            carried = f"{show(demand.admitted_gbps)} Gbps carried and {show(demand.missing_gbps)} missing stated"
            yield broken(rule, f"{carried}, {show(share)} of {show(rate)} routed")


def routes(physics: PlanPhysics, req: Requirements, design: WanPlan) -> Violations:
    """Check that each fibre route is whole, short enough, has its edges' figures, and a backup that shares none."""
    for name, demand, given in req.stated(design):
        rule, limit = f"routes{name}", physics.grid.rules.max_rtt_ms if given.priority == 0 else None
        for route in demand.routes:
            yield from at_most(rule, 0.0, route.share, "of the demand at least", "on a route")
            for what, edges in (("", route.edges), ("backup_", route.backup_edges)):
                fault = None if edges is None else _astray(req.fibre, edges, demand.a, demand.b)
                if fault:
                    yield broken(rule, f"{what or 'route '}: {fault}")
                elif edges is not None:
                    ms = req.fibre.rtt_ms(edges)
                    found = {f"{what}rtt_ms": ms, f"{what}gbps": route.share * given.gbps(ms)}
                    yield from figures(rule, route, found if what else found | {"route_km": req.fibre.km(edges)})
                    yield from at_most(rule, ms, limit, "ms round trip of a route or its backup", "ms limit")
            if physics.wan.protection != "one_cut":
                yield from must_be(rule, "backup", route.backup_edges, None)
                continue
            both = set(route.edges) & set(route.backup_edges or ()) & req.fibre.edges.keys()
            shared = sorted(edge for edge in both if req.fibre.edges[edge].cut)
            if route.backup_edges is None or shared:
                backups = f"{int(route.backup_edges is not None)} backup routes that share {len(shared)} edges"
                yield broken(rule, f"{backups} ({', '.join(shared)}), 1 that shares 0 expected")


def _astray(net: SiteFibre, edges: tuple[str, ...], start: str, end: str) -> str | None:
    """Walk a checked fibre route and say where it breaks off; None where it arrives."""
    at = start
    for name in edges:
        edge = net.edges.get(name)
        if edge is None or at not in (edge.a, edge.b):
            return f"{name!r} does not go on from {at!r}"
        at = edge.b if at == edge.a else edge.a
    return None if at == end else f"it ends at {at!r} and not at {end!r}"


def capacity(physics: PlanPhysics, req: Requirements, design: WanPlan) -> Violations:
    """Check that each fibre edge carries no more than its wavelengths do, whichever one edge is cut."""
    lit_gbps = {edge.id: edge.wavelengths * physics.wan.wavelength_gbps for edge in design.edges}
    peak, cuts = dict[str, float](), sorted(name for name, edge in req.fibre.edges.items() if edge.cut)
    for cut in (None, *(cuts if physics.wan.protection == "one_cut" else ())):
        state, loads = f"{cut!r} is cut" if cut else "nothing is cut", defaultdict[str, float](float)
        for route, given in ((route, given) for _, demand, given in req.stated(design) for route in demand.routes):
            edges = (route.backup_edges or ()) if cut in route.edges else route.edges
            known = tuple(name for name in edges if name in req.fibre.edges)
            for name in known:
                loads[name] += route.share * given.gbps(req.fibre.rtt_ms(known))
        for name, gbps in sorted(loads.items()):
            peak[name] = max(peak.get(name, 0.0), gbps)
            limit = lit_gbps.get(name, 0.0)
            if gbps > limit * (1 + TOLERANCE) + ROUNDING_GBPS:
                yield broken(f"capacity[{name}]", f"{show(gbps)} Gbps while {state} > {show(limit)} Gbps lit")
    for edge in design.edges:
        yield from figures(f"capacity[{edge.id}]", edge, {"peak_gbps": peak.get(edge.id, 0.0)})


def edges(physics: PlanPhysics, req: Requirements, design: WanPlan) -> Violations:
    """Check that wavelengths are only on fibre that exists, once, within its pairs, at its price."""
    net, known = physics.wan, req.fibre.edges
    for name, count in sorted(Counter(edge.id for edge in design.edges).items()):
        if count > int(name in known):
            yield broken(f"edges[{name}]", f"{count} entries for {int(name in known)} edges of that id")
    for edge, offered in ((edge, known[edge.id]) for edge in design.edges if edge.id in known):
        rule, most = f"edges[{edge.id}]", offered.max_pairs * net.max_wavelengths_per_pair
        what = f"wavelengths on {offered.max_pairs} fibre pairs"
        yield from must_be(rule, "ends", sorted((edge.a, edge.b)), sorted((offered.a, offered.b)))
        yield from at_most(rule, 1, edge.wavelengths, "wavelengths at least", "wavelengths lit")
        yield from at_most(rule, edge.wavelengths, most, "wavelengths", what)
        found = {"route_km": offered.route_km, "fibre_pairs": wan.fibre_pairs(net, edge.wavelengths)}
        found["capacity_gbps"] = edge.wavelengths * net.wavelength_gbps
        found["usd_per_year"] = cost.link_usd_per_year(physics.grid, net, offered.prices, edge.wavelengths)
        yield from figures(rule, edge, found)
    yield from figures("edges", design, {"capex_usd": req.capex_usd(physics, design)})


def objective(physics: PlanPhysics) -> float | None:
    """Recompute the fibre design's objective: capital in USD, or wavelengths times route-km where nothing is priced."""
    req, design = requirements(physics), physics.plan.wan
    if req is None or design is None:
        return None
    if any(any(edge.prices) for edge in req.fibre.edges.values()):
        return req.capex_usd(physics, design)
    return math.fsum(edge.route_km * wavelengths for edge, wavelengths in req.lit(design))


RULES = (known_site, site_figures, all_sites, each_site, *power_flow.YEAR_RULES, bought, link_figures, pins)
WAN_RULES = (designed,)
