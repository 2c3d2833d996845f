"""Check a plan: run every rule again, from physics alone and without a solver, and list all that the plan breaks.

Limits are compared with figures recomputed from the decisions, never with those that the plan states of itself.
"""

from collections.abc import Callable

from planner.checks import certificates, cost_and_curve, fabric, joint_proof, layout, placement, power_flow, reliability
from planner.checks import sites as site_rules
from planner.checks.cables import CABLE_RULES
from planner.checks.conflict import CONFLICT_RULES
from planner.checks.fabric_traffic import WAN_GATEWAY_RULES
from planner.checks.rule import Rule, Violations, broken
from planner.instance.consistency import grid_problems, pool_problems, wan_problems
from planner.instance.instance import FabricInstance
from planner.instance.pins import check_pins
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.step_prediction import machine_of
from planner.plan.certificate import Violation
from planner.plan.plan import Plan

SECTIONS: dict[str, tuple[Rule, ...]] = {
    "sites": (*site_rules.RULES, *power_flow.RULES),
    "wan": site_rules.WAN_RULES,
    "layout": layout.RULES,
    "pools": layout.POOL_RULES,
    "fabric": (*fabric.RULES, *WAN_GATEWAY_RULES, *CABLE_RULES),
    "placement": placement.RULES,
    "reliability": reliability.RULES,
    "cost": cost_and_curve.RULES,
    "run": cost_and_curve.RUN_RULES,
    "choice": layout.CHOICE_RULES,
    "curve": cost_and_curve.CURVE_RULES,
    "proofs": (*certificates.RULES, *joint_proof.RULES),
}


def check(plan: Plan, *, stop: Callable[[], bool] = lambda: False) -> list[Violation]:
    """Return every rule that a plan breaks, in numbers; `stop` ends only the check of the columns below its bound."""
    return list(violations(plan, stop=stop))


def violations(plan: Plan, *, stop: Callable[[], bool] = lambda: False) -> Violations:
    """Yield the rules that a plan breaks one by one, as `check` returns them."""
    physics, sections = PlanPhysics(plan=plan, stop=stop), {"plan": (complete,)} | SECTIONS
    if isinstance(plan.instance, FabricInstance):
        sections = {"fabric": fabric.ALONE}
    else:
        found = list(_run("instance", (known_references,), physics))
        yield from found
        if found:  # nothing else can be computed
            return
        if plan.status in ("infeasible", "unknown"):
            sections = {"proofs": (*certificates.WITHOUT_PLAN, *CONFLICT_RULES)}
    for section, of_section in sections.items():
        yield from _run(section, of_section, physics)


def _run(section: str, rules: tuple[Rule, ...], physics: PlanPhysics) -> Violations:
    """Run the rules of a plan's section; failing arithmetic breaks a rule, a rule's defect is reported as `checker`."""
    for rule in rules:
        try:
            yield from rule(physics)
        except (ArithmeticError, ValueError) as error:
            yield broken(f"{section}.{rule.__name__}", f"cannot be recomputed from the figures stated: {error}")
        except Exception as error:
            yield broken("checker", f"{section}.{rule.__name__} failed: {type(error).__name__}: {error}")


def known_references(physics: PlanPhysics) -> Violations:
    """Check a plan before its rules: names of its grid, wide area, pins exist, and its GPU's precision has a peak."""
    instance = physics.instance
    faults = [*check_pins(instance), *pool_problems(instance), *grid_problems(physics.grid)]
    faults += wan_problems(physics.grid, physics.wan)
    yield from (broken("known_references", f"instance.{fault}") for fault in faults)
    machine = machine_of(instance)
    if not faults and machine.precision.compute not in machine.gpu.peak_flop_per_second:
        known = ", ".join(sorted(machine.gpu.peak_flop_per_second)) or "0 types"
        yield broken("peak_known", f"{machine.gpu.name} has no peak for {machine.precision.compute}, only for {known}")


def complete(physics: PlanPhysics) -> Violations:
    """Check that a plan has a section for every decision that its instance asks for, and no other."""
    plan, instance = physics.plan, physics.instance
    pooled, wired = bool(instance.hardware.pools), instance.network is not None
    asked = {"sites": instance.grid is not None, "layout": not pooled, "pools": pooled, "cost": True}
    for section, wanted in (asked | {"fabric": wired, "placement": wired}).items():
        present = getattr(plan, section) is not None
        if present != wanted:
            yield broken("complete", f"{section}: {int(present)} sections, {int(wanted)} asked for by the instance")
