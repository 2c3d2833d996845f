"""The page shows what other checkpoint intervals and spares would give."""

import re
from itertools import pairwise

import pytest
from each_case import each
from failing_plan import failing
from page_cases import infeasible
from worked_plan import edited, small

from planner.report.decisions import DaysPart
from planner.report.page.charts import CURVE_LEFT, CURVE_TOP, WIDTH, ChartAxis, ChartLine, curve, even_marks, waterfall
from planner.report.page.page import stops

WAYS = [("restart",), ("warm-spares",), ("elastic",), ("restart", "warm-spares", "elastic")]
RECT = re.compile(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="13" class="(\w+)"')


def test_without_failures_there_is_no_chart() -> None:
    """A plan that counts no stops, and one that is none, have no such part."""
    assert list(stops(small())) == []
    assert list(stops(infeasible())) == []


def test_parts_below_zero_go_back() -> None:
    svg = waterfall(
        "bars", [(DaysPart("a", 10), "c0"), (DaysPart("b", -4), "c1"), (DaysPart("s", 6, True), "rest")], str
    )
    (a, wa, _), (b, wb, _), (s, ws, _) = ((float(x), float(w), c) for x, w, c in RECT.findall(svg))
    assert b + wb == pytest.approx(a + wa) and wb == pytest.approx(0.4 * wa, abs=0.1)
    assert (s, ws) == (a, pytest.approx(0.6 * wa, abs=0.1))


@each("ways", WAYS)
def test_the_chosen_point_lies_on_its_line(ways: tuple[str, ...]) -> None:
    """The dot of each chart is at the height and place of the plan, on the line of its way to go on."""
    pictures = list(stops(failing(*ways)))
    assert len(pictures) == 2
    for picture in pictures:
        lines = [
            [tuple(map(float, p.split())) for p in d.split("L")]
            for d in re.findall(r'<path d="M([^"]+)" class="k\d"', picture.svg)
        ]
        cx, cy = map(
            float, re.search(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="4.5" class="chosen"', picture.svg).groups()
        )
        assert min(_height_above(line, cx, cy) for line in lines) < 0.6
        assert all(CURVE_LEFT <= x <= WIDTH and y >= CURVE_TOP - 0.1 for line in lines for x, y in line)
        # No other way, and no number of spares below, trains more than what the plan takes by more than a line's width.
        assert min(y for line in lines for x, y in line if x <= cx) > cy - 1.0


def _height_above(line: list[tuple[float, ...]], x: float, y: float) -> float:
    """Return how far a point is from a line at its place."""
    for (x1, y1), (x2, y2) in pairwise(line):
        if x1 - 0.1 <= x <= x2 + 0.1:
            return abs(y - (y1 + (y2 - y1) * (x - x1) / ((x2 - x1) or 1.0)))
    return float("inf")


def test_without_checkpoints_there_is_no_chart_of_intervals() -> None:
    pictures = stops(edited(failing("elastic"), reliability__checkpoint_interval_seconds=None))
    assert [p.svg.split("<title>")[1][:25] for p in pictures] == ["Time that trains by spare"]


@each(("low", "high"), [(0.0, 0.4), (0.858, 0.962), (0.9987, 0.9991), (0.5, 0.5), (0, 812)])
def test_marks_span_the_range(low: float, high: float) -> None:
    """Marks have even round steps, a handful of them, from no more than the lowest to no less than the highest."""
    marks = even_marks(low, high)
    assert marks[0] <= low + 1e-12 and marks[-1] >= high - 1e-12
    assert 2 <= len(marks) <= 7
    steps = [b - a for a, b in pairwise(marks)]
    assert steps == pytest.approx([steps[0]] * len(steps))


def test_a_line_of_one_height_and_names_that_would_touch() -> None:
    """A flat line is drawn, and of marks that stand close every name but the first is left out."""
    axis = ChartAxis("x", lambda v: f"{v:g} s", (1.0, 1.01, 9.0))
    svg = curve("flat", [ChartLine("a", [(1.0, 0.5), (10.0, 0.5)], 0)], (1.0, 0.5), axis, ChartAxis("y", str))
    assert ">1 s<" in svg and ">1.01 s<" not in svg and ">9 s<" in svg
    assert "nan" not in svg
