"""Plans and rows of sweeps side by side: a line a figure, a column a plan."""

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from rich.console import Console
from rich.table import Table

from planner.errors import InputError
from planner.files import read_text, unescaped
from planner.plan.files import read_plan
from planner.plan.flatten import Figure, digest
from planner.plan.plan import Plan
from planner.report.differences import Side, asked_of
from planner.report.summary import PIPE, fitted, statements
from planner.sweeps.rows import RowObjective
from planner.sweeps.store import LINES, read_rows
from planner.sweeps.tasks import point_text
from planner.units import counted

Rows = dict[str, list[Figure]]
NOT_COMPARED = ("key", "index", "seconds", "planner_version")  # of a row: not part of the answer
# The order in which a reader asks: what, how well, which decisions, at what price, how near the limits, how sure.
SECTIONS = ("", "objective", "sites", "layout", "fabric", "placement", "reliability", "cost", "run", "slack")
MOST_DIGITS = 300  # of a whole number that a float holds too
LEAST_COLUMN = 14  # characters of a column of figures
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
SAME = 1e-12  # relative: sums in another order differ by less


def columns_of_file(path: Path, index: int | None, *, several: bool) -> list[Side]:
    """Read a plan, or the rows of a sweep: all of them, or the one of an index."""
    if path.suffix in LINES:
        rows = [(r.index, point_text(r.point), r.flat()) for r in sorted(read_rows(path), key=lambda row: row.index)]
    elif path.suffix == ".csv":
        rows = list(_csv_rows(path))
    else:
        if index is not None:
            raise InputError(f"{path}#{index}: only rows of a sweep have an index; give the plan's file alone")
        return [side_of(path.stem, read_plan(path))]
    rows = [row for row in rows if index in (None, row[0])]
    if not rows:
        raise InputError(
            f"{path}: has no row{'' if index is None else f' of index {index}'}; give the rows of `planner sweep`"
        )
    front = f"{path.stem} " if several else ""
    figures = [{k: v for k, v in flat.items() if k not in NOT_COMPARED} for _, _, flat in rows]
    return [Side(front + (name or f"#{i}"), f) for (i, name, _), f in zip(rows, figures, strict=True)]


def _csv_rows(path: Path) -> Iterator[tuple[int, str, dict[str, Figure]]]:
    """Read the table of a sweep; the columns between key and status are its point."""
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path, "give the table of a sweep"), newline="")))
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read ({error}); give the table of a sweep") from None
    for n, row in enumerate(rows, 2):
        names = list(row)
        if None in row.values() or None in names:
            raise InputError(f"{path}: line {n}: has not one cell a column; add or remove commas")
        if not {"index", "key", "status"} <= set(names) or not re.fullmatch(r"[0-9]{1,18}", row["index"]):
            raise InputError(f"{path}: line {n}: is no row of a sweep; its columns must hold index, key and status")
        figures = {k: _figure(v, f"{path}: line {n}: {k}") for k, v in row.items()}
        point = {k: figures[k] for k in names[names.index("key") + 1 : names.index("status")]}
        yield int(row["index"]), point_text(point), {k: v for k, v in figures.items() if v != ""}


def _figure(text: str, where: str) -> Figure:
    """Read a cell: a number where it is one, and words such as inf and nan as they are."""
    if not NUMBER.fullmatch(text):
        return {"True": True, "False": False}.get(text, unescaped(text))
    if not math.isfinite(float(text)):
        raise InputError(f"{where}: {text[:40]} is beyond the largest number of 1.8e308; give a finite figure")
    return int(text) if text.lstrip("+-").isdigit() and len(text) < MOST_DIGITS else float(text)


def side_of(name: str, plan: Plan) -> Side:
    """Return a plan as one side of a comparison."""
    return Side(name, figures_of(plan), asked_of(plan), statements(plan))


def figures_of(plan: Plan) -> dict[str, Figure]:
    """Return what is compared of a plan."""
    objective = {f"objective.{k}": getattr(plan.objective, k) for k in RowObjective.model_fields}
    conflict = {"reason": plan.conflict.reason, "rules": "; ".join(plan.conflict.rules)} if plan.conflict else {}
    own = {"status": plan.status, "stopped": plan.stopped, "verified": plan.verified}
    return {**own, **conflict, **objective, **digest(plan)}


def rows_of(columns: Sequence[Side], *, diff: bool = False) -> Rows:
    """Return the values of each figure that any column has, by section; `diff`: only those that differ."""
    names = list(dict.fromkeys(name for c in columns for name in c.figures))
    names.sort(key=_section)  # stable, so that a section keeps its order
    rows = {name: [c.figures.get(name) for c in columns] for name in names}
    rows = {name: values for name, values in rows.items() if any(v is not None for v in values)}
    return {name: values for name, values in rows.items() if not (diff and all(_same(v, values[0]) for v in values))}


def _section(name: str) -> int:
    first = name.partition(".")[0]
    return SECTIONS.index(first) if first in SECTIONS else 0


def _same(a: Any, b: Any) -> bool:
    return math.isclose(a, b, rel_tol=SAME) if _is_number(a) and _is_number(b) else str(a) == str(b)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def table(names: Sequence[str], rows: Rows, width: int = PIPE) -> str:
    """Write the rows as a table; figures beside the first column's say how many times as large they are.

    As many columns as the width has room for, their cells broken where they must be.
    """
    shown = max(2, min(len(names), (width - min(width // 3, max(map(len, rows)))) // (LEAST_COLUMN + 2)))
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    drawn.add_column("", overflow="fold", ratio=None)
    for name in names[:shown]:
        drawn.add_column(name, justify="right", overflow="fold", min_width=LEAST_COLUMN)
    for name, (first, *others) in rows.items():
        drawn.add_row(name, _cell(first), *(_cell(v, first) for v in others[: shown - 1]))
    text = io.StringIO()
    # The height changes nothing; without it the console reads LINES, which need not be a number.
    Console(file=text, width=width, height=1, color_system=None, markup=False, highlight=False).print(drawn)
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    if len(names) > shown:
        more = counted(len(names) - shown, "further column")
        lines.append(fitted(f"{more} left out: name those to see as FILE#INDEX, or take --json for all", width))
    return "\n".join(lines)


def _cell(v: Figure, first: Figure = None) -> str:
    if v is None or isinstance(v, bool):
        return "-" if v is None else json.dumps(v)
    times = f" ({v / first:.3g}x)" if _is_number(v) and _is_number(first) and first and v != first else ""
    return (f"{v:,.6g}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else v) + times
