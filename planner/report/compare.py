"""Plans and rows of sweeps side by side: a line a figure, a column a plan."""

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.plan.files import read_plan
from planner.plan.flatten import Figure, digest
from planner.plan.plan import Plan
from planner.sweeps.store import read_rows
from planner.sweeps.tasks import written

Rows = dict[str, list[Figure]]
OBJECTIVE = ("name", "value", "bound", "gap", "joint_bound", "joint_gap")
ASIDE = ("key", "index", "seconds", "planner_version")  # of a row: not part of the answer
# The order in which a reader asks: what, how well, which decisions, at what price, how near the limits, how sure.
SECTIONS = ("", "objective", "sites", "layout", "fabric", "placement", "cost", "slack")
SAME = 1e-12  # relative


@dataclass(frozen=True, slots=True)
class Column:
    """One plan or row by its name and figures."""

    name: str
    figures: dict[str, Figure]


def columns_of_file(path: Path, index: int | None, *, several: bool) -> list[Column]:
    """Read a plan, or the rows of a sweep (the one of an index, where that is told)."""
    if path.suffix in (".jsonl", ".ndjson"):
        held = [(r.index, written(r.point), r.flat()) for r in sorted(read_rows(path), key=lambda row: row.index)]
    elif path.suffix == ".csv":
        held = list(_csv_rows(path))
    else:
        if index is not None:
            raise InputError(f"{path}#{index}: only rows of a sweep have an index; give the plan's file alone")
        return [Column(path.stem, figures_of(read_plan(path)))]
    held = [row for row in held if index in (None, row[0])]
    if not held:
        raise InputError(f"{path}: has no row" + ("" if index is None else f" of index {index}"))
    front = f"{path.stem} " if several else ""
    return [
        Column(front + (name or f"#{i}"), {k: v for k, v in flat.items() if k not in ASIDE}) for i, name, flat in held
    ]


def _csv_rows(path: Path) -> Iterator[tuple[int, str, dict[str, Figure]]]:
    """Read the table of a sweep; the columns between key and status are its point."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); give the table of a sweep") from None
    for n, row in enumerate(rows, 2):
        names = list(row)
        if not {"index", "key", "status"} <= set(names) or not (row["index"] or "").isdigit():
            raise InputError(f"{path}: line {n}: is no row of a sweep; its columns must hold index, key and status")
        point = {k: _figure(row[k]) for k in names[names.index("key") + 1 : names.index("status")]}
        yield int(row["index"]), written(point), {k: _figure(v) for k, v in row.items() if v != ""}


def _figure(text: str) -> Figure:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(text, text)


def figures_of(plan: Plan) -> dict[str, Figure]:
    """Return what is compared of a plan."""
    objective = {f"objective.{k}": getattr(plan.objective, k) for k in OBJECTIVE}
    conflict = {"reason": plan.conflict.reason, "rules": "; ".join(plan.conflict.rules)} if plan.conflict else {}
    return {"status": plan.status, "stopped": plan.stopped, **conflict, **objective, **digest(plan)}


def rows_of(columns: Sequence[Column], *, diff: bool = False) -> Rows:
    """Collect a line a figure that any column has, by section; `diff`: those alone that are not the same in all."""
    names = list(dict.fromkeys(name for c in columns for name in c.figures))
    names.sort(key=_section)
    found = {name: [c.figures.get(name) for c in columns] for name in names}
    return {
        k: v
        for k, v in found.items()
        if any(x is not None for x in v) and not (diff and all(_same(x, v[0]) for x in v))
    }


def _section(name: str) -> int:
    """Return where a figure stands; stable, so that a section keeps its order."""
    first = name.partition(".")[0]
    return SECTIONS.index(first) if first in SECTIONS else 0


def _same(a: Any, b: Any) -> bool:
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (a, b))
    return math.isclose(a, b, rel_tol=SAME) if numbers else str(a) == str(b)


def table(names: Sequence[str], rows: Rows) -> str:
    """Write the lines as a table; figures beside the first column's say how many times as large they are."""
    cells = [["", *names], *([name, *_cells(values)] for name, values in rows.items())]
    widths = [max(len(r[c]) for r in cells) for c in range(len(names) + 1)]
    return "\n".join(
        "  ".join(x.ljust(w) if c == 0 else x.rjust(w) for c, (x, w) in enumerate(zip(r, widths, strict=True))).rstrip()
        for r in cells
    )


def _cells(values: Sequence[Figure]) -> Iterator[str]:
    first = values[0]
    for n, v in enumerate(values):
        ratio = ""
        if n and _ratio_says(v, first):
            ratio = f" ({float(v or 0) / float(first or 1):.3g}x)"
        yield _cell(v) + ratio


def _ratio_says(v: Figure, first: Figure) -> bool:
    plain = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (v, first))
    return plain and bool(first) and v != first


def _cell(v: Figure) -> str:
    if v is None:
        return "-"
    if isinstance(v, bool):
        return json.dumps(v)
    return f"{v:,.6g}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else v
