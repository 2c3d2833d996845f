"""Statements on the layout: how a step is cut over GPUs, what its time and memory are made of."""

from collections.abc import Iterator

from planner.physics import step_errors
from planner.physics.training import step
from planner.physics.training.operations import Machine
from planner.physics.training.parallel_strategy import read_strategy
from planner.plan.layout import LayoutPlan
from planner.plan.plan import Plan
from planner.report.statements.statement import Statement, shares_of, short_percent
from planner.units import counted, memory, short

NAMED_PARTS = 4  # of a step, on the first screen


def layout(plan: Plan) -> Iterator[Statement]:
    """State degrees, schedule and memory of the layout, and the parts of its step."""
    if plan.layout is not None:
        yield from _layout(plan, plan.layout, first=True)


def _layout(plan: Plan, x: LayoutPlan, *, first: bool) -> Iterator[Statement]:
    m = x.metrics
    yield Statement("choice", "layout", f"{degrees(plan, x)}, {_schedule(x)}", first, path="layout")
    batch = f"{counted(x.microbatches_per_step, 'micro-batch')} of {counted(x.microbatch_sequences, 'sequence')}"
    text = f"{batch}, {short(m.tokens_per_step)} tokens a step; ZeRO-{x.zero_stage}; {recomputes(x)}"
    yield Statement("choice", "layout", text, first, path="layout.microbatches_per_step")
    sequence = "; sequence parallel" if x.sequence_parallel else ""
    stages = "a stage" if x.pipeline_parallel > 1 else "in one stage"
    at_work = f"{x.gpus_used:,} GPUs train, {x.gpus_idle:,} do not"
    low, high = min(x.layers_per_stage), max(x.layers_per_stage)
    text = f"{low if low == high else f'{low} to {high}'} layers {stages}{sequence}; {at_work}"
    yield Statement("choice", "layout", text, path="layout.layers_per_stage")
    # What a software stack sets that no measured run of this kind had.
    unmeasured = ("cpu_overhead", "launch") if "software" in extrapolations(plan, x) else ()
    notes = dict.fromkeys(unmeasured, " (extrapolated)")
    low_days, high_days = m.days_to_train_interval
    interval = m.step_seconds * low_days / m.days_to_train, m.step_seconds * high_days / m.days_to_train
    for most in (NAMED_PARTS, None):
        few, path = most is not None, "layout.metrics.step_seconds"
        text = f"Step {m.step_seconds:.3g} s: {shares_of(m.breakdown_seconds, m.step_seconds, notes, most)}"
        yield Statement("figure", "layout", text, first and few, interval, path=path, short=few)
    in_use = f"{memory(m.memory_bytes_per_gpu)} of {memory(m.memory_limit_bytes)} on the fullest GPU"
    yield Statement("figure", "layout", f"MFU {short_percent(m.mfu)}; {in_use}", first, path="layout.metrics.mfu")


def degrees(plan: Plan, x: LayoutPlan) -> str:
    """Write the degrees of parallelism; of a model with experts also CP and EP of 1, which are choices there."""
    model = plan.instance.workload.model
    experts = not isinstance(model, str) and model.experts is not None
    inner = f" ({x.tensor_parallel_inner} inner)" if x.tensor_parallel_inner > 1 else ""
    context = f" x CP {x.context_parallel}" if experts or x.context_parallel > 1 else ""
    expert = f", EP {x.expert_parallel}" if experts or x.expert_parallel > 1 else ""
    return f"TP {x.tensor_parallel}{inner}{context} x PP {x.pipeline_parallel} x DP {x.data_parallel:,}{expert}"


def _schedule(x: LayoutPlan) -> str:
    if x.pipeline_parallel == 1:
        return "no pipeline"
    if x.schedule == "zb-h1":
        return "zero-bubble ZB-H1"
    return "1F1B" if x.virtual_stages == 1 else f"interleaved 1F1B ({x.virtual_stages} chunks a stage)"


def recomputes(x: LayoutPlan) -> str:
    """Write which layers run again in the backward pass."""
    layers = sum(x.layers_per_stage)
    if x.recompute == "none":
        return "recomputes nothing"
    if x.recompute == "selective":
        return "recomputes attention scores (selective)"
    count = sum(x.recomputed_layers_per_stage) if x.recomputed_layers_per_stage else layers
    return f"recomputes all {layers} layers" if count == layers else f"recomputes {count} of {layers} layers"


def machine_of(plan: Plan) -> Machine | None:
    """Return the machine of a plan; None where its instance names parts that it does not hold."""
    h, w = plan.instance.hardware, plan.instance.workload
    named = (h.accelerator, h.rack, w.model, w.software)
    return None if h.pools or any(isinstance(x, str) for x in named) else step.machine_of(plan.instance)


def extrapolations(plan: Plan, x: LayoutPlan) -> dict[str, str]:
    """Return what no measured run has shown of a layout, each with a sentence."""
    m = machine_of(plan)
    return {} if m is None else step_errors.unmeasured(m) | step_errors.outside(m, read_strategy(x.model_dump()))


def pools(plan: Plan) -> Iterator[Statement]:
    """State the shares of the batch that pools of different GPUs take, and the layout of each."""
    x = plan.pools
    if x is None:
        return
    total, exchange = sum(x.sequences.values()), max(x.exchange_seconds.values())
    batch = f"{total:,} sequences ({short(x.tokens_per_step)} tokens) a step of {x.step_seconds:.3g} s"
    exposed = f"exchange between pools {exchange:.3g} s exposed" if exchange else "exchange between pools not counted"
    yield Statement("choice", "pools", f"{batch}; {exposed}", True, path="pools.step_seconds")
    for name, n in x.sequences.items():
        share = f"{name}: {n:,} sequences ({short_percent(n / total)})"
        own = x.layouts.get(name)
        if own is None:
            yield Statement("choice", "pools", f"{share}; does not train", True)
            continue
        waits = x.step_seconds - exchange - own.metrics.step_seconds
        step_of = f"step {own.metrics.step_seconds:.3g} s at MFU {short_percent(own.metrics.mfu)}, waits {waits:.3g} s"
        text = f"{share}; {step_of}; {degrees(plan, own)}, {_schedule(own)}"
        yield Statement("choice", "pools", f"{text}; {recomputes(own)}", True, path=f"pools.layouts.{name}")
        for statement in _layout(plan, own, first=False):
            yield Statement(statement.kind, "pools", f"{name}: {statement.text}", interval=statement.interval)
