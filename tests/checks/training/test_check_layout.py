"""Rules of the layout and of a chosen model, on both sides of their edges."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from each_case import each
from worked_plan import STRATEGY, edited, edited_at, instance_with, named, rules, small, worked

from planner.checks.check_plan import check
from planner.checks.layout import _bound_figures, buildable, stated_loss
from planner.instance.workload import LossLaw, Model, PowerOf

PLAN = small()
HELD = PLAN.layout.metrics.memory_bytes_per_gpu
DAYS = PLAN.layout.metrics.days_to_train


@each(
    ("rule", "path", "holds", "breaks"),
    [
        ("batch", "limits__max_batch_tokens", 5120, 5119),
        ("deadline", "limits__deadline_days", DAYS * 1.0001, DAYS * 0.9999),
        # A GPU keeps 5 % free.
        ("memory", "hardware__accelerator__hbm_bytes", HELD / 0.95 * 1.0001, HELD / 0.95 * 0.9999),
    ],
)
def test_edges(rule: str, path: str, holds: float, breaks: float) -> None:
    assert rules(small(**{path: holds})) == set()
    assert rules(small(**{path: breaks})) == {rule}


@each(
    ("change", "broken"),
    [
        ({}, set()),
        ({"tensor_parallel": 4, "replicas_per_rack": 1, "data_parallel_by_site": (3, 2)}, set()),
        ({"tensor_parallel": 4}, {"rack_shape", "cabled"}),
        ({"tensor_inner": 2}, set()),
        (
            {"tensor_parallel": 4, "tensor_inner": 3, "replicas_per_rack": 1, "data_parallel_by_site": (3, 2)},
            {"tensor_parallel"},
        ),
        ({"tensor_parallel": 3, "replicas_per_rack": 1, "data_parallel_by_site": (3, 2)}, {"tensor_parallel"}),
        ({"layers_per_stage": (5, 3)}, set()),
        ({"layers_per_stage": (7, 1)}, {"layers"}),
        ({"layers_per_stage": (4, 3)}, {"layers"}),
        ({"layers_per_stage": (5, 4)}, {"layers"}),
        ({"micro_batches": 3}, set()),
        ({"micro_batches": 1}, {"interleaving"}),
        ({"micro_batches": 1, "virtual_stages": 1}, set()),
        ({"schedule": "zb-h1", "virtual_stages": 1}, {"framework"}),
        ({"schedule": "zb-h1"}, {"framework", "schedule"}),
        ({"recompute": "full", "recomputed_layers_per_stage": (1, 0)}, set()),
        ({"recompute": "selective", "recomputed_layers_per_stage": (1, 0)}, {"recomputed"}),
    ],
)
def test_cuts(change: dict[str, Any], broken: set[str]) -> None:
    plan = worked(
        instance_with(limits__facility_power_mw=2.1, hardware__accelerator__hbm_bytes=1e8),
        strategy=replace(STRATEGY, **change),
    )
    assert rules(plan) - {"gpus"} == broken


def test_more_chunks_than_layers() -> None:
    found = [v.message for v in check(edited(small(), layout__virtual_stages=10**9))]
    assert any("virtual_stages 1,000,000,000 > 4" in message for message in found), found


@each(("has", "broken"), [
    ({"zero_stages": [1]}, set()), ({"zero_stages": [0, 2, 3]}, {"framework"}),
    ({"pipelined_zero_stages": [0]}, {"framework"}),
    ({"parallelism": ["tensor", "sequence", "pipeline", "interleaved"]}, set()),
    ({"parallelism": ["tensor", "sequence", "pipeline"]}, {"framework"}),
    ({"parallelism": ["tensor", "pipeline", "interleaved"]}, {"framework"}),
    ({"parallelism": ["pipeline", "interleaved"]}, {"framework"}), ({"schedules": ["zb-h1"]}, {"framework"}),
])  # fmt: skip
@each("pins", [{}, {"layout.zero_stage": 1, "layout.virtual_stages": 2}])
def test_the_framework_has_what_the_layout_asks(has: dict[str, Any], broken: set[str], pins: dict[str, Any]) -> None:
    """A layout with ZeRO-1, TP, sequence parallelism and an interleaved pipeline is refused where one is missing."""
    asked = instance_with(workload__software={"name": "own", **has}, pins=pins)
    assert rules(worked(asked)) == broken


@each(("rule", "edits"), [
    ("well_formed", [("tensor_parallel", 0), ("pipeline_parallel", 3), ("tensor_parallel_inner", 4),
        ("layers_per_stage", [8]), ("layers_per_stage", [8, 0]), ("data_parallel_by_site", {"e1": 0, "w1": 0}),
        ("data_parallel_by_site", {"e1": 11, "w1": -1}), ("assumptions.pipeline_send_slowdown", 0),
        ("recomputed_layers_per_stage", [5, 0])]),
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


def test_shaving_every_time_alike_is_found() -> None:
    m = PLAN.layout.metrics
    parts = {k: v * 0.99 for k, v in m.breakdown_seconds.items()}
    shaved = edited(PLAN, layout__metrics__step_seconds=m.step_seconds * 0.99, layout__metrics__breakdown_seconds=parts)
    assert {"metrics[step_seconds]", "breakdown_seconds[gemm]"} <= named(shaved)


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


LAW = LossLaw.model_construct(e=1.5, a=400.0, b=410.0, alpha=0.5, beta=0.25)
FAMILY = SimpleNamespace(heads_multiple_of=4, layers_multiple_of=2, head_size=8, min_aspect=8.0, max_aspect=16.0)
GOOD = {"layers": 4, "hidden": 32, "heads": 4, "vocabulary": 100}


def choice(law: Any = LAW, loss: Any = None, *, stated: bool = True, **shape: int) -> Any:
    """Return what the rules read of a plan: what was asked, whether a choice is stated, and the model."""
    asked = SimpleNamespace(law=law, loss=loss, family=FAMILY)
    model = Model.model_validate({"name": "chosen", **GOOD, **shape})
    workload = SimpleNamespace(choose=asked, model=model, tokens=1e8)
    return SimpleNamespace(
        instance=SimpleNamespace(workload=workload), plan=SimpleNamespace(model_choice=object() if stated else None)
    )


def test_the_loss_is_of_the_law_that_states_one() -> None:
    """1.5 + 400 / sqrt(N) + 410 / 100, N of 4 layers of 12·32² and an embedding of 100·32; no other law states one."""
    expected = 1.5 + 400 / (4 * 12 * 32**2 + 100 * 32) ** 0.5 + 410 / 100
    other = PowerOf.model_construct(coefficient=1.0, exponent=1.0, of="flop")
    assert stated_loss(choice()) == pytest.approx(expected)
    assert stated_loss(choice(law=other, loss=LAW)) == pytest.approx(expected)
    assert stated_loss(choice(law=other)) is None
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
    law = PowerOf.model_construct(coefficient=1.0, exponent=1.0, of="flop")
    stated = SimpleNamespace(batch_tokens=0.0, flop=1e24, flop_bound=2e24, days_by_flop=days, loss_bound=1.0, loss=1.0)
    asked: Any = SimpleNamespace(law=law, loss=None)
    plan = SimpleNamespace(objective=SimpleNamespace(bound=None))
    c: Any = SimpleNamespace(instance=SimpleNamespace(limits=SimpleNamespace(max_batch_tokens=None)), plan=plan)
    found = list(_bound_figures(c, asked, cast(Any, stated), 3e24))
    assert [v.message for v in found] == said
    assert {v.rule for v in found} <= {"choice_figures[days_by_flop]"}
