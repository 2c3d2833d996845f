"""The decisions of a sweep, where along an axis they change, and the strip below a plot with a lane of bands each."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from planner.report.plots.labels import quantity
from planner.report.plots.rows import Row, number
from planner.units import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FABRIC, TIERS = "fabric.sites.", ".tiers."
ORDINALS = ("a first", "a second", "a third", "a fourth", "a fifth", "a sixth")
TINTS = ("#CFE3F2", "#F6DDC4")  # of bands, neighbours in turn
LETTER = 0.052  # inches of a letter of the strip


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the axis over which a decision stays the same."""

    first: float
    last: float
    value: str


def sites_of(row: Row) -> tuple[str, ...]:
    """Return the open sites of a row."""
    return tuple(sorted(name for name, racks in _named(row, "sites.sites.", ".racks") if racks))


def _named(row: Row, front: str, end: str) -> Iterator[tuple[str, Any]]:
    """Yield the names between the two parts of a path, and their values."""
    for path, value in row.items():
        if path.startswith(front) and path.endswith(end):
            yield path[len(front) : -len(end)], value


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
    forms = {(-len(tiers.get(s, ())), str(planes.get(s, ""))) for s in {*tiers, *planes}}
    texts = []
    for minus_tiers, count in sorted(forms):
        parts = [counted(-minus_tiers, "tier")] if minus_tiers else []
        parts += [f"{count} plane{'' if count == '1' else 's'}"] if count not in ("", "0") else []
        texts.append(", ".join(parts))
    return " / ".join(texts) or None


def _lines(row: Row) -> str | None:
    """Return the lines built, where the row has sites."""
    built = [f"{name} x{n}" for name, n in sorted(_named(row, "sites.new_lines.", ".circuits")) if n]
    return " + ".join(built) or ("none" if sites_of(row) else None)


def _model(row: Row) -> str | None:
    layers = row.get("model_choice.layers") or row.get("workload.model.layers")
    return None if layers is None else f"{layers} layers"


LANES: dict[str, Callable[[Row], str | None]] = {
    "sites": lambda row: " + ".join(sites_of(row)) or None,
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


def lanes_of(rows: Sequence[Row], x: str) -> dict[str, list[Band]]:
    """Return the decisions that change along x, each as bands of one value; rows are in the order of x."""
    lanes = {}
    for name, decision in LANES.items():
        bands: list[Band] = []
        for row in rows:
            at, value = number(row, x) or 0.0, decision(row)
            if bands and bands[-1].value == value:
                bands[-1] = Band(bands[-1].first, at, value)
            elif value is not None:
                bands.append(Band(at, at, value))
        if len(bands) > 1:
            lanes[name] = bands
    return lanes


def changes_of(rows: Sequence[Row], x: str) -> list[str]:
    """Describe each change in words, in the order of x: `at $64B a third site opens: palo-verde`."""
    changes = []
    for before, after in pairwise(rows):
        at = quantity(x, after.get(x))
        changes += [f"at {at} {what}" for what in changed_decisions(before, after).values()]
    return changes


def changed_decisions(before: Row, after: Row) -> dict[str, str]:
    """Describe by lane what one plan decides otherwise than the one before it: `a third site opens: palo-verde`."""
    changed = {}
    for name, decision in LANES.items():
        old, new = decision(before), decision(after)
        if old is None or new is None or old == new:
            continue
        sites = name == "sites"
        changed[name] = _sites_change(sites_of(before), sites_of(after)) if sites else f"{name} {old} becomes {new}"
    return changed


def _sites_change(old: Sequence[str], new: Sequence[str]) -> str:
    opened, closed = [s for s in new if s not in old], [s for s in old if s not in new]
    if len(opened) == 1 and not closed:
        rank = ORDINALS[len(new) - 1] if len(new) <= len(ORDINALS) else f"one more (of {len(new)})"
        return f"{rank} site opens: {opened[0]}"
    parts = [(s, verb if len(s) > 1 else f"{verb}s") for s, verb in ((opened, "open"), (closed, "close")) if s]
    return " and ".join(f"{', '.join(s)} {verb}" for s, verb in parts)


def edges_of(xs: Sequence[float], *, logarithmic: bool = False) -> list[float]:
    """Return the borders between neighbouring points, half-way, and as far outside the ends."""
    at = [math.log(x) for x in xs] if logarithmic else list(xs)
    if len(at) == 1:
        return [xs[0], xs[0]]
    middle = [(a + b) / 2 for a, b in pairwise(at)]
    ends = [at[0] - (middle[0] - at[0]), *middle, at[-1] + (at[-1] - middle[-1])]
    return [math.exp(x) for x in ends] if logarithmic else ends


def draw_strip(axes: "Axes", rows: Sequence[Row], x: str, *, inches: float) -> None:
    """Draw the lanes; rows are in the order of x, one an x; `inches` is the width of the axes, whose scale is set."""
    lanes = lanes_of(rows, x)
    axes.set_yticks(range(len(lanes)), list(lanes), fontsize=7.5)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if not lanes:
        style = {"transform": axes.transAxes, "fontsize": 7.5, "color": "#606060"}
        axes.text(0.5, 0.5, "the same decisions all along", ha="center", va="center", **style)
        return
    xs = [number(r, x) or 0.0 for r in rows]
    logarithmic = axes.get_xscale() == "log"
    edges = edges_of(xs, logarithmic=logarithmic)
    scale = math.log if logarithmic else float
    low, high = axes.get_xlim()
    per_inch = (max(scale(high), scale(edges[-1])) - min(scale(low), scale(edges[0]))) / inches
    for n, bands in enumerate(lanes.values()):
        for k, band in enumerate(bands):
            left, right = edges[xs.index(band.first)], edges[xs.index(band.last) + 1]
            style = {"facecolor": TINTS[k % 2], "edgecolor": "white", "linewidth": 0.8}
            axes.broken_barh([(left, right - left)], (n - 0.4, 0.8), **style)
            if len(band.value) * LETTER * per_inch <= scale(right) - scale(left):
                middle = math.sqrt(left * right) if logarithmic else (left + right) / 2
                axes.text(middle, n, band.value, ha="center", va="center", fontsize=6.5)
