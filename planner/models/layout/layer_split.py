"""How a column's layers are split over its stages: what memory and a time budget allow each, and the fastest split.

A stage of l layers, r of them recomputed, takes S = l·x + r·y for a micro-batch. For a budget S it recomputes as many
as the budget allows, or none, whichever needs less memory; what then fits is its cap, and the caps of all stages must
reach the model's layers. Both grow with the budget, so the least budget is found by bisection.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from planner.models.layout.columns import Column, Flags, Floats, Ints
from planner.models.layout.data import Problem
from planner.physics.training import memory, schedule, stage_memory

EPS = 1e-12  # relative: budgets are sums of the same two floats in another order


@lru_cache(maxsize=32)  # the candidates of a column share their layer times, so few arguments recur at a time
def _stage_times(layer: float, recompute: float, max_layers: int, low: float, high: float) -> Floats:
    """List in order every time between low and high of a stage of up to so many layers, any of them recomputed."""
    n, r = np.arange(1, max_layers + 1)[:, None], np.arange(max_layers + 1)[None, :]
    sums = n * layer + r * recompute
    return np.unique(sums[(r <= n) & (sums >= low) & (sums <= high)])


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The stages of a column with a number of shards and of micro-batches; `layer_seconds` is x."""

    problem: Problem
    column: Column
    shards: int
    micro_batches: int
    layer_seconds: float
    max_layers: int
    max_seconds: float = math.inf  # that a stage may take

    @property
    def min_layers(self) -> int:
        """Least layers of a stage: one for each virtual stage."""
        return self.column.virtual_stages

    @property
    def recompute_seconds(self) -> float:
        """Seconds that recomputing one layer adds."""
        return self.column.layer_strategy.times.recompute_seconds

    @property
    def recomputes(self) -> str:
        """How many layers full recompute may cover: "none", "any" or "all"."""
        return self.column.layer_strategy.recomputes

    @property
    def total_layers(self) -> int:
        """Layers of the model."""
        return self.problem.machine.model.layers

    @cached_property
    def chunks_in_flight(self) -> Ints:
        """Chunks in flight on each stage."""
        p, v, order = self.column.pipeline, self.column.virtual_stages, self.column.layer_strategy.schedule
        chunks = schedule.chunks_in_flight(order, np.arange(p), p, v, self.micro_batches)
        return np.broadcast_to(np.asarray(chunks), (p,)).astype(np.int64)

    @cached_property
    def layer_state_bytes(self) -> float:
        """Bytes of state of one layer."""
        return self._state(1, 0)

    @cached_property
    def capacity_bytes(self) -> Floats:
        """Bytes that each stage has for its layers, beside embeddings, logits and what ZeRO-3 gathers."""
        m, strategy, p = self.problem.machine, self.column.layer_strategy, self.column.pipeline
        ends = memory.end_copies(m.model, np.arange(p), p)
        state = np.array([self._state(0, int(n)) for n in range(3)])[ends]
        sharded = self.column.zero_stage >= 3
        gathered = 2 * strategy.weights.layer * m.precision.working_parameter_bytes if sharded else 0.0
        capacity = np.asarray(self.problem.memory_limit - state - gathered, dtype=np.float64)
        capacity[-1] -= memory.logits_bytes(
            m.model,
            m.sequence,
            strategy.shape.micro_batch,
            strategy.shape.tensor_parallel,
            context_parallel=strategy.shape.context_parallel,
            logit_bytes=m.software.logit_memory_bytes,
        )
        return capacity

    def _state(self, layers: int, ends: int) -> float:
        m, strategy, zero_stage = self.problem.machine, self.column.layer_strategy, self.column.zero_stage
        state = stage_memory.gpu_state_bytes(
            m, strategy.shape, strategy.weights, layers=layers, ends=ends, zero_stage=zero_stage, replicas=self.shards
        )
        return float(state)

    def max_in_flight(self, layers: Any, recomputed: Any, capacity: Any) -> Any:
        """Return the most chunks in flight beside so many layers, some recomputed; negative where not even none fit."""
        b, v = self.column.layer_strategy.bytes, self.column.virtual_stages
        chunk = np.ceil(layers / v) * (b.kept + recomputed / np.maximum(layers, 1) * (b.checkpoint - b.kept))
        free = capacity - self.layer_state_bytes * layers - np.where(recomputed > 0, b.in_work, 0.0)
        return free / np.maximum(chunk, 1e-9)

    @cached_property
    def sizes(self) -> Ints:
        """Numbers of layers that a stage may have."""
        return np.arange(1, self.max_layers + 1)

    @cached_property
    def fits_without_recompute(self) -> Flags:
        """Whether each size fits each stage with nothing recomputed; shape (stages, sizes)."""
        capacity = self.capacity_bytes[:, None]
        in_flight = self.max_in_flight(self.sizes[None, :], 0, capacity)
        return np.asarray((in_flight >= self.chunks_in_flight[:, None]) & (capacity >= 0))

    def _max_recomputed(self, budget: float) -> Ints:
        """Return the most layers that a stage of each size can recompute within a budget; negative if none fit."""
        if self.recomputes == "none":
            return np.where(self.sizes * self.layer_seconds <= budget * (1 + EPS), 0, -1)
        left = np.floor((budget * (1 + EPS) - self.sizes * self.layer_seconds) / self.recompute_seconds)
        if self.recomputes == "all":
            return np.where(left >= self.sizes, self.sizes, -1)
        return np.where(left >= 0, np.minimum(left, self.sizes), -1).astype(np.int64)

    def caps(self, budget: float) -> Ints:
        """Return the most layers of each stage within a time budget and its memory; shape (stages,)."""
        recomputed = self._max_recomputed(budget)
        capacity, fits = self.capacity_bytes[:, None], self.fits_without_recompute
        if self.recomputes == "all":
            fits = np.zeros_like(fits)
        if self.recomputes != "none":
            in_flight = self.max_in_flight(self.sizes[None, :], recomputed[None, :], capacity)
            fits = fits | ((in_flight >= self.chunks_in_flight[:, None]) & (recomputed[None, :] > 0) & (capacity >= 0))
        fits = fits & (recomputed >= 0)[None, :]
        # A size counts only where all smaller ones fit too, so that any size up to the cap does.
        return np.asarray(np.cumprod(fits, axis=1).sum(axis=1)).astype(np.int64)

    def min_recomputed(self, layers: int, stage: int) -> int | None:
        """Return the fewest layers that a stage of so many must recompute; None where it cannot fit."""
        if layers > self.max_layers or self.capacity_bytes[stage] < 0:
            return None
        if self.recomputes != "all" and self.fits_without_recompute[stage, layers - 1]:
            return 0
        if self.recomputes == "none":
            return None
        numbers = np.arange(1, layers + 1) if self.recomputes == "any" else np.array([layers])
        in_flight = self.max_in_flight(layers, numbers, self.capacity_bytes[stage])
        fits = np.flatnonzero(in_flight >= self.chunks_in_flight[stage])
        return int(numbers[fits[0]]) if len(fits) else None

    def seconds(self, layers: int, stage: int) -> float:
        """Return the least time of a stage of so many layers; infinite where it cannot fit."""
        recomputed = self.min_recomputed(layers, stage)
        return math.inf if recomputed is None else layers * self.layer_seconds + recomputed * self.recompute_seconds

    @cached_property
    def budgets(self) -> Floats:
        """Every time that the largest stage could take, in order: sums of its layers and of those recomputed."""
        p, x, y = self.column.pipeline, self.layer_seconds, self.recompute_seconds
        even = math.ceil(self.total_layers / p)
        low = even * (x + self.column.layer_strategy.pinned_recompute_seconds) * (1 - EPS)
        if self.recomputes == "all":
            budgets = self.sizes * (x + y)
        elif self.recomputes == "none" or bool(self.fits_without_recompute.all()):
            budgets = self.sizes * x
        else:
            budgets = _stage_times(x, y, self.total_layers - (p - 1) * self.min_layers, low, self.max_seconds)
        return np.asarray(budgets[(budgets >= low) & (budgets <= self.max_seconds)])

    def fits(self, budget: float) -> bool:
        """Return whether all layers fit on the stages within a budget."""
        caps = self.caps(budget)
        return bool(caps.min() >= self.min_layers and caps.sum() >= self.total_layers)

    @cached_property
    def feasible(self) -> bool:
        """Whether all layers fit on the stages, however long they take."""
        return self.fits(self.max_layers * (self.layer_seconds + self.recompute_seconds))

    @cached_property
    def first_budget(self) -> int | None:
        """Index of the least budget in which all layers fit; None where they fit in none."""
        low, high = 0, len(self.budgets)
        if not high or not self.fits(float(self.budgets[-1])):
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fits(float(self.budgets[middle])) else (middle + 1, high)
        return low

    def next_budget(self, i: int) -> int:
        """Return the index of the next budget in which more layers fit than in budget i; the end's if there is none."""

        def total_cap(index: int) -> int:
            return int(self.caps(float(self.budgets[index])).sum())

        cap, stride, low, high = total_cap(i), 1, i, len(self.budgets)
        while low + stride < high:
            if total_cap(low + stride) > cap:
                high = low + stride
                break
            low, stride = low + stride, stride * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if total_cap(middle) > cap else (middle, high)
        return high

    def split_layers(self, budget: float, slowest: float, largest: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the layers of every stage within the caps, none above `largest`, and how many of them each recomputes.

        Layers above the model's are taken off the largest stages, the first of these first.
        """
        sizes = np.minimum(self.caps(budget), largest)
        sizes[-1] = min(sizes[-1], self._last_cap(budget, slowest))
        excess = int(sizes.sum()) - self.total_layers
        while excess > 0:
            top = sizes[:-1].max() if len(sizes) > 1 and sizes[:-1].max() > self.min_layers else sizes[-1]
            for i in range(len(sizes)):
                if excess and sizes[i] == top and sizes[i] > self.min_layers:
                    sizes[i] -= 1
                    excess -= 1
        layers = tuple(int(x) for x in sizes)
        return layers, tuple(self.min_recomputed(n, i) or 0 for i, n in enumerate(layers))

    def _last_cap(self, budget: float, slowest: float) -> int:
        """Return the most layers of the last stage within the budget and, with the head, the slowest stage's time."""
        return int(self.caps(min(budget, slowest - self.column.layer_strategy.head_seconds))[-1])

    def min_largest(self, budget: float, slowest: float) -> int | None:
        """Return the least size of the largest stage with which all layers fit; None where they do not."""
        caps = self.caps(budget)
        caps[-1] = min(caps[-1], self._last_cap(budget, slowest))
        if caps.min() < self.min_layers or caps.sum() < self.total_layers:
            return None
        low, high = math.ceil(self.total_layers / self.column.pipeline), int(caps.max())
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if np.minimum(caps, middle).sum() >= self.total_layers else (middle + 1, high)
        return low
