"""Why this layout: the best one with each choice made otherwise, and what would make an infeasible question feasible.

A runner-up is found by the same search over the rows that differ from the layout in one choice, all other choices free to
answer it; both are therefore optima, and the difference is what the choice is worth.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.instance.instance import Instance
from planner.models.layout.best_first import Search, search
from planner.models.layout.columns import Flags, RowTable, replica_caps, row_table
from planner.models.layout.data import LayerStrategy, Problem, layer_strategies, problem_of
from planner.models.requests import LayoutRequest, Options
from planner.physics.training import stage_memory, step
from planner.physics.training.memory import RECOMPUTE_MODES
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.solvers.outcome import Stop

BEYOND = 4096  # times a limit: where even that leaves no layout, the limit is no relief
FINE = 1e-3  # relative: how near the smallest memory is told
LONGEST = 20.0  # seconds for the best with one choice made otherwise, where no limit is asked

OF_BASE: dict[str, Callable[[LayerStrategy], Any]] = {
    "tensor_parallel": lambda b: b.shape.tensor_parallel,
    "tensor_parallel_inner": lambda b: b.shape.tensor_inner,
    "context_parallel": lambda b: b.shape.context_parallel,
    "expert_parallel": lambda b: b.shape.expert_parallel,
    "microbatch_sequences": lambda b: b.shape.micro_batch,
    "sequence_parallel": lambda b: b.shape.sequence_parallel,
    "schedule": lambda b: b.order,
}
OF_ROW = {"pipeline_parallel": "pipeline", "virtual_stages": "virtual_stages", "zero_stage": "zero"}
CHOICES = (*OF_BASE, *OF_ROW, "recompute")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """The best layout with one choice at another value, against the best of all."""

    choice: str
    held: Any  # the value in the best layout
    value: Any
    seconds_per_sequence: float
    loss: float  # over the best layout's seconds per sequence; 0.11: 11 % slower
    grown: str  # the part of the step that grew most a sequence
    grown_loss: float  # what that part alone adds, on the same scale
    also: dict[str, tuple[Any, Any]]  # other choices that changed with it, from and to
    cut: ParallelStrategy
    proved: bool  # no layout with the choice made otherwise is faster

    def __str__(self) -> str:
        """Say it in a line."""
        return f"{self.choice} {self.value} instead of {self.held}: {100 * self.loss:+.1f} %, {self.grown}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """A limit that, changed alone, lets a layout exist; verified by searching with it."""

    limit: str
    now: float
    needed: float
    unit: str
    cut: ParallelStrategy

    def __str__(self) -> str:
        """Say it in a line."""
        return f"{self.limit}: {self.needed:,.6g} {self.unit} instead of {self.now:,.6g}"


def runners_up(instance: Instance, request: LayoutRequest, options: Options) -> list[RunnerUp]:
    """Return for each choice that is not pinned the best layout with another value of it, the least loss first.

    A time limit holds for each of the searches; what it keeps from being proven is told.
    """
    problem, limit = problem_of(instance, request), options.time_limit or LONGEST
    table = row_table(problem)
    best = search(problem, time_limit=options.time_limit, table=table).best
    if best is None:
        return []
    found = []
    for choice in CHOICES:
        held = _value(best.cut, choice)
        if problem.pin(choice) is not None:
            continue
        other = _without(problem, table, choice, held, limit)
        if other is not None and other.best is not None:
            found.append(_compared(problem, choice, best.cut, other))
    return sorted(found, key=lambda x: x.loss)


def _value(cut: ParallelStrategy, choice: str) -> Any:
    names = {"microbatch_sequences": "micro_batch", "tensor_parallel_inner": "tensor_inner"}
    return getattr(cut, names.get(choice, choice))


def _without(problem: Problem, table: RowTable, choice: str, held: Any, time_limit: float | None) -> Search | None:
    """Search the space without one value of a choice; None where there is no other."""
    if choice == "recompute":
        return _other_recompute(problem, held, time_limit)
    kept: Flags
    if choice in OF_BASE:
        other = np.array([OF_BASE[choice](b) != held for b in table.layer_strategies], dtype=bool)
        kept = other[table.base]
    else:
        kept = np.asarray(getattr(table, OF_ROW[choice]) != held)
    return search(problem, time_limit=time_limit, table=table.part(kept)) if kept.any() else None


def _other_recompute(problem: Problem, held: str, time_limit: float | None) -> Search | None:
    """Search with each other kind of recompute pinned and return the best (full: all layers of every stage)."""
    if problem.pin("recomputed_layers_per_stage") is not None:
        return None
    software = problem.machine.software
    alike = software.flash_attention and software.selective_gemm_share == 0
    modes = [r for r in RECOMPUTE_MODES if r != held and not (alike and r == "selective")]
    found = [
        search(replace(problem, pins={**problem.pins, "layout.recompute": r}), time_limit=time_limit) for r in modes
    ]
    if all(f.best is None for f in found):
        return None
    best = min(found, key=lambda f: f.best.seconds if f.best else math.inf)
    stop = Stop.PROVED if all(f.stop is Stop.PROVED for f in found) else Stop.LIMIT
    return replace(best, stop=stop)


def _compared(problem: Problem, choice: str, best: ParallelStrategy, other: Search) -> RunnerUp:
    """Say what a runner-up loses, and where."""
    if other.best is None:
        raise ValueError("a runner-up is a layout")
    cut = other.best.cut
    before, after = _parts(problem, best), _parts(problem, cut)
    total = math.fsum(before.values())
    grown = max(sorted(after), key=lambda part: after[part] - before.get(part, 0.0))
    changed = [c for c in CHOICES if c != choice and _value(cut, c) != _value(best, c)]
    return RunnerUp(
        choice=choice,
        held=_value(best, choice),
        value=_value(cut, choice),
        seconds_per_sequence=other.best.seconds,
        loss=other.best.seconds / total - 1,
        grown=grown,
        grown_loss=(after[grown] - before.get(grown, 0.0)) / total,
        also={c: (_value(best, c), _value(cut, c)) for c in changed},
        cut=cut,
        proved=other.stop is Stop.PROVED,
    )


def _parts(problem: Problem, cut: ParallelStrategy) -> dict[str, float]:
    """Seconds of a sequence by part of the step."""
    sequences = cut.data_parallel * cut.micro_batches * cut.micro_batch
    parts = step.step_breakdown(problem.machine, problem.conditions, cut)
    return {k: v / sequences for k, v in parts.items()}


def relief(instance: Instance, request: LayoutRequest) -> list[Relief]:
    """Return what would make an infeasible layout question feasible: memory, batch or racks, each changed alone and as little as need be.

    Every one is verified by the layout that the search finds with it; empty where the question is feasible, or where no
    single one of them helps.
    """
    problem = problem_of(instance, request)
    if _first(problem) is not None:
        return []
    found = (_more_memory(problem), _more_batch(problem), _more_racks(problem))
    return [x for x in found if x is not None]


def _first(problem: Problem) -> ParallelStrategy | None:
    """Return any layout."""
    best = search(problem, time_limit=0.0).best
    return None if best is None else best.cut


def _more_memory(problem: Problem) -> Relief | None:
    """Find the least memory of a GPU, by bisection between what is too little and what a layout is known to need."""
    low, high = problem.memory_limit, BEYOND * problem.machine.gpu.hbm_bytes
    held = _first(replace(problem, memory_limit=high))
    if held is None:
        return None
    least = least_memory_bytes(problem)
    near = _first(replace(problem, memory_limit=least)) if low < least < high else None
    held = near or held
    high = min(high, _memory(problem, held))
    while high > max(low, 0.0) * (1 + FINE) + 1.0:
        middle = (max(low, 0.0) + high) / 2
        better = _first(replace(problem, memory_limit=middle))
        if better is None:
            low = middle
        else:
            held, high = better, min(middle, _memory(problem, better))
    return Relief(
        limit="memory",
        now=problem.memory_limit / 1e9,
        needed=math.ceil(high / 1e7) / 1e2,
        unit="GB that may be filled a GPU",
        cut=held,
    )


def _memory(problem: Problem, cut: ParallelStrategy) -> float:
    return sum(stage_memory.worst_memory(problem.machine, cut).values())


def _more_batch(problem: Problem) -> Relief | None:
    """Find the fewest sequences a step."""
    n = max(1, problem.most_sequences)
    found = _least_whole(n, BEYOND * n, lambda n: _first(replace(problem, most_sequences=n)))
    if found is None:
        return None
    return Relief(
        limit="limits.max_batch_tokens",
        now=problem.most_sequences,
        needed=found[0],
        unit="sequences a step",
        cut=found[1],
    )


def _more_racks(problem: Problem) -> Relief | None:
    """Find the fewest racks by which every site must grow."""
    found = _least_whole(1, BEYOND, lambda n: _first(replace(problem, racks=tuple(r + n for r in problem.racks))))
    if found is None:
        return None
    now = sum(problem.racks)
    return Relief(
        limit="racks",
        now=now,
        needed=now + found[0] * len(problem.racks),
        unit="racks, every site as many more",
        cut=found[1],
    )


def _least_whole(
    start: int, top: int, layout: Callable[[int], ParallelStrategy | None]
) -> tuple[int, ParallelStrategy] | None:
    """Return the least number from `start` to `top` with which there is a layout: by doubling, then by bisection."""
    if layout(top) is None:
        return None
    low, high, held = start - 1, start, layout(start)
    while held is None:
        low, high = high, min(2 * high, top)
        held = layout(high)
    while high - low > 1:
        middle = (low + high) // 2
        better = layout(middle)
        if better is None:
            low = middle
        else:
            high, held = middle, better
    return high, held


def least_memory_bytes(problem: Problem) -> float:
    """Return the memory of the smallest layout: one micro-batch in flight, everything recomputed that may be, the most shards, even stages."""
    m, least = problem.machine, math.inf
    for base in layer_strategies(problem):
        if base.shape.micro_batch > min(problem.choices("microbatch_sequences", (1,))):
            continue
        kept = {"none": 0, "any": 1, "all": 1}[base.recomputes]
        for p in problem.options("pipeline_parallel", range(1, m.model.layers + 1)):
            caps = [int(c) for c in replica_caps(problem, base, p)]
            replicas = min((c for c in caps if c), default=0)
            for zero in problem.options("zero_stage", range(4)) if replicas else ():
                layers = math.ceil(m.model.layers / p)
                parts = stage_memory.memory_by_part(
                    m,
                    base.shape,
                    pipeline=p,
                    virtual_stages=1,
                    micro_batches=1,
                    zero_stage=zero,
                    replicas=min(replicas, problem.most_sequences),
                    stage=np.array([0, p - 1]),
                    layers=np.array(layers),
                    recomputed=np.array([0, layers][kept]),
                    order=base.order,
                )
                least = min(least, float(np.max(sum(parts.values()))))
    return least
