"""The loop on the budget: few numbers of racks are tried, and what earlier solves proved changes no answer."""

import pytest
from worked_plan import instance_with

import planner
from planner.instance.instance import Instance
from planner.plan.plan import Plan
from planner.planning.solve import options_of, solve_instance
from planner.planning.trials import Learned

pytestmark = pytest.mark.slow


def solved(instance: Instance, learned: Learned | None = None) -> tuple[Plan, list[str]]:
    """Return the plan and the numbers of racks that were tried on the way."""
    messages: list[str] = []
    plan = solve_instance(instance, options_of(time_limit=None, gap=None, seed=0, threads=1), messages.append, learned)
    return plan, [line for line in messages if "days, bound" in line or "racks: no" in line]


def test_budgets_one_after_another_have_the_plans_of_each_alone() -> None:
    """Bills, layouts and bounds of the budgets before lead to the same racks and days."""
    learned = Learned()
    for budget in (40e6, 36e6, 34e6, 33e6, 30e6, 26e6, 37e6):
        instance = instance_with(limits__budget_usd=budget)
        alone, after = solved(instance)[0], solved(instance, learned)[0]
        assert (after.status, after.objective.value, after.objective.bound) == (
            alone.status,
            alone.objective.value,
            alone.objective.bound,
        )
        assert after.objective.joint_bound == pytest.approx(alone.objective.joint_bound, rel=1e-12)
        assert after.cost.total_usd == alone.cost.total_usd


def test_a_budget_that_is_not_spent_takes_two_numbers_of_racks() -> None:
    """Where the grid ends the campus the most racks follow on the first guess, and more at no site fit the grid."""
    plan, tried = solved(instance_with(limits__budget_usd=1e12))
    assert planner.check(plan) == [] and plan.cost.total_usd < 1e9
    assert len(tried) <= 2


def test_a_known_bill_leaves_little_to_try() -> None:
    """The budget of a plan just found takes its racks and one module more."""
    learned = Learned()
    before, _ = solved(instance_with(), learned)
    after, tried = solved(instance_with(), learned)
    assert after.objective.value == before.objective.value
    assert len(tried) <= 3
