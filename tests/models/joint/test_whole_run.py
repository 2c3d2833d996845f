"""The least total cost of ownership: equal to full enumeration, each plan priced over its own run."""

from itertools import pairwise
from typing import Any

import pytest
from joint_brute_force import toy
from joint_run_brute_force import RunToy, run_toy
from joint_solved import solved
from tiers import more

from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.least_cost import least_run_cost
from planner.models.joint.world import JointSolution, JointStatus
from planner.physics.training.layer_time import days_of

CASES: dict[str, Any] = {  # seed, kind of toy, and what operation costs as a share of the racks
    "cluster": (0, {}, 0.03),
    "forced 7": (7, {"forced": True}, 1.0),
    "two sites 25": (25, {"sites": 2, "forced": True}, 0.2),
}
MORE: list[Any] = [
    (20, {"forced": True}, 0.2), (7, {"sites": 3, "forced": True}, 0.03), (36, {"sites": 2, "forced": True}, 1.0),
    (3, {"sites": 2, "forced": True}, 0.03), (2, {"forced": True}, 0.03), (6, {}, 1.0),
    (14, {"sites": 2, "forced": True}, 1.0), (18, {"sites": 3, "forced": True}, 1.0), (5, {"sites": 2}, 1.0),
]  # fmt: skip
FACTORS = (1.0, 1.3, 40.0)  # of the fewest days


def fewest_days(i: Instance) -> float:
    found = solved(i).days
    assert found is not None
    return found


def costly(i: Instance, share: float, *, staff: bool = True) -> Instance:
    """Return a toy whose longest runs cost a good share of its racks: upkeep, lives, energy, and staff."""
    years = fewest_days(i) / 365
    return run_toy(
        i, maintenance_share_per_year=share / years / 4, staff_usd_per_year=1000 * share / years if staff else None,
        fabric_life_years=years * 2.6, rack_life_years=years * 1.7, usd_per_mwh=share * 1000 / years / 8760 / 3,
    )  # fmt: skip


def least(i: Instance, days: float) -> JointSolution:
    limits = i.limits.model_copy(update={"deadline_days": days})
    return least_run_cost(i.model_copy(update={"limits": limits}), Options(), lambda _: None)


@pytest.mark.parametrize(
    ("seed", "how", "share"), [*(pytest.param(*case, id=name) for name, case in CASES.items()), *more(*MORE)]
)
def test_equals_full_enumeration(seed: int, how: dict[str, Any], share: float) -> None:
    """The least cost at deadlines from the fewest days to forty times as many, operation cheap and dear."""
    i = costly(toy(seed, **how), share)
    every, soonest = RunToy(i), fewest_days(i)
    for factor in FACTORS:
        found, best = least(i, soonest * factor), every.cheapest(soonest * factor / days_of(i, 1.0))
        assert found.plan is not None and found.status is JointStatus.OPTIMAL
        assert found.usd == pytest.approx(best.usd, rel=1e-9)
        assert found.lower_bound == found.usd
    assert least(i, soonest * 0.99).status is JointStatus.INFEASIBLE


@pytest.mark.parametrize("seed", [3, *more(14)])
def test_years_that_are_given_count_whatever_the_run(seed: int) -> None:
    i = costly(toy(seed, sites=2, forced=True), 0.3)
    days = fewest_days(i) * 3
    found = []
    for years in (0.0, 0.001, 0.004):
        limits = i.limits.model_copy(update={"operation_years": years})
        asked = i.model_copy(update={"limits": limits})
        every = RunToy(i)
        every.years = lambda _, years=years: years  # type: ignore[method-assign, misc]
        best, x = every.cheapest(days / days_of(i, 1.0)), least(asked, days)
        assert best is not None and x.usd == pytest.approx(best.usd, rel=1e-9)
        found.append(best.usd)
    assert all(b > a for a, b in pairwise(found))


def test_a_search_cut_short_claims_no_proof() -> None:
    i = costly(toy(6), 0.3)
    days = fewest_days(i) * 2
    limits = i.limits.model_copy(update={"deadline_days": days})
    cut = least_run_cost(i.model_copy(update={"limits": limits}), Options(time_limit=1e-9), lambda _: None)
    assert cut.stopped == "limit" and cut.status in (JointStatus.UNKNOWN, JointStatus.FEASIBLE)
    assert (cut.lower_bound or 0.0) <= (least(i, days).usd or 0.0)
