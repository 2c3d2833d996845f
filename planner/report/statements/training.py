"""Statements on the layout and on the days of a run: parts of a step and its memory, stops, checkpoints and spares."""

from collections.abc import Iterator
from typing import NamedTuple

from planner.instance.hardware import Reliability
from planner.instance.workload import CORE_ATTENTION, Software
from planner.physics.recovery import counted as counted_stops
from planner.physics.training import step_prediction
from planner.plan.plan import Plan
from planner.plan.plan_sections import STEP_PARTS, LayoutPlan, PoolsPlan, ReliabilityPlan
from planner.report.statements.statement import LIKELY, Statement, days, shares_of, short_percent
from planner.units import counted, duration, memory, percent, short, storage, words

NAMED_PARTS = 4  # of a step, on the first screen


def layout(plan: Plan, layout: LayoutPlan, *, first: bool = True) -> Iterator[Statement]:
    """State a layout's degrees, schedule and memory, and the parts of its step; `first`: some on the first screen."""
    metrics = layout.metrics
    yield Statement("choice", "layout", _degrees(plan, layout), first)
    each = counted(layout.microbatch_sequences, "sequence")
    batch = f"{counted(layout.microbatches_per_step, 'micro-batch')} of {each}"
    text = f"{batch}, {short(metrics.tokens_per_step)} tokens a step"
    yield Statement("choice", "layout", f"{text}; ZeRO-{layout.zero_stage}; {recomputes(plan, layout)}", first)
    sequence = "; sequence parallel" if layout.sequence_parallel else ""
    stages = "a stage" if layout.pipeline_parallel > 1 else "in one stage"
    at_work = f"{layout.gpus_used:,} GPUs train, {layout.gpus_idle:,} do not"
    low, high = min(layout.layers_per_stage), max(layout.layers_per_stage)
    layers = f"{low}" if low == high else f"{low} to {high}"
    yield Statement("choice", "layout", f"{layers} layers {stages}{sequence}; {at_work}")
    # What a software stack sets that no measured run of this kind had.
    unmeasured = "software" in step_prediction.extrapolations(plan.instance, layout)
    notes = dict.fromkeys(("cpu_overhead", "launch") if unmeasured else (), " (extrapolated)")
    fast, slow = (metrics.step_seconds * days / metrics.days_to_train for days in metrics.days_to_train_interval)
    for most, likely in ((NAMED_PARTS, ""), (None, f" (likely {fast:.3g} to {slow:.3g})")):
        shares = shares_of(metrics.breakdown_seconds, metrics.step_seconds, notes, most)
        text, few = f"Step {metrics.step_seconds:.3g} s{likely}: {shares}", most is not None
        yield Statement("figure", "layout", text, first and few, short=few)
    in_use = f"{memory(metrics.memory_bytes_per_gpu)} of {memory(metrics.memory_limit_bytes)} on the fullest GPU"
    yield Statement("figure", "layout", f"MFU {short_percent(metrics.mfu)}; {in_use}", first)


def _degrees(plan: Plan, layout: LayoutPlan) -> str:
    """Write a layout statement's degrees and schedule; for a model with experts also CP and EP of 1, choices there."""
    model = plan.instance.workload.model
    experts = not isinstance(model, str) and model.experts is not None
    inner = f" ({layout.tensor_parallel_inner} inner)" if layout.tensor_parallel_inner > 1 else ""
    tensor, cp, ep = layout.degrees
    context = f" x CP {cp}" if experts or cp > 1 else ""
    expert = f", EP {ep}" if experts or ep > 1 else ""
    schedule = "1F1B" if layout.virtual_stages == 1 else f"interleaved 1F1B ({layout.virtual_stages} chunks a stage)"
    schedule = "zero-bubble ZB-H1" if layout.schedule == "zb-h1" else schedule
    schedule = "no pipeline" if layout.pipeline_parallel == 1 else schedule
    replicas = f"PP {layout.pipeline_parallel} x DP {layout.data_parallel:,}"
    return f"TP {tensor}{inner}{context} x {replicas}{expert}, {schedule}"


def recomputes(plan: Plan, layout: LayoutPlan) -> str:
    """Write, in a layout's statement, which layers, or which parts of them, run again in the backward pass."""
    layers = sum(layout.layers_per_stage)
    if layout.recompute == "none":
        return "recomputes nothing"
    if layout.recompute == "selective":
        software = plan.instance.workload.software
        modules = software.recompute_modules if isinstance(software, Software) else CORE_ATTENTION
        parts = "attention scores" if modules == CORE_ATTENTION else ", ".join(modules)
        return f"recomputes {parts} (selective)"
    count = sum(layout.recomputed_layers_per_stage) if layout.recomputed_layers_per_stage else layers
    return f"recomputes all {layers} layers" if count == layers else f"recomputes {count} of {layers} layers"


def pools(plan: Plan, shared: PoolsPlan) -> Iterator[Statement]:
    """State the shares of the batch that pools of different GPUs take, and the layout of each."""
    total, exchange = sum(shared.sequences.values()), max(shared.exchange_seconds.values())
    batch = f"{total:,} sequences ({short(shared.tokens_per_step)} tokens) a step of {shared.step_seconds:.3g} s"
    exposed = f"exchange between pools {exchange:.3g} s exposed" if exchange else "exchange between pools not counted"
    yield Statement("choice", "pools", f"{batch}; {exposed}", True)
    for name, count in shared.sequences.items():
        share = f"{name}: {count:,} sequences ({short_percent(count / total)})"
        own = shared.layouts.get(name)
        if own is None:
            yield Statement("choice", "pools", f"{share}; does not train", True)
            continue
        waits = shared.step_seconds - exchange - own.metrics.step_seconds
        step_of = f"step {own.metrics.step_seconds:.3g} s at MFU {short_percent(own.metrics.mfu)}, waits {waits:.3g} s"
        yield Statement("choice", "pools", f"{share}; {step_of}; {_degrees(plan, own)}; {recomputes(plan, own)}", True)
        for statement in layout(plan, own, first=False):
            yield Statement(statement.kind, "pools", f"{name}: {statement.text}")


OTHER = "other parts of a step"
STEPS, CALENDAR, AWAY = "days of steps", "days on a calendar", "not at work"
CAUSES = 4  # of stops that are named
GOES_ON = {
    "restart": "the whole job restarts from its last checkpoint",
    "warm-spares": "the whole job restarts on spares that stand by",
    "elastic": "the job goes on without the lost replica",
}
NOT_STATED = "The plan does not say what stops cost, though its instance counts them."
NOTHING_FAILS = "Failures not modelled. Set reliability: llama3-2024 to include them."


class DaysPart(NamedTuple):
    """A row of a plan's days by part: days of a part, or a sum so far."""

    name: str
    days: float
    is_sum: bool = False


def days_by_part(plan: Plan) -> list[DaysPart]:
    """Return a plan's nonzero days: of steps by part with their sum, lost by cause or by availability, and in all."""
    if plan.layout is None:
        return []
    metrics = plan.layout.metrics
    days_per_second = metrics.step_days_to_train / metrics.step_seconds
    known = {key for keys in STEP_PARTS.values() for key in keys}
    rows = {name: sum(metrics.breakdown_seconds.get(key, 0.0) for key in keys) for name, keys in STEP_PARTS.items()}
    rows[OTHER] = sum(seconds for key, seconds in metrics.breakdown_seconds.items() if key not in known)
    parts = [DaysPart(name, seconds * days_per_second) for name, seconds in rows.items() if seconds]
    parts.append(DaysPart(STEPS, metrics.step_days_to_train, True))
    lost = {AWAY: metrics.days_to_train - metrics.step_days_to_train} if metrics.useful_share < 1 else {}
    lost = plan.reliability.lost_days if plan.reliability is not None else lost
    parts += [DaysPart(name, days) for name, days in lost.items() if days]
    return [*parts, DaysPart(CALENDAR, metrics.days_to_train, True)] if lost else parts


def shown_days(total: float, days: float) -> str:
    """Write days of a plan's part with 1 to 3 decimals, more for a smaller total, so that small parts are visible."""
    return f"{days:,.{1 if total >= 1000 else 2 if total >= 10 else 3}f}"


def day_bars(plan: Plan, most: int) -> Iterator[str]:
    """Write a plan's days by part as text bars of at most `most` columns, each beginning where the one before ends."""
    rows = days_by_part(plan)
    total = max((row.days for row in rows), default=0.0)
    rows = [row for row in rows if float(shown_days(total, row.days).replace(",", ""))]
    width = max((len(row.name) for row in rows), default=0)
    figures = max((len(shown_days(total, row.days)) for row in rows), default=0)
    end = 0.0
    for row in rows:
        start, end = (0.0, row.days) if row.is_sum else (end, end + row.days)
        low, high = (round(most * days / total) for days in sorted((start, end)))
        low = min(low, most - 1)
        bar = " " * low + ("=" if row.is_sum else "#") * max(high - low, 1)
        yield f"{row.name:<{width}}  {shown_days(total, row.days):>{figures}} d  {percent(row.days / total):>7}  {bar}"


def calendar(plan: Plan) -> Iterator[Statement]:
    """State a plan's days to train with their range, and the days lost to stops."""
    section = plan.layout.metrics if plan.layout else plan.pools
    if section is None:
        return
    low, high = section.days_to_train_interval
    text = f"{days(section.days_to_train)} days, likely {days(low)} to {days(high)}: {LIKELY} lie in it"
    yield Statement("figure", "days", text)
    share, reliability = plan.instance.workload.availability, plan.instance.reliability
    whole, steps = section.days_to_train, section.days_to_train * share
    if plan.reliability is not None and plan.layout is not None:
        steps = plan.layout.metrics.step_days_to_train
    both = f"{shown_days(whole, steps)} days of steps are {shown_days(whole, whole)} on a calendar"
    both += f": {short_percent(steps / whole)} of the time trains"
    if plan.reliability is not None and plan.layout is not None:
        yield Statement("figure", "days", f"{both}.", True)
        yield from _with_stops(plan, plan.reliability, plan.layout)
    elif share < 1:
        own = " and not reliability" if reliability is not None else ""
        yield Statement("figure", "days", f"{both}, as workload.availability{own} says.", True)
    else:
        yield Statement("warning", "days", NOT_STATED if counted_stops(plan.instance) else NOTHING_FAILS, True)


def _with_stops(plan: Plan, reliability: ReliabilityPlan, layout: LayoutPlan) -> Iterator[Statement]:
    recovery = reliability.recovery
    every = f"A stop every {duration(reliability.stop_seconds)} of work; {GOES_ON[recovery]} ({words(recovery)})"
    inputs = plan.instance.reliability
    rates = f" (rates of {inputs.name})" if isinstance(inputs, Reliability) and inputs.name else ""
    yield Statement("figure", "days", f"{every}.", True)
    total = sum(reliability.stops_per_day_by_part.values())
    by_share = sorted(reliability.stops_per_day_by_part.items(), key=lambda item: (-item[1], item[0]))
    causes = [f"{name} {short_percent(stops / total)}" for name, stops in by_share[:CAUSES]]
    if rest := [stops for _, stops in by_share[CAUSES:]]:
        causes.append(f"{counted(len(rest), 'other')} {short_percent(sum(rest) / total)}")
    stop = f"A stop costs {duration(reliability.restart_seconds)} and the lost work"
    yield Statement("figure", "days", f"{stop}. By cause{rates}: {', '.join(causes)}.")
    copied = recovery == "elastic" and layout.zero_stage > 0
    copies = "; each step ends with a copy of the sharded state to memory of neighbours" if copied else ""
    size = storage(reliability.checkpoint_bytes)
    target = "storage" if reliability.checkpoint_target == "storage" else "memory of neighbours"
    text = f"No checkpoint is written behind the first ({size})"
    if (between := reliability.checkpoint_interval_seconds) is not None:
        often = f"every {duration(between)}, written in {duration(reliability.checkpoint_write_seconds)}"
        text = f"A checkpoint of {size} to {target} {often}"
    yield Statement("choice", "days", f"{text}{copies}.")
    sites = [f"{count:,} at {site}" for site, count in sorted(reliability.spare_racks_by_site.items()) if count]
    racks = f"Spare racks: {', '.join(sites)}" if sites else "No spare racks"
    spare = reliability.spare_gpus_per_rack
    gpus = f"{counted(spare, 'spare GPU')} in a rack" if spare else "no spare GPUs"
    enough = f"enough racks are fit {short_percent(reliability.enough_racks_share)} of the time"
    if recovery == "elastic":
        short_of_racks = f"{reliability.replicas_short:,.3g} are short of racks on average"
        enough = f"of {counted(layout.data_parallel, 'replica')} {short_of_racks}"
    yield Statement("choice", "days", f"{racks}; {gpus}; {enough}.")
    if reliability.extrapolated and isinstance(inputs, Reliability):
        power = 1 + inputs.scale_exponent
        grow = f"as GPUs to the power of {power:g}" if power > 1 else "in proportion to GPUs"
        text = f"Failure rates of {inputs.measured_gpus:,.0f} GPUs for {layout.gpus_used:,}: growth {grow} is assumed."
        yield Statement("warning", "days", text, True)
