"""Rules of money: the bill recomputed and within the budget; energy, money and carbon of the whole run."""

from collections.abc import Iterator
from functools import partial

from planner.checks import sites
from planner.checks.fabric import priced
from planner.checks.rule import Rule, broken, must_be, must_equal, show
from planner.instance.instance import Operation
from planner.physics.plan_physics import CLUSTER, PlanPhysics
from planner.physics.site.cost import bill as bill_of
from planner.plan.certificate import Violation
from planner.plan.plan import Cost, Plan, RunPlan


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
