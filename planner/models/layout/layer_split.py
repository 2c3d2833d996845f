"""How a row's layers fall on its stages: what memory and a time budget leave each, and the fastest split.

A stage that holds l layers and recomputes r of them whole takes S = l·x + r·y a micro-batch. For a budget S it recomputes
as many as the budget leaves, or none, whichever needs less memory; what then fits is its cap, and the caps of all stages
must reach the model's layers. Both grow with the budget, so the least budget is found by bisection.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.models.layout.columns import Floats, Ints, Row
from planner.models.layout.data import Problem
from planner.physics.training import memory, schedule, stage_memory

HAIR = 1e-12  # relative: budgets are sums of the same two floats in another order


@lru_cache(maxsize=32)
def _sums(layer: float, again: float, most: int, low: float, high: float) -> Floats:
    """List every time between two of a stage of up to so many layers, any of them recomputed, in order."""
    n, r = np.arange(1, most + 1)[:, None], np.arange(most + 1)[None, :]
    sums = n * layer + r * again
    return np.unique(sums[(r <= n) & (sums >= low) & (sums <= high)])


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The stages of a row at a number of shards and of micro-batches; `layer` is x."""

    problem: Problem
    row: Row
    replicas: int
    batches: int
    layer: float
    most_layers: int
    most_seconds: float = math.inf  # that a stage may take

    @property
    def least(self) -> int:
        """Fewest layers of a stage: one a virtual stage."""
        return self.row.virtual_stages

    @property
    def again(self) -> float:
        """Time that recomputing one layer adds."""
        return self.row.base.times.recompute_seconds

    @cached_property
    def chunks(self) -> Ints:
        """Chunks in flight on each stage."""
        p, v = self.row.pipeline, self.row.virtual_stages
        found = schedule.chunks_in_flight(self.row.base.order, np.arange(p), p, v, self.batches)
        return np.broadcast_to(np.asarray(found), (p,)).astype(np.int64)

    @cached_property
    def layer_state(self) -> float:
        """Bytes of state of one layer."""
        return self._state(1, 0)

    @cached_property
    def room(self) -> Floats:
        """Bytes that each stage has for its layers, beside embeddings, logits and what ZeRO-3 gathers."""
        m, base, p = self.problem.machine, self.row.base, self.row.pipeline
        ends = memory.end_copies(m.model, np.arange(p), p)
        state = np.array([self._state(0, int(n)) for n in range(3)])[ends]
        gathered = 2 * base.weights.layer * m.precision.working_parameter_bytes if self.row.zero >= 3 else 0.0
        room = np.asarray(self.problem.memory_limit - state - gathered, dtype=np.float64)
        room[-1] -= memory.logits_bytes(
            m.model,
            m.sequence,
            base.shape.micro_batch,
            base.shape.tensor_parallel,
            context_parallel=base.shape.context_parallel,
            logit_bytes=m.software.logit_memory_bytes,
        )
        return room

    def _state(self, layers: int, ends: int) -> float:
        m, base = self.problem.machine, self.row.base
        found = stage_memory.gpu_state_bytes(
            m, base.shape, base.weights, layers=layers, ends=ends, zero_stage=self.row.zero, replicas=self.replicas
        )
        return float(found)

    def most_in_flight(self, layers: Any, recomputed: Any, room: Any) -> Any:
        """Most chunks in flight that leave room for so many layers, `recomputed` of them whole; below zero where not even none do."""
        b, v = self.row.base.bytes, self.row.virtual_stages
        chunk = np.ceil(layers / v) * (b.kept + recomputed / np.maximum(layers, 1) * (b.checkpoint - b.kept))
        left = room - self.layer_state * layers - np.where(recomputed > 0, b.in_work, 0.0)
        return left / np.maximum(chunk, 1e-9)

    @cached_property
    def numbers(self) -> Ints:
        """Numbers of layers that a stage may hold."""
        return np.arange(1, self.most_layers + 1)

    @cached_property
    def fits_kept(self) -> NDArray[np.bool_]:
        """Whether each stage holds each number of layers with nothing recomputed; shape (stages, numbers)."""
        in_flight = self.most_in_flight(self.numbers[None, :], 0, self.room[:, None])
        return np.asarray((in_flight >= self.chunks[:, None]) & (self.room[:, None] >= 0))

    def _recomputed(self, budget: float) -> Ints:
        """Most layers that a stage of each size can recompute within a budget; below zero where the budget is too small for the layers."""
        if self.row.base.recomputes == "none":
            return np.where(self.numbers * self.layer <= budget * (1 + HAIR), 0, -1)
        left = np.floor((budget * (1 + HAIR) - self.numbers * self.layer) / self.again)
        if self.row.base.recomputes == "all":
            return np.where(left >= self.numbers, self.numbers, -1)
        return np.where(left >= 0, np.minimum(left, self.numbers), -1).astype(np.int64)

    def caps(self, budget: float) -> Ints:
        """Most layers that each stage can hold within a budget of time and its memory; shape (stages,)."""
        again = self._recomputed(budget)
        fits = self.fits_kept if self.row.base.recomputes != "all" else np.zeros_like(self.fits_kept)
        if self.row.base.recomputes != "none":
            in_flight = self.most_in_flight(self.numbers[None, :], again[None, :], self.room[:, None])
            fits = fits | ((in_flight >= self.chunks[:, None]) & (again[None, :] > 0) & (self.room[:, None] >= 0))
        fits = fits & (again >= 0)[None, :]
        # A size counts only where all smaller ones fit too, so that any size up to the cap does.
        return np.asarray(np.cumprod(fits, axis=1).sum(axis=1)).astype(np.int64)

    def fewest_recomputed(self, layers: int, stage: int) -> int | None:
        """Fewest layers that a stage must recompute to hold so many; None where it cannot."""
        if layers > self.most_layers or self.room[stage] < 0:
            return None
        if self.row.base.recomputes != "all" and self.fits_kept[stage, layers - 1]:
            return 0
        if self.row.base.recomputes == "none":
            return None
        tries = np.arange(1, layers + 1) if self.row.base.recomputes == "any" else np.array([layers])
        found = np.flatnonzero(self.most_in_flight(layers, tries, self.room[stage]) >= self.chunks[stage])
        return int(tries[found[0]]) if len(found) else None

    def seconds(self, layers: int, stage: int) -> float:
        """Least time of a stage that holds so many layers; infinite where it cannot."""
        again = self.fewest_recomputed(layers, stage)
        return math.inf if again is None else layers * self.layer + again * self.again

    @cached_property
    def budgets(self) -> Floats:
        """Every budget that could be the largest stage's, in order: sums of its layers and of those recomputed."""
        total, p = self.problem.machine.model.layers, self.row.pipeline
        even = math.ceil(total / p)
        n = self.numbers
        least = even * (self.layer + (self.again if self.row.base.recomputes == "all" else 0.0)) * (1 - HAIR)
        if self.row.base.recomputes == "all":
            found = n * (self.layer + self.again)
        elif self.row.base.recomputes == "none" or bool(self.fits_kept.all()):
            found = n * self.layer
        else:
            found = _sums(self.layer, self.again, total - (p - 1) * self.row.virtual_stages, least, self.most_seconds)
        return np.asarray(found[(found >= least) & (found <= self.most_seconds)])

    def holds(self, budget: float) -> bool:
        """Tell whether the stages hold all layers within a budget."""
        caps = self.caps(budget)
        return bool(caps.min() >= self.least and caps.sum() >= self.problem.machine.model.layers)

    @cached_property
    def feasible(self) -> bool:
        """Whether the stages hold all layers, however long they take."""
        return self.holds(self.most_layers * (self.layer + self.again))

    @cached_property
    def first_budget(self) -> int | None:
        """Index of the least budget that holds all layers; None where none does."""
        low, high = 0, len(self.budgets)
        if not high or not self.holds(float(self.budgets[-1])):
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.holds(float(self.budgets[middle])) else (middle + 1, high)
        return low

    def next_budget(self, i: int) -> int:
        """Index of the next budget that lets a stage hold more than budget i does; that of the end where none does."""
        held, step = int(self.caps(float(self.budgets[i])).sum()), 1
        low, high = i, len(self.budgets)
        while low + step < high:
            if int(self.caps(float(self.budgets[low + step])).sum()) > held:
                high = low + step
                break
            low, step = low + step, step * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if int(self.caps(float(self.budgets[middle])).sum()) > held else (middle, high)
        return high

    def spread(self, budget: float, pace: float, most: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Spread the layers within caps, no stage over `most`, and say how many each must recompute; the first stages are relieved first."""
        held = np.minimum(self.caps(budget), most)
        held[-1] = min(held[-1], self.last_within(budget, pace))
        over = int(held.sum()) - self.problem.machine.model.layers
        while over > 0:
            top = held[:-1].max() if len(held) > 1 and held[:-1].max() > self.least else held[-1]
            for i in range(len(held)):
                if over and held[i] == top and held[i] > self.least:
                    held[i] -= 1
                    over -= 1
        layers = tuple(int(x) for x in held)
        return layers, tuple(self.fewest_recomputed(n, i) or 0 for i, n in enumerate(layers))

    def last_within(self, budget: float, pace: float) -> int:
        """Most layers of the last stage within the budget and, with the head, within the pace."""
        return int(self.caps(min(budget, pace - self.row.base.head))[-1])

    def size_needed(self, budget: float, pace: float) -> int | None:
        """Least size of the largest stage with which all layers are held; None where they are not."""
        caps = self.caps(budget)
        caps[-1] = min(caps[-1], self.last_within(budget, pace))
        total = self.problem.machine.model.layers
        if caps.min() < self.least or caps.sum() < total:
            return None
        low, high = math.ceil(total / self.row.pipeline), int(caps.max())
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if np.minimum(caps, middle).sum() >= total else (middle + 1, high)
        return low
