"""Rules of the layout, of a chosen model and of pools of different GPUs, on both sides of their edges."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from each_case import each
from page_cases import CHOICE
from stored_plans import stored
from worked_plan import GPU, INSTANCE, STRATEGY, edited, edited_at, instance_with, named, rules, small, worked

from planner.checks.check_plan import check
from planner.checks.layout import buildable, choice_figures, stated_loss
from planner.checks.layout import days as pools_days
from planner.instance.scaling_law import Choose, LossLaw, ModelChoice, PointsLaw
from planner.instance.workload import Model
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.data_parallel import ReplicaGroup
from planner.physics.training.step_prediction import machine_of, pipeline_of, sharded_times
from planner.plan.plan import Plan

PLAN = small()
HELD = PLAN.layout.metrics.memory_bytes_per_gpu
DAYS = PLAN.layout.metrics.days_to_train


# A GPU keeps 5 % of its memory free.
@each(("rule", "path", "holds", "breaks"), [
    ("batch", "limits__max_batch_tokens", 5120, 5119),
    ("deadline", "limits__deadline_days", DAYS * 1.0001, DAYS * 0.9999),
    ("memory", "hardware__accelerator__hbm_bytes", HELD / 0.95 * 1.0001, HELD / 0.95 * 0.9999),
])  # fmt: skip
def test_edges(rule: str, path: str, holds: float, breaks: float) -> None:
    assert rules(small(**{path: holds})) == set()
    assert rules(small(**{path: breaks})) == {rule}


FEWER = {"replicas_per_rack": 1, "data_parallel_by_site": (3, 2)}


@each(("change", "broken"), [
    ({}, set()), (FEWER | {"tensor_parallel": 4}, set()), ({"tensor_parallel": 4}, {"rack_shape", "cabled"}),
    ({"tensor_inner": 2}, set()), (FEWER | {"tensor_parallel": 4, "tensor_inner": 3}, {"tensor_parallel"}),
    (FEWER | {"tensor_parallel": 3}, {"tensor_parallel"}), ({"layers_per_stage": (5, 3)}, set()),
    ({"layers_per_stage": (7, 1)}, {"layers"}), ({"layers_per_stage": (4, 3)}, {"layers"}),
    ({"layers_per_stage": (5, 4)}, {"layers"}), ({"micro_batches": 3}, set()),
    ({"micro_batches": 1}, {"interleaving"}), ({"micro_batches": 1, "virtual_stages": 1}, set()),
    ({"schedule": "zb-h1", "virtual_stages": 1}, {"framework"}), ({"schedule": "zb-h1"}, {"framework", "schedule"}),
    ({"recompute": "full", "recomputed_layers_per_stage": (1, 0)}, set()),
    ({"recompute": "selective", "recomputed_layers_per_stage": (1, 0)}, {"recomputed"}),
])  # fmt: skip
def test_cuts(change: dict[str, Any], broken: set[str]) -> None:
    asked = instance_with(limits__facility_power_mw=2.1, hardware__accelerator__hbm_bytes=1e8)
    assert rules(worked(asked, strategy=replace(STRATEGY, **change))) - {"gpus"} == broken


@each(("name", "has"), [
    ("zero_stages", [0, 2, 3]), ("pipelined_zero_stages", [0]), ("schedules", ["zb-h1"]),
    ("parallelism", ["pipeline", "interleaved"]), ("parallelism", ["tensor", "pipeline", "interleaved"]),
    ("parallelism", ["tensor", "sequence", "pipeline"]),
])  # fmt: skip
@each("pins", [{}, {"layout.zero_stage": 1, "layout.virtual_stages": 2}])
def test_the_framework_has_what_the_layout_asks(name: str, has: list[Any], pins: dict[str, Any]) -> None:
    """A layout with ZeRO-1, TP, sequence parallelism and an interleaved pipeline is refused where one is missing."""
    assert rules(worked(instance_with(workload__software={"name": "own", name: has}, pins=pins))) == {"framework"}


@each(("rule", "edits"), [
    ("well_formed", [("tensor_parallel", 0), ("pipeline_parallel", 3), ("tensor_parallel_inner", 4),
        ("layers_per_stage", [8]), ("layers_per_stage", [8, 0]), ("data_parallel_by_site", {"e1": 0, "w1": 0}),
        ("data_parallel_by_site", {"e1": 11, "w1": -1}), ("assumptions.pipeline_send_slowdown", 0),
        ("recomputed_layers_per_stage", [5, 0]), ("virtual_stages", 10**9)]),
    ("replicas[e2]", [("data_parallel_by_site", {"e1": 6, "e2": 4})]), ("replicas", [("data_parallel_by_site.e1", 7)]),
    ("racks[e1]", [("data_parallel_by_site.e1", 10), ("racks_per_stage_by_site.e1", 2)]),
    ("assumed_slowdowns[e1]", [("assumptions.pipeline_send_slowdown", 1.57)]),
    ("assumed_slowdowns", [("assumptions.allreduce_slowdown", 1.04)]),
    ("assumed_wan[e1, w1]", [("assumptions.wan_gbps", 0.00101), ("assumptions.wan_rtt_ms", 39.6)]),
    ("assumed_wan", [("assumptions.wan_gbps", None)]),
    ("rack_shape", [("context_parallel", 2), ("context_parallel", 3), ("racks_per_replica", 2),
        ("stages_per_rack", 2)]),
    ("expert_parallel", [("expert_parallel", 2)]), ("gpus", [("gpus_idle", 17)]),
    ("metrics[step_seconds]", [("recompute", "full")]),
    ("metrics[memory_bytes_per_gpu]", [("zero_stage", 2), ("sequence_parallel", False)]),
    ("breakdown_seconds[gemm]", [("metrics.breakdown_seconds.gemm", lambda x: x * 0.99)]),
    ("breakdown_seconds[extra]", [("metrics.breakdown_seconds", lambda x: {**x, "extra": 1.0})]),
    ("metrics[memory_limit_bytes]", [("metrics.memory_limit_bytes", lambda x: x * 1.01)]),
    ("metrics[mfu]", [("metrics.mfu", lambda x: x * 1.01)]),
])  # fmt: skip
def test_an_edit_names_its_rule(rule: str, edits: list[tuple[str, Any]]) -> None:
    for path, change in edits:
        assert rule in named(edited_at(PLAN, "layout." + path, change)), path


@each(("replicas", "broken"), [(8, False), (9, True)])
def test_the_group_racks_fit_the_site(replicas: int, broken: bool) -> None:
    """Two stages of four racks fill the eight of e1; five are too many."""
    strategy = replace(STRATEGY, data_parallel_by_site=(replicas, 4))
    assert ("racks" in rules(worked(instance_with(limits__max_batch_tokens=1e6), strategy=strategy))) == broken


@each(("pins", "broken"), [
    ({"layout.tensor_parallel": 2, "layout.recompute": "selective", "layout.layers_per_stage": [4, 4]}, set()),
    ({"layout.zero_stage": 1}, set()), ({"layout.data_parallel_by_site": {"e1": 6, "w1": 4}}, set()),
    ({"layout.data_parallel_by_site": {"e1": 6, "w1": 4, "e2": 0}}, set()),
    ({"layout.data_parallel_by_site": {"e1": 5, "w1": 5}}, {"pins[layout.data_parallel_by_site]"}),
    ({"layout.tensor_parallel": 4}, {"pins[layout.tensor_parallel]"}),
    ({"layout.sequence_parallel": False}, {"pins[layout.sequence_parallel]"}),
    ({"layout.layers_per_stage": [5, 3]}, {"pins[layout.layers_per_stage]"}),
])  # fmt: skip
def test_pins(pins: dict[str, Any], broken: set[str]) -> None:
    assert named(worked(instance_with(pins=pins))) == broken


def test_context_over_racks_is_counted() -> None:
    """CP over two racks exchanges by NIC, once and twice backward, and pipeline sends have that time of it less."""
    # Of 128 tokens a TP rank has 2 · 32 elements of 2 B: all 16,384 B of keys and values to two GPUs of a rack at
    # 100 MB/s, of which each brings a half; and a half of that half from the other rack at 1 MB/s over 1.05.
    m = machine_of(instance_with())
    m = replace(m, software=m.software.replaced(overlaps=()))
    x = pipeline_of(m, replace(STRATEGY, context_parallel=4).shape, 1.05)
    inside, between = 1e-6 + 16_384 / 2 / 1e8, 1e-5 + 16_384 / 2 / 2 * 1.05 / 1e6
    assert x.times.parts["context_parallel"] == pytest.approx(3 * (inside + between))
    left = sharded_times(x, ReplicaGroup(1, 2))
    assert left.free_forward_seconds == pytest.approx(x.times.forward_seconds - between)
    assert left.free_backward_seconds == pytest.approx(x.times.backward_seconds - 2 * between)


LAW = LossLaw.model_construct(e=1.5, a=400.0, b=410.0, alpha=0.5, beta=0.25)
FAMILY = SimpleNamespace(
    heads_multiple_of=4, layers_multiple_of=2, head_size=8, min_aspect=8.0, max_aspect=16.0, tolerance=0.1
)
GOOD = {"layers": 4, "hidden": 32, "heads": 4, "vocabulary": 100}


def choice(law: Any = LAW, loss: Any = None, *, stated: bool = True, **shape: int) -> Any:
    """Return what the rules read of a plan: what was asked, whether a choice is stated, and the model."""
    asked = Choose.model_construct(law=law, loss=loss, family=FAMILY)
    model = Model.model_validate({"name": "chosen", **GOOD, **shape})
    workload = SimpleNamespace(choose=asked, model=model, tokens=1e8)
    plan = SimpleNamespace(model_choice=object() if stated else None, objective=None)
    return SimpleNamespace(instance=SimpleNamespace(workload=workload), plan=plan)


def test_the_loss_is_of_the_law_that_states_one() -> None:
    """1.5 + 400 / sqrt(N) + 410 / 100, N of 4 layers of 12·32² and an embedding of 100·32; no other law states one."""
    expected = 1.5 + 400 / (4 * 12 * 32**2 + 100 * 32) ** 0.5 + 410 / 100
    other = PointsLaw(parameters=(1.0, 2.0), flop=(1.0, 4.0), tokens=(1.0, 2.0))
    assert stated_loss(choice()) == pytest.approx(expected)
    assert stated_loss(choice(law=other, loss=LAW)) == pytest.approx(expected)
    assert stated_loss(choice(stated=False)) is None


@each(("shape", "rules"), [
    ({}, []), ({"heads": 2, "hidden": 32}, ["heads", "head_size"]), ({"layers": 3}, ["layers"]), ({"layers": 2}, []),
    ({"layers": 6}, ["aspect"]), ({"heads": 8, "hidden": 64, "layers": 2}, ["aspect"]),
])  # fmt: skip
def test_each_measure_of_a_shape_has_its_rule(shape: dict[str, int], rules: list[str]) -> None:
    """Heads by 4, layers by 2, heads of 8, and a width of 8 to 16 a layer, both ends allowed."""
    assert [v.rule for v in buildable(choice(**shape))] == [f"buildable[{name}]" for name in rules]


@each(("days", "said"), [
    ({}, []), ({"1e+24": 3.0, "2.5e+24": 7.5, "100": 0.1}, []), ({"1e+24": 0.0}, ["0 days for '1e+24' FLOP"]),
    ({"1e+24": -2.0, "2e+24": 1.0}, ["-2 days for '1e+24' FLOP"]),
    ({"much": 3.0, "-5": 1.0}, ["3 days for 'much' FLOP", "1 days for '-5' FLOP"]),
])  # fmt: skip
def test_days_are_stated_for_amounts_of_compute(days: dict[str, float], said: list[str]) -> None:
    asked = Choose.model_construct(law=LAW, loss=None, family=cast(Any, FAMILY))
    instance = small(limits__deadline_days=1e6).instance
    instance = instance.model_copy(update={"workload": instance.workload.model_copy(update={"choose": asked})})
    own = {"instance": instance, "model_choice": ModelChoice.model_validate(CHOICE | {"days_by_flop": days})}
    plan = PLAN.model_copy(update=own)
    found = choice_figures(PlanPhysics(plan=plan))
    assert [v.message for v in found if v.rule == "choice_figures[days_by_flop]"] == said


RACK = {"name": "rack", "gpus": 4, "it_kw": 100, "price_usd": 2e6}
FAST = {**GPU, "name": "fast", "peak_flop_per_second": {"bf16": 3e7}}
POOLS = [{"name": "a", "accelerator": GPU, "rack": RACK, "racks": 1}]
POOLS += [{"name": "b", "accelerator": FAST, "rack": RACK, "racks": 1}]
LINK = {"gbps": 0.01, "rtt_ms": 1}


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Plan a rack of slow and a rack of fast GPUs, for four sequences of 128 tokens a step."""
    data = json.loads(json.dumps({k: v for k, v in INSTANCE.items() if k not in ("grid", "wan", "network")}))
    hardware = {"pools": POOLS, "pool_link": LINK, "facility_overhead_factor": 1.5}
    return stored(data | {"limits": {"max_batch_tokens": 512}, "hardware": hardware})


def test_figures_by_hand(plan: Plan) -> None:
    """One sequence on the slow GPUs and three on the fast ones; the last layer's gradients alone wait for the link."""
    # Eight layers' bytes at 0.01 Gbps, an eighth of them behind the last backward pass, and a round trip of 1 ms.
    pools = plan.pools
    assert check(plan) == []
    assert (pools.sequences, pools.tokens_per_step) == ({"a": 1, "b": 3}, 512)
    metrics = {name: x.metrics for name, x in pools.layouts.items()}
    waits = {name: m.gradient_bytes_per_stage * 8 / 0.01e9 / 8 + 1e-3 for name, m in metrics.items()}
    assert pools.exchange_seconds == pytest.approx(waits)
    seconds = max(m.step_seconds for m in metrics.values()) + max(waits.values())
    assert pools.step_seconds == pytest.approx(seconds)
    assert pools.days_to_train == pytest.approx(1e6 / 512 * seconds / 86_400)
    assert pools_days(PlanPhysics(plan=plan)) == pytest.approx(pools.days_to_train)


@each(("path", "change", "rules"), [
    ("pools.sequences.a", 2, {"shares[a]", "batch"}), ("pools.sequences.a", 0, {"shares"}),
    ("pools.sequences.a", -1, {"shares", "shares[a]"}), ("pools.sequences.c", 0, {"shares"}),
    ("pools.sequences.c", 1, {"shares", "batch"}), ("pools.tokens_per_step", 511.0, {"batch"}),
    ("pools.tokens_per_step", 513.0, {"batch"}), ("instance.limits.max_batch_tokens", 511, {"batch"}),
    ("pools", None, {"complete"}),
    ("pools.layouts.a.metrics.memory_bytes_per_gpu", 1.0, {"pools[a].metrics[memory_bytes_per_gpu]"}),
    ("pools.layouts.a.microbatches_per_step", 2, {"shares[a]"}),
    ("pools.layouts.a.microbatch_sequences", 2, {"shares[a]"}),
    ("pools.layouts.b.data_parallel", lambda n: n + 1, {"shares[b]"}),
    ("pools.layouts.b.metrics.step_seconds", lambda x: 0.999 * x, {"pools[b].metrics[step_seconds]"}),
    ("pools.exchange_seconds.a", 0.0, {"figures[exchange_seconds.a]"}),
    ("pools.exchange_seconds.b", lambda x: 1.001 * x, {"figures[exchange_seconds.b]"}),
    ("pools.exchange_seconds.c", 0.0, {"figures[exchange_seconds.c]"}),
    ("pools.step_seconds", lambda x: 0.999 * x, {"figures[step_seconds]"}),
    ("pools.step_seconds", lambda x: 1.001 * x, {"figures[step_seconds]"}),
    ("pools.days_to_train", lambda x: 0.999 * x, {"figures[days_to_train]"}),
    ("pools.days_to_train_interval.0", lambda x: 0.99 * x, {"figures[days_to_train_interval]"}),
    ("pools.days_to_train_interval.1", lambda x: 1.01 * x, {"figures[days_to_train_interval]"}),
    ("instance.hardware.pool_link.rtt_ms", 2, {"figures[exchange_seconds.a]", "figures[step_seconds]"}),
])  # fmt: skip
def test_an_edit_names_its_rules(plan: Plan, path: str, change: Any, rules: set[str]) -> None:
    assert rules <= named(edited_at(plan, path, change))


@each(("share", "broken"), [(1.0, False), (0.99, True)])
def test_limits_of_all_pools(plan: Plan, share: float, broken: bool) -> None:
    """Two racks of 100 kW draw half as much again."""
    for limit, rule, most in (
        ("deadline_days", "limits[deadline]", plan.pools.days_to_train),
        ("facility_power_mw", "limits[facility_power]", 0.3),
    ):
        assert (rule in named(edited_at(plan, f"instance.limits.{limit}", share * most))) == broken


def test_a_pool_has_a_layout_just_where_it_has_a_share(plan: Plan) -> None:
    """A layout without a share, or of no ranks, is not judged: figures wait for layouts that can be timed."""
    layouts, twice = plan.model_dump(mode="json")["pools"]["layouts"], 2 * plan.pools.sequences["b"]
    assert "shares" in named(edited(plan, pools__layouts={"a": layouts["a"]}))
    for sequences in ({"a": 0, "b": 3}, {"b": 3}):
        found = named(edited(plan, pools__sequences=sequences))
        assert "shares" in found and not {r for r in found if r.startswith(("pools[a]", "figures"))}
    found = named(edited_at(plan, "pools.layouts.a.tensor_parallel", 0))
    assert any(r.startswith("pools[a].") for r in found) and not any(r.startswith("figures") for r in found)
    found = named(edited(plan, pools__layouts__b__microbatch_sequences=2, pools__sequences__b=twice))
    assert "shares[b]" not in found and "batch" in found


def test_a_pool_alone_exchanges_nothing(plan: Plan) -> None:
    layouts = plan.model_dump(mode="json")["pools"]["layouts"]
    step = plan.pools.layouts["b"].metrics.step_seconds
    alone = {"pools__sequences": {"a": 0, "b": 3}, "pools__layouts": {"b": layouts["b"]}, "pools__step_seconds": step}
    held = named(edited(plan, **alone, pools__exchange_seconds={"b": 0.0}))
    assert not {r for r in held if r.startswith(("shares", "figures[exchange", "figures[step"))}
    assert "figures[exchange_seconds.b]" in named(edited(plan, **alone, pools__exchange_seconds={"b": 0.1}))
