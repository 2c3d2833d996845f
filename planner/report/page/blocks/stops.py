"""What other checkpoint intervals and spares would give."""

from collections.abc import Iterator, Sequence

from planner.instance.reliability import CheckpointTarget, Recovery
from planner.physics.reliability.plan_curves import (
    IntervalCurve,
    SparePoint,
    exposure_of,
    interval_curves,
    spare_points,
)
from planner.plan.plan import Plan
from planner.report.page.drawings.curve import Axis, Line, curve, even_marks
from planner.report.page.parts import Block, Picture
from planner.units import counted, duration, percent, words

# Marks of an axis of time, in seconds: 0.1 s to 1,000 days.
TIMES = (0.1, 1, 10, 60, 600, 3600, 36_000, 172_800, 864_000, 8_640_000, 86_400_000)
INTERVAL = (
    "Time that trains by the time between checkpoints, for each way to go on behind a stop that is allowed; the dot is "
    "the plan."
)
SPARES = (
    "Time that trains by spare racks of all sites, each site's in proportion, by the way to go on that is best with "
    "so many; the dot is the plan. All else is as planned; money, power and room of spares are not in it."
)


def stops(plan: Plan) -> Iterator[Block]:
    """Show what other intervals and spares would give, where failures count."""
    x, u = plan.reliability, exposure_of(plan) if plan.reliability and plan.layout else None
    if x is None or u is None:
        return
    pictures = []
    if x.checkpoint_interval_seconds is not None and (lines := interval_curves(u)):
        pictures.append(_interval(lines, x.checkpoint_interval_seconds, x.useful_share))
    if len(points := spare_points(u)) > 1:
        pictures.append(_spares(points, sum(x.spare_racks_by_site.values()), x.useful_share))
    if pictures:
        yield Block("Stops, checkpoints and spares", pictures)


def _way(recovery: Recovery, target: CheckpointTarget) -> str:
    return "elastic" if recovery == "elastic" else f"{recovery}, {target}"


def _interval(lines: Sequence[IntervalCurve], seconds: float, useful: float) -> Picture:
    drawn = [
        Line(words(_way(c.recovery, c.target)).replace("-", " "), list(zip(c.seconds, c.share, strict=True)), n)
        for n, c in enumerate(lines)
    ]
    x_axis = Axis("between checkpoints", _mark, TIMES, log=True)
    alt = f"Time that trains by checkpoint interval: the plan has {percent(useful)} at {duration(seconds)}"
    return Picture(curve(alt, drawn, (seconds, useful), x_axis, Axis("time that trains", _percent)), INTERVAL)


def _mark(seconds: float) -> str:
    """Write a mark of an axis of time without decimals that are zero."""
    return duration(seconds).replace(".0 ", " ")


def _percent(value: float) -> str:
    return f"{100 * value:.4g} %"


def _spares(points: Sequence[SparePoint], racks: int, useful: float) -> Picture:
    drawn = [Line("", [(float(p.racks), p.share) for p in points], 0)]
    marks = [x for x in even_marks(0, points[-1].racks) if x == round(x)]
    x_axis = Axis("spare racks", "{:,.0f}".format, marks)
    alt = f"Time that trains by spare racks: the plan has {percent(useful)} with {counted(racks, 'rack')}"
    return Picture(curve(alt, drawn, (float(racks), useful), x_axis, Axis("time that trains", _percent)), SPARES)
