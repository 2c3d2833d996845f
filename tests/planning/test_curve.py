"""The curve of money against days: around a plan, of an instance, and as a goal; what is proven of its points holds."""

import math
import random
from collections.abc import Iterable
from functools import cache
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import joint_toys
import pytest
from joint_brute_force import cost_toy, toy
from tiers import more, slow

import planner
from planner.checks.check_plan import check
from planner.cli.console import ExitCode, exit_code
from planner.errors import InputError
from planner.instance.hardware import HardwareAlternative
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.joint_question import Solving
from planner.models.joint.solve_joint import solve_joint
from planner.physics.site import site_power
from planner.physics.training.step_prediction import days_of
from planner.plan.plan import Curve, Plan
from planner.planning import frontier
from planner.planning.changed_instance import in_days_of_training
from planner.planning.explanation import explained
from planner.planning.frontier import Frontier, covered_within, frontier_of, why_no_curve
from planner.planning.solve import near_layouts, solve_instance
from planner.report.summary import curve_section, summary
from planner.solvers.signals import Interrupter


def campus(seed: int) -> Instance:
    """Return a toy of two sites whose curve has several points."""
    return toy(seed, sites=2).replaced(limits__deadline_days=None)


def require_bounds(i: Instance, curves: Iterable[Curve]) -> None:
    """Require that no plan of a point's money is under its bound, and that each of the box is within the share."""
    problem, every = Solving().world(i).problem, cost_toy(i).front
    for curve, x in product(curves, every):
        late, usd = days_of(problem.instance, x.seconds), x.usd
        assert curve.none_below_usd is None or usd > curve.none_below_usd
        share = min(max(p.days_to_train / late, p.capital_usd / usd) for p in curve.points) - 1
        outside = usd < (curve.least_usd or 0.0) * (1 - 1e-9) or late >= (curve.slowest_days or math.inf)
        assert outside or share <= curve.epsilon * (1 + 1e-6) + 1e-9
        for p in curve.points:
            assert usd > p.capital_usd or p.bound_days is None or late >= p.bound_days * (1 - 1e-9)


@pytest.mark.parametrize("seed", [*slow(7), *more(2, 14, 18)])
def test_bounds_and_the_share_hold_for_the_enumeration(seed: int) -> None:
    """No plan of a point's money is under its bound; every plan of the box is covered within the share."""
    i = campus(seed)
    session = planner.Session()
    plan = session.solve(i)
    found = session.curve(plan)
    assert len(found.plans) > 1 or seed > 7
    curve = found.curve
    assert curve.epsilon is not None and curve.least_usd is not None and curve.stopped == "proved"
    assert [x.asked for x in curve.points] == [x is plan for x in found.plans] and any(x.asked for x in curve.points)
    for point, own in zip(curve.points, found.plans, strict=True):
        assert check(own) == [] and point.capital_usd == (own.cost.total_usd if own.cost else None)
    require_bounds(i, [curve])
    kept = plan.replaced(curve=curve)
    assert check(kept) == []
    assert Plan.model_validate_json(kept.model_dump_json()) == kept


def test_an_end_leaves_the_points_so_far(drawn: Plan) -> None:
    """An interrupter that is set before the first question leaves the plan alone on the curve."""
    end = Interrupter()
    end.interrupt()
    curve = planner.Session().curve(drawn.replaced(curve=None), interrupt=end).curve
    assert ([x.asked for x in curve.points], curve.stopped) == ([True], "interrupted")


def test_the_share_covers_the_worst_plan_between_points() -> None:
    """That is as fast as the bound of the dearer point and as cheap as the other; of few points it needs all of it."""
    for number, r in product((1, 2, 3, 4), map(random.Random, range(40))):
        usd, days = sorted(r.uniform(1, 9) for _ in range(number)), sorted(-r.uniform(1, 9) for _ in range(number))
        points = [(x, -t) for x, t in zip(usd, days, strict=True)]
        bounds = sorted((t * r.choice([1.0, r.random()]) for _, t in points), reverse=True)
        worst = zip([usd[0], *usd], bounds, strict=False)
        needed = max(min(max(p / x, late / t) for p, late in points) for x, t in worst) - 1
        found = covered_within(points, bounds)
        assert needed <= found + 1e-12
        exact = number == 1 or (number == 2 and points[0][1] == bounds[0])
        assert found == pytest.approx(needed) or not exact
        assert covered_within(points, [*bounds[:-1], 0.0]) == covered_within([], []) == math.inf


def test_the_fewest_days_of_a_capital_are_those_of_the_sharpest_answer() -> None:
    """Each answer is exact up to its capital: no capital has more days, and those that were asked for just as many."""
    r, nothing = random.Random(0), SimpleNamespace()
    found = frontier.BudgetQuestions(instance=nothing, solving=nothing)
    asked = [r.random() for _ in range(9)]
    found.answers = [(usd, 1 / usd) for usd in asked]
    assert all(found.min_days(usd) <= 1 / usd for usd in (r.random() for _ in range(40)))
    assert [found.min_days(usd) for usd in asked] == [1 / usd for usd in asked]


@pytest.fixture(scope="module")
def drawn() -> Plan:
    return planner.solve(campus(7), curve=True)


def rules(plan: Plan, changed: Curve) -> set[str]:
    """Return the rules that a plan with another curve breaks, without the index of the point."""
    return {v.rule.partition("[")[0] for v in check(plan.replaced(curve=changed))}


def test_changed_curves_are_refused(drawn: Plan) -> None:
    curve = drawn.curve
    assert len(curve.points) > 1
    first, *_, last = curve.points

    def with_last(**more: Any) -> Curve:
        return curve.replaced(points=(*curve.points[:-1], last.replaced(**more)))

    assert rules(drawn, curve) == set()
    assert "curve_order" in rules(drawn, curve.replaced(points=curve.points[::-1]))
    assert "curve_of_plan" in rules(drawn, with_last(days_to_train=last.days_to_train * 1.01))
    assert "curve_of_plan" in rules(drawn, with_last(layout="TP 7"))
    assert "curve_points" in rules(drawn, with_last(racks=last.racks + 1))
    assert "curve_points" in rules(drawn, with_last(mfu=1.5))
    assert "curve_points" in rules(drawn, curve.replaced(none_below_usd=first.capital_usd * 1.01))
    assert "curve_points" in rules(drawn, curve.replaced(most_usd=last.capital_usd / 1.01))
    assert "curve_points" in rules(drawn, curve.replaced(most_usd=1.01 * (drawn.instance.limits.budget_usd or 0.0)))
    assert "curve_points" in rules(drawn, with_last(bound_days=last.days_to_train * 2))
    assert "curve_share" in rules(drawn, curve.replaced(epsilon=(curve.epsilon or 0.0) / 2))
    assert "curve_share" in rules(drawn, curve.replaced(least_usd=first.capital_usd / 2))


def test_a_cluster_whose_curve_pays_fewer_racks_may_beat_its_plan() -> None:
    """Money that racks do not take is left for the fabric, which no bound on plans of all racks speaks of."""
    plan = planner.solve(joint_toys.toy(4, sites=0), curve=True)
    (point,) = plan.curve.points
    assert point.days_to_train < 0.7 * plan.objective.bound and not point.asked
    assert plan.verified and rules(plan, plan.curve) == set()
    assert "one of them beats it" in curve_section(plan.curve)
    assert plan.objective.fabric_free_bound is None and plan.curve.epsilon < 0.7
    i = plan.instance.replaced(limits__budget_usd=None)  # and power that idle racks do not draw
    mw = site_power.facility_mw(i.hardware, i.hardware.racks) + 6e-4
    assert planner.solve(i.replaced(limits__facility_power_mw=mw), curve=True).verified
    plan = planner.solve(joint_toys.toy(7, sites=0), curve=True)  # whose money cables all racks
    beaten = plan.curve.points[-1].replaced(days_to_train=plan.objective.fabric_free_bound / 1.01, bound_days=0.0)
    assert "curve_of_plan" in rules(plan, plan.curve.replaced(points=(beaten.replaced(asked=False),)))


def test_a_curve_may_have_a_cheaper_gpu_than_its_plan_but_none_that_is_ready_later() -> None:
    i = campus(7)
    gpu, rack = i.hardware.accelerator, i.hardware.rack
    fast = gpu.replaced(name="fast", peak_flop_per_second={k: 3 * v for k, v in gpu.peak_flop_per_second.items()})
    other = HardwareAlternative(accelerator=fast, rack=rack.replaced(name="r", price_usd=1.5 * rack.price_usd))
    plan = planner.solve(i.replaced(hardware__alternatives=(other,)), curve=True)
    first, *rest = plan.curve.points
    assert plan.verified and first.capital_usd < other.rack.price_usd
    assert any("GPU tiny becomes fast" in point.changes for point in rest)
    late = planner.solve(i.replaced(hardware__alternatives=(other.replaced(ready_months=12.0),)))
    assert "ready in different months" in why_no_curve(late)


def test_a_curve_counts_capital_whatever_the_goal_of_its_instance() -> None:
    own = joint_toys.toy(4, sites=0).replaced(limits__deadline_days=100.0)
    found = planner.frontier(own.replaced(objective__minimize="total_cost_of_ownership_usd"))
    assert {plan.instance.objective.minimize for plan in found.plans} == {"days_to_train"}
    assert [plan.violations for plan in found.plans] == [()] * len(found.plans)


def test_a_curve_is_of_a_plan_that_asks_for_it_and_can_have_one(drawn: Plan) -> None:
    assert planner.solve(campus(7)).curve is None
    assert summary(drawn, section="curve") == curve_section(drawn.curve)
    assert why_no_curve(drawn) is None
    assert "the goal is money" in (why_no_curve(drawn.replaced(instance__objective__minimize="cost_usd")) or "")
    assert "cut short" in (why_no_curve(drawn.replaced(stopped="limit")) or "")


@pytest.mark.parametrize(("minimize", "deadline", "why"), [
    ("finish_date", None, "the goal is a date"),
    ("frontier", None, ""),
    ("frontier", 1e-6, "there is no plan to draw it around"),
])  # fmt: skip
def test_a_curve_that_is_left_out_has_its_reason(minimize, deadline, why, caplog):
    """Asked for a curve, the library logs and reports why there is none; a plan that holds its own needs no reason."""
    i = campus(7)
    i = i.replaced(objective__minimize=minimize, limits__deadline_days=deadline)
    lines: list[str] = []
    plan = planner.solve(i, curve=True, progress=lines.append)
    assert exit_code(plan, None) == (ExitCode.INFEASIBLE if deadline else ExitCode.DONE)
    assert plan.objective.name == minimize and not check(plan)
    logged = [x.getMessage() for x in caplog.records if "no curve" in x.getMessage()]
    assert (plan.curve is None) == bool(why) == any("no curve" in line for line in lines) == bool(logged)
    assert not why or why in logged[0]
    assert planner.Session().curve(plan).plans == ()
    assert (why or "the plan holds the whole curve") in caplog.records[-1].getMessage()


def curve_of(i: Instance, *, epsilon: float = 0.1, points: int | None = None, gap: float | None = None) -> Frontier:
    return frontier_of(i, Options(gap=gap), lambda _: None, epsilon=epsilon, points=points)


@pytest.mark.parametrize(("seed", "sites"), [(3, 2), *slow((36, 3), (6, 1)), *more((14, 2))])
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
    assert planner.solve(i).objective.value == pytest.approx(curve.points[-1].days_to_train, rel=1e-9)
    assert curve.points[-1].bound_days == curve.points[-1].days_to_train


def test_a_frontier_begins_with_the_curve_of_a_solve(drawn: Plan) -> None:
    """However coarse it is asked for, no plan of the solve's curve beats all of its plans in capital or days."""
    found = curve_of(drawn.instance, epsilon=9.0).curve.points
    assert len(drawn.curve.points) > 1
    for x in drawn.curve.points:
        usd, days = x.capital_usd + 0.01, x.days_to_train * (1 + 1e-9)
        assert any(p.capital_usd <= usd and p.days_to_train <= days for p in found)


@pytest.mark.parametrize("seed", [7, *more(14, 18)])
def test_bounds_of_an_instance_hold_for_the_enumeration(seed: int) -> None:
    """No plan of a point's money is under its bound; with points left out the share that is stated still covers all.

    A gap that was asked for is none of the bounds, and none of these falls with less money.
    """
    i = toy(seed, sites=2, forced=True).replaced(limits__deadline_days=None)
    curves = [curve_of(i, **how).curve for how in ({}, {"points": 2}, {"gap": 0.5})]
    assert len(curves[1].points) <= 2 and all(curve.slowest_days is not None for curve in curves)
    require_bounds(i, curves)
    for curve in curves:
        bounds = [x.bound_days or 0.0 for x in curve.points]
        assert bounds == sorted(bounds, reverse=True)


def test_points_that_are_left_out_are_covered_by_the_share() -> None:
    every, few = (curve_of(toy(0), points=n).curve for n in (None, 1))
    assert len(few.points) == 1 < len(every.points) and few.epsilon is not None
    for x in every.points:
        share = min(max(p.days_to_train / x.days_to_train, p.capital_usd / x.capital_usd) for p in few.points) - 1
        assert share <= few.epsilon * (1 + 1e-9)


def test_an_instance_without_plans_has_no_points_and_one_without_racks_or_a_grid_no_curve() -> None:
    curve = curve_of(toy(3, sites=2, forced=True).replaced(limits__budget_usd=1.0)).curve
    assert (curve.points, curve.stopped) == ((), "proved")
    with pytest.raises(InputError, match=r"hardware\.racks"):
        curve_of(toy(6).replaced(grid=None, hardware__racks=None))


OPTIONS = Options(gap=0.05)


def asked(seed: int) -> Instance:
    """Return a toy over sites that asks for the whole curve."""
    return toy(seed, sites=3).replaced(objective__minimize="frontier")


@cache
def whole(seed: int) -> Plan:
    return solve_instance(asked(seed), OPTIONS, lambda _: None)


@pytest.mark.parametrize("seed", [4, *more(12)])
def test_the_plan_is_a_point_of_the_curve(seed: int) -> None:
    plan = whole(seed)
    alone = frontier_of(asked(seed), OPTIONS, lambda _: None, epsilon=0.05)
    assert plan.layout is not None and not check(plan)
    assert [x.capital_usd for x in plan.curve.points] == [x.capital_usd for x in alone.curve.points]
    own = [x for x in plan.curve.points if x.asked]
    assert len(own) == 1 and plan.objective.value == pytest.approx(own[0].days_to_train)
    assert own[0].knee or own[0] is plan.curve.points[-1]
    assert plan.curve.stopped == "proved" and exit_code(plan, None) == ExitCode.DONE
    assert "of the curve" in summary(plan, 120)


def test_a_deadline_that_the_fastest_plan_misses_leaves_no_curve() -> None:
    """A plan that is late is no point of it: where it is proven the fastest, the answer is that there is none."""
    fastest = solve_joint(in_days_of_training(asked(4)), Solving())
    assert fastest.days is not None
    found = frontier_of(asked(4).replaced(limits__deadline_days=fastest.days * 0.99), OPTIONS, str)
    assert (found.curve.points, found.curve.stopped, found.plans) == ((), "proved", ())


def test_kinds_of_layout_are_those_of_the_fewest_days() -> None:
    """Asked of a question for the curve, they are of its fastest plan; a curve itself is not explained."""
    i = asked(4)
    found = near_layouts(i, Options(), lambda _: None)
    days = solve_joint(in_days_of_training(i), Solving()).days
    assert found.plans and found.fewest_days == pytest.approx(days)
    with pytest.raises(InputError, match="explain the plan of one budget"):
        next(explained(whole(4), OPTIONS, str))


@pytest.mark.parametrize("seed", [6, *more(0, 12)])
def test_a_cluster_is_of_as_many_racks_as_the_budget_pays(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its idle racks take nothing of the budget: plans of fewer are found where it does not pay them all."""
    made, questions = frontier.BudgetQuestions, list[frontier.BudgetQuestions]()
    monkeypatch.setattr(frontier, "BudgetQuestions", lambda **how: questions.append(made(**how)) or questions[-1])
    i = toy(seed).replaced(limits__deadline_days=None)
    racks, budget = i.hardware.racks or 0, i.limits.budget_usd or 0.0
    asked = i.replaced(hardware__racks=racks + 3)
    assert planner.solve(asked).status == "infeasible" and budget < 1000.0 * (racks + 3)
    curve = frontier_of(asked, Options(), lambda _: None, epsilon=1e-6).curve
    problem = Solving().world(asked).problem
    smaller = (cost_toy(i.replaced(hardware__racks=n)).front for n in range(1, racks + 1))
    every = [(days_of(problem.instance, x.seconds), x.usd) for front in smaller for x in front]
    for days, usd in every:
        assert all(usd > most or days >= least * (1 - 1e-9) for most, least in questions[-1].answers)
        assert any(p.days_to_train <= days * (1 + 2e-6) and p.capital_usd <= usd * (1 + 2e-6) for p in curve.points)
    assert all(any(days <= p.days_to_train * (1 + 1e-6) for days, _ in every) for p in curve.points)
    assert all(p.capital_usd <= budget + 0.005 for p in curve.points)
