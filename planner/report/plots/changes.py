"""The decisions of a sweep, where along an axis they change, and the strip below a plot with a lane of bands each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from planner.plan.decisions import LANES, changed_decisions
from planner.report.plots.labels import quantity
from planner.report.plots.rows import Row, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TINTS = ("#CFE3F2", "#F6DDC4")  # of bands, neighbours in turn
LETTER = 0.052  # inches of a letter of the strip


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the axis over which a decision stays the same."""

    first: float
    last: float
    value: str


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
