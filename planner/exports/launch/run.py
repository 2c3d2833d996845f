"""What every framework is told of a plan: the model, the layout, and the nodes that it runs on."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from planner.errors import InputError
from planner.instance.hardware import Rack
from planner.instance.workload import Model, Precision
from planner.plan.layout import LayoutPlan
from planner.plan.plan import Plan

NODE_GPUS = 8  # GPUs that one host starts where a rack has more: boards of NVL72 racks have 4, HGX nodes 8
BOARD_GPUS = {72: 4}  # of a rack of so many GPUs, those of one host


@dataclass(frozen=True, slots=True)
class Run:
    """A training run as planned."""

    name: str
    model: Model
    precision: Precision
    sequence_length: int
    layout: LayoutPlan
    rack_gpus: int

    @property
    def data_parallel(self) -> int:
        """Replicas over all sites."""
        return sum(self.layout.data_parallel_by_site.values()) or self.layout.data_parallel

    @property
    def gpus(self) -> int:
        """Ranks that are started."""
        x = self.layout
        return x.tensor_parallel * x.context_parallel * x.pipeline_parallel * self.data_parallel

    @property
    def node_gpus(self) -> int:
        """GPUs that one host starts: as many as all hosts can start alike."""
        own = BOARD_GPUS.get(self.rack_gpus, self.rack_gpus if self.rack_gpus <= NODE_GPUS else NODE_GPUS)
        return math.gcd(own, self.gpus)

    @property
    def nodes(self) -> int:
        """Hosts that start ranks."""
        return self.gpus // self.node_gpus

    @property
    def global_batch(self) -> int:
        """Sequences of one step."""
        return self.layout.microbatch_sequences * self.layout.microbatches_per_step * self.data_parallel

    @property
    def chunks(self) -> list[int]:
        """Layers of each chunk in the order of the pass: the first chunk of every stage, the second of every stage."""
        v = self.layout.virtual_stages
        return [n // v + (1 if k < n % v else 0) for k in range(v) for n in self.layout.layers_per_stage]

    @property
    def is_even(self) -> bool:
        """Whether all chunks have as many layers."""
        return len(set(self.chunks)) == 1


def run_of(plan: Plan, where: str) -> Run:
    """Return the run of a plan.

    Raises
    ------
    InputError
        The plan has no layout, or one for each of several pools.
    """
    layout, work, rack = plan.layout, plan.instance.workload, plan.instance.hardware.rack
    if layout is None or not isinstance(work.model, Model) or not isinstance(rack, Rack):
        why = "each pool has a layout of its own" if plan.pools else f"status {plan.status}"
        raise InputError(f"{where}: has no layout to start ({why}); give a plan with one")
    return Run(
        name=plan.instance.name,
        model=work.model,
        precision=work.precision,
        sequence_length=work.sequence_length,
        layout=layout,
        rack_gpus=rack.gpus,
    )


def require(run: Run, framework: str, **ways: bool) -> None:
    """Refuse a layout that has what a framework cannot be told.

    Raises
    ------
    InputError
        Names the first such choice, its value, and how to plan without it.
    """
    x = run.layout
    some = [] if x.recomputed_layers_per_stage == x.layers_per_stage else list(x.recomputed_layers_per_stage)
    asked = {
        "tensor_parallel_inner": (x.tensor_parallel_inner, 1),
        "context_parallel": (x.context_parallel, 1),
        "expert_parallel": (x.expert_parallel, 1),
        "pipeline_parallel": (x.pipeline_parallel, 1),
        "virtual_stages": (x.virtual_stages, 1),
        "schedule": (x.schedule, "1f1b"),
        "recomputed_layers_per_stage": (some, []),
        "zero_stage": (x.zero_stage, 0),
    }
    for key, (value, plain) in asked.items():
        if value != plain and not ways.get(key, False):
            pin = f"plan with --pin layout.{key}={plain}" if plain != [] else "plan with --pin layout.recompute=none"
            raise InputError(f"layout.{key}: {framework} cannot be told {value!r}; {pin}, or choose another framework")


def pipeline_layout(run: Run) -> str:
    """Return the chunks as Megatron's pipeline layout: E embedding, t a layer, L the loss, stages divided by |."""
    parts = [f"t*{n}" if n > 2 else "t" * n for n in run.chunks]
    parts[0], parts[-1] = f"E{parts[0]}", f"{parts[-1]}L"
    pieces: list[str] = []
    for part, group in groupby(parts[:-1]):
        count = len(list(group))
        pieces.append(f"({part}|)*{count}" if count > 2 else f"{part}|" * count)
    return "".join(pieces) + parts[-1]


def recomputed_under(run: Run, each: int) -> tuple[int, ...]:
    """Return the layers that every stage recomputes where each of its chunks recomputes `each`, as frameworks count."""
    stages = run.layout.pipeline_parallel
    return tuple(sum(min(each, n) for n in run.chunks[stage::stages]) for stage in range(stages))


def equal_recomputed(run: Run, framework: str) -> int | None:
    """Return the recomputed layers of each chunk where only some are; None under none, selective or all.

    Raises
    ------
    InputError
        Stages recompute different numbers, for which frameworks have one flag.
    """
    counts = run.layout.recomputed_layers_per_stage
    if run.layout.recompute != "full" or not counts or counts == run.layout.layers_per_stage:
        return None
    same = next((n for n in range(max(run.chunks) + 1) if recomputed_under(run, n) == counts), None)
    if same is None:
        raise InputError(
            f"layout.recomputed_layers_per_stage: {framework} has one number for all chunks (are {list(counts)}); "
            "leave out --exact to take the nearest"
        )
    return same


def nearest_choices(run: Run, framework: str) -> dict[str, Any]:
    """Return the choices by which the nearest layout that a framework runs differs; nothing where it runs the plan's.

    More layers are recomputed, never fewer, and activations are divided further, never less, so that memory holds.
    """
    x, counts, changes = run.layout, run.layout.recomputed_layers_per_stage, dict[str, Any]()
    megatron, v = framework in ("megatron", "nemo"), x.virtual_stages
    if x.tensor_parallel_inner > 1:
        changes["tensor_parallel_inner"] = 1
    if x.schedule != "1f1b":
        changes["schedule"] = "1f1b"
    if megatron and v > 1 and x.microbatches_per_step < x.pipeline_parallel:
        changes["virtual_stages"] = v = 1
    divides = framework == "torchtitan" or (megatron and run.model.experts is not None)
    if divides and x.tensor_parallel > 1 and not x.sequence_parallel:
        changes["sequence_parallel"] = True
    layers = x.layers_per_stage
    if framework == "deepspeed" and len(set(layers)) > 1 and sum(layers) % len(layers) == 0:
        changes["layers_per_stage"] = layers = (sum(layers) // len(layers),) * len(layers)
    if framework == "deepspeed" and x.recompute == "selective":
        changes["recompute"] = "full"
    if changes.get("recompute", x.recompute) == "full" and (counts or "recompute" in changes):
        other = replace(run, layout=x.model_copy(update={"virtual_stages": v, "layers_per_stage": layers}))
        fewest = max((-(-n // v) for n in counts), default=0)
        wanted = recomputed_under(other, fewest) if megatron and counts != x.layers_per_stage else layers
        while megatron and any(a < b for a, b in zip(wanted, counts, strict=True)):
            fewest += 1
            wanted = recomputed_under(other, fewest)
        if wanted != counts:
            changes["recomputed_layers_per_stage"] = wanted
    return changes


def module_names(run: Run) -> Iterator[list[str]]:
    """Yield the modules of each chunk by torchtitan's names."""
    first = 0
    for i, n in enumerate(run.chunks):
        names = [f"layers.{k}" for k in range(first, first + n)]
        first += n
        yield ["tok_embeddings"] * (i == 0) + names + ["norm", "output"] * (i == len(run.chunks) - 1)
