"""Rules of money: bill and budget, energy, money and carbon of the whole run, and the curve of money against days."""

import math
from itertools import pairwise
from typing import Any

from planner.checks import sites
from planner.checks.fabric import priced
from planner.checks.rule import Violations, at_most, broken, exceeds, figures, must_be, must_equal, needs, parts, show
from planner.physics.plan_physics import CLUSTER, PlanPhysics
from planner.physics.site import cost, site_power
from planner.plan.plan import Cost, Curve, RunPlan
from planner.plan.plan_sections import LayoutPlan, layout_in_short

TCO = "total_cost_of_ownership_usd"  # the goal, and the figure of the run
CENT = 0.01
RUN_FIGURES = {
    "run_length": ("days", "years"),
    "run_energy": ("energy_mwh", "energy_joules_per_token", "carbon_tonnes"),
    "run_money": (TCO, "usd_per_million_tokens"),
}


def recomputed(physics: PlanPhysics) -> Cost | None:
    """Price a plan again from its counts, to check its bill; None where the price of a part is not known."""
    plan, network, hardware = physics.plan, physics.instance.network, physics.instance.hardware
    split, fabrics = plan.sites, plan.fabric.sites if plan.fabric else None
    if split is not None:
        if len(physics.standing) < len(split.sites):
            return None
        exact, links = [], list(split.links)
        for place in physics.standing:
            drawn = hardware, place.site.racks, physics.fabric_mw(place.site.id)
            mw = {"facility_mw": site_power.facility_mw(*drawn), "it_mw": site_power.it_mw(*drawn)}
            exact.append(place.site.replaced(balancing_authority=place.authority.id, **mw))
        for i, link in enumerate(links):
            if sites.joins_two_sites(physics, link):
                links[i] = link.replaced(route_km=physics.route_km(link.a, link.b))
        lines = tuple(line for line in split.new_lines if line.line in physics.built)
        upgrades = tuple(upgrade for upgrade in split.upgrades if upgrade.node in physics.steps)
        split = split.replaced(sites=tuple(exact), new_lines=lines, upgrades=upgrades, links=tuple(links))
    if fabrics is not None and network is not None:
        if set(fabrics) != set(physics.wired):
            return None
        usd = {site: priced(physics, network, own, physics.wired[site]).usd for site, own in fabrics.items()}
        fabrics = {site: own.replaced(cost_usd=usd[site]) for site, own in fabrics.items()}
    req, design = sites.requirements(physics), plan.wan
    if req is not None and design is not None:
        design = design.replaced(capex_usd=req.capex_usd(physics, design))
    return cost.bill(physics.instance, sum(physics.racks_by_site.values()), split, fabrics, design)


def bill(physics: PlanPhysics) -> Violations:
    """Check that every part of a plan's bill, and their total, are as counts and prices give them."""
    stated, found = physics.plan.cost, recomputed(physics)
    if stated is None or found is None:
        return
    for name in ("capex_usd", "opex_usd_per_year"):
        own, wanted = ({f"{name}.{part}": usd for part, usd in getattr(side, name).items()} for side in (stated, found))
        yield from parts("parts", own, wanted, " USD")
    yield from figures("parts[operation_years]", stated, {"operation_years": found.operation_years})
    yield from figures("total", stated, {"total_usd": found.total_usd})


def budget(physics: PlanPhysics) -> Violations:
    """Check that a plan's bill, under the goal cost of ownership its whole run, is within the budget, to the cent."""
    limit, found = physics.instance.limits.budget_usd, recomputed(physics)
    spent = {("budget", "in all"): found.total_usd if found is not None else None}
    if physics.instance.objective.minimize == TCO:
        spent["budget[run]", "until the run ends"] = getattr(run_of(physics), TCO, None)
    for (rule, what), usd in spent.items():
        if limit is not None and usd is not None and usd > limit + CENT:
            yield broken(rule, f"{show(usd)} USD {what} > {show(limit)} USD budget")


def run_of(physics: PlanPhysics) -> RunPlan | None:
    """Recompute the cost and energy of a plan's run over its days; None where days or a price are not known."""
    instance, money, pools = physics.instance, recomputed(physics), physics.plan.pools
    trained = pools or (physics.plan.layout.metrics if physics.plan.layout is not None else None)
    if money is None or trained is None:
        return None
    mw = {site: physics.load_mw(site, racks) for site, racks in physics.racks_by_site.items()}
    if instance.grid is None:
        mw = {CLUSTER: site_power.pools_mw(instance) + sum(mw.values())}
    authorities = {place.site.id: place.authority.id for place in physics.standing}
    return cost.run_section(instance, trained.days_to_train, money, mw, authorities)


@needs("run")
def run_rules(physics: PlanPhysics, stated: RunPlan) -> Violations:
    """Check a run's length, energy, CO2 and cost, in all, by site and by year; a plan without days has none."""
    if physics.plan.layout is None and physics.plan.pools is None:
        yield broken("run_length", f"{stated.days:g} days stated of a plan that has 0 layouts")
    run = run_of(physics)
    if run is None:
        return
    for rule, names in RUN_FIGURES.items():
        yield from figures(rule, stated, {name: getattr(run, name) for name in names})
    yield from must_be("run_energy", "sites", sorted(stated.sites), sorted(run.sites))
    for name in sorted(stated.sites.keys() & run.sites.keys()):
        yield from figures(f"run_energy[{name}]", stated.sites[name], run.sites[name].model_dump())
    yield from parts("run_replaced", stated.replacements, run.replacements)
    yield from parts("run_money", stated.usd, run.usd, " USD")
    yield from must_be("run_money", "not counted", sorted(stated.not_counted), sorted(run.not_counted))
    yield from must_equal("run_by_year", "years listed", len(stated.by_year), len(run.by_year))
    for number, (year, found) in enumerate(zip(stated.by_year, run.by_year, strict=False)):
        rule = f"run_by_year[{number}]"
        yield from figures(rule, year, {"years": found.years, "energy_mwh": found.energy_mwh})
        yield from parts(rule, year.usd, found.usd, " USD")


@needs("curve")
def curve_points(physics: PlanPhysics, curve: Curve) -> Violations:
    """Check each point of a curve of money against days: within limits, its racks paid, fewer days for more money."""
    limits, racks = physics.instance.limits, [x.rack for x in physics.instance.hardware.each_alone()]
    usd, gpus = min(rack.price_usd for rack in racks), max(rack.gpus for rack in racks)  # whichever GPU a point has
    yield from at_most("curve_points", curve.most_usd, limits.budget_usd, "USD of the curve", "USD of the budget")
    for number, point in enumerate(curve.points):
        rule = f"curve_points[{number}]"
        yield from must_be(rule, "racks of its sites", sum(point.racks_by_site.values()), point.racks)
        for limit in (
            (point.racks * usd, point.capital_usd, "USD of its racks", "USD"),
            (point.capital_usd, limits.budget_usd, "USD", "USD of the budget"),
            (point.capital_usd, curve.most_usd, "USD", "USD of the curve"),
            (curve.none_below_usd, point.capital_usd, "USD that no plan is below", "USD"),
            (point.days_to_train, limits.deadline_days, "days", "days until the deadline"),
            (point.bound_days, point.days_to_train, "days, its bound", "days"),
        ):
            yield from at_most(rule, *limit)
        if not (0 < point.mfu <= 1 and 0 <= point.idle_gpus <= point.racks * gpus):
            idle = f"{show(point.idle_gpus)} idle GPUs of {show(point.racks)} racks"
            yield broken(rule, f"MFU {show(point.mfu)} with {idle}")
    for number, (before, after) in enumerate(pairwise(curve.points), 1):
        rule = f"curve_order[{number}]"
        if not (before.capital_usd < after.capital_usd and before.days_to_train > after.days_to_train):
            sides = [f"{show(point.capital_usd)} USD in {show(point.days_to_train)} days" for point in (after, before)]
            yield broken(rule, f"{' against '.join(sides)} at the point before")
        bounds = after.bound_days, before.bound_days
        yield from at_most(rule, *bounds, "days, the bound for more money", "at the point before")
    for rule, name, what in (("curve_points", "knee", "knee"), ("curve_of_plan", "asked", "plan")):
        number = sum(getattr(point, name) for point in curve.points)
        yield from at_most(rule, number, 1, f"points are the {what}", "at most")


@needs("curve", "layout", "cost")
def curve_of_plan(physics: PlanPhysics, curve: Curve, layout: LayoutPlan, _: Cost) -> Violations:
    """Check a curve of money against days by the plan: its own point has its figures, and none beats its bound."""
    usd, metrics, limits = physics.plan.counted_usd, layout.metrics, physics.instance.limits
    found: dict[str, Any] = {"days_to_train": metrics.days_to_train, "capital_usd": usd, "mfu": metrics.mfu}
    found |= {"idle_gpus": layout.gpus_idle, "layout": layout_in_short(layout)}
    # A cluster's plan pays and feeds all racks, and a point those that it uses: more is left for its fabric.
    all_paid = physics.instance.grid is None and not limits.budget_usd is limits.facility_power_mw is None
    bound = physics.plan.objective.fabric_free_bound if all_paid else physics.plan.objective.bound
    bound = bound if physics.instance.objective.minimize == "days_to_train" else None
    for point in curve.points:
        yield from figures("curve_of_plan", point, found if point.asked else {})
        yield from at_most("curve_of_plan", bound, point.days_to_train, "days, the bound of the plan", "days")


@needs("curve")
def curve_share(physics: PlanPhysics, curve: Curve) -> Violations:
    """Check that a curve of money against days covers, within its share, every plan that the days of its bounds allow.

    A plan between two neighbours takes at least the bound in days of the dearer one. Either point covers it: the dearer
    one by the share that its capital is above the cheaper one's, the cheaper one at no more capital. Where the whole
    curve is the goal, its share rests on nodes of the search that the plan does not hold.
    """
    if curve.epsilon is None or not curve.points or physics.instance.objective.minimize == "frontier":
        return
    share = 0.0
    for before, point in zip((None, *curve.points), curve.points, strict=False):
        bound = point.bound_days or 0.0
        own = point.days_to_train / bound if bound > 0 else math.inf
        if before is not None and bound > 0:
            own = min(max(own, point.capital_usd / before.capital_usd), before.days_to_train / bound)
        share = max(share, own - 1)
    yield from at_most("curve_share", 1 + share, 1 + curve.epsilon, "times within which points cover others", "stated")
    if curve.least_usd is None or exceeds(curve.points[0].capital_usd, curve.least_usd):
        yield broken("curve_share", "plans below the first point are covered by none", curve.least_usd, None)


RULES = (bill, budget)
RUN_RULES = (run_rules,)
CURVE_RULES = (curve_points, curve_of_plan, curve_share)
