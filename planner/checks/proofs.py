"""Rules of the proofs: every certificate is about the plan's own decision, with its bound on the right side."""

from collections.abc import Iterator

from planner.checks.cost import recomputed
from planner.checks.rule import TOLERANCE, Rule, at_most, broken, must_be, must_equal, show
from planner.checks.site import wan
from planner.checks.site.sites import links, route_km
from planner.checks.training import heterogeneous
from planner.checks.training.model_choice import stated_loss
from planner.instance.identity import instance_sha256
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import cost
from planner.plan.certificate import Certificate, Violation

DECISIONS = ("sites", "wan", "layout", "pools", "fabric", "placement")


def instance_hash(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the plan states the hash of the instance inside it."""
    yield from must_be("instance_hash", "instance_sha256", c.plan.instance_sha256, instance_sha256(c.instance))


def reason(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a plan without decisions says why, and that no other does."""
    p = c.plan
    if p.status == "infeasible" and p.conflict is None:
        yield broken("reason", "infeasible with 0 conflicts, 1 expected")
    if p.status in ("infeasible", "unknown"):
        present = [s for s in (*DECISIONS, "cost") if getattr(p, s) is not None]
        if present or p.objective.value is not None:
            sections = f"{len(present)} sections ({', '.join(present)})"
            yield broken("reason", f"{p.status}, yet {sections} and objective {show(p.objective.value)} are there")
    elif p.conflict is not None:
        yield broken("reason", f"{p.status}, yet there is 1 conflict: {p.conflict.reason}")


def certificates(c: PlanPhysics) -> dict[str, Certificate]:
    """Return the certificates by decision."""
    decisions = {name: getattr(c.plan, name) for name in DECISIONS}
    return {name: x.certificate for name, x in decisions.items() if x is not None}


def _distance(value: float, bound: float) -> float:
    return abs(value - bound) / max(abs(value), 1e-12)


def _gap(rule: str, value: float | None, bound: float | None, stated: float | None) -> Iterator[Violation]:
    """Check that a stated gap is that of value and bound; gaps below the tolerance are rounding."""
    found = None if value is None or bound is None else _distance(value, bound)
    if (found is None) != (stated is None) or (
        found is not None and stated is not None and abs(found - stated) > TOLERANCE * max(found, 1e-3)
    ):
        yield broken(rule, f"gap {show(stated)} stated, {show(found)} between {show(value)} and bound {show(bound)}")


def gap(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each gap is that of objective and bound."""
    for name, x in certificates(c).items():
        yield from _gap(f"gap[{name}]", x.objective, x.bound, x.gap)


def bound_side(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each bound is below its objective, as every decision minimizes."""
    for name, x in certificates(c).items():
        if x.objective is not None and x.bound is not None:
            yield from at_most(
                f"bound_side[{name}]", float(x.bound), float(x.objective), "bound from below", "objective"
            )


def optimal(c: PlanPhysics) -> Iterator[Violation]:
    """Check that only a decision at its bound is called optimal."""
    for name, x in certificates(c).items():
        if x.status == "optimal" and (
            x.objective is None or x.bound is None or _distance(x.objective, x.bound) > TOLERANCE
        ):
            sides = f"objective {show(x.objective)} and bound {show(x.bound)}"
            yield broken(f"optimal[{name}]", f"{sides} are more than {TOLERANCE:g} apart")
        if x.status not in ("optimal", "feasible"):
            yield broken(f"optimal[{name}]", f"there is a decision, its certificate says {x.status}")


def certified(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each certificate is about its decision: its objective is the decision's own figure, recomputed."""
    figures = {
        "sites": _yearly_usd(c),
        "layout": c.metrics.days_to_train if c.metrics else None,
        "fabric": _fabric_usd(c),
        "placement": _split(c),
    }
    figures |= {"wan": wan.objective(c), "pools": heterogeneous.days(c)}
    for name, x in certificates(c).items():
        if figures[name] is not None:
            yield from must_equal(f"certified[{name}]", f"objective ({x.minimizes})", x.objective, figures[name])


def _yearly_usd(c: PlanPhysics) -> float | None:
    """Compute what the split minimizes: energy, sites and new lines over their life, and links, each year."""
    split = c.plan.sites
    if split is None or len(c.standing) != len(split.sites):
        return None
    prices, mw = c.grid.prices, {x.site.id: c.load_mw(x.site.id, x.site.racks) for x in c.standing}
    energy = sum(cost.energy_usd_per_year(mw[x.site.id], x.authority.energy_usd_per_mwh) for x in c.standing)
    built = sum(
        cost.site_capex_usd(c.grid, it_mw=c.it_mw(x.site.id, x.site.racks), facility_mw=mw[x.site.id])
        for x in c.standing
    )
    price = {line.id: line.capex_usd for line in c.grid.new_lines}
    built += sum(n * price[line] for line, n in c.built.items())
    step = {n.id: n.upgrade.capex_usd for n in c.grid.nodes if n.upgrade}
    built += sum(n * step[node] for node, n in c.steps.items())
    energy = _over_scenarios(c, energy) + sum(x.usd_per_year for x in split.excess)
    wide = sum(c.link_usd_per_year(k, route_km(c, a, b)) for _, k, a, b in links(c))
    return energy + built * cost.annuity(prices.discount_rate, prices.site_life_years) + wide


def _over_scenarios(c: PlanPhysics, own: float) -> float:
    """Return the energy of a year over the scenarios: the worst, or the weighted mean with the grid's own year."""
    split, mode = c.plan.sites, c.grid.rules.scenarios
    if split is None or mode == "off" or not split.scenarios:
        return own
    if mode == "robust":
        return max(own, *(r.energy_usd_per_year for r in split.scenarios.values()))
    weight = {s.name: s.weight for s in c.grid.scenarios}
    rest = max(0.0, 1 - sum(weight.values()))
    return rest * own + sum(weight.get(n, 0.0) * r.energy_usd_per_year for n, r in split.scenarios.items())


def _fabric_usd(c: PlanPhysics) -> float | None:
    found = recomputed(c.plan, c) if c.plan.fabric is not None else None
    return None if found is None else found.capex_usd.get("fabric")


def _split(c: PlanPhysics) -> float | None:
    placement = c.plan.placement
    if placement is None or set(c.crossings) != set(placement.sites):
        return None
    return float(sum(x.groups_split for x in c.crossings.values()))


def objective(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the objective is the one asked for, as recomputed, with no bound above what is proven."""
    o, name = c.plan.objective, c.instance.objective.minimize
    yield from must_be("objective", "name", o.name, name)
    price = recomputed(c.plan, c)
    days = c.metrics.days_to_train if c.metrics else heterogeneous.days(c)
    figures = {"days_to_train": days, "cost_usd": price.total_usd if price else None, "loss": stated_loss(c)}
    value = figures[name]
    if value is not None:
        yield from must_equal("objective", name, o.value, value)
    yield from _gap("objective", o.value, o.bound, o.gap)
    yield from _gap("objective[joint]", o.value, o.joint_bound, o.joint_gap)
    for which, bound in (("bound", o.bound), ("joint_bound", o.joint_bound)):
        if bound is not None and o.value is not None:
            yield from at_most("objective", bound, o.value, which, name)
    decision = c.plan.layout or c.plan.pools
    proven = decision.certificate.bound if decision and name == "days_to_train" else None
    if proven is not None and o.bound is not None:
        # The bound over all decisions is valid for this layout too, and sharper where a limit ended its search.
        limit = max(proven, o.joint_bound or proven)
        by = "proven by the layout's certificate or over all decisions"
        yield from at_most("objective", o.bound, limit, "bound", by)


def status(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the plan is called optimal only where every certificate is and the search ended by proof."""
    weaker = [name for name, x in certificates(c).items() if x.status != "optimal"]
    if c.plan.status == "optimal" and (weaker or c.plan.stopped != "proved"):
        others = f"{len(weaker)} certificates are not ({', '.join(weaker)})"
        yield broken("status", f"optimal, yet {others}; the search ended by {c.plan.stopped}")


WITHOUT_PLAN: tuple[Rule, ...] = (instance_hash, reason)
RULES: tuple[Rule, ...] = (instance_hash, reason, gap, bound_side, optimal, certified, objective, status)
