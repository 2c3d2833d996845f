"""The candidate columns of the declared space, and how their replicas pack into racks.

A column is a layer strategy with a ZeRO stage, a number of pipeline stages and of virtual stages, and whether
micro-batches fill the pipeline (m >= p) or not. Free within a column: replicas by site, the number of micro-batches,
and the layers of every stage with how many of them are recomputed.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.models.layout.data import LayerStrategy, Problem
from planner.physics.training import schedule
from planner.physics.training.blocks.rack_blocks import racks_per_replica

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One candidate column with a lower bound in seconds per sequence."""

    layer_strategy: LayerStrategy
    zero_stage: int
    pipeline: int
    virtual_stages: int
    filled: bool
    stages_per_rack: int
    replicas_per_rack: int
    racks_per_replica: int
    bound: float

    @property
    def send_seconds(self) -> float:
        """Seconds of one pipeline send: inside the rack where one rack holds all stages."""
        if self.pipeline == 1:
            return 0.0
        inside = self.stages_per_rack >= self.pipeline
        return self.layer_strategy.send_inside_rack if inside else self.layer_strategy.send_between_racks

    def effective_micro_batches(self, micro_batches: Any) -> Any:
        """Count micro-batches with what uneven rounds of interleaving lose."""
        return schedule.effective_micro_batches(micro_batches, self.pipeline, self.virtual_stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTable:
    """Columns that may hold the model, as arrays in order of their bounds, and how many each argument excluded."""

    problem: Problem
    layer_strategies: list[LayerStrategy]
    strategy_index: Ints
    zero_stage: Ints
    pipeline: Ints
    virtual_stages: Ints
    filled: Flags
    bound: Floats
    without_replicas: int
    over_memory: int

    def __len__(self) -> int:
        return len(self.bound)

    def select(self, which: Flags | Ints) -> "ColumnTable":
        """Return the table of some of the columns."""
        names = ("strategy_index", "zero_stage", "pipeline", "virtual_stages", "filled", "bound")
        return replace(self, **{name: getattr(self, name)[which] for name in names})

    def strategy_at(self, i: int) -> tuple[LayerStrategy, int]:
        """Return the layer strategy and the ZeRO stage of column i."""
        return self.layer_strategies[self.strategy_index[i]], int(self.zero_stage[i])

    def column(self, i: int, bound: float) -> Column:
        """Return column i with a sharpened bound."""
        (strategy, zero_stage), p = self.strategy_at(i), int(self.pipeline[i])
        stages, replicas, racks = packing(self.problem, strategy, np.array(p))
        return Column(
            layer_strategy=strategy,
            zero_stage=zero_stage,
            pipeline=p,
            virtual_stages=int(self.virtual_stages[i]),
            filled=bool(self.filled[i]),
            stages_per_rack=int(stages),
            replicas_per_rack=int(replicas),
            racks_per_replica=racks,
            bound=bound,
        )


def packing(problem: Problem, strategy: LayerStrategy, p: Any) -> tuple[Any, Any, int]:
    """Return the stages in a rack, the replicas of a stage in a rack, and the racks of one replica's stage."""
    gpus, unit = problem.machine.rack.gpus, strategy.shape.gpus
    q = np.minimum(p, max(1, gpus // unit)) if strategy.packed else np.ones_like(p)
    pinned_stages, pinned_replicas = problem.pin("stages_per_rack"), problem.pin("replicas_per_rack")
    q = q if pinned_stages is None else np.full_like(p, pinned_stages)
    r = np.maximum(1, gpus // (q * unit))
    r = r if pinned_replicas is None else np.full_like(r, pinned_replicas)
    return q, r, racks_per_replica(gpus, strategy.shape.tensor_parallel, strategy.shape.context_parallel)


def max_replicas_by_site(problem: Problem, strategy: LayerStrategy, p: Any) -> Any:
    """Return the most replicas at each site; shape (sites, ...).

    A rack carries q stages of r replicas, so every ceil(p/q) racks carry r replicas.
    """
    q, r, racks_per_stage = packing(problem, strategy, np.asarray(p))
    groups = -(-np.asarray(p) // q) * racks_per_stage
    fits = q * r * strategy.shape.gpus <= problem.machine.rack.gpus * racks_per_stage
    return np.stack([np.where(fits, r * (racks // groups), 0) for racks in problem.racks])


def max_replicas(problem: Problem, strategy: LayerStrategy, p: Any) -> Any:
    """Return the most replicas of all sites together; shape of p."""
    total = max_replicas_by_site(problem, strategy, p).sum(axis=0)
    if problem.racks_in_all is None:
        return total
    one_site = replace(problem, sites=("all",), racks=(problem.racks_in_all,))
    return np.minimum(total, max_replicas_by_site(one_site, strategy, p)[0])


def max_counts(problem: Problem, strategy: LayerStrategy, p: Ints, filled: Flags) -> tuple[Ints, Floats]:
    """Return the most replicas and micro-batches of columns (infinite where micro-batches fill the pipeline)."""
    most = problem.max_sequences // strategy.shape.micro_batch
    replicas = np.minimum(max_replicas(problem, strategy, p), np.where(filled, most // p, most))
    return replicas, np.where(filled, np.inf, np.minimum(p - 1, most))


def declared_columns(problem: Problem, strategies: list[LayerStrategy]) -> int:
    """Count the columns of some layer strategies."""
    return sum(len(pipelines(problem, s)[0]) for s in strategies) * len(problem.options("zero_stage", range(4)))


def pipelines(problem: Problem, strategy: LayerStrategy) -> tuple[Ints, Ints, Flags]:
    """Return the pipelines of a layer strategy: stages, virtual stages, and whether micro-batches fill them."""
    layers, pinned = problem.machine.model.layers, problem.pin("layers_per_stage")
    stages = tuple(problem.options("pipeline_parallel", range(1, layers + 1) if pinned is None else [len(pinned)]))
    smallest = layers if pinned is None else min(pinned)
    interleaved = strategy.schedule == "1f1b"
    return _pipelines(stages, layers, smallest, problem.pin("virtual_stages"), strategy.packed, interleaved)


@lru_cache(maxsize=64)  # as many as there are distinct arguments in one search: few pins, packed or not, two schedules
def _pipelines(
    stages: tuple[int, ...], layers: int, smallest: int, pinned: int | None, packed: bool, interleaved: bool
) -> tuple[Ints, Ints, Flags]:
    several = [p for p in stages if p > 1 or not packed]
    # A stage has at least one layer for each of its virtual stages.
    most = [min(layers // p, smallest) if p > 1 and interleaved else 1 for p in several]
    full = [(p, v, True) for p, n in zip(several, most, strict=True) for v in range(1, n + 1) if pinned in (None, v)]
    partial = [(p, v, False) for p, v, _ in full if p > 1 and v == 1]
    table = np.array(full + partial, dtype=np.int64).reshape(-1, 3)
    arrays = table[:, 0].copy(), table[:, 1].copy(), table[:, 2] > 0
    for array in arrays:
        array.flags.writeable = False
    return arrays
