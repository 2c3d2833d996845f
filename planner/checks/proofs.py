"""Rules of the proofs: every certificate is about the plan's own decision, with its bound on the right side."""

from collections.abc import Iterator

from planner.checks.cost import recomputed
from planner.checks.rule import TOLERANCE, Rule, at_most, broken, must_be, must_equal, show
from planner.checks.site import run, wan
from planner.checks.training import heterogeneous
from planner.checks.training.model_choice import stated_loss
from planner.instance.instance import instance_sha256
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import ALMOST_AS_FAST, Certificate, Violation

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
        present = [s for s in (*DECISIONS, "cost", "run") if getattr(p, s) is not None]
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
    allowed = max(TOLERANCE, c.instance.objective.tolerance)
    for name, x in certificates(c).items():
        if x.status == "optimal" and (
            x.objective is None or x.bound is None or _distance(x.objective, x.bound) > allowed
        ):
            sides = f"objective {show(x.objective)} and bound {show(x.bound)}"
            yield broken(f"optimal[{name}]", f"{sides} are more than {allowed:g} apart")
        if x.status not in ("optimal", "feasible"):
            yield broken(f"optimal[{name}]", f"there is a decision, its certificate says {x.status}")


def certified(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each certificate is about its decision: its objective is the figure that it names, recomputed.

    What is decided jointly is proven jointly: layout, fabric and placement state the value of the whole plan.
    """
    days = c.metrics.days_to_train if c.metrics else None
    joint = days if c.instance.objective.minimize == "loss" else _value(c)
    figures = {"sites": _capital_usd(c), "layout": joint, "fabric": joint, "placement": joint}
    figures |= {"wan": wan.objective(c), "pools": heterogeneous.days(c)}
    for name, x in certificates(c).items():
        if figures[name] is not None:
            yield from must_equal(f"certified[{name}]", f"objective ({x.minimizes})", x.objective, figures[name])


def _capital_usd(c: PlanPhysics) -> float | None:
    """Recompute what the sites are the cheapest of: the bill, or the whole run, and what broken soft rules weigh."""
    price = recomputed(c.plan, c)
    if price is None:
        return None
    in_all = run.total_usd(c) if c.instance.objective.minimize == "total_cost_of_ownership_usd" else price.total_usd
    return (
        None if in_all is None else in_all + (sum(x.usd_per_year for x in c.plan.sites.excess) if c.plan.sites else 0.0)
    )


def _value(c: PlanPhysics) -> float | None:
    """Recompute the figure of merit."""
    price, days = recomputed(c.plan, c), c.metrics.days_to_train if c.metrics else heterogeneous.days(c)
    figures = {"days_to_train": days, "cost_usd": price.total_usd if price else None, "loss": stated_loss(c)}
    whole = "total_cost_of_ownership_usd"
    return run.total_usd(c) if c.instance.objective.minimize == whole else figures[c.instance.objective.minimize]


def objective(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the objective is the one asked for, as recomputed, with no bound above it."""
    o, name, value = c.plan.objective, c.instance.objective.minimize, _value(c)
    yield from must_be("objective", "name", o.name, name)
    if value is not None:
        yield from must_equal("objective", name, o.value, value)
    yield from _gap("objective", o.value, o.bound, o.gap)
    yield from _gap("objective[joint]", o.value, o.joint_bound, o.joint_gap)
    for which in ("bound", "joint_bound", "fabric_free_bound"):
        bound = getattr(o, which)
        if bound is not None and o.value is not None:
            yield from at_most("objective", bound, o.value, which, name)
    yield from _cheaper(c)
    decision = c.plan.layout or c.plan.pools
    proven = decision.certificate.bound if decision and name != "loss" else None
    if proven is not None and o.bound is not None:
        yield from at_most("objective", o.bound, proven, "bound", "proven by the certificate")


def _cheaper(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the plan named as cheaper is cheaper, almost as fast, and no faster than is possible."""
    o, price = c.plan.objective, recomputed(c.plan, c)
    x, rule = o.cheaper, "objective[cheaper]"
    if x is None:
        return
    if o.name != "days_to_train" or o.value is None or price is None:
        yield broken(rule, f"a cheaper plan beside {o.name} {show(o.value)}, fewest days expected")
        return
    share = f"days, {1 + ALMOST_AS_FAST:g} times the plan's"
    yield from at_most(rule, x.days_to_train, o.value * (1 + ALMOST_AS_FAST), "days of the cheaper plan", share)
    if o.bound is not None:
        yield from at_most(rule, o.bound, x.days_to_train, "days, the bound", "days of the cheaper plan")
    if x.capital_usd >= price.total_usd:
        yield broken(rule, f"{show(x.capital_usd)} USD of the cheaper plan >= {show(price.total_usd)} USD of the plan")


def status(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the plan is called optimal only at its bound, with every certificate, and by proof."""
    o, asked, choose = c.plan.objective, c.instance.objective, c.instance.workload.choose
    # A loss is proven within the bracket of its compute, by less than which it falls.
    bracket = choose.tolerance if choose is not None and asked.minimize == "loss" else 0.0
    allowed = max(TOLERANCE, asked.tolerance, bracket)
    apart = o.value is None or o.bound is None or _distance(o.value, o.bound) > allowed
    if c.plan.status == "optimal" and apart:
        sides = f"value {show(o.value)} and bound {show(o.bound)}"
        yield broken("status", f"optimal, yet {sides} are more than {allowed:g} apart")
    weaker = [name for name, x in certificates(c).items() if x.status != "optimal"]
    if c.plan.status == "optimal" and (weaker or c.plan.stopped != "proved"):
        others = f"{len(weaker)} certificates are not ({', '.join(weaker)})"
        yield broken("status", f"optimal, yet {others}; the search ended by {c.plan.stopped}")


WITHOUT_PLAN: tuple[Rule, ...] = (instance_hash, reason)
RULES: tuple[Rule, ...] = (instance_hash, reason, gap, bound_side, optimal, certified, objective, status)
