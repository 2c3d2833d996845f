"""CSV tables that know their line numbers: an error names file, line, column, value and remedy."""

import csv
import difflib
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from planner.errors import InputError
from planner.files import read_text
from planner.instance.read_items import TrackedItems


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, with the line on which it ends."""

    file: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """Return a cell that must not be empty."""
        if not self.cells[column]:
            raise self.wrong(column, "must not be empty", "fill it in, or remove the row")
        return self.cells[column]

    def number(self, column: str, *, low: float = -math.inf, high: float = math.inf) -> float:
        """Return a cell that must be a finite number within bounds."""
        bounds = f" of at least {low:g}" if math.isfinite(low) else ""
        if math.isfinite(high):
            bounds = f" from {low:g} to {high:g}"
        try:
            value = float(self.cells[column])
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not low <= value <= high:
            raise self.wrong(column, f"must be a number{bounds}", "correct it, or remove the row")
        return value

    def wrong(self, column: str, problem: str, remedy: str) -> InputError:
        """Return the error that names a cell."""
        where = f"{self.file}: line {self.line}, column {column!r}"
        return InputError(f"{where}: {problem} (is {self.cells[column]!r}); {remedy}")


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV file: its columns by name, and its rows."""

    file: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    looked_up: set[str] = field(default_factory=set, compare=False)  # columns whose cells were read

    def find(self, *names: str) -> str | None:
        """Return the first of several names that a column has."""
        return next((n for n in names if n in self.columns), None)

    def need(self, *names: str) -> str:
        """Return the first of several names that a column has, or refuse the table."""
        column = self.find(*names)
        if column is None:
            near = difflib.get_close_matches(names[0], self.columns, 1, 0.6)
            hint = f"is it {near[0]!r}? rename it" if near else f"add it (has {', '.join(self.columns[:12])})"
            raise InputError(f"{self.file}: column {' or '.join(map(repr, names))} is missing; {hint}")
        return column


def names(tables: Mapping[str, Table]) -> str:
    """List the files of some tables, without their folders."""
    return ", ".join(sorted(Path(t.file).name for t in tables.values()))


def read_table(path: Path) -> Table:
    """Read a CSV file; its header is the first row with two filled cells, so that a title above it does no harm."""
    file, reader = str(path), csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    header: list[str] = []
    rows: list[Row] = []
    looked_up = set[str]()
    try:
        for cells in reader:
            stripped = [c.strip() for c in cells]
            if not header:
                header = _header(file, reader.line_num, stripped) if sum(map(bool, stripped)) >= 2 else []
            elif any(stripped):
                rows.append(_row(file, reader.line_num, header, stripped, looked_up))
    except csv.Error as error:
        raise InputError(f"{file}: line {reader.line_num}: {error}; correct the quotes there") from None
    if not header:
        raise InputError(f"{file}: has no header of two columns or more; give a CSV file with a comma between columns")
    return Table(file, tuple(c for c in header if c), tuple(rows), looked_up)


def _header(file: str, line: int, cells: list[str]) -> list[str]:
    twice = sorted({c for c in cells if c and cells.count(c) > 1})
    if twice:
        raise InputError(f"{file}: line {line}: column {twice[0]!r} stands twice in the header; rename or remove one")
    return cells


def _row(file: str, line: int, header: list[str], cells: list[str], looked_up: set[str]) -> Row:
    if len(cells) != len(header):
        problem = f"has {len(cells)} cells where the header has {len(header)}"
        raise InputError(f"{file}: line {line}: {problem}; add or remove commas")
    given = {h: c for h, c in zip(header, cells, strict=True) if h}
    return Row(file, line, TrackedItems(given, looked_up))
