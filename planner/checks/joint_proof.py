"""Rules of the joint optimum's proof: racks, prices, excluded columns, bounds, and columns that it leaves out."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np

from planner.checks.fabric import joined_racks
from planner.checks.rule import Violations, at_most, broken, must_be, must_equal, needs, show
from planner.checks.strategy_space_check import Cut, CutPipelines, Space, max_racks, max_sites, most_racks
from planner.checks.strategy_times_check import StepTimeBound, columns_in_time, fastest_ranges, witness
from planner.instance.grid import Grid
from planner.instance.hardware import DAYS_A_MONTH, hardware_kind
from planner.instance.instance import Instance
from planner.physics.network.fabric_cost import min_fabric
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.operations import LayerShape
from planner.physics.training.parallel_strategy import LAYOUT_KEYS, RackBlock, block_of
from planner.plan.certificate import AlternativeProof, ExcludedColumn, JointProof
from planner.plan.plan import Plan
from planner.plan.plan_sections import LayoutPlan

ROUNDING = 1e-9  # relative: days that differ by less are the same
MOST_NAMED = 20  # columns; a proof that misses as many is wrong in the same way for the rest
RULE = "joint_columns"

Key = tuple[Any, ...]
Cuts = list[tuple[float, Cut, CutPipelines]]  # each with the floor of its columns in seconds a sequence
Listed = dict[Key, list[ExcludedColumn]]
CUT = (*(LAYOUT_KEYS.get(choice.name, choice.name) for choice in fields(LayerShape)), "schedule")
NAMES = (*CUT, "zero_stage", "pipeline_parallel", "virtual_stages", "stages_per_rack")


def name_of(key: Key) -> str:
    """Name a column of a checked joint proof in words: degrees of parallelism, schedule, ZeRO stage, recomputation."""
    tensor, batch, recompute, together, context, expert, inner, overlap, schedule, zero, p, v, q = key
    several = [f"{name} {degree}" for name, degree in (("CP", context), ("EP", expert)) if degree > 1]
    degrees = " x ".join([f"TP {tensor}" + f" (inner {inner})" * (inner > 1), *several, f"PP {p}"])
    always = degrees, f"v {v}", f"micro-batch {batch}", f"ZeRO {zero}", schedule, f"recompute {recompute}"
    marks = {"sequence parallel": together, "experts' exchange exposed": not overlap, f"{q} stages a rack": q > 1}
    return ", ".join([*always, *(mark for mark, own in marks.items() if own)])


def missing_columns(
    space: Space, days: float, proof: JointProof, stop: Callable[[], bool] = lambda: False
) -> Violations:
    """Check that no column of the declared space is below a proof's bound in days, but for those that it lists.

    A column is a way to cut the model, at any number of replicas that the money may buy; its least time is that of
    every split of layers that memory holds, on a network that nothing slows but the transport, with free fibre. Cuts
    with the lowest floors come first. Once `stop` is true, no further column is looked at.
    """
    if days <= 0 and not proof.columns:  # a search cut short may know no more: no column is below that
        return
    racks, limit = most_racks(space.instance, proof), days / space.days_a_second * (1 - ROUNDING)
    listed: Listed = defaultdict(list)
    unmet = defaultdict[Key, set[Key]](set)  # listed columns by cut, until the space is found to have them
    for column in proof.columns:
        key = tuple(getattr(column, name) for name in NAMES)
        listed[key].append(column)
        unmet[key[: len(CUT)]].add(key)
    found: list[tuple[float, Cut, CutPipelines]] = []
    for cut in space.cuts():
        if stop():
            return
        pipelines, own = cut.pipelines, unmet[cut.key]
        for key in list(own):
            zero, p, v, per_rack = key[len(CUT) :]
            same = (pipelines.p == p) & (pipelines.v == v) & (pipelines.stages_per_rack == per_rack)
            if zero in space.zero_stages and np.any(same & space.runs(zero, pipelines.p)):
                own.remove(key)
        floor = StepTimeBound(cut=cut, zero_stage=None, ranges=fastest_ranges(cut, pipelines, racks, limit))
        ranges = floor.in_time(limit) if len(floor.ranges) else floor.ranges
        if len(ranges):
            found.append((float(floor.seconds.min()), cut, ranges))
    yield from _columns_below(space, found, days, listed, stop)
    for key in () if stop() else listed:
        if key in unmet[key[: len(CUT)]]:
            yield broken(RULE, f"{name_of(key)}: listed by the proof, and not in the declared space (0 such columns)")


def _columns_below(space: Space, cuts: Cuts, days: float, listed: Listed, stop: Callable[[], bool]) -> Violations:
    """Yield violations by columns faster than a proof's bound, at most `MOST_NAMED`, lowest floors first."""
    wrong, limit = set[Key](), days / space.days_a_second * (1 - ROUNDING)
    for _, cut, ranges in sorted(cuts, key=lambda entry: entry[0]):
        for zero in space.zero_stages:
            runs = ranges.part(np.flatnonzero(space.runs(zero, ranges.p)))
            for some in columns_in_time(cut, zero, runs, limit, stop):
                for pipelines, replicas, micro_batches in some.columns():
                    key = (*cut.key, zero, *map(int, (pipelines.p, pipelines.v, pipelines.stages_per_rack)))
                    if key in wrong:
                        continue
                    own = listed.get(key, ())
                    stated = [one for one in own if one.min_data_parallel <= replicas <= one.max_data_parallel]
                    bound = max((one.lower_bound_days for one in stated), default=days)
                    stretch = space.failures.column_stretch(replicas, int(pipelines.p) * cut.shape.gpus)
                    per_batch = replicas * cut.shape.micro_batch / stretch
                    below = min(days, bound) / space.days_a_second * (1 - ROUNDING) * per_batch
                    counts = space.counts(cut.shape, pipelines, replicas, micro_batches)
                    found = witness(cut, zero, pipelines, replicas, counts, below) if len(counts) else None
                    if found is not None:
                        wrong.add(key)
                        own_days = show(found[1] / per_batch * space.days_a_second)
                        what = f"{show(bound)}, the lower_bound_days that the proof states for it"
                        what = what if stated else f"{show(days)}, the bound, and the proof does not list it"
                        column = f"{own_days} days with {replicas:,} replicas and {found[0]:,} micro-batches"
                        yield broken(RULE, f"{name_of(key)}: {column} on a free network < {what}")
                    if len(wrong) >= MOST_NAMED or stop():
                        return


def joined_racks_stated(instance: Instance, proof: JointProof) -> Violations:
    """Check that no fabric can be wired for more racks of a site than the joint proof says are joined at most."""
    for gpus, most in sorted(proof.joined_racks_by_wired_gpus.items()):
        sides = f"racks that a fabric joins with {gpus} cabled", "joined at most by the proof"
        yield from at_most(f"joined_racks_stated[{gpus}]", joined_racks(instance, gpus), most, *sides)


def max_racks_stated(
    instance: Instance, proof: JointProof, *, racks_in_use: int = 0, wired_gpus: int = 0
) -> Violations:
    """Check a proof's most racks against arithmetic, fewer GPUs cabled, and the plan's; the rest is on trust."""
    stated = sorted(proof.max_racks_by_wired_gpus.items())
    for gpus, most in stated:
        rule, what, limit = f"max_racks_stated[{gpus}]", f"racks at most with {gpus} cabled", max_racks(instance, gpus)
        yield from at_most(rule, most, limit, what, "racks by budget, power and sites")
        if instance.grid is None:
            yield from must_equal(rule, "racks of a cluster without a grid", most, limit)
        if gpus <= wired_gpus:
            yield from at_most(rule, racks_in_use, most, f"racks in use with {wired_gpus} GPUs of each cabled", what)
    for (low, more), (high, fewer) in pairwise(stated):
        sides = f"racks with {high} cabled", f"racks with {low} cabled"
        yield from at_most(f"max_racks_stated[{high}]", fewer, more, *sides)


def proof_violations(
    physics: PlanPhysics,
    asked: Instance,
    proof: JointProof,
    days: float | None,
    bound: float | None,
    *,
    racks_in_use: int = 0,
    wired_gpus: int = 0,
) -> Violations:
    """Check a joint proof of days to train: `days`, a plan's value; `bound`, the claimed bound of every plan."""
    usd = proof.min_fabric_usd_per_wired_gpu
    if usd is not None or proof.columns or proof.max_racks_by_wired_gpus or proof.counts:  # else no price is needed
        wanted = min_fabric(asked.network).usd if asked.network is not None else None
        yield from must_equal("min_fabric_stated", "cheapest link and leaf port of a GPU", usd, wanted, " USD")
    rule, free, every = "joint_bounds", proof.fabric_free_bound_days, "days, the bound over every fabric"
    yield from at_most(rule, bound, days, "days, the bound", "days, the value")
    if free is not None and asked.grid is None:  # a dearer fabric may join racks that the money leaves apart
        few, all_racks = max_racks(asked, wired_gpus), min(asked.hardware.racks or 0, joined_racks(asked, wired_gpus))
        yield from at_most(rule, all_racks, few, "racks, for a bound over every fabric", "racks that can be cabled")
    for column, times in Counter(proof.columns).items():
        if times > 1:
            yield broken(rule, f"a column of PP {column.pipeline_parallel} is listed {times} times > 1")
    for i, listed in enumerate(proof.columns):
        low, high, what = listed.min_data_parallel, listed.max_data_parallel, "days, the bound of a listed column"
        if not 1 <= low <= high:
            yield broken(f"{rule}[{i}]", f"replicas from {low:,} to {high:,} are none")
        yield from at_most(f"{rule}[{i}]", free, listed.lower_bound_days, every, what)
    yield from at_most(rule, free, bound, every, "days, the bound")
    yield from joined_racks_stated(asked, proof)
    stated = list(max_racks_stated(asked, proof, racks_in_use=racks_in_use, wired_gpus=wired_gpus))
    yield from stated
    if bound is None:
        return
    if asked.limits.max_batch_tokens is None:
        yield broken(RULE, f"a bound of {bound:g} days with limits.max_batch_tokens absent, a figure needed")
        return
    if stated:  # wrong figures would hide columns
        proof = proof.replaced(max_racks_by_wired_gpus={})
    space = Space(instance=asked, transport_slowdown=physics.transport_slowdown)
    yield from missing_columns(space, bound, proof, stop=physics.stop)


def _block(physics: PlanPhysics, layout: LayoutPlan) -> tuple[RackBlock | None, int]:
    """Recompute the block of racks that holds whole replicas of a layout, and the racks of the blocks in use."""
    packed = {name: getattr(layout, name) for name in ("pipeline_parallel", "stages_per_rack", "replicas_per_rack")}
    block = block_of(physics.gpus_per_rack, layout.degrees, **packed)
    return block, sum(block.racks * block.blocks(count) for count in physics.replicas.values()) if block else 0


def highest_bound(plan: Plan) -> float | None:
    """Return the highest bound in days that a plan states anywhere, for the check; None where it states none."""
    objective, decisions = plan.objective, (plan.layout, plan.fabric, plan.placement)
    stated = [objective.bound, objective.joint_bound, objective.fabric_free_bound]
    stated += [decision.certificate.bound for decision in decisions if decision]
    return max((bound for bound in stated if bound is not None), default=None)


@needs("layout")
def joint_proof(physics: PlanPhysics, layout: LayoutPlan) -> Violations:
    """Check every bound that a plan states in days by its joint proof; without one only arithmetic supports it."""
    plan, goal = physics.plan, physics.instance.objective.minimize
    proof, objective = plan.proof or JointProof(), plan.objective
    # A layout under the goal loss is the fastest of the chosen model, whose loss the objective is.
    bound = highest_bound(plan) if goal == "days_to_train" else layout.certificate.bound
    if goal not in ("days_to_train", "loss") or (plan.proof is None and bound is None):
        return
    (block, racks), network = _block(physics, layout), physics.instance.network
    if block is None:
        tensor, context, _ = layout.degrees
        yield broken("joint_proof", f"TP {tensor} x CP {context} on racks of {physics.gpus_per_rack} GPUs: no block")
        return
    days: float | None = layout.metrics.days_to_train
    if goal == "days_to_train":
        days, what = objective.value, "bound over every fabric of the objective and of its proof"
        yield from must_equal("joint_bounds", what, objective.fabric_free_bound, proof.fabric_free_bound_days, " days")
    wired = physics.gpus_per_rack if network is not None and network.spares.asked else block.rails
    yield from proof_violations(physics, physics.instance, proof, days, bound, racks_in_use=racks, wired_gpus=wired)


def _none_is_sooner(
    physics: PlanPhysics, rule: str, asked: Instance, own: AlternativeProof | None, bound: float
) -> Violations:
    """Check by a question's proof that no plan of it trains in fewer days than a bound, at most the deadline."""
    bound = min(max(0.0, bound), physics.instance.limits.deadline_days or math.inf)
    proof, layout = physics.plan.proof or JointProof(), physics.plan.layout
    days = layout.metrics.days_to_train if layout is not None else None
    if own is not None:
        yield from must_equal(rule, "days, the bound", own.bound_days, bound)
        yield from at_most(rule, bound, own.least_days, "days, the bound", "fewest days of this question")
        usd, days = proof.min_fabric_usd_per_wired_gpu, own.least_days
        proof = own.proof.replaced(min_fabric_usd_per_wired_gpu=usd)
    if bound > 0:
        yield from proof_violations(physics, asked, proof, days, bound)


def alternatives(physics: PlanPhysics) -> Violations:
    """Check by the proof of each alternative GPU and rack that no plan on it ends before the bound."""
    rule, objective, hardware = "alternatives", physics.plan.objective, physics.instance.hardware
    if physics.plan.layout is not None:
        name, stated = hardware_kind(hardware)[0] if hardware.alternatives else "", physics.plan.layout.accelerator
        yield from must_be(rule, "layout.accelerator", stated, name)
    if physics.plan.proof is None or objective.name != "days_to_train" or objective.bound is None or physics.faults:
        return
    proven = physics.plan.proof.alternatives
    yield from must_be(rule, "alternatives that are proven", len(proven), len(hardware.alternatives))
    for i, (alternative, own) in enumerate(zip(hardware.each_alone()[1:], proven, strict=False)):
        yield from must_be(f"{rule}[{i}]", "GPU and rack", (own.accelerator, own.rack), hardware_kind(alternative))
        asked = physics.instance.replaced(hardware=alternative)
        later = (alternative.ready_months - hardware.ready_months) * DAYS_A_MONTH
        yield from _none_is_sooner(physics, f"{rule}[{i}]", asked, own, objective.bound - later)


def questions_by_start(instance: Instance) -> Iterator[tuple[tuple[str, str, float], Instance]]:
    """Yield the questions that a proof of the goal finish_date answers, by GPU, rack and months to wait at most.

    Each leaves out the sites, new lines and upgrades that come later, the last of a GPU nothing; together they have
    every plan, as what a plan waits for becomes ready at one of these months.
    """
    grid = instance.grid or Grid(balancing_authorities=(), nodes=())
    leads = [node.upgrade.lead_months for node in grid.nodes if node.upgrade]
    leads += [line.lead_months for line in grid.new_lines]
    leads += [node.ready_months for node in grid.nodes if node.site]
    latest = math.inf if grid.rules.ready_within_months is None else grid.rules.ready_within_months
    for hardware in instance.hardware.each_alone():
        asked, own_months = instance.replaced(hardware=hardware), hardware.ready_months
        waits = {max(own_months, lead) for lead in leads if lead <= latest} or {own_months}
        for months in sorted(waits):
            one = asked if months == max(waits) else asked.replaced(grid__rules__ready_within_months=months)
            yield (*hardware_kind(hardware), months), one


@needs("layout")
def starts(physics: PlanPhysics, _: LayoutPlan) -> Violations:
    """Check by a proof for each GPU and each start month, the plan's own among them, that no plan finishes earlier."""
    proof, bound = physics.plan.proof, highest_bound(physics.plan)
    if physics.plan.objective.name != "finish_date" or bound is None:
        return
    if proof is None:
        yield broken("starts", f"a bound of {show(bound)} days without a proof")
        return
    questions = dict(questions_by_start(physics.instance))
    stated = {(own.accelerator, own.rack, own.ready_within_months): own for own in proof.alternatives}
    without = [key for key in questions if key not in stated]
    if len(without) != 1 or len(proof.alternatives) + 1 != len(questions):
        found = f"{len(proof.alternatives) + 1} proofs, {len(without)} questions without one of their own"
        yield broken("starts", f"{found}; one for each of {len(questions)} expected, the plan's own among them")
        return
    for key, asked in questions.items():
        sooner = bound - key[2] * DAYS_A_MONTH
        yield from _none_is_sooner(physics, f"starts[{key[2]:g}]", asked, stated.get(key), sooner)


@needs("layout")
def limited_by(physics: PlanPhysics, layout: LayoutPlan) -> Violations:
    """Check by the joint proof what the objective says limits a plan: exactly for a cluster; else limit by limit."""
    objective, (block, racks) = physics.plan.objective, _block(physics, layout)
    stated, more = objective.limited_by, racks + block.racks if block is not None else 0
    if stated == "tolerance":
        value = objective.value or 0.0
        fastest = objective.ends[0].value if objective.ends else value
        if not fastest < value:
            yield broken("limited_by", f"tolerance stated, of the fastest plan: {show(fastest)} and {show(value)} days")
        return
    fabric, joined = physics.plan.fabric, math.inf
    if fabric is not None and physics.plan.proof is not None:  # which is held against designs that join more
        wired = physics.wired_gpus_per_rack(next(iter(fabric.sites)))
        joined = physics.plan.proof.joined_racks_by_wired_gpus.get(wired, math.inf)
    if stated is not None and physics.instance.grid is None:
        owned = physics.instance.hardware.racks or 0
        end = "owned_racks" if more > owned else "fabric" if more > joined else "layout"
        yield from must_be("limited_by", "limited_by", stated, end)
    elif stated == "fabric" and block is not None:
        largest = block.racks * (racks // block.racks // max_sites(physics.instance) + 1)
        if largest <= joined:
            makes = f"one more block makes {largest:,} racks of a site <= {joined:,.0f} joined"
            yield broken("limited_by", f"fabric stated, but {makes}")
    elif stated in ("owned_racks", "fabric") or (stated == "budget" and physics.instance.limits.budget_usd is None):
        yield broken("limited_by", f"{stated} stated, of a grid without such a limit")
    elif stated == "layout" and block is not None:
        most = max_racks(physics.instance, block.rails)
        yield from at_most("limited_by", more, most, "racks with a further block", "racks by budget, power and sites")


RULES = (joint_proof, alternatives, starts, limited_by)
