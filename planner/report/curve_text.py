"""The curve of money against days as text: a line a point, its knee, and what is proven of other plans."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from planner.plan.plan import Curve, CurvePoint, proven_knee
from planner.units import aligned, amount, counted, money, rounded, short_percent

if TYPE_CHECKING:
    from planner.planning.frontier import Frontier

CONSTANT_PRODUCT = 0.05  # of racks x days, within which a curve is as good as straight
FEWEST_POINTS = 2  # points of a curve that can be straight
UNBEATEN = "of which none beats another in both capital and days"
ENDED_BY = {"interrupted": "an interrupt"}  # of a curve's search; any other end is its limit
# Figures of a point of a curve: the heading of each by its key, and how it is written.
CURVE_FIGURES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "capital_usd": ("capital", money),
    "days_to_train": ("days", amount),
    "bound_days": ("at least", lambda days: amount(rounded(days, 4, up=False))),
    "mfu": ("MFU", short_percent),
    "racks": ("racks", "{:,}".format),
    "idle_gpus": ("idle GPUs", "{:,}".format),
}


def curve_figures(points: Sequence[CurvePoint]) -> list[dict[str, str]]:
    """Write the figures of a curve's points as text by key, a dash where there is none."""
    texts = [
        {key: "-" if getattr(p, key) is None else show(getattr(p, key)) for key, (_, show) in CURVE_FIGURES.items()}
        for p in points
    ]
    for two in pairwise(range(len(points))):
        one, other = (points[at].days_to_train for at in two)
        if amount(one) == amount(other) and one != other:
            digits = next((n for n in range(1, 9) if f"{one:.{n}f}" != f"{other:.{n}f}"), 9)
            for at, days in zip(two, (one, other), strict=True):
                texts[at]["days_to_train"] = max(texts[at]["days_to_train"], f"{days:,.{digits}f}", key=len)
    return texts


def curve_table(points: Sequence[CurvePoint]) -> list[str]:
    """Write a curve as text, a line a point: its figures, its layout and the changes against the point before."""
    figures = [["", *(heading for heading, _ in CURVE_FIGURES.values())]]
    bend = proven_knee(points)
    each = zip(points, curve_figures(points), strict=True)
    figures += [["knee" if point is bend else "", *own.values()] for point, own in each]
    texts = ["layout, and what else changes", *("; ".join((point.layout, *point.changes)) for point in points)]
    return [f"{line}  {text}" for line, text in zip(aligned(figures).split("\n"), texts, strict=True)]


def curve_text(frontier: "Frontier", epsilon: float) -> str:
    """Write a curve of money against days as text: plans by capital with bounds, the knee, and the proven share."""
    curve, name = frontier.curve, frontier.instance.name
    proven, ended = curve.stopped == "proved", f"was ended by {ENDED_BY.get(curve.stopped, 'its limit')}"
    if curve.points:
        lines = [f"{name}: {counted(len(curve.points), 'plan')}{'' if proven else ' so far'}, {UNBEATEN}"]
        lines += [*curve_table(curve.points), *curve_claims(curve)]
        if not proven:
            lines.append(f"The search {ended} before {_share(epsilon)} was proven.")
    elif proven:
        lines = [f"{name}: infeasible"]
        lines.append(f"No plan{_curve_box(curve)} keeps all rules (proven); `planner explain` says which rules.")
    else:
        lines = [f"{name}: no plan so far: the search {ended}; what plans there are is not known"]
    return "\n".join(lines)


def curve_claims(curve: Curve) -> Iterator[str]:
    """Write what a curve says of its points and of other plans: the knee, proven share, and money for no plan."""
    # The knee is the plan behind which money saves few days; a curve without one may be as good as straight.
    points, bend = curve.points, proven_knee(curve.points)
    if bend is not None:
        where = f"{money(bend.capital_usd)}, {amount(bend.days_to_train)} days"
        # By how much twice the money divides the days on the way from one plan to another, on average.
        below, above = (
            2.0 ** (math.log(less.days_to_train / more.days_to_train) / math.log(more.capital_usd / less.capital_usd))
            for less, more in ((points[0], bend), (bend, points[-1]))
        )
        yield f"Knee: {where}; twice the money divides the days by {below:.2f} up to it, by {above:.2f} behind it."
    elif any(point.knee for point in points):
        yield "No knee is named: the bounds of the curve's ends and of its bend are not all proven."
    elif len(points) >= FEWEST_POINTS:
        products = [point.racks * point.days_to_train for point in points]
        low, high = min(products), max(products)
        straight = f"No knee: racks x days is constant within {100 * CONSTANT_PRODUCT:g} %."
        bent = f"No knee; racks x days lies between {amount(low)} and {amount(high)}."
        yield straight if high <= low * (1 + CONSTANT_PRODUCT) else bent
    if curve.epsilon is None:
        yield "Of other plans nothing is proven."
    elif len(points) == 1 and curve.least_usd is not None and points[0].bound_days is not None:
        least = amount(rounded(points[0].bound_days, 4, up=False))
        yield f"No plan within the limits trains in less than {least} days (proven); cheaper plans are left open."
    else:
        yield f"For every plan{_curve_box(curve)} a row is within {_share(curve.epsilon)} in money and days (proven)."
    if curve.none_below_usd is not None:
        yield f"No plan of at most {money(curve.none_below_usd)} keeps all rules (proven)."


def _share(epsilon: float) -> str:
    return f"{rounded(100 * epsilon, 2, up=True):.6g} %"


def _curve_box(curve: Curve) -> str:
    money_limit = "" if curve.most_usd is None else f" of at most {money(curve.most_usd)}"
    if curve.least_usd is not None and curve.most_usd is not None:
        money_limit = f" of {money(curve.least_usd)} to {money(curve.most_usd)}"
    return money_limit + ("" if curve.slowest_days is None else f" in less than {amount(curve.slowest_days)} days")
