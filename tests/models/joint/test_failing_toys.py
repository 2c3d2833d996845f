"""The joint optimum where parts fail equals full enumeration: spares, ways to go on and all else chosen together."""

from functools import cache

import pytest
from joint_brute_failures import best_of, every_plan, failing
from joint_brute_force import Plan
from joint_solved import solved
from joint_toys import case
from tiers import more

import planner
from planner.models.joint.least_cost import cheapest_by
from planner.models.joint.solution import JointStatus
from planner.models.joint.solve import world_of
from planner.models.requests import Options
from planner.solvers.signals import Deadline

SEEDS = (0, 10, 15, 75, 16, 26, 41, 12, 27, 13, 43, 4, 24)


@cache
def enumerated(seed: int) -> Plan | None:
    """Enumerate a case once."""
    return best_of(failing(seed))


@pytest.mark.parametrize("seed", [*SEEDS, *more(57)])
def test_equals_full_enumeration(seed: int) -> None:
    """Time on a clock and capital of the optimum are those of the best of all plans, or there is none by both."""
    best, found = enumerated(seed), solved(failing(seed))
    if best is None:
        assert (found.status, found.plan) == (JointStatus.INFEASIBLE, None)
        return
    assert found.plan is not None and found.status is JointStatus.OPTIMAL
    assert found.plan.seconds == pytest.approx(best.seconds, rel=1e-8)
    assert found.plan.capital_usd == pytest.approx(best.usd, rel=1e-8)


@pytest.mark.slow
def test_the_toys_choose_differently() -> None:
    """Among the toys more than one way to go on is best, and some plans have spares and some none."""
    plans = [p for seed in SEEDS if (p := solved(failing(seed)).plan) is not None and p.upkeep is not None]
    assert len({p.upkeep.way.recovery for p in plans if p.upkeep}) > 1
    assert len({p.column.sparing.target > 0 for p in plans}) == 2


@pytest.mark.parametrize("seed", [0, 16, 24, *more(27)])
def test_least_cost_equals_full_enumeration(seed: int) -> None:
    """By each of several deadlines on a clock the cheapest plan is the cheapest of all plans in time."""
    i = failing(seed)
    plans, world = every_plan(i), world_of(i, Options(), Deadline(None))
    times = sorted({p.seconds for p in plans})
    for limit in (times[0], times[len(times) // 3], times[-1]):
        best = min((p for p in plans if p.seconds <= limit * (1 + 1e-9)), key=lambda p: (round(p.usd, 2), p.seconds))
        found = cheapest_by(world, limit * (1 + 1e-9))
        assert found.capital_usd == pytest.approx(best.usd, rel=1e-9)
        assert found.status is JointStatus.OPTIMAL


def test_spares_of_ties_stand_on_racks_that_are_there() -> None:
    """Plans within a tolerance have no more spare racks than a cluster has, where no network joins them either."""
    given = case(19).model_dump(mode="json", exclude_none=True)
    del given["network"]
    plan = planner.solve(given | {"reliability": "llama3-2024", "pins": {}, "objective": {"tolerance": 0.01}})
    assert plan.status == "optimal" and planner.check(plan) == []
    assert plan.reliability is not None and plan.layout is not None
    assert plan.layout.racks_per_replica + sum(plan.reliability.spare_racks_by_site.values()) <= 3
