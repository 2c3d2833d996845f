"""The layout question: what is asked, and every way to cut a layer with the pace that it sets."""

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

MICRO_BATCHES = (1, 2, 4, 8, 16)
LONG_SEQUENCE = 16_384  # tokens from which context parallelism belongs to the space
WIDE = 16  # TP ranks from which 2-D tensor parallelism belongs to the space
WIDE_HIDDEN = (
    24_576  # width from which TP over several scale-up domains belongs to it, where no fabric is to be designed
)
MOST_DOMAINS = 64  # that TP spans


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The layout question: machine, racks by site, network, limits and pins."""

    machine: Machine
    conditions: Conditions
    sites: tuple[str, ...]
    racks: tuple[int, ...]
    most_sequences: int
    memory_limit: float
    racks_in_all: int | None = None  # where fewer than those of all sites: a relaxation, see `shared`
    wide: bool = False
    pins: dict[str, Any] = field(default_factory=dict)

    @property
    def shared(self) -> bool:
        """Whether all sites' replicas divide what ZeRO shards, and sites may stand idle: faster than any split of the racks, for a bound."""
        return self.racks_in_all is not None

    @property
    def most_racks(self) -> int:
        """Racks that all sites may use together."""
        return sum(self.racks) if self.racks_in_all is None else self.racks_in_all

    def pin(self, name: str) -> Any:
        """Return the pinned value of a choice, or None where it is free."""
        return self.pins.get(f"layout.{name}")

    def options(self, name: str, free: Iterable[Any]) -> list[Any]:
        """Return the pinned value where it is among the free ones, else all of them."""
        wanted = self.pin(name)
        return [x for x in free if wanted is None or x == wanted]

    def choices(self, name: str, free: Iterable[Any]) -> list[Any]:
        """Return the pinned value, whatever it is, else the free ones."""
        wanted = self.pin(name)
        return list(free) if wanted is None else [wanted]


def problem_of(instance: Instance, request: LayoutRequest) -> Problem:
    """Read the layout question from an instance and what the site split passed on."""
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
        most_sequences=math.floor(tokens / machine.sequence),
        memory_limit=step.memory_limit_bytes(instance),
        racks_in_all=request.racks_in_all,
        # The fabric is designed for pipeline and gradient traffic; TP between racks is offered where its network is taken as given.
        wide=instance.network is None and machine.model.hidden >= WIDE_HIDDEN,
        pins={p: pinned(instance, p) for p in instance.pins if p.startswith("layout.")},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStrategy:
    """A way to cut a layer, with its pace and its bytes; `packed`: as many stages share a rack as fit.

    `recomputes` says which layers may be recomputed whole: none, any number of a stage's, or all of them (as pinned).
    """

    shape: Shape
    order: Schedule
    packed: bool
    recomputes: str
    times: LayerTimes
    head: float
    weights: Weights
    bytes: LayerBytes
    hop_between: float
    hop_inside: float

    @property
    def layer(self) -> float:
        """Forward and backward of one layer without what ZeRO exposes, nothing recomputed whole."""
        return self.times.forward_seconds + self.times.backward_seconds

    @property
    def least_layer(self) -> float:
        """The least time of a layer: with its recomputation where all layers are."""
        return self.layer + (self.times.recompute_seconds if self.recomputes == "all" else 0.0)

    @property
    def least_bytes(self) -> float:
        """The least bytes that a layer and micro-batch keep."""
        return self.bytes.kept if self.recomputes == "none" else min(self.bytes.kept, self.bytes.checkpoint)


def at_hops(problem: Problem, base: LayerStrategy) -> LayerStrategy:
    """Return a way to cut a layer with the exchange between stages of a question that differs in its network."""
    slow = problem.conditions.pipeline_send_slowdown
    between, inside = (
        layer_time.pipeline_send_seconds(problem.machine, base.shape, slow, inside=x) for x in (False, True)
    )
    return replace(base, hop_between=between, hop_inside=inside)


def layer_strategies(problem: Problem) -> list[LayerStrategy]:
    """List every way to cut a layer of the declared space, in a fixed order."""
    found = []
    for shape, recomputes in _shapes(problem):
        m = problem.machine
        times, slowdown = layer_time.layer_times(m, shape), problem.conditions.pipeline_send_slowdown
        one = LayerStrategy(
            shape=shape,
            order="1f1b",
            packed=False,
            recomputes=recomputes,
            times=times,
            head=head_seconds(m, shape),
            weights=weights_of(m, shape),
            bytes=stage_memory.layer_bytes(m, shape),
            hop_between=layer_time.pipeline_send_seconds(m, shape, slowdown),
            hop_inside=layer_time.pipeline_send_seconds(m, shape, slowdown, inside=True),
        )
        for order, packed in itertools.product(problem.choices("schedule", m.software.schedules), (False, True)):
            if not packed or (m.rack.gpus // shape.gpus >= 2 and problem.pin("stages_per_rack") is None):
                found.append(replace(one, order=order, packed=packed))
    return found


def _shapes(problem: Problem) -> Iterator[tuple[Shape, str]]:
    m = problem.machine
    shared = math.gcd(m.model.heads, m.model.kv)
    degrees = problem.options(
        "tensor_parallel", [t for t in (*range(1, m.rack.gpus + 1), *_over_domains(problem)) if shared % t == 0]
    )
    for t in degrees:
        inner, contexts = (
            problem.choices("tensor_parallel_inner", _inner(t)),
            problem.choices("context_parallel", _contexts(m, t)),
        )
        sizes = problem.choices("microbatch_sequences", MICRO_BATCHES)
        choices = itertools.product(inner, contexts, _expert_degrees(problem), sizes, (False, True), _kept(problem))
        for i, c, e, b, parallel, (kept, recomputes) in choices:
            whole = t % i == 0 and m.sequence % c == 0 and b <= problem.most_sequences and not (parallel and t == 1)
            whole &= c == 1 or b == min(sizes)  # ranks that share a sequence do not take several at once
            if whole and problem.options("sequence_parallel", [parallel]):
                shape = Shape(
                    tensor_parallel=t,
                    micro_batch=b,
                    recompute=kept,
                    sequence_parallel=parallel,
                    context_parallel=c,
                    expert_parallel=e,
                    tensor_inner=i,
                )
                yield shape, recomputes


def _over_domains(problem: Problem) -> list[int]:
    """Offer degrees that fill whole scale-up domains, for wide models."""
    return [problem.machine.rack.gpus * k for k in range(2, MOST_DOMAINS + 1)] if problem.wide else []


def _inner(t: int) -> list[int]:
    """Offer one-dimensional TP, and for many ranks the squarest two-dimensional grid."""
    if t < WIDE:
        return [1]
    return [1, min((i for i in range(2, t) if t % i == 0), key=lambda i: (abs(math.log(i * i / t)), i), default=1)]


def _contexts(m: Machine, t: int) -> list[int]:
    """Offer powers of two inside the scale-up domain where sequences are long."""
    if m.sequence < LONG_SEQUENCE:
        return [1]
    return [c for c in (2**k for k in range(m.rack.gpus.bit_length())) if t * c <= m.rack.gpus and m.sequence % c == 0]


def _expert_degrees(problem: Problem) -> list[int]:
    """Offer the degrees that divide the experts evenly."""
    experts = problem.machine.model.experts
    if experts is None:
        return problem.options("expert_parallel", [1])
    return problem.options("expert_parallel", [e for e in range(1, experts.count + 1) if experts.count % e == 0])


def _kept(problem: Problem) -> list[tuple[Any, str]]:
    """Pair what is kept of a layer with which layers may be recomputed whole.

    Beside layers recomputed whole the others keep all but unfused scores, so only that mode takes them; a flash kernel
    without other selective recompute has one mode.
    """
    software, wanted = problem.machine.software, problem.pin("recompute")
    again = problem.pin("recomputed_layers_per_stage")
    one_mode = software.flash_attention and software.selective_gemm_share == 0
    if wanted == "full" or (wanted is None and again is not None):
        return [("selective", "any" if again is not None else "all")]
    if wanted is not None:
        return [(wanted, "none")]
    return [("none", "any")] if one_mode else [("none", "none"), ("selective", "any")]
