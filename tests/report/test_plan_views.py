"""Plans looked at from Python: text, HTML, pandas, the map and the staircase, and the versions for a report."""

import json
import math
import re
import sys
from collections.abc import Callable
from functools import partial
from html import escape
from itertools import pairwise
from random import Random
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from curves import POINTS, curve
from each_case import each
from joint_brute_force import toy
from matplotlib import pyplot
from page_cases import MADE
from stored_plans import stored

import planner
from planner.report.page.drawings import US_OUTLINE, albers, projected
from planner.report.page.page import report_page
from planner.report.plots import BELOW, curve_lines, draw_staircase, picture_of
from planner.report.summary import summary
from planner.sweeps.row_store import row_of_plan

mpl.use("Agg")
PLOTS = ("plot_step", "plot_memory", "plot_cost", "plot_sites")


@pytest.fixture(scope="module")
def plan() -> planner.Plan:
    return stored(toy(5, sites=2, forced=True))


@pytest.fixture(scope="module")
def none() -> planner.Plan:
    i = toy(5, sites=2, forced=True)
    return stored(i.replaced(limits__budget_usd=1.0))


def test_html_has_every_line_of_the_summary_escaped(none: planner.Plan) -> None:
    plan = stored(toy(5, sites=2, forced=True).replaced(name="<b>x</b> & y"))
    assert plan.summary() == summary(plan) and none.summary() == summary(none)
    text = plan._repr_html_()
    assert "<b>x</b>" not in text and "&lt;b&gt;x&lt;/b&gt; &amp; y: optimal" in text
    assert text.count("<tr>") == text.count("</tr>") > 3
    words = re.sub(r"<[^>]*>", " ", text)
    for line in summary(plan).splitlines()[1:]:
        assert escape(line.split()[-1]) in words


def test_a_frame_of_a_plan_has_the_columns_of_a_sweep(plan: planner.Plan, none: planner.Plan) -> None:
    """One row, with the figures of the plan under the names in a sweep's row; none where there is no plan."""
    frame = plan.to_frame()
    assert isinstance(frame, pd.DataFrame) and len(frame) == 1
    row = row_of_plan(0, "k", {"limits.budget_usd": 1.0}, plan, 1.0)
    table = planner.to_frame([row, row])
    assert len(table) == 2 and set(row.plan) <= set(frame.columns) & set(table.columns)
    for column in ("objective.value", "layout.metrics.days_to_train", "cost.total_usd"):
        assert frame[column][0] == table[column][0]
    assert frame["objective.value"][0] == plan.objective.value
    both = planner.to_frame([plan, none])
    assert both["status"].tolist() == ["optimal", "infeasible"] and pd.isna(both["cost.total_usd"][1])
    assert both["reason"][1] == (none.conflict.reason if none.conflict else "")


@pytest.mark.parametrize("name", PLOTS)
def test_plots_draw_on_given_axes_or_new_ones(name: str, plan: planner.Plan, none: planner.Plan) -> None:
    """The axes that come back are those given, with the plan's name and marks on them; without any, new ones.

    There is nothing to draw of an infeasible instance, which the error says.
    """
    left, right = pyplot.subplots(1, 2)[1]
    assert getattr(plan, name)(ax=left) is left and not right.has_data()
    assert left.has_data() and left.get_title().startswith(plan.instance.name)
    fresh = getattr(plan, name)()
    assert fresh not in (left, right) and fresh.has_data()
    pyplot.close("all")
    with pytest.raises(planner.PlannerError, match="is not in the plan \\(infeasible\\)"):
        getattr(none, name)()


def test_bars_are_the_figures_of_the_plan(plan: planner.Plan) -> None:
    """Bars of the step and the bill sum to their totals, and those of memory to the worst GPU's."""
    assert plan.layout is not None and plan.cost is not None
    m = plan.layout.metrics
    totals = {"plot_step": m.step_seconds, "plot_cost": sum(plan.cost.capex_usd.values())}
    for name, total in (totals | {"plot_memory": m.memory_bytes_per_gpu / 1e9}).items():
        axes = getattr(plan, name)()
        assert sum(b.get_width() for b in axes.patches) == pytest.approx(total, rel=1e-6), name
    pyplot.close("all")


CURVE = partial(draw_staircase, curve(), "worked")


@each(("call", "package", "extra"), [
    (lambda plan: plan.to_frame(), "pandas", "frames"),
    (lambda plan: plan.plot_step(), "matplotlib", "plot"),
    (lambda _: picture_of(CURVE, "worked", "svg"), "matplotlib", "plot"),
    (lambda plan: report_page([("x", plan)], MADE), "jinja2", "report"),
])  # fmt: skip
def test_a_missing_package_is_named_with_its_remedy(
    call: Callable[[Any], Any], package: str, extra: str, plan, monkeypatch
):
    """Where pandas, matplotlib or jinja2 is not installed the error names it and the extra that brings it."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(planner.PlannerError, match=f"install the extra `{extra}`") as error:
        call(plan)
    assert f"needs the package {package}" in str(error.value)


def test_versions(capsys: pytest.CaptureFixture[str]) -> None:
    """The report has planner, Python, both solvers and the platform, a line each."""
    planner.show_versions()
    lines = dict(x.split(maxsplit=1) for x in capsys.readouterr().out.splitlines())
    assert lines["planner"] == planner.__version__ and lines["python"] == sys.version.split()[0]
    assert lines["highspy"].startswith("1.13") and lines["ortools"].startswith("9.15") and "platform" in lines


def corners_of(name: str, drawn: Any) -> list[tuple[float, float]]:
    """Return the corners of a line of a curve, of none where it is not drawn."""
    return next((list(line.points) for line in curve_lines(drawn) if line.name == name), [])


def test_between_two_plans_the_dearer_one_is_out_of_reach() -> None:
    """No line joins two plans, and the last goes on to the limit; bounds begin below the first and end with one."""
    corners = corners_of("plans", curve())
    assert [c for c in corners if c in [(usd, days) for usd, days, _, _ in POINTS]] == [p[:2] for p in POINTS]
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(corners))
    assert corners[:3] == [(1e9, 40.0), (2e9, 40.0), (2e9, 16.0)] and corners[-1] == (1e10, 10.9)
    assert corners_of("plans", curve(most_usd=None))[-1][0] > POINTS[-1][0]
    assert corners_of("plans", curve(())) == corners_of(BELOW, curve(POINTS[2:3])) == []
    below, *rest = corners_of(BELOW, curve())
    assert below[0] < 1e9 and below[1] == 38.0 and rest[-1] == (9e9, 10.9)


@pytest.mark.parametrize("seed", range(8))
def test_corners_are_those_of_the_definitions(seed: int) -> None:
    """At any money: the days of the fastest plan that it pays, and the largest bound of any plan that costs as much."""
    rng = Random(seed)
    money = sorted(rng.sample(range(1, 60), 6))
    days = sorted(rng.sample(range(20, 90), 6), reverse=True)
    bounds = [rng.choice([None, d * rng.uniform(0.5, 1.0)]) for d in days]
    drawn = curve(tuple(zip(map(float, money), map(float, days), bounds, money, strict=True)), most_usd=70.0)
    for usd in range(2, 70):
        at = usd - 0.5
        paid = [p.days_to_train for p in drawn.points if p.capital_usd <= at]
        proven = [p.bound_days for p in drawn.points if p.bound_days is not None and p.capital_usd >= at]
        assert level(corners_of("plans", drawn), at) == (min(paid) if paid else None)
        if at >= money[0]:
            assert level(corners_of(BELOW, drawn), at) == (max(proven) if proven else None)


def level(corners: list[tuple[float, float]], at: float) -> float | None:
    """Return the height of the level stretch above a place of the axis."""
    return next((a[1] for a, b in pairwise(corners) if a[0] < at < b[0]), None)


def test_the_picture() -> None:
    """It is the same twice, and a curve without plans, or with free ones, is drawn too."""
    free = curve(((0.0, 9.0, None, 1),), most_usd=None)
    for draw in (partial(draw_staircase, one, "worked") for one in (curve(), curve(()), free)):
        svg = picture_of(draw, "worked", "svg")
        assert svg == picture_of(draw, "worked", "svg") and b"<dc:title>worked</dc:title>" in svg
        assert picture_of(draw, "worked", "png").startswith(b"\x89PNG")


def test_albers_meets_the_worked_example() -> None:
    """35 N 75 W from 23 N 96 W is where Snyder (1987, p. 291) computes it by hand.

    Elsewhere a degree east is as long as it is at the places' mean latitude.
    """
    (x, y), (x0, y0) = albers(35, -75), albers(23, -96)
    assert (x - x0, y - y0) == pytest.approx((0.2952720, 0.2416774), abs=5e-8)
    ((x0, y0), (x1, y1)), in_us = projected([(60.0, 10.0), (60.0, 11.0)])
    assert (x1 - x0, y1 - y0) == pytest.approx((math.radians(1) / 2, 0.0)) and not in_us


def test_outline_is_the_48_states() -> None:
    """The outline is small, lies in the map's frame, and reaches Maine, Florida, Texas and Washington."""
    shapes = json.loads(US_OUTLINE.read_text(encoding="utf-8"))
    points = [tuple(p) for name in ("outline", "borders") for part in shapes[name] for p in part]
    assert 300 < len(points) < 800
    assert projected(points)[1]
    for place in ((44.8, -66.97), (25.1, -80.6), (25.9, -97.3), (48.2, -124.6)):
        assert min(math.dist(place, p) for p in points) < 1.0
