"""`planner plot`, as its user runs it, and frontiers by the definition of dominance."""

import re
import sys
from pathlib import Path

import pytest
from commands import run_apart, run_here
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from sweep_rows import X, Y, written

from planner.cli.sweep_commands import plot
from planner.errors import InputError
from planner.report.plots.sweep_rows import SENSES, Sense, frontier

ROOT = Path(__file__).parents[3]
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
    """The page holds the picture, each change and each point, and names no address to load from."""
    page = tmp_path / "a.html"
    plot(written(tmp_path), X, Y, page, OVERHEAD, None, "xy", "min-min")
    html = page.read_text()
    assert html.count("<svg") == 1
    assert "at $70B a second site opens: salem" in html
    assert html.count("<tr") == 1 + 38
    assert html.count("infeasible: limits.budget_usd; memory</td>") == 4
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:|#)""", re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL))
    assert not re.search(r"""<(image|script|link)[^>]*https?:|@import|url\(\s*["']?http""", html)


def test_a_page_says_first_what_comes_out(tmp_path: Path) -> None:
    """The best point and the changes stand before the picture, all points folded behind it."""
    page = (tmp_path / "a.html", tmp_path / "b.html")
    plot(written(tmp_path), X, Y, page[0], None, None, "", "min-min")
    html = page[0].read_text()
    sentence = "33 of 38 points have a plan; least time to train: "
    order = [html.index(x) for x in (sentence, "<h3>What changes", "<figure", "<details><summary>All points")]
    assert order == sorted(order)
    best = re.search(r"time to train: ([\d.]+) days, at budget (\$\d+B)\.", html)
    assert best and float(best[1]) == pytest.approx(900 * 1.1 / (170 / 40) ** 0.8, rel=1e-3)
    plot(written(tmp_path), X, Y, page[1], None, None, "", "min-max")
    assert "most time to train" in page[1].read_text()


def test_png(tmp_path: Path) -> None:
    """A picture of dots on a scale of colours, without a frontier, is a PNG."""
    plot(written(tmp_path), X, Y, tmp_path / "a.png", None, "cost.total_usd", "", "none")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@each(("options", "problem"), [
    ({"y": "layout.metrics.days"}, "did you mean layout.metrics.days_to_train"),
    ({"y": "status"}, "no row with a plan holds a number there"),
    ({"log": "z"}, "--log z: must be x, y or xy"),
    ({"frontier": "best"}, "--frontier best: must be one of"),
    ({"output": "a.pdf"}, "must end in .svg, .png or .html"),
    ({"facet": X}, "has 19 values; at most 12 pictures fit"),
    ({"output": "no/such/folder/a.svg"}, "its folder does not exist"),
])  # fmt: skip
def test_mistakes_are_named(tmp_path: Path, options: dict[str, str], problem: str) -> None:
    """A wrong path, axis, word or file is answered with what to do."""
    given = {"x": X, "y": Y, "facet": None, "log": "", "frontier": "min-min", "output": "a.svg"} | options
    output = tmp_path / str(given.pop("output"))
    with pytest.raises(InputError, match=re.escape(problem)):
        plot(written(tmp_path), output=output, color=None, **given)
    assert not output.exists()


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match="install the extra `plot`"):
        plot(written(tmp_path), X, Y, tmp_path / "a.svg", None, None, "", "min-min")


def test_a_missing_file_ends_in_a_message() -> None:
    out = run_here("plot", "no-such.jsonl", "-x", X, "-y", Y, "-o", "a.svg")
    assert out.returncode == 2
    assert out.stderr.startswith("no-such.jsonl: no such file")


POINT = st.tuples(st.integers(0, 6).map(float), st.integers(0, 6).map(float))


@given(st.lists(POINT, max_size=14), st.sampled_from([both for both in SENSES.values() if both]))
def test_frontier_is_what_nothing_dominates(points: list[tuple[float, float]], senses: tuple[Sense, Sense]) -> None:
    """The frontier holds each undominated place once, and nothing else, by ascending x."""
    sx, sy = (1 if s == "min" else -1 for s in senses)

    def dominated(p: tuple[float, float]) -> bool:
        return any(sx * q[0] <= sx * p[0] and sy * q[1] <= sy * p[1] and q != p for q in points)

    places = [points[i] for i in frontier(points, senses)]
    assert places == sorted({p for p in points if not dominated(p)})


def test_senses(tmp_path: Path) -> None:
    """`none` asks for no frontier, and any other word is refused."""
    assert SENSES["none"] is None
    with pytest.raises(InputError, match=r"--frontier up-down: must be one of min-min, .*, none"):
        plot(written(tmp_path), X, Y, tmp_path / "a.svg", None, None, "", "up-down")
