"""What memory lets the stages of rows hold, by columns, and with it the least time of their largest stage."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from planner.models.layout.columns import Floats, Ints
from planner.models.layout.data import LayerStrategy, Problem
from planner.physics.training import memory, stage_memory

HALVINGS = 14
LARGE = 12  # layers of a virtual stage, from which on they are taken as divisible
MOST = 128  # and of a stage, whose numbers of layers are tried one by one
HAIR = 1e-9  # relative, by which sums in another order may differ


def least_stage(
    problem: Problem, base: LayerStrategy, zero: int, p: Ints, v: Ints, batches: Ints, replicas: Ints, layer: Floats
) -> Floats:
    """Return the least time of the largest stage with which memory holds all layers, divisible ones; zero where even stages do, infinite where none.

    By bisection, since what stages hold grows with it.
    """
    layers, again = problem.machine.model.layers, base.times.recompute_seconds
    held = _Held.of(problem, base, zero, p, v, batches, replicas, layer)
    low, high = layers / p * held.pace, layers * (layer + again) * (1 + HAIR)
    least = np.zeros(len(p))
    which = np.flatnonzero(held.layers(low) < layers * (1 - HAIR))
    if len(which):
        held, low, high = held.part(which), low[which], high[which]
        possible = held.layers(high) >= layers * (1 - HAIR)
        least[which] = np.where(possible, _bisected(held.layers, layers, low, high), np.inf)
    return least


def _bisected(held: Callable[[Floats], Floats], layers: int, low: Floats, high: Floats) -> Floats:
    """Return times between low and high in which fewer than all layers are held, near the least in which all are: more are held in more time."""
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        enough = held(middle) >= layers * (1 - HAIR)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return low


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """What the stages of rows hold in a time t, from above.

    A stage with n micro-batches in flight keeps l layers in l·(s + n·a) bytes, s their state and a what one keeps. In t it
    runs t/x, and recomputes at most (t - l·x)/y of them, so that l·(s + n·a) <= room + n·(a - c)·(t - l·x)/y, and never more
    than room/(s + n·c). From the last stage to the first n grows by `slope` a stage until it reaches `cap`. Each of the three
    is constant or convex in n, so that its sum over stages is at most its integral, half a stage further at both ends.
    """

    room: float  # less what ZeRO-3 gathers
    kept: float
    least: float  # c, or a where nothing saves
    saved: float  # (a - c)/y
    state: Floats
    pace: Floats
    first: Floats
    slope: Floats
    cap: Floats
    rising: Floats  # stages before the cap
    stages: Floats

    @classmethod
    def of(
        cls,
        problem: Problem,
        base: LayerStrategy,
        zero: int,
        p: Ints,
        v: Ints,
        batches: Ints,
        replicas: Ints,
        layer: Floats,
    ) -> "_Held":
        """Read it from the physics of a way to cut a layer."""
        m, b, all_again = problem.machine, base.bytes, base.recomputes == "all"
        state = stage_memory.gpu_state_bytes(
            m, base.shape, base.weights, layers=1, ends=0, zero_stage=zero, replicas=replicas
        )
        gathered = 2 * base.weights.layer * m.precision.working_parameter_bytes if zero >= 3 else 0.0
        kept = b.checkpoint if all_again else b.kept
        least = min(kept, b.checkpoint) if base.recomputes == "any" else kept
        one = np.ones(len(p))
        first, slope = np.where(v == 1, 1.0, ((v - 1) * p + 1) / v), np.where(v == 1, 1.0, 2 / v)
        cap = np.minimum(batches, p) if base.order == "zb-h1" else batches
        rising = (
            np.zeros(len(p)) if base.order == "zb-h1" else np.clip(np.floor((cap - first) / slope + 1e-9) + 1, 0, p)
        )
        return cls(
            room=max(0.0, problem.memory_limit - gathered),
            kept=kept,
            least=least,
            saved=(kept - least) / base.times.recompute_seconds,
            state=state * one,
            pace=layer + (base.times.recompute_seconds if all_again else 0.0),
            first=first,
            slope=slope,
            cap=cap * one,
            rising=rising,
            stages=p * one,
        )

    def part(self, which: Ints) -> "_Held":
        """Return what some of the rows hold."""
        parts: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        parts |= {name: x[which] for name, x in parts.items() if isinstance(x, np.ndarray)}
        return _Held(**parts)

    def layers(self, seconds: Floats) -> Floats:
        """Bound the layers that all stages hold in a time from above."""
        s, t = self.state, seconds
        whole = t / self.pace
        mixed = self.kept + self.saved * self.pace
        free = (self.room / whole - s) / self.kept  # most in flight with which all that the time allows is kept
        some = np.full_like(s, np.inf)
        if self.saved > 0:
            some = (self.room * (mixed - self.least) - self.saved * t * s) / (self.saved * t * self.least)
        k1 = self._stages_up_to(free)
        k2 = np.maximum(k1, self._stages_up_to(some))
        n1, n2, n3 = (self._in_flight(k) for k in (k1, k2, self.rising))
        part = self.saved * t / mixed
        partly = part * (k2 - k1) + (self.room - part * s) / (mixed * self.slope) * np.log(
            (s + mixed * n2) / (s + mixed * n1)
        )
        fully = self.room / (self.least * self.slope) * np.log((s + self.least * n3) / (s + self.least * n2))
        at_cap = np.minimum(
            (self.room + self.saved * self.cap * t) / (s + mixed * self.cap), self.room / (s + self.least * self.cap)
        )
        return np.asarray(
            k1 * whole + partly + fully + (self.stages - self.rising) * np.minimum(whole, at_cap), dtype=np.float64
        )

    def _stages_up_to(self, in_flight: Floats) -> Floats:
        return np.asarray(
            np.clip(np.floor((in_flight - self.first) / self.slope) + 1, 0, self.rising), dtype=np.float64
        )

    def _in_flight(self, stages: Floats) -> Floats:
        """Micro-batches in flight half a stage beyond so many stages."""
        return self.first + self.slope * (stages - 0.5)


def least_whole_stage(
    problem: Problem, base: LayerStrategy, zero: int, p: Ints, v: Ints, batches: Ints, replicas: Ints, layer: Floats
) -> Floats:
    """Return the least time of the largest stage with which memory holds all layers, whole ones; zero where even stages do or are large."""
    layers = problem.machine.model.layers
    even = -(-layers // p)
    least, which = np.zeros(len(p)), np.flatnonzero((-(-even // v) <= LARGE) & (even <= MOST))
    if not len(which):
        return least
    p, v, batches, replicas, layer = p[which], v[which], batches[which], replicas[which] + 0 * p[which], layer[which]
    held = _Whole(
        problem=problem,
        base=base,
        zero=zero,
        p=p,
        v=v,
        batches=batches,
        replicas=replicas,
        layer=layer,
        most=2 * int(even[which].max()),
    )
    unit = layer + (base.times.recompute_seconds if base.recomputes == "all" else 0.0)
    low, high = even[which] * unit, held.most * layer
    enough = held.layers(low) >= layers
    least[which] = np.where(enough, 0.0, _bisected(held.layers, layers, low, np.maximum(low, high)))
    return least


@dataclass(frozen=True, kw_only=True)
class _Whole:
    """What the stages of rows hold in a time, layer by layer, up to `most` of them: how many stages hold j layers, summed over j."""

    problem: Problem
    base: LayerStrategy
    zero: int
    p: Ints
    v: Ints
    batches: Ints
    replicas: Ints
    layer: Floats
    most: int

    @cached_property
    def rooms(self) -> tuple[Floats, Floats, Floats]:
        """Bytes that the last stage, those between and the first leave for j layers and what is in flight, j from 1."""
        j = np.arange(1, self.most + 1)[None, :]
        held = self._state(1, 0)[:, None] * j
        last, between, first = (self._room(ends)[:, None] - held for ends in ("last", "", "first"))
        return last, between, first

    def layers(self, seconds: Floats) -> Floats:
        """Count the layers that all stages hold in a time."""
        p, v, zb = self.p[:, None], self.v[:, None], self.base.order == "zb-h1"
        first, slope = np.where(v == 1, 1.0, ((v - 1) * p + 1) / v), np.where(v == 1, 1.0, 2 / v)
        cap = np.minimum(self.batches[:, None], p) if zb else self.batches[:, None] * 1.0
        if zb:
            first = cap
        last, middle, front = self._in_flight(seconds)
        held = (np.minimum(first, cap) <= last).astype(np.float64)
        held += (p > 1) & (np.minimum(first + slope * (p - 1), cap) <= front)
        inner = np.where(middle >= cap, p - 2.0, np.clip(np.floor((middle - first) / slope), 0, np.maximum(p - 2.0, 0)))
        held += np.where(p > 2, np.maximum(inner, 0.0), 0.0)
        return np.asarray(held.sum(axis=1))

    def _in_flight(self, seconds: Floats) -> list[Floats]:
        """Most micro-batches in flight that leave each of the rooms for j layers in a time; below zero where not even none do."""
        x, y, b, v = self.layer[:, None], self.base.times.recompute_seconds, self.base.bytes, self.v[:, None]
        j = np.arange(1, self.most + 1)[None, :]
        chunks = np.ceil(j / v) * v
        again = np.clip(np.floor((seconds[:, None] * (1 + HAIR) - j * x) / y), -1, j)
        kept, some = chunks * b.kept, chunks * (b.kept + np.maximum(again, 0) / j * (b.checkpoint - b.kept))
        if self.base.recomputes == "all":
            return [np.where(again >= j, (room - b.in_work) / some, -1.0) * (1 + HAIR) for room in self.rooms]
        found = [np.where(again >= 0, room / kept, -1.0) for room in self.rooms]
        if self.base.recomputes == "any":
            found = [
                np.where(again > 0, np.maximum(n, (room - b.in_work) / some), n)
                for n, room in zip(found, self.rooms, strict=True)
            ]
        return [n * (1 + HAIR) for n in found]

    def _room(self, ends: str) -> Floats:
        m, s = self.problem.machine, self.base.shape
        number = np.zeros(len(self.p), dtype=np.int64)
        if ends:
            number = memory.end_copies(m.model, np.where(ends == "last", self.p - 1, 0), self.p)
        room = (
            self.problem.memory_limit - np.stack([self._state(0, n) for n in range(3)])[number, np.arange(len(self.p))]
        )
        if self.zero >= 3:
            room = room - 2 * self.base.weights.layer * m.precision.working_parameter_bytes
        if ends == "last":
            room = room - memory.logits_bytes(
                m.model,
                m.sequence,
                s.micro_batch,
                s.tensor_parallel,
                context_parallel=s.context_parallel,
                logit_bytes=m.software.logit_memory_bytes,
            )
        return np.asarray(room, dtype=np.float64)

    def _state(self, layers: int, ends: int) -> Floats:
        m, base = self.problem.machine, self.base
        held = stage_memory.gpu_state_bytes(
            m, base.shape, base.weights, layers=layers, ends=ends, zero_stage=self.zero, replicas=self.replicas
        )
        return np.asarray(held * np.ones(len(self.p)))
