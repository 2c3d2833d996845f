"""Statements on days: of steps alone and on a calendar, what stops cost, and how the job goes on."""

from collections.abc import Iterator

from planner.instance.reliability import Reliability
from planner.physics.reliability.standing import counted as counted_stops
from planner.plan.plan import Plan
from planner.plan.reliability import ReliabilityPlan
from planner.report.days_by_part import shown_days
from planner.report.statements.statement import Statement, days, short_percent
from planner.report.statements.verdict import LIKELY
from planner.units import counted, duration, storage, words

CAUSES = 4  # of stops that are named
GOES_ON = {
    "restart": "the whole job restarts from its last checkpoint",
    "warm-spares": "the whole job restarts on spares that stand by",
    "elastic": "the job goes on without the lost replica",
}
NOTHING_FAILS = "Failures not modelled. Set reliability: llama3-2024 to include them."


def calendar(plan: Plan) -> Iterator[Statement]:
    """State the days with their range, and what stops make of days of steps."""
    section = plan.layout.metrics if plan.layout else plan.pools
    if section is None:
        return
    low, high = section.days_to_train_interval
    path = "layout.metrics.days_to_train" if plan.layout else "pools.days_to_train"
    text = f"{days(section.days_to_train)} days, likely {days(low)} to {days(high)}: {LIKELY} lie in it"
    yield Statement("figure", "days", text, interval=(low, high), source=LIKELY, path=path)
    if plan.reliability is None or plan.layout is None:
        yield from _without_stops(plan, section.days_to_train)
    else:
        yield from _with_stops(plan, plan.reliability)


def _without_stops(plan: Plan, on_calendar: float) -> Iterator[Statement]:
    share, r = plan.instance.workload.availability, plan.instance.reliability
    if share < 1:
        own = " and not reliability" if r is not None else ""
        both = _both(on_calendar * share, on_calendar)
        yield Statement("figure", "days", f"{both}, as workload.availability{own} says.", True)
    elif counted_stops(plan.instance) is not None:
        text = "The plan does not say what stops cost, though its instance counts them."
        yield Statement("warning", "days", text, True)
    else:
        yield Statement("warning", "days", NOTHING_FAILS, True)


def _both(steps: float, on_calendar: float) -> str:
    whole = f"{shown_days(on_calendar, steps)} days of steps are {shown_days(on_calendar, on_calendar)} on a calendar"
    return f"{whole}: {short_percent(steps / on_calendar)} of the time trains"


def _with_stops(plan: Plan, x: ReliabilityPlan) -> Iterator[Statement]:
    m = plan.layout.metrics if plan.layout else None
    if m is None or plan.layout is None:
        return
    text = f"{_both(m.step_days_to_train, m.days_to_train)}."
    yield Statement("figure", "days", text, True, path="layout.metrics.useful_share")
    every = f"A stop every {duration(x.stop_seconds)} of work; {GOES_ON[x.recovery]} ({words(x.recovery)})"
    r = plan.instance.reliability
    rates = f" (rates of {r.name})" if isinstance(r, Reliability) and r.name else ""
    yield Statement("figure", "days", f"{every}.", True, path="reliability.stop_seconds")
    costs = f"A stop costs {duration(x.restart_seconds)} and the lost work. By cause{rates}: {_causes(x)}."
    yield Statement("figure", "days", costs, path="reliability.stops_per_day_by_part")
    yield Statement("choice", "days", _checkpoints(plan, x), path="reliability.checkpoint_interval_seconds")
    yield Statement("choice", "days", _spares(x, plan.layout.data_parallel), path="reliability.spare_racks_by_site")
    if x.extrapolated and isinstance(r, Reliability):
        grow = "in proportion to GPUs" if not r.scale_exponent else f"as GPUs to the power of {1 + r.scale_exponent:g}"
        text = f"Failure rates of {r.measured_gpus:,.0f} GPUs for {plan.layout.gpus_used:,}: growth {grow} is assumed."
        yield Statement("warning", "days", text, True)


def _causes(x: ReliabilityPlan) -> str:
    total = sum(x.stops_per_day_by_part.values())
    causes = sorted(x.stops_per_day_by_part.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{name} {short_percent(n / total)}" for name, n in causes[:CAUSES]]
    if rest := causes[CAUSES:]:
        named.append(f"{counted(len(rest), 'other')} {short_percent(sum(n for _, n in rest) / total)}")
    return ", ".join(named)


def _checkpoints(plan: Plan, x: ReliabilityPlan) -> str:
    """Say what a checkpoint holds, where it goes, how often, and how long that takes."""
    target = "storage" if x.checkpoint_target == "storage" else "memory of neighbours"
    copies = ""
    if x.recovery == "elastic" and plan.layout is not None and plan.layout.zero_stage > 0:
        copies = "; each step ends with a copy of the sharded state to memory of neighbours"
    if x.checkpoint_interval_seconds is None:
        return f"No checkpoint is written behind the first ({storage(x.checkpoint_bytes)}){copies}."
    often = f"every {duration(x.checkpoint_interval_seconds)}, written in {duration(x.checkpoint_write_seconds)}"
    return f"A checkpoint of {storage(x.checkpoint_bytes)} to {target} {often}{copies}."


def _spares(x: ReliabilityPlan, replicas: int) -> str:
    """Write spare racks and GPUs, and the share of time, or of replicas, for which they are enough."""
    sites = [f"{n:,} at {site}" for site, n in sorted(x.spare_racks_by_site.items()) if n]
    racks = f"Spare racks: {', '.join(sites)}" if sites else "No spare racks"
    gpus = f"{counted(x.spare_gpus_per_rack, 'spare GPU')} in a rack" if x.spare_gpus_per_rack else "no spare GPUs"
    enough = f"enough racks are fit {short_percent(x.enough_racks_share)} of the time"
    if x.recovery == "elastic":
        enough = f"of {counted(replicas, 'replica')} {x.replicas_short:,.3g} are short of racks on average"
    return f"{racks}; {gpus}; {enough}."
