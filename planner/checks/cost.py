"""Rules of money: the bill and the budget, energy, money and carbon of the whole run, curves and frontiers.

No point of a curve or frontier dominates another, and the figures of each follow from its choices.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from planner.checks import sites
from planner.checks.fabric import lost_joints, priced, share_out, tiers_over
from planner.checks.rule import Rule, at_most, broken, exceeds, must_be, must_equal, show
from planner.instance.instance import Operation
from planner.instance.network import Network
from planner.physics.network.fabric_designs import FAMILIES, design_for
from planner.physics.network.fabric_designs import bill as fabric_bill
from planner.physics.network.links import same_ports
from planner.physics.network.topology import Design, unwirable
from planner.physics.network.transport import free_uplinks, pipeline_send_slowdown, wan_ports
from planner.physics.plan_physics import CLUSTER, PlanPhysics
from planner.physics.site.cost import bill as bill_of
from planner.physics.site.cost import rack_of
from planner.plan.certificate import Violation
from planner.plan.plan import Cost, Curve, CurvePoint, Plan, RunPlan
from planner.plan.plan_sections import LayoutPlan, layout_in_short


def recomputed(plan: Plan, physics: PlanPhysics) -> Cost | None:
    """Price a plan from its counts; None where the price of a part is not known."""
    known = {place.site.id for place in physics.standing}
    split = plan.sites
    if split is not None:
        if any(site.id not in known for site in split.sites):
            return None
        exact = []
        for site in split.sites:
            place = physics.site_named(site.id)
            area = place.authority.id if place else site.balancing_authority
            mw = {"facility_mw": physics.load_mw(site.id, site.racks), "it_mw": physics.it_mw(site.id, site.racks)}
            exact.append(site.model_copy(update={"balancing_authority": area, **mw}))
        km = {(link.a, link.b): sites.route_km(physics, one, other) for _, link, one, other in sites.links(physics)}
        parts = {
            "sites": tuple(exact),
            "new_lines": tuple(line for line in split.new_lines if line.line in physics.built),
            "upgrades": tuple(upgrade for upgrade in split.upgrades if upgrade.node in physics.steps),
            "links": tuple(
                link.model_copy(update={"route_km": km[link.a, link.b]}) if (link.a, link.b) in km else link
                for link in split.links
            ),
        }
        split = split.model_copy(update=parts)
    fabrics = plan.fabric.sites if plan.fabric is not None else None
    if fabrics is not None and physics.instance.network is not None:
        if set(fabrics) != set(physics.wired):
            return None
        usd = {
            site: priced(physics, physics.instance.network, fabric, physics.wired[site]).usd
            for site, fabric in fabrics.items()
        }
        fabrics = {site: fabric.model_copy(update={"cost_usd": usd[site]}) for site, fabric in fabrics.items()}
    return bill_of(physics.instance, sum(physics.racks_by_site.values()), split, fabrics, sites.repriced(physics))


def parts(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that every part of the bill, and their total, are as counts and prices give them."""
    stated, bill_now = physics.plan.cost, recomputed(physics.plan, physics)
    if stated is None or bill_now is None:
        return
    for name in ("capex_usd", "opex_usd_per_year"):
        given, computed = getattr(stated, name), getattr(bill_now, name)
        for part in sorted(set(given) | set(computed)):
            yield from must_equal(f"parts[{name}.{part}]", part, given.get(part), computed.get(part), " USD")
    yield from must_equal("parts[operation_years]", "operation_years", stated.operation_years, bill_now.operation_years)
    yield from must_equal("total", "total_usd", stated.total_usd, bill_now.total_usd, " USD")


def budget(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the recomputed total is within the budget, to the cent."""
    limit, cost_now = physics.instance.limits.budget_usd, recomputed(physics.plan, physics)
    if limit is not None and cost_now is not None and cost_now.total_usd > limit + 0.01:
        yield broken("budget", f"{show(cost_now.total_usd)} USD in all > {show(limit)} USD budget")


RULES: tuple[Rule, ...] = (parts, budget)


YEAR_HOURS = 365 * 24
LISTED_YEARS = 100
SLACK = 1e-9  # of a count of lives or of years
# Name, part of the money, price, life in years and the key that states it.
Bought = tuple[str, str, float, float | None, str]
Cents = partial(must_equal, unit=" USD")


def _section(physics: PlanPhysics) -> Iterator[tuple[RunPlan, Cost, float]]:
    """Yield the section with the bill recomputed and the days that the plan states, where it has all three."""
    layout, pools, run = physics.plan.layout, physics.plan.pools, physics.plan.run
    found = pools.days_to_train if pools is not None else layout.metrics.days_to_train if layout is not None else None
    money = recomputed(physics.plan, physics)
    if run is not None and money is not None and found is not None:
        yield run, money, found


def _years(physics: PlanPhysics, days: float) -> float:
    given = physics.instance.limits.operation_years
    return days * 24 / YEAR_HOURS if given is None else given


def _loads(physics: PlanPhysics) -> dict[str, tuple[float, float | None, float | None]]:
    """Return the draw of every site in MW, and the price and the carbon of its MWh."""
    if physics.instance.grid is not None:
        areas = ((place.site, place.authority) for place in physics.standing)
        return {
            site.id: (physics.load_mw(site.id, site.racks), area.energy_usd_per_mwh, area.carbon_kg_per_mwh)
            for site, area in areas
        }
    operation, hardware = physics.instance.operation or Operation(), physics.instance.hardware
    drawn = sum(physics.load_mw(site, racks) for site, racks in physics.racks_by_site.items())
    for pool in hardware.pools:
        if not isinstance(pool.rack, str):
            drawn += pool.racks * pool.rack.it_kw * hardware.facility_overhead_factor / 1e3
    return {CLUSTER: (drawn, operation.energy_usd_per_mwh, operation.carbon_kg_per_mwh)}


def _bought(physics: PlanPhysics, money: Cost) -> Iterator[Bought]:
    hardware, operation = physics.instance.hardware, physics.instance.operation or Operation()
    for i, pool in enumerate(hardware.pools):
        if not isinstance(pool.rack, str):
            key = f"hardware.pools[{i}].rack.life_years"
            yield pool.name, "rack_replacement", pool.racks * pool.rack.price_usd, pool.rack.life_years, key
    if not hardware.pools and not isinstance(hardware.rack, str):
        life, usd = hardware.rack.life_years, money.capex_usd["racks"]
        yield "racks", "rack_replacement", usd, life, "hardware.rack.life_years"
    if "fabric" in money.capex_usd:
        life, usd = operation.fabric_life_years, money.capex_usd["fabric"]
        yield "fabric", "fabric_replacement", usd, life, "operation.fabric_life_years"


def _ends(years: float, life: float | None) -> int:
    """Count the lives that end before the run does."""
    return 0 if life is None else max(0, int(-(-(years / life - SLACK) // 1)) - 1)


def _yearly(physics: PlanPhysics, money: Cost) -> dict[str, float]:
    """Compute the yearly costs in USD other than replacements, by part."""
    operation, loads = physics.instance.operation or Operation(), _loads(physics).values()
    found = {part: usd for part, usd in money.opex_usd_per_year.items() if part != "energy"}
    if all(price is not None for _, price, _ in loads):
        found["energy"] = sum(mw * (price or 0.0) for mw, price, _ in loads) * YEAR_HOURS
    if operation.maintenance_share_per_year is not None:
        found["maintenance"] = (
            sum(usd for _, _, usd, _, _ in _bought(physics, money)) * operation.maintenance_share_per_year
        )
    if operation.staff_usd_per_year is not None:
        found["staff"] = operation.staff_usd_per_year
    return found


def _spent(physics: PlanPhysics, money: Cost, years: float, start: float, end: float) -> dict[str, float]:
    """Compute the cost in USD of a run of `years` years from year `start` to `end`, by part, without capital."""
    found = {part: usd * (end - start) for part, usd in _yearly(physics, money).items()}
    for _, part, usd, life, _ in _bought(physics, money):
        if life is not None:
            last = _ends(years, life)
            until = last if end >= years - SLACK else min(last, _ends(end, life))
            found[part] = found.get(part, 0.0) + usd * (until - min(last, _ends(start, life)))
    return found


def total_usd(physics: PlanPhysics) -> float | None:
    """Recompute the cost in USD of a plan over its run, capital included; None where its days or a price is unknown."""
    layout, bill = physics.plan.layout, recomputed(physics.plan, physics)
    if layout is None or bill is None:
        return None
    years = _years(physics, layout.metrics.days_to_train)
    return sum(bill.capex_usd.values()) + sum(_spent(physics, bill, years, 0.0, years).values())


def run_budget(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the whole run is within the budget, to the cent, where the total cost of ownership is minimised."""
    limit, usd = physics.instance.limits.budget_usd, total_usd(physics)
    asked = physics.instance.objective.minimize == "total_cost_of_ownership_usd"
    if asked and limit is not None and usd is not None and usd > limit + 0.01:
        yield broken("budget[run]", f"{show(usd)} USD until the run ends > {show(limit)} USD budget")


def length(physics: PlanPhysics) -> Iterator[Violation]:
    """Check the days and the years that are counted, and that a plan without days has no run."""
    if physics.plan.run is not None and physics.plan.layout is None and physics.plan.pools is None:
        yield broken("run_length", f"{physics.plan.run.days:g} days stated of a plan that has 0 layouts")
    for run, _, days in _section(physics):
        yield from must_equal("run_length", "days of the run against those to train", run.days, days)
        yield from must_equal("run_length", "years counted", run.years, _years(physics, days))


def energy(physics: PlanPhysics) -> Iterator[Violation]:
    """Check the power, energy, energy cost and CO2 of every site, and their sums."""
    for run, _, days in _section(physics):
        loads, years, tokens = _loads(physics), _years(physics, days), physics.instance.workload.tokens
        yield from must_be("run_energy", "sites", sorted(run.sites), sorted(loads))
        for name in sorted(set(run.sites) & set(loads)):
            (mw, price, carbon), site, rule = loads[name], run.sites[name], f"run_energy[{name}]"
            mwh = mw * years * YEAR_HOURS
            yield from must_equal(rule, "facility_mw", site.facility_mw, mw, " MW")
            yield from must_equal(rule, "energy_mwh", site.energy_mwh, mwh, " MWh")
            yield from must_equal(rule, "usd_per_mwh", site.usd_per_mwh, price, " USD a MWh")
            yield from Cents(rule, "energy_usd", site.energy_usd, None if price is None else mwh * price)
            tonnes = None if carbon is None else mwh * carbon / 1e3
            yield from must_equal(rule, "carbon_tonnes", site.carbon_tonnes, tonnes, " t")
        drawn = sum(mw for mw, _, _ in loads.values())
        yield from must_equal("run_energy", "energy_mwh", run.energy_mwh, drawn * years * YEAR_HOURS, " MWh")
        by_token = drawn * 1e6 * days * 86400 / tokens
        yield from must_equal("run_energy", "joules a token", run.energy_joules_per_token, by_token, " J")
        known = [mw * years * YEAR_HOURS * kg / 1e3 for mw, _, kg in loads.values() if kg is not None]
        all_known = len(known) == len(loads)
        yield from must_equal("run_energy", "carbon", run.carbon_tonnes, sum(known) if all_known else None, " t")


def replaced(physics: PlanPhysics) -> Iterator[Violation]:
    """Check how often racks and fabric are replaced."""
    for run, money, days in _section(physics):
        found = {name: _ends(_years(physics, days), life) for name, _, _, life, _ in _bought(physics, money)}
        yield from must_be("run_replaced", "what may be replaced", sorted(run.replacements), sorted(found))
        for name in sorted(set(run.replacements) & set(found)):
            yield from must_equal(f"run_replaced[{name}]", "replacements", run.replacements[name], found[name])


def money(physics: PlanPhysics) -> Iterator[Violation]:
    """Check every part of the cost of a run, their sum in total and per million tokens, and the costs left out."""
    for run, bill, days in _section(physics):
        years = _years(physics, days)
        found = {"capital": sum(bill.capex_usd.values())} | _spent(physics, bill, years, 0.0, years)
        for part in sorted(set(found) | set(run.usd)):
            yield from Cents(f"run_money[{part}]", part, run.usd.get(part), found.get(part))
        total, tokens = sum(found.values()), physics.instance.workload.tokens
        yield from Cents("run_money", "total cost of ownership", run.total_cost_of_ownership_usd, total)
        by_token = total / (tokens / 1e6)
        yield from Cents("run_money", "cost of a million tokens", run.usd_per_million_tokens, by_token)
        operation = physics.instance.operation or Operation()
        names = ("maintenance_share_per_year", "staff_usd_per_year")
        given = {f"operation.{name}": getattr(operation, name) for name in names}
        if physics.instance.grid is None:
            given["operation.energy_usd_per_mwh"] = operation.energy_usd_per_mwh
        not_counted = [key for key, value in given.items() if value is None]
        not_counted += [key for _, _, _, life, key in _bought(physics, bill) if life is None]
        yield from must_be("run_money", "not counted", sorted(run.not_counted), sorted(not_counted))
        yield from must_equal("run_money", "keys not counted", len(run.not_counted), len(set(run.not_counted)))


def by_year(physics: PlanPhysics) -> Iterator[Violation]:
    """Check each listed year of a run: its length in years, its energy in MWh, and its spending by part in USD."""
    for run, bill, days in _section(physics):
        years, drawn = _years(physics, days), sum(mw for mw, _, _ in _loads(physics).values())
        ends = [float(year) for year in range(1, LISTED_YEARS + 1) if year < years - SLACK]
        ends = [*ends, years] if years > SLACK and len(ends) < LISTED_YEARS else ends
        yield from must_equal("run_by_year", "years listed", len(run.by_year), len(ends))
        start: float = 0.0
        for number, (year, end) in enumerate(zip(run.by_year, ends, strict=False)):
            rule, now = f"run_by_year[{number}]", _spent(physics, bill, years, start, end)
            yield from must_equal(rule, "part of a year", year.years, end - start)
            yield from must_equal(rule, "energy_mwh", year.energy_mwh, drawn * (end - start) * YEAR_HOURS, " MWh")
            for part in sorted(set(now) | set(year.usd)):
                yield from Cents(f"{rule}[{part}]", part, year.usd.get(part), now.get(part))
            start = end


RUN_RULES: tuple[Rule, ...] = (length, energy, replaced, money, by_year, run_budget)


def curve_order(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that days fall as capital rises, and that bounds, which fall too, lie below the days."""
    for number, (before, after) in enumerate(pairwise(_points(physics)), 1):
        if not (before.capital_usd < after.capital_usd and before.days_to_train > after.days_to_train):
            sides = [f"{show(point.capital_usd)} USD in {show(point.days_to_train)} days" for point in (before, after)]
            yield broken(f"curve_order[{number}]", f"{sides[1]} against {sides[0]} at the point before")
        if (
            before.bound_days is not None
            and after.bound_days is not None
            and exceeds(after.bound_days, before.bound_days)
        ):
            bounds = f"{show(after.bound_days)} days for more money, {show(before.bound_days)} at the point before"
            yield broken(f"curve_order[{number}]", f"bound of {bounds}", after.bound_days, before.bound_days)


def curve_points(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that each point has figures that a plan can have: its racks paid, within budget and deadline."""
    limits, rack, knees = physics.instance.limits, rack_of(physics.instance.hardware), 0
    for number, point in enumerate(_points(physics)):
        rule = f"curve_points[{number}]"
        yield from must_be(rule, "racks of its sites", sum(point.racks_by_site.values()), point.racks)
        if exceeds(point.racks * rack.price_usd, point.capital_usd):
            yield broken(
                rule, f"{show(point.racks)} racks alone cost more", point.capital_usd, point.racks * rack.price_usd
            )
        if limits.budget_usd is not None and exceeds(point.capital_usd, limits.budget_usd):
            yield broken(rule, "is above limits.budget_usd", point.capital_usd, limits.budget_usd)
        if limits.deadline_days is not None and exceeds(point.days_to_train, limits.deadline_days):
            yield broken(rule, "is later than limits.deadline_days", point.days_to_train, limits.deadline_days)
        if point.bound_days is not None and exceeds(point.bound_days, point.days_to_train):
            yield broken(rule, "is faster than its own bound", point.days_to_train, point.bound_days)
        if not (0 < point.mfu <= 1 and 0 <= point.idle_gpus <= point.racks * rack.gpus):
            yield broken(
                rule, f"MFU {show(point.mfu)} with {show(point.idle_gpus)} idle GPUs of {show(point.racks)} racks"
            )
        knees += point.knee
    if knees > 1:
        yield broken("curve_points", f"{knees} knees, one at most expected", knees, 1)


def curve_of_plan(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the point of the plan itself, if one is, has the plan's figures, and that no point beats its bound."""
    curve, layout, cost = physics.plan.curve, physics.plan.layout, physics.plan.cost
    if curve is None or layout is None or cost is None:
        return
    own = [point for point in curve.points if point.asked]
    if len(own) > 1:
        yield broken("curve_of_plan", f"{len(own)} points are the plan's, one at most expected", len(own), 1)
    for point in own:
        for name, stated, found in (
            ("days", point.days_to_train, layout.metrics.days_to_train),
            ("capital", point.capital_usd, cost.total_usd),
            ("MFU", point.mfu, layout.metrics.mfu),
            ("idle GPUs", point.idle_gpus, layout.gpus_idle),
        ):
            yield from must_equal("curve_of_plan", name, stated, found)
        yield from must_be("curve_of_plan", "layout", point.layout, layout_in_short(layout))
    bound = physics.plan.objective.bound if physics.instance.objective.minimize == "days_to_train" else None
    for point in curve.points if bound is not None else ():
        if exceeds(bound or 0.0, point.days_to_train):
            yield broken("curve_of_plan", "a point is faster than the bound of the plan", point.days_to_train, bound)


def curve_share(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the points cover, within the share stated, every plan whose days are as its point's bound allows.

    Where the whole curve is the goal, its share rests on nodes of the search that the plan does not hold.
    """
    curve, goal = physics.plan.curve, physics.instance.objective.minimize
    if curve is None or curve.epsilon is None or not curve.points or goal == "frontier":
        return
    first = curve.points[0]
    needed = _share(curve)
    if exceeds(needed, curve.epsilon):
        yield broken("curve_share", "the points cover others within more than the share", curve.epsilon, needed)
    if curve.least_usd is None or exceeds(first.capital_usd, curve.least_usd):
        yield broken("curve_share", "plans below the first point are covered by none", curve.least_usd, None)


def _share(curve: Curve) -> float:
    """Return the share within which a curve's points cover the plans between its least and its most capital.

    A plan between two neighbours takes at least the bound in days of the dearer one. Either point covers it: the dearer
    one by the share that its capital is above the cheaper one's, the cheaper one at no more capital.
    """
    covers: list[float] = []
    for number, point in enumerate(curve.points):
        if point.bound_days is None or point.bound_days <= 0:
            return math.inf
        least = curve.points[number - 1].capital_usd if number else point.capital_usd
        own = max(point.days_to_train / point.bound_days, point.capital_usd / least)
        covers.append(min(own, curve.points[number - 1].days_to_train / point.bound_days) if number else own)
    return max(covers) - 1


def _points(physics: PlanPhysics) -> tuple[CurvePoint, ...]:
    return () if physics.plan.curve is None else physics.plan.curve.points


CURVE_RULES: tuple[Rule, ...] = (curve_order, curve_points, curve_of_plan, curve_share)


Row = Mapping[str, Any]  # figures and choices of a design
COUNTS = (
    "lanes", "split", "leaf_down", "leaf_up", "leaf_bundle", "rails_per_pod", "domains_per_pod", "group_links",
    "spine_up", "spine_bundle", "rails_per_zone", "domains_per_zone", "core_up", "core_bundle", "core_boxes",
    "super_spine_boxes",
)  # fmt: skip
BUNDLES = ("leaf_up", "leaf_bundle"), ("spine_up", "spine_bundle"), ("core_up", "core_bundle")


def frontier(
    physics: PlanPhysics, site: str, rows: Sequence[Row], merits: Sequence[str], *, leaf_size: int | None = None
) -> Iterator[Violation]:
    """Check the rows of a site, by cost: the figures of each, and that no other matches or beats it in all merits."""
    network, layout = physics.instance.network, physics.plan.layout
    if network is None or layout is None:
        yield broken(f"frontier[{site}]", f"{len(rows)} rows, and no network or layout to compare them by")
        return
    for i, row in enumerate(rows):
        rule = f"frontier[{site}, {i}]"
        faults = list(_faults(physics, network, row))
        yield from (broken(rule, fault) for fault in faults)
        if not faults:
            yield from _row(rule, physics, network, layout, site, row)
        if leaf_size is not None:
            yield from must_equal(rule, "leaf_domain_racks asked for", row["leaf_domain_racks"], leaf_size)
    yield from _order(site, rows, merits)


def _faults(physics: PlanPhysics, network: Network, row: Row) -> Iterator[str]:
    """Yield the choices of a row that nothing can be computed from, or that the network does not offer."""
    for name in COUNTS:
        value = row.get(name, 0)
        if not isinstance(value, int) or value < 0 or (value < 1 and name in ("lanes", "split", "leaf_down")):
            yield f"{name} is {value}; a count expected"
    for up, bundle in BUNDLES:
        # The bundles between routers of a group lead nowhere where a router is a group of its own.
        if row.get(bundle, 0) > row.get(up, 0) and (row["family"], up) != ("dragonfly", "leaf_up"):
            yield f"bundles of {row[bundle]} links, of {row.get(up, 0)} upwards ({bundle}, {up})"
    if row["group_links"] and not row["family"].startswith("dragonfly"):
        yield f"{row['group_links']} group_links of a {row['family']}, which has no groups"
    if row["family"] not in network.families:
        yield f"family {row['family']} is none of {', '.join(network.families)}"
    if row["lanes"] > network.max_lanes:
        yield f"{row['lanes']} lanes, {network.max_lanes} allowed"
    models = _models(row)
    unknown = [name for name in dict.fromkeys(models) if name not in physics.switches]
    yield from (f"switch {name!r} is none of {', '.join(sorted(physics.switches))}" for name in unknown)
    if unknown:
        return
    if not all(same_ports(physics.switches[name], physics.switches[models[0]]) for name in models):
        yield f"switches {' and '.join(models)}, whose ports differ in rate, planes or price of links"
    if row["split"] > physics.switches[row["switch"]].breakout:
        yield f"ports in {row['split']} parts, {physics.switches[row['switch']].breakout} allowed"


def _models(row: Row) -> list[str]:
    """Return the models of a row's leaves, spines, cores and super-spines, which are of the cores', by name."""
    spine, core = (row.get(f"{tier}_switch", row["switch"]) for tier in ("spine", "core"))
    return [row["switch"], spine, core, core]


def _design(physics: PlanPhysics, network: Network, site: str, row: Row) -> Design:
    switch, family = physics.switches[row["switch"]], FAMILIES[row["family"]]
    rack, of_trees = family.rack_ports(physics.wired_gpus_per_rack(site)), COUNTS[COUNTS.index("spine_up") :]
    own = {name: row.get(name, 0) for name in COUNTS if not (family.design.grouped and name in of_trees)}
    own["wan_ports"] = wan_ports(_gateway(physics, site)[0], rack.apart * own["lanes"], switch.port_gbps)
    models = [physics.switches[name] for name in _models(row)]
    return design_for(row["family"], network, models, physics.cabled_racks(site), rack, **own)


def _gateway(physics: PlanPhysics, site: str) -> tuple[float, float]:
    """Return the rates of the wide area and of the exchange of gradients at a site's WAN gateway, in Gbps."""
    fabric = physics.plan.fabric.sites.get(site) if physics.plan.fabric else None
    gateway = fabric.wan_gateway if fabric else None
    return (gateway.wan_gbps, gateway.exchange_gbps) if gateway else (0.0, 0.0)


def _row(
    rule: str, physics: PlanPhysics, network: Network, layout: LayoutPlan, site: str, row: Row
) -> Iterator[Violation]:
    """Check that a row can be wired, keeps the network's rules, hides slowed traffic, and states its own figures."""
    design, (switch, *above) = _design(physics, network, site, row), [physics.switches[name] for name in _models(row)]
    reasons = list(unwirable(design, cross_rail=True))
    yield from (broken(rule, reason) for reason in reasons)
    if reasons:
        return
    yield from at_most(rule, design.tiers, network.max_tiers, "tiers", "tiers allowed")
    yield from share_out(rule, network.asked_core_share, design)
    yield from tiers_over(rule, network.tier_ratios, design)
    yield from lost_joints(rule, network.survives, design)
    price, slow = fabric_bill(network, switch, design, above), _slowdown(physics, layout, site, row, design)
    groups, size = layout.rack_stages, max(1, layout.racks_per_stage_by_site[site])
    full, last = divmod(
        design.racks, design.domain_racks
    )  # each group is a run of racks, and the last leaf domain part-full
    figures = {
        "cost_usd": price.usd,
        "power_mw": price.mw,
        "pipeline_send_slowdown": slow,
        "racks_outside_leaf": max(0, design.racks - design.domain_racks),
        "unavoidable_splits": max(0, groups - (full * (design.domain_racks // size) + last // size)),
        "switches": design.switches,
        "tiers": design.tiers,
        "planes": switch.planes * design.lanes,
        "leaf_domain_racks": design.domain_racks,
    }
    for name, figure in figures.items():
        yield from must_equal(rule, name, row[name], figure)
    metrics = layout.metrics
    ideal, window = metrics.pipeline_send_nic_seconds, metrics.pipeline_send_window_seconds
    hidden = max(window, ideal * physics.transport_slowdown)
    yield from at_most(rule, ideal * slow, hidden, "s of a pipeline send", "s that hide it")


def _slowdown(physics: PlanPhysics, layout: LayoutPlan, site: str, row: Row, design: Design) -> float:
    """Recompute the slowdown of pipeline sends that all leave their leaf, pod and zone, where there are several.

    The exchange of gradients of one stage loads the uplinks most where the stage's racks are close together.
    """
    group = max(1, layout.racks_per_stage_by_site[site])
    counts = (1, max(1, design.domains_per_pod), design.domains_per_zone)
    near = [min(1.0, design.domain_racks * count / group) for count in counts]
    free = free_uplinks(design, _gateway(physics, site)[1], physics.switches[row["switch"]].port_gbps, *near)
    above = (design.domains_per_pod, design.domains_per_zone)
    leaving = [float(design.domains > 1), *(float(0 < count < design.domains) for count in above)]
    return pipeline_send_slowdown(physics.transport_slowdown, design, *leaving, free=free)


def _order(site: str, rows: Sequence[Row], merits: Sequence[str]) -> Iterator[Violation]:
    """Check that rows rise in cost and that none is matched or beaten in every merit by another."""
    for i, row in enumerate(rows[1:], start=1):
        if exceeds(rows[i - 1]["cost_usd"], row["cost_usd"]):
            yield broken(f"frontier[{site}, {i}]", "costs less than the row before it; rows go by cost")
    for i, row in enumerate(rows):
        better = [k for k, other in enumerate(rows) if k != i and all(other[merit] <= row[merit] for merit in merits)]
        if better:
            yield broken(f"frontier[{site}, {i}]", f"row {better[0]} is as good or better in {', '.join(merits)}")
