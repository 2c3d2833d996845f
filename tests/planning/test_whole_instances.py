"""Whole instances with optional parts or keys drawn at random: a plan that every check agrees with, or a refusal."""

import random
from typing import Any

import drawn_keys
import pytest
from joint_toys import case, toy
from tiers import more, slow

import planner
from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.solve import solve_joint
from planner.plan.certificate import Conflict
from planner.plan.plan import Plan
from planner.planning.joint_proof import without_plan

DEAR = 5  # a dear seed; those before it are quicker
RATES = {"parts": {"gpu": {"gpu_hours_per_event": 50_000, "repair_hours": 4}}}
DECISIONS = (
    *("tensor_parallel", "pipeline_parallel", "data_parallel", "virtual_stages"),
    *("recompute", "zero_stage", "microbatch_sequences"),
)
# Optional parts by their paths, with the values that they may have. A part of what an instance lacks is left out.
PARTS: dict[str, tuple[Any, ...]] = {
    "reliability": ("llama3-2024", RATES),
    "operation": ({"maintenance_share_per_year": 0.04, "staff_usd_per_year": 500.0},),
    "objective.tolerance": (0.02,),
    "objective.minimize": ("cost_usd", "total_cost_of_ownership_usd"),
    "limits.facility_power_mw": (2.0, 5.0),
    "limits.deadline_days": (0.02, 0.1, 1.0),
    "network.max_oversubscription": (1, 3),
    "network.survives": ("one_spine", "one_leaf_uplink"),
    "network.families": (["rack", "rail"], ["rail-only"], ["rack", "dragonfly"], ["dragonfly+"]),
    "network.spares": ({"share": 0.1},),
    "network.max_tiers": (1, 2),
    "network.max_lanes": (2,),
    "grid.rules.fault_split": ({"on": True, "min_interconnections": 1, "max_share": 0.7},),
    "grid.rules.share_balance": ({"on": True, "max_ratio": 2},),
    "grid.rules.min_site_modules": (2,),
    "grid.rules.soft": ({"headroom": {"usd_per_year": 10, "max_excess": 1}},),
}


def given(i: Instance, parts: dict[str, Any]) -> dict[str, Any]:
    """Return an instance with parts at their paths, as a user writes it."""
    data: dict[str, Any] = i.model_dump(mode="json", exclude_none=True)
    for path, value in parts.items():
        *above, last = path.split(".")
        holder: Any = data
        for key in above:
            holder = holder.get(key) if holder is not None else None
        if holder is not None:
            holder[last] = value
    return data


def drawn(seed: int) -> dict[str, Any]:
    """Return a toy with a third of the optional parts; the pins of some are taken away."""
    r = random.Random(seed)
    i = r.choice([case(seed), toy(seed), toy(seed, sites=2, forced=r.random() < 0.5)])
    parts = {path: r.choice(values) for path, values in PARTS.items() if r.random() < 1 / 3}
    return given(i, parts | ({"pins": {}} if r.random() < 1 / 3 else {}))


def own_pins(plan: Plan) -> dict[str, Any]:
    return {f"layout.{name}": getattr(plan.layout, name) for name in DECISIONS}


def test_a_fault_split_that_leaves_no_plan() -> None:
    """Two sites cannot share the one rack that the budget pays: the proof says so, and the check names no column."""
    split = {"on": True, "min_interconnections": 1, "max_share": 0.7}
    i = Instance.model_validate(given(toy(0, sites=2), {"grid.rules.fault_split": split, "limits.budget_usd": 1900.0}))
    plan = without_plan(i, solve_joint(i, Options(), lambda _: None), Options())
    why = Conflict(decision="budget", rules=("limits.budget_usd",), reason="one rack")
    assert plan.status == "infeasible" and not planner.check(plan.model_copy(update={"conflict": why}))
    assert set(plan.proof.max_racks_by_wired_gpus.values()) == {0}


def test_rates_of_ones_own() -> None:
    """Failures by the rate of one part alone, nothing said of storage or correlation, give a plan that holds."""
    plan = planner.solve(given(toy(0), {"reliability": RATES}))
    assert plan.status == "optimal" and not planner.check(plan)
    assert plan.reliability.checkpoint_write_seconds == 0 and plan.reliability.useful_share < 1


@pytest.mark.parametrize("seed", [*slow(*range(DEAR)), *more(*range(DEAR, 40))])
def test_whole_instances(seed: int) -> None:
    """A solve ends with a plan or a proof that holds, and its own decisions as pins give the same value."""
    asked = drawn(seed)
    try:
        plan = planner.solve(asked)
    except InputError:
        return
    assert plan.status in ("optimal", "infeasible") and not planner.check(plan)
    if plan.status == "optimal":
        pinned = planner.solve(asked | {"pins": asked.get("pins", {}) | own_pins(plan)})
        assert pinned.status == "optimal" and not planner.check(pinned)
        assert pinned.objective.value == pytest.approx(plan.objective.value, rel=1e-6)


QUICK = (1, 60, 171, 300)
ALONE = len(drawn_keys.optional_keys())
TIERS = range(0, 2 * ALONE, 56)  # of the slow one


@pytest.mark.parametrize("seed", [*QUICK, *slow(*TIERS), *more(*(n for n in range(0, 2 * ALONE, 7) if n not in TIERS))])
def test_drawn_keys_are_answered_or_refused(seed: int) -> None:
    """A small instance with one or two keys drawn ends in a plan that the checker agrees with, or in a complaint."""
    data, keys = drawn_keys.instance(seed)
    try:
        plan = planner.solve(data, time_limit=2)
    except InputError as error:
        assert all(": " in line for line in str(error).splitlines()), (keys, error)
        return
    assert planner.check(plan) == [], keys


def test_every_optional_key_is_drawn() -> None:
    assert ALONE > 250
    names = {name for _, name in drawn_keys.optional_keys()}
    assert {"limits.budget_usd", "grid.nodes.0.area_m2", "reliability.parts.gpu.repair_hours"} <= names
    for seed in range(0, ALONE, 5):
        data, keys = drawn_keys.instance(seed)
        assert len(keys) == 1 and data["name"]


@pytest.mark.slow
def test_a_proof_without_a_plan_states_the_simulated_slowdown() -> None:
    data, keys = drawn_keys.instance(178)
    assert "network.transport.simulate" in keys
    data["limits"]["deadline_days"] = 1e-9
    data["network"]["transport"]["simulate"] |= {"seeds": 2, "hosts": 64}
    plan = planner.solve(data, time_limit=60)
    assert plan.status == "infeasible"
    assert plan.transport is not None
    assert planner.check(plan) == []
    assert {v.rule for v in planner.check(plan.model_copy(update={"transport": None}))} >= {"transport_factor"}
