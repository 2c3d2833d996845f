"""Predict a layout that pins give in full: metrics, memory by stage, the constants behind them, and problems.

Also the nearest layout to a plan's that a training framework runs, and the step of a plan's layout under a run's
switches.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field, ValidationError

from planner.calibration.constants import CODE, GPU, is_tunable
from planner.checks.layout import broken_rules
from planner.errors import InputError
from planner.instance.base_types import Frozen
from planner.instance.hardware import Accelerator
from planner.instance.instance import Instance
from planner.instance.software import CORE_ATTENTION, DISPATCH_SECONDS
from planner.models import Options
from planner.models.model_choice import of_one_model
from planner.physics.recovery import best_stretch
from planner.physics.site import cost
from planner.physics.training import parallel_strategy, step_errors, step_prediction
from planner.physics.training.collectives import overlaps_tensors
from planner.physics.training.memory import memory_by_stage, memory_limit_bytes, worst_memory
from planner.physics.training.operations import TENSOR_CORE_ELEMENTS, Machine, attends_in_fp8
from planner.physics.training.parallel_strategy import ParallelStrategy, even_layers
from planner.physics.training.step_prediction import free_conditions, machine_of
from planner.plan.certificate import ObjectiveValue
from planner.plan.plan import Plan, RunPlan
from planner.plan.plan_sections import DEGREES, STAGE_DEGREES, Assumptions, LayoutMetrics, LayoutPlan
from planner.planning.joint_plan import solved_with
from planner.simulation.simulated_slowdown import transport_slowdown_of
from planner.solvers.outcome import Outcome, Stop

CALIBRATED = "`planner calibrate`"  # begins the source of a constant of the user's own cluster


class Constant(Frozen):
    """A constant that a part of an evaluated layout's predicted step rests on, with its source."""

    path: str = Field(description="Its place in the instance as resolved.")
    value: float | bool | str | tuple[str, ...] | None
    source: str = Field("", description="Where it comes from.")
    rows: int | None = Field(None, description="Measured rows that its fit rests on; null: it is not fitted.")
    sources: int | None = Field(None, description="Sources that these rows come from.")
    deviation: float | None = Field(None, description="Standard deviation left of its logarithm.")


class Extrapolation(Frozen):
    """A feature of an evaluated layout that no measured run has, and the constants extrapolated to it."""

    reason: str
    constants: tuple[str, ...] = Field(description="By path.")


class Evaluation(LayoutMetrics):
    """The evaluation of a layout given in full: its predicted metrics, and what they rest on."""

    name: str
    fits: bool = Field(description="Nothing keeps the layout from running.")
    problems: tuple[str, ...] = Field((), description="What keeps it from running, in numbers.")
    layout: LayoutPlan = Field(description="The layout as a plan has it, what was left open filled in.")
    memory_by_stage_bytes: tuple[dict[str, float], ...] = Field(description="Parts on a GPU of each stage.")
    rests_on: dict[str, tuple[Constant, ...]] = Field(description="For each part of the step, what constants set it.")
    step_seconds_interval: tuple[float, float] = Field(description="Within it lie 4 of 5 like measured runs.")
    constants_deviation: float = Field(description="Of the step's logarithm, which the fitted constants leave.")
    like_rows: step_errors.LikeRows = Field(description="The measured runs that the intervals are from.")
    extrapolated: tuple[Extrapolation, ...] = ()
    stack: str = Field(description="The software stack and its switches.")
    filled: dict[str, str] = Field(
        default_factory=dict,
        description="Choices left open that the figures do not show, or not at the plainest value.",
    )
    run: RunPlan = Field(description="The run on the racks of the layout, without what is not decided.")


def evaluated(instance: Instance) -> Evaluation:
    """Evaluate the layout that the instance's pins give in full: predict its metrics. InputError: of no model."""
    strategy, machine, filled = pinned_strategy(of_one_model(instance)), machine_of(instance), dict[str, str]()
    if "layout.zero_stage" not in instance.pins:  # the first that memory holds, else the plainest
        least = strategy.zero_stage
        for zero in machine.software.zero_stages_under(strategy.pipeline_parallel):
            other = replace(strategy, zero_stage=zero)
            if sum(worst_memory(machine, other).values()) <= memory_limit_bytes(instance):
                filled = {} if zero == least else {"zero_stage": f"ZeRO-{zero}, as ZeRO-{least} does not fit"}
                strategy = other
                break
    if strategy.tensor_parallel > 1 and "layout.sequence_parallel" not in instance.pins:
        filled["sequence_parallel"] = "no sequence parallelism; --pin layout.sequence_parallel=true has it"
    slowdown = transport_slowdown_of(instance.network)
    conditions = free_conditions(slowdown)
    try:
        metrics = step_prediction.metrics(instance, conditions, strategy)
        stretch = best_stretch(instance, strategy, metrics.step_seconds)
        if stretch is not None:  # on a calendar, where failures count
            metrics = step_prediction.metrics(instance, conditions, strategy, useful_share=1 / stretch)
        gpus = machine.rack.gpus
        racks = _racks(gpus, strategy) if instance.hardware.racks is None else instance.hardware.racks
        # Its certificate proves nothing, since nothing was searched.
        given = Outcome(stop=Stop.LIMIT, solution=strategy, objective=metrics.days_to_train, solver="none")
        layout = parallel_strategy.write_layout(
            strategy,
            data_parallel_by_site={"cluster": strategy.data_parallel},
            racks=racks,
            gpus_per_rack=gpus,
            assumptions=Assumptions(pipeline_send_slowdown=slowdown, allreduce_slowdown=slowdown),
            metrics=metrics,
            certificate=given.certificate(
                formulation="a layout given in full, not searched", minimizes="days to train", seed=0
            ),
        )
        run = cost.section(instance, metrics.days_to_train, cost.bill(instance, racks, None, None), racks)
    except (OverflowError, ValidationError) as error:
        problem = f"a figure of the layout is beyond the largest number ({str(error).splitlines()[0]})"
        raise InputError(f"evaluate: {problem}; give smaller figures in the instance") from None
    problems, seconds = tuple(_problems(instance, strategy, layout)), metrics.breakdown_seconds
    memory, stages = memory_by_stage(machine, strategy), range(strategy.pipeline_parallel)
    rests_on = {part: tuple(_constants(instance, part)) for part in sorted(seconds) if seconds[part]}
    return Evaluation(
        **dict(metrics),
        name=instance.name,
        fits=not problems,
        problems=problems,
        filled=filled,
        stack=stack_text(machine),
        layout=layout,
        memory_by_stage_bytes=tuple({part: float(of[i]) for part, of in memory.items()} for i in stages),
        rests_on=rests_on,
        step_seconds_interval=step_errors.interval(machine, strategy, metrics.step_seconds),
        constants_deviation=step_errors.step_deviation(
            machine, lambda other: math.fsum(step_prediction.step_breakdown(other, conditions, strategy).values())
        ),
        like_rows=step_errors.like_rows(machine, strategy),
        run=run,
        extrapolated=tuple(_extrapolations(machine, strategy, rests_on)),
    )


def pinned_strategy(instance: Instance) -> ParallelStrategy:
    """Read from pins the layout to evaluate, else the plainest. InputError: one is missing, or two contradict."""
    given = {name.removeprefix("layout."): value for name, value in instance.pins.items() if name.startswith("layout.")}
    shares = given.get("data_parallel_by_site")
    if shares is not None:
        given.setdefault("data_parallel", sum(shares.values()))
    needed = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    missing = [f"--pin layout.{name}=…" for name in needed if name not in given]
    if missing:
        raise InputError(f"evaluate: the layout is not complete; add {', '.join(missing)}")
    if not given["data_parallel"]:
        raise InputError("evaluate: layout.data_parallel_by_site has no replica; give a site at least 1")
    machine, stages, replicas = machine_of(instance), given["pipeline_parallel"], given["data_parallel"]
    gpus, unit = machine.rack.gpus, math.prod(given.get(name, 1) for name in STAGE_DEGREES)
    sequences = given.get("microbatch_sequences", 1)
    # Where replicas of a stage fill racks, ranks in order put them side by side, and stages meet in a rack at most.
    at_hand = None if replicas * unit >= gpus else instance.hardware.racks
    known = {  # the plainest value of each choice that is left open
        "data_parallel_by_site": {"cluster": replicas},
        "virtual_stages": 1,
        "microbatch_sequences": sequences,
        "recompute": "full" if any(given.get("recomputed_layers_per_stage", ())) else "none",
        "sequence_parallel": False,
        "zero_stage": min(machine.software.zero_stages_under(stages), default=0),
        "layers_per_stage": even_layers(machine.model.layers, stages),
        "stages_per_rack": parallel_strategy.min_stages_per_rack(gpus, unit, stages, replicas, at_hand),
    } | given
    if "microbatches_per_step" not in known:  # those that the critical batch allows
        tokens = instance.limits.max_batch_tokens
        if tokens is None:
            remedy = "add --pin layout.microbatches_per_step=…, or limits.max_batch_tokens"
            raise InputError(f"evaluate: the layout is not complete; {remedy}")
        most = math.floor(tokens / instance.workload.sequence_length)
        known["microbatches_per_step"] = max(1, most // (replicas * sequences))
    together = max(1, gpus // (known["stages_per_rack"] * unit))
    whole = parallel_strategy.whole_groups(unit, given.get("expert_parallel", 1), range(together, 0, -1))
    together = whole if replicas <= whole else together  # none of them leaves a rack, nor does an expert group
    strategy = parallel_strategy.strategy_of({"replicas_per_rack": together} | known)
    for fault in _contradictions(instance, strategy, given["data_parallel"]):
        raise InputError(f"evaluate: {fault}")
    return strategy


def _contradictions(instance: Instance, strategy: ParallelStrategy, replicas: int) -> Iterator[str]:
    model, layers, stages = machine_of(instance).model, strategy.layers_per_stage, strategy.pipeline_parallel
    experts, expert = model.experts.count if model.experts else 0, strategy.expert_parallel
    tensor, inner, virtual = strategy.tensor_parallel, strategy.tensor_inner, strategy.virtual_stages
    if model.heads % tensor:
        unequal = f"layout.tensor_parallel {tensor} does not divide the model's {model.heads} heads"
        yield f"{unequal}; give {_near(model.heads, tensor)}"
    if stages > model.layers:
        yield f"layout.pipeline_parallel {stages:,}, more than the {model.layers:,} layers of the model; give fewer"
    elif len(layers) != stages:
        yield f"layout.layers_per_stage has {len(layers)} entries where layout.pipeline_parallel is {stages}"
    elif sum(layers) != model.layers or min(layers) < 1:
        yield f"layout.layers_per_stage adds up to {sum(layers)} of {model.layers} layers, at least one a stage"
    elif virtual > min(layers):  # a chunk without a layer has no time
        more = f"layout.virtual_stages {virtual:,}, more than the {min(layers):,} layers of the smallest stage"
        yield f"{more}; give at most {min(layers):,}"
    if strategy.data_parallel != replicas:
        by_site = strategy.data_parallel
        yield f"layout.data_parallel is {replicas} where layout.data_parallel_by_site adds up to {by_site}"
    recomputed = strategy.recomputed_layers_per_stage
    too_many = any(part > whole for part, whole in zip(recomputed, layers, strict=False))
    if recomputed and (len(recomputed) != len(layers) or too_many):
        yield "layout.recomputed_layers_per_stage must have a number for each stage, no larger than its layers"
    if tensor % inner:
        yield f"layout.tensor_parallel_inner {inner} does not divide layout.tensor_parallel {tensor}"
    if expert > 1 and (not experts or experts % expert):
        remedy = _near(experts, expert) if experts else "1"
        yield f"layout.expert_parallel {expert} does not divide the model's {experts} experts; give {remedy}"
    if strategy.schedule == "zb-h1" and virtual > 1:
        yield f"layout.schedule zb-h1 has one virtual stage (is {virtual})"


def _near(whole: int, degree: int) -> str:
    """Name, for an error, the divisors nearest to a pinned degree of parallelism that does not divide a number."""
    divisors = [n for n in range(1, whole + 1) if whole % n == 0]
    return " or ".join(map(str, [max(n for n in divisors if n < degree), *(n for n in divisors if n > degree)][:2]))


def _problems(instance: Instance, strategy: ParallelStrategy, layout: LayoutPlan) -> Iterator[str]:
    machine, metrics, rules = machine_of(instance), layout.metrics, instance.workload.rules
    yield from parallel_strategy.unsupported(machine.software, strategy)
    for what in broken_rules(rules, layout, machine.model, instance.workload.sequence_length):
        remedy = "change it, or set workload.framework_rules to false for a stack that runs it"
        yield f"framework_rules: {rules.framework} asks for {what}; {remedy}"
    if not metrics.fits_memory:
        used, limit = metrics.memory_bytes_per_gpu / 1e9, metrics.memory_limit_bytes / 1e9
        over = f"memory: {used:.1f} GB on the fullest GPU > {limit:.1f} GB, {used - limit:.1f} GB over"
        ways = ["layout.tensor_parallel", *["expert_parallel"] * (machine.model.experts is not None)]
        ways += ["zero_stage"] * (strategy.zero_stage < 3) + ["recompute"] * (strategy.recompute != "full")
        yield f"{over}; more {', '.join(ways)} or pipeline_parallel leaves more room"
    racks = _racks(machine.rack.gpus, strategy)
    if instance.hardware.racks is not None and racks > instance.hardware.racks:
        have = f"racks: {racks:,} needed > {instance.hardware.racks:,} in hardware.racks"
        yield f"{have}; lower layout.data_parallel or another degree, or add racks"
    batch = instance.limits.max_batch_tokens
    if batch is not None and metrics.tokens_per_step > batch:
        tokens = f"batch: {metrics.tokens_per_step:,.0f} tokens a step > {batch:,.0f} of limits.max_batch_tokens"
        yield f"{tokens}; lower layout.microbatches_per_step or data_parallel, or raise the limit"


def _racks(gpus: int, strategy: ParallelStrategy) -> int:
    """Return the racks that an evaluated layout needs; of replicas that fill theirs, those of all ranks in order."""
    spread, together = strategy.racks_per_replica(gpus), strategy.replicas_per_rack
    full = strategy.data_parallel >= together and together * strategy.shape.gpus == gpus * spread
    if strategy.stages_per_rack == 1 and full:
        return math.ceil(strategy.gpus / gpus)
    rack_stages = math.ceil(strategy.pipeline_parallel / strategy.stages_per_rack)
    return rack_stages * math.ceil(strategy.data_parallel / together) * spread


def plan_of_layout(instance: Instance, layout: LayoutPlan) -> Plan:
    """Return the plan of an evaluated layout, which no search chose: feasible at best, without a bound."""
    name, value = "days_to_train", layout.metrics.days_to_train
    asked = instance.replaced(objective__minimize=name)
    racks = asked.hardware.racks or 0
    bill = cost.bill(asked, racks, None, None)
    return Plan(
        **solved_with(asked, Options()),
        status="feasible",
        objective=ObjectiveValue(name=name, value=value, bound=None, gap=None),
        layout=layout,
        cost=bill,
        run=cost.section(asked, value, bill, racks),
        stopped="limit",
    )


def stack_text(machine: Machine) -> str:
    """Write in one line the software stack of an evaluated layout, with the switches that matter to its model."""
    software, routed = machine.software, machine.model.experts is not None
    idle = {"experts": not routed, "tensor": not overlaps_tensors(machine)}
    overlaps = [overlap for overlap in software.overlaps if not idle.get(overlap, False)]
    parts = [
        f"overlaps {', '.join(overlaps) or 'nothing'}",
        f"CUDA graphs: {software.cuda_graphs}",
        *([f"dispatcher {software.dispatcher}"] if routed else []),
        *(["fused experts"] if routed and software.fused_experts else []),
        *([f"FP8 scaled {software.fp8_recipe}"] if machine.precision.compute == "fp8" else []),
        "fused loss" if software.fused_loss else "loss not fused",
        *([] if software.fused_gradient_sums else ["weight gradients added apart"]),
        *(["attention in FP8"] if attends_in_fp8(machine) else []),
    ]
    if software.recompute_modules != CORE_ATTENTION:
        parts.append(f"selective recompute of {', '.join(software.recompute_modules)}")
    if software.activation_offload:
        parts.append(f"{software.activation_offload:.0%} of activations on the host")
    return f"{software.name}{f' ({software.released})' if software.released else ''}: {'; '.join(parts)}"


PEAK = "peak_flop_per_second"
GEMM = (*(f"gemm_efficiency.{name}" for name in ("max_share", "operand_traffic", "tail_elements")), "kernel_seconds")
HBM = ("hbm_bytes_per_second", "hbm_efficiency")
SCALE_UP = ("scale_up_bytes_per_second", "scale_up_efficiency", "scale_up_latency_seconds", "collective_seconds")
NIC = ("nic_bytes_per_second", "nic_efficiency", "nic_latency_seconds")
FLASH_KERNEL = ("attention_efficiency", "softmax_width")
UNALIGNED = "gemm_efficiency.unaligned_share"
EXPERTS = ("expert_efficiency", "expert_seconds")
# The constants of the accelerator and the framework that set each part of a step.
SET_BY: dict[str, tuple[str, ...]] = {
    "gemm": (PEAK, *GEMM, "fused_experts", *EXPERTS),
    "attention": (PEAK, *FLASH_KERNEL, UNALIGNED, "attention_share", "score_efficiency", "fp8_attention"),
    "elementwise": (*HBM, "elementwise_traffic", "kernel_seconds"),
    "quantise": (*HBM, "fp8_recipe", "fused_experts", "quantise_traffic", "expert_cast_seconds"),
    "recompute": (*GEMM, "elementwise_traffic", "selective_gemm_share", "recompute_modules"),
    "tensor_parallel": (*SCALE_UP, "overlaps", "tensor_overlap", "copies_split_sequences"),
    "context_parallel": (*SCALE_UP, *NIC, "overlaps"),
    "expert_parallel": (*SCALE_UP, *NIC, "overlaps", "expert_overlap", "dispatcher", *DISPATCH_SECONDS.values()),
    "launch": ("cuda_graphs", "launch_seconds", "overlap_launch_seconds", "microbatch_seconds"),
    "offload": ("host_bytes_per_second", "activation_offload"),
    "sharding": (*SCALE_UP, *NIC, "sharding_exposed"),
    "head": (*GEMM, *SCALE_UP, "fused_loss", "loss_bytes_per_logit"),
    "pipeline_bubble": (*GEMM, "elementwise_traffic", *NIC),
    "chunk_wait": (PEAK, *GEMM, "elementwise_traffic"),
    "pipeline_send": (*NIC, "overlaps", "pipeline_start_seconds", "pipeline_scatter"),
    "ring_wait": (*NIC, "data_efficiency"),
    "data_parallel": (*SCALE_UP, *NIC, "overlaps", "fp8_parameters", "data_efficiency"),
    "between_sites": NIC,
    "optimizer": HBM,
    "cpu_overhead": ("step_seconds",),
}


def _constants(instance: Instance, part: str) -> Iterator[Constant]:
    """Yield the constants of the step-time model that set a part, each with the source stated nearest above it."""
    machine = machine_of(instance)
    flash, software = machine.software.flash_attention, machine.software
    unused = {"score_efficiency"} if flash else {*FLASH_KERNEL, "attention_share"}
    unused |= set() if attends_in_fp8(machine) else {"fp8_attention"}
    unused |= set() if software.recompute_modules != CORE_ATTENTION else {"recompute_modules"}
    unused |= {*EXPERTS, "expert_cast_seconds", "fused_experts"} if machine.model.experts is None else set()
    unused |= {path for name, path in DISPATCH_SECONDS.items() if name != software.dispatcher}
    unused |= {UNALIGNED} if flash or machine.model.head % TENSOR_CORE_ELEMENTS == 0 else set()
    for name in SET_BY[part]:
        if name in unused:
            continue
        keys = name.split(".")
        of_gpu = keys[0] in Accelerator.model_fields
        at: Any = machine.gpu if of_gpu else software
        source = at.source
        for key in keys:
            at = getattr(at, key)
            source = getattr(at, "source", None) or source
        if isinstance(at, dict):
            at = at[machine.precision.compute]
            keys.append(machine.precision.compute)
        path, text = ".".join(keys), source.get(keys[0], "") if isinstance(source, dict) else source
        own = Constant(path=(GPU if of_gpu else CODE) + path, value=at, source=text or "not given: the default")
        at_path = f"{'accelerators' if of_gpu else 'software'}.{path}".replace("fp16", "bf16")
        rows = step_errors.support_table().constants
        known = next((row for row in rows if f"{row.kind}.{row.path}" == at_path and row.touches(machine)), None)
        if known is not None and not own.source.startswith(CALIBRATED):
            own = own.replaced(**known.model_dump(include={"rows", "sources", "deviation"}))
        yield own


# The part of a step that each degree sets, whose constants are extrapolated with it.
SETS = dict(zip(("TP", "CP", "EP"), DEGREES, strict=False))
SETS |= {"PP": "pipeline_send", "DP": "data_parallel", "GPUs": "data_parallel"}


def _extrapolations(
    machine: Machine, strategy: ParallelStrategy, rests_on: Mapping[str, tuple[Constant, ...]]
) -> Iterator[Extrapolation]:
    """Yield an evaluated layout's extrapolations beyond measured runs: degrees, accelerators and stacks in none."""
    for degree, reason in step_errors.outside(machine, strategy).items():
        paths = [constant.path for constant in rests_on.get(SETS.get(degree, ""), ())]
        yield Extrapolation(reason=reason, constants=tuple(filter(is_tunable, paths)))
    every = {constant.path: constant for part in rests_on.values() for constant in part}
    for part, reason in step_errors.unmeasured(machine).items():
        where = GPU if part == "accelerator" else CODE
        fitted = sorted(path for path in every if path.startswith(where) and is_tunable(path))
        if own := tuple(path for path in fitted if not every[path].source.startswith(CALIBRATED)):
            yield Extrapolation(reason=reason, constants=own)
