"""Rules of the proofs: certificates about the plan's decisions, bounds on their side."""

from typing import Any

import pytest
from worked_plan import edited, named, rules, small

PLAN = small()
DECISIONS = ["sites", "layout", "fabric", "placement"]
DAYS = PLAN.layout.metrics.days_to_train


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_certificate_is_about_its_decision(decision: str) -> None:
    """An objective 1 % (or a group) better than the decision's own figure is found, bound and gap adjusted or not."""
    objective = getattr(PLAN, decision).certificate.objective
    better = objective * 0.99 if objective else -1.0
    path = f"{decision}__certificate__"
    assert f"certified[{decision}]" in named(edited(PLAN, **{f"{path}objective": better, f"{path}bound": better}))


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_bound_above_the_objective_is_none(decision: str) -> None:
    """All four decisions make their objective least."""
    objective = getattr(PLAN, decision).certificate.objective
    bound = objective * 1.01 + 1
    plan = edited(
        PLAN,
        **{
            f"{decision}__certificate__bound": bound,
            f"{decision}__certificate__gap": (bound - objective) / max(objective, 1e-12),
        },
    )
    assert f"bound_side[{decision}]" in named(plan)


@pytest.mark.parametrize("decision", ["sites", "fabric"])
def test_optimal_means_that_the_bound_is_reached(decision: str) -> None:
    """A gap of a tenth is a feasible decision, and the plan is feasible with it."""
    c = getattr(PLAN, decision).certificate
    path = f"{decision}__certificate__"
    open_gap = {f"{path}bound": c.objective * 0.9, f"{path}gap": 0.1}
    assert named(edited(PLAN, **open_gap)) == {f"optimal[{decision}]"}
    assert named(edited(PLAN, **open_gap, **{f"{path}status": "feasible"})) == {"status"}
    assert named(edited(PLAN, **open_gap, **{f"{path}status": "feasible"}, status="feasible")) == set()
    assert named(edited(PLAN, **{f"{path}gap": 0.01})) == {f"gap[{decision}]"}
    assert named(edited(PLAN, **{f"{path}gap": None})) == {f"gap[{decision}]"}
    assert f"optimal[{decision}]" in named(edited(PLAN, **{f"{path}status": "unknown"}, status="feasible"))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"value": DAYS * 0.99}, "objective"),
        ({"value": None}, "objective"),
        ({"bound": DAYS * 1.01, "gap": 0.01}, "objective"),
        ({"gap": 0.5}, "objective"),
        ({"joint_bound": DAYS * 1.01, "joint_gap": 0.01}, "objective"),
        ({"joint_gap": 0.4}, "objective[joint]"),
        ({"name": "cost_usd"}, "objective"),
    ],
)
def test_the_objective(changes: dict[str, Any], rule: str) -> None:
    """Value, bounds and gaps of the plan agree with physics and with each other."""
    assert rule in named(edited(PLAN, **{f"objective__{k}": v for k, v in changes.items()}))


def test_the_plan_proves_no_more_than_its_layout() -> None:
    """A feasible layout with a bound a tenth below leaves the same gap to the plan."""
    weak = {
        "status": "feasible",
        "layout__certificate__status": "feasible",
        "layout__certificate__bound": DAYS * 0.9,
        "layout__certificate__gap": 0.1,
    }
    assert rules(edited(PLAN, **weak)) == {"objective"}
    assert rules(edited(PLAN, **weak, objective__bound=DAYS * 0.9, objective__gap=0.1)) == set()


def test_the_hash_is_that_of_the_instance() -> None:
    """An instance changed after the fact is not the one that was solved."""
    assert named(edited(PLAN, instance_sha256="0" * 64)) == {"instance_hash"}
    assert "instance_hash" in named(edited(PLAN, instance__limits__budget_usd=34.1e6))


def test_an_interrupted_search_proves_nothing() -> None:
    """Optimal means that the search ended by proof."""
    assert rules(edited(PLAN, stopped="limit")) == {"status"}


def test_least_cost_is_an_objective_too() -> None:
    """Where cost is to be least, the value is the bill's total."""
    plan = small(objective__minimize="cost_usd", limits__deadline_days=1)
    assert plan.objective.value == plan.cost.total_usd
    assert rules(plan) == set()
    assert rules(edited(plan, objective__value=plan.cost.total_usd * 0.99)) >= {"objective"}
