"""The curve around a plan: points keep every rule, and bounds and share hold for every plan of the enumeration."""

from typing import Any

import pytest
from commands import run_here
from joint_brute_force import toy
from joint_cost_brute_force import CostToy, without

import planner
from planner.checks.check_plan import check
from planner.instance.instance import Instance
from planner.models.joint.search.days import days
from planner.models.joint.solve import world_of
from planner.models.requests import Options
from planner.plan.plan import Curve, Plan
from planner.planning.alternatives.curve_around import covered_within, why_no_curve
from planner.report.summary import curve_section, summary
from planner.solvers.signals import Deadline, Interrupter


def campus(seed: int) -> Instance:
    """Return a toy of two sites whose curve has several points."""
    return without(toy(seed, sites=2), deadline_days=None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 2, 14, 18])
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
    problem = world_of(i, Options(), Deadline()).problem
    for x in CostToy(i).front:
        late = days(problem, x.seconds)
        assert curve.none_below_usd is None or x.usd > curve.none_below_usd
        share = min(max(p.days_to_train / late, p.capital_usd / x.usd) for p in curve.points) - 1
        assert x.usd < curve.least_usd * (1 - 1e-9) or share <= curve.epsilon * (1 + 1e-6) + 1e-9
        for p in curve.points:
            assert x.usd > p.capital_usd or p.bound_days is None or late >= p.bound_days * (1 - 1e-9)
    kept = plan.model_copy(update={"curve": curve})
    assert check(kept) == []
    assert Plan.model_validate_json(kept.model_dump_json()) == kept


@pytest.mark.slow
def test_a_cluster_pays_the_racks_of_each_point() -> None:
    found = planner.Session().curve(planner.changed("one-rack", {"hardware.racks": 4}), points=3)
    racks = [x.racks for x in found.curve.points]
    assert racks == sorted(racks) and len(racks) == 3
    assert [x.instance.hardware.racks for x in found.plans] == racks
    assert all(check(x) == [] for x in found.plans)


def test_solve_writes_the_curve_where_it_is_asked_for(drawn: Plan) -> None:
    """The library leaves it out unless asked; the same solve gives the same curve."""
    i = campus(7)
    assert planner.solve(i).curve is None
    assert planner.solve(i, curve=True).curve == drawn.curve is not None
    assert summary(drawn, section="curve") == curve_section(drawn.curve)


def test_an_end_leaves_the_points_so_far() -> None:
    """An interrupter that is set before the first question leaves the plan alone on the curve."""
    plan, end = planner.solve(campus(7)), Interrupter()
    end.interrupt()
    curve = planner.Session().curve(plan, interrupt=end).curve
    assert ([x.asked for x in curve.points], curve.stopped) == ([True], "interrupted")


def test_the_share_between_points() -> None:
    """A plan between two points is covered by the dearer one as far as it costs more, or by the cheaper one in days."""
    assert covered_within([(1.0, 10.0)], [8.0]) == pytest.approx(0.25)
    assert covered_within([(1.0, 10.0), (1.5, 6.0)], [10.0, 6.0]) == pytest.approx(0.5)
    assert covered_within([(1.0, 10.0), (9.0, 9.0)], [10.0, 8.0]) == pytest.approx(0.25)
    assert covered_within([(1.0, 10.0), (9.0, 9.0)], [10.0, 0.0]) == float("inf")


@pytest.fixture(scope="module")
def drawn() -> Plan:
    return planner.solve(campus(7), curve=True)


def rules(plan: Plan, changed: Curve) -> set[str]:
    """Return the rules that a plan with another curve breaks, without the index of the point."""
    return {v.rule.partition("[")[0] for v in check(plan.model_copy(update={"curve": changed}))}


def test_changed_curves_are_refused(drawn: Plan) -> None:
    curve = drawn.curve
    assert len(curve.points) > 1
    first, *_, last = curve.points

    def with_last(**more: Any) -> Curve:
        return curve.model_copy(update={"points": (*curve.points[:-1], last.model_copy(update=more))})

    assert rules(drawn, curve) == set()
    assert "curve_order" in rules(drawn, curve.model_copy(update={"points": curve.points[::-1]}))
    assert "curve_of_plan" in rules(drawn, with_last(days_to_train=last.days_to_train * 1.01))
    assert "curve_of_plan" in rules(drawn, with_last(layout="TP 7"))
    assert "curve_points" in rules(drawn, with_last(racks=last.racks + 1))
    assert "curve_points" in rules(drawn, with_last(mfu=1.5))
    assert "curve_points" in rules(drawn, with_last(bound_days=last.days_to_train * 2))
    assert "curve_share" in rules(drawn, curve.model_copy(update={"epsilon": (curve.epsilon or 0.0) / 2}))
    assert "curve_share" in rules(drawn, curve.model_copy(update={"least_usd": first.capital_usd / 2}))


def test_why_there_is_no_curve(drawn: Plan) -> None:
    i = drawn.instance
    goal = i.model_copy(update={"objective": i.objective.model_copy(update={"minimize": "cost_usd"})})
    assert why_no_curve(drawn) is None
    assert "the goal is money" in (why_no_curve(drawn.model_copy(update={"instance": goal})) or "")
    assert "cut short" in (why_no_curve(drawn.model_copy(update={"stopped": "limit"})) or "")


@pytest.mark.parametrize(
    ("minimize", "deadline", "why"),
    [
        ("finish_date", None, "the goal is a date"),
        ("frontier", None, ""),
        ("frontier", 1e-6, "there is no plan to draw it around"),
    ],
)
def test_a_curve_that_is_left_out_has_its_reason(
    minimize: str, deadline: float | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Asked for a curve, the library logs and reports why there is none; a plan that holds its own needs no reason."""
    i = campus(7)
    goal = i.objective.model_copy(update={"minimize": minimize})
    i = i.model_copy(update={"objective": goal, "limits": i.limits.model_copy(update={"deadline_days": deadline})})
    lines: list[str] = []
    plan = planner.solve(i, curve=True, progress=lines.append)
    logged = [x.getMessage() for x in caplog.records if "no curve" in x.getMessage()]
    assert (plan.curve is None) == bool(why) == any("no curve" in line for line in lines) == bool(logged)
    assert not why or why in logged[0]
    assert planner.Session().curve(plan).plans == ()
    assert (why or "the plan holds the whole curve") in caplog.records[-1].getMessage()


@pytest.mark.slow
def test_the_command_prints_the_plan_then_the_curve(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary comes first, the curve behind it; the plan's file has both, and `show` prints the same."""
    monkeypatch.delenv("PLANNER_POINT")
    file, plan = tmp_path / "instance.json", tmp_path / "plan.json"
    file.write_text(campus(7).model_dump_json(exclude_none=True))
    done = run_here("solve", file, "-q", "-o", plan)
    assert done.returncode == 0 and "\nCURVE " in done.stdout
    assert run_here("show", plan).stdout == done.stdout
    alone = run_here("solve", file, "-q", "--point").stdout
    assert done.stdout.startswith(alone) and "CURVE" not in alone
