"""The joint optimum where links of GPUs fail equals full enumeration: lanes of NICs chosen with all else."""

import pytest
from joint_brute_failures import best_of, every_plan, failing_links
from joint_solved import solved
from tiers import more

from planner.instance.hardware import Reliability
from planner.instance.instance import Instance
from planner.models.joint.least_cost import cheapest_by
from planner.models.joint.solution import JointStatus
from planner.models.joint.solve import world_of
from planner.models.requests import Options
from planner.solvers.signals import Deadline

SEEDS = (0, 16, 24, 26, 13, 29, 2, 12, 27)


def lanes(i: Instance) -> set[int]:
    """Return the lanes of NICs in the fabrics of the optimum."""
    plan = solved(i).plan
    return {t.design.lanes for t in plan.templates.values()} if plan is not None else set()


@pytest.mark.parametrize("seed", SEEDS)
def test_equals_full_enumeration(seed: int) -> None:
    """Time on a clock and capital of the optimum are those of the best of all plans, or there is none by both."""
    best, found = best_of(failing_links(seed)), solved(failing_links(seed))
    if best is None:
        assert (found.status, found.plan) == (JointStatus.INFEASIBLE, None)
        return
    assert found.plan is not None and found.status is JointStatus.OPTIMAL
    assert found.plan.seconds == pytest.approx(best.seconds, rel=1e-8)
    assert found.plan.capital_usd == pytest.approx(best.usd, rel=1e-8)


@pytest.mark.slow
def test_links_decide_the_lanes() -> None:
    """Toys whose cheapest switch has two links a GPU take the dearer one with one link where links fail."""

    def steady(i: Instance) -> Instance:
        assert isinstance(i.reliability, Reliability)
        parts = {k: p for k, p in i.reliability.parts.items() if p.gpu_hours_per_event}
        return i.model_copy(update={"reliability": i.reliability.model_copy(update={"parts": parts})})

    changed = [s for s in (27, 18, 6, 14) if lanes(steady(failing_links(s))) == {2} and lanes(failing_links(s)) == {1}]
    assert changed


@pytest.mark.parametrize("seed", [0, 16])
def test_least_cost_equals_full_enumeration(seed: int) -> None:
    """By each of several deadlines on a clock the cheapest plan is the cheapest of all plans in time."""
    i = failing_links(seed)
    plans, world = every_plan(i), world_of(i, Options(), Deadline(None))
    times = sorted({p.seconds for p in plans})
    for limit in (times[0], times[len(times) // 3], times[-1]):
        best = min((p for p in plans if p.seconds <= limit * (1 + 1e-9)), key=lambda p: (round(p.usd, 2), p.seconds))
        found = cheapest_by(world, limit * (1 + 1e-9))
        assert found.capital_usd == pytest.approx(best.usd, rel=1e-9)
        assert found.status is JointStatus.OPTIMAL


@pytest.mark.slow
@pytest.mark.parametrize("seed", [27, *more(12)])
def test_better_links_never_take_more_days(seed: int) -> None:
    """Links that last longer, and lanes that stand in for each other, never take more days; fewer lanes never fewer."""
    i = failing_links(seed)
    r, known = i.reliability, solved(i).days
    assert isinstance(r, Reliability) and known is not None and i.network is not None
    lasting = {k: p.model_copy(update={"link_hours_per_event": 1e4} if k == "link" else {}) for k, p in r.parts.items()}
    for better in ({"parts": lasting}, {"lane_failover": True}):
        found = solved(i.model_copy(update={"reliability": r.model_copy(update=better)})).days
        assert found is not None and found <= known * (1 + 1e-9)
    network = i.network.model_copy(update={"max_lanes": 1})
    fewer = solved(i.model_copy(update={"network": network})).days
    assert fewer is None or fewer >= known * (1 - 1e-9)
