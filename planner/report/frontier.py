"""The curve of money against days as text: a table with a line a plan, and the bounds proven of all others."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from planner.plan.curve import Curve, CurvePoint
from planner.plan.flatten import Figure, digest
from planner.plan.plan import Plan
from planner.planning.frontier import Frontier
from planner.report.plots.changes import changed_decisions
from planner.report.statements.statement import short_percent
from planner.report.summary import fitted
from planner.units import aligned, amount, counted, money

HEAD = ("", "capital", "days", "at least", "MFU", "racks", "idle GPUs")
MOST_SEGMENTS = 8  # of whose bounds the lines below the table speak; the table has all
CONSTANT = 0.05  # of racks x days, within which a curve is as good as straight
FEWEST = 2  # points of a curve that can be straight


def curve_text(frontier: Frontier, epsilon: float, width: int | None = None) -> str:
    """Write a curve: its plans by rising capital, its proven epsilon and bounds, and the knee or why there is none.

    Parameters
    ----------
    frontier
        To write.
    epsilon
        The share within which a row was asked for.
    width
        Columns of the longest line; None: no line is broken.
    """
    curve = frontier.curve
    if not curve.points:
        return fitted(f"{frontier.instance.name}: {_without_plan(curve)}", width)
    plans = counted(len(curve.points), "plan")
    head = f"{frontier.instance.name}: {plans} that no other beats in both capital and days"
    lines = [head, *_table(curve.points, frontier.plans), *_proven(curve, epsilon), *_segments(curve.points)]
    return fitted("\n".join([*lines, *_knee(curve.points)]), width)


def _without_plan(curve: Curve) -> str:
    if curve.stopped == "proved":
        return f"infeasible\nNo plan{_box(curve)} keeps all rules (proven); `planner explain` says which rules."
    return f"no plan so far: the search was ended by {_ended(curve)}; what plans there are is not known"


def _ended(curve: Curve) -> str:
    return "an interrupt" if curve.stopped == "interrupted" else "its limit"


def _box(curve: Curve) -> str:
    """Write the plans that a curve is about."""
    money_limit = "" if curve.most_usd is None else f" of at most {money(curve.most_usd)}"
    slowest = "" if curve.slowest_days is None else f" in less than {amount(curve.slowest_days)} days"
    return f"{money_limit}{slowest}"


def _table(points: Sequence[CurvePoint], plans: Sequence[Plan]) -> Iterator[str]:
    """Write a line a point: its figures, then its layout and what else changes against the point before it."""
    figures = [HEAD]
    for p in points:
        least = "-" if p.bound_days is None else rounded_down(p.bound_days)
        cells = ("knee" if p.knee else "", money(p.capital_usd), amount(p.days_to_train), least, short_percent(p.mfu))
        figures.append((*cells, f"{p.racks:,}", f"{p.idle_gpus:,}"))
    rows = [digest(plan) for plan in plans]
    changes = ["", *(_changes(before, after) for before, after in pairwise(rows))]
    texts = ["layout, and what else changes", *(p.layout + x for p, x in zip(points, changes, strict=True))]
    for line, text in zip(aligned(figures).split("\n"), texts, strict=True):
        yield f"{line}  {text}"


def _changes(before: dict[str, Figure], after: dict[str, Figure]) -> str:
    changed = changed_decisions(before, after)
    return "".join(f"; {text}" for lane, text in changed.items() if lane != "layout")


def _proven(curve: Curve, epsilon: float) -> Iterator[str]:
    if curve.stopped != "proved":
        yield f"The search was ended by {_ended(curve)} before {rounded_up(epsilon)} was proven."
    if curve.epsilon is None:
        yield "Of other plans nothing is proven."
        return
    share = rounded_up(curve.epsilon)
    yield f"For every plan{_box(curve)} a row is within {share} in money and days (proven)."


def _segments(points: Sequence[CurvePoint]) -> Iterator[str]:
    """Write the fewest days for some money: of a few points all, of many those at both ends and at the knee."""
    bounds = [p for p in points if p.bound_days is not None]
    if len(bounds) > MOST_SEGMENTS:
        bounds = [p for p in bounds if p.knee or p in (bounds[0], bounds[-1])]
    for p in bounds:
        days = rounded_down(p.bound_days or 0.0)
        yield f"No plan of at most {money(p.capital_usd)} trains in less than {days} days."


def _knee(points: Sequence[CurvePoint]) -> Iterator[str]:
    """Write the plan behind which money saves few days; of a curve without one whether it is as good as straight."""
    knee = next((p for p in points if p.knee), None)
    if knee is not None:
        where = f"{money(knee.capital_usd)}, {amount(knee.days_to_train)} days"
        yield f"Knee: {where}; before it money saves days, behind it few."
        return
    if len(points) < FEWEST:
        return
    products = [p.racks * p.days_to_train for p in points]
    low, high = min(products), max(products)
    if high <= low * (1 + CONSTANT):
        yield f"No knee: racks x days is constant within {100 * CONSTANT:g} %."
    else:
        yield f"No knee; racks x days lies between {amount(low)} and {amount(high)}."


def rounded_up(share: float) -> str:
    """Write a share in percent with two digits, rounded up so that the claim stays true."""
    percent = 100 * share
    unit = 10.0 ** (math.floor(math.log10(percent)) - 1) if percent > 0 else 1.0
    return f"{math.ceil(percent / unit - 1e-9) * unit:.6g} %"


def rounded_down(days: float) -> str:
    """Write days in four digits, rounded down so that the claim of a bound stays true."""
    unit = 10.0 ** (math.floor(math.log10(days)) - 3) if days > 0 else 1.0
    return amount(math.floor(days / unit + 1e-9) * unit)
