"""Where the days of a run go, as lines of text with a bar each."""

from collections.abc import Iterator

from planner.plan.plan import Plan
from planner.report.days_by_part import days_by_part, shown_days
from planner.units import percent


def day_bars(plan: Plan, most: int) -> Iterator[str]:
    """Write the days of each part, with a bar of at most `most` columns that begins where the one before it ends."""
    rows = days_by_part(plan)
    total = max((r.days for r in rows), default=0.0)
    rows = [r for r in rows if float(shown_days(total, r.days).replace(",", ""))]
    width = max((len(r.name) for r in rows), default=0)
    figures = max((len(shown_days(total, r.days)) for r in rows), default=0)
    end = 0.0
    for r in rows:
        start, end = (0.0, r.days) if r.is_sum else (end, end + r.days)
        low, high = (round(most * x / total) for x in sorted((start, end)))
        low = min(low, most - 1)
        bar = " " * low + ("=" if r.is_sum else "#") * max(high - low, 1)
        share = percent(r.days / total)
        yield f"{r.name:<{width}}  {shown_days(total, r.days):>{figures}} d  {share:>7}  {bar}"
