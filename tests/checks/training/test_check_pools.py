"""Rules of pools of different GPUs: figures by hand, and each edit named by the rule about it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from each_case import each
from stored_plans import stored
from worked_plan import GPU, INSTANCE, edited, edited_at, named

from planner.api.plans import check
from planner.checks.layout import days
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan import Plan

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
    assert days(PlanPhysics(plan=plan)) == pytest.approx(pools.days_to_train)


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


def test_a_pool_has_a_layout_where_it_has_a_share(plan: Plan) -> None:
    assert plan.pools is not None
    layouts = plan.model_dump(mode="json")["pools"]["layouts"]
    assert "shares" in named(edited(plan, pools__layouts={"a": layouts["a"]}))
    idle = edited(plan, pools__sequences={"a": 0, "b": 3}, pools__layouts={"b": layouts["b"]})
    assert not {r for r in named(idle) if r.startswith("shares")}


def test_a_layout_of_a_pool_without_a_share_is_not_judged(plan: Plan) -> None:
    for sequences in ({"a": 0, "b": 3}, {"b": 3}):
        found = named(edited(plan, pools__sequences=sequences))
        assert "shares" in found and not {r for r in found if r.startswith(("pools[a]", "figures"))}


def test_figures_wait_for_layouts_that_can_be_timed(plan: Plan) -> None:
    """A layout of no ranks is named by its own rules, and no figure of all pools is computed without it."""
    found = named(edited_at(plan, "pools.layouts.a.tensor_parallel", 0))
    assert any(r.startswith("pools[a].") for r in found)
    assert not {r for r in found if r.startswith("figures")}


def test_sequences_are_those_of_all_micro_batches(plan: Plan) -> None:
    twice = 2 * plan.pools.sequences["b"]
    found = named(edited(plan, pools__layouts__b__microbatch_sequences=2, pools__sequences__b=twice))
    assert "shares[b]" not in found and "batch" in found


@each(
    ("limit", "rule", "most"),
    [
        ("deadline_days", "limits[deadline]", lambda p: p.pools.days_to_train),
        # Two racks of 100 kW, and half as much again.
        ("facility_power_mw", "limits[facility_power]", lambda _: 0.3),
    ],
)
def test_limits_of_all_pools(plan: Plan, limit: str, rule: str, most: Callable[[Plan], float]) -> None:
    for share, broken in ((1.0, False), (0.99, True)):
        asked = edited_at(plan, f"instance.limits.{limit}", share * most(plan))
        assert (rule in named(asked)) == broken


def test_a_pool_alone_exchanges_nothing(plan: Plan) -> None:
    layouts = plan.model_dump(mode="json")["pools"]["layouts"]
    step = plan.pools.layouts["b"].metrics.step_seconds
    alone = {"pools__sequences": {"a": 0, "b": 3}, "pools__layouts": {"b": layouts["b"]}, "pools__step_seconds": step}
    held = named(edited(plan, **alone, pools__exchange_seconds={"b": 0.0}))
    assert not {r for r in held if r.startswith(("figures[exchange", "figures[step"))}
    stated = named(edited(plan, **alone, pools__exchange_seconds={"b": 0.1}))
    assert "figures[exchange_seconds.b]" in stated
