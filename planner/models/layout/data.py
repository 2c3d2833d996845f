"""The layout problem: machine, racks, network, limits and pins, and the layer strategies of the declared space."""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from planner.instance.instance import Instance
from planner.instance.pins import pinned
from planner.models.requests import LayoutRequest
from planner.physics.training import layer_time, stage_memory, step
from planner.physics.training.layer_time import LayerTimes
from planner.physics.training.operations import Machine, Shape, head_seconds
from planner.physics.training.process_groups import Weights, weights_of
from planner.physics.training.schedule import Schedule
from planner.physics.training.stage_memory import LayerBytes
from planner.physics.training.step import Conditions

# Powers of two, as frameworks are tuned for; a larger micro-batch fills GPUs no better and holds more in flight.
MICRO_BATCH_SIZES = (1, 2, 4, 8, 16)
LONG_SEQUENCE = 16_384  # tokens; below, attention is too short for the traffic of context parallelism to pay
MIN_2D_TENSOR_RANKS = 16  # fewer ranks reduce over a ring so short that a grid of them saves nothing
# Narrower models leave each GPU of a TP group across scale-up domains too little work to hide the slower links.
MIN_HIDDEN_ACROSS_DOMAINS = 24_576
MAX_DOMAINS = 64  # that one TP group spans: keeps the space finite, far above what is ever fastest


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The layout problem: machine, racks by site, network, limits and pins."""

    machine: Machine
    conditions: Conditions
    sites: tuple[str, ...]
    racks: tuple[int, ...]
    max_sequences: int
    memory_limit: float
    racks_in_all: int | None = None  # where fewer than those of all sites: a relaxation, see `shared`
    tensor_across_domains: bool = False
    pins: dict[str, Any] = field(default_factory=dict)

    @property
    def shared(self) -> bool:
        """Whether ZeRO shards over the replicas of all sites, and sites may stand idle.

        This relaxes every split of the racks over sites, so its optimum is a bound on all of them.
        """
        return self.racks_in_all is not None

    @property
    def max_racks(self) -> int:
        """Racks that all sites may use together."""
        return sum(self.racks) if self.racks_in_all is None else self.racks_in_all

    def pin(self, name: str) -> Any:
        """Return the pinned value of a choice, or None where it is free."""
        return self.pins.get(f"layout.{name}")

    def options(self, name: str, free: Iterable[Any]) -> list[Any]:
        """Return the pinned value where it is among the free ones, else all of them."""
        value = self.pin(name)
        return [x for x in free if value is None or x == value]

    def choices(self, name: str, free: Iterable[Any]) -> list[Any]:
        """Return the pinned value, whatever it is, else the free ones."""
        value = self.pin(name)
        return list(free) if value is None else [value]


def problem_of(instance: Instance, request: LayoutRequest) -> Problem:
    """Read the layout problem from an instance and a request."""
    machine = step.machine_of(instance)
    tokens = instance.limits.max_batch_tokens
    if tokens is None:
        raise ValueError("limits.max_batch_tokens is missing")
    sites = tuple(sorted(request.racks_by_site))
    return Problem(
        machine=machine,
        conditions=Conditions(
            pipeline_send_slowdown=request.pipeline_send_slowdown,
            allreduce_slowdown=request.allreduce_slowdown,
            wan_gbps=request.wan_gbps,
            wan_rtt_ms=request.wan_rtt_ms or 0.0,
            wan_round_trips=instance.wan.round_trips if instance.wan else 1.0,
        ),
        sites=sites,
        racks=tuple(request.racks_by_site[s] for s in sites),
        max_sequences=math.floor(tokens / machine.sequence),
        memory_limit=step.memory_limit_bytes(instance),
        racks_in_all=request.racks_in_all,
        # A fabric is designed for pipeline and gradient traffic only; TP between racks needs a network that is given.
        tensor_across_domains=instance.network is None and machine.model.hidden >= MIN_HIDDEN_ACROSS_DOMAINS,
        pins={p: pinned(instance, p) for p in instance.pins if p.startswith("layout.")},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStrategy:
    """How one layer runs on its GPUs, with its times and its bytes; `packed`: as many stages share a rack as fit.

    `recomputes` says how many layers of a stage full recompute may cover: "none", "any" number, or "all" (where
    pinned).
    """

    shape: Shape
    schedule: Schedule
    packed: bool
    recomputes: str
    times: LayerTimes
    head_seconds: float
    weights: Weights
    bytes: LayerBytes
    send_between_racks: float  # seconds of one pipeline send
    send_inside_rack: float

    @property
    def layer_seconds(self) -> float:
        """Forward and backward of one layer without full recompute and without what ZeRO exposes."""
        return self.times.forward_seconds + self.times.backward_seconds

    @property
    def pinned_recompute_seconds(self) -> float:
        """Seconds of full recompute that every layer pays: none unless all layers are recomputed."""
        return self.times.recompute_seconds if self.recomputes == "all" else 0.0

    @property
    def min_layer_seconds(self) -> float:
        """Least time of a layer: with its recompute where all layers are recomputed."""
        return self.layer_seconds + self.pinned_recompute_seconds

    @property
    def min_layer_bytes(self) -> float:
        """Least activation bytes that a layer keeps for one micro-batch."""
        return self.bytes.kept if self.recomputes == "none" else min(self.bytes.kept, self.bytes.checkpoint)


def with_send_times(problem: Problem, strategy: LayerStrategy) -> LayerStrategy:
    """Return a layer strategy with the pipeline send times of a problem that differs in its network."""
    between, inside = _send_times(problem, strategy.shape)
    return replace(strategy, send_between_racks=between, send_inside_rack=inside)


def _send_times(problem: Problem, shape: Shape) -> tuple[float, float]:
    """Return the seconds of one pipeline send between racks and inside one."""
    m, slowdown = problem.machine, problem.conditions.pipeline_send_slowdown
    between = layer_time.pipeline_send_seconds(m, shape, slowdown)
    return between, layer_time.pipeline_send_seconds(m, shape, slowdown, inside=True)


def list_layer_strategies(problem: Problem) -> list[LayerStrategy]:
    """List every layer strategy of the declared space, in a fixed order."""
    m, strategies = problem.machine, []
    for shape, recomputes in _shapes(problem):
        between, inside = _send_times(problem, shape)
        one = LayerStrategy(
            shape=shape,
            schedule="1f1b",
            packed=False,
            recomputes=recomputes,
            times=layer_time.layer_times(m, shape),
            head_seconds=head_seconds(m, shape),
            weights=weights_of(m, shape),
            bytes=stage_memory.layer_bytes(m, shape),
            send_between_racks=between,
            send_inside_rack=inside,
        )
        for schedule, packed in itertools.product(problem.choices("schedule", m.software.schedules), (False, True)):
            if not packed or (m.rack.gpus // shape.gpus >= 2 and problem.pin("stages_per_rack") is None):
                strategies.append(replace(one, schedule=schedule, packed=packed))
    return strategies


def _shapes(problem: Problem) -> Iterator[tuple[Shape, str]]:
    """Yield every shape of a layer with the layers that full recompute may cover."""
    m = problem.machine
    divisor = math.gcd(m.model.heads, m.model.kv)
    degrees = (*range(1, m.rack.gpus + 1), *_degrees_across_domains(problem))
    sizes = problem.choices("microbatch_sequences", MICRO_BATCH_SIZES)
    for t in problem.options("tensor_parallel", [t for t in degrees if divisor % t == 0]):
        inner = problem.choices("tensor_parallel_inner", _inner_degrees(t))
        contexts = problem.choices("context_parallel", _context_degrees(m, t))
        modes = _recompute_modes(problem)
        choices = itertools.product(inner, contexts, _expert_degrees(problem), sizes, (False, True), modes)
        for i, c, e, b, sequence_parallel, (recompute, recomputes) in choices:
            divides = t % i == 0 and m.sequence % c == 0 and b <= problem.max_sequences
            # Context parallelism divides one sequence because it is long: its ranks do not take several at once.
            valid = divides and not (sequence_parallel and t == 1) and (c == 1 or b == min(sizes))
            if valid and problem.options("sequence_parallel", [sequence_parallel]):
                shape = Shape(
                    tensor_parallel=t,
                    micro_batch=b,
                    recompute=recompute,
                    sequence_parallel=sequence_parallel,
                    context_parallel=c,
                    expert_parallel=e,
                    tensor_inner=i,
                )
                yield shape, recomputes


def _degrees_across_domains(problem: Problem) -> list[int]:
    """List the TP degrees that fill several scale-up domains, for wide models."""
    domains = range(2, MAX_DOMAINS + 1) if problem.tensor_across_domains else ()
    return [problem.machine.rack.gpus * k for k in domains]


def _inner_degrees(t: int) -> list[int]:
    """List one-dimensional TP and, for many ranks, the squarest two-dimensional grid."""
    if t < MIN_2D_TENSOR_RANKS:
        return [1]
    return [1, min((i for i in range(2, t) if t % i == 0), key=lambda i: (abs(math.log(i * i / t)), i), default=1)]


def _context_degrees(m: Machine, t: int) -> list[int]:
    """List powers of two inside the scale-up domain where sequences are long."""
    if m.sequence < LONG_SEQUENCE:
        return [1]
    return [c for c in (2**k for k in range(m.rack.gpus.bit_length())) if t * c <= m.rack.gpus and m.sequence % c == 0]


def _expert_degrees(problem: Problem) -> list[int]:
    """List the degrees of expert parallelism that divide the experts evenly."""
    experts = problem.machine.model.experts
    count = 1 if experts is None else experts.count
    return problem.options("expert_parallel", [e for e in range(1, count + 1) if count % e == 0])


def _recompute_modes(problem: Problem) -> list[tuple[Any, str]]:
    """Pair the recompute mode of layers that keep activations with the layers that full recompute may cover.

    Full recompute of some layers joins only the mode that keeps all but unfused scores; a flash kernel without other
    selective recompute has one mode.
    """
    software, mode = problem.machine.software, problem.pin("recompute")
    by_stage = problem.pin("recomputed_layers_per_stage")
    if mode == "full" or (mode is None and by_stage is not None):
        return [("selective", "any" if by_stage is not None else "all")]
    if mode is not None:
        return [(mode, "none")]
    if software.flash_attention and software.selective_gemm_share == 0:
        return [("none", "any")]
    return [("none", "none"), ("selective", "any")]
