"""The joint optimum of a test instance, once a process, and what it must have in common with full enumeration."""

from typing import Any

import pytest
from joint_brute_force import Plan

from planner.instance.instance import Instance, instance_sha256
from planner.models import Options
from planner.models.joint.joint_world import JointSolution, World
from planner.models.joint.search.least_capital import LeastCapital
from planner.models.joint.solve_joint import Solving, least_capital_plan, solve_joint
from planner.solvers.signals import Deadline

_SOLVED: dict[tuple[str, int], JointSolution] = {}  # of this process, by the hash of the instance and the seed


def solved(i: Instance, *, seed: int = 0, time_limit: float | None = None) -> JointSolution:
    """Solve, without a limit of time unless one is given; without one a question is solved once a process."""
    if time_limit is not None:
        return solve_joint(i, Solving(options=Options(seed=seed), deadline=Deadline(time_limit)))
    key = instance_sha256(i), seed
    if key not in _SOLVED:
        _SOLVED[key] = solve_joint(i, Solving(options=Options(seed=seed)))
    return _SOLVED[key]


def cheapest(world: World, limit: float, **how: Any) -> JointSolution:
    """Return the plan of least capital within so many seconds a sequence."""
    return least_capital_plan(LeastCapital(world=world, limit=limit, **how))


def require_optimum(i: Instance, best: Plan | None, *, rel: float = 1e-9) -> JointSolution:
    """Require the seconds and the capital of the best of all plans, proven, or that there is provably none."""
    found = solved(i)
    if best is None:
        assert (found.status, found.plan, found.days) == ("infeasible", None, None)
        return found
    assert found.plan is not None and found.status == "optimal"
    assert found.plan.seconds == pytest.approx(best.seconds, rel=rel)
    assert found.plan.capital_usd == pytest.approx(best.usd, rel=rel)
    assert found.days == found.lower_bound
    return found
