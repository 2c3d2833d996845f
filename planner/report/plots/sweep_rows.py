"""Rows of a sweep as they are plotted: their names and units, figures by dotted path, the frontier of points."""

import difflib
import math
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from planner.errors import InputError
from planner.files import csv_rows, json_lines, read_text, unescaped
from planner.sweeps.row_store import LINES, flat_curve, read_parquet
from planner.units import short

UNITS = {unit: unit for unit in ("bytes", "days", "km", "ms", "tokens")} | {
    "usd_per_year": "USD a year",
    "usd": "USD",
    "mw": "MW",
    "bytes_per_gpu": "bytes a GPU",
    "seconds": "s",
    "flop": "FLOP",
    "m2": "m²",
    "gbps": "Gb/s",
    "watts": "W",
    "kw": "kW",
}
SPELLED = {"gpu": "GPU", "gpus": "GPUs", "mw": "MW", "usd": "USD", "wan": "WAN", "zero": "ZeRO"}
NAMES = {
    "days_to_train": ("time to train", "days"),
    "mfu": ("model FLOP utilisation", ""),
    "tokens_per_step": ("tokens a step", "tokens"),
    "racks": ("racks", ""),
    "gpus_used": ("GPUs used", ""),
}


def name_and_unit(path: str) -> tuple[str, str]:
    """Return the last key of a sweep row's path in plain words and its unit or ""; a part has its total's unit."""
    parent, _, last = path.rpartition(".")
    for key in (last, parent.rpartition(".")[2]):
        for end in sorted(UNITS, key=len, reverse=True):
            if key.endswith("_" + end):
                return plain(last.removesuffix("_" + end)), UNITS[end]
    return NAMES.get(last) or (plain(last), "")


def label(path: str) -> str:
    """Name a sweep row's figure with its unit, for a plot's axis: `budget (USD)` for limits.budget_usd."""
    name, unit = name_and_unit(path)
    return f"{name} ({unit})" if unit else name


def quantity(path: str, value: Any) -> str:
    """Write a sweep row's figure with the unit of its path: $64B, 2,500 MW."""
    _, unit = name_and_unit(path)
    if not unit or not isinstance(value, (int, float)):
        return short(value)
    if unit.startswith("USD"):
        return ("-$" if value < 0 else "$") + short(abs(value)) + unit.removeprefix("USD")
    return f"{short(value)} {unit}"


def plain(name: str) -> str:
    """Write a key of a sweep's row in plain words for a plot."""
    return " ".join(SPELLED.get(word, word) for word in name.split("_"))


Row = dict[str, Any]
Sense = Literal["min", "max"]
ENDS: tuple[Sense, Sense] = ("min", "max")
# By what the option --frontier says, x first; none: no frontier.
SENSES: dict[str, tuple[Sense, Sense] | None] = {
    **{f"{first}-{second}": (first, second) for second in ENDS for first in ENDS},
    "none": None,
}
PLANNED = ("optimal", "feasible")  # of a row's status: there is a plan
WRAPPERS = ("point.", "plan.")  # parts of a row whose figures go by their own names
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
MOST_DIGITS = 300  # of a whole number that a float holds too


def read_rows(path: Path) -> list[Row]:
    """Read a sweep's rows to plot: JSON lines (less a torn last one), CSV or Parquet. InputError: there are none."""
    if path.suffix == ".parquet":
        numbered = list(enumerate(read_parquet(path), 1))
    else:
        remedy = "give the rows of `planner sweep`"
        text = read_text(path, remedy)
        if path.suffix == ".csv":
            cells = csv_rows(path, text)
            head = next(cells, (1, []))[1]
            numbered = [(line, {key: cell or None for key, cell in zip(head, row, strict=True)}) for line, row in cells]
        else:
            numbered = [(line, flattened(row)) for line, row in json_lines(path, text, remedy, torn=True)]
    rows: dict[Any, Row] = {}
    for number, found in numbered:
        where = f"{path}: line {number}"
        row = {key: value for key, value in found.items() if value is not None}
        if path.suffix not in LINES:
            texts = {key: value for key, value in row.items() if isinstance(value, str)}
            for key, text in texts.items():
                if not NUMBER.fullmatch(text):
                    row[key] = {"true": True, "false": False}.get(text.lower(), unescaped(text))
                elif not math.isfinite(float(text)):
                    problem = f"{text[:40]} is beyond the largest number of 1.8e308; give a finite figure"
                    raise InputError(f"{where}: {key}: {problem}")
                else:
                    whole = text.lstrip("+-").isdigit() and len(text) < MOST_DIGITS
                    row[key] = int(text) if whole else float(text)
        if not isinstance(row.get("index", 0), int):
            raise InputError(f"{where}: index: must be a whole number (is {row['index']}); give the rows of a sweep")
        rows[row.get("key", number)] = row  # of each point the latest
    if not rows:
        raise InputError(f"{path}: holds no rows; run `planner sweep -o {path}` first")
    return list(rows.values())


def flattened(row: dict[str, Any]) -> Row:
    """Return a sweep's row on one level; entries of lists go by their id or name, else by position."""
    plain = {key: value for key, value in row.items() if key not in ("schema_version", "base", "curve")}
    plain |= {key: "; ".join(row[key]) for key in ("rules", "extrapolated") if row.get(key)}
    figures: Row = {}
    for path, value in leaves(plain):
        figures.setdefault(next((path[len(front) :] for front in WRAPPERS if path.startswith(front)), path), value)
    return figures | flat_curve(row.get("curve"))


def leaves(value: Any, where: str = "", entry: str = ".{}") -> Iterator[tuple[str, Any]]:
    """Yield the figures of a row's nested objects and lists by path; `entry` writes the id, name or place in a list."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from leaves(child, f"{where}.{key}" if where else str(key), entry)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            name = child.get("id") or child.get("name") if isinstance(child, dict) else None
            yield from leaves(child, where + entry.format(name or index), entry)
    else:
        yield where, value


def planned(row: Row) -> bool:
    """Return whether a sweep's row has a plan, and so a point in the plot."""
    return row.get("status") in PLANNED


USUAL = ("cost.total_usd", "layout.metrics.days_to_train", "layout.metrics.mfu")  # figures that are named as examples


def check_path(rows: Sequence[Row], option: str, path: str) -> None:
    """Require that some sweep row has a plot's path; the error names the option and the nearest path there is."""
    known = sorted({key for row in rows for key in row})
    if path in known:
        return
    folded = path.lower()
    last, names = folded.rpartition(".")[2], {key: key.lower() for key in known}
    near = [key for key, name in names.items() if name.rpartition(".")[2] == last]
    near = near or [key for key, name in names.items() if folded in name]
    near = near or difflib.get_close_matches(path, known, 3, 0.5)
    usual = [key for key in USUAL if key in known] or known[:3]
    hint = f"did you mean {' or '.join(near[:3])}?" if near else f"such as {', '.join(usual) or 'none'} do;"
    raise InputError(f"{option} {path}: no row has this figure; {hint} `planner compare ROWS` lists figures")


def number(row: Row, path: str) -> float | None:
    """Return a figure of a sweep's row that is a finite number, or None."""
    value = row.get(path)
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if plain and value is not None else None


def frontier(points: Sequence[tuple[float, float]], senses: tuple[Sense, Sense]) -> list[int]:
    """Return the indices of plotted points that no other dominates, by ascending x; the first of equal ones."""
    sx, sy = (1.0 if sense == "min" else -1.0 for sense in senses)
    order = sorted(range(len(points)), key=lambda i: (sx * points[i][0], sy * points[i][1], i))
    best_before = accumulate((sy * points[i][1] for i in order), min, initial=math.inf)
    kept = [i for i, best in zip(order, best_before, strict=False) if sy * points[i][1] < best]
    return sorted(kept, key=lambda i: points[i][0])
