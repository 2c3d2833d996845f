"""Rows of a sweep as they are drawn: one flat level of figures by dotted path, whatever wrote them."""

import csv
import difflib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.sweeps.parquet import read_parquet

Row = dict[str, Any]
HELD = ("optimal", "feasible")  # of a row's status: there is a plan
WRAPPERS = ("point.", "plan.")  # parts of a row whose figures go by their own names


def read_rows(path: Path) -> list[Row]:
    """Read JSON lines, CSV or Parquet; a last line that a killed run left half-written is no row.

    Raises
    ------
    InputError
        The file cannot be read, or a line is no row; the message names the line.
    """
    if path.suffix == ".parquet":
        found = [
            {k: _value(v) if isinstance(v, str) else v for k, v in row.items() if v is not None}
            for row in read_parquet(path)
        ]
    else:
        text = _text(path)
        found = list(_csv_rows(text) if path.suffix == ".csv" else _lines(path, text))
    if not found:
        raise InputError(f"{path}: holds no rows; run `planner sweep -o {path}` first")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text ({error}); give the rows of `planner sweep`") from None


def _lines(path: Path, text: str) -> Iterator[Row]:
    lines = text.split("\n")
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            held = json.loads(line)
        except json.JSONDecodeError as error:
            if n == len(lines):
                return
            raise InputError(
                f"{path}: line {n}: {error.msg} at column {error.colno}; each line must be one JSON object"
            ) from None
        if not isinstance(held, dict):
            raise InputError(f"{path}: line {n}: must be an object (is {line[:60]}); give the rows of `planner sweep`")
        yield flattened(held)


def _csv_rows(text: str) -> Iterator[Row]:
    for row in csv.DictReader(text.splitlines()):
        yield {k: _value(v) for k, v in row.items() if k is not None and v not in ("", None)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"True": True, "False": False}.get(text, text)


def flattened(row: dict[str, Any]) -> Row:
    """Bring a row to one level; entries of lists go by their id or name, else by place."""
    found: Row = {}
    for path, value in _leaves(row, ""):
        name = next((path.removeprefix(w) for w in WRAPPERS if path.startswith(w)), path)
        found.setdefault(name, value)
    return found


def _leaves(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    front = f"{where}." if where else ""
    if isinstance(value, dict):
        for key, held in value.items():
            yield from _leaves(held, front + str(key))
    elif isinstance(value, list):
        for n, held in enumerate(value):
            own = held.get("id") or held.get("name") if isinstance(held, dict) else None
            yield from _leaves(held, f"{front}{own or n}")
    else:
        yield where, value


def planned(row: Row) -> bool:
    """Tell whether a row holds a plan."""
    return row.get("status") in HELD


def check_path(rows: Sequence[Row], option: str, path: str) -> None:
    """Refuse a path that no row has; point to the nearest that some row has.

    Raises
    ------
    InputError
        Names the option, the path and the nearest one.
    """
    known = sorted({k for r in rows for k in r})
    if path in known:
        return
    last = path.rpartition(".")[2]
    near = [k for k in known if k.rpartition(".")[2] == last] or difflib.get_close_matches(path, known, 3, 0.5)
    hint = f"did you mean {' or '.join(near[:3])}?" if near else f"known: {', '.join(known)}"
    raise InputError(f"{option} {path}: no row has this figure; {hint}")


def number(row: Row, path: str) -> float | None:
    """Return a finite number of a row, or None."""
    value = row.get(path)
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if plain and value is not None else None


def why_none(row: Row) -> str:
    """Say in few words why a row has no plan: its status and the rules in conflict, or else the reason's beginning."""
    status = str(row.get("status") or "no status")
    rules = row.get("rules")
    listed = (
        rules
        if isinstance(rules, str) and rules
        else "; ".join(str(v) for k, v in sorted(row.items()) if k.startswith("rules."))
    )
    told = listed or str(row.get("reason") or row.get("stopped") or "")
    return f"{status}: {told}" if told else status
