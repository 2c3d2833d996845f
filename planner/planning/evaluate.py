"""One layout, given by pins, predicted: its metrics, its memory by stage, the constants it rests on, and what keeps it from running."""

import math
from typing import Any

from pydantic import Field

from planner.errors import InputError
from planner.instance.base import Frozen
from planner.instance.instance import Instance
from planner.physics.training import stage_memory, step
from planner.physics.training.parallel_strategy import ParallelStrategy, read_strategy, write_layout
from planner.physics.training.step import Conditions
from planner.plan.certificate import Certificate
from planner.plan.layout import Assumptions, LayoutMetrics, LayoutPlan
from planner.simulation.reference_tree import transport_slowdown_of

NEEDED = ("tensor_parallel", "pipeline_parallel", "data_parallel")


class Constant(Frozen):
    """A figure that a part of the prediction rests on."""

    path: str = Field(description="Where it stands in the instance as resolved.")
    value: float | bool
    source: str = Field("", description="Where it comes from.")


class Evaluation(LayoutMetrics):
    """The metrics of a layout given in full, and what they rest on."""

    name: str
    fits: bool = Field(description="Nothing keeps the layout from running.")
    problems: tuple[str, ...] = Field((), description="What keeps it from running, in numbers.")
    layout: LayoutPlan = Field(description="The layout as a plan has it, what was left open filled in.")
    memory_by_stage_bytes: tuple[dict[str, float], ...] = Field(description="Parts on a GPU of each stage.")
    rests_on: dict[str, tuple[Constant, ...]] = Field(
        description="For each part of the step, the constants that set it."
    )


def evaluated(instance: Instance) -> Evaluation:
    """Predict the layout that the instance's pins give in full."""
    cut = pinned_strategy(instance)
    slowdown = transport_slowdown_of(instance.network)
    conditions = Conditions(pipeline_send_slowdown=slowdown, allreduce_slowdown=slowdown)
    measured = step.metrics(instance, conditions, cut)
    metrics = LayoutMetrics.model_validate(measured)
    problems, spent = tuple(_problems(instance, cut, metrics)), metrics.breakdown_seconds
    by_stage = stage_memory.memory_by_stage(step.machine_of(instance), cut)
    return Evaluation.model_validate(
        {
            **measured,
            "name": instance.name,
            "fits": not problems,
            "problems": problems,
            "layout": _section(instance, cut, conditions, metrics),
            "memory_by_stage_bytes": [
                {k: float(v[i]) for k, v in by_stage.items()} for i in range(cut.pipeline_parallel)
            ],
            "rests_on": {part: _constants(instance, part) for part in sorted(spent) if spent[part]},
        }
    )


def pinned_strategy(instance: Instance) -> ParallelStrategy:
    """Read the layout from the pins; what is not given has its plainest value.

    Raises
    ------
    InputError
        A choice that has no plain value is missing, or two of them contradict one another.
    """
    given = {k.removeprefix("layout."): v for k, v in instance.pins.items() if k.startswith("layout.")}
    shares = given.get("data_parallel_by_site")
    if shares is not None:
        given.setdefault("data_parallel", sum(shares.values()))
    missing = [f"--pin layout.{k}=…" for k in NEEDED if k not in given]
    if missing:
        raise InputError(f"evaluate: the layout is not whole; add {', '.join(missing)}")
    if not given["data_parallel"]:
        raise InputError("evaluate: layout.data_parallel_by_site has no replica; give a site at least 1")
    pinned = _with_defaults(instance, given)
    strategy = read_strategy({"data_parallel_by_site": {"cluster": given["data_parallel"]}} | pinned)
    for fault in _contradictions(instance, strategy, given["data_parallel"]):
        raise InputError(f"evaluate: {fault}")
    return strategy


def _with_defaults(instance: Instance, pinned: dict[str, Any]) -> dict[str, Any]:
    """Return the pins, and the plainest value of each choice that is left open, by the keys of the layout."""
    machine, stages, replicas = step.machine_of(instance), pinned["pipeline_parallel"], pinned["data_parallel"]
    gpus, unit = machine.rack.gpus, pinned["tensor_parallel"] * pinned.get("context_parallel", 1)
    sequences = pinned.get("microbatch_sequences", 1)
    recomputes = any(pinned.get("recomputed_layers_per_stage", ()))
    known = {
        "virtual_stages": 1,
        "microbatch_sequences": sequences,
        "recompute": "full" if recomputes else "none",
        "sequence_parallel": False,
        "zero_stage": 0,
        "layers_per_stage": even_layers(machine.model.layers, stages),
        "stages_per_rack": min_stages_per_rack(gpus, unit, stages, replicas, instance.hardware.racks),
    } | pinned
    if "microbatches_per_step" not in known:
        known["microbatches_per_step"] = _micro_batches(instance, replicas * sequences)
    return {"replicas_per_rack": max(1, gpus // (known["stages_per_rack"] * unit))} | known


def even_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Spread layers over stages evenly; where two more would make it even, the ends, which hold the embeddings, have one less."""
    if stages > 1 and layers % stages and (layers + 2) % stages == 0:
        even = (layers + 2) // stages
        return (even - 1, *(even,) * (stages - 2), even - 1)
    return tuple(layers // stages + (i < layers % stages) for i in range(stages))


def min_stages_per_rack(gpus: int, unit: int, stages: int, replicas: int, racks: int | None) -> int:
    """Return how many stages share a rack: one, replicas side by side, unless the racks at hand ask for more."""
    spread = -(-unit // gpus)
    for q in range(1, stages + 1):
        r = max(1, gpus // (q * unit))
        if q == 1 and racks is None:
            break
        if q * unit <= max(gpus, unit) and -(-stages // q) * -(-replicas // r) * spread <= (racks or 0):
            return q
    return 1


def _micro_batches(instance: Instance, sequences: int) -> int:
    tokens = instance.limits.max_batch_tokens
    if tokens is None:
        raise InputError(
            "evaluate: the layout is not whole; add --pin layout.microbatches_per_step=…, or limits.max_batch_tokens"
        )
    return max(1, math.floor(tokens / instance.workload.sequence_length) // sequences)


def _contradictions(instance: Instance, cut: ParallelStrategy, replicas: int) -> list[str]:
    """Say which pins cannot stand together."""
    model = step.machine_of(instance).model
    found = []
    if len(cut.layers_per_stage) != cut.pipeline_parallel:
        found.append(
            f"layout.layers_per_stage has {len(cut.layers_per_stage)} entries where layout.pipeline_parallel is {cut.pipeline_parallel}"
        )
    elif sum(cut.layers_per_stage) != model.layers or min(cut.layers_per_stage) < 1:
        found.append(
            f"layout.layers_per_stage adds up to {sum(cut.layers_per_stage)} where the model has {model.layers} layers, at least one a stage"
        )
    if cut.data_parallel != replicas:
        found.append(
            f"layout.data_parallel is {replicas} where layout.data_parallel_by_site adds up to {cut.data_parallel}"
        )
    again = cut.recomputed_layers_per_stage
    if again and (
        len(again) != len(cut.layers_per_stage) or any(r > n for r, n in zip(again, cut.layers_per_stage, strict=False))
    ):
        found.append("layout.recomputed_layers_per_stage must have a number for each stage, no larger than its layers")
    if cut.tensor_parallel % cut.tensor_inner:
        found.append(
            f"layout.tensor_parallel_inner {cut.tensor_inner} does not divide layout.tensor_parallel {cut.tensor_parallel}"
        )
    if cut.expert_parallel > 1 and (model.experts is None or model.experts.count % cut.expert_parallel):
        found.append(
            f"layout.expert_parallel {cut.expert_parallel} does not divide the model's {model.experts.count if model.experts else 0} experts"
        )
    if cut.schedule == "zb-h1" and cut.virtual_stages > 1:
        found.append(f"layout.schedule zb-h1 has one virtual stage (is {cut.virtual_stages})")
    return found


def _problems(instance: Instance, cut: ParallelStrategy, m: LayoutMetrics) -> list[str]:
    """Say what keeps a whole layout from running."""
    machine, found = step.machine_of(instance), []
    if machine.model.heads % cut.tensor_parallel:
        found.append(f"tensor_parallel {cut.tensor_parallel} does not divide the {machine.model.heads} heads")
    if cut.virtual_stages > min(cut.layers_per_stage):
        found.append(f"{cut.virtual_stages} virtual stages > {min(cut.layers_per_stage)} layers of the smallest stage")
    if m.memory_bytes_per_gpu > m.memory_limit_bytes:
        over = m.memory_bytes_per_gpu - m.memory_limit_bytes
        found.append(
            f"memory: {m.memory_bytes_per_gpu / 1e9:.1f} GB on the worst GPU > {m.memory_limit_bytes / 1e9:.1f} GB, {over / 1e9:.1f} GB over"
        )
    racks = _racks(machine.rack.gpus, cut)
    if instance.hardware.racks is not None and racks > instance.hardware.racks:
        found.append(f"racks: {racks:,} needed > {instance.hardware.racks:,} in hardware.racks")
    limit = instance.limits.max_batch_tokens
    if limit is not None and m.tokens_per_step > limit:
        found.append(f"batch: {m.tokens_per_step:,.0f} tokens a step > {limit:,.0f} of limits.max_batch_tokens")
    return found


def _racks(gpus: int, cut: ParallelStrategy) -> int:
    return cut.rack_stages * math.ceil(cut.data_parallel / cut.replicas_per_rack) * cut.racks_per_replica(gpus)


def _section(instance: Instance, cut: ParallelStrategy, c: Conditions, measured: LayoutMetrics) -> LayoutPlan:
    """Write the layout as a plan's section; its certificate proves nothing, since nothing was searched."""
    gpus = step.machine_of(instance).rack.gpus
    racks = instance.hardware.racks if instance.hardware.racks is not None else _racks(gpus, cut)
    certificate = Certificate(
        status="feasible", objective=measured.days_to_train, bound=None, gap=None, solver="none", formulation="a layout given in full, not searched",
        variables=0, constraints=0, seconds=0.0, seed=0, minimizes="days to train",
    )  # fmt: skip
    return write_layout(
        cut,
        data_parallel_by_site={"cluster": cut.data_parallel},
        racks=racks,
        gpus_per_rack=gpus,
        assumptions=Assumptions(
            pipeline_send_slowdown=c.pipeline_send_slowdown, allreduce_slowdown=c.allreduce_slowdown
        ),
        metrics=measured,
        certificate=certificate,
    )


GPU, CODE = "hardware.accelerator.", "workload.software."
PRODUCTS = (f"{GPU}gemm_efficiency.max_share", f"{GPU}gemm_efficiency.operand_traffic", f"{GPU}kernel_seconds")
VECTORS = (f"{GPU}hbm_bytes_per_second", f"{GPU}hbm_efficiency")
INSIDE = (
    f"{GPU}scale_up_bytes_per_second",
    f"{GPU}scale_up_efficiency",
    f"{GPU}scale_up_latency_seconds",
    f"{CODE}collective_seconds",
)
BETWEEN = (f"{GPU}nic_bytes_per_second", f"{GPU}nic_efficiency", f"{GPU}nic_latency_seconds")
BEHIND: dict[str, tuple[str, ...]] = {
    "gemm": (f"{GPU}peak_flop_per_second", *PRODUCTS, f"{CODE}expert_efficiency"),
    "attention": (
        f"{GPU}peak_flop_per_second",
        f"{GPU}attention_efficiency",
        f"{CODE}attention_share",
        f"{CODE}score_efficiency",
    ),
    "elementwise": (*VECTORS, f"{CODE}elementwise_traffic", f"{GPU}kernel_seconds"),
    "quantise": (*VECTORS, f"{CODE}quantise_traffic"),
    "recompute": (*PRODUCTS, f"{CODE}elementwise_traffic", f"{CODE}selective_gemm_share"),
    "tensor_parallel": (*INSIDE, f"{CODE}tensor_overlap"),
    "context_parallel": (*INSIDE, *BETWEEN, f"{CODE}context_overlap"),
    "expert_parallel": (*INSIDE, *BETWEEN, f"{CODE}expert_overlap", f"{CODE}expert_once_per_domain"),
    "launch": (f"{CODE}launch_seconds", f"{CODE}microbatch_seconds"),
    "sharding": (*INSIDE, *BETWEEN, f"{CODE}sharding_exposed"),
    "head": (*PRODUCTS, f"{CODE}loss_bytes_per_logit"),
    "pipeline_bubble": (*PRODUCTS, f"{CODE}elementwise_traffic", *BETWEEN),
    "pipeline_send": (
        *BETWEEN,
        f"{CODE}pipeline_overlap",
        f"{CODE}pipeline_start_seconds",
        f"{CODE}pipeline_scatter",
    ),
    "data_parallel": (*INSIDE, *BETWEEN, f"{CODE}data_exposed"),
    "between_sites": (*BETWEEN,),
    "optimizer": VECTORS,
    "cpu_overhead": (f"{CODE}step_seconds",),
}
"""The constants of the accelerator and the framework that set each part of a step."""


def _constants(instance: Instance, part: str) -> tuple[Constant, ...]:
    """Look up the constants behind a part, with the values that this instance gives them."""
    machine = step.machine_of(instance)
    found = []
    flash, routed = machine.software.flash_attention, machine.model.experts is not None
    idle = {
        f"{CODE}score_efficiency": flash,
        f"{GPU}attention_efficiency": not flash,
        f"{CODE}attention_share": not flash,
    }
    idle |= {f"{CODE}expert_efficiency": not routed}
    for path in (p for p in BEHIND[part] if not idle.get(p, False)):
        holder: Any = machine.gpu if path.startswith(GPU) else machine.software
        keys = path.removeprefix(GPU).removeprefix(CODE).split(".")
        source = holder.source
        for key in keys:
            holder = getattr(holder, key)
            source = getattr(holder, "source", None) or source
        if isinstance(holder, dict):
            holder = holder[machine.precision.compute]
            keys.append(machine.precision.compute)
        text = source.get(keys[0], "") if isinstance(source, dict) else source
        where = GPU if path.startswith(GPU) else CODE
        found.append(Constant(path=where + ".".join(keys), value=holder, source=text or "not given: the default"))
    return tuple(found)


def summary(e: Evaluation) -> str:
    """Tell the prediction in one screen: time and memory by part, and what they rest on."""
    x = e.layout
    lines = [
        f"{e.name}: {'fits' if e.fits else 'does not run'}",
        f"LAYOUT     TP {x.tensor_parallel} x CP {x.context_parallel} x EP {x.expert_parallel} x PP {x.pipeline_parallel} (v {x.virtual_stages}, "
        f"{x.schedule}) x DP {x.data_parallel:,}; {x.microbatches_per_step} micro-batches of {x.microbatch_sequences}; ZeRO-{x.zero_stage}, "
        f"recompute {x.recompute}{', sequence parallel' if x.sequence_parallel else ''}",
        f"           {x.gpus_used:,} GPUs; {e.tokens_per_step / 1e6:,.2f}M tokens a step; {e.days_to_train:,.1f} days; MFU {100 * e.mfu:.1f} %",
        *(f"           {problem}" for problem in e.problems),
        f"TIME       {e.step_seconds:.4g} s a step",
    ]
    for part, seconds in sorted(e.breakdown_seconds.items(), key=lambda item: -item[1]):
        if seconds > 0:
            rests = ", ".join(f"{c.path.split('.', 1)[1]} {c.value:.4g}" for c in e.rests_on[part])
            lines.append(
                f"  {part.replace('_', ' '):18}{seconds:12.5g} s {100 * seconds / e.step_seconds:6.1f} %   {rests}"
            )
    lines.append(
        f"MEMORY     {e.memory_bytes_per_gpu / 1e9:.1f} of {e.memory_limit_bytes / 1e9:.1f} GB on the worst GPU"
    )
    for part, held in sorted(e.memory_breakdown_bytes.items(), key=lambda item: -item[1]):
        lines.append(f"  {part.replace('_', ' '):18}{held / 1e9:12.2f} GB")
    return "\n".join(lines)
