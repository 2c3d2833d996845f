"""Pins of the layout that the declared space does not hold: refused with the reason, never ignored."""

from typing import Any, Protocol

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.instance.workload import Parallelism, Software
from planner.physics.training.operations import Machine
from planner.physics.training.parallel_strategy import NEEDS

SHOWN = 24  # values of a choice that an error lists
REASONS = {
    "replicas_per_rack": "a rack takes only as many replicas as fit with its stages",
    "stages_per_rack": "a rack holds one stage of a pipeline, or as many as fit",
    "tensor_parallel_inner": "TP is one-dimensional, or the squarest grid from 16 ranks on",
}
RULED: set[Parallelism] = {"context", "pipeline", "tensor-2d"}  # whose degrees rules of a framework narrow
OTHER = "choose another workload.software, or add it to its"


class PinnedProblem(Protocol):
    """The parts of a problem that this module reads."""

    @property
    def machine(self) -> Machine:
        """GPU, rack, framework and model."""

    @property
    def instance(self) -> Instance:
        """Instance of the problem."""

    @property
    def layers(self) -> int:
        """Layers of the model."""

    def pin(self, name: str) -> Any:
        """Return the pinned value of a choice of the layout, or None."""


def refuse_pins(problem: PinnedProblem, free: dict[str, list[Any]]) -> None:
    """Refuse a pinned value that no column has, with those that there are."""
    for name, values in free.items():
        wanted = problem.pin(name)
        if wanted is not None and wanted not in values:
            known = ", ".join(map(str, values[:SHOWN]))
            why = _missing(problem.machine.software, name, wanted) or (f" ({REASONS[name]})" if name in REASONS else "")
            why += freed(problem) if NEEDS.get(name) in RULED else ""
            raise InputError(f"pins['layout.{name}']: {wanted!r} is outside the declared space; it has {known}{why}")
    if problem.pin("data_parallel_by_site") is not None:
        shared = "the joint optimum shares the replicas out itself, whole blocks of racks to a site"
        remedy = "pin layout.data_parallel, and racks by sites.racks.<site>"
        raise InputError(f"pins['layout.data_parallel_by_site']: {shared}; {remedy}")
    split = problem.pin("layers_per_stage")
    if split is not None and len(split) > 1 and not problem.machine.software.has("pipeline"):
        why = _missing(problem.machine.software, "pipeline_parallel", len(split))
        raise InputError(f"pins['layout.layers_per_stage']: has {len(split)} stages{why}")
    _refuse_stages(problem)
    _refuse_stripes(problem)


def _missing(software: Software, name: str, wanted: Any) -> str:
    """Name the feature that a choice of the layout needs and the framework lacks, with the remedy; empty if none."""
    if name in NEEDS and not software.has(NEEDS[name]):
        return f'; {software.name} has no "{NEEDS[name]}" among its parallelism: {OTHER} parallelism'
    if name == "zero_stage" and wanted in software.zero_stages:
        alone = "pin layout.pipeline_parallel to 1"
        return f"; {software.name} has it without pipelines: {alone}, or {OTHER} pipelined_zero_stages"
    if name == "zero_stage":
        return f"; {software.name} has no other: {OTHER} zero_stages"
    return f"; {software.name} has no other schedule: {OTHER} schedules" if name == "schedule" else ""


def _refuse_stages(problem: PinnedProblem) -> None:
    """Refuse layers by stage that are not those of the model, or not as many as the stages."""
    layers, recomputed = problem.pin("layers_per_stage"), problem.pin("recomputed_layers_per_stage")
    stages, virtual = problem.pin("pipeline_parallel"), problem.pin("virtual_stages")
    path = "pins['layout.layers_per_stage']"
    if layers is not None:
        if sum(layers) != problem.layers:
            raise InputError(f"{path}: sums to {sum(layers)}; the model has {problem.layers} layers")
        if stages not in (None, len(layers)):
            raise InputError(f"{path}: has {len(layers)} stages; layout.pipeline_parallel is pinned to {stages}")
        if virtual is not None and virtual > min(layers):
            raise InputError(f"{path}: a stage of {min(layers)} layers cannot hold {virtual} virtual stages")
    if recomputed is None:
        return
    path = "pins['layout.recomputed_layers_per_stage']"
    if layers is None:
        raise InputError(f"{path}: needs layout.layers_per_stage too")
    if len(recomputed) != len(layers) or any(r > n for r, n in zip(recomputed, layers, strict=False)):
        raise InputError(f"{path}: must have a number for each of {len(layers)} stages, none above its layers")
    if any(recomputed) and problem.pin("recompute") not in (None, "full"):
        raise InputError(f"{path}: layers are recomputed whole under layout.recompute full alone")


def _refuse_stripes(problem: PinnedProblem) -> None:
    """Refuse more stripes than a block can have stages to cut into them."""
    path, layers = "placement.stripes", problem.pin("layers_per_stage")
    wanted, stages = problem.instance.pins.get(path), problem.pin("pipeline_parallel")
    most = len(layers) if layers is not None else stages or problem.layers
    if wanted is not None and wanted > most:
        why = f"pins.layout gives {most} stages" if most < problem.layers else f"the model has {most} layers"
        why = f"a pipeline is cut into as many stripes as it has stages at most, and {why}"
        raise InputError(f"pins['{path}']: {wanted!r} is outside the declared space; {why}; pin 1 to {most}")


def freed(problem: PinnedProblem) -> str:
    """Write the remedy that frees a layout of the framework's rules; empty where there are none."""
    framework = problem.instance.workload.rules.framework
    return f"; as {framework} runs it: set workload.framework_rules to false to free it" if framework else ""
