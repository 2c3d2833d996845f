"""Rules of the joint optimum's proof: its racks, its prices, the columns that it excludes, and its bounds."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from planner.checks.joint import racks
from planner.checks.joint.missing import missing_columns
from planner.checks.rule import Rule, at_most, broken, must_be, must_equal
from planner.instance.instance import Instance
from planner.physics.network.price import min_fabric_usd
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.blocks.rack_blocks import Block, block_of
from planner.plan.certificate import Violation
from planner.plan.layout import LayoutPlan
from planner.plan.plan import Plan
from planner.plan.proof import JointProof


def max_racks_stated(
    instance: Instance, proof: JointProof, *, racks_in_use: int, wired_gpus: int
) -> Iterator[Violation]:
    """Check that the most racks of a proof are within arithmetic's, fall with GPUs cabled, and hold the plan's.

    Between the two they are on trust: the sites' MILP found them, and no rule here knows lines and flows together.
    """
    stated = dict(sorted(proof.max_racks_by_wired_gpus.items()))
    for w, most in stated.items():
        rule = f"max_racks_stated[{w}]"
        what = f"racks at most with {w} GPUs of each cabled"
        yield from at_most(rule, most, racks.max_racks(instance, w), what, "racks by budget, power and sites")
        if instance.grid is None:
            yield from must_equal(rule, "racks of a cluster without a grid", most, racks.max_racks(instance, w))
        if w <= wired_gpus:
            yield from at_most(rule, racks_in_use, most, f"racks in use with {wired_gpus} GPUs of each cabled", what)
    for (a, more), (b, fewer) in pairwise(stated.items()):
        yield from at_most(f"max_racks_stated[{b}]", fewer, more, f"racks with {b} cabled", f"racks with {a} cabled")


def min_fabric_stated(instance: Instance, proof: JointProof) -> Iterator[Violation]:
    """Check that the least price of a cabled GPU is that of the cheapest link and leaf port."""
    usd = proof.min_fabric_usd_per_wired_gpu
    what = "cheapest link and leaf port of a GPU"
    if usd is None and not (proof.columns or proof.max_racks_by_wired_gpus or proof.counts):
        return  # a proof of nothing needs no price
    wanted = min_fabric_usd(instance.network) if instance.network is not None else None
    yield from must_equal("min_fabric_stated", what, usd, wanted, " USD")


def bounds_in_order(days: float | None, bound: float | None, proof: JointProof) -> Iterator[Violation]:
    """Check that the bound over every fabric is within that of every listed column, within the bound and the value."""
    rule, free = "joint_bounds", proof.fabric_free_bound_days
    if bound is not None and days is not None:
        yield from at_most(rule, bound, days, "days, the bound", "days, the value")
    for a, times in Counter(proof.columns).items():
        if times > 1:
            yield broken(rule, f"a column of PP {a.pipeline_parallel} is listed {times} times > 1")
    for i, c in enumerate(proof.columns):
        if not 1 <= c.min_data_parallel <= c.max_data_parallel:
            yield broken(f"{rule}[{i}]", f"replicas from {c.min_data_parallel:,} to {c.max_data_parallel:,} are none")
        if free is not None:
            what = "days, the lower bound of a listed column"
            yield from at_most(f"{rule}[{i}]", free, c.lower_bound_days, "days, the bound over every fabric", what)
    if free is not None and bound is not None:
        yield from at_most(rule, free, bound, "days, the bound over every fabric", "days, the bound")


def proof_violations(
    instance: Instance,
    proof: JointProof,
    *,
    days: float | None,
    bound: float | None,
    racks_in_use: int,
    wired_gpus: int,
    transport_slowdown: float,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Violation]:
    """Check a proof of days to train: `days` is the plan's value, `bound` what the proof claims of every plan."""
    yield from min_fabric_stated(instance, proof)
    yield from bounds_in_order(days, bound, proof)
    stated = list(max_racks_stated(instance, proof, racks_in_use=racks_in_use, wired_gpus=wired_gpus))
    yield from stated
    if bound is None:
        return
    if instance.limits.max_batch_tokens is None:
        yield broken("joint_columns", f"a bound of {bound:g} days with limits.max_batch_tokens absent, a figure needed")
        return
    if stated:  # wrong figures would hide columns
        proof = proof.model_copy(update={"max_racks_by_wired_gpus": {}})
    yield from missing_columns(instance, bound, proof, transport_slowdown=transport_slowdown, stop=stop)


def block_of_layout(gpus: int, layout: LayoutPlan) -> Block | None:
    """Return the block of racks that holds whole replicas of a layout."""
    return block_of(
        gpus,
        tensor_parallel=layout.tensor_parallel,
        context_parallel=layout.context_parallel,
        expert_parallel=layout.expert_parallel,
        pipeline_parallel=layout.pipeline_parallel,
        stages_per_rack=layout.stages_per_rack,
        replicas_per_rack=layout.replicas_per_rack,
    )


def racks_used(block: Block, replicas_by_site: Mapping[str, int]) -> int:
    """Return the racks of the blocks that work."""
    return sum(block.racks * block.blocks(d) for d in replicas_by_site.values())


def highest_bound(plan: Plan) -> float | None:
    """Return the highest bound in days that a plan states anywhere; None where it states none."""
    o, decisions = plan.objective, (plan.layout, plan.fabric, plan.placement)
    stated = [o.bound, o.joint_bound, o.fabric_free_bound, *(x.certificate.bound for x in decisions if x)]
    return max((b for b in stated if b is not None), default=None)


def joint_proof(c: PlanPhysics) -> Iterator[Violation]:
    """Check every bound that a plan states in days; one without a proof has only arithmetic to rest on."""
    proof, layout, bound = c.plan.proof or JointProof(), c.plan.layout, highest_bound(c.plan)
    in_days = c.instance.objective.minimize == "days_to_train"
    if layout is None or c.faults or (not in_days and c.instance.objective.minimize != "loss"):
        return
    if not in_days:  # the layout is the fastest of the chosen model, whose loss the objective is
        bound = layout.certificate.bound
    if c.plan.proof is None and bound is None:
        return
    block = block_of_layout(c.gpus_per_rack, layout)
    if block is None:
        racks_are = f"racks of {c.gpus_per_rack} GPUs"
        yield broken(
            "joint_proof", f"TP {layout.tensor_parallel} x CP {layout.context_parallel} on {racks_are}: no block"
        )
        return
    o, network = c.plan.objective, c.instance.network
    days = o.value if in_days else layout.metrics.days_to_train
    spares = network is not None and (network.spares.share > 0 or network.spares.failure_chance > 0)
    what = "bound over every fabric of the objective and of its proof"
    if in_days:
        yield from must_equal("joint_bounds", what, o.fabric_free_bound, proof.fabric_free_bound_days, " days")
    yield from proof_violations(
        c.instance,
        proof,
        days=days,
        bound=bound,
        racks_in_use=racks_used(block, c.replicas),
        wired_gpus=c.gpus_per_rack if spares else block.rails,
        transport_slowdown=c.transport_slowdown,
        stop=c.stop,
    )


def limited_by(c: PlanPhysics) -> Iterator[Violation]:
    """Check what a plan says ends it: exactly for a cluster; of a grid what budget, power and sites say one by one."""
    stated, layout = c.plan.objective.limited_by, c.plan.layout
    if stated is None or layout is None or c.faults:
        return
    block, owned = block_of_layout(c.gpus_per_rack, layout), c.instance.hardware.racks or 0
    more = 0 if block is None else racks_used(block, c.replicas) + block.racks
    if c.instance.grid is None:
        yield from must_be("limited_by", "limited_by", stated, "owned_racks" if more > owned else "layout")
    elif stated == "owned_racks" or (stated == "budget" and c.instance.limits.budget_usd is None):
        yield broken("limited_by", f"{stated} stated, of a grid without such a limit")
    elif stated == "layout" and block is not None:
        most = racks.max_racks(c.instance, block.rails)
        yield from at_most("limited_by", more, most, "racks with a further block", "racks by budget, power and sites")


RULES: tuple[Rule, ...] = (joint_proof, limited_by)
