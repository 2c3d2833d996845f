"""Checks of the site split: the grid, the land, how the sites share the racks, and the links between them."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from planner.checks.rule import Rule, at_most, broken, must_be, must_equal, show
from planner.checks.site import scenarios
from planner.physics.plan_physics import PlanPhysics, Standing
from planner.physics.site import wan
from planner.physics.site.grid import usable_interconnect_mw
from planner.plan.certificate import Violation
from planner.plan.sites import Link


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


def route_km(c: PlanPhysics, a: Standing, b: Standing) -> float:
    """Return the length of the fibre route between two sites."""
    return c.route_km(a.site.id, b.site.id)


def links(c: PlanPhysics) -> Iterator[tuple[str, Link, Standing, Standing]]:
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
    """Check that each link has the wavelengths for what it must carry, within the fibre that can be leased."""
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
    """Check that what is pinned is planned."""
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
    known_site, site_figures, demand, facility_power, *scenarios.RULES, new_circuits, upgrades, ready, interconnect,
    area, site_count, min_site, share_balance, fault_split, rtt, linked, link_figures, wan_capacity, wan_need, pins,
)  # fmt: skip
