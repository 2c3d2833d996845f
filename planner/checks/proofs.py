"""Rules of the proofs and of the money."""

import math
from collections.abc import Iterator

from planner.checks.compare import TOLERANCE, at_most, equal, number, same, same_parts
from planner.checks.layout import racks_by_site
from planner.identity import instance_sha256
from planner.physics import cost
from planner.physics.bill import bill
from planner.physics.power import facility_mw, it_mw, rack_of
from planner.plan import Certificate, Plan, Violation


def check_proofs(plan: Plan) -> Iterator[Violation]:
    """Check certificates, figure of merit, bill and budget."""
    yield from equal("instance_sha256", plan.instance_sha256, instance_sha256(plan.instance), "hash of the instance")
    yield from present(plan)
    for name, value in objectives(plan).items():
        yield from certificate(name, getattr(plan, name).certificate, value)
    yield from figure_of_merit(plan)
    yield from money(plan)


def present(plan: Plan) -> Iterator[Violation]:
    """Require the decisions that the instance asks for, and a reason where there are none."""
    i = plan.instance
    if plan.status in ("infeasible", "unknown"):
        if plan.conflict is None:
            yield Violation(rule="conflict", message="there is no plan and no reason")
        return
    wanted = {"sites": i.grid is not None, "layout": True, "fabric": i.network is not None, "placement": i.network is not None, "cost": True}
    for name, asked in wanted.items():
        if asked != (getattr(plan, name) is not None):
            yield Violation(rule=f"section[{name}]", message="the instance asks for it and it is missing" if asked else "the instance does not ask for it")


def objectives(plan: Plan) -> dict[str, float | None]:
    """Recompute each decision's own figure."""
    found: dict[str, float | None] = {}
    if plan.sites is not None:
        found["sites"] = yearly_usd(plan)
    if plan.layout is not None:
        found["layout"] = plan.layout.metrics.days_to_train
    if plan.fabric is not None:
        found["fabric"] = math.fsum(f.cost_usd for f in plan.fabric.sites.values())
    if plan.placement is not None:
        found["placement"] = float(plan.placement.groups_split)
    return found


def yearly_usd(plan: Plan) -> float | None:
    """Yearly cost of a split: energy, sites and new lines over their lives, links."""
    grid, held = plan.instance.grid, plan.sites
    if grid is None or held is None:
        return None
    energy = {b.id: b.energy_usd_per_mwh for b in grid.balancing_authorities}
    price = {n.id: n.capex_usd for n in grid.new_lines}
    capital = sum(cost.site_capex_usd(grid, it_mw=s.it_mw, facility_mw=s.facility_mw) for s in held.sites)
    capital += sum(n.circuits * price.get(n.line, 0.0) for n in held.new_lines)
    running = sum(cost.energy_usd_per_year(s.facility_mw, energy.get(s.balancing_authority, 0.0)) for s in held.sites)
    joined = sum(k.usd_per_year for k in held.links) if plan.instance.wan else 0.0
    return running + capital * cost.annuity(grid.prices.discount_rate, grid.prices.site_life_years) + joined


def certificate(name: str, c: Certificate, value: float | None) -> Iterator[Violation]:
    """Require a certificate that says what it proves: objective of the decision held, a bound below it, and their gap."""
    rule = f"certificate[{name}]"
    yield from same(rule, c.objective, value, "objective against the decision's own figure")
    if c.objective is None or c.bound is None:
        yield Violation(rule=rule, message="no objective or no bound")
        return
    yield from at_most(rule, c.bound, c.objective, "bound against objective (all decisions are minimised)")
    gap = abs(c.objective - c.bound) / max(abs(c.objective), 1e-12)
    if c.gap is None or abs(c.gap - gap) > TOLERANCE:
        yield Violation(rule=rule, message=f"gap: the plan says {c.gap}, it is {number(gap)}")
    if c.status == "optimal" and gap > TOLERANCE:
        yield Violation(rule=rule, message=f"called optimal with a gap of {number(gap)}")


def figure_of_merit(plan: Plan) -> Iterator[Violation]:
    """Require the plan's objective to be its own figure, its bounds below it, and its status to follow from the proofs."""
    o = plan.objective
    yield from equal("objective", o.name, plan.instance.objective.minimize, "what is minimised")
    if plan.layout is None or plan.cost is None:
        return
    value = plan.layout.metrics.days_to_train if o.name == "days_to_train" else plan.cost.total_usd
    yield from same("objective", o.value, value, o.name)
    for name, bound, gap in (("bound", o.bound, o.gap), ("joint_bound", o.joint_bound, o.joint_gap)):
        if bound is None:
            continue
        yield from at_most("objective", bound, value, f"{name} against the value")
        yield from same("objective", gap, abs(value - bound) / max(abs(value), 1e-12), f"gap of {name}")
    proven = [getattr(plan, n).certificate.status == "optimal" for n in objectives(plan)]
    if plan.status == "optimal" and not all(proven):
        yield Violation(rule="status", message="called optimal with a decision that is not proven")


def money(plan: Plan) -> Iterator[Violation]:
    """Add up the bill again, keep it within the budget, and see that a left module could not be paid."""
    if plan.cost is None:
        return
    try:
        right = bill(plan.instance, sum(racks_by_site(plan).values()), plan.sites, plan.fabric)
    except KeyError as missing:
        yield Violation(rule="bill", message=f"{missing} has no price in the instance")
        return
    yield from same_parts("capex_usd", plan.cost.capex_usd, right.capex_usd, "capital")
    yield from same_parts("opex_usd_per_year", plan.cost.opex_usd_per_year, right.opex_usd_per_year, "per year")
    yield from same("operation_years", plan.cost.operation_years, right.operation_years, "years counted")
    yield from same("total_usd", plan.cost.total_usd, right.total_usd, "total")
    budget = plan.instance.limits.budget_usd
    if budget is None:
        return
    if right.total_usd > budget:
        yield Violation(rule="budget", message=f"total: {number(right.total_usd)} USD > {number(budget)} USD")
    yield from spend_budget(plan, budget - right.total_usd)


def spend_budget(plan: Plan, left: float) -> Iterator[Violation]:
    """Where a proven plan for speed leaves more than two modules' price unspent, some rule of the grid must stop the next module."""
    i, grid = plan.instance, plan.instance.grid
    if grid is None or plan.sites is None or plan.status != "optimal" or i.objective.minimize != "days_to_train" or "sites.racks" in i.pins:
        return
    n = i.hardware.racks_per_module
    building = cost.site_capex_usd(grid, it_mw=it_mw(i.hardware, n), facility_mw=facility_mw(i.hardware, n)) - grid.prices.site_usd
    links = n * rack_of(i.hardware).gpus * cost.endpoint_link_usd(i.network) if i.network else 0.0
    module = n * rack_of(i.hardware).price_usd + building + links
    stopped = [b for b in plan.sites.certificate.binding if b not in ("demand", "budget")]
    if left > 2 * module and not stopped:
        yield Violation(rule="spend_budget", message=f"{number(left)} USD are left, one more module costs about {number(module)} USD")
