"""Rules of the bill: every part recomputed, the total within the budget, and the budget spent."""

from collections.abc import Iterator

from planner.checks.network.fabric import priced
from planner.checks.rule import Rule, broken, must_equal, show
from planner.checks.site import sites, wan
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site.cost import bill
from planner.plan.certificate import Violation
from planner.plan.plan import Cost, Plan
from planner.plan.sites import Link, Site, SitesPlan


def recomputed(plan: Plan, c: PlanPhysics) -> Cost | None:
    """Price a plan from its counts; None where the price of a part is not known."""
    known = {x.site.id for x in c.standing}
    split = plan.sites
    if split is not None:
        if any(s.id not in known for s in split.sites):
            return None
        exact = tuple(_exact(c, s) for s in split.sites)
        lines = tuple(n for n in split.new_lines if n.line in c.built)
        steps = tuple(u for u in split.upgrades if u.node in c.steps)
        split = split.model_copy(
            update={"sites": exact, "new_lines": lines, "upgrades": steps, "links": _exact_links(c, split)}
        )
    fabrics = plan.fabric.sites if plan.fabric is not None else None
    if fabrics is not None and c.instance.network is not None:
        if set(fabrics) != set(c.wired):
            return None
        usd = {s: priced(c, c.instance.network, f, c.wired[s]).usd for s, f in fabrics.items()}
        fabrics = {s: f.model_copy(update={"cost_usd": usd[s]}) for s, f in fabrics.items()}
    return bill(c.instance, sum(c.racks_by_site.values()), split, fabrics, wan.repriced(c))


def _exact(c: PlanPhysics, s: Site) -> Site:
    """Return a site with the figures that its racks and its node give it."""
    x = c.site_named(s.id)
    area = x.authority.id if x else s.balancing_authority
    return s.model_copy(
        update={"balancing_authority": area, "facility_mw": c.load_mw(s.id, s.racks), "it_mw": c.it_mw(s.id, s.racks)}
    )


def _exact_links(c: PlanPhysics, split: SitesPlan) -> tuple[Link, ...]:
    """Return the links with the length that their ends give them."""
    exact = {(k.a, k.b): k.model_copy(update={"route_km": sites.route_km(c, a, b)}) for _, k, a, b in sites.links(c)}
    return tuple(exact.get((k.a, k.b), k) for k in split.links)


def parts(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every part of the bill, and their total, are as counts and prices give them."""
    stated, bill_now = c.plan.cost, recomputed(c.plan, c)
    if stated is None or bill_now is None:
        return
    for name in ("capex_usd", "opex_usd_per_year"):
        a, b = getattr(stated, name), getattr(bill_now, name)
        for part in sorted(set(a) | set(b)):
            yield from must_equal(f"parts[{name}.{part}]", part, a.get(part), b.get(part), " USD")
    yield from must_equal("parts[operation_years]", "operation_years", stated.operation_years, bill_now.operation_years)
    yield from must_equal("total", "total_usd", stated.total_usd, bill_now.total_usd, " USD")


def budget(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the recomputed total is within the budget, to the cent."""
    limit, cost_now = c.instance.limits.budget_usd, recomputed(c.plan, c)
    if limit is not None and cost_now is not None and cost_now.total_usd > limit + 0.01:
        yield broken("budget", f"{show(cost_now.total_usd)} USD in all > {show(limit)} USD budget")


RULES: tuple[Rule, ...] = (parts, budget)
