"""Lines of a summary on days of steps and days on a calendar: stops, how the job goes on, and where the days go."""

from collections.abc import Iterator

from planner.instance.reliability import Reliability
from planner.physics.reliability.standing import counted as counted_stops
from planner.plan.plan import Plan
from planner.plan.reliability import ReliabilityPlan
from planner.report.days_by_part import days_by_part, shown_days
from planner.units import counted, duration, percent, storage, words

BAR = 36  # columns of the longest bar
CAUSES = 4  # of stops that are named
GOES_ON = {
    "restart": "the whole job restarts from its last checkpoint",
    "warm-spares": "the whole job restarts on spares that stand by",
    "elastic": "the job goes on without the lost replica",
}
NOTHING_FAILS = 'nothing is taken to fail: every day is one of steps; the key "reliability" counts stops'


def calendar(plan: Plan, bar: int = BAR) -> Iterator[str]:
    """Say how many days pass for days of steps, and why: what stops cost, or that none are counted."""
    x = plan.reliability
    if x is None or plan.layout is None:
        if (line := without_stops(plan)) is not None:
            yield line
        return
    m = plan.layout.metrics
    yield _days(m.step_days_to_train, m.days_to_train)
    yield stops(plan, x)
    yield f"behind a stop {GOES_ON[x.recovery]} ({words(x.recovery)}): {duration(x.restart_seconds)} beside lost work"
    yield checkpoints(plan, x)
    yield spares(x, plan.layout.data_parallel)
    if (warning := extrapolated(plan)) is not None:
        yield f"warning: {warning}"
    yield from waterfall(plan, bar)


def without_stops(plan: Plan) -> str | None:
    """Say of a plan without a section on stops what its days hold; nothing where it has no days."""
    if plan.layout is None and plan.pools is None:
        return None
    share, r = plan.instance.workload.availability, plan.instance.reliability
    if share < 1:
        days = plan.layout.metrics.days_to_train if plan.layout else plan.pools.days_to_train if plan.pools else 0.0
        own = " and not reliability" if r is not None else ""
        return f"{_days(days * share, days)}, as workload.availability{own} says"
    if counted_stops(plan.instance) is not None:
        return "the plan does not say what stops cost, though its instance counts them"
    return NOTHING_FAILS


def _days(steps: float, days: float) -> str:
    both = f"{shown_days(days, steps)} days of steps -> {shown_days(days, days)} on a calendar"
    return f"{both}, {percent(steps / days)} of the time trains"


def stops(plan: Plan, x: ReliabilityPlan) -> str:
    """Say how often the job stops, and for which parts."""
    total = sum(x.stops_per_day_by_part.values())
    causes = sorted(x.stops_per_day_by_part.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{name} {percent(n / total)}" for name, n in causes[:CAUSES]]
    if rest := causes[CAUSES:]:
        named.append(f"{counted(len(rest), 'other')} {percent(sum(n for _, n in rest) / total)}")
    r = plan.instance.reliability
    rates = f" (rates of {r.name})" if isinstance(r, Reliability) and r.name else ""
    return f"a stop every {duration(x.stop_seconds)} of work{rates}: {', '.join(named)}"


def checkpoints(plan: Plan, x: ReliabilityPlan) -> str:
    """Say what a checkpoint holds, where it goes, how often, and how long that takes."""
    target = "storage" if x.checkpoint_target == "storage" else "memory of neighbours"
    copies = ""
    if x.recovery == "elastic" and plan.layout is not None and plan.layout.zero_stage > 0:
        copies = "; each step ends with a copy of the sharded state to memory of neighbours"
    if x.checkpoint_interval_seconds is None:
        return f"no checkpoint is written behind the first ({storage(x.checkpoint_bytes)}){copies}"
    often = f"every {duration(x.checkpoint_interval_seconds)}, written in {duration(x.checkpoint_write_seconds)}"
    return f"a checkpoint of {storage(x.checkpoint_bytes)} to {target} {often}{copies}"


def spares(x: ReliabilityPlan, replicas: int) -> str:
    """Say what stands by at the sites and in their racks, and for how much of the time, or replicas, that is enough."""
    sites = [f"{n:,} at {site}" for site, n in sorted(x.spare_racks_by_site.items()) if n]
    racks = f"spare racks {', '.join(sites)}" if sites else "no spare racks"
    gpus = (
        f"{counted(x.spare_gpus_per_rack, 'spare GPU')} a rack" if x.spare_gpus_per_rack else "no spare GPUs in racks"
    )
    enough = f"enough racks are fit {percent(x.enough_racks_share)} of the time"
    if x.recovery == "elastic":
        enough = f"of {counted(replicas, 'replica')} {x.replicas_short:,.3g} are short of racks on average"
    return f"{racks}, {gpus}: {enough}"


def extrapolated(plan: Plan) -> str | None:
    """Say where more GPUs are at work than those whose rates were measured."""
    x, r = plan.reliability, plan.instance.reliability
    if x is None or not x.extrapolated or plan.layout is None or not isinstance(r, Reliability):
        return None
    grow = "in proportion to GPUs" if not r.scale_exponent else f"as GPUs to the power of {1 + r.scale_exponent:g}"
    used = f"{plan.layout.gpus_used:,} GPUs are at work, and the rates were measured on {r.measured_gpus:,.0f}"
    return f"{used}; that stops grow {grow} is taken, not known"


def waterfall(plan: Plan, most: int = BAR) -> Iterator[str]:
    """Write where the days go, a bar a part, in so many columns: each begins where the one before it ends."""
    rows = days_by_part(plan)
    total = max((r.days for r in rows), default=0.0)
    rows = [r for r in rows if float(shown_days(total, r.days).replace(",", ""))]
    width, figures = max(len(r.name) for r in rows), max(len(shown_days(total, r.days)) for r in rows)
    end = 0.0
    for r in rows:
        start, end = (0.0, r.days) if r.is_sum else (end, end + r.days)
        low, high = (round(most * x / total) for x in sorted((start, end)))
        low = min(low, most - 1)
        bar = " " * low + ("=" if r.is_sum else "#") * max(high - low, 1)
        share = percent(r.days / total)
        yield f"{r.name:<{width}}  {shown_days(total, r.days):>{figures}} d  {share:>7}  {bar}"
