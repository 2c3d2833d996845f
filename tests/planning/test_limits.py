"""Solves under a limit: wherever the time ends there is a plan that keeps every rule, or "unknown" with the reason."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from joint_brute_force import toy
from tiers import slow

from planner.checks.check_plan import check
from planner.instance.instance import Instance
from planner.models.joint.space import strategies_of
from planner.models.requests import Options
from planner.plan.plan import Plan
from planner.planning.load import load_instance
from planner.planning.solve import solve_instance
from planner.solvers import highs
from planner.solvers.signals import Deadline

INSTANCES = Path(__file__).parents[2] / "instances"
PLANS, LONG = ("optimal", "feasible"), 1e6  # seconds: no limit by the clock


@dataclass
class Clock:
    """A clock without time: the limit passes when it is looked at for the n-th time; what began after it is counted."""

    passes_at: int
    looks: int = 0
    strategies: int = 0
    milps: int = 0

    @property
    def passed(self) -> bool:
        """Whether the limit has passed."""
        return self.looks >= self.passes_at

    def left(self, _: Deadline) -> float:
        """Return the seconds left."""
        self.looks += 1
        return 0.0 if self.passed else LONG


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Inject the clock, and count strategies listed and MILPs begun once its limit has passed."""
    found = Clock(passes_at=1 << 60)
    run = highs.run

    def strategies(one: Any) -> list[Any]:
        listed = strategies_of(one)
        found.strategies += len(listed) * found.passed
        return listed

    def milp(*args: Any, **how: Any) -> Any:
        found.milps += found.passed and how["time_limit"] > 0
        return run(*args, **how)

    monkeypatch.setattr(Deadline, "left", property(found.left))
    monkeypatch.setattr("planner.models.joint.cache.strategies_of", strategies)
    monkeypatch.setattr(highs, "run", lambda *args, **how: (milp if "time_limit" in how else run)(*args, **how))
    yield found


def at_cost(i: Instance) -> Instance:
    """Return the question of the least cost by a loose deadline."""
    objective = i.objective.model_copy(update={"minimize": "cost_usd"})
    limits = i.limits.model_copy(update={"deadline_days": 1e9})
    return i.model_copy(update={"objective": objective, "limits": limits})


def refused(i: Instance) -> Instance:
    """Return an instance that no budget pays."""
    return i.model_copy(update={"limits": i.limits.model_copy(update={"budget_usd": 1.0})})


CASES: dict[str, Callable[[], Instance]] = {
    "cluster": lambda: toy(6),
    "sites": lambda: toy(5, sites=2, forced=True),
    "cost": lambda: at_cost(toy(5, sites=2, forced=True)),
    "refused": lambda: refused(toy(5, sites=2, forced=True)),
    "pools": lambda: load_instance(INSTANCES / "two-pools.json"),
}


def require_honest(plan: Plan, clock: Clock) -> None:
    """Require a plan that keeps every rule, or a reason why there is none; and no proof without one."""
    assert check(plan) == []
    assert (plan.status in ("optimal", "infeasible")) == (plan.stopped == "proved")
    if plan.status == "unknown":
        assert "time limit" in plan.conflict.reason
    if plan.status in ("unknown", "feasible"):
        assert clock.passed and plan.stopped == "limit"
    if plan.status in PLANS:
        assert plan.objective.value is not None
        assert plan.objective.bound is None or plan.objective.bound <= plan.objective.value * (1 + 1e-9)
    assert (clock.strategies, clock.milps) == (0, 0)


@pytest.mark.parametrize("name", [*(name for name in CASES if name != "pools"), *slow("pools")])
@pytest.mark.parametrize("looks", [1, 30, 300, *slow(2, 3, 10, 100, 1000, 3000)])
def test_wherever_the_time_ends_the_answer_is_honest(name: str, looks: int, clock: Clock) -> None:
    """The limit passes at one look at the clock after another; nothing that may take long begins behind it."""
    instance, clock.passes_at = CASES[name](), looks
    require_honest(solve_instance(instance, Options(time_limit=LONG), lambda _: None), clock)


def test_a_limit_behind_the_first_plan_leaves_it(clock: Clock) -> None:
    instance = CASES["sites"]()
    best = solve_instance(instance, Options(), lambda _: None)

    def progress(line: str) -> None:
        if "TP" in line:
            clock.passes_at = 0

    plan = solve_instance(instance, Options(time_limit=LONG), progress)
    require_honest(plan, clock)
    assert plan.status == "feasible" and plan.objective.value is not None and best.objective.value is not None
    assert plan.objective.bound is not None and plan.objective.gap is not None
    assert plan.objective.bound <= best.objective.value * (1 + 1e-9) <= plan.objective.value * (1 + 2e-9)


def test_a_gap_is_no_proof() -> None:
    """A plan within the gap that was asked for is feasible, and the run ended by the gap."""
    plan = solve_instance(CASES["sites"](), Options(gap=0.9), lambda _: None)
    assert (plan.status, plan.stopped) == ("feasible", "gap") or plan.objective.gap == pytest.approx(0.0, abs=1e-9)
    assert check(plan) == []
