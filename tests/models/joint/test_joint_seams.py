"""Where deciding sites, layout, fabric and fibre one after another lost days, the joint optimum does not."""

import pytest
from joint_seams import SEAMS
from joint_solved import solved

from planner.instance.instance import Instance
from planner.models.joint.solution import JointStatus

# Days of `planner.solve` at commit 0f9c7f8, the last that decided one after another, on the same instances without
# `hardware.overhead_includes_fabric`, which that commit took for granted.
IN_ORDER = {
    "line to build": 0.7411504429673985,
    "thin fibre": 1.1743526667932578,
    "fabric x1": 0.7963720596783275,
    "fabric x2": 0.8378803298510642,
    "fabric x4": 0.9411709251111722,
    "fabric x6": 0.9411709251111722,
    "pair of sites": 1.0128567002003936,
    "16 ports": 0.46937502185962826,
    "20 ports": 0.46937502185962826,
    "24 ports": 0.46937502185962826,
}
SITES = {"line to build": {"W1"}, "thin fibre": {"E1", "W1"}, "pair of sites": {"T1", "W1"}}


@pytest.mark.parametrize("name", SEAMS)
def test_the_joint_optimum_is_faster_than_decisions_in_order(name: str) -> None:
    """The joint optimum is proven within the budget and takes at least 1 % fewer days than decisions in order took."""
    i = SEAMS[name]
    found = solved(i)
    assert found.status is JointStatus.OPTIMAL and found.plan is not None and found.days is not None
    assert found.days == found.lower_bound
    assert found.plan.capital_usd <= (i.limits.budget_usd or 0.0) * (1 + 1e-12)
    assert found.days < IN_ORDER[name] * 0.99
    if name in SITES:
        assert set(found.plan.blocks_by_site) == SITES[name]


def of_one_model(i: Instance) -> Instance:
    """Give the links of each model a price of its own, by a millionth, so that no fabric mixes models."""
    if i.network is None:
        return i
    apart = tuple(s.model_copy(update={"link_factor": 1 + k / 1e6}) for k, s in enumerate(i.network.switches))
    return i.model_copy(update={"network": i.network.model_copy(update={"switches": apart})})


def test_dearer_fabrics_cost_days() -> None:
    """Under one budget days grow with the price of fabrics, and the plan changes with it; mixed models soften that."""
    questions = [SEAMS[f"fabric x{f}"] for f in (1, 2, 4, 6)]
    found = [solved(of_one_model(i)) for i in questions]
    days = [x.days or 0.0 for x in found]
    assert days == sorted(days) and len(set(days)) == len(days)
    assert len({(x.plan.column.d, x.plan.conditions.send) for x in found if x.plan is not None}) == 4
    mixed = [solved(i).days or 0.0 for i in questions]
    assert mixed == sorted(mixed)
    assert all(a <= b * (1 + 1e-6) for a, b in zip(mixed, days, strict=True)) and mixed[1] < days[1] * 0.99


def test_the_line_is_not_built() -> None:
    """The capital of a line to cheap energy goes to racks at the site that needs none."""
    plan = solved(SEAMS["line to build"]).plan
    assert plan is not None and plan.placed is not None
    assert not plan.placed.circuits
