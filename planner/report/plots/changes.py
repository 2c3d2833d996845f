"""What a sweep decides, and where along an axis that changes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from planner.report.plots.labels import quantity
from planner.report.plots.rows import Row, number

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
    told: str


def sites_of(row: Row) -> tuple[str, ...]:
    """Return the open sites of a row."""
    return tuple(
        sorted(k[len(SITE) : -len(RACKS)] for k, v in row.items() if k.startswith(SITE) and k.endswith(RACKS) and v)
    )


def _sites(row: Row) -> str | None:
    return " + ".join(sites_of(row)) or None


def _cut(row: Row) -> str | None:
    parts = [("TP", "tensor"), ("CP", "context"), ("EP", "expert"), ("PP", "pipeline")]
    ways = [(mark, row.get(f"layout.{kind}_parallel")) for mark, kind in parts]
    told = [f"{mark} {n}" for mark, n in ways if n is not None and (n != 1 or mark in ("TP", "PP"))]
    virtual = row.get("layout.virtual_stages")
    return " ".join(told) + (f" v{virtual}" if virtual not in (None, 1) else "") if told else None


def _memory(row: Row) -> str | None:
    zero, again = row.get("layout.zero_stage"), row.get("layout.recompute")
    told = [f"ZeRO-{zero}"] if zero is not None else []
    return ", ".join([*told, *([f"recompute {again}"] if again is not None else [])]) or None


def _fabric(row: Row) -> str | None:
    """Tell tiers and planes; of several sites each form once, the one with most tiers first."""
    tiers: dict[str, set[str]] = {}
    planes: dict[str, object] = {}
    for path, value in row.items():
        if path.startswith(FABRIC):
            if TIERS in path:
                site, _, rest = path.removeprefix(FABRIC).partition(TIERS)
                tiers.setdefault(site, set()).add(rest.partition(".")[0])
            elif path.endswith(".planes"):
                planes[path.removeprefix(FABRIC).removesuffix(".planes")] = value
    forms = sorted({(-len(tiers.get(s, ())), str(planes.get(s, ""))) for s in {*tiers, *planes}})
    told = [
        ", ".join(_counted(n, word) for n, word in ((str(-less), "tier"), (held, "plane")) if n not in ("", "0"))
        for less, held in forms
    ]
    return " / ".join(told) or None


def _counted(number: str, word: str) -> str:
    return f"{number} {word}" + ("" if number == "1" else "s")


def _lines(row: Row) -> str | None:
    """Tell the lines built, where the row tells sites."""
    front, end = "sites.new_lines.", ".circuits"
    built = [
        f"{k[len(front) : -len(end)]} x{v}"
        for k, v in sorted(row.items())
        if k.startswith(front) and k.endswith(end) and v
    ]
    return " + ".join(built) or ("none" if sites_of(row) else None)


def _model(row: Row) -> str | None:
    layers = row.get("choice.layers") or row.get("workload.model.layers")
    return None if layers is None else f"{layers} layers"


LANES: dict[str, Callable[[Row], str | None]] = {
    "sites": _sites,
    "new lines": _lines,
    "model": _model,
    "layout": _cut,
    "memory": _memory,
    "fabric": _fabric,
}


def best_by_x(rows: Sequence[Row], x: str, y: str, *, largest: bool = False) -> list[Row]:
    """Return for each x the row of least (or largest) y, by ascending x: whose decisions the strip shows."""
    held: dict[float, tuple[float, Row]] = {}
    for row in rows:
        at, value = number(row, x), number(row, y)
        if at is None or value is None:
            continue
        rank = -value if largest else value
        if at not in held or rank < held[at][0]:
            held[at] = (rank, row)
    return [held[at][1] for at in sorted(held)]


def lanes_of(rows: Sequence[Row], x: str) -> list[Lane]:
    """Return the decisions that change along x, each as bands of one value; rows are in the order of x."""
    found = []
    for name, told in LANES.items():
        bands: list[Band] = []
        for row in rows:
            at, value = number(row, x) or 0.0, told(row)
            if value is None:
                continue
            if bands and bands[-1].value == value:
                bands[-1] = Band(bands[-1].first, at, value)
            else:
                bands.append(Band(at, at, value))
        if len(bands) > 1:
            found.append(Lane(name, tuple(bands)))
    return found


def changes_of(rows: Sequence[Row], x: str) -> list[Change]:
    """Tell each change in words, in the order of x: `at $64B a third site opens: palo-verde`."""
    found: list[Change] = []
    for before, after in pairwise(rows):
        at = number(after, x) or 0.0
        for name, told in LANES.items():
            old, new = told(before), told(after)
            if old is None or new is None or old == new:
                continue
            what = (
                _sites_change(sites_of(before), sites_of(after)) if name == "sites" else f"{name} {old} becomes {new}"
            )
            found.append(Change(at, name, f"at {quantity(x, after.get(x))} {what}"))
    return found


ORDINALS = ("a first", "a second", "a third", "a fourth", "a fifth", "a sixth")


def _sites_change(old: Sequence[str], new: Sequence[str]) -> str:
    """Say which sites open and close."""
    opened, closed = [s for s in new if s not in old], [s for s in old if s not in new]
    if len(opened) == 1 and not closed:
        rank = ORDINALS[len(new) - 1] if len(new) <= len(ORDINALS) else f"one more (of {len(new)})"
        return f"{rank} site opens: {opened[0]}"
    told = ((opened, "open"), (closed, "close"))
    return " and ".join(f"{', '.join(s)} {word if len(s) > 1 else word + 's'}" for s, word in told if s)
