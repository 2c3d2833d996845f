"""The picture of money against days: a staircase of plans and, below it, one of their proven bounds."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.plan.curve import Curve, CurvePoint
from planner.report.plots.figure import COLOURS, Point, name_log_ticks, picture_of
from planner.report.plots.labels import label
from planner.units import amount, money

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MONEY, DAYS = "capital_usd", "days_to_train"
MARGIN = 1.15  # of the axis beyond the first and the last plan, where the curve has no end of its own


def plan_corners(curve: Curve) -> list[Point]:
    """Return the corners of the days that plans reach for some money: a plan's days last until the next one's money."""
    corners: list[Point] = []
    for p in curve.points:
        if corners:
            corners.append((p.capital_usd, corners[-1][1]))
        corners.append((p.capital_usd, p.days_to_train))
    if corners:
        most = curve.most_usd or MARGIN * corners[-1][0]
        corners.append((max(most, corners[-1][0]), corners[-1][1]))
    return corners


def bound_corners(points: Sequence[CurvePoint]) -> list[Point]:
    """Return the corners of the fewest days that are proven for some money, up to the last point with a bound.

    A bound for at most some capital is valid for any less, so a point without a bound has that of a dearer one.
    """
    proven: list[tuple[float, float]] = []  # money, and days of every plan of at most that money; the dearest first
    for p in reversed(points):
        days = max(p.bound_days or 0.0, proven[-1][1] if proven else 0.0)
        if days > 0:
            proven.append((p.capital_usd, days))
    corners: list[Point] = []
    for usd, days in reversed(proven):
        corners += [(corners[-1][0] if corners else points[0].capital_usd / MARGIN, days), (usd, days)]
    return corners


def staircase(curve: Curve, name: str, form: str) -> bytes:
    """Draw the curve of an instance by its name, as svg or png; both axes are logarithmic where all figures allow it.

    Raises
    ------
    InputError
        matplotlib is not installed.
    """
    return picture_of(lambda: _figure(curve, name), f"{name}: money against days", form)


def _figure(curve: Curve, name: str) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4))
    axes = figure.add_axes((0.12, 0.12, 0.85, 0.8))
    reached, proven = plan_corners(curve), bound_corners(curve.points)
    if all(x > 0 and y > 0 and math.isfinite(y) for x, y in (*reached, *proven)) and reached:
        axes.set(xscale="log", yscale="log")
        name_log_ticks(axes.xaxis, MONEY)
        name_log_ticks(axes.yaxis, DAYS)
    if proven:
        axes.plot(
            *zip(*proven, strict=True), color=COLOURS[1], linestyle=":", label="no plan is below, proven", zorder=2
        )
    if reached:
        axes.plot(*zip(*reached, strict=True), color=COLOURS[0], linewidth=1.2, label="plans", zorder=3)
        plans = [(p.capital_usd, p.days_to_train) for p in curve.points]
        axes.plot(*zip(*plans, strict=True), "o", color=COLOURS[0], markersize=4, zorder=3)
    for p in curve.points:
        if p.knee:
            text = f"knee: {money(p.capital_usd)}, {amount(p.days_to_train)} days"
            axes.plot([p.capital_usd], [p.days_to_train], "*", color=COLOURS[4], markersize=11, label=text, zorder=4)
    if reached or proven:
        axes.legend(fontsize=7.5, framealpha=0.85, edgecolor="none", loc="upper right")
    axes.set_xlabel(label(MONEY))
    axes.set_ylabel(label(DAYS))
    axes.set_title(f"{name}: money against days", fontsize=10)
    axes.tick_params(which="both", length=3.0, pad=3.5)
    axes.grid(color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)
    return figure
