"""Rules of the framework that an instance names: the best plan that keeps them, found, proven, checked and exported."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import yaml
from each_case import each
from joint_brute_force import Column, LayerShape, Times, Toy, toy
from tiers import more

import planner
from planner.checks.layout import broken_rules
from planner.errors import InputError
from planner.imports.command_options import Wish
from planner.imports.instance_file import first_instance
from planner.instance.catalogue_entries import catalogue
from planner.instance.framework_rules import FREE, rules_of
from planner.instance.instance import Instance
from planner.instance.workload import Experts, Model
from planner.models.joint.joint_question import Solving
from planner.models.joint.solve_joint import solve_joint
from planner.models.joint.strategy_space import problem_of
from planner.plan.certificate import declared_space
from planner.plan.plan_sections import LayoutPlan
from planner.report.summary import summary

STACKS = ["megatron-core", "torchtitan", "megatron-deepspeed"]


def under(i: Instance, stack: str, **changes: Any) -> Instance:
    """Return a toy whose stack has the name of a framework, with experts and tighter memory for some."""
    given = i.model_dump(mode="json", exclude_none=True)
    given["workload"]["software"]["name"] = stack
    given["workload"] |= changes.pop("workload", {})
    given["workload"]["model"] |= changes.pop("model", {})
    given["hardware"]["accelerator"] |= changes
    return Instance.model_validate(given)


class RuledTimes(Times):
    """Times of the splits that a framework writes: one number for all chunks, or none or all; stages alike."""

    stack = ""

    def _splits(self, shape: LayerShape, p: int, v: int, m: int, *rest: Any) -> Any:
        layers, recompute = super()._splits(shape, p, v, m, *rest)
        whole = self.stack != "megatron-core"
        kept = []
        for own, again in zip(layers.tolist(), recompute.tolist(), strict=True):
            chunks = [[n // v + (k < n % v) for k in range(v)] for n in own]
            numbers = (0, max(own)) if whole else range(max(own) + 1)
            alike = any([sum(min(each, n) for n in stage) for stage in chunks] == again for each in numbers)
            kept.append(alike and (self.stack != "megatron-deepspeed" or len(set(own)) == 1))
        fine = np.array(kept, dtype=bool)
        return layers[fine], recompute[fine]


class RuledToy(Toy):
    """Every plan of a toy that a framework runs, by its name alone."""

    def __init__(self, i: Instance, stack: str) -> None:
        times = RuledTimes(i)
        times.stack = self.stack = stack
        super().__init__(i, times=times)

    def columns(self) -> Iterator[Column]:
        """Yield the columns that the framework runs."""
        if self.stack == "megatron-deepspeed":
            yield from super().columns()
            return
        sequence, experts = self.m.sequence, self.m.model.experts is not None
        for c in super().columns():
            s = c.shape
            t, k, e, parallel = s.tensor_parallel, s.context_parallel, s.expert_parallel, s.sequence_parallel
            titan = self.stack == "torchtitan"
            parts = k * t * (2 if titan else 1)
            uneven = (c.v > 1 and c.m % c.p) or (k > 1 and sequence % (2 * k)) or (parallel and sequence % parts)
            whole = t > 1 and not parallel and (titan or experts)
            apart = c.d * t * k % e or (titan and experts and max(t, e) > 1 and e % (t * k))
            if not (uneven or whole or apart):
                yield c


CASES = [(stack, seed) for k, stack in enumerate(STACKS) for seed in (k, k + 6)]


@pytest.mark.parametrize(("stack", "seed"), [*CASES[::2], *more(*CASES[1::2], ("megatron-core", 8))])
def test_the_best_plan_under_the_rules(stack: str, seed: int) -> None:
    """It is that of full enumeration of what the framework runs, checked, no faster than without, and stated so."""
    experts = {"experts": {"count": 4, "per_token": 2, "ffn": 512}} if seed % 2 else {}
    ruled = under(toy(seed), stack, model=experts)
    free = under(toy(seed), stack, model=experts, workload={"framework_rules": False})
    best, plan = RuledToy(ruled, stack).best(), planner.solve(ruled)
    loose = solve_joint(free, Solving())
    assert best is not None and plan.status == "optimal" and planner.check(plan) == []
    assert plan.objective.value is not None and loose.days is not None
    assert plan.objective.value / loose.days == pytest.approx(best.seconds / loose.plan.seconds, rel=1e-9)
    assert plan.objective.value >= loose.days * (1 - 1e-12)
    assert plan.objective.space == declared_space(rules_of(stack)) != declared_space(FREE)
    assert rules_of(stack).framework in plan.objective.space


MANY = [("", 7), ("megatron-core", 2), *more(*[("", x) for x in (2, 8, 10)], ("megatron-core", 8))]


@pytest.mark.parametrize(("stack", "seed"), MANY)
def test_chunks_that_are_not_alike_over_many_rounds(stack: str, seed: int) -> None:
    """Of all numbers of micro-batches of two interleaved stages of five to seven layers the best is found."""
    i = under(toy(seed, forced=True), stack, model={"layers": 5 + seed % 3})
    pins = i.pins | {"layout.pipeline_parallel": 2, "layout.virtual_stages": 2}
    del pins["layout.data_parallel"]
    i = i.replaced(pins=pins, limits__max_batch_tokens=20 * 1024)
    best = (RuledToy(i, stack) if stack else Toy(i)).best()
    found = solve_joint(i, Solving())
    assert found.plan.seconds == pytest.approx(best.seconds, rel=1e-9)


def test_what_the_rules_cost_is_told_and_checked() -> None:
    """It is what the same degrees gain without them, in the summary; a figure or a split of another is found."""
    given = yaml.safe_load(first_instance(Wish(name="q", model="qwen3-30b-a3b", accelerator="H100", racks=2)))
    degrees = {"tensor": 2, "context": 1, "expert": 8, "pipeline": 2, "data": 4}
    pins = {f"layout.{kind}_parallel": n for kind, n in degrees.items()}
    given["pins"] = {**pins, "layout.microbatch_sequences": 2, "layout.zero_stage": 1, "layout.virtual_stages": 1}
    given["objective"] = {"tolerance": 0.0}
    ruled = planner.solve(given)
    free = planner.solve(given | {"workload": given["workload"] | {"framework_rules": False}})
    cost = ruled.objective.freed
    assert cost.faster == pytest.approx(ruled.objective.value / free.objective.value - 1, rel=1e-6)
    assert cost.faster > 0
    assert cost.recomputed_layers_per_stage == free.layout.recomputed_layers_per_stage and not planner.check(ruled)
    share = f"{100 * cost.faster:.1f} % faster."
    assert f"Free of Megatron's rules for the layers of stages, the same degrees are {share}" in summary(ruled)
    assert free.objective.freed is None
    split = {"layers_per_stage": (24, 23)}, {"recomputed_layers_per_stage": ()}
    for change in ({"faster": 2 * cost.faster}, {"framework": "torchtitan"}, *split):
        wrong = ruled.objective.replaced(freed=cost.replaced(**change))
        assert "objective[freed]" in {x.rule for x in planner.check(ruled.replaced(objective=wrong))}


def test_each_framework_has_its_own_rules() -> None:
    """The longer of two names that begin alike comes first, so that no name has the rules of another."""
    # A stack of one's own has none, nor has a framework that is freed of them; the key left out changes no hash.
    known = catalogue("framework_rules")
    assert {name: rules_of(name).framework for name in known} == {name: known[name]["framework"] for name in known}
    assert rules_of("nemo-2025") == rules_of("megatron-core") != rules_of("megatron-deepspeed-2023")
    assert rules_of("ideal") is rules_of("my-stack") is FREE and not FREE.text
    ruled = under(toy(0), "megatron-core").workload
    assert ruled.replaced(framework_rules=False).rules is FREE and ruled.rules is rules_of("megatron-core")
    assert "framework_rules" not in ruled.model_dump() and all(rules_of(stack).text for stack in STACKS)


@each(("stack", "pins"), [
    ("megatron-core", {"virtual_stages": 2, "pipeline_parallel": 2, "microbatches_per_step": 3}),
    ("megatron-core", {"sequence_parallel": True, "tensor_parallel": 3}), ("megatron-core", {"context_parallel": 3}),
    ("megatron-core", {"tensor_parallel": 1, "context_parallel": 1, "expert_parallel": 2, "data_parallel": 3}),
    ("torchtitan", {"sequence_parallel": False, "tensor_parallel": 2}),
    ("torchtitan", {"tensor_parallel": 2, "context_parallel": 1, "expert_parallel": 1}),
    ("megatron-deepspeed", {"recompute": "selective"}), ("megatron-deepspeed", {"pipeline_parallel": 3}),
])  # fmt: skip
def test_pins_that_a_framework_does_not_run(stack: str, pins: dict[str, Any]) -> None:
    model = {"layers": 4, "experts": {"count": 4, "per_token": 2, "ffn": 512}}
    own = {f"layout.{name}": value for name, value in pins.items()}
    ruled = under(toy(0), stack, model=model).replaced(pins=own)
    with pytest.raises(InputError, match=r"outside the declared space.*workload.framework_rules to false to free it"):
        problem_of(ruled)
    free = under(toy(0), stack, model=model, workload={"framework_rules": False}).replaced(pins=own)
    assert problem_of(free).pins == own


BASE = {"tensor_parallel": 2, "context_parallel": 2, "expert_parallel": 4, "data_parallel": 4, "pipeline_parallel": 2}
EDGES = [
    ("megatron-core", {}, 1024, ""), ("megatron-core", {"virtual_stages": 2, "microbatches_per_step": 6}, 1024, ""),
    ("megatron-core", {"virtual_stages": 2, "microbatches_per_step": 7}, 1024, "layout.microbatches_per_step"),
    ("megatron-core", {"tensor_parallel": 4}, 1028, "workload.sequence_length"),
    ("megatron-core", {"context_parallel": 1, "data_parallel": 3}, 1024, "layout.data_parallel"),
    ("megatron-core", {"sequence_parallel": False}, 1024, "layout.sequence_parallel"), ("torchtitan", {}, 1024, ""),
    ("torchtitan", {}, 1028, "workload.sequence_length"),
    ("torchtitan", {"expert_parallel": 2}, 1024, "layout.expert_parallel"),
    ("megatron-deepspeed", {"layers_per_stage": (3, 2)}, 1026, "layout.layers_per_stage"),
    ("megatron-deepspeed", {"recompute": "selective"}, 1026, "layout.recompute"),
]  # fmt: skip


@each(("stack", "change", "sequence", "complaint"), EDGES)
def test_both_sides_of_each_rule(stack: str, change: dict[str, Any], sequence: int, complaint: str) -> None:
    experts = Experts(count=4, per_token=2, ffn=8)
    model = Model(name="m", layers=5, hidden=96, heads=6, vocabulary=9, experts=experts)
    plain = {"sequence_parallel": True, "virtual_stages": 1, "microbatches_per_step": 5, "recompute": "none"}
    layers = {"layers_per_stage": (4, 4), "recomputed_layers_per_stage": (), "tensor_parallel_inner": 1}
    rest = {"data_parallel_by_site": {"cluster": 4}, "microbatch_sequences": 1, "replicas_per_rack": 1, "zero_stage": 0}
    layout = LayoutPlan.model_construct(**{**BASE, **plain, **layers, **rest, **change})
    found = [what.partition(":")[0] for what in broken_rules(rules_of(stack), layout, model, sequence)]
    assert found == ([complaint] if complaint else [])
