"""Rules of the joint optimum's proof: racks, prices, excluded columns, bounds, and columns that it forgets."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np

from planner.checks import joint_columns
from planner.checks.joint_columns import Cut, CutPipelines, Ints, MaxRacks, Space
from planner.checks.layer_split import witness
from planner.checks.rule import Rule, at_most, broken, must_be, must_equal, show
from planner.checks.step_bound import CutRanges, StepTimeBound, columns_in_time, fastest_ranges
from planner.instance.hardware import DAYS_A_MONTH, HardwareAlternative, Rack
from planner.instance.instance import Instance
from planner.physics.network.fabric_designs import min_fabric_usd
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.operations import LayerShape
from planner.physics.training.parallel_strategy import LAYOUT_KEYS, RackBlock, block_of, shape_values
from planner.plan.certificate import ExcludedColumn, JointProof, Violation
from planner.plan.plan import Plan
from planner.plan.plan_sections import LayoutPlan

ROUNDING = 1e-9  # relative: days that differ by less are the same
MOST_NAMED = 20  # columns; a proof that misses as many is wrong in the same way for the rest
RULE = "joint_columns"

Key = tuple[Any, ...]


CUT = (*(LAYOUT_KEYS.get(choice.name, choice.name) for choice in fields(LayerShape)), "schedule")
NAMES = (*CUT, "zero_stage", "pipeline_parallel", "virtual_stages", "stages_per_rack")


def _cut_key(cut: Cut) -> Key:
    return (*shape_values(cut.shape).values(), cut.schedule)


def key_of(cut: Cut, zero_stage: int, pipelines: CutPipelines, i: int) -> Key:
    """Return the key of an enumerated column, without its replicas."""
    return (*_cut_key(cut), zero_stage, int(pipelines.p[i]), int(pipelines.v[i]), int(pipelines.stages_per_rack[i]))


def name_of(key: Key) -> str:
    """Name a column in words."""
    tensor, batch, recompute, together, context, expert, inner, overlap, schedule, zero, p, v, q = key
    parts = [
        f"TP {tensor}" + (f" (inner {inner})" if inner > 1 else ""),
        f"CP {context}" if context > 1 else "",
        f"EP {expert}" if expert > 1 else "",
    ]
    degrees = " x ".join([part for part in parts if part] + [f"PP {p}"])
    rest = [f"v {v}", f"micro-batch {batch}", f"ZeRO {zero}", schedule, f"recompute {recompute}"]
    rest += ["sequence parallel"] if together else []
    rest += [] if overlap else ["experts' exchange exposed"]
    rest += [f"{q} stages a rack"] if q > 1 else []
    return ", ".join([degrees, *rest])


@dataclass(kw_only=True)
class Inspection:
    """One pass over the declared space against a bound in days and the columns that a proof lists."""

    space: Space
    days: float
    listed: dict[Key, list[ExcludedColumn]]
    racks: MaxRacks
    stop: Callable[[], bool] = lambda: False
    by_cut: dict[Key, list[Key]] = field(default_factory=dict)
    met: set[Key] = field(default_factory=set)  # listed columns that the space has
    wrong: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Sort the listed columns by their cuts."""
        for key in self.listed:
            self.by_cut.setdefault(key[: len(CUT)], []).append(key)

    @property
    def limit(self) -> float:
        """Seconds a sequence of the bound."""
        return self.space.seconds_per_sequence(self.days) * (1 - ROUNDING)

    def violations(self) -> Iterator[Violation]:
        """Yield columns that are faster than the proof's bound, up to `MOST_NAMED`; cuts with the lowest floors first.

        Ends early where `stop` says so.
        """
        found: list[tuple[float, int, Cut, CutRanges]] = []
        for cut in self.space.cuts():
            if self.stop():
                return
            pipelines = cut.pipelines()
            for key in self.by_cut.get(_cut_key(cut), ()):  # note the listed columns that the space has
                zero = key[len(CUT)]
                same = (pipelines.p == key[-3]) & (pipelines.v == key[-2]) & (pipelines.stages_per_rack == key[-1])
                if zero in self.space.zero_stages and bool(np.any(same & self.space.runs(zero, pipelines.p))):
                    self.met.add(key)
            floor = StepTimeBound(
                cut=cut, zero_stage=None, ranges=fastest_ranges(cut, pipelines, self.racks, self.limit)
            )
            ranges = floor.in_time(self.limit) if len(floor.ranges) else floor.ranges
            if len(ranges):
                found.append((float(floor.seconds.min()), len(found), cut, ranges))
        for _, _, cut, ranges in sorted(found, key=lambda entry: entry[:2]):
            for zero in self.space.zero_stages:
                runs = ranges.part(np.flatnonzero(self.space.runs(zero, ranges.pipelines.p)))
                for some in columns_in_time(cut, zero, runs, self.limit, self.stop):
                    for pipelines, replicas, micro_batches in some.columns():
                        yield from self._column(cut, zero, pipelines, replicas, micro_batches)
                        if len(self.wrong) >= MOST_NAMED or self.stop():
                            return

    def _column(
        self, cut: Cut, zero: int, pipelines: CutPipelines, replicas: int, micro_batches: Ints
    ) -> Iterator[Violation]:
        key, micro_batches = (
            key_of(cut, zero, pipelines, 0),
            self.space.counts(cut.shape, pipelines, replicas, micro_batches),
        )
        if key in self.wrong or not len(micro_batches):
            return
        stated = [
            column
            for column in self.listed.get(key, [])
            if column.min_data_parallel <= replicas <= column.max_data_parallel
        ]
        bound = max((column.lower_bound_days for column in stated), default=self.days)
        limit = self.space.seconds_per_sequence(min(self.days, bound)) * (1 - ROUNDING)
        per_batch = (
            replicas * cut.shape.micro_batch / self.space.column_stretch(replicas, int(pipelines.p[0]) * cut.shape.gpus)
        )
        found = witness(cut, zero, pipelines, replicas, micro_batches, limit * per_batch)
        if found is None:
            return
        self.wrong.add(key)
        days = self.space.days(found[1] / per_batch)
        counts = f"{replicas:,} replicas and {found[0]:,} micro-batches"
        own = f"{name_of(key)}: {show(days)} days with {counts} on a free network"
        if stated:
            yield broken(RULE, f"{own} < {show(bound)}, the lower_bound_days that the proof states for it")
        else:
            yield broken(RULE, f"{own} < {show(self.days)}, the bound, and the proof does not list it")


def missing_columns(
    instance: Instance,
    days: float,
    proof: JointProof,
    *,
    transport_slowdown: float,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Violation]:
    """Check that no column of the declared space is below a bound in days, but for those that the proof lists.

    A column is a way to cut the model, at any number of replicas that the money may buy; its least time is that of
    every split of layers that memory holds, on a network that nothing slows but the transport, with free fibre. Once
    `stop` is true, no further column is looked at.
    """
    listed: dict[Key, list[ExcludedColumn]] = {}
    for column in proof.columns:
        listed.setdefault(tuple(getattr(column, name) for name in NAMES), []).append(column)
    pass_over = Inspection(
        space=Space(instance=instance, transport_slowdown=transport_slowdown),
        days=days,
        listed=listed,
        racks=MaxRacks(instance, proof.max_racks_by_wired_gpus),
        stop=stop,
    )
    yield from pass_over.violations()
    for key in () if stop() else listed:
        if key not in pass_over.met:
            yield broken(RULE, f"{name_of(key)}: listed by the proof, and not in the declared space (0 such columns)")


def max_racks_stated(
    instance: Instance, proof: JointProof, *, racks_in_use: int, wired_gpus: int
) -> Iterator[Violation]:
    """Check that the most racks of a proof are within arithmetic's, fall with GPUs cabled, and hold the plan's.

    Between the two they are on trust: the sites' MILP found them, and no rule here knows lines and flows together.
    """
    stated = dict(sorted(proof.max_racks_by_wired_gpus.items()))
    for gpus, most in stated.items():
        rule = f"max_racks_stated[{gpus}]"
        what = f"racks at most with {gpus} GPUs of each cabled"
        yield from at_most(
            rule, most, joint_columns.max_racks(instance, gpus), what, "racks by budget, power and sites"
        )
        if instance.grid is None:
            yield from must_equal(
                rule, "racks of a cluster without a grid", most, joint_columns.max_racks(instance, gpus)
            )
        if gpus <= wired_gpus:
            yield from at_most(rule, racks_in_use, most, f"racks in use with {wired_gpus} GPUs of each cabled", what)
    for (low, more), (high, fewer) in pairwise(stated.items()):
        yield from at_most(
            f"max_racks_stated[{high}]", fewer, more, f"racks with {high} cabled", f"racks with {low} cabled"
        )


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
    for column, times in Counter(proof.columns).items():
        if times > 1:
            yield broken(rule, f"a column of PP {column.pipeline_parallel} is listed {times} times > 1")
    for i, listed in enumerate(proof.columns):
        if not 1 <= listed.min_data_parallel <= listed.max_data_parallel:
            yield broken(
                f"{rule}[{i}]", f"replicas from {listed.min_data_parallel:,} to {listed.max_data_parallel:,} are none"
            )
        if free is not None:
            what = "days, the lower bound of a listed column"
            yield from at_most(f"{rule}[{i}]", free, listed.lower_bound_days, "days, the bound over every fabric", what)
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
    """Check a proof of days to train: `days` is the plan's value, `bound` the claimed lower bound of every plan."""
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


def block_of_layout(gpus: int, layout: LayoutPlan) -> RackBlock | None:
    """Return the block of racks that holds whole replicas of a layout."""
    return block_of(
        gpus,
        layout.degrees,
        pipeline_parallel=layout.pipeline_parallel,
        stages_per_rack=layout.stages_per_rack,
        replicas_per_rack=layout.replicas_per_rack,
    )


def racks_used(block: RackBlock, replicas_by_site: Mapping[str, int]) -> int:
    """Return the racks of the blocks that work."""
    return sum(block.racks * block.blocks(replicas) for replicas in replicas_by_site.values())


def highest_bound(plan: Plan) -> float | None:
    """Return the highest bound in days that a plan states anywhere; None where it states none."""
    objective, decisions = plan.objective, (plan.layout, plan.fabric, plan.placement)
    stated = [
        objective.bound,
        objective.joint_bound,
        objective.fabric_free_bound,
        *(decision.certificate.bound for decision in decisions if decision),
    ]
    return max((bound for bound in stated if bound is not None), default=None)


def joint_proof(physics: PlanPhysics) -> Iterator[Violation]:
    """Check every bound that a plan states in days; one without a proof has only arithmetic to rest on."""
    proof, layout, bound = physics.plan.proof or JointProof(), physics.plan.layout, highest_bound(physics.plan)
    in_days = physics.instance.objective.minimize == "days_to_train"
    if layout is None or physics.faults or (not in_days and physics.instance.objective.minimize != "loss"):
        return
    if not in_days:  # the layout is the fastest of the chosen model, whose loss the objective is
        bound = layout.certificate.bound
    if physics.plan.proof is None and bound is None:
        return
    block = block_of_layout(physics.gpus_per_rack, layout)
    if block is None:
        racks_are = f"racks of {physics.gpus_per_rack} GPUs"
        tensor, context, _ = layout.degrees
        yield broken("joint_proof", f"TP {tensor} x CP {context} on {racks_are}: no block")
        return
    objective, network = physics.plan.objective, physics.instance.network
    days = objective.value if in_days else layout.metrics.days_to_train
    spares = network is not None and (network.spares.share > 0 or network.spares.failure_chance > 0)
    what = "bound over every fabric of the objective and of its proof"
    if in_days:
        yield from must_equal("joint_bounds", what, objective.fabric_free_bound, proof.fabric_free_bound_days, " days")
    yield from proof_violations(
        physics.instance,
        proof,
        days=days,
        bound=bound,
        racks_in_use=racks_used(block, physics.replicas),
        wired_gpus=physics.gpus_per_rack if spares else block.rails,
        transport_slowdown=physics.transport_slowdown,
        stop=physics.stop,
    )


def on_alternative(instance: Instance, alternative: HardwareAlternative) -> Instance:
    """Return the question on an alternative to the hardware alone."""
    rack, own = alternative.rack, instance.hardware
    if alternative.price_usd is not None and isinstance(rack, Rack):
        rack = rack.model_copy(update={"price_usd": alternative.price_usd})
    changed: dict[str, Any] = {name: getattr(alternative, name) for name in ("accelerator", "nic_bytes_per_second")}
    changed |= {
        "ready_months": alternative.ready_months,
        "racks": own.racks if alternative.racks is None else alternative.racks,
    }
    hardware = own.model_copy(update={**changed, "rack": rack, "alternatives": ()})
    return instance.model_copy(update={"hardware": hardware})


def alternatives(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that no plan on an alternative to the hardware ends before the bound, by the proof of each."""
    rule, objective, hardware = "alternatives", physics.plan.objective, physics.instance.hardware
    if physics.plan.layout is not None:
        name = hardware.accelerator if isinstance(hardware.accelerator, str) else hardware.accelerator.name
        yield from must_be(
            rule, "layout.accelerator", physics.plan.layout.accelerator, name if hardware.alternatives else ""
        )
    if physics.plan.proof is None or objective.name != "days_to_train" or objective.bound is None or physics.faults:
        return
    stated = physics.plan.proof.alternatives
    yield from must_be(rule, "alternatives that are proven", len(stated), len(hardware.alternatives))
    for i, (alternative, own) in enumerate(zip(hardware.alternatives, stated, strict=False)):
        names = [part if isinstance(part, str) else part.name for part in (alternative.accelerator, alternative.rack)]
        yield from must_be(f"{rule}[{i}]", "GPU and rack", [own.accelerator, own.rack], names)
        bound = max(0.0, objective.bound + hardware.ready_days - alternative.ready_days)
        # Later ones are too late whatever their end.
        bound = min(bound, physics.instance.limits.deadline_days or math.inf)
        yield from must_equal(f"{rule}[{i}]", "days, the bound", own.bound_days, bound)
        if own.least_days is not None:
            yield from at_most(f"{rule}[{i}]", bound, own.least_days, "days, the bound", "fewest days on it")
        yield from _none_is_sooner(
            physics, on_alternative(physics.instance, alternative), own.proof, own.least_days, bound
        )


def _none_is_sooner(
    physics: PlanPhysics, asked: Instance, proof: JointProof, days: float | None, bound: float
) -> Iterator[Violation]:
    """Check by its proof that no plan of another question takes less than a bound; one of 0 days needs none."""
    if bound <= 0:
        return
    stated = physics.plan.proof or JointProof()
    price = {"min_fabric_usd_per_wired_gpu": stated.min_fabric_usd_per_wired_gpu}
    yield from proof_violations(
        asked,
        proof.model_copy(update=price),
        days=days,
        bound=bound,
        racks_in_use=0,
        wired_gpus=0,
        transport_slowdown=physics.transport_slowdown,
        stop=physics.stop,
    )


def questions_by_start(instance: Instance) -> dict[tuple[str, str, float], Instance]:
    """Return the questions of the goal finish_date by GPU, rack and the months to wait for at most.

    Each leaves out the sites, new lines and upgrades that come later, the last of a GPU nothing; together they have
    every plan, as what a plan waits for becomes ready at one of these months.
    """
    own = instance.hardware.model_copy(update={"alternatives": ()})
    every = [instance.model_copy(update={"hardware": own})]
    every += [on_alternative(instance, alternative) for alternative in instance.hardware.alternatives]
    questions: dict[tuple[str, str, float], Instance] = {}
    for one in every:
        grid, parts = one.grid, (one.hardware.accelerator, one.hardware.rack)
        accelerator, rack = (part if isinstance(part, str) else part.name for part in parts)
        waits = {one.hardware.ready_months}
        if grid is not None:
            upgrades = [node.upgrade.lead_months for node in grid.nodes if node.upgrade]
            leads = [*upgrades, *(line.lead_months for line in grid.new_lines)]
            leads += [node.ready_months for node in grid.nodes if node.site]
            limit = math.inf if grid.rules.ready_within_months is None else grid.rules.ready_within_months
            waits = {max(one.hardware.ready_months, lead) for lead in leads if lead <= limit} or waits
        for months in sorted(waits):
            asked = one
            if grid is not None and months < max(waits):
                rules = grid.rules.model_copy(update={"ready_within_months": months})
                asked = one.model_copy(update={"grid": grid.model_copy(update={"rules": rules})})
            questions[accelerator, rack, months] = asked
    return questions


def starts(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that no plan ends before the bound of a finish date: by a proof for each GPU and each month to wait for.

    The plan's own proof is that of the question which no other proof is of.
    """
    rule, proof, layout = "starts", physics.plan.proof, physics.plan.layout
    bound, goal = highest_bound(physics.plan), physics.plan.objective.name
    if goal != "finish_date" or bound is None or layout is None or physics.faults:
        return
    if proof is None:
        yield broken(rule, f"a bound of {show(bound)} days without a proof")
        return
    questions = questions_by_start(physics.instance)
    stated = {(own.accelerator, own.rack, own.ready_within_months): own for own in proof.alternatives}
    without = [key for key in questions if key not in stated]
    if len(without) != 1 or len(proof.alternatives) + 1 != len(questions):
        found = f"{len(proof.alternatives) + 1} proofs, {len(without)} questions without one of their own"
        yield broken(rule, f"{found}; one for each of {len(questions)} expected, the plan's own among them")
        return
    for key, asked in questions.items():
        least = min(max(0.0, bound - key[2] * DAYS_A_MONTH), physics.instance.limits.deadline_days or math.inf)
        own = stated.get(key)
        if own is None:
            yield from _none_is_sooner(physics, asked, proof, layout.metrics.days_to_train, least)
            continue
        yield from must_equal(f"{rule}[{key[2]:g}]", "days, the bound", own.bound_days, least)
        if own.least_days is not None:
            yield from at_most(f"{rule}[{key[2]:g}]", least, own.least_days, "days, the bound", "fewest days from it")
        yield from _none_is_sooner(physics, asked, own.proof, own.least_days, least)


def limited_by(physics: PlanPhysics) -> Iterator[Violation]:
    """Check the stated limit of a plan: exactly for a cluster; with a grid by budget, power and sites one by one."""
    stated, layout = physics.plan.objective.limited_by, physics.plan.layout
    if stated is None or layout is None or physics.faults:
        return
    block, owned = block_of_layout(physics.gpus_per_rack, layout), physics.instance.hardware.racks or 0
    more = 0 if block is None else racks_used(block, physics.replicas) + block.racks
    if stated == "tolerance":
        ends, value = physics.plan.objective.ends, physics.plan.objective.value or 0.0
        fastest = ends[0].value if ends else value
        if not fastest < value:
            yield broken("limited_by", f"tolerance stated, of the fastest plan: {show(fastest)} and {show(value)} days")
        return
    if physics.instance.grid is None:
        yield from must_be("limited_by", "limited_by", stated, "owned_racks" if more > owned else "layout")
    elif stated == "owned_racks" or (stated == "budget" and physics.instance.limits.budget_usd is None):
        yield broken("limited_by", f"{stated} stated, of a grid without such a limit")
    elif stated == "layout" and block is not None:
        most = joint_columns.max_racks(physics.instance, block.rails)
        yield from at_most("limited_by", more, most, "racks with a further block", "racks by budget, power and sites")


RULES: tuple[Rule, ...] = (joint_proof, alternatives, starts, limited_by)
