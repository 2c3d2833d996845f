"""The page shows where the days of a run go, and what other intervals and spares would give."""

import json
import re
from itertools import pairwise

import pytest
from failing_plan import failing
from page_cases import agrees, infeasible
from worked_plan import edited, small

from planner.report.days_by_part import days_by_part
from planner.report.page.blocks.calendar import calendar
from planner.report.page.drawings.curve import LEFT, TOP, Axis, Line, curve, even_marks
from planner.report.page.drawings.svg import WIDTH
from planner.report.page.drawings.waterfall import Bar, waterfall
from planner.report.page.page import report_page

WAYS = [("restart",), ("warm-spares",), ("elastic",), ("restart", "warm-spares", "elastic")]
FIGURE = re.compile(r'<data data-path="([^"]+)" value="([^"]+)">([^<]*)<')
DOT = re.compile(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="4.5" class="chosen"')
RECT = re.compile(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="13" class="(\w+)"')


def figures(html: str) -> dict[str, tuple[str, str]]:
    """Return the exact value and the text at each path of a page."""
    return {path: (value.replace("&#34;", '"'), text) for path, value, text in FIGURE.findall(html)}


@pytest.mark.parametrize("ways", WAYS)
def test_every_figure_of_the_section_is_shown(ways: tuple[str, ...]) -> None:
    """Nothing of the section on stops is left out, and what is shown is the plan's."""
    plan = failing(*ways)
    data, shown = json.loads(plan.model_dump_json()), figures(report_page([("x", plan)]))
    for path, (value, _) in shown.items():
        assert agrees(json.loads(value), data, path), path
    paths = {f"reliability.{k}" for k, v in data["reliability"].items() if v is not None and not isinstance(v, dict)}
    for part in ("stops_per_day_by_part", "spare_racks_by_site", "lost_days"):
        paths |= {f"reliability.{part}.{k}" for k, v in data["reliability"][part].items() if v or part != "lost_days"}
    assert paths <= set(shown), paths - set(shown)
    assert {"layout.metrics.step_days_to_train", "layout.metrics.useful_share"} <= set(shown)


def test_the_page_asks_for_nothing() -> None:
    """With charts too no script, source or address to load from stands in the page."""
    html = report_page([("x", failing("elastic"))])
    assert not re.search(r"<script|<img|<iframe|@import|url\(|\ssrc=", html)
    assert set(re.findall(r'href="([^"]*)"', html)) == {"data:,"}


def test_cards_show_days_of_steps_where_they_are_others() -> None:
    """A plan whose days are all of steps has one card of days; side by side both kinds stand in rows."""
    assert ">of steps alone<" in report_page([("x", failing("elastic"))])
    assert ">of steps alone<" not in report_page([("x", small())])
    table = report_page([("a", small()), ("b", failing("elastic"))]).split("<main")[0]
    assert "of steps alone" in table and "time that trains" in table


def test_without_failures_the_block_says_so() -> None:
    """A note names the key that counts stops; a plan that is none has no block."""
    (block,) = calendar(small())
    assert block.notes == ('Nothing is taken to fail: every day is one of steps; the key "reliability" counts stops.',)
    assert (block.pictures, block.tables) == ((), ())
    assert list(calendar(infeasible())) == []


@pytest.mark.parametrize("ways", WAYS)
def test_bars_are_as_long_as_days(ways: tuple[str, ...]) -> None:
    """Each bar of the waterfall has the length of its days and begins where the one before it ends; sums begin at 0."""
    plan = failing(*ways)
    (block,) = calendar(plan)
    bars = [(float(x), float(w), c) for x, w, c in RECT.findall(block.pictures[0].svg)]
    scale, end = bars[-1][1] / plan.layout.metrics.days_to_train, 0.0
    for (x, width, shade), row in zip(bars, days_by_part(plan), strict=True):
        start, end = (0.0, row.days) if row.is_sum else (end, end + row.days)
        assert (shade == "rest") == row.is_sum
        assert x == pytest.approx(bars[0][0] + start * scale, abs=0.11)
        assert width == pytest.approx(max(row.days * scale, 0.8), abs=0.11)
    names = re.findall(r'class="c1"><title>([^:]+):', block.pictures[0].svg)
    assert names == [k for k, v in plan.reliability.lost_days.items() if v]


def test_parts_below_zero_go_back() -> None:
    """A bar of a part below zero ends to the left, inside the drawing."""
    svg = waterfall("bars", [Bar("a", 10, "c0"), Bar("b", -4, "c1"), Bar("s", 6, "rest", True)], str)
    (a, wa, _), (b, wb, _), (s, ws, _) = ((float(x), float(w), c) for x, w, c in RECT.findall(svg))
    assert b + wb == pytest.approx(a + wa) and wb == pytest.approx(0.4 * wa, abs=0.1)
    assert (s, ws) == (a, pytest.approx(0.6 * wa, abs=0.1))


@pytest.mark.parametrize("ways", WAYS)
def test_the_chosen_point_lies_on_its_line(ways: tuple[str, ...]) -> None:
    """The dot of each chart is at the height and place of the plan, on the line of its way to go on."""
    (block,) = calendar(failing(*ways))
    assert len(block.pictures) == 3
    for picture in block.pictures[1:]:
        lines = [
            [tuple(map(float, p.split())) for p in d.split("L")]
            for d in re.findall(r'<path d="M([^"]+)" class="k\d"', picture.svg)
        ]
        cx, cy = map(
            float, re.search(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="4.5" class="chosen"', picture.svg).groups()
        )
        assert min(_height_above(line, cx, cy) for line in lines) < 0.6
        assert all(LEFT <= x <= WIDTH and y >= TOP - 0.1 for line in lines for x, y in line)
        # No other way, and no number of spares below, trains more than what the plan takes by more than a line's width.
        assert min(y for line in lines for x, y in line if x <= cx) > cy - 1.0


def _height_above(line: list[tuple[float, ...]], x: float, y: float) -> float:
    """Return how far a point is from a line at its place."""
    for (x1, y1), (x2, y2) in pairwise(line):
        if x1 - 0.1 <= x <= x2 + 0.1:
            return abs(y - (y1 + (y2 - y1) * (x - x1) / ((x2 - x1) or 1.0)))
    return float("inf")


def test_without_checkpoints_there_is_no_chart_of_intervals() -> None:
    """A plan that writes no checkpoint has the other chart alone."""
    (block,) = calendar(edited(failing("elastic"), reliability__checkpoint_interval_seconds=None))
    assert [p.svg.split("<title>")[1][:24] for p in block.pictures] == [
        "Days of steps and days o",
        "Time that trains by spar",
    ]


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.4), (0.858, 0.962), (0.9987, 0.9991), (0.5, 0.5), (0, 812)])
def test_marks_span_the_range(low: float, high: float) -> None:
    """Marks have even round steps, a handful of them, from no more than the lowest to no less than the highest."""
    marks = even_marks(low, high)
    assert marks[0] <= low + 1e-12 and marks[-1] >= high - 1e-12
    assert 2 <= len(marks) <= 7
    steps = [b - a for a, b in pairwise(marks)]
    assert steps == pytest.approx([steps[0]] * len(steps))


def test_a_line_of_one_height_and_names_that_would_touch() -> None:
    """A flat line is drawn, and of marks that stand close every name but the first is left out."""
    axis = Axis("x", lambda v: f"{v:g} s", (1.0, 1.01, 9.0))
    svg = curve("flat", [Line("a", [(1.0, 0.5), (10.0, 0.5)], 0)], (1.0, 0.5), axis, Axis("y", str))
    assert ">1 s<" in svg and ">1.01 s<" not in svg and ">9 s<" in svg
    assert "nan" not in svg
