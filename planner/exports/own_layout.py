"""A layout given in full as a plan's file: what `compare`, `report` and `check` take beside plans that were solved."""

from planner.checks.cost import recomputed
from planner.instance.instance import Instance, instance_sha256
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import run_cost
from planner.plan.certificate import ObjectiveValue
from planner.plan.layout import LayoutPlan
from planner.plan.plan import Plan
from planner.version import __version__

OTHER_DECISIONS = ("grid", "wan", "network", "reliability")


def layout_question(instance: Instance, gpus: int) -> Instance:
    """Return an instance without the decisions that a layout alone does not take, on the racks of so many GPUs."""
    hardware = instance.hardware
    rack = hardware.rack
    racks = hardware.racks if isinstance(rack, str) else hardware.racks or -(-gpus // rack.gpus)
    own = hardware.model_copy(update={"racks": racks})
    pins = {path: value for path, value in instance.pins.items() if path.startswith("layout.")}
    without = dict.fromkeys(OTHER_DECISIONS)
    return instance.model_copy(update=without | {"hardware": own, "pins": pins})


def plan_of_layout(instance: Instance, layout: LayoutPlan) -> Plan:
    """Return the plan of a layout that nothing was searched for: feasible at best, without a bound."""
    name, value = "days_to_train", layout.metrics.days_to_train
    objective = instance.objective.model_copy(update={"minimize": name})
    asked = instance.model_copy(update={"objective": objective})
    plan = Plan(
        planner_version=__version__,
        instance=asked,
        instance_sha256=instance_sha256(asked),
        status="feasible",
        objective=ObjectiveValue(name=name, value=value, bound=None, gap=None),
        layout=layout,
        stopped="limit",
    )
    money = recomputed(plan, PlanPhysics(plan=plan))
    run = None if money is None else run_cost.section(asked, value, money, asked.hardware.racks or 0)
    return plan.model_copy(update={"cost": money, "run": run})
