"""Alternatives to the hardware: the plan is that of the best GPU and rack alone, and each of the others is refuted."""

import json
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from worked_plan import edited_at

import planner
from planner.errors import InputError
from planner.instance.hardware import DAYS_A_MONTH
from planner.models.joint.solution import JointSolution, JointStatus
from planner.plan.plan import Plan
from planner.planning.hardware_choice import HardwareAnswer, bounded_by_all
from planner.planning.load import load_instance

SMALL: dict[str, Any] = {
    "schema_version": 3,
    "name": "choice",
    "objective": {"tolerance": 0.0},
    "workload": {"model": "llama-3.1-8b", "tokens": 1e11, "sequence_length": 8192},
    "hardware": {"accelerator": "H100", "rack": "DGX-H100", "racks": 4},
    "limits": {"max_batch_tokens": 2e6, "budget_usd": 2.2e6},
    "network": {"switches": ["25.6T-64x400G"], "optics": {"name": "400G-DR4", "price_usd": 700, "power_watts": 9}},
}
OTHERS = (
    {"accelerator": "H200", "rack": "DGX-H200"},
    {"accelerator": "B200", "rack": "DGX-B200", "racks": 3},
    {"accelerator": "A100-80GB", "rack": "DGX-A100"},
)


def asked(*alternatives: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """Return the small question with alternatives, and with other parts."""
    found = json.loads(json.dumps({**SMALL, **parts}))
    found["hardware"]["alternatives"] = list(alternatives)
    return dict(found)


def alone(x: dict[str, Any], **parts: Any) -> Plan:
    """Solve the small question on one alternative."""
    found = asked(**parts)
    own = {k: v for k, v in x.items() if k not in ("price_usd", "ready_months")}
    found["hardware"] = {**found["hardware"], **own, "alternatives": []}
    return planner.solve(found)


@pytest.mark.slow
def test_the_plan_is_that_of_the_best_alone() -> None:
    """Days and bound are the least of all GPUs alone; the plan passes the check and names its GPU."""
    plan = planner.solve(asked(*OTHERS))
    singles = {"H100": planner.solve(SMALL), **{x["accelerator"]: alone(x) for x in OTHERS}}
    values = {name: x.objective.value for name, x in singles.items() if x.objective.value is not None}
    best = min(values, key=lambda name: values[name])
    assert plan.status == "optimal" and not planner.check(plan)
    assert plan.layout.accelerator == best
    assert plan.objective.value == pytest.approx(values[best], rel=1e-9)
    assert plan.objective.bound == pytest.approx(values[best], rel=1e-9)
    for x in plan.proof.alternatives:
        assert x.least_days is None or x.least_days >= values[best]


@pytest.mark.slow
def test_a_gpu_that_comes_late_is_chosen_by_its_end() -> None:
    """The faster GPU is chosen while it ends sooner in spite of its delivery; the check knows both."""
    first, second = planner.solve(SMALL).objective.value, alone(OTHERS[0]).objective.value
    assert first is not None and second is not None and second < first
    months = (first - second) / DAYS_A_MONTH
    for ready, chosen in ((0.9 * months, "H200"), (1.1 * months, "H100")):
        plan = planner.solve(asked({**OTHERS[0], "ready_months": ready}))
        assert plan.layout.accelerator == chosen and not planner.check(plan)


@pytest.mark.slow
def test_the_day_of_the_finish_is_that_of_the_gpu_chosen_by_its_end() -> None:
    late = {**OTHERS[0], "ready_months": 0.1}
    plan, days = planner.solve(asked(late, objective={"minimize": "finish_date"})), planner.solve(asked(late))
    assert not planner.check(plan)
    assert plan.layout.accelerator == days.layout.accelerator
    wait = plan.instance.hardware.ready_months * DAYS_A_MONTH
    assert plan.objective.value == pytest.approx(wait + (days.objective.value or 0.0), rel=1e-9)
    assert len(plan.proof.alternatives) == 1 and plan.status == "optimal"


def test_a_gpu_that_comes_after_the_end_is_not_searched() -> None:
    plan = planner.solve(asked({**OTHERS[0], "ready_months": 120.0}))
    assert plan.layout.accelerator == "H100" and not planner.check(plan)
    assert plan.proof.alternatives[0].bound_days == 0


def test_a_gpu_that_ends_later_is_bought_where_no_other_is_in_time() -> None:
    """The deadline is on the days of training: a faster GPU keeps it, however late it is ready."""
    fast = {**OTHERS[1], "ready_months": 6.0}
    plan = planner.solve(asked(fast, limits={**SMALL["limits"], "deadline_days": 3.0}))
    assert plan.status == "optimal" and not planner.check(plan)
    assert plan.layout.accelerator == "B200"


@pytest.mark.parametrize(
    ("bound", "ready_months", "expected"),
    [(2.0, 0.0, 2.0), (2.0, 1 / 30.4375, 3.0), (5.0, 0.0, 4.0), (0.0, 0.0, None), (None, 0.0, None)],
)
def test_the_bound_is_that_of_all_gpus_on_the_scale_of_the_chosen(
    bound: float | None, ready_months: float, expected: float | None
) -> None:
    best = HardwareAnswer(load_instance(SMALL), JointSolution(status=JointStatus.OPTIMAL, days=4.0, lower_bound=4.0))
    best = replace(best, solution=replace(best.solution, plan=SimpleNamespace()))  # type: ignore[arg-type]
    hardware = best.instance.hardware.model_copy(update={"ready_months": ready_months})
    cut = JointSolution(status=JointStatus.UNKNOWN, lower_bound=bound, stopped="limit")
    other = HardwareAnswer(best.instance.model_copy(update={"hardware": hardware}), cut)
    found = bounded_by_all(best, (other,))
    assert found.stopped == "limit"
    assert found.lower_bound == (None if expected is None else pytest.approx(expected))


def test_the_goal_is_proven_only_where_the_fewest_days_are() -> None:
    """A gap that was asked for is left, and the end says that a faster plan may exist; without one none does."""
    for gap in (0.5, None):
        plan = planner.solve({**SMALL, "objective": {"tolerance": 0.01}}, gap=gap)
        assert plan.objective.ends and plan.objective.bound is not None
        goal = plan.objective.ends[0]
        assert goal.proven == (goal.value <= plan.objective.bound * (1 + 1e-9))


def test_the_price_is_the_alternatives_own() -> None:
    plan = planner.solve(asked({**OTHERS[0], "price_usd": 1e6}))
    assert plan.layout.accelerator == "H100"


@pytest.mark.slow
def test_least_cost_buys_the_cheaper_racks() -> None:
    limits = {**SMALL["limits"], "deadline_days": 6.0, "budget_usd": 3e6}
    parts: dict[str, Any] = {"objective": {"minimize": "cost_usd"}, "limits": limits, "network": None}
    plan, single = planner.solve(asked(OTHERS[0], **parts)), planner.solve(asked(**parts))
    costs = [x.objective.value for x in (single, alone(OTHERS[0], **parts)) if x.objective.value is not None]
    assert plan.objective.value == pytest.approx(min(costs), abs=0.05)
    assert not planner.check(plan)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("proof.alternatives.0.accelerator", "none"),
        ("proof.alternatives.0.bound_days", lambda x: x * 0.9),
        ("proof.alternatives", lambda own: own[:-1]),
    ],
)
def test_a_changed_proof_is_told(path: str, change: Any) -> None:
    bent = edited_at(with_an_alternative(), path, change)
    assert any(v.rule.startswith("alternatives") for v in planner.check(bent))


@cache
def with_an_alternative() -> Plan:
    return planner.solve(asked(OTHERS[0]))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"alternatives": [{"accelerator": "H100", "rack": "DGX-H100"}]}, "hardware.alternatives[0]"),
        ({"alternatives": [{"accelerator": "H900", "rack": "DGX-H100"}]}, "hardware.alternatives[0].accelerator"),
        ({"alternatives": [{"accelerator": "H200", "rack": "DGX-H200", "price": 1}]}, "hardware.alternatives[0].price"),
    ],
)
def test_what_is_no_alternative_is_refused(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError, match=path.replace("[", r"\[").replace("]", r"\]")):
        planner.solve({**SMALL, "hardware": {**SMALL["hardware"], **change}})


def test_what_asks_about_one_gpu_refuses_others() -> None:
    for ask in (planner.explain, planner.frontier):
        with pytest.raises(InputError, match=r"hardware\.alternatives"):
            ask(asked(*OTHERS))  # type: ignore[operator]
