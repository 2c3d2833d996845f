"""The strip of decision changes, and the rows that it is drawn from."""

from pathlib import Path

import pytest
from each_case import each
from sweep_rows import X, Y, row, written

from planner.errors import InputError
from planner.report.plots.plots import PlotRequest, best_rows, changes_of, edges_of, lanes_of, why_none
from planner.report.plots.sweep_rows import check_path, flattened, label, quantity, read_rows, short


def test_changes_are_told_where_they_happen(tmp_path: Path) -> None:
    """Each opening site, new strategy and grown fabric is listed once, at the first point that has it."""
    rows = best_rows(read_rows(written(tmp_path)), PlotRequest(X, Y))
    texts = changes_of(rows, X)
    assert texts == [
        "at $70B a second site opens: salem",
        "at $90B layout TP 8 PP 64 becomes TP 16 PP 64",
        "at $90B fabric 2 tiers, 4 planes becomes 3 tiers, 4 planes",
        "at $110B a third site opens: comanche-peak",
    ]


def test_lanes_hold_what_changes_alone(tmp_path: Path) -> None:
    """A lane is a decision with more than one value; its bands meet the points that hold them."""
    rows = best_rows(read_rows(written(tmp_path)), PlotRequest(X, Y))
    lanes = lanes_of(rows, X)
    assert set(lanes) == {"sites", "layout", "fabric"}
    assert lanes["fabric"] == [(40e9, 80e9, "2 tiers, 4 planes"), (90e9, 200e9, "3 tiers, 4 planes")]


def test_sites_that_swap() -> None:
    """A site that closes while another opens is described both ways."""
    before, after = flattened(row(40)), flattened(row(50))
    after["sites.sites.salem.racks"], after["sites.sites.palo-verde.racks"] = 9, 0
    assert changes_of([before, after], X) == ["at $50B salem opens and palo-verde closes"]


def test_best_rows_take_the_asked_end() -> None:
    """Of plans at one x the strip shows the least y, or the largest where more is better."""
    figures = [(1, 5.0), (1, 3.0), (0, 9.0), (2, "none")]
    rows = [*({"x": x, "y": y, "status": "optimal"} for x, y in figures), {"x": 1, "y": 1.0, "status": "failed"}]
    assert [r["y"] for r in best_rows(rows, PlotRequest("x", "y"))] == [9.0, 3.0]
    assert [r["y"] for r in best_rows(rows, PlotRequest("x", "y", senses=("min", "max")))] == [9.0, 5.0]
    assert [r["y"] for r in best_rows(rows, PlotRequest("x", "y", senses=None))] == [9.0, 3.0]


def test_edges_lie_half_way() -> None:
    """Bands meet half-way between points, by ratio on a logarithmic axis."""
    assert edges_of([1.0, 3.0, 4.0]) == [0.0, 2.0, 3.5, 4.5]
    assert edges_of([1.0, 4.0, 16.0], logarithmic=True) == pytest.approx([0.5, 2.0, 8.0, 32.0])


def test_nested_and_flat_rows_read_alike() -> None:
    nested = {
        "point": {X: 1.0},
        "plan": {"sites": {"sites": [{"id": "a", "racks": 3}]}, "layout": {"zero_stage": 1}},
        "status": "optimal",
    }
    flat = {X: 1.0, "sites.sites.a.id": "a", "sites.sites.a.racks": 3, "layout.zero_stage": 1, "status": "optimal"}
    assert flattened(nested) == flattened(flat) == flat


def test_half_written_last_line_is_no_row(tmp_path: Path) -> None:
    """The line that a killed run left behind is passed over; the same in the middle is an error that names the line."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"status": "optimal", "a": 1}\n{"status": "opt')
    assert read_rows(path) == [{"status": "optimal", "a": 1}]
    path.write_text('{"status": "optimal"}\n{"status": "opt\n{"status": "optimal"}\n')
    with pytest.raises(InputError, match="line 2"):
        read_rows(path)


def test_csv_rows(tmp_path: Path) -> None:
    """A table reads as rows: numbers as numbers, empty cells as nothing."""
    path = tmp_path / "rows.csv"
    path.write_text(f"index,{X},status,{Y}\n0,2e10,infeasible,\n1,4e10,optimal,900.5\n")
    assert read_rows(path) == [
        {"index": 0, X: 2e10, "status": "infeasible"},
        {"index": 1, X: 4e10, "status": "optimal", Y: 900.5},
    ]


def test_unknown_path_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        InputError, match=r"-y days_to_train: no row has this figure; did you mean layout\.metrics\.days_to_train\?"
    ):
        check_path([flattened(row(50))], "-y", "days_to_train")


@each(("path", "told", "others"), [
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


def test_why_there_is_no_plan() -> None:
    assert why_none(flattened(row(20))) == "infeasible: limits.budget_usd; memory"
    assert why_none(flattened(row(150, 1.3))) == "failed: its worker died twice"


@each(("path", "value", "expected"), [
    (X, 64e9, "$64B"), ("cost.opex_usd_per_year.energy", -1.5e6, "-$1.5M a year"),
    ("sites.facility_mw", 4060.04, "4,060 MW"), (Y, 16353.3, "16,353 days"), ("layout.recompute", "full", "full"),
    ("layout.gpus_used", 1590400, "1.59M"),
])  # fmt: skip
def test_quantities(path: str, value: object, expected: str) -> None:
    assert quantity(path, value) == expected


def test_names() -> None:
    assert label(X) == "budget (USD)"
    assert label("sites.facility_mw") == "facility (MW)"
    assert label("layout.zero_stage") == "ZeRO stage"
    assert label("cost.capex_usd.racks") == "racks (USD)"
    assert label("sites.racks") == "racks"
    assert [short(x) for x in (0, 99_999, 250_000, 1.25, 3.2e12, True, None)] == [
        "0", "99,999", "250K", "1.25", "3.2T", "True", "none",
    ]  # fmt: skip


def test_broken_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_text("no table")
    with pytest.raises(InputError, match=r"rows\.parquet: cannot be read as Parquet"):
        read_rows(tmp_path / "rows.parquet")
