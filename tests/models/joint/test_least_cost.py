"""The least cost by a deadline: equal to full enumeration, never dearer with more time, and the fastest of equals."""

import math
from typing import Any

import pytest
from joint_brute_force import includes_fabric, toy
from joint_cost_brute_force import CostToy, without

from planner.instance.instance import Instance
from planner.models.joint.least_cost.solve import (
    cheapest_by,
    days_of,
    world_of,
)
from planner.models.joint.solution import JointStatus
from planner.models.joint.world import World
from planner.models.requests import Options

CASES: list[tuple[int, dict[str, Any]]] = [
    *((seed, {}) for seed in (0, 2, 6, 8, 14)),
    *((seed, {"forced": True}) for seed in (2, 7, 8, 12, 19, 20, 26)),
    *((seed, {"forced": True, "network": None}) for seed in (8, 19)),
    *((seed, {"sites": 2, "forced": True}) for seed in (3, 7, 14, 18, 21, 25, 36, 41, 48, 59)),
    *((seed, {"sites": 3, "forced": True}) for seed in (3, 7, 18, 25, 36)),
    *((seed, {"sites": 2}) for seed in (2, 5)),
]
NAMES = [f"{seed}{''.join('-' + k for k in how)}" for seed, how in CASES]
FACTORS = (1.0, 1.05, 1.3, 2.0, 4.0)  # of the fewest seconds


def world(i: Instance) -> World:
    """Gather a world without the limit of a first search."""
    return world_of(i, Options(), overhead_includes_fabric=includes_fabric(i))


@pytest.mark.parametrize(("seed", "how"), CASES, ids=NAMES)
@pytest.mark.parametrize("budget", [True, False], ids=["budget", "no budget"])
def test_equals_full_enumeration(seed: int, how: dict[str, Any], *, budget: bool) -> None:
    """Capital and time are those of the cheapest of all plans in time, the fastest of equal ones, at any deadline."""
    i = toy(seed, **how)
    i = i if budget else without(i, budget_usd=None)
    every, w = CostToy(i), world(i)
    fastest = min((x.seconds for x in every.front), default=1.0)
    for limit in (*(fastest * f for f in FACTORS), fastest * 0.99, math.inf):
        best, found = every.cheapest(limit), cheapest_by(w, limit)
        if best is None:
            assert (found.status, found.plan, found.capital_usd) == (JointStatus.INFEASIBLE, None, None)
            assert found.least_days is None or found.least_days <= days_of(w.problem, fastest) * (1 + 1e-9)
            continue
        assert found.plan is not None and found.status is JointStatus.OPTIMAL
        assert found.capital_usd == pytest.approx(best.usd, rel=1e-9)
        assert found.lower_bound_usd == found.capital_usd
        assert found.plan.seconds == pytest.approx(best.seconds, rel=1e-9)
