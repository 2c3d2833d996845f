"""Rules of the curve in a plan: its points beat one another in nothing, and its figures and share follow from them.

The bounds of points other than the plan's own are on trust: nothing of their searches is in the file.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

from planner.checks.rule import Rule, broken, exceeds, must_be, must_equal, show
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site.power import rack_of
from planner.plan.certificate import Violation
from planner.plan.curve import Curve, CurvePoint
from planner.plan.layout import layout_in_short


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

    Of a plan between two neighbours the days are at least the bound of the dearer one. The plan is covered by either:
    by the dearer one in capital as far as that is above the cheaper one's, by the cheaper one for no more capital.
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
