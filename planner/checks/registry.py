"""The rules again, from physics alone: imports no formulation and no solver.

Limits are compared with figures recomputed from the decisions, never with those that the plan states of itself.
"""

from collections.abc import Callable, Iterator

from planner.checks import claims, complete, conflicts, cost, curve, proofs
from planner.checks.joint import rules as joint
from planner.checks.network import asked, cables, fabric, fabric_alone, placement, shared_links, wan_gateway
from planner.checks.reliability import rules as reliability
from planner.checks.rule import Rule, broken
from planner.checks.site import power_flow, run, sites, wan
from planner.checks.training import heterogeneous, layout, model_choice
from planner.instance.instance import FabricInstance
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Violation
from planner.plan.plan import Plan

SECTIONS: dict[str, tuple[Rule, ...]] = {
    "sites": (*sites.RULES, *power_flow.RULES),
    "wan": wan.RULES,
    "layout": layout.RULES,
    "pools": heterogeneous.RULES,
    "fabric": (*fabric.RULES, *asked.RULES, *wan_gateway.RULES, *shared_links.RULES, *cables.RULES),
    "placement": placement.RULES,
    "reliability": reliability.RULES,
    "cost": cost.RULES,
    "run": run.RULES,
    "choice": model_choice.RULES,
    "curve": curve.RULES,
    "proofs": (*proofs.RULES, *claims.RULES, *joint.RULES),
}


def check(plan: Plan, *, stop: Callable[[], bool] = lambda: False) -> list[Violation]:
    """Return every rule that the plan breaks, with both of its sides in numbers; nothing where it breaks none.

    Once `stop` is true the columns that the bound rests on are looked at no further; every other rule is checked.
    """
    return list(violations(plan, stop=stop))


def violations(plan: Plan, *, stop: Callable[[], bool] = lambda: False) -> Iterator[Violation]:
    """Yield the rules that the plan breaks one by one, as `check` has them."""
    c = PlanPhysics(plan=plan, stop=stop)
    if isinstance(plan.instance, FabricInstance):
        yield from _run("fabric", fabric_alone.RULES, c)
        return
    for rules in (complete.INSTANCE_RULES, complete.MACHINE_RULES):  # without these nothing else can be computed
        found = list(_run("instance", rules, c))
        yield from found
        if found:
            return
    if plan.status in ("infeasible", "unknown"):
        yield from _run("proofs", (*proofs.WITHOUT_PLAN, *conflicts.RULES), c)
        return
    yield from _run("plan", complete.PLAN_RULES, c)
    for section, rules in SECTIONS.items():
        yield from _run(section, rules, c)


def _run(section: str, rules: tuple[Rule, ...], c: PlanPhysics) -> Iterator[Violation]:
    """Run rules one by one; figures that no arithmetic holds for break a rule like any other.

    A defect of a rule itself is reported as the rule `checker`, and hides nothing that the others find.
    """
    for rule in rules:
        try:
            yield from rule(c)
        except (ArithmeticError, ValueError) as error:
            yield broken(f"{section}.{rule.__name__}", f"cannot be recomputed from the figures stated: {error}")
        except Exception as error:
            yield broken("checker", f"{section}.{rule.__name__} failed: {type(error).__name__}: {error}")
