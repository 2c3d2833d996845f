"""Lower bounds on the time of the largest stage with which memory holds all layers, over arrays of columns."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from planner.models.layout.columns import Floats, Ints
from planner.models.layout.data import LayerStrategy, Problem
from planner.physics.training import memory, stage_memory

BISECTIONS = 14  # halve the logarithm of the range: the bound ends within 1e-4 of the least time
MAX_CHUNK_LAYERS = 12  # layers of a virtual stage; above, rounding to whole layers changes the bound too little
MAX_STAGE_LAYERS = 128  # of an even stage, whose whole layers are tried one by one: the cost grows with them
EPS = 1e-9  # relative, by which sums in another order may differ


def min_stage_of_divisible_layers(
    problem: Problem,
    strategy: LayerStrategy,
    zero_stage: int,
    p: Ints,
    v: Ints,
    micro_batches: Ints,
    replicas: Ints,
    layer: Floats,
) -> Floats:
    """Bound the time of the largest stage with which memory holds all layers, taken as divisible.

    Zero where even stages hold them, infinite where no stages do. By bisection, since more layers fit in more time.
    """
    layers, recompute = problem.machine.model.layers, strategy.times.recompute_seconds
    fit = _DivisibleLayers.of(problem, strategy, zero_stage, p, v, micro_batches, replicas, layer)
    low, high = layers / p * fit.layer_seconds, layers * (layer + recompute) * (1 + EPS)
    bound = np.zeros(len(p))
    which = np.flatnonzero(fit.layers_in(low) < layers * (1 - EPS))
    if len(which):
        fit, low, high = fit.select(which), low[which], high[which]
        possible = fit.layers_in(high) >= layers * (1 - EPS)
        bound[which] = np.where(possible, _bisect(fit.layers_in, layers, low, high), np.inf)
    return bound


def _bisect(layers_in: Callable[[Floats], Floats], layers: int, low: Floats, high: Floats) -> Floats:
    """Return times between low and high, near the least in which all layers fit, in which fewer than all do."""
    for _ in range(BISECTIONS):
        middle = np.sqrt(low * high)
        enough = layers_in(middle) >= layers * (1 - EPS)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return low


def _in_flight_line(strategy: LayerStrategy, p: Any, v: Any, micro_batches: Any) -> tuple[Any, Any, Any]:
    """Return micro-batches in flight: on the last stage, their growth per stage towards the first, and their cap."""
    cap = np.minimum(micro_batches, p) if strategy.schedule == "zb-h1" else micro_batches * 1.0
    return np.where(v == 1, 1.0, ((v - 1) * p + 1) / v), np.where(v == 1, 1.0, 2 / v), cap


@dataclass(frozen=True, slots=True, kw_only=True)
class _DivisibleLayers:
    """An upper bound on the layers that memory holds on all stages of a column in a time t, layers taken as divisible.

    A stage with n micro-batches in flight keeps l layers in l·(s + n·a) bytes, s their state and a what one keeps. In t
    it runs t/x, and recomputes at most (t - l·x)/y of them, so that l·(s + n·a) <= capacity + n·(a - c)·(t - l·x)/y,
    and never more than capacity/(s + n·c). From the last stage to the first n grows by `slope` a stage until it reaches
    `cap`. Each of the three is constant or convex in n, so that its sum over stages is at most its integral, half a
    stage further at both ends.
    """

    capacity: float  # bytes, less what ZeRO-3 gathers
    kept: float  # a
    checkpoint: float  # c, or a where recompute saves nothing
    saved: float  # (a - c)/y
    state: Floats  # s
    layer_seconds: Floats  # x
    first: Floats
    slope: Floats
    cap: Floats
    rising: Floats  # stages below the cap
    stages: Floats

    @classmethod
    def of(
        cls,
        problem: Problem,
        strategy: LayerStrategy,
        zero_stage: int,
        p: Ints,
        v: Ints,
        micro_batches: Ints,
        replicas: Ints,
        layer: Floats,
    ) -> "_DivisibleLayers":
        """Return the bound's terms from the physics of a layer strategy."""
        m, b, one = problem.machine, strategy.bytes, np.ones(len(p))
        state = stage_memory.gpu_state_bytes(
            m, strategy.shape, strategy.weights, layers=1, ends=0, zero_stage=zero_stage, replicas=replicas
        )
        gathered = 2 * strategy.weights.layer * m.precision.working_parameter_bytes if zero_stage >= 3 else 0.0
        kept = b.checkpoint if strategy.recomputes == "all" else b.kept
        checkpoint = min(kept, b.checkpoint) if strategy.recomputes == "any" else kept
        first, slope, cap = _in_flight_line(strategy, p, v, micro_batches)
        rising = np.clip(np.floor((cap - first) / slope + 1e-9) + 1, 0, p)
        return cls(
            capacity=max(0.0, problem.memory_limit - gathered),
            kept=kept,
            checkpoint=checkpoint,
            saved=(kept - checkpoint) / strategy.times.recompute_seconds,
            state=state * one,
            layer_seconds=layer + strategy.pinned_recompute_seconds,
            first=first,
            slope=slope,
            cap=cap * one,
            rising=np.zeros(len(p)) if strategy.schedule == "zb-h1" else rising,
            stages=p * one,
        )

    def select(self, which: Ints) -> "_DivisibleLayers":
        """Return the bound of some of the columns."""
        parts: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        parts |= {name: x[which] for name, x in parts.items() if isinstance(x, np.ndarray)}
        return _DivisibleLayers(**parts)

    def layers_in(self, seconds: Floats) -> Floats:
        """Bound the layers that all stages hold in a time from above."""
        s, c, saved = self.state, self.checkpoint, self.saved * seconds
        by_time = seconds / self.layer_seconds
        mixed = self.kept + self.saved * self.layer_seconds
        # Most in flight with which all that the time allows is kept, and with which some of it is.
        all_kept = (self.capacity / by_time - s) / self.kept
        some_kept = np.full_like(s, np.inf)
        if self.saved > 0:
            some_kept = (self.capacity * (mixed - c) - saved * s) / (saved * c)
        k1 = self._stages_up_to(all_kept)
        k2 = np.maximum(k1, self._stages_up_to(some_kept))
        n1, n2, n3 = (self._in_flight(k) for k in (k1, k2, self.rising))
        share = saved / mixed
        logarithm = np.log((s + mixed * n2) / (s + mixed * n1))
        partly = share * (k2 - k1) + (self.capacity - share * s) / (mixed * self.slope) * logarithm
        recomputed = self.capacity / (c * self.slope) * np.log((s + c * n3) / (s + c * n2))
        capped = (self.capacity + self.saved * self.cap * seconds) / (s + mixed * self.cap)
        capped = np.minimum(by_time, np.minimum(capped, self.capacity / (s + c * self.cap)))
        total = k1 * by_time + partly + recomputed + (self.stages - self.rising) * capped
        return np.asarray(total, dtype=np.float64)

    def _stages_up_to(self, in_flight: Floats) -> Floats:
        """Count the rising stages with no more than so many micro-batches in flight."""
        stages = np.floor((in_flight - self.first) / self.slope) + 1
        return np.asarray(np.clip(stages, 0, self.rising), dtype=np.float64)

    def _in_flight(self, stages: Floats) -> Floats:
        """Return the micro-batches in flight half a stage beyond so many stages."""
        return self.first + self.slope * (stages - 0.5)


def min_stage_of_whole_layers(
    problem: Problem,
    strategy: LayerStrategy,
    zero_stage: int,
    p: Ints,
    v: Ints,
    micro_batches: Ints,
    replicas: Ints,
    layer: Floats,
) -> Floats:
    """Bound the time of the largest stage with which memory holds all layers, whole ones.

    Zero where even stages hold them, or are too large to be worth the work.
    """
    layers = problem.machine.model.layers
    even = -(-layers // p)
    bound = np.zeros(len(p))
    which = np.flatnonzero((-(-even // v) <= MAX_CHUNK_LAYERS) & (even <= MAX_STAGE_LAYERS))
    if not len(which):
        return bound
    layer, even = layer[which], even[which]
    fit = _WholeLayers(
        problem=problem,
        strategy=strategy,
        zero_stage=zero_stage,
        p=p[which],
        v=v[which],
        micro_batches=micro_batches[which],
        replicas=replicas[which] + 0 * p[which],
        layer=layer,
        max_layers=2 * int(even.max()),
    )
    low, high = even * (layer + strategy.pinned_recompute_seconds), fit.max_layers * layer
    enough = fit.layers_in(low) >= layers
    bound[which] = np.where(enough, 0.0, _bisect(fit.layers_in, layers, low, np.maximum(low, high)))
    return bound


@dataclass(frozen=True, kw_only=True)
class _WholeLayers:
    """The whole layers that memory holds on all stages of a column in a time, up to `max_layers` on a stage.

    Counted layer by layer: how many stages hold j layers, summed over j.
    """

    problem: Problem
    strategy: LayerStrategy
    zero_stage: int
    p: Ints
    v: Ints
    micro_batches: Ints
    replicas: Ints
    layer: Floats
    max_layers: int

    @property
    def numbers(self) -> Ints:
        """Numbers of layers of a stage, from 1."""
        return np.arange(1, self.max_layers + 1)[None, :]

    @cached_property
    def activation_bytes(self) -> tuple[Floats, Floats, Floats]:
        """Bytes that j layers leave for what is in flight on the last stage, those between and the first; j from 1."""
        state = self._state(1, 0)[:, None] * self.numbers
        last, between, first = (self._capacity(ends)[:, None] - state for ends in ("last", "", "first"))
        return last, between, first

    def layers_in(self, seconds: Floats) -> Floats:
        """Count the layers that all stages hold in a time."""
        p = self.p[:, None]
        first, slope, cap = _in_flight_line(self.strategy, p, self.v[:, None], self.micro_batches[:, None])
        if self.strategy.schedule == "zb-h1":
            first = cap
        last, middle, front = self._max_in_flight(seconds)
        stages = (np.minimum(first, cap) <= last).astype(np.float64)
        stages += (p > 1) & (np.minimum(first + slope * (p - 1), cap) <= front)
        inner = np.where(middle >= cap, p - 2.0, np.clip(np.floor((middle - first) / slope), 0, np.maximum(p - 2.0, 0)))
        stages += np.where(p > 2, np.maximum(inner, 0.0), 0.0)
        return np.asarray(stages.sum(axis=1))

    def _max_in_flight(self, seconds: Floats) -> list[Floats]:
        """Return the most micro-batches in flight beside j layers in a time, by kind of stage; negative if none fit."""
        j, v, b = self.numbers, self.v[:, None], self.strategy.bytes
        spare = seconds[:, None] * (1 + EPS) - j * self.layer[:, None]
        recomputed = np.clip(np.floor(spare / self.strategy.times.recompute_seconds), -1, j)
        chunks = np.ceil(j / v) * v
        kept, some = chunks * b.kept, chunks * (b.kept + np.maximum(recomputed, 0) / j * (b.checkpoint - b.kept))

        def with_recompute(free: Floats) -> Floats:
            return np.asarray((free - b.in_work) / some)

        def most(free: Floats) -> Floats:
            if self.strategy.recomputes == "all":
                return np.where(recomputed >= j, with_recompute(free), -1.0)
            n = np.where(recomputed >= 0, free / kept, -1.0)
            if self.strategy.recomputes == "any":
                n = np.where(recomputed > 0, np.maximum(n, with_recompute(free)), n)
            return n

        return [most(free) * (1 + EPS) for free in self.activation_bytes]

    def _capacity(self, ends: str) -> Floats:
        """Return the bytes for layers and activations on the "first", the "last" or (empty) any other stage."""
        m, s = self.problem.machine, self.strategy.shape
        copies = np.zeros(len(self.p), dtype=np.int64)
        if ends:
            copies = memory.end_copies(m.model, np.where(ends == "last", self.p - 1, 0), self.p)
        embeddings = np.stack([self._state(0, n) for n in range(3)])[copies, np.arange(len(self.p))]
        capacity = self.problem.memory_limit - embeddings
        if self.zero_stage >= 3:
            capacity = capacity - 2 * self.strategy.weights.layer * m.precision.working_parameter_bytes
        if ends == "last":
            capacity = capacity - memory.logits_bytes(
                m.model,
                m.sequence,
                s.micro_batch,
                s.tensor_parallel,
                context_parallel=s.context_parallel,
                logit_bytes=m.software.logit_memory_bytes,
            )
        return np.asarray(capacity, dtype=np.float64)

    def _state(self, layers: int, ends: int) -> Floats:
        m, s = self.problem.machine, self.strategy
        state = stage_memory.gpu_state_bytes(
            m, s.shape, s.weights, layers=layers, ends=ends, zero_stage=self.zero_stage, replicas=self.replicas
        )
        return np.asarray(state * np.ones(len(self.p)))
