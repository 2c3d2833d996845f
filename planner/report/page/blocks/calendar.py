"""Days of steps and days on a calendar: what stops cost, checkpoints and what stands by, as blocks."""

import math
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
from planner.plan.reliability import ReliabilityPlan
from planner.report.days_by_part import STEP_PARTS, days_by_part, shown_days
from planner.report.page.drawings.curve import Axis, Line, curve, even_marks
from planner.report.page.drawings.waterfall import Bar, waterfall
from planner.report.page.parts import Block, Picture, Row, Table, figure, figures_of
from planner.report.summary_calendar import extrapolated, without_stops
from planner.units import counted, duration, percent, share, storage, words

# Marks of an axis of time, in seconds: 0.1 s to 1,000 days.
TIMES = (0.1, 1, 10, 60, 600, 3600, 36_000, 172_800, 864_000, 8_640_000, 86_400_000)
COMPUTE, EXCHANGE, IDLE, LOST, SUM = "c0", "c5", "c4", "c1", "rest"
SHADES = {"compute": COMPUTE, "pipeline bubble": IDLE, "host": IDLE}
WATERFALL = (
    "From days of steps to days on a calendar: blue computes, light blue exchanges, yellow waits, orange is lost to "
    "stops and to what guards against them, grey are sums."
)
INTERVAL = (
    "Time that trains by the time between checkpoints, for each way to go on behind a stop that is allowed; the dot is "
    "the plan."
)
SPARES = (
    "Time that trains by spare racks of all sites, each site's in proportion, by the way to go on that is best with "
    "so many; the dot is the plan."
)
AS_PLANNED = "Beside a chart's axis all is as planned; the money, power and room of spare racks are not in the chart."


def calendar(plan: Plan) -> Iterator[Block]:
    """Show where the days of a run go, and what other intervals and spares would give."""
    x = plan.reliability
    if x is None or plan.layout is None:
        if (line := without_stops(plan)) is not None:
            yield Block("Calendar", (), (), (f"{line[0].upper()}{line[1:]}.",))
        return
    u = exposure_of(plan)
    lines = [] if u is None or x.checkpoint_interval_seconds is None else interval_curves(u)
    points = [] if u is None else spare_points(u)
    pictures, tables = [_waterfall(plan)], [_days(plan), _behind_a_stop(x), _stops(x), _standing_by(plan, x)]
    if lines and x.checkpoint_interval_seconds is not None:
        pictures.append(_interval(lines, x.checkpoint_interval_seconds, x.useful_share))
        tables.append(_ways(lines))
    if len(points) > 1:
        pictures.append(_spares(points, sum(x.spare_racks_by_site.values()), x.useful_share))
        tables.append(_by_spares(points))
    warning = extrapolated(plan)
    yield Block("Calendar", pictures, tables, [*([f"{warning}."] if warning else []), AS_PLANNED])


def _way(recovery: Recovery, target: CheckpointTarget) -> str:
    return "elastic" if recovery == "elastic" else f"{recovery}, {target}"


def _waterfall(plan: Plan) -> Picture:
    rows = days_by_part(plan)
    total = rows[-1].days
    bars = []
    for r in rows:
        shade = SUM if r.is_sum else SHADES.get(r.name, EXCHANGE if r.name in STEP_PARTS else LOST)
        bars.append(Bar(r.name, r.days, shade, r.is_sum))
    return Picture(waterfall("Days of steps and days on a calendar", bars, lambda v: shown_days(total, v)), WATERFALL)


def _days(plan: Plan) -> Table:
    rows = days_by_part(plan)
    total = rows[-1].days
    table: list[Row] = []
    for r in rows:
        text = shown_days(total, r.days)
        table.append((r.name, figure(r.path, r.days, text) if r.path else text, share(r.days, total)))
    return Table("Where the days go", ("part", "days", "share"), table)


def _behind_a_stop(x: ReliabilityPlan) -> Table:
    cell = figures_of("reliability", x)
    rows: list[Row] = [
        ("time that trains", cell("useful_share", percent)),
        ("time between stops", cell("stop_seconds", duration)),
        ("behind a stop", cell("recovery", str)),
        ("that costs, beside lost work", cell("restart_seconds", duration)),
        ("checkpoints go to", cell("checkpoint_target", str)),
        ("every", cell("checkpoint_interval_seconds", duration)),
        ("a checkpoint", cell("checkpoint_bytes", storage)),
        ("to write it", cell("checkpoint_write_seconds", duration)),
        ("a rack is fit for work", cell("rack_availability", percent)),
        ("all sites have enough racks", cell("enough_racks_share", percent)),
        ("asked of spare racks", cell("spare_target", percent)),
        ("spare GPUs a rack", cell("spare_gpus_per_rack")),
        ("replicas short of racks, mean", cell("replicas_short", "{:,.3g}".format)),
        (
            "rates are extrapolated",
            figure("reliability.extrapolated", x.extrapolated, "yes" if x.extrapolated else "no"),
        ),
    ]
    return Table("Stops, checkpoints and spares", ("what", "value"), rows)


def _stops(x: ReliabilityPlan) -> Table:
    parts = dict(sorted(x.stops_per_day_by_part.items(), key=lambda item: (-item[1], item[0])))
    cell, total = figures_of("reliability.stops_per_day_by_part", parts), sum(parts.values())
    rows: list[Row] = [(name, cell(name, "{:,.4g}".format), share(n, total)) for name, n in parts.items()]
    return Table("Stops by cause", ("part", "a day of work", "share"), rows)


def _standing_by(plan: Plan, x: ReliabilityPlan) -> Table:
    cell, u = figures_of("reliability.spare_racks_by_site", x.spare_racks_by_site), exposure_of(plan)
    needed = {} if u is None else u.needed
    rows: list[Row] = [(s, f"{needed.get(s, 0):,}", cell(s)) for s in x.spare_racks_by_site]
    return Table("Racks that stand by", ("site", "at work", "standing by"), rows)


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


def _ways(lines: Sequence[IntervalCurve]) -> Table:
    rows: list[Row] = []
    for c in lines:
        often = duration(c.own_seconds) if math.isfinite(c.own_seconds) else "never"
        rows.append((_way(c.recovery, c.target), often, percent(c.own_share)))
    return Table("Ways to go on, each at the interval that it takes", ("way", "interval", "trains"), rows)


def _spares(points: Sequence[SparePoint], racks: int, useful: float) -> Picture:
    drawn = [Line("", [(float(p.racks), p.share) for p in points], 0)]
    marks = [x for x in even_marks(0, points[-1].racks) if x == round(x)]
    x_axis = Axis("spare racks", "{:,.0f}".format, marks)
    alt = f"Time that trains by spare racks: the plan has {percent(useful)} with {counted(racks, 'rack')}"
    return Picture(curve(alt, drawn, (float(racks), useful), x_axis, Axis("time that trains", _percent)), SPARES)


def _by_spares(points: Sequence[SparePoint]) -> Table:
    rows: list[Row] = [(f"{p.racks:,}", _way(p.recovery, p.target), f"{100 * p.share:.2f} %") for p in points]
    return Table("Time that trains with other spare racks", ("racks", "way", "trains"), rows, ("way",))
