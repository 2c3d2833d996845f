"""How one training step is divided over GPUs: the fastest layout of the declared space, proven.

The physics bounds every candidate column of the space from below (columns, bounds). Columns are branched on ranges of
their replicas and micro-batches and bounded again by what memory allows (nodes, memory_bounds), in order of their
bounds (best_first); in a narrow range every count is timed exactly (pricing), until the next bound is no better than
the incumbent. CP-SAT then verifies the expanded columns (verify_cpsat), and must agree.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from planner.errors import InternalError
from planner.instance.instance import Instance
from planner.models.layout.best_first import SearchResult, is_column_of, search
from planner.models.layout.columns import Column
from planner.models.layout.data import Problem, problem_of
from planner.models.layout.explain import min_memory_bytes
from planner.models.layout.pricing import Solution
from planner.models.layout.report import FORMULATION, Verification, binding, declared_space, given_by, plan_of
from planner.models.layout.solution_cache import SolutionCache
from planner.models.layout.verify_cpsat import solve_column
from planner.models.requests import LayoutRequest, Options
from planner.physics.training import layer_time, stage_memory
from planner.physics.training.blocks import prediction
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.plan.certificate import Conflict
from planner.plan.layout import LayoutMetrics, LayoutPlan
from planner.solvers.cpsat import SOLVER
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome, Stop

AGREEMENT = 1e-7  # relative; CP-SAT counts in whole units of time, the search in floats
MAX_VERIFIED_STAGES = 600  # of all verified columns: models grow with their stages, and so many are built in seconds
MAX_EFFORT = 5.0  # of CP-SAT for all columns, in its own units of about a second: short beside the rest of a solve
# Of the fastest layout, for searches whose bounds later ones use: how slow columns are bounded. As much as networks and
# racks change the times between the searches of one plan; higher, and a search pays for bounds that nothing uses.
BOUND_TOLERANCE = 1.25
EXACT_TOLERANCE = 1.004  # of the fastest layout: columns this close are searched to their optimum for later searches


def solve(
    instance: Instance,
    request: LayoutRequest,
    options: Options,
    *,
    verified: bool = True,
    warm_starts: Sequence[ParallelStrategy] = (),
    cache: SolutionCache | None = None,
    progress: Callable[[str], None] | None = None,
) -> Outcome[LayoutPlan]:
    """Return the fastest layout for the racks and the network given, with its certificate.

    `verified`: CP-SAT verifies the best columns; `warm_starts`: layouts of similar problems; `cache`: results of
    searches before this one.
    """
    deadline, problem = Deadline(options.time_limit), problem_of(instance, request)
    result = search_with_cache(problem, cache, options.time_limit, warm_starts, progress)
    if result.best is None:
        infeasible = result.stop is Stop.PROVED
        return Outcome(stop=result.stop, infeasible=infeasible, detail="no layout fits", seconds=deadline.elapsed)
    strategy, verification = result.best.strategy, Verification()
    if verified:
        verification = verify(problem, result, replace(options, time_limit=deadline.limit))
    metrics = LayoutMetrics.model_validate(prediction.metrics(instance, problem.conditions, strategy))
    days = metrics.days_to_train
    proved = result.bound >= result.best.seconds
    outcome = Outcome(
        stop=result.stop,
        solution=strategy,
        objective=days,
        bound=days if proved else min(days, _days(instance, problem, result.bound)),
        solver="numpy branch and bound over tables" + (f"; {SOLVER}" if verified else ""),
        variables=verification.variables,
        constraints=verification.constraints,
        seconds=deadline.elapsed,
    )
    certificate = outcome.certificate(
        formulation=FORMULATION + (str(verification) if verified else "CP-SAT verified no column."),
        seed=options.seed,
        minimizes="days to train, for the racks and the network given",
        given=given_by(problem),
        space=declared_space(problem, result, verification),
        binding=binding(problem, strategy),
    )
    return outcome.with_solution(plan_of(problem, strategy, metrics, certificate))


def verify(problem: Problem, result: SearchResult, options: Options) -> Verification:
    """Verify the expanded columns by CP-SAT: the incumbent's has its value, and no other has a better one.

    Columns that the search could not exclude by bound go to CP-SAT in the order of their bounds, up to a size of models
    and an effort that keep this short; those not verified are counted.

    Raises
    ------
    InternalError
    The two disagree: a defect, never a result.
    """
    seen, deadline = Verification(), Deadline(options.time_limit)
    if result.best is None:
        return seen
    best = result.best
    for column in sorted(result.expanded, key=lambda c: not is_column_of(c, best.strategy)):
        if seen.stages > MAX_VERIFIED_STAGES or seen.effort >= MAX_EFFORT or deadline.passed:
            seen = replace(seen, unverified=seen.unverified + 1)
        else:
            seen = _verify_column(problem, column, best, seen, replace(options, time_limit=deadline.limit))
    return seen


def _verify_column(
    problem: Problem, column: Column, best: Solution, seen: Verification, options: Options
) -> Verification:
    """Verify one column and return what is verified with it."""
    own = is_column_of(column, best.strategy)
    cutoff = best.seconds * (1 + AGREEMENT if own else 1 - AGREEMENT)
    out = solve_column(problem, column, cutoff, options, effort=MAX_EFFORT - seen.effort)
    seen = replace(seen, effort=seen.effort + out.effort)
    unverified = replace(seen, unverified=seen.unverified + 1, stages=seen.stages + column.pipeline)
    if out.stop is not Stop.PROVED:
        return unverified
    if not own and not out.variables:
        return replace(seen, excluded=seen.excluded + 1)
    if own == out.infeasible:
        if out.solution is None or _is_faster(problem, out.solution.strategy, best.seconds * (1 - AGREEMENT)):
            value = f"CP-SAT finds {out.objective} s per sequence"
            raise InternalError(f"layout: {value} where the search finds {best.seconds} s at best ({best.strategy})")
        return unverified  # faster only by the shards that its model rounds up
    return replace(
        seen,
        columns=seen.columns + 1,
        optimum=seen.optimum or own,
        stages=seen.stages + column.pipeline,
        variables=seen.variables + out.variables,
        constraints=seen.constraints + out.constraints,
    )


def _is_faster(problem: Problem, strategy: ParallelStrategy, seconds: float) -> bool:
    """Return whether a layout fits memory and is under a time per sequence, by physics alone."""
    total = sum(prediction.step_breakdown(problem.machine, problem.conditions, strategy).values())
    fits = sum(stage_memory.worst_memory(problem.machine, strategy).values()) <= problem.memory_limit
    return fits and total / (strategy.data_parallel * strategy.micro_batches * strategy.micro_batch) < seconds


def _days(instance: Instance, problem: Problem, seconds_per_sequence: float) -> float:
    """Return the days to train at so many seconds per sequence."""
    w = instance.workload
    return layer_time.days_to_train(w.tokens, problem.machine.sequence, seconds_per_sequence, w.availability)


def search_with_cache(
    problem: Problem,
    cache: SolutionCache | None,
    time_limit: float | None,
    warm_starts: Sequence[ParallelStrategy] = (),
    progress: Callable[[str], None] | None = None,
) -> SearchResult:
    """Return the cached result, or search from the cached layouts of the most similar problems and cache the result."""
    run = partial(search, problem, time_limit=time_limit, progress=progress)
    if cache is None:
        return run(warm_starts=warm_starts)
    result = cache.result(problem)
    if result is None:
        result = run(
            warm_starts=cache.warm_starts(problem) or warm_starts,
            known_bounds=cache.known_bounds(problem),
            layer_strategies=cache.layer_strategies(problem),
            bound_tolerance=BOUND_TOLERANCE,
            exact_tolerance=EXACT_TOLERANCE,
        )
        cache.keep(problem, result)
    return result


def bound_days(
    instance: Instance, request: LayoutRequest, *, time_limit: float | None = None, cache: SolutionCache | None = None
) -> tuple[float, ParallelStrategy | None] | None:
    """Bound the days to train for the racks and network given, and return the fastest layout; None where none fits."""
    problem = problem_of(instance, request)
    result = search_with_cache(problem, cache, time_limit)
    if result.bound == math.inf:
        return None
    return _days(instance, problem, result.bound), None if result.best is None else result.best.strategy


def conflict(instance: Instance, request: LayoutRequest) -> Conflict:
    """Name a smallest set of rules that leave no layout (pins, memory, batch, racks), by searching without each."""
    problem = problem_of(instance, request)
    kept = [*(f"pins.{p}" for p in problem.pins), "memory", "limits.max_batch_tokens"]
    for name in list(kept):
        without = [rule for rule in kept if rule != name]
        if not _is_feasible(problem, without):
            kept = without
    return Conflict(decision="layout", rules=tuple(kept) or ("racks",), reason=_reason(problem, kept))


def _is_feasible(problem: Problem, rules: list[str]) -> bool:
    """Return whether a layout exists under some of the rules, the others relaxed far beyond any layout's needs."""
    relaxed: dict[str, Any] = {"pins": {k: v for k, v in problem.pins.items() if f"pins.{k}" in rules}}
    if "memory" not in rules:
        relaxed["memory_limit"] = 1e6 * problem.machine.gpu.hbm_bytes
    if "limits.max_batch_tokens" not in rules:
        relaxed["max_sequences"] = problem.max_sequences * 64
    return search(replace(problem, **relaxed), time_limit=0.0).best is not None


def _reason(problem: Problem, rules: list[str]) -> str:
    """Return why the rules leave no layout."""
    parts = []
    if "memory" in rules:
        needed = min_memory_bytes(problem)
        needed = needed if math.isfinite(needed) else min_memory_bytes(replace(problem, pins={}))
        usable = f"{problem.memory_limit / 1e9:,.1f} GB can be used"
        parts.append(f"the smallest layout needs {needed / 1e9:,.1f} GB a GPU where {usable}")
    if "limits.max_batch_tokens" in rules:
        parts.append(f"a step may take {problem.max_sequences} sequences of {problem.machine.sequence} tokens")
    for pin in (rule.removeprefix("pins.") for rule in rules if rule.startswith("pins.")):
        parts.append(f"pins.{pin} = {problem.pins[pin]!r} is not met by any layout with the rest")
    return (
        "; ".join(parts) or f"no complete pipeline fits {sum(problem.racks)} racks of {problem.machine.rack.gpus} GPUs"
    )
