"""Why this layout: the best one with each choice made otherwise, and what would make an infeasible problem feasible.

A runner-up is found by the same search over the columns that differ from the layout in one choice, all other choices
free to adapt; both are therefore optima, and the difference is what the choice is worth.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.instance.instance import Instance
from planner.models.layout.best_first import SearchResult, search
from planner.models.layout.bounds import column_table
from planner.models.layout.columns import ColumnTable, Flags, max_replicas_by_site
from planner.models.layout.data import LayerStrategy, Problem, list_layer_strategies, problem_of
from planner.models.requests import LayoutRequest, Options
from planner.physics.training import stage_memory
from planner.physics.training.blocks import prediction
from planner.physics.training.memory import RECOMPUTE_MODES
from planner.physics.training.parallel_strategy import LAYOUT_KEYS, ParallelStrategy
from planner.solvers.outcome import Stop

MAX_RELAXATION = 4096  # times a limit: where even that leaves no layout, the limit is no relief
MEMORY_PRECISION = 1e-3  # relative; of the smallest memory, finer than GPUs are sold
TIME_LIMIT = 20.0  # seconds for the best with one choice made otherwise, where none is given: answers while one waits

LAYER_STRATEGY_CHOICES: dict[str, Callable[[LayerStrategy], Any]] = {
    "tensor_parallel": lambda s: s.shape.tensor_parallel,
    "tensor_parallel_inner": lambda s: s.shape.tensor_inner,
    "context_parallel": lambda s: s.shape.context_parallel,
    "expert_parallel": lambda s: s.shape.expert_parallel,
    "microbatch_sequences": lambda s: s.shape.micro_batch,
    "sequence_parallel": lambda s: s.shape.sequence_parallel,
    "schedule": lambda s: s.schedule,
}
COLUMN_CHOICES = {"pipeline_parallel": "pipeline", "virtual_stages": "virtual_stages", "zero_stage": "zero_stage"}
CHOICES = (*LAYER_STRATEGY_CHOICES, *COLUMN_CHOICES, "recompute")
FIELDS = {key: name for name, key in LAYOUT_KEYS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """The best layout with one choice at another value, against the best of all."""

    choice: str
    best_value: Any  # in the best layout
    value: Any
    seconds_per_sequence: float
    loss: float  # over the best layout's seconds per sequence; 0.11: 11 % slower
    grown: str  # the part of the step that grew most
    also: dict[str, tuple[Any, Any]]  # other choices that changed with it, from and to
    proved: bool  # no layout with the choice made otherwise is faster


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """A limit that, changed alone, lets a layout exist; verified by searching with it."""

    limit: str
    now: float
    needed: float
    unit: str


def runners_up(instance: Instance, request: LayoutRequest, options: Options) -> list[RunnerUp]:
    """Return for each free choice the best layout with another value of it, the least loss first.

    A time limit holds for each of the searches; what it keeps from being proven is marked.
    """
    problem, limit = problem_of(instance, request), options.time_limit or TIME_LIMIT
    table = column_table(problem)
    best = search(problem, time_limit=options.time_limit, table=table).best
    if best is None:
        return []
    runners = []
    for choice in CHOICES:
        if problem.pin(choice) is not None:
            continue
        other = _search_without(problem, table, choice, _value(best.strategy, choice), limit)
        if other is not None and other.best is not None:
            runners.append(_compare(problem, choice, best.strategy, other))
    return sorted(runners, key=lambda x: x.loss)


def _value(strategy: ParallelStrategy, choice: str) -> Any:
    """Return the value of a choice in a layout."""
    return getattr(strategy, FIELDS.get(choice, choice))


def _search_without(
    problem: Problem, table: ColumnTable, choice: str, value: Any, time_limit: float | None
) -> SearchResult | None:
    """Search the space without one value of a choice; None where there is no other."""
    if choice == "recompute":
        return _search_other_recompute(problem, value, time_limit)
    kept: Flags
    if choice in LAYER_STRATEGY_CHOICES:
        values = [LAYER_STRATEGY_CHOICES[choice](s) for s in table.layer_strategies]
        kept = np.array([v != value for v in values], dtype=bool)[table.strategy_index]
    else:
        kept = np.asarray(getattr(table, COLUMN_CHOICES[choice]) != value)
    return search(problem, time_limit=time_limit, table=table.select(kept)) if kept.any() else None


def _search_other_recompute(problem: Problem, mode: str, time_limit: float | None) -> SearchResult | None:
    """Search with each other recompute mode pinned and return the best (full: all layers of every stage)."""
    if problem.pin("recomputed_layers_per_stage") is not None:
        return None
    software = problem.machine.software
    same_as_none = software.flash_attention and software.selective_gemm_share == 0
    modes = [m for m in RECOMPUTE_MODES if m != mode and not (same_as_none and m == "selective")]
    pinned = [replace(problem, pins={**problem.pins, "layout.recompute": m}) for m in modes]
    results = [search(p, time_limit=time_limit) for p in pinned]
    if all(r.best is None for r in results):
        return None
    best = min(results, key=lambda r: r.best.seconds if r.best else math.inf)
    return replace(best, stop=Stop.PROVED if all(r.stop is Stop.PROVED for r in results) else Stop.LIMIT)


def _compare(problem: Problem, choice: str, best: ParallelStrategy, other: SearchResult) -> RunnerUp:
    """Return what a runner-up loses, and where."""
    if other.best is None:
        raise ValueError("a runner-up is a layout")
    strategy = other.best.strategy
    before, after = _parts_per_sequence(problem, best), _parts_per_sequence(problem, strategy)
    changed = [c for c in CHOICES if c != choice and _value(strategy, c) != _value(best, c)]
    return RunnerUp(
        choice=choice,
        best_value=_value(best, choice),
        value=_value(strategy, choice),
        seconds_per_sequence=other.best.seconds,
        loss=other.best.seconds / math.fsum(before.values()) - 1,
        grown=max(sorted(after), key=lambda part: after[part] - before.get(part, 0.0)),
        also={c: (_value(best, c), _value(strategy, c)) for c in changed},
        proved=other.stop is Stop.PROVED,
    )


def _parts_per_sequence(problem: Problem, strategy: ParallelStrategy) -> dict[str, float]:
    """Return the seconds of a sequence by part of the step."""
    sequences = strategy.data_parallel * strategy.micro_batches * strategy.micro_batch
    parts = prediction.step_breakdown(problem.machine, problem.conditions, strategy)
    return {k: v / sequences for k, v in parts.items()}


def relief(instance: Instance, request: LayoutRequest) -> list[Relief]:
    """Return what would make an infeasible problem feasible: memory, batch or racks, each changed alone and least.

    Each is verified by the layout that the search finds with it; empty where the problem is feasible, or where no
    single one helps.
    """
    problem = problem_of(instance, request)
    if _any_layout(problem) is not None:
        return []
    reliefs = (_more_memory(problem), _more_batch(problem), _more_racks(problem))
    return [x for x in reliefs if x is not None]


def _any_layout(problem: Problem) -> ParallelStrategy | None:
    """Return any layout."""
    best = search(problem, time_limit=0.0).best
    return None if best is None else best.strategy


def _more_memory(problem: Problem) -> Relief | None:
    """Find the least memory of a GPU, by bisection between too little and what a layout is known to need."""

    def used_with(limit: float) -> float | None:
        """Return the memory of a layout under a limit."""
        strategy = _any_layout(replace(problem, memory_limit=limit))
        return None if strategy is None else sum(stage_memory.worst_memory(problem.machine, strategy).values())

    low, most = max(problem.memory_limit, 0.0), MAX_RELAXATION * problem.machine.gpu.hbm_bytes
    used = used_with(most)
    if used is None:
        return None
    smallest = min_memory_bytes(problem)
    high = min(most, (used_with(smallest) if low < smallest < most else None) or used)
    while high > low * (1 + MEMORY_PRECISION) + 1.0:
        middle = (low + high) / 2
        used = used_with(middle)
        low, high = (middle, high) if used is None else (low, min(middle, used))
    needed = math.ceil(high / 1e7) / 1e2
    return Relief(limit="memory", now=problem.memory_limit / 1e9, needed=needed, unit="GB that may be filled a GPU")


def _more_batch(problem: Problem) -> Relief | None:
    """Find the fewest sequences a step."""
    start, now = max(1, problem.max_sequences), problem.max_sequences

    def feasible(n: int) -> bool:
        return _any_layout(replace(problem, max_sequences=n)) is not None

    needed = _smallest(start, MAX_RELAXATION * start, feasible)
    if needed is None:
        return None
    return Relief(limit="limits.max_batch_tokens", now=now, needed=needed, unit="sequences a step")


def _more_racks(problem: Problem) -> Relief | None:
    """Find the fewest racks by which every site must grow."""
    now = sum(problem.racks)

    def feasible(n: int) -> bool:
        return _any_layout(replace(problem, racks=tuple(r + n for r in problem.racks))) is not None

    more = _smallest(1, MAX_RELAXATION, feasible)
    if more is None:
        return None
    return Relief(limit="racks", now=now, needed=now + more * len(problem.racks), unit="racks, every site as many more")


def _smallest(start: int, end: int, feasible: Callable[[int], bool]) -> int | None:
    """Return the smallest feasible number from `start` to `end`, by doubling and bisection; None where `end` is not."""
    if not feasible(end):
        return None
    low, high = start - 1, start
    while not feasible(high):
        low, high = high, min(2 * high, end)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return high


def min_memory_bytes(problem: Problem) -> float:
    """Return the memory of the smallest layout.

    One micro-batch in flight, everything recomputed that may be, the most shards, even stages.
    """
    m, smallest = problem.machine, math.inf
    for s in list_layer_strategies(problem):
        if s.shape.micro_batch > min(problem.choices("microbatch_sequences", (1,))):
            continue
        for p in problem.options("pipeline_parallel", range(1, m.model.layers + 1)):
            caps = max_replicas_by_site(problem, s, p).tolist()
            replicas = min((c for c in caps if c), default=0)
            layers = math.ceil(m.model.layers / p)
            for zero_stage in problem.options("zero_stage", range(4)) if replicas else ():
                parts = stage_memory.memory_by_part(
                    m,
                    s.shape,
                    pipeline=p,
                    virtual_stages=1,
                    micro_batches=1,
                    zero_stage=zero_stage,
                    replicas=min(replicas, problem.max_sequences),
                    stage=np.array([0, p - 1]),
                    layers=np.array(layers),
                    recomputed=np.array(0 if s.recomputes == "none" else layers),
                    order=s.schedule,
                )
                smallest = min(smallest, float(np.max(sum(parts.values()))))
    return smallest
