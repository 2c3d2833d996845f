"""Every figure of a plan in tables, made from the plan itself, so that none can be left out or written twice."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from planner.plan.plan import Plan
from planner.report.page.parts import Cell, Row, Table, figure
from planner.report.plots.labels import name_and_unit, plain
from planner.units import amount, memory, money, percent

PARTS = (
    *("objective", "sites", "wan", "layout", "pools", "fabric", "transport", "placement", "reliability", "cost"),
    *("run", "model_choice", "proof", "instance.limits", "instance.workload", "instance.hardware"),
    *("instance.grid.balancing_authorities", "instance.pins"),
)
NOT_SHOWN = ("source", "note", "assignment", "stripes", "catalog")  # where figures are from; racks one by one
SHARES = ("share", "mfu", "gap", "availability", "target")  # ends of keys whose values are parts of one
LISTED, ACROSS, TEXT = 60, 4, 24  # rows of a table; entries that stand side by side; letters of a text


def tables(plan: Plan) -> Iterator[tuple[str, list[Table]]]:
    """Yield the name and the tables of each part of a plan, then how it was asked for and made."""
    data = plan.model_dump(mode="json")
    for path in PARTS:
        value: Any = data
        for key in path.split("."):
            value = value.get(key) if value else None
        if value:
            name = plain(path.rpartition(".")[2])
            yield ("question: " if "." in path else "") + name, list(_tables(path, value, name))
    yield "run of the planner", list(_tables("", {k: v for k, v in data.items() if not isinstance(v, dict)}, "run"))


def _tables(path: str, value: Any, name: str) -> Iterator[Table]:
    """Yield the table of an object's own figures, then those of the objects in it."""
    pairs = [(str(k), v) for k, v in (enumerate(value) if isinstance(value, list) else value.items())]
    entries = {k: v for k, v in pairs if k not in NOT_SHOWN}
    kinds = {tuple(sorted(v)) if isinstance(v, dict) else None for _, v in pairs}
    if kinds and None not in kinds and (isinstance(value, list) or len(kinds) == 1):  # all are objects of one kind
        yield from _grid(path, entries, name)
    elif rows := [(_name(path, k), _cell(path, k, v)) for k, v in entries.items() if _is_figure(v)]:
        is_text = any(isinstance(v, (str, list)) and len(str(v)) > TEXT for v in entries.values())
        yield Table(name, ("", "value"), rows[:LISTED], ("value",) if is_text else ())
    objects = [(k, v) for k, v in entries.items() if v and isinstance(v, (dict, list)) and not _is_figure(v)]
    for k, v in objects[:LISTED]:
        yield from _tables(f"{path}.{k}".removeprefix("."), v, f"{name}: {_called(k, v)}")


def _grid(path: str, entries: Mapping[str, Any], name: str) -> Iterator[Table]:
    """Yield one table of entries with the same keys: few stand side by side, many below one another."""
    figures = (k for x in entries.values() for k, v in x.items() if _is_figure(v) and k not in NOT_SHOWN)
    keys = list(dict.fromkeys(figures))
    names = [_called(k, x) for k, x in entries.items()]
    cells = [[_cell(f"{path}.{at}", k, x.get(k)) for k in keys] for at, x in entries.items()]
    heads = tuple(_name(f"{path}.0", k) for k in keys)
    if keys and len(entries) <= ACROSS:
        rows: list[Row] = [(h, *column) for h, column in zip(heads, zip(*cells, strict=True), strict=True)]
        yield Table(name, ("", *names), rows)
    elif keys:
        more = f"; {len(cells) - LISTED:,} more are in the plan" if len(cells) > LISTED else ""
        rows = [(n, *row) for n, row in zip(names[:LISTED], cells, strict=False)]
        yield Table(name + more, ("", *heads), rows)


def _is_figure(value: Any) -> bool:
    """Return whether a value is written in one cell: it holds no objects."""
    if isinstance(value, list):
        return bool(value) and not any(isinstance(x, (dict, list)) for x in value)
    return value not in (None, "") and not isinstance(value, dict)


def _called(key: str, value: Any) -> str:
    """Return the name of an entry: its own where it has one."""
    known = value if isinstance(value, dict) else {}
    own = next((known[k] for k in ("id", "name", "line", "node", "rule") if known.get(k)), None)
    return str(own) if own else f"{int(key) + 1}" if key.isdigit() else plain(key)


def _name(path: str, key: str) -> str:
    """Return a key in words without its unit, which the figure has."""
    return key if "." in key else name_and_unit(f"{path}.{key}")[0]


def _cell(at: str, key: str, value: Any) -> Cell:
    """Return a value with its unit; a list in runs of what is equal."""
    path = f"{at}.{key}".removeprefix(".")
    if value in (None, "", []):
        return "-"
    if isinstance(value, list):
        runs = [(x, len(list(g))) for x, g in groupby(value)]
        return ", ".join(f"{n} x {_text(path, x)}" if n > 1 else _text(path, x) for x, n in runs[:LISTED])
    # A key that is a number with a point in it is no path.
    return figure(path, value, _text(path, value)) if "." not in key else _text(at, value)


def _text(path: str, value: Any) -> str:
    """Write a value in the unit of its path."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ("yes" if value else "no") if isinstance(value, bool) else str(value)
    (_, unit), keys = name_and_unit(path), path.split(".")[-2:]
    if unit.startswith("USD"):
        return money(value) + unit.removeprefix("USD")
    if unit.startswith("bytes"):
        return memory(value)
    if isinstance(value, float) and (keys[-1].endswith(SHARES) or "share" in keys[0]):
        return percent(value)
    return f"{value:,}" if isinstance(value, int) else f"{amount(value)} {unit}".rstrip()
