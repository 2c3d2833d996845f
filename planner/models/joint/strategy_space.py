"""The declared space of strategies: how the model is cut over GPUs, and the blocks of racks that follow from it."""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.instance.framework_rules import FrameworkRules
from planner.instance.instance import Instance
from planner.instance.network import Wan
from planner.instance.software import Parallelism, Software
from planner.models.fabric.template_table import ArrayTable
from planner.models.joint.stops_and_spares import Calendar
from planner.physics.network.fabric_designs import max_joined_racks
from planner.physics.recovery import job_of
from planner.physics.training import memory, step_prediction
from planner.physics.training.collectives import limits_expert_overlap
from planner.physics.training.layer_time import LayerTimes
from planner.physics.training.memory import LayerBytes, Weights, memory_limit_bytes, weights_of
from planner.physics.training.operations import LayerShape, Machine
from planner.physics.training.parallel_strategy import NEEDS, RackBlock, block_of
from planner.physics.training.schedule import Schedule, may_overlap_experts
from planner.physics.training.step_prediction import Pipeline, machine_of
from planner.simulation.simulated_slowdown import transport_slowdown_of

MICRO_BATCHES = tuple(range(1, 17))  # sequences; ranks that share a sequence take one at a time
MOST_CONTEXT_RACKS = 16  # over which one replica's CP spreads
DEFAULT_WAN = Wan()  # default prices, where two sites have no stated fibre
REASONS = {
    "replicas_per_rack": "a rack takes only as many replicas as fit with its stages",
    "stages_per_rack": "a rack holds one stage of a pipeline, or as many as fit, each with whole expert groups",
    "tensor_parallel_inner": "TP is one-dimensional, or the squarest grid from 16 ranks on",
}
RULED: set[Parallelism] = {"context", "pipeline", "tensor-2d"}  # whose degrees rules of a framework narrow
OTHER = "choose another workload.software, or add it to its"

_shape = cache(LayerShape)  # one object for equal choices

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointProblem:
    """The joint problem that spans the declared space of strategies: machine, limits and pins of an instance."""

    instance: Instance
    machine: Machine
    transport_slowdown: float
    max_sequences: int
    memory_limit: float
    all_rails: bool
    calendar: Calendar | None = None  # failures, where they count
    pins: dict[str, Any] = field(default_factory=dict)
    joined: dict[int, float] = field(init=False, repr=False, compare=False, default_factory=dict)  # by GPUs cabled

    def joined_racks(self, wired_gpus: int) -> float:
        """Bound the racks that one fabric joins for strategies of the joint problem, by a rack's cabled GPUs."""
        if wired_gpus not in self.joined:
            self.joined[wired_gpus] = max_joined_racks(self.instance, wired_gpus)
        return self.joined[wired_gpus]

    @property
    def gpus(self) -> int:
        """GPUs of a rack over which the joint problem's strategies cut the model."""
        return self.machine.rack.gpus

    @property
    def layers(self) -> int:
        """Layers of the model that the strategies of the declared space train."""
        return self.machine.model.layers

    @property
    def wan(self) -> Wan:
        """Wide area between sites of the declared space, at default prices where the instance states none."""
        return self.instance.wan or DEFAULT_WAN

    @property
    def rules(self) -> FrameworkRules:
        """The joint problem's rules that its strategies keep, those of the framework."""
        return self.instance.workload.rules

    @property
    def freed(self) -> "JointProblem":
        """The joint problem with its space of strategies freed of the rules of the framework."""
        return replace(self, instance=self.instance.replaced(workload__framework_rules=False))

    @property
    def recomputes_alike(self) -> bool:
        """Whether a framework rule has the space's stages recompute as many layers each, none pinned."""
        return self.rules.recompute != "free" and self.pin("recomputed_layers_per_stage") is None

    def expert_group(self, shape: LayerShape) -> int:
        """Return the GPUs of which a stage takes a multiple over all replicas, by the joint problem's rule; else 1."""
        return shape.expert_parallel if self.rules.whole_expert_groups else 1

    def layers_of(self, stages: int) -> list[int] | None:
        """Return the layers of each stage in the declared space if pinned, or all alike by a rule; else None."""
        pinned: list[int] | None = self.pin("layers_per_stage")
        return [self.layers // stages] * stages if self.rules.even_stages and pinned is None else pinned

    @property
    def zero_stages(self) -> list[int]:
        """ZeRO stages of the declared space: those that the framework has and pins allow."""
        return self.options("zero_stage", sorted(self.machine.software.zero_stages))

    def has(self, parallelism: Parallelism) -> bool:
        """Return whether strategies of the joint problem may have a kind of parallelism, as the framework has."""
        return parallelism in self.machine.software.parallelism

    def pin(self, name: str) -> Any:
        """Return the pinned value of a choice of the layout in the declared space, or None where it is free."""
        return self.pins.get(f"layout.{name}")

    def options(self, name: str, free: Iterable[Any]) -> list[Any]:
        """Return the values that the joint problem's strategies may take at a choice, as pins leave them."""
        wanted, layers = self.pin(name), self.pin("layers_per_stage")  # of each stage
        if name == "pipeline_parallel" and layers is not None:
            free = [p for p in free if p == len(layers)]
        if name == "virtual_stages" and layers is not None:
            free = [v for v in free if v <= min(layers)]
        return [x for x in free if wanted in (None, x)]


def problem_of(instance: Instance) -> JointProblem:
    """Read the joint problem from a loaded instance; refuse a pin outside the declared space."""
    machine, tokens = machine_of(instance), instance.limits.max_batch_tokens
    if tokens is None:
        raise InputError("limits.max_batch_tokens: is missing; give the most tokens of a step")
    if instance.grid is None and instance.hardware.racks is None:
        raise InputError("hardware.racks: is missing; give the racks of the cluster, or a grid to choose them")
    job, calendar = job_of(instance), None
    if job is not None:
        calendar = Calendar(r=job.r, state_bytes=job.state_bytes, network=instance.network, links=job.links)
    problem = JointProblem(
        instance=instance,
        machine=machine,
        transport_slowdown=transport_slowdown_of(instance.network),
        max_sequences=math.floor(tokens / machine.sequence),
        memory_limit=memory_limit_bytes(instance),
        calendar=calendar,
        all_rails=instance.network is not None and instance.network.spares.asked,
        pins={k: v for k, v in instance.pins.items() if k.startswith("layout.")},
    )
    _refuse_pins(problem)
    if not _is_left(problem) and _is_left(problem.freed):
        pins = ", ".join(f"{path}={value!r}" for path, value in problem.pins.items())
        raise InputError(f"pins: {pins} together are outside the declared space{_rules_remedy(problem)}")
    return problem


def _refuse_pins(problem: JointProblem) -> None:
    for name, values in _degrees(problem).items():
        wanted = problem.pin(name)
        if wanted is not None and wanted not in values:
            known = ", ".join(map(str, values[:24]))
            why = _missing(problem.machine.software, name, wanted) or (f" ({REASONS[name]})" if name in REASONS else "")
            why += _rules_remedy(problem) if NEEDS.get(name) in RULED else ""
            raise InputError(f"pins['layout.{name}']: {wanted!r} is outside the declared space; it has {known}{why}")
    if problem.pin("data_parallel_by_site") is not None:
        shared = "the joint optimum shares the replicas out itself, whole blocks of racks to a site"
        remedy = "pin layout.data_parallel, and racks by sites.racks.<site>"
        raise InputError(f"pins['layout.data_parallel_by_site']: {shared}; {remedy}")
    layers, recomputed = problem.pin("layers_per_stage"), problem.pin("recomputed_layers_per_stage")
    stages, virtual = problem.pin("pipeline_parallel"), problem.pin("virtual_stages")
    path, software = "pins['layout.layers_per_stage']", problem.machine.software
    if layers is not None:
        if len(layers) > 1 and "pipeline" not in software.parallelism:
            why = _missing(software, "pipeline_parallel", len(layers))
            raise InputError(f"{path}: has {len(layers)} stages{why}")
        if sum(layers) != problem.layers:
            raise InputError(f"{path}: sums to {sum(layers)}; the model has {problem.layers} layers")
        if stages not in (None, len(layers)):
            raise InputError(f"{path}: has {len(layers)} stages; layout.pipeline_parallel is pinned to {stages}")
        if virtual is not None and virtual > min(layers):
            raise InputError(f"{path}: a stage of {min(layers)} layers cannot hold {virtual} virtual stages")
    if recomputed is not None:
        path = "pins['layout.recomputed_layers_per_stage']"
        if layers is None:
            raise InputError(f"{path}: needs layout.layers_per_stage too")
        if len(recomputed) != len(layers) or any(r > n for r, n in zip(recomputed, layers, strict=False)):
            raise InputError(f"{path}: must have a number for each of {len(layers)} stages, none above its layers")
        if any(recomputed) and problem.pin("recompute") not in (None, "full"):
            raise InputError(f"{path}: layers are recomputed whole under layout.recompute full alone")
    stripes = problem.instance.pins.get("placement.stripes")
    most = len(layers) if layers is not None else problem.pin("pipeline_parallel") or problem.layers
    if stripes is not None and stripes > most:
        why = f"pins.layout gives {most} stages" if most < problem.layers else f"the model has {most} layers"
        why = f"a pipeline is cut into as many stripes as it has stages at most, and {why}"
        outside = f"{stripes!r} is outside the declared space; {why}; pin 1 to {most}"
        raise InputError(f"pins['placement.stripes']: {outside}")


def _missing(software: Software, name: str, wanted: Any) -> str:
    """Name the feature that a pin of the declared space needs and the framework lacks, with the remedy, or ""."""
    if name in NEEDS and NEEDS[name] not in software.parallelism:
        return f'; {software.name} has no "{NEEDS[name]}" among its parallelism: {OTHER} parallelism'
    if name == "zero_stage" and wanted in software.zero_stages:
        alone = "pin layout.pipeline_parallel to 1"
        return f"; {software.name} has it without pipelines: {alone}, or {OTHER} pipelined_zero_stages"
    if name == "zero_stage":
        return f"; {software.name} has no other: {OTHER} zero_stages"
    return f"; {software.name} has no other schedule: {OTHER} schedules" if name == "schedule" else ""


def _rules_remedy(problem: JointProblem) -> str:
    framework = problem.rules.framework
    return f"; as {framework} runs it: set workload.framework_rules to false to free it" if framework else ""


def _is_left(problem: JointProblem) -> bool:
    """Return whether pins and framework rules leave a strategy in the declared space at pinned replicas and batches."""
    stages, chunks = problem.pin("pipeline_parallel") or 1, problem.pin("virtual_stages") or 1
    micro_batches, replicas = problem.pin("microbatches_per_step") or 0, problem.pin("data_parallel") or 0
    if problem.rules.whole_rounds and chunks > 1 and micro_batches % stages:
        return False
    return any(replicas * x.gpus % problem.expert_group(x) == 0 for x, _ in ways_to_cut(problem))


def _degrees(problem: JointProblem) -> dict[str, list[Any]]:
    """List the declared space's values of each layout choice, under the pins of the choices that they follow from."""
    g, stages = problem.gpus, problem.options("pipeline_parallel", _stage_counts(problem))
    tensors = problem.options("tensor_parallel", _tensor_degrees(problem))
    pairs = [(t, k) for t in tensors for k in problem.options("context_parallel", _context_degrees(problem, t))]
    experts = problem.options("expert_parallel", _expert_degrees(problem))
    asked = any(problem.pin(name) is not None for name in ("stages_per_rack", "replicas_per_rack"))
    packings = [(p, x) for p in _stage_counts(problem) for x in (False, True)] if asked else []
    blocks = [
        _block(g, t, k, e, p, packed=x, all_rails=False)
        for (t, k), e, (p, x) in itertools.product(pairs, experts, packings)
        if not x or (g // (t * k) >= 2 and p > 1)
    ]
    return {
        "tensor_parallel": _tensor_degrees(problem),
        "tensor_parallel_inner": sorted({i for t in tensors for i in _inner_degrees(problem, t)}),
        "context_parallel": sorted({k for t in tensors for k in _context_degrees(problem, t)}),
        "expert_parallel": _expert_degrees(problem),
        "pipeline_parallel": list(_stage_counts(problem)),
        "virtual_stages": list(_stage_counts(problem, "interleaved")),
        "microbatch_sequences": list(MICRO_BATCHES),
        "schedule": list(problem.machine.software.schedules),
        "sequence_parallel": [False, True] if problem.has("sequence") else [False],
        "zero_stage": sorted({z for p in stages or [1] for z in problem.machine.software.zero_stages_under(p)}),
        "stages_per_rack": sorted({x.stages_per_rack for x in blocks if x is not None}),
        "replicas_per_rack": sorted({n for x in blocks if x is not None for n in range(1, x.replicas_per_rack + 1)}),
    }


@dataclass(slots=True)  # not frozen, which takes three times as long to make
class StrategyRows(ArrayTable):
    """Pipelines of a strategy: stages, virtual stages, replicas, micro-batches, and the sizes of their blocks."""

    p: Ints
    v: Ints
    d: Ints
    m: Ints
    replicas_per_rack: Ints
    stage_racks: Ints
    block_replicas: Ints
    racks: Ints  # of a block
    rails: Ints  # of a block

    def blocks(self) -> Ints:
        """Count the blocks that hold the replicas of each pipeline of a strategy in the declared space."""
        return -(-self.d // self.block_replicas)


@dataclass(frozen=True, kw_only=True, eq=False)
class Strategy:
    """A strategy of the declared space: one way to cut a layer over GPUs, with its times and its bytes."""

    problem: JointProblem
    shape: LayerShape
    order: Schedule
    packed: bool  # as many stages share a rack as fit
    recomputes: str  # layers recomputed whole: none, any number, or some, one at least (as pinned)
    between: Pipeline
    within: Pipeline
    weights: Weights
    bytes: LayerBytes
    under_zero: dict[tuple[int, bool], Pipeline] = field(init=False, repr=False, default_factory=dict)

    def pipeline(self, zero_stage: int, *, inside: bool) -> Pipeline:
        """Return the times of a pipeline of the joint problem's strategy under a ZeRO stage, `inside` racks or not."""
        if (zero_stage, inside) not in self.under_zero:
            own = self.within if inside else self.between
            self.under_zero[zero_stage, inside] = replace(own, zero_stage=zero_stage)
        return self.under_zero[zero_stage, inside]

    @property
    def machine(self) -> Machine:
        """The machine as a strategy runs it, with padded sequences."""
        return self.between.machine

    @property
    def layer(self) -> float:
        """Seconds of a layer of the declared space's strategy, forward and backward, without exposed ZeRO traffic."""
        return self.between.times.forward_seconds + self.between.times.backward_seconds

    @cached_property
    def least_layers(self) -> int:
        """Layers of a strategy of the declared space that bounds count, faster front layers allowed for."""
        return step_prediction.least_layers(self.between)

    def block(self, pipeline: int) -> RackBlock | None:
        """Return the block of racks of a strategy's pipeline of `pipeline` stages; None where it has none."""
        g, rails, replicas = self.problem.gpus, self.problem.all_rails, self.problem.pin("replicas_per_rack")
        return _block(g, *self.shape.degrees, pipeline, packed=self.packed, all_rails=rails, replicas=replicas)

    @cached_property
    def pipelines(self) -> StrategyRows:
        """Every pipeline of the strategy in the declared space, with one replica and the fewest micro-batches."""
        problem, s = self.problem, self.shape
        stages = tuple(problem.options("pipeline_parallel", _stage_counts(problem)))
        virtual = tuple(problem.options("virtual_stages", _stage_counts(problem, "interleaved")))
        packing = problem.pin("replicas_per_rack"), problem.pin("stages_per_rack")
        where = (problem.gpus, problem.all_rails, problem.layers, stages, virtual, packing)
        every = _pipelines(*s.degrees, self.packed, self.order == "1f1b", where)
        alike = s.experts_overlap or dict(_recomputations(problem))[s.recompute] != "some"
        if not limits_expert_overlap(problem.machine, s) or not alike:
            return every
        # Those that let the experts' exchange overlap, or the others (`ways_to_cut`).
        own = may_overlap_experts(every.p, every.v)
        own = own if s.experts_overlap or self.recomputes == "some" else ~own
        return every if own.all() else every.part(np.flatnonzero(own))


@lru_cache(maxsize=1 << 14)
def _block(
    gpus: int, t: int, c: int, e: int, pipeline: int, *, packed: bool, all_rails: bool, replicas: int | None = None
) -> RackBlock | None:
    stages = min(pipeline, gpus // (t * c)) if packed else 1
    found = block_of(gpus, (t, c, e), pipeline_parallel=pipeline, stages_per_rack=stages, replicas_per_rack=replicas)
    return replace(found, rails=gpus) if found is not None and all_rails else found


@lru_cache(maxsize=4096)
def _pipelines(t: int, c: int, e: int, packed: bool, interleaved: bool, where: Any) -> StrategyRows:
    gpus, all_rails, layers, stages, virtual, (replicas, shared) = where
    rows = []
    for p in stages:
        packs = packed and p == 1
        block = None if packs else _block(gpus, t, c, e, p, packed=packed, all_rails=all_rails, replicas=replicas)
        if block is None or shared not in (None, block.stages_per_rack):
            continue
        most = layers // p if p > 1 and interleaved else 1
        sizes = block.replicas_per_rack, block.stage_racks, block.replicas, block.racks, block.rails
        # Interleaved a pipeline takes whole rounds of its stages.
        rows += [(p, v, 1, p if v > 1 else 1, *sizes) for v in virtual[: bisect_right(virtual, most)]]
    return StrategyRows(*np.array(rows, dtype=np.int64).reshape(-1, 9).T)


def strategies_of(one: Strategy) -> list[Strategy]:
    """List the joint problem's strategies with the degrees of one: by schedule, and with stages sharing a rack."""
    problem, found = one.problem, []
    packings = (False, True) if problem.gpus // one.shape.gpus >= 2 else (False,)
    for order in problem.options("schedule", problem.machine.software.schedules):
        between, within = replace(one.between, order=order), replace(one.within, order=order)
        found += [replace(one, order=order, packed=x, between=between, within=within) for x in packings]
    return found


def strategy(
    problem: JointProblem, shape: LayerShape, recomputes: str, fronts: dict[LayerShape, LayerTimes] | None = None
) -> Strategy:
    """Return the strategy of degrees whose stages run 1F1B, each in a rack of its own, with its times and bytes.

    `fronts` keeps the times of dense layers at the front (`pipeline_of`).
    """
    between = step_prediction.pipeline_of(problem.machine, shape, problem.transport_slowdown, fronts)
    m = between.machine
    return Strategy(
        problem=problem,
        shape=shape,
        order="1f1b",
        packed=False,
        recomputes=recomputes,
        between=between,
        within=step_prediction.inside_rack(between),
        weights=weights_of(m, shape),
        bytes=memory.layer_bytes(m, shape),
    )


def _tensor_degrees(problem: JointProblem) -> list[int]:
    model = problem.machine.model
    shared = math.gcd(model.heads, model.kv)
    return [t for t in range(1, (problem.gpus if problem.has("tensor") else 1) + 1) if shared % t == 0]


def _context_degrees(problem: JointProblem, t: int) -> list[int]:
    """List the CP degrees of the declared space: every one inside a rack, and whole racks of TP groups."""
    if not problem.has("context"):
        return [1]
    unit = problem.gpus // t
    every = [*range(1, unit + 1), *(unit * c for c in range(2, MOST_CONTEXT_RACKS + 1))]
    if problem.rules.sequence_parts == "any":
        return every
    return [c for c in every if c == 1 or problem.machine.sequence % (2 * c) == 0]


def _inner_degrees(problem: JointProblem, t: int) -> list[int]:
    """List the declared space's inner degrees of 2D TP: 1, and from 16 ranks on that of the squarest grid."""
    if t < 16 or not problem.has("tensor-2d") or not problem.rules.tensor_2d:
        return [1]
    divisors = (i for i in range(2, t) if t % i == 0)
    return sorted({1, min(divisors, key=lambda i: (max(Fraction(i * i, t), Fraction(t, i * i)), i), default=1)})


def _expert_degrees(problem: JointProblem) -> list[int]:
    experts = problem.machine.model.experts if problem.has("expert") else None
    return [1] if experts is None else [e for e in range(1, experts.count + 1) if experts.count % e == 0]


def _stage_counts(problem: JointProblem, parallelism: Parallelism = "pipeline") -> list[int]:
    """List the numbers of stages of a pipeline, or of virtual stages, in the declared space: up to the layers."""
    even = parallelism == "pipeline" and problem.rules.even_stages and problem.pin("layers_per_stage") is None
    every = range(1, (problem.layers if problem.has(parallelism) else 1) + 1)
    return [p for p in every if not even or problem.layers % p == 0]


def _is_run(problem: JointProblem, t: int, c: int, e: int, *, parallel: bool) -> bool:
    rules, sequence = problem.rules, problem.machine.sequence
    wanted = {"free": False, "with experts": problem.machine.model.experts is not None, "always": True}
    if t > 1 and not parallel and wanted[rules.sequence_parallel]:
        return False
    parts = c * t * (2 if rules.sequence_parts == "halves" else 1)
    if parallel and rules.sequence_parts != "any" and sequence % parts:
        return False
    routed = problem.machine.model.experts is not None and (t > 1 or e > 1)
    return not (routed and rules.experts_over_tensors) or e % (t * c) == 0


def _recomputations(problem: JointProblem) -> list[tuple[Any, str]]:
    """Pair the kept activations of a layer with the layers recomputed whole (none, any, some) in the space."""
    software, wanted = problem.machine.software, problem.pin("recompute")
    if memory.repeats_modules(problem.machine):  # of a layer, or layers recomputed whole: a framework has either
        whole = {None: "any", "none": "none", "full": "some"}
        pairs = [("none", whole[wanted])] if wanted in whole else []
        return pairs + ([("selective", "none")] if wanted in (None, "selective") and problem.rules.selective else [])
    kept = "none" if software.flash_attention and software.selective_gemm_share == 0 else "selective"
    if wanted == "full":
        return [(kept, "some")]
    if wanted is not None:
        return [(wanted, "none")] if wanted == "none" or problem.rules.selective else []
    others = "any" if problem.rules.selective else "some"
    return [(kept, "any")] if kept == "none" else [("none", "none"), (kept, others)]


def ways_to_cut(problem: JointProblem) -> Iterator[tuple[LayerShape, str]]:
    """Yield in order the degrees by which the declared space may cut a layer, with the recompute choice."""
    sizes = [b for b in problem.options("microbatch_sequences", MICRO_BATCHES) if b <= problem.max_sequences]
    experts, kept = problem.options("expert_parallel", _expert_degrees(problem)), _recomputations(problem)
    for t in problem.options("tensor_parallel", _tensor_degrees(problem)):
        contexts = problem.options("context_parallel", _context_degrees(problem, t))
        inner = problem.options("tensor_parallel_inner", _inner_degrees(problem, t))
        for i, c, e, b in itertools.product(inner, contexts, experts, sizes):
            if c > 1 and b > 1:
                continue
            choices = problem.options("sequence_parallel", [False, True] if problem.has("sequence") else [False])
            degrees = {"tensor_parallel": t, "tensor_inner": i, "context_parallel": c, "expert_parallel": e}
            for parallel, (mode, recomputes) in itertools.product(choices, kept):
                if (parallel and t == 1) or not _is_run(problem, t, c, e, parallel=parallel):
                    continue
                shape = _shape(**degrees, micro_batch=b, recompute=mode, sequence_parallel=parallel)
                if not limits_expert_overlap(problem.machine, shape):
                    yield shape, recomputes
                    continue
                # The experts' exchange overlaps in some layouts only: with no layer recomputed it overlaps under some
                # pipelines; with some it does not; under the other pipelines it never does (`Strategy.pipelines`).
                exposed = replace(shape, experts_overlap=False)
                if recomputes != "some":
                    yield shape, "none"
                    yield exposed, recomputes
                if recomputes != "none":
                    yield exposed, "some"
