"""A plan at hand as the start of a solve: the column to price first, and the plan itself where it is still one."""

from planner.checks.check_plan import check
from planner.instance.instance import Instance, instance_sha256
from planner.models.joint.space import Strategy
from planner.models.joint.split import Column
from planner.models.joint.world import World
from planner.plan.plan import Plan
from planner.plan.plan_sections import LayoutPlan
from planner.solvers.outcome import relative_gap

SECTIONS = ("sites", "wan", "layout", "fabric", "placement")


def column_of(layout: LayoutPlan, world: World) -> Column | None:
    """Return the column of a layout in the declared space of an instance; None where it is not in it."""
    stages, virtual = layout.pipeline_parallel, layout.virtual_stages
    for strategy in world.strategies():
        if not _cuts(strategy, layout):
            continue
        pipelines = strategy.pipelines
        if (
            bool(((pipelines.p == stages) & (pipelines.v == virtual)).any())
            and layout.zero_stage in strategy.problem.zero_stages
        ):
            replicas, filling = layout.data_parallel, layout.microbatches_per_step
            return Column(strategy=strategy, zero=layout.zero_stage, p=stages, v=virtual, d=replicas, m=filling)
    return None


def _cuts(strategy: Strategy, layout: LayoutPlan) -> bool:
    """Return whether a strategy cuts a layer, and shares racks, as a layout does."""
    shape = strategy.shape
    same = (
        (shape.tensor_parallel, layout.tensor_parallel),
        (shape.tensor_inner, layout.tensor_parallel_inner),
        (shape.context_parallel, layout.context_parallel),
        (shape.expert_parallel, layout.expert_parallel),
        (shape.micro_batch, layout.microbatch_sequences),
        (shape.sequence_parallel, layout.sequence_parallel),
        (strategy.order, layout.schedule),
    )
    if any(one != other for one, other in same):
        return False
    kept = shape.recompute == layout.recompute and strategy.recomputes != "some"
    kept = strategy.recomputes != "none" if layout.recompute == "full" else kept
    block = strategy.block(layout.pipeline_parallel) if kept else None
    return block is not None and block.stages_per_rack == layout.stages_per_rack


def carried(plan: Plan, instance: Instance) -> Plan | None:
    """Return a plan as one of another instance, without a bound; None where it breaks a rule of it.

    Nothing is assumed: every figure and limit is checked anew under that instance.
    """
    if plan.layout is None or plan.objective.name != instance.objective.minimize:
        return None
    sections = {name: getattr(plan, name) for name in SECTIONS}
    unproven = {"status": "feasible", "bound": None, "gap": None, "checked": "", "seconds": 0.0}
    changed = {
        name: section.model_copy(update={"certificate": section.certificate.model_copy(update=unproven)})
        for name, section in sections.items()
        if section
    }
    none = dict.fromkeys(("bound", "gap", "joint_bound", "joint_gap", "fabric_free_bound", "limited_by", "cheaper"))
    none = {**none, "ends": ()}
    found = plan.model_copy(
        update={
            "instance": instance,
            "instance_sha256": instance_sha256(instance),
            "status": "feasible",
            "objective": plan.objective.model_copy(update=none),
            "proof": None,
            "curve": None,
            "stopped": "limit",
            "verified": True,
            "violations": (),
            **changed,
        }
    )
    return None if check(found) else found


def better_of(found: Plan, start: Plan | None) -> Plan:
    """Return the start in place of what a search that was cut short found, where it is better."""
    if start is None or found.stopped not in ("limit", "interrupted") or found.status not in ("unknown", "feasible"):
        return found
    value, own = start.objective.value, found.objective.value
    if value is None or (own is not None and own <= value):
        return found
    bound = found.objective.bound
    objective = start.objective
    if bound is not None and own is not None:
        gap = relative_gap(value, bound)
        objective = objective.model_copy(update={"bound": bound, "gap": gap, "joint_bound": bound, "joint_gap": gap})
    kept = ("stopped", "threads", "seed", "time_limit_seconds", "planner_version")
    return start.model_copy(update={"objective": objective, **{name: getattr(found, name) for name in kept}})
