"""A curve of money against days in words: a line a point, the bounds proven of all other plans, and the knee."""

import math
from collections.abc import Iterator, Sequence

from planner.plan.curve import Curve, CurvePoint
from planner.report.statements.statement import short_percent
from planner.units import aligned, amount, counted, money

HEAD = ("", "capital", "days", "at least", "MFU", "racks", "idle GPUs")
MOST_SEGMENTS = 8  # of whose bounds the lines below the table speak; the table has all
CONSTANT = 0.05  # of racks x days, within which a curve is as good as straight
FEWEST = 2  # points of a curve that can be straight


def without_plan(curve: Curve) -> str:
    """Write why a curve has no points."""
    if curve.stopped == "proved":
        return f"infeasible\nNo plan{_box(curve)} keeps all rules (proven); `planner explain` says which rules."
    return f"no plan so far: the search was ended by {_ended(curve)}; what plans there are is not known"


def _ended(curve: Curve) -> str:
    return "an interrupt" if curve.stopped == "interrupted" else "its limit"


def _box(curve: Curve) -> str:
    """Write the plans that a curve is about."""
    money_limit = "" if curve.most_usd is None else f" of at most {money(curve.most_usd)}"
    if curve.least_usd is not None and curve.most_usd is not None:
        money_limit = f" of {money(curve.least_usd)} to {money(curve.most_usd)}"
    slowest = "" if curve.slowest_days is None else f" in less than {amount(curve.slowest_days)} days"
    return f"{money_limit}{slowest}"


def table(points: Sequence[CurvePoint]) -> list[str]:
    """Write a line a point: its figures, then its layout and what else changes against the point before it."""
    figures = [HEAD]
    for p in points:
        least = "-" if p.bound_days is None else rounded_down(p.bound_days)
        cells = ("knee" if p.knee else "", money(p.capital_usd), amount(p.days_to_train), least, short_percent(p.mfu))
        figures.append((*cells, f"{p.racks:,}", f"{p.idle_gpus:,}"))
    texts = ["layout, and what else changes", *("; ".join((p.layout, *p.changes)) for p in points)]
    return [f"{line}  {text}" for line, text in zip(aligned(figures).split("\n"), texts, strict=True)]


def curve_section(curve: Curve) -> str:
    """Write the curve that a plan holds as the last section of its summary: its points, knee and proven share."""
    if len(curve.points) < FEWEST:
        other = "none of less money was found" if curve.none_below_usd is None else _none_below(curve)
        return f"CURVE      This plan alone; {other}."
    head = (
        f"CURVE      What less money buys: {counted(len(curve.points), 'plan')}, none beaten in both capital and days"
    )
    if curve.stopped != "proved":
        head += f" (ended by {_ended(curve)})"
    below = [] if curve.none_below_usd is None else [_none_below(curve).capitalize() + "."]
    share = [] if curve.epsilon is None else [*_covers(curve)]
    lines = [*table(curve.points), *knee(curve.points), *share, *below]
    return "\n".join([head, *(f"           {line}" for line in lines)])


def _none_below(curve: Curve) -> str:
    return f"no plan of at most {money(curve.none_below_usd or 0.0)} keeps all rules (proven)"


def proven(curve: Curve, epsilon: float) -> Iterator[str]:
    """Write what is proven of plans that are no rows, and what ended the search before the share asked for."""
    if curve.stopped != "proved":
        yield f"The search was ended by {_ended(curve)} before {rounded_up(epsilon)} was proven."
    if curve.epsilon is None:
        yield "Of other plans nothing is proven."
        return
    yield from _covers(curve)


def _covers(curve: Curve) -> Iterator[str]:
    share = rounded_up(curve.epsilon or 0.0)
    yield f"For every plan{_box(curve)} a row is within {share} in money and days (proven)."


def segments(points: Sequence[CurvePoint]) -> Iterator[str]:
    """Write the fewest days for some money: of a few points all, of many those at both ends and at the knee."""
    bounds = [p for p in points if p.bound_days is not None]
    if len(bounds) > MOST_SEGMENTS:
        bounds = [p for p in bounds if p.knee or p in (bounds[0], bounds[-1])]
    for p in bounds:
        days = rounded_down(p.bound_days or 0.0)
        yield f"No plan of at most {money(p.capital_usd)} trains in less than {days} days."


def _days_by_doubling(less: CurvePoint, more: CurvePoint) -> float:
    """Return by how much twice the money divides the days on the way from one plan to another, on average."""
    slope = math.log(less.days_to_train / more.days_to_train) / math.log(more.capital_usd / less.capital_usd)
    return float(2.0**slope)


def knee(points: Sequence[CurvePoint]) -> Iterator[str]:
    """Write the plan behind which money saves few days; of a curve without one whether it is as good as straight."""
    bend = next((p for p in points if p.knee), None)
    if bend is not None:
        where = f"{money(bend.capital_usd)}, {amount(bend.days_to_train)} days"
        below, above = (_days_by_doubling(*ends) for ends in ((points[0], bend), (bend, points[-1])))
        yield f"Knee: {where}; twice the money divides the days by {below:.2f} up to it, by {above:.2f} behind it."
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
