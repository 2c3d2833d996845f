"""The decisions of a sweep, and where along an axis they change."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from planner.report.plots.labels import quantity
from planner.report.plots.rows import Row, number
from planner.units import counted

SITE, RACKS = "sites.sites.", ".racks"
FABRIC, TIERS = "fabric.sites.", ".tiers."


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the axis over which a decision stays the same."""

    first: float
    last: float
    value: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One decision along the axis."""

    name: str
    bands: tuple[Band, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A step of the axis at which a decision changes."""

    at: float
    lane: str
    text: str


def sites_of(row: Row) -> tuple[str, ...]:
    """Return the open sites of a row."""
    return tuple(sorted(name for name, racks in _named(row, SITE, RACKS) if racks))


def _named(row: Row, front: str, end: str) -> Iterator[tuple[str, Any]]:
    """Yield the names between the two parts of a path, and their values."""
    for path, value in row.items():
        if path.startswith(front) and path.endswith(end):
            yield path[len(front) : -len(end)], value


def _sites(row: Row) -> str | None:
    return " + ".join(sites_of(row)) or None


def _strategy(row: Row) -> str | None:
    kinds = [("TP", "tensor"), ("CP", "context"), ("EP", "expert"), ("PP", "pipeline")]
    degrees = [(mark, row.get(f"layout.{kind}_parallel")) for mark, kind in kinds]
    parts = [f"{mark} {n}" for mark, n in degrees if n is not None and (n != 1 or mark in ("TP", "PP"))]
    virtual = row.get("layout.virtual_stages")
    if parts and virtual not in (None, 1):
        parts.append(f"v{virtual}")
    return " ".join(parts) or None


def _memory(row: Row) -> str | None:
    choices = {"ZeRO-": row.get("layout.zero_stage"), "recompute ": row.get("layout.recompute")}
    return ", ".join(f"{name}{value}" for name, value in choices.items() if value is not None) or None


def _fabric(row: Row) -> str | None:
    """Return tiers and planes; of several sites each form once, the one with most tiers first."""
    planes = dict(_named(row, FABRIC, ".planes"))
    tiers: dict[str, set[str]] = {}
    for path in row:
        if path.startswith(FABRIC) and TIERS in path:
            site, _, rest = path.removeprefix(FABRIC).partition(TIERS)
            tiers.setdefault(site, set()).add(rest.partition(".")[0])
    forms = sorted({(-len(tiers.get(s, ())), str(planes.get(s, ""))) for s in {*tiers, *planes}})
    return " / ".join(_form(-minus_tiers, planes_of) for minus_tiers, planes_of in forms) or None


def _form(tiers: int, planes: str) -> str:
    parts = [counted(tiers, "tier")] if tiers else []
    if planes not in ("", "0"):
        parts.append(f"{planes} plane{'' if planes == '1' else 's'}")
    return ", ".join(parts)


def _lines(row: Row) -> str | None:
    """Return the lines built, where the row has sites."""
    built = [f"{name} x{n}" for name, n in sorted(_named(row, "sites.new_lines.", ".circuits")) if n]
    return " + ".join(built) or ("none" if sites_of(row) else None)


def _model(row: Row) -> str | None:
    layers = row.get("model_choice.layers") or row.get("workload.model.layers")
    return None if layers is None else f"{layers} layers"


LANES: dict[str, Callable[[Row], str | None]] = {
    "sites": _sites,
    "new lines": _lines,
    "model": _model,
    "layout": _strategy,
    "memory": _memory,
    "fabric": _fabric,
}


def best_by_x(rows: Sequence[Row], x: str, y: str, *, largest: bool = False) -> list[Row]:
    """Return for each x the row of smallest (or largest) y, whose decisions the strip shows, by ascending x."""
    best: dict[float, tuple[float, Row]] = {}
    for row in rows:
        at, value = number(row, x), number(row, y)
        if at is None or value is None:
            continue
        rank = -value if largest else value
        if at not in best or rank < best[at][0]:
            best[at] = (rank, row)
    return [best[at][1] for at in sorted(best)]


def lanes_of(rows: Sequence[Row], x: str) -> list[Lane]:
    """Return the decisions that change along x, each as bands of one value; rows are in the order of x."""
    lanes = []
    for name, decision in LANES.items():
        bands: list[Band] = []
        for row in rows:
            at, value = number(row, x) or 0.0, decision(row)
            if value is None:
                continue
            if bands and bands[-1].value == value:
                bands[-1] = Band(bands[-1].first, at, value)
            else:
                bands.append(Band(at, at, value))
        if len(bands) > 1:
            lanes.append(Lane(name, tuple(bands)))
    return lanes


def changes_of(rows: Sequence[Row], x: str) -> list[Change]:
    """Describe each change in words, in the order of x: `at $64B a third site opens: palo-verde`."""
    changes: list[Change] = []
    for before, after in pairwise(rows):
        at = number(after, x) or 0.0
        for name, decision in LANES.items():
            old, new = decision(before), decision(after)
            if old is None or new is None or old == new:
                continue
            what = f"{name} {old} becomes {new}"
            if name == "sites":
                what = _sites_change(sites_of(before), sites_of(after))
            changes.append(Change(at, name, f"at {quantity(x, after.get(x))} {what}"))
    return changes


ORDINALS = ("a first", "a second", "a third", "a fourth", "a fifth", "a sixth")


def _sites_change(old: Sequence[str], new: Sequence[str]) -> str:
    """Describe which sites open and close."""
    opened, closed = [s for s in new if s not in old], [s for s in old if s not in new]
    if len(opened) == 1 and not closed:
        rank = ORDINALS[len(new) - 1] if len(new) <= len(ORDINALS) else f"one more (of {len(new)})"
        return f"{rank} site opens: {opened[0]}"
    parts = [(s, verb if len(s) > 1 else f"{verb}s") for s, verb in ((opened, "open"), (closed, "close")) if s]
    return " and ".join(f"{', '.join(s)} {verb}" for s, verb in parts)
