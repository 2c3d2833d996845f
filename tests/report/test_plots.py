"""Plots: `planner plot`, the strip of changes, frontiers by definition, names apart; a plan as text, frame and map."""

import json
import math
import re
import sys
from collections.abc import Callable
from functools import partial
from html import escape
from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from commands import run_apart, run_here
from curves import POINTS, curve
from each_case import each
from failing_plan import failing
from hypothesis import given
from hypothesis import strategies as st
from joint_brute_force import toy
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from page_cases import MADE
from stored_plans import stored
from sweep_rows import X, Y, row, written
from worked_plan import small

import planner
from planner.cli.sweep_commands import plot
from planner.errors import InputError
from planner.report import plots
from planner.report.page.drawings import US_OUTLINE, albers, projected
from planner.report.page.page import report_page
from planner.report.plots import PlotRequest, best_rows, changes_of, check_path, draw_sweep
from planner.report.summary import summary
from planner.sweeps.row_store import flattened, read_flat_rows, row_of_plan, why_none

mpl.use("Agg")
OVERHEAD = "hardware.facility_overhead_factor"


def test_svg_is_the_same_twice(tmp_path: Path) -> None:
    """The same rows give the same bytes in another process, without a date."""
    rows = written(tmp_path)
    command = ["plot", rows, "-x", X, "-y", Y, "--color", OVERHEAD, "-o"]
    for name, run in (("a.svg", run_apart), ("b.svg", run_here)):
        out = run(*command, tmp_path / name)
        assert (out.returncode, out.stdout, out.stderr) == (0, "", "")
    svg = (tmp_path / "a.svg").read_bytes()
    assert svg == (tmp_path / "b.svg").read_bytes()
    assert svg.startswith(b"<?xml")
    assert b"dc:date" not in svg


def test_html_needs_nothing_beside_itself(tmp_path: Path) -> None:
    """The page holds best point, changes, picture and all points, and no address to load from; others are a PNG."""
    page, other = tmp_path / "a.html", tmp_path / "b.html"
    plot(written(tmp_path), X, Y, page, OVERHEAD, None, "xy", "min-min")
    html = page.read_text()
    assert html.count("<svg") == 1
    assert "at $70B a second site opens: salem" in html
    assert html.count("<tr") == 1 + 38
    assert html.count("infeasible: limits.budget_usd; memory</td>") == 4
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:|#)""", re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL))
    assert not re.search(r"""<(image|script|link)[^>]*https?:|@import|url\(\s*["']?http""", html)
    sentence = "33 of 38 points have a plan; least time to train: "
    order = [html.index(x) for x in (sentence, "<h3>What changes", "<figure", "<details><summary>All points")]
    assert order == sorted(order)
    best = re.search(r"time to train: ([\d.]+) days, at budget (\$\d+B)\.", html)
    assert best and float(best[1]) == pytest.approx(900 * 1.1 / (170 / 40) ** 0.8, rel=1e-3)
    plot(written(tmp_path), X, Y, other, None, None, "", "min-max")
    assert "most time to train" in other.read_text()
    plot(written(tmp_path), X, Y, tmp_path / "a.png", None, "cost.total_usd", "", "none")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@each(("options", "problem"), [
    ({"y": "layout.metrics.days"}, "did you mean layout.metrics.days_to_train"),
    ({"y": "status"}, "no row with a plan holds a number there"),
    ({"log": "z"}, "--log z: must be x, y or xy"),
    ({"frontier": "best"}, "--frontier best: must be one of min-min, max-min, min-max, max-max, none"),
    ({"output": "a.pdf"}, "must end in .svg, .png or .html"),
    ({"facet": X}, "has 19 values; at most 12 pictures fit"),
])  # fmt: skip
def test_mistakes_are_named(tmp_path: Path, options: dict[str, str], problem: str) -> None:
    """A wrong path, axis, word or file is answered with what to do."""
    given = {"x": X, "y": Y, "facet": None, "log": "", "frontier": "min-min", "output": "a.svg"} | options
    output = tmp_path / str(given.pop("output"))
    with pytest.raises(InputError, match=re.escape(problem)):
        plot(written(tmp_path), output=output, color=None, **given)
    assert not output.exists()


POINT = st.tuples(st.integers(0, 6).map(float), st.integers(0, 6).map(float))


@given(st.lists(POINT, max_size=14), st.sampled_from([both for both in plots.SENSES.values() if both]))
def test_frontier_is_what_nothing_dominates(
    points: list[tuple[float, float]], senses: tuple[plots.Sense, plots.Sense]
) -> None:
    """The frontier holds each undominated place once, and nothing else, by ascending x."""
    sx, sy = (1 if s == "min" else -1 for s in senses)

    def dominated(p: tuple[float, float]) -> bool:
        return any(sx * q[0] <= sx * p[0] and sy * q[1] <= sy * p[1] and q != p for q in points)

    places = [points[i] for i in plots.frontier(points, senses)]
    assert places == sorted({p for p in points if not dominated(p)})


def test_changes_are_told_where_they_happen(tmp_path: Path) -> None:
    """Each is listed at the first point that has it, with a lane of bands; sites may swap; no plan has a reason."""
    rows = best_rows(read_flat_rows(written(tmp_path)), PlotRequest(X, Y))
    assert changes_of(rows, X) == [
        "at $70B a second site opens: salem",
        "at $90B layout TP 8 PP 64 becomes TP 16 PP 64",
        "at $90B fabric 2 tiers, 4 planes becomes 3 tiers, 4 planes",
        "at $110B a third site opens: comanche-peak",
    ]
    lanes = plots.lanes_of(rows, X)
    assert set(lanes) == {"sites", "layout", "fabric"}
    assert lanes["fabric"] == [(40e9, 80e9, "2 tiers, 4 planes"), (90e9, 200e9, "3 tiers, 4 planes")]
    before, after = flattened(row(40)), flattened(row(50))
    after["sites.sites.salem.racks"], after["sites.sites.palo-verde.racks"] = 9, 0
    assert changes_of([before, after], X) == ["at $50B salem opens and palo-verde closes"]
    assert why_none(flattened(row(20))) == "infeasible: limits.budget_usd; memory"
    assert why_none(flattened(row(150, 1.3))) == "failed: its worker died twice"


def test_best_rows_take_the_asked_end() -> None:
    """Of plans at one x the strip shows the least y, or the largest where more is better."""
    figures = [(1, 5.0), (1, 3.0), (0, 9.0), (2, "none")]
    rows = [*({"x": x, "y": y, "status": "optimal"} for x, y in figures), {"x": 1, "y": 1.0, "status": "failed"}]
    assert [r["y"] for r in best_rows(rows, PlotRequest("x", "y"))] == [9.0, 3.0]
    assert [r["y"] for r in best_rows(rows, PlotRequest("x", "y", senses=("min", "max")))] == [9.0, 5.0]
    assert [r["y"] for r in best_rows(rows, PlotRequest("x", "y", senses=None))] == [9.0, 3.0]


@each(("scale", "xs", "edges"), [
    ("linear", (1.0, 3.0, 4.0), [0.0, 2.0, 3.5, 4.5]), ("log", (1.0, 4.0, 16.0), [0.5, 2.0, 8.0, 32.0]),
])  # fmt: skip
def test_bands_meet_half_way(scale: str, xs: tuple[float, ...], edges: list[float]) -> None:
    """Bands meet half-way between points, by ratio on a logarithmic axis."""
    axes = Figure().add_subplot()
    axes.set_xscale(scale)
    bars = [bar for bar, _ in plots.draw_strip(axes, [{X: x, "layout.zero_stage": i % 2} for i, x in enumerate(xs)], X)]
    ends = {round(end, 9) for bar in bars for end in (bar.get_x(), bar.get_x() + bar.get_width())}
    assert sorted(ends) == pytest.approx(edges)


def test_nested_and_flat_rows_read_alike() -> None:
    decided = {"sites": {"sites": [{"id": "a", "racks": 3}]}, "layout": {"zero_stage": 1}}
    nested = {"point": {X: 1.0}, "plan": decided, "status": "optimal"}
    flat = {X: 1.0, "sites.sites.a.id": "a", "sites.sites.a.racks": 3, "layout.zero_stage": 1, "status": "optimal"}
    assert flattened(nested) == flattened(flat) == flat


def test_half_written_last_line_is_no_row(tmp_path: Path) -> None:
    """The line that a killed run left behind is passed over; the same in the middle is an error that names the line."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"status": "optimal", "a": 1}\n{"status": "opt')
    assert read_flat_rows(path) == [{"status": "optimal", "a": 1}]
    path.write_text('{"status": "optimal"}\n{"status": "opt\n{"status": "optimal"}\n')
    (tmp_path / "rows.parquet").write_text("no table")
    for file, told in ((path, "line 2"), (tmp_path / "rows.parquet", r"rows\.parquet: cannot be read as Parquet")):
        with pytest.raises(InputError, match=told):
            read_flat_rows(file)


@each(("path", "told", "others"), [
    ("days_to_train", "did you mean layout.metrics.days_to_train?", "mfu"),
    ("MFU", "did you mean layout.metrics.mfu?", "days_to_train"),
    ("metrics.days", "did you mean layout.metrics.days_to_train?", "mfu"),
    ("bogus", "such as layout.metrics.days_to_train, layout.metrics.mfu do;", "seconds"),
])  # fmt: skip
def test_a_path_like_no_other_does_not_list_all(path: str, told: str, others: str) -> None:
    """A part of a path is near, letter case aside; where nothing is, examples and where to read them are told."""
    rows = [{"status": "optimal", "layout.metrics.days_to_train": 9.5, "layout.metrics.mfu": 0.4, "seconds": 1}]
    with pytest.raises(InputError) as error:
        check_path(rows, "-x", path)
    assert f"no row has this figure; {told} `planner compare ROWS` lists figures" in str(error.value)
    assert others not in str(error.value)


@each(("path", "value", "name", "text"), [
    (X, 64e9, "budget (USD)", "$64B"),
    ("cost.capex_usd.racks", 2e9, "racks (USD)", "$2B"),
    ("cost.opex_usd_per_year.energy", -1.5e6, "energy (USD a year)", "-$1.5M a year"),
    ("sites.facility_mw", 4060.04, "facility (MW)", "4,060 MW"),
    (Y, 16353.3, "time to train (days)", "16,353 days"),
    ("layout.recompute", "full", "recompute", "full"),
    ("layout.zero_stage", 1, "ZeRO stage", "1"),
    ("layout.gpus_used", 1590400, "GPUs used", "1.59M"),
])  # fmt: skip
def test_paths_and_their_values_are_written_in_words(path: str, value: object, name: str, text: str) -> None:
    assert (plots.label(path), plots.quantity(path, value)) == (name, text)


PLOTS = ("plot_step", "plot_memory", "plot_cost", "plot_sites")
ROWS = [flattened(row(billions, factor)) for billions in range(20, 201, 10) for factor in (1.3, 1.1)]
REQUESTS = [
    PlotRequest(X, Y), PlotRequest(X, Y, log="xy"), PlotRequest(X, Y, color=OVERHEAD),
    PlotRequest(X, Y, facet=OVERHEAD), PlotRequest(X, Y, log="y", color="layout.tensor_parallel"),
    PlotRequest("cost.total_usd", Y, color="cost.total_usd"),
]  # fmt: skip


def overprinted(figure: Any) -> list[tuple[str, ...]]:
    """Return texts of a figure that overlap by more than an edge, and those beyond the picture's edge."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    unseen: set[int] = set()
    for axes in figure.findobj(lambda x: hasattr(x, "xaxis")):
        for axis in (axes.xaxis, axes.yaxis):
            ticks = {id(t) for tick in axis._update_ticks() for t in (tick.label1, tick.label2)}
            own = {id(t) for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()) for t in tick.findobj(Text)}
            unseen |= own - ticks if axes.axison else own
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and id(t) not in unseen]
    boxes = [(t.get_text(), t.get_window_extent(canvas.get_renderer())) for t in texts]
    edge = figure.bbox
    cut = [(n,) for n, b in boxes if min(b.x0, b.y0) < -1 or b.x1 > edge.width + 1 or b.y1 > edge.height + 1]
    return cut + [
        (n, m)
        for (n, a), (m, b) in combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 2
    ]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_plots_of_sweeps(request_: PlotRequest) -> None:
    """Titles, axes, marks, legends, lanes and changes leave each other room."""
    draw_sweep(ROWS, request_, figure := Figure())
    assert overprinted(figure) == []


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.parametrize("plan", [small(), failing("elastic")], ids=["worked", "failing"])
def test_plots_of_a_plan(name: str, plan: Any) -> None:
    assert overprinted(getattr(plan, name)().get_figure()) == []
    pyplot.close("all")


def test_the_watch_sees_overprints() -> None:
    figure = pyplot.figure()
    for x, y, text in ((0.5, 0.5, "one"), (0.51, 0.51, "two"), (0.99, 0.2, "far away")):
        figure.text(x, y, text)
    assert overprinted(figure) == [("far away",), ("one", "two")]
    pyplot.close("all")


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
    """The plan's marks and name are on the axes given, or on new ones; a plan without the section is refused."""
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


CURVE = partial(plots.draw_staircase, curve(), "worked")


@each(("call", "package", "extra"), [
    (lambda plan: plan.to_frame(), "pandas", "frames"),
    (lambda plan: plan.plot_step(), "matplotlib", "plot"),
    (lambda _: plots.picture_of(CURVE, "worked", "svg"), "matplotlib", "plot"),
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
    return next((list(line.points) for line in plots.curve_lines(drawn) if line.name == name), [])


def test_between_two_plans_the_dearer_one_is_out_of_reach() -> None:
    """No line joins two plans, and the last goes on to the limit; bounds begin below the first and end with one."""
    corners = corners_of("plans", curve())
    assert [c for c in corners if c in [(usd, days) for usd, days, _, _ in POINTS]] == [p[:2] for p in POINTS]
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(corners))
    assert corners[:3] == [(1e9, 40.0), (2e9, 40.0), (2e9, 16.0)] and corners[-1] == (1e10, 10.9)
    assert corners_of("plans", curve(most_usd=None))[-1][0] > POINTS[-1][0]
    assert corners_of("plans", curve(())) == corners_of(plots.BELOW, curve(POINTS[2:3])) == []
    below, *rest = corners_of(plots.BELOW, curve())
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
            assert level(corners_of(plots.BELOW, drawn), at) == (max(proven) if proven else None)


def level(corners: list[tuple[float, float]], at: float) -> float | None:
    """Return the height of the level stretch above a place of the axis."""
    return next((a[1] for a, b in pairwise(corners) if a[0] < at < b[0]), None)


def test_the_picture_of_a_curve() -> None:
    """It is the same twice, and a curve without plans, or with free ones, is drawn too."""
    free = curve(((0.0, 9.0, None, 1),), most_usd=None)
    for draw in (partial(plots.draw_staircase, one, "worked") for one in (curve(), curve(()), free)):
        svg = plots.picture_of(draw, "worked", "svg")
        assert svg == plots.picture_of(draw, "worked", "svg") and b"<dc:title>worked</dc:title>" in svg
        assert plots.picture_of(draw, "worked", "png").startswith(b"\x89PNG")


def test_albers_meets_the_worked_example() -> None:
    """35 N 75 W from 23 N 96 W is as Snyder (1987, p. 291) has it; elsewhere a degree is as long as it is there."""
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
