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


def curve_order(c: PlanPhysics) -> Iterator[Violation]:
    """Check that days fall as capital rises, and that bounds, which fall too, lie below the days."""
    for n, (a, b) in enumerate(pairwise(_points(c)), 1):
        if not (a.capital_usd < b.capital_usd and a.days_to_train > b.days_to_train):
            sides = [f"{show(x.capital_usd)} USD in {show(x.days_to_train)} days" for x in (a, b)]
            yield broken(f"curve_order[{n}]", f"{sides[1]} against {sides[0]} at the point before")
        if a.bound_days is not None and b.bound_days is not None and exceeds(b.bound_days, a.bound_days):
            bounds = f"{show(b.bound_days)} days for more money, {show(a.bound_days)} at the point before"
            yield broken(f"curve_order[{n}]", f"bound of {bounds}", b.bound_days, a.bound_days)


def curve_points(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each point has figures that a plan can have: its racks paid, within budget and deadline."""
    limits, rack, knees = c.instance.limits, rack_of(c.instance.hardware), 0
    for n, x in enumerate(_points(c)):
        rule = f"curve_points[{n}]"
        yield from must_be(rule, "racks of its sites", sum(x.racks_by_site.values()), x.racks)
        if exceeds(x.racks * rack.price_usd, x.capital_usd):
            yield broken(rule, f"{show(x.racks)} racks alone cost more", x.capital_usd, x.racks * rack.price_usd)
        if limits.budget_usd is not None and exceeds(x.capital_usd, limits.budget_usd):
            yield broken(rule, "is above limits.budget_usd", x.capital_usd, limits.budget_usd)
        if limits.deadline_days is not None and exceeds(x.days_to_train, limits.deadline_days):
            yield broken(rule, "is later than limits.deadline_days", x.days_to_train, limits.deadline_days)
        if x.bound_days is not None and exceeds(x.bound_days, x.days_to_train):
            yield broken(rule, "is faster than its own bound", x.days_to_train, x.bound_days)
        if not (0 < x.mfu <= 1 and 0 <= x.idle_gpus <= x.racks * rack.gpus):
            yield broken(rule, f"MFU {show(x.mfu)} with {show(x.idle_gpus)} idle GPUs of {show(x.racks)} racks")
        knees += x.knee
    if knees > 1:
        yield broken("curve_points", f"{knees} knees, one at most expected", knees, 1)


def curve_of_plan(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the point of the plan itself, if one is, has the plan's figures, and that no point beats its bound."""
    curve, layout, cost = c.plan.curve, c.plan.layout, c.plan.cost
    if curve is None or layout is None or cost is None:
        return
    own = [x for x in curve.points if x.asked]
    if len(own) > 1:
        yield broken("curve_of_plan", f"{len(own)} points are the plan's, one at most expected", len(own), 1)
    for x in own:
        for name, stated, found in (
            ("days", x.days_to_train, layout.metrics.days_to_train),
            ("capital", x.capital_usd, cost.total_usd),
            ("MFU", x.mfu, layout.metrics.mfu),
            ("idle GPUs", x.idle_gpus, layout.gpus_idle),
        ):
            yield from must_equal("curve_of_plan", name, stated, found)
        yield from must_be("curve_of_plan", "layout", x.layout, layout_in_short(layout))
    bound = c.plan.objective.bound if c.instance.objective.minimize == "days_to_train" else None
    for x in curve.points if bound is not None else ():
        if exceeds(bound or 0.0, x.days_to_train):
            yield broken("curve_of_plan", "a point is faster than the bound of the plan", x.days_to_train, bound)


def curve_share(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the points cover, within the share stated, every plan whose days are as its point's bound allows."""
    curve = c.plan.curve
    if curve is None or curve.epsilon is None or not curve.points:
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
    for n, x in enumerate(curve.points):
        if x.bound_days is None or x.bound_days <= 0:
            return math.inf
        least = curve.points[n - 1].capital_usd if n else x.capital_usd
        own = max(x.days_to_train / x.bound_days, x.capital_usd / least)
        covers.append(min(own, curve.points[n - 1].days_to_train / x.bound_days) if n else own)
    return max(covers) - 1


def _points(c: PlanPhysics) -> tuple[CurvePoint, ...]:
    return () if c.plan.curve is None else c.plan.curve.points


RULES: tuple[Rule, ...] = (curve_order, curve_points, curve_of_plan, curve_share)


Row = Mapping[str, Any]  # figures and choices of a design
COUNTS = (
    "lanes", "split", "leaf_down", "leaf_up", "leaf_bundle", "rails_per_pod", "domains_per_pod", "group_links",
    "spine_up", "spine_bundle", "rails_per_zone", "domains_per_zone", "core_up", "core_bundle", "core_boxes",
    "super_spine_boxes",
)  # fmt: skip
BUNDLES = ("leaf_up", "leaf_bundle"), ("spine_up", "spine_bundle"), ("core_up", "core_bundle")


def frontier(
    c: PlanPhysics, site: str, rows: Sequence[Row], merits: Sequence[str], *, leaf_size: int | None = None
) -> Iterator[Violation]:
    """Check the rows of a site, by cost: the figures of each, and that no other matches or beats it in all merits."""
    network, layout = c.instance.network, c.plan.layout
    if network is None or layout is None:
        yield broken(f"frontier[{site}]", f"{len(rows)} rows, and no network or layout to compare them by")
        return
    for i, row in enumerate(rows):
        rule = f"frontier[{site}, {i}]"
        faults = list(_faults(c, network, row))
        yield from (broken(rule, fault) for fault in faults)
        if not faults:
            yield from _row(rule, c, network, layout, site, row)
        if leaf_size is not None:
            yield from must_equal(rule, "leaf_domain_racks asked for", row["leaf_domain_racks"], leaf_size)
    yield from _order(site, rows, merits)


def _faults(c: PlanPhysics, network: Network, row: Row) -> Iterator[str]:
    """Yield the choices of a row that nothing can be computed from, or that the network does not offer."""
    for name in COUNTS:
        n = row.get(name, 0)
        if not isinstance(n, int) or n < 0 or (n < 1 and name in ("lanes", "split", "leaf_down")):
            yield f"{name} is {n}; a count expected"
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
    unknown = [name for name in dict.fromkeys(models) if name not in c.switches]
    yield from (f"switch {name!r} is none of {', '.join(sorted(c.switches))}" for name in unknown)
    if unknown:
        return
    if not all(same_ports(c.switches[name], c.switches[models[0]]) for name in models):
        yield f"switches {' and '.join(models)}, whose ports differ in rate, planes or price of links"
    if row["split"] > c.switches[row["switch"]].breakout:
        yield f"ports in {row['split']} parts, {c.switches[row['switch']].breakout} allowed"


def _models(row: Row) -> list[str]:
    """Return the models of a row's leaves, spines, cores and super-spines, which are of the cores', by name."""
    spine, core = (row.get(f"{tier}_switch", row["switch"]) for tier in ("spine", "core"))
    return [row["switch"], spine, core, core]


def _design(c: PlanPhysics, network: Network, site: str, row: Row) -> Design:
    switch, family = c.switches[row["switch"]], FAMILIES[row["family"]]
    rack, of_trees = family.rack_ports(c.wired_gpus_per_rack(site)), COUNTS[COUNTS.index("spine_up") :]
    own = {name: row.get(name, 0) for name in COUNTS if not (family.design.grouped and name in of_trees)}
    own["wan_ports"] = wan_ports(_gateway(c, site)[0], rack.apart * own["lanes"], switch.port_gbps)
    models = [c.switches[name] for name in _models(row)]
    return design_for(row["family"], network, models, c.cabled_racks(site), rack, **own)


def _gateway(c: PlanPhysics, site: str) -> tuple[float, float]:
    """Return the rates of the wide area and of the exchange of gradients at a site's WAN gateway, in Gbps."""
    fabric = c.plan.fabric.sites.get(site) if c.plan.fabric else None
    gateway = fabric.wan_gateway if fabric else None
    return (gateway.wan_gbps, gateway.exchange_gbps) if gateway else (0.0, 0.0)


def _row(rule: str, c: PlanPhysics, network: Network, layout: LayoutPlan, site: str, row: Row) -> Iterator[Violation]:
    """Check that a row can be wired, keeps the network's rules, hides slowed traffic, and states its own figures."""
    d, (switch, *above) = _design(c, network, site, row), [c.switches[name] for name in _models(row)]
    reasons = list(unwirable(d, cross_rail=True))
    yield from (broken(rule, reason) for reason in reasons)
    if reasons:
        return
    yield from at_most(rule, d.tiers, network.max_tiers, "tiers", "tiers allowed")
    yield from share_out(rule, network.asked_core_share, d)
    yield from tiers_over(rule, network.tier_ratios, d)
    yield from lost_joints(rule, network.survives, d)
    price, slow = bill(network, switch, d, above), _slowdown(c, layout, site, row, d)
    groups, size = layout.rack_stages, max(1, layout.racks_per_stage_by_site[site])
    full, last = divmod(d.racks, d.domain_racks)  # each group is a run of racks, and the last leaf domain part-full
    figures = {
        "cost_usd": price.usd,
        "power_mw": price.mw,
        "pipeline_send_slowdown": slow,
        "racks_outside_leaf": max(0, d.racks - d.domain_racks),
        "unavoidable_splits": max(0, groups - (full * (d.domain_racks // size) + last // size)),
        "switches": d.switches,
        "tiers": d.tiers,
        "planes": switch.planes * d.lanes,
        "leaf_domain_racks": d.domain_racks,
    }
    for name, figure in figures.items():
        yield from must_equal(rule, name, row[name], figure)
    m = layout.metrics
    ideal, window = m.pipeline_send_nic_seconds, m.pipeline_send_window_seconds
    hidden = max(window, ideal * c.transport_slowdown)
    yield from at_most(rule, ideal * slow, hidden, "s of a pipeline send", "s that hide it")


def _slowdown(c: PlanPhysics, layout: LayoutPlan, site: str, row: Row, d: Design) -> float:
    """Recompute the slowdown of pipeline sends that all leave their leaf, pod and zone, where there are several.

    The exchange of gradients of one stage loads the uplinks most where the stage's racks are close together.
    """
    group = max(1, layout.racks_per_stage_by_site[site])
    near = [min(1.0, d.domain_racks * n / group) for n in (1, max(1, d.domains_per_pod), d.domains_per_zone)]
    free = free_uplinks(d, _gateway(c, site)[1], c.switches[row["switch"]].port_gbps, *near)
    leaving = [float(d.domains > 1), *(float(0 < n < d.domains) for n in (d.domains_per_pod, d.domains_per_zone))]
    return pipeline_send_slowdown(c.transport_slowdown, d, *leaving, free=free)


def _order(site: str, rows: Sequence[Row], merits: Sequence[str]) -> Iterator[Violation]:
    """Check that rows rise in cost and that none is matched or beaten in every merit by another."""
    for i, row in enumerate(rows[1:], start=1):
        if exceeds(rows[i - 1]["cost_usd"], row["cost_usd"]):
            yield broken(f"frontier[{site}, {i}]", "costs less than the row before it; rows go by cost")
    for i, row in enumerate(rows):
        better = [k for k, x in enumerate(rows) if k != i and all(x[m] <= row[m] for m in merits)]
        if better:
            yield broken(f"frontier[{site}, {i}]", f"row {better[0]} is as good or better in {', '.join(merits)}")
