"""Rows of a sweep's table beside each other: cells that are numbers, words and neither."""

import json
from pathlib import Path

import pytest
from commands import invoke
from each_case import each

from planner.errors import InputError
from planner.report.tables import Side, columns_of_file, rows_of, table


def sides(folder: Path, *cells: str, point: str = "1") -> list[Side]:
    """Return the rows of a table with one figure beside the status, from a file."""
    lines = [f"{n},k{n},{point},optimal,{cell}" for n, cell in enumerate(cells)]
    path = folder / "rows.csv"
    path.write_text("\n".join(["index,key,limits.x,status,figure", *lines, ""]), encoding="utf-8")
    return columns_of_file(path, None, several=False)


@each(("cell", "figure"), [
    ("7", 7), ("-7", -7), ("0.5", 0.5), ("1e-07", 1e-7), ("1E+3", 1000.0), (".5", 0.5), ("True", True),
    ("False", False), ("inf", "inf"), ("nan", "nan"), ("1_000", "1_000"), ("'=1+1", "=1+1"),
    ("9" * 299, 10**299 - 1), ("9" * 300, 1e300), ("-" + "9" * 308, -1e308),
])  # fmt: skip
def test_a_cell_is_a_number_or_a_word(tmp_path: Path, cell: str, figure: object) -> None:
    """Whole numbers stay whole as far as any float holds them too; what only sounds like a number is a word."""
    (side,) = sides(tmp_path, cell)
    found = side.figures["figure"]
    assert (found, type(found)) == (figure, type(figure))


def test_an_empty_cell_is_no_figure(tmp_path: Path) -> None:
    """A row without a figure has none of its name, and a column that has it stands beside a dash."""
    a, b = sides(tmp_path, "", "3")
    assert "figure" not in a.figures and b.figures["figure"] == 3
    assert table(["a", "b"], rows_of([a, b])).splitlines()[-1].split() == ["figure", "-", "3"]


@each("cell", ["9" * 309, "-" + "9" * 5000, "1e309"])
def test_a_number_that_no_float_holds_is_refused(tmp_path: Path, cell: str) -> None:
    """It names the file, the line, the column and how the number begins, in any column."""
    with pytest.raises(InputError, match=rf"rows\.csv: line 3: figure: {cell[:40]} is beyond .* finite figure"):
        sides(tmp_path, "1", cell)
    with pytest.raises(InputError, match=r"rows\.csv: line 2: limits\.x: .* is beyond"):
        sides(tmp_path, "1", point=cell)


def test_long_numbers_are_compared_by_the_command_too(tmp_path: Path) -> None:
    """A figure of 299 digits stands beside another one, in a table and as JSON."""
    sides(tmp_path, "9" * 299, "5")
    path = str(tmp_path / "rows.csv")
    assert "5e-299x" in invoke("compare", path).output
    found = invoke("compare", path, "--json")
    assert json.loads(found.output, parse_constant=pytest.fail)["figure"] == [10**299 - 1, 5]


def test_lines_of_a_terminal_that_are_no_number_are_not_read(tmp_path: Path) -> None:
    sides(tmp_path, "1", "2")
    outputs = [invoke("compare", tmp_path / "rows.csv", env={"LINES": x}) for x in ("9", "²")]
    assert outputs[0].output == outputs[1].output and "(2x)" in outputs[1].output
