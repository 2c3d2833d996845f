"""The goal frontier: a plan of the curve with the whole curve, or why there is no plan."""

import pytest
from joint_brute_force import toy

import planner
from planner.checks.check_plan import check
from planner.cli.console import ExitCode, exit_code
from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models.joint.solve import solve_joint
from planner.models.requests import Options
from planner.planning.explain import explained
from planner.planning.frontier import frontier_of, in_days_of_training
from planner.planning.layouts import near_layouts
from planner.planning.solve import options_of, solve_instance
from planner.report.summary import summary

OPTIONS = options_of(time_limit=None, gap=0.05, seed=0, threads=None)


def asked(seed: int, **limits: float) -> Instance:
    """Return a toy over sites that asks for the whole curve."""
    i = toy(seed, sites=3)
    objective = i.objective.model_copy(update={"minimize": "frontier"})
    return i.model_copy(update={"objective": objective, "limits": i.limits.model_copy(update=limits)})


@pytest.mark.parametrize("seed", [4, pytest.param(12, marks=pytest.mark.slow)])
def test_the_plan_is_a_point_of_the_curve(seed: int) -> None:
    plan = solve_instance(asked(seed), OPTIONS, lambda _: None)
    alone = frontier_of(asked(seed), OPTIONS, lambda _: None, epsilon=0.05)
    assert plan.layout is not None and not check(plan)
    assert [x.capital_usd for x in plan.curve.points] == [x.capital_usd for x in alone.curve.points]
    own = [x for x in plan.curve.points if x.asked]
    assert len(own) == 1 and plan.objective.value == pytest.approx(own[0].days_to_train)
    assert own[0].knee or own[0] is plan.curve.points[-1]
    assert plan.curve.stopped == "proved" and exit_code(plan, None) == ExitCode.DONE
    assert "of the curve" in summary(plan, 120)


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.05, 0.5])
def test_a_gap_of_the_curve_is_no_gap_of_its_bounds(gap: float) -> None:
    """However coarse the curve, no bound is above the fewest days of its capital, and none falls with less money."""
    i = asked(4)
    plan = solve_instance(i, options_of(time_limit=None, gap=gap, seed=0, threads=None), lambda _: None)
    assert not check(plan)
    bounds = [x.bound_days or 0.0 for x in plan.curve.points]
    assert bounds == sorted(bounds, reverse=True)
    for x, bound in zip(plan.curve.points, bounds, strict=True):
        within = i.model_copy(update={"limits": i.limits.model_copy(update={"budget_usd": x.capital_usd * (1 + 1e-9)})})
        days = solve_joint(within, Options(), lambda _: None).days
        assert days is not None and bound <= days * (1 + 1e-9)


def test_kinds_of_layout_are_those_of_the_fewest_days() -> None:
    """Asked of a question for the curve, they are of its fastest plan; a curve itself is not explained."""
    i = asked(4)
    found = near_layouts(i, Options(), lambda _: None)
    days = solve_joint(in_days_of_training(i), Options(), lambda _: None).days
    assert found.plans and found.fewest_days == pytest.approx(days)
    with pytest.raises(InputError, match="explain the plan of one budget"):
        next(explained(solve_instance(i, OPTIONS, lambda _: None), OPTIONS))


def test_no_plan_has_its_reason() -> None:
    """Where no plan keeps the limits, the answer is the refusal with its rules, under the goal that was asked."""
    plan = solve_instance(asked(4, deadline_days=1e-6), OPTIONS, lambda _: None)
    assert plan.status == "infeasible" and plan.conflict is not None and plan.objective.name == "frontier"
    assert not check(plan) and exit_code(plan, None) == ExitCode.INFEASIBLE


def test_a_curve_is_of_one_gpu() -> None:
    given = asked(4).model_dump(mode="json")
    given["hardware"]["alternatives"] = [{"accelerator": "H100", "rack": "DGX-H100"}]
    with pytest.raises(planner.PlannerError, match="a whole curve is of one GPU and rack"):
        planner.solve(given)
