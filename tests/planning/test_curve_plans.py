"""The curve of an instance as plans: each keeps every rule, none beats another, and what is proven of them holds."""

from itertools import pairwise

import pytest
from joint_brute_force import toy
from joint_cost_brute_force import CostToy, without
from tiers import slow

import planner
from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models.joint.search.days import days
from planner.models.joint.solve import world_of
from planner.models.requests import Options
from planner.planning.frontier import Frontier, frontier_of
from planner.solvers.signals import Deadline


def curve_of(i: Instance, *, epsilon: float = 0.1, points: int | None = None) -> Frontier:
    return frontier_of(i, Options(), lambda _: None, epsilon=epsilon, points=points)


@pytest.mark.parametrize(("seed", "sites"), [(3, 2), *slow((14, 2), (36, 3), (6, 1))])
def test_points_are_plans_that_keep_the_rules(seed: int, sites: int) -> None:
    """Capital is the bill, days are the layout's, the checker agrees; the last is the fastest plan, proven."""
    i = toy(seed, sites=sites, forced=True) if sites > 1 else toy(seed)
    found = curve_of(i)
    curve = found.curve
    assert curve.stopped == "proved" and curve.epsilon == 0.1 and len(curve.points) == len(found.plans) > 0
    for point, plan in zip(curve.points, found.plans, strict=True):
        assert planner.check(plan) == [] and plan.verified
        assert point.capital_usd == pytest.approx(plan.cost.total_usd if plan.cost else 0.0, rel=1e-9)
        assert point.days_to_train == pytest.approx(plan.layout.metrics.days_to_train, rel=1e-9)
        assert point.bound_days is not None and point.bound_days <= point.days_to_train
        assert point.racks == sum(point.racks_by_site.values())
    assert all(a.capital_usd < b.capital_usd and a.days_to_train > b.days_to_train for a, b in pairwise(curve.points))
    best = planner.solve(i)
    assert best.objective.value == pytest.approx(curve.points[-1].days_to_train, rel=1e-9)
    assert curve.points[-1].bound_days == curve.points[-1].days_to_train


@pytest.mark.parametrize("seed", [7, *slow(14, 18)])
def test_bounds_and_the_share_hold_for_the_enumeration(seed: int) -> None:
    """No plan of a point's money is under its bound; with points left out the share that is stated still covers all."""
    i = without(toy(seed, sites=2, forced=True), deadline_days=None)
    problem = world_of(i, Options(), Deadline()).problem
    every = [(days(problem, x.seconds), x.usd) for x in CostToy(i).front]
    for points in (None, 2):
        curve = curve_of(i, points=points).curve
        assert points is None or len(curve.points) <= points
        assert curve.epsilon is not None and curve.slowest_days is not None
        for late, usd in every:
            share = min(max(p.days_to_train / late, p.capital_usd / usd) for p in curve.points) - 1
            assert late >= curve.slowest_days or share <= curve.epsilon * (1 + 1e-6)
            for p in curve.points:
                assert usd > p.capital_usd or p.bound_days is None or late >= p.bound_days * (1 - 1e-9)


def test_an_instance_without_plans_has_no_points() -> None:
    curve = curve_of(without(toy(3, sites=2, forced=True), budget_usd=1.0)).curve
    assert (curve.points, curve.stopped) == ((), "proved")


def test_racks_or_a_grid_are_needed() -> None:
    i = toy(6)
    bare = i.model_copy(update={"grid": None, "hardware": i.hardware.model_copy(update={"racks": None})})
    with pytest.raises(InputError, match=r"hardware\.racks"):
        curve_of(bare)
