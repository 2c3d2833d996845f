"""The tables of a MATPOWER case file (.m), with their line numbers; the rest of the language is not read.

Known: comments (%, #, %{ … %}), continuations (...), rows ended by a semicolon or a line's end, values separated by
blanks or commas, and both names of a table (mpc.bus, or bus in the files of version 1). A statement that changes a
table after it was written would have to be run, so it is refused.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError
from planner.files import read_text

# MATPOWER User's Manual, appendix B: names of the columns, as far as this reader goes.
COLUMNS = {
    "bus": ("BUS_I", "BUS_TYPE", "PD", "QD", "GS", "BS", "BUS_AREA", "VM", "VA", "BASE_KV"),
    "gen": ("GEN_BUS", "PG", "QG", "QMAX", "QMIN", "VG", "MBASE", "GEN_STATUS", "PMAX"),
    "branch": ("F_BUS", "T_BUS", "BR_R", "BR_X", "BR_B", "RATE_A", "RATE_B", "RATE_C", "TAP", "SHIFT", "BR_STATUS"),
}
_OPENS = re.compile(r"^\s*(?:\w+\.)?(bus|gen|branch|dcline)\s*=\s*\[")
_BASE = re.compile(r"^\s*(?:\w+\.)?baseMVA\s*=\s*([^;]*)")
_TABLE = r"(?:\w+\.)?(?:bus|gen|branch)\s*"
_CHANGES = re.compile(rf"^\s*(?:{_TABLE}\([^=]*\)\s*=(?!=)|{_TABLE}=|mpc\s*=(?!\s*struct\b))")


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One row of a table."""

    file: str
    table: str
    line: int
    values: tuple[float, ...]

    def get(self, column: str) -> float:
        """Return a value by the column's name; it must be finite."""
        value = self.values[COLUMNS[self.table].index(column)]
        if not math.isfinite(value):
            raise self.wrong(column, "must be finite", "correct it")
        return value

    def number(self, column: str) -> int:
        """Return a value that must be a positive whole number, such as a bus."""
        value = self.get(column)
        if value != int(value) or value < 1:
            raise self.wrong(column, "must be a positive whole number", "correct it")
        return int(value)

    def wrong(self, column: str, problem: str, remedy: str) -> InputError:
        """Return the error that names a value."""
        n = COLUMNS[self.table].index(column)
        where = f"{self.file}: line {self.line}, {self.table} column {n + 1} ({column})"
        return InputError(f"{where}: {problem} (is {self.values[n]:g}); {remedy}")


@dataclass(frozen=True, slots=True)
class Case:
    """What is read of a case."""

    file: str
    base_mva: float
    tables: dict[str, tuple[MatrixRow, ...]]
    dc_lines: int


def read_case(path: Path) -> Case:
    """Read the tables of a case file."""
    file = str(path)
    base: float | None = None
    tables: dict[str, list[tuple[int, list[str]]]] = {}
    lines = list(_code(file, read_text(path)))
    i = 0
    while i < len(lines):
        number, text = lines[i]
        opened, based = _OPENS.match(text), _BASE.match(text)
        if opened:
            if opened[1] in tables:
                raise InputError(f"{file}: line {number}: table {opened[1]!r} is written twice; keep one")
            tables[opened[1]], i = _body(file, lines, i, opened.end(), opened[1])
        elif based:
            base = _value(file, number, "baseMVA", based[1].strip())
        elif _CHANGES.match(text):
            raise InputError(
                f"{file}: line {number}: {text.strip()!r} changes the case by a computation, which is not run here; "
                "save the case with MATPOWER's savecase and import that file"
            )
        i += 1
    for name in COLUMNS:
        if name not in tables:
            raise InputError(f"{file}: has no table mpc.{name}; give a MATPOWER case file with bus, gen and branch")
    if base is None or not 0 < base < math.inf:
        problem = "is missing" if base is None else f"must be greater than 0 (is {base:g})"
        raise InputError(f"{file}: baseMVA {problem}; write mpc.baseMVA = 100; or its value")
    rows = {name: tuple(_rows(file, name, tables[name])) for name in COLUMNS}
    return Case(file, base, rows, len(tables.get("dcline", ())))


def _code(file: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines without comments; a continued line is joined to the next."""
    depth, continued, start = 0, "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        bare = raw.strip()
        if bare in ("%{", "#{"):
            depth += 1
        elif bare in ("%}", "#}") and depth:
            depth -= 1
        elif not depth:
            line = _uncommented(raw)
            start = start if continued else number
            if "..." in line and "'" not in line:
                continued += line.split("...")[0] + " "
                continue
            yield start, continued + line
            continued = ""
    if depth:
        raise InputError(f"{file}: a block comment %{{ is never closed; add %}} on a line of its own")
    if continued:
        yield start, continued


def _uncommented(line: str) -> str:
    """Return a line without its comment; a % or # between quotes is text."""
    quoted = False
    for i, c in enumerate(line):
        if c == "'":
            quoted = not quoted
        elif c in "%#" and not quoted:
            return line[:i]
    return line


def _body(
    file: str, lines: list[tuple[int, str]], first: int, column: int, name: str
) -> tuple[list[tuple[int, list[str]]], int]:
    """Return a table's rows as words with line numbers, and the index of the line that closes it."""
    rows: list[tuple[int, list[str]]] = []
    for i in range(first, len(lines)):
        number, text = lines[i]
        text = text[column:] if i == first else text
        inside, closed, after = text.partition("]")
        if "=" in inside or "[" in inside:
            break
        rows += [(number, words) for piece in inside.split(";") if (words := piece.replace(",", " ").split())]
        if closed:
            if after.strip(" \t;,"):
                problem = f"{after.strip()!r} after the table {name!r} is not understood"
                raise InputError(f"{file}: line {number}: {problem}; end the table with ];")
            return rows, i
    raise InputError(f"{file}: line {lines[first][0]}: table {name!r} is never closed; add ]; after its last row")


def _rows(file: str, name: str, rows: list[tuple[int, list[str]]]) -> Iterator[MatrixRow]:
    columns = COLUMNS[name]
    for line, words in rows:
        if len(words) < len(columns):
            needed = f"{len(columns)} are needed ({', '.join(columns)})"
            problem = f"a row of {name!r} has {len(words)} values where {needed}"
            raise InputError(f"{file}: line {line}: {problem}; complete it")
        values = (
            _value(file, line, f"{name} column {i + 1} ({column})", word)
            for i, (column, word) in enumerate(zip(columns, words, strict=False))
        )
        yield MatrixRow(file, name, line, tuple(values))


def _value(file: str, line: int, what: str, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        problem = f"must be a number (is {word!r})"
        raise InputError(f"{file}: line {line}, {what}: {problem}; write the value itself, not an expression") from None
