"""The joint optimum of a test instance, once a process, and what it and its proof have in common with enumeration."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from joint_brute_force import Plan

from planner.checks.joint_proof import missing_columns
from planner.checks.strategy_space_check import Space
from planner.instance.instance import Instance, instance_sha256
from planner.models import Options
from planner.models.joint.joint_question import Solving, World
from planner.models.joint.joint_solution import JointSolution
from planner.models.joint.search.least_capital import LeastCapital, least_capital_plan
from planner.models.joint.solve_joint import solve_joint
from planner.models.joint.strategy_space import JointProblem, Strategy, strategies_of, strategy, ways_to_cut
from planner.plan.certificate import JointProof
from planner.planning.joint_plan import proof_of
from planner.solvers.search_deadline import Deadline

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


def solved_with_proof(i: Instance) -> tuple[JointSolution, JointProof]:
    found = solved(i)
    return found, proof_of(i, found)


def require_proven_optimum(i: Instance, best: Plan | None) -> JointSolution:
    """Require the optimum of full enumeration, and that the checker finds no column below it."""
    found = require_optimum(i, best)
    if found.days is not None:
        assert list(columns_below(i, found.days, proof_of(i, found))) == []
    return found


def columns_below(i: Instance, days: float, proof: JointProof | None = None) -> Iterator[Any]:
    """Yield what the checker finds below so many days, by a proof or by one that lists nothing."""
    phi = i.network.transport.slowdown if i.network is not None else 1.0
    yield from missing_columns(Space(instance=i, transport_slowdown=phi), days, proof or JointProof())


def strategies(problem: JointProblem) -> Iterator[Strategy]:
    """Yield every way to cut a layer of the declared space."""
    for way in ways_to_cut(problem):
        yield from strategies_of(strategy(problem, *way))


def with_rule(problem: JointProblem, stack: str) -> JointProblem:
    """Return a problem under the rules of the framework of that name."""
    work = problem.instance.workload
    work = work.replaced(software__name=stack, framework_rules=True)
    return replace(problem, instance=problem.instance.replaced(workload=work))
