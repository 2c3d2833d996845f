"""Rules of money: the bill and the budget, energy, money and carbon of the whole run, and the curve of plans."""

import math
from itertools import pairwise
from typing import NamedTuple

from planner.checks import sites
from planner.checks.fabric import priced
from planner.checks.rule import Violations, at_most, broken, exceeds, figures, must_be, must_equal, needs, parts, show
from planner.instance.grid import BalancingAuthority
from planner.instance.instance import Operation
from planner.physics.plan_physics import CLUSTER, PlanPhysics
from planner.physics.site.cost import bill as bill_of
from planner.physics.site.cost import rack_of
from planner.plan.plan import Cost, Curve, RunPlan
from planner.plan.plan_sections import LayoutPlan, layout_in_short

TCO = "total_cost_of_ownership_usd"
CENT = 0.01
YEAR_HOURS = 365 * 24
LISTED_YEARS = 100
SLACK = 1e-9  # of a count of lives or of years


def recomputed(physics: PlanPhysics) -> Cost | None:
    """Price a plan from its counts; None where the price of a part is not known."""
    plan, network = physics.plan, physics.instance.network
    split, fabrics = plan.sites, plan.fabric.sites if plan.fabric else None
    if split is not None:
        standing = {place.site.id: place.authority.id for place in physics.standing}
        if any(site.id not in standing for site in split.sites):
            return None
        exact = []
        for site in split.sites:
            mw = {"facility_mw": physics.load_mw(site.id, site.racks), "it_mw": physics.it_mw(site.id, site.racks)}
            exact.append(site.replaced(balancing_authority=standing[site.id], **mw))
        km = {(link.a, link.b): physics.route_km(link.a, link.b) for _, link in sites.links(physics)}
        links = ((link, km.get((link.a, link.b), link.route_km)) for link in split.links)
        known = {
            "sites": tuple(exact),
            "new_lines": tuple(line for line in split.new_lines if line.line in physics.built),
            "upgrades": tuple(upgrade for upgrade in split.upgrades if upgrade.node in physics.steps),
            "links": tuple(link.replaced(route_km=route) for link, route in links),
        }
        split = split.replaced(**known)
    if fabrics is not None and network is not None:
        if set(fabrics) != set(physics.wired):
            return None
        usd = {site: priced(physics, network, own, physics.wired[site]).usd for site, own in fabrics.items()}
        fabrics = {site: own.replaced(cost_usd=usd[site]) for site, own in fabrics.items()}
    return bill_of(physics.instance, sum(physics.racks_by_site.values()), split, fabrics, sites.repriced(physics))


def bill(physics: PlanPhysics) -> Violations:
    """Check that every part of the bill, and their total, are as counts and prices give them."""
    stated, found = physics.plan.cost, recomputed(physics)
    if stated is None or found is None:
        return
    for name in ("capex_usd", "opex_usd_per_year"):
        own, wanted = ({f"{name}.{part}": usd for part, usd in getattr(side, name).items()} for side in (stated, found))
        yield from parts("parts", own, wanted, " USD")
    yield from must_equal("parts[operation_years]", "operation_years", stated.operation_years, found.operation_years)
    yield from figures("total", stated, {"total_usd": found.total_usd})


def budget(physics: PlanPhysics) -> Violations:
    """Check that the total, and of the goal cost of ownership the whole run, is within the budget, to the cent."""
    limit, found = physics.instance.limits.budget_usd, recomputed(physics)
    spent = {("budget", "in all"): found.total_usd if found is not None else None}
    if physics.instance.objective.minimize == TCO:
        spent["budget[run]", "until the run ends"] = total_usd(physics)
    for (rule, what), usd in spent.items():
        if limit is not None and usd is not None and usd > limit + CENT:
            yield broken(rule, f"{show(usd)} USD {what} > {show(limit)} USD budget")


class BoughtPart(NamedTuple):
    """What may be replaced: the part of the money that it is, its price, its life, and the key that states the life."""

    part: str
    usd: float
    life_years: float | None
    key: str

    def ended(self, years: float) -> int:
        """Count the lives that end before so many years do."""
        return 0 if self.life_years is None else max(0, math.ceil(years / self.life_years - SLACK) - 1)


class CheckedRun(NamedTuple):
    """A plan over its run, in years: its bill, and what is drawn, bought and paid each year."""

    bill: Cost
    days: float
    years: float
    draws: dict[str, tuple[float, BalancingAuthority | Operation]]  # MW by site, and what has its price and carbon
    bought: dict[str, BoughtPart]
    yearly_usd: dict[str, float]  # by part, other than replacements

    def spent(self, until: float) -> dict[str, float]:
        """Compute the cost in USD from the start to a year, by part, without capital; the end replaces nothing."""
        found = {part: usd * until for part, usd in self.yearly_usd.items()}
        for one in self.bought.values():
            if one.life_years is not None:
                found[one.part] = found.get(one.part, 0.0) + one.usd * one.ended(until)
        return found

    def mwh(self, years: float) -> float:
        """Compute the energy of all sites in MWh."""
        return sum(mw for mw, _ in self.draws.values()) * years * YEAR_HOURS


def _run(physics: PlanPhysics, days: float | None) -> CheckedRun | None:
    """Return a plan over a run of so many days to train; None where these or a price are not known."""
    hardware, operation = physics.instance.hardware, physics.instance.operation or Operation()
    money, given = recomputed(physics), physics.instance.limits.operation_years
    if money is None or days is None:
        return None
    pools = {pool.name: (i, pool, pool.rack) for i, pool in enumerate(hardware.pools) if not isinstance(pool.rack, str)}
    draws: dict[str, tuple[float, BalancingAuthority | Operation]] = {
        place.site.id: (physics.load_mw(place.site.id, place.site.racks), place.authority) for place in physics.standing
    }
    if physics.instance.grid is None:
        drawn = sum(physics.load_mw(site, racks) for site, racks in physics.racks_by_site.items())
        in_pools = sum(pool.racks * rack.it_kw for _, pool, rack in pools.values()) / 1e3
        drawn += in_pools * hardware.facility_overhead_factor
        draws = {CLUSTER: (drawn, operation)}
    bought = {}
    for name, (i, pool, rack) in pools.items():
        usd, key = pool.racks * rack.price_usd, f"hardware.pools[{i}].rack.life_years"
        bought[name] = BoughtPart("rack_replacement", usd, rack.life_years, key)
    if not hardware.pools and not isinstance(hardware.rack, str):
        life, usd = hardware.rack.life_years, money.capex_usd["racks"]
        bought["racks"] = BoughtPart("rack_replacement", usd, life, "hardware.rack.life_years")
    if "fabric" in money.capex_usd:
        life, usd = operation.fabric_life_years, money.capex_usd["fabric"]
        bought["fabric"] = BoughtPart("fabric_replacement", usd, life, "operation.fabric_life_years")
    yearly = {part: usd for part, usd in money.opex_usd_per_year.items() if part != "energy"}
    if all(area.energy_usd_per_mwh is not None for _, area in draws.values()):
        yearly["energy"] = sum(mw * (area.energy_usd_per_mwh or 0.0) for mw, area in draws.values()) * YEAR_HOURS
    if operation.maintenance_share_per_year is not None:
        yearly["maintenance"] = sum(one.usd for one in bought.values()) * operation.maintenance_share_per_year
    if operation.staff_usd_per_year is not None:
        yearly["staff"] = operation.staff_usd_per_year
    years = days * 24 / YEAR_HOURS if given is None else given
    return CheckedRun(bill=money, days=days, years=years, draws=draws, bought=bought, yearly_usd=yearly)


def total_usd(physics: PlanPhysics) -> float | None:
    """Recompute the cost in USD of a plan over its run, capital included; None where its days or a price is unknown."""
    run = _run(physics, physics.plan.layout.metrics.days_to_train if physics.plan.layout else None)
    return sum(run.bill.capex_usd.values()) + sum(run.spent(run.years).values()) if run is not None else None


@needs("run")
def run_rules(physics: PlanPhysics, stated: RunPlan) -> Violations:
    """Check the days and years of a run, and that a plan without days has none; then its energy and its money."""
    layout, pools = physics.plan.layout, physics.plan.pools
    if layout is None and pools is None:
        yield broken("run_length", f"{stated.days:g} days stated of a plan that has 0 layouts")
    days = pools.days_to_train if pools is not None else layout.metrics.days_to_train if layout is not None else None
    run = _run(physics, days)
    if run is not None:
        yield from figures("run_length", stated, {"days": run.days, "years": run.years})
        for rule in (energy, money, by_year):
            yield from rule(physics, stated, run)


def energy(physics: PlanPhysics, stated: RunPlan, run: CheckedRun) -> Violations:
    """Check the power, energy, energy cost and CO2 of every site, and their sums."""
    yield from must_be("run_energy", "sites", sorted(stated.sites), sorted(run.draws))
    carbon: list[float | None] = []
    for name, (mw, area) in run.draws.items():
        mwh, kg, usd = mw * run.years * YEAR_HOURS, area.carbon_kg_per_mwh, area.energy_usd_per_mwh
        carbon.append(None if kg is None else mwh * kg / 1e3)
        found = {
            "facility_mw": mw,
            "energy_mwh": mwh,
            "usd_per_mwh": usd,
            "energy_usd": None if usd is None else mwh * usd,
            "carbon_tonnes": carbon[-1],
        }
        if name in stated.sites:
            yield from figures(f"run_energy[{name}]", stated.sites[name], found)
    joules = run.mwh(1.0) / YEAR_HOURS * 1e6 * run.days * 86400
    found = {
        "energy_mwh": run.mwh(run.years),
        "energy_joules_per_token": joules / physics.instance.workload.tokens,
        "carbon_tonnes": None if None in carbon else sum(tonnes or 0.0 for tonnes in carbon),
    }
    yield from figures("run_energy", stated, found)


def money(physics: PlanPhysics, stated: RunPlan, run: CheckedRun) -> Violations:
    """Check what is replaced, each part of a run's cost, their sum in total and by token, and the costs left out."""
    replaced = {name: one.ended(run.years) for name, one in run.bought.items()}
    yield from parts("run_replaced", stated.replacements, replaced)
    found = {"capital": sum(run.bill.capex_usd.values())} | run.spent(run.years)
    yield from parts("run_money", stated.usd, found, " USD")
    total, tokens = sum(found.values()), physics.instance.workload.tokens
    in_all = {"total_cost_of_ownership_usd": total, "usd_per_million_tokens": total / (tokens / 1e6)}
    yield from figures("run_money", stated, in_all)
    operation = physics.instance.operation or Operation()
    names = ["maintenance_share_per_year", "staff_usd_per_year"]
    names += ["energy_usd_per_mwh"] if physics.instance.grid is None else []
    left_out = [f"operation.{name}" for name in names if getattr(operation, name) is None]
    left_out += [one.key for one in run.bought.values() if one.life_years is None]
    yield from must_be("run_money", "not counted", sorted(stated.not_counted), sorted(left_out))


def by_year(_: PlanPhysics, stated: RunPlan, run: CheckedRun) -> Violations:
    """Check each listed year of a run: its length in years, its energy in MWh, and its spending by part in USD."""
    ends = [float(year) for year in range(1, LISTED_YEARS + 1) if year < run.years - SLACK]
    ends = [*ends, run.years] if run.years > SLACK and len(ends) < LISTED_YEARS else ends
    yield from must_equal("run_by_year", "years listed", len(stated.by_year), len(ends))
    for number, (year, (start, end)) in enumerate(zip(stated.by_year, pairwise([0.0, *ends]), strict=False)):
        rule, before, now = f"run_by_year[{number}]", run.spent(start), run.spent(end)
        yield from figures(rule, year, {"years": end - start, "energy_mwh": run.mwh(end - start)})
        yield from parts(rule, year.usd, {part: usd - before[part] for part, usd in now.items()}, " USD")


@needs("curve")
def curve_points(physics: PlanPhysics, curve: Curve) -> Violations:
    """Check that each point is within limits and curve, pays its racks, and that days and bounds fall with capital."""
    limits, rack = physics.instance.limits, rack_of(physics.instance.hardware)
    yield from at_most("curve_points", curve.most_usd, limits.budget_usd, "USD of the curve", "USD of the budget")
    for number, point in enumerate(curve.points):
        rule = f"curve_points[{number}]"
        yield from must_be(rule, "racks of its sites", sum(point.racks_by_site.values()), point.racks)
        for limit in (
            (point.racks * rack.price_usd, point.capital_usd, "USD of its racks", "USD"),
            (point.capital_usd, limits.budget_usd, "USD", "USD of the budget"),
            (point.capital_usd, curve.most_usd, "USD", "USD of the curve"),
            (curve.none_below_usd, point.capital_usd, "USD that no plan is below", "USD"),
            (point.days_to_train, limits.deadline_days, "days", "days until the deadline"),
            (point.bound_days, point.days_to_train, "days, its bound", "days"),
        ):
            yield from at_most(rule, *limit)
        if not (0 < point.mfu <= 1 and 0 <= point.idle_gpus <= point.racks * rack.gpus):
            idle = f"{show(point.idle_gpus)} idle GPUs of {show(point.racks)} racks"
            yield broken(rule, f"MFU {show(point.mfu)} with {idle}")
    for number, (before, after) in enumerate(pairwise(curve.points), 1):
        rule = f"curve_order[{number}]"
        if not (before.capital_usd < after.capital_usd and before.days_to_train > after.days_to_train):
            sides = [f"{show(point.capital_usd)} USD in {show(point.days_to_train)} days" for point in (before, after)]
            yield broken(rule, f"{sides[1]} against {sides[0]} at the point before")
        more = "days, the bound for more money"
        yield from at_most(rule, after.bound_days, before.bound_days, more, "at the point before")
    for rule, what in (("curve_points", "knee"), ("curve_of_plan", "asked")):
        number = sum(getattr(point, what) for point in curve.points)
        yield from at_most(rule, number, 1, f"points are the {'knee' if what == 'knee' else 'plan'}", "at most")


@needs("curve", "layout", "cost")
def curve_of_plan(physics: PlanPhysics, curve: Curve, layout: LayoutPlan, cost: Cost) -> Violations:
    """Check that the point of the plan itself, if one is, has the plan's figures, and that no point beats its bound."""
    found = {
        "days_to_train": layout.metrics.days_to_train,
        "capital_usd": cost.total_usd + (physics.plan.sites.excess_usd if physics.plan.sites else 0.0),
        "mfu": layout.metrics.mfu,
        "idle_gpus": layout.gpus_idle,
        "layout": layout_in_short(layout),
    }
    bound = physics.plan.objective.bound if physics.instance.objective.minimize == "days_to_train" else None
    for point in curve.points:
        yield from figures("curve_of_plan", point, found if point.asked else {})
        yield from at_most("curve_of_plan", bound, point.days_to_train, "days, the bound of the plan", "days")


@needs("curve")
def curve_share(physics: PlanPhysics, curve: Curve) -> Violations:
    """Check that the points cover, within the share stated, every plan whose days are as its point's bound allows.

    A plan between two neighbours takes at least the bound in days of the dearer one. Either point covers it: the dearer
    one by the share that its capital is above the cheaper one's, the cheaper one at no more capital.
    Where the whole curve is the goal, its share rests on nodes of the search that the plan does not hold.
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
    yield from at_most("curve_share", share, curve.epsilon, "within which points cover others", "stated")
    if curve.least_usd is None or exceeds(curve.points[0].capital_usd, curve.least_usd):
        yield broken("curve_share", "plans below the first point are covered by none", curve.least_usd, None)


RULES = (bill, budget)
RUN_RULES = (run_rules,)
CURVE_RULES = (curve_points, curve_of_plan, curve_share)
