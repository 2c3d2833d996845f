"""Rules of curves and frontiers: no point dominates another, and the figures of each follow from its choices."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from planner.checks.fabric import lost_joints, share_out, tiers_over
from planner.checks.rule import Rule, at_most, broken, exceeds, must_be, must_equal, show
from planner.instance.network import Network
from planner.physics.network.families import FAMILIES, design_for
from planner.physics.network.links import same_ports
from planner.physics.network.price import bill
from planner.physics.network.topology import Design, unwirable
from planner.physics.network.transport import free_uplinks, pipeline_send_slowdown, wan_ports
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site.cost import rack_of
from planner.plan.certificate import Violation
from planner.plan.plan import Curve, CurvePoint
from planner.plan.plan_sections import LayoutPlan, layout_in_short


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


RULES: tuple[Rule, ...] = (curve_order, curve_points, curve_of_plan, curve_share)


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
    price, slow = bill(network, switch, design, above), _slowdown(physics, layout, site, row, design)
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
