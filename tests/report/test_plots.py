"""Plots: `planner plot` as its user runs it, the strip of decision changes, frontiers by definition, names apart."""

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from commands import run_apart, run_here
from each_case import each
from failing_plan import failing
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from sweep_rows import X, Y, row, written
from worked_plan import small

from planner.cli.sweep_commands import plot
from planner.errors import InputError
from planner.report import plots
from planner.report.plots import PlotRequest, best_rows, changes_of, check_path, draw_sweep, flattened, read_rows

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
    """The page holds best point, changes, picture and all points, in that order, and no address to load from.

    A picture of dots on a scale of colours, without a frontier, is a PNG.
    """
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
    """Each is listed once, at the first point that has it; a lane of bands has a decision with more than one value.

    A site that closes while another opens is described both ways; where there is no plan the reason is told.
    """
    rows = best_rows(read_rows(written(tmp_path)), PlotRequest(X, Y))
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
    assert plots.why_none(flattened(row(20))) == "infeasible: limits.budget_usd; memory"
    assert plots.why_none(flattened(row(150, 1.3))) == "failed: its worker died twice"


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
    assert read_rows(path) == [{"status": "optimal", "a": 1}]
    path.write_text('{"status": "optimal"}\n{"status": "opt\n{"status": "optimal"}\n')
    (tmp_path / "rows.parquet").write_text("no table")
    for file, told in ((path, "line 2"), (tmp_path / "rows.parquet", r"rows\.parquet: cannot be read as Parquet")):
        with pytest.raises(InputError, match=told):
            read_rows(file)


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


@pytest.mark.parametrize("name", ["plot_step", "plot_memory", "plot_cost", "plot_sites"])
@pytest.mark.parametrize("plan", [small(), failing("elastic")], ids=["worked", "failing"])
def test_plots_of_a_plan(name: str, plan: Any) -> None:
    figure = getattr(plan, name)().get_figure()
    assert overprinted(figure) == []
    pyplot.close("all")


def test_the_watch_sees_overprints() -> None:
    figure = pyplot.figure()
    for x, y, text in ((0.5, 0.5, "one"), (0.51, 0.51, "two"), (0.99, 0.2, "far away")):
        figure.text(x, y, text)
    assert overprinted(figure) == [("far away",), ("one", "two")]
    pyplot.close("all")
