"""Plans and rows compared with the first: headline, what was changed, what it brings, by which terms; cells of rows."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands import invoke
from each_case import each
from page_cases import infeasible, rich
from worked_plan import edited, small

from planner.errors import InputError
from planner.report.comparison import (
    Side,
    best,
    brings,
    changes,
    rows_of,
    side_of,
    sides_of_rows,
    table,
    terms,
    verdicts,
)
from planner.report.verdict import without_source
from planner.sweeps.row_store import parse_rows


def side(name: str, asked: Mapping[str, Any] | None = None, **figures: Any) -> Side:
    """Return a side with figures; `__` stands for a dot."""
    return Side(name, {k.replace("__", "."): v for k, v in figures.items()}, asked)


def headline(one: Side) -> str:
    """Return the first line of a comparison, without the name of the side that it is of."""
    return next(verdicts([one])).removeprefix(f"{one.name}  ")


def test_money_that_brings_nothing_is_a_verdict_of_one_line() -> None:
    """A budget a fifth larger with the same plan: no days, no dollars, and what buys nothing."""
    plan = small()
    usd = plan.cost.total_usd
    a, b = (side_of(name, plan.replaced(instance__limits__budget_usd=usd * k)) for name, k in (("a", 1.0), ("b", 1.2)))
    lines = list(verdicts([a, b]))
    assert lines[0].startswith("a  ") and lines[1].startswith("b  ") and lines[2] == ""
    brought = r"0 days, \$0 of capital, \$.* of the budget is not spent"
    assert re.fullmatch(rf"limits\.budget_usd .* \(\+20 %\): {brought}", lines[3])
    assert len(lines) == 5 and lines[4].startswith("  b: ") and lines[4].endswith("(17 %) is not spent.")


def test_days_and_dollars_that_moved_are_named_the_largest_first() -> None:
    """Two parts of a step at a day a second, one of what stops cost, and two of the bill."""
    step, lost, bill = "layout.metrics.breakdown_seconds.", "reliability.lost_days.", "cost.capex_usd."
    common = {"layout.metrics.step_seconds": 10.0, "layout.metrics.step_days_to_train": 10.0}
    a = Side("a", {**common, step + "gemm": 6.0, step + "head": 4.0, lost + "restarts": 1.0, bill + "racks": 5e9})
    b = Side("b", {**common, step + "gemm": 3.0, step + "head": 7.5, lost + "restarts": 1.5, bill + "fabric": 1e9})
    assert list(terms(a, b)) == [
        "days: embedding and loss +3.5, matrix products -3, restarts +0.5",
        "capital: racks -$5.00B, fabric +$1.00B",
    ]
    assert list(terms(a, a)) == list(terms(Side("none", {"status": "infeasible"}), a)) == []


def test_the_change_of_a_plan_is_signed_and_relative() -> None:
    """Ten days less than a hundred; of rows only the names are known; racks that become idle are named in dollars."""
    a = side("a", objective__value=100.0, objective__name="days_to_train", layout__metrics__days_to_train=100.0)
    b = side("b", objective__value=90.0, objective__name="days_to_train", layout__metrics__days_to_train=90.0)
    assert brings(a, b) == "-10 days (-10.0 %)"
    assert brings(side("c", status="optimal"), side("d", status="infeasible")) == "optimal -> infeasible"
    assert brings(side("c", status="infeasible"), side("d", status="infeasible")) == "still infeasible"
    assert changes(a, b) == "b"
    bill = {"objective__value": 9.0, "cost__total_usd": 8e9, "cost__capex_usd__racks": 6e9}
    a, b = (side("x", **bill, layout__gpus_used=100 - idle, layout__gpus_idle=idle) for idle in (0, 10))
    assert brings(a, b).endswith("$0 of capital, $600.00M of idle racks")
    assert "idle" not in brings(b, a) and "idle" not in brings(b, b)


def test_a_finish_date_is_compared_in_its_own_days() -> None:
    """Days from the decision are set beside such days alone; against any other goal only days of training are."""
    days = "layout__metrics__days_to_train"
    late = side("late", objective__name="finish_date", objective__value=80.0, **{days: 20.0})
    soon = side("soon", objective__name="finish_date", objective__value=35.0, **{days: 25.0})
    curve = side("curve", objective__name="frontier", objective__value=20.0, **{days: 20.0})
    assert brings(late, soon) == "+5 days of training (+25.0 %), -45 days from the decision (-56.2 %)"
    for before, after in ((late, curve), (curve, late)):
        assert brings(before, after) == "0 days of training, late alone counts days from the decision (80)"
    assert best([late, soon]) == "fewest days from the decision: soon (35.0)"
    assert best([soon, curve]) == "fewest days of training: curve (20.0)"
    assert headline(late).startswith("80.0 days from the decision, 20.0 days of training; ")
    loss = side("loss", objective__name="loss", objective__value=2.0, **{days: 20.0})
    assert brings(curve, loss) == "0 days"
    text = table(["late", "loss"], rows_of([late, loss]))  # a loss has no ratio to days
    assert "0.025x" not in text and "0.438x" in table(["late", "soon"], rows_of([late, soon]))


def test_of_many_the_best_are_named() -> None:
    """Of three the fastest and the cheapest, those alike counted; of losses there are no days."""
    of = {"objective__name": "days_to_train", "status": "optimal"}
    figures = ("a", 9, 5e9), ("b", 7, 6e9), ("c", 7, 5e9)
    three = [side(name, **of, objective__value=days, cost__total_usd=usd) for name, days, usd in figures]
    assert best(three) == "fewest days: b and 1 other (7.0); least money: a and 1 other ($5.00B)"
    assert best([side("x", status="infeasible"), side("y", status="infeasible")]) == ""
    loss = [side(n, objective__name="loss", objective__value=1.5, cost__total_usd=1e9) for n in "ab"]
    assert best(loss) == "least money: a and 1 other ($1.00B)"


def test_an_object_of_the_catalogue_is_changed_by_its_name() -> None:
    """Another model is its name, more than four changes are counted, and words about an instance are no change."""
    old = {"workload.model.name": "a", "workload.model.layers": 10, "limits.budget_usd": 1e9}
    new = {"workload.model.name": "b", "workload.model.layers": 20, "limits.budget_usd": 2e9}
    assert changes(side("x", old), side("y", new)) == "workload.model a -> b, limits.budget_usd 1B -> 2B (+100 %)"
    many = {f"limits.x{n}": n for n in range(7)}
    assert changes(side("x", {}), side("y", many)).endswith("limits.x3 none -> 3, 3 other values")
    plan = small()
    about = {"instance__name": "other", "instance__source": "a list of prices", "instance__note": "as of May"}
    named = edited(plan, **about, instance__hardware__rack__note="measured")
    assert changes(side_of("a", plan), side_of("b", named)) == "the same instance"
    other = edited(plan, instance__hardware__rack__name="other")
    assert changes(side_of("a", plan), side_of("b", other)) == "hardware.rack rack -> other"


def test_headlines_say_what_a_plan_comes_to() -> None:
    """The verdict of a plan with what it buys; of a row its days, money and status; the reason where there is none."""
    plan = small()
    text = headline(side_of("a", plan))
    assert text.startswith("Trains in ") and " racks (" in text and "Buys 14" in text
    row = side("r", status="optimal", objective__name="days_to_train", objective__value=7.0, cost__total_usd=2e9)
    assert headline(row) == "7.0 days, $2.00B; optimal"
    none = infeasible()
    assert headline(side_of("b", none)) == f"No plan: {none.conflict.reason}."
    assert headline(side("c", status="infeasible", reason="no power")) == "infeasible: no power"


def test_a_sweep_of_many_rows_is_no_table_of_many_columns() -> None:
    """Those that the terminal has no room for are counted, with the way to see them."""
    sides = [side(f"row {n}", status="optimal", objective__value=float(n)) for n in range(1362)]
    for width in (80, 120, 200):
        text = table([s.name for s in sides], rows_of(sides), width)
        shown = len(re.findall(r"row \d+", text))
        assert 2 <= shown <= 24
        assert f"{1362 - shown:,} further columns left out: name those to see as FILE#INDEX" in text.replace("\n", " ")


def test_unsourced_figures_are_named() -> None:
    """A part with figures and no source is named, but not within one that has a source."""
    network = rich().instance.network.replaced(source=None)
    assert list(without_source(network, "network")) == ["network"]
    assert list(without_source(network.replaced(source="a text"), "network")) == []
    limits = rich().instance.limits  # part of the question itself
    assert list(without_source(limits, "limits")) == [] != list(without_source(limits, "other"))


def sides(folder: Path, *cells: str, point: str = "1") -> list[Side]:
    """Return the rows of a table with one figure beside the status, from a file."""
    lines = [f"{n},k{n},{point},optimal,{cell}" for n, cell in enumerate(cells)]
    path = folder / "rows.csv"
    path.write_text("\n".join(["index,key,limits.x,status,figure", *lines, ""]), encoding="utf-8")
    return sides_of_rows(path, None, several=False)


@each(("cell", "figure"), [
    ("7", 7), ("-7", -7), ("0.5", 0.5), ("1e-07", 1e-7), ("1E+3", 1000.0), (".5", 0.5), ("True", True),
    ("False", False), ("inf", "inf"), ("nan", "nan"), ("1_000", "1_000"), ("'=1+1", "=1+1"),
    ("9" * 299, 10**299 - 1), ("9" * 300, 1e300), ("-" + "9" * 308, -1e308),
])  # fmt: skip
def test_a_cell_is_a_number_or_a_word(tmp_path: Path, cell: str, figure: object) -> None:
    """Whole numbers stay whole as far as floats hold them; what sounds like a number is a word, and nothing a dash."""
    side, none = sides(tmp_path, cell, "")
    found = side.figures["figure"]
    assert (found, type(found)) == (figure, type(figure)) and "figure" not in none.figures
    words = table(["a", "b"], rows_of([none, side])).split()
    assert words[words.index("figure") + 1] == "-"


@each("cell", ["9" * 309, "-" + "9" * 5000, "1e309"])
def test_a_number_that_no_float_holds_is_refused(tmp_path: Path, cell: str) -> None:
    """It names the file, the line, the column and how the number begins, in any column, and in a row of JSON."""
    with pytest.raises(InputError, match=rf"rows\.csv: line 3: figure: {cell[:40]} is beyond .* finite figure"):
        sides(tmp_path, "1", cell)
    with pytest.raises(InputError, match=r"rows\.csv: line 2: limits\.x: .* is beyond"):
        sides(tmp_path, "1", point=cell)
    row = {"index": 0, "key": "k", "point": {}, "status": "optimal", "seconds": 1}
    for where in ("plan", "point", "objective"):
        line = json.dumps(row | {where: {"name": "days", "value": 10**400}}).encode() + b"\n"
        with pytest.raises(InputError, match=r"line 1: .*value is beyond"):
            parse_rows(Path("rows.jsonl"), line)


@each("path", ["./rows.csv", "..//{0}/rows.csv"])
def test_a_path_with_dots_is_the_file_that_it_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str):
    """Rows are compared by whatever path names them, on a terminal of no number of lines too, and in full."""
    sides(tmp_path, "9" * 299, "5")
    monkeypatch.chdir(tmp_path)
    path = path.format(tmp_path.name)
    assert invoke("compare", path, env={"LINES": "²"}).output == invoke("compare", "rows.csv").output
    assert "5e-299x" in invoke("compare", f"{path}#0", f"{path}#1").output
    found = json.loads(invoke("compare", path, "--json").output, parse_constant=pytest.fail)
    assert found["figure"] == [10**299 - 1, 5]
