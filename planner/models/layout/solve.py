"""How one training step is cut over GPUs: the fastest layout of the declared space, proven.

Tables of the physics bound every row of the space from below (layout_space). Rows are split by ranges of their counts of
replicas and micro-batches, bounded again with what memory leaves (layout_cells, layout_held), in order of their bounds; in
a narrow range every count is timed exactly, until the next bound is no better than the incumbent. CP-SAT then decides the
opened rows again, from the same tables but with its own variables for replicas, micro-batches and the layers of every stage
(planner.models.layout_row), and must agree.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from planner.errors import InternalError
from planner.instance.instance import Instance
from planner.models.layout.best_first import Search, is_row_of, search
from planner.models.layout.data import Problem, problem_of
from planner.models.layout.explain import least_memory_bytes
from planner.models.layout.report import Confirmation, binding, declared_space, given_by, plan_of, racks_of_replica
from planner.models.layout.verify_cpsat import solve_row
from planner.models.layout.warm_start import SolutionCache
from planner.models.requests import Alternative, LayoutRequest, Options
from planner.physics.training import layer_time, stage_memory, step
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.plan.certificate import Certificate, Conflict
from planner.plan.layout import LayoutMetrics, LayoutPlan
from planner.solvers.cpsat import SOLVER
from planner.solvers.outcome import Outcome, Stop, relative_gap

__all__ = ["alternatives", "confirm", "conflict", "least", "least_days", "search", "solve"]

AGREEMENT = 1e-7  # relative; CP-SAT counts in whole units of time, the tables in floats
CONFIRMED = 600  # stages of the rows that CP-SAT decides again
MARGIN = 1.25  # beyond the fastest layout, what ways to cut a layer take is found out for questions to come
BEYOND = 1.004  # and what rows take, exactly
EFFORT = 5.0  # of CP-SAT for all of them, in its own units


def confirm(problem: Problem, found: Search, options: Options) -> Confirmation:
    """Let CP-SAT decide the opened rows again: the incumbent's has its value, and no other has a better one.

    Rows that the tables could not exclude by bound go to CP-SAT in the order of their bounds, up to a size of models, and a
    time, that keeps this short; how many were left to the tables alone is told.

    Raises
    ------
    InternalError
        The two disagree: a defect, never a result.
    """
    if found.best is None:
        return Confirmation()
    best, told, started = found.best, Confirmation(), time.perf_counter()
    for row in sorted(found.opened, key=lambda row: not is_row_of(row, best.cut)):
        left = math.inf if options.time_limit is None else options.time_limit - (time.perf_counter() - started)
        if told.weight > CONFIRMED or told.effort >= EFFORT or left <= 0:
            told = replace(told, left=told.left + 1)
            continue
        own, asked = is_row_of(row, best.cut), replace(options, time_limit=left if math.isfinite(left) else None)
        out = solve_row(
            problem, row, best.seconds * (1 + AGREEMENT if own else 1 - AGREEMENT), asked, effort=EFFORT - told.effort
        )
        told = replace(told, effort=told.effort + out.effort)
        if out.stop is not Stop.PROVED:
            told = replace(told, left=told.left + 1, weight=told.weight + row.pipeline)
            continue
        if not own and not out.variables:
            told = replace(told, excluded=told.excluded + 1)
            continue
        if own == out.infeasible:
            if out.solution is None or _is_faster(problem, out.solution.cut, best.seconds * (1 - AGREEMENT)):
                raise InternalError(
                    f"layout: CP-SAT finds {out.objective} s per sequence where the tables find {best.seconds} s at best ({best.cut})"
                )
            told = replace(
                told, left=told.left + 1, weight=told.weight + row.pipeline
            )  # faster only by the shards that its model rounds up
            continue
        told = replace(
            told,
            rows=told.rows + 1,
            own=told.own or own,
            weight=told.weight + row.pipeline,
            variables=told.variables + out.variables,
            constraints=told.constraints + out.constraints,
        )
    return told


def _is_faster(problem: Problem, cut: ParallelStrategy, seconds: float) -> bool:
    """Tell whether a layout fits memory and is under a time per sequence, by physics alone."""
    whole = sum(step.step_breakdown(problem.machine, problem.conditions, cut).values())
    fits = sum(stage_memory.worst_memory(problem.machine, cut).values()) <= problem.memory_limit
    return fits and whole / (cut.data_parallel * cut.micro_batches * cut.micro_batch) < seconds


def solve(
    instance: Instance,
    request: LayoutRequest,
    options: Options,
    *,
    twice: bool = True,
    near: Sequence[ParallelStrategy] = (),
    memory: SolutionCache | None = None,
    progress: Callable[[str], None] | None = None,
) -> Outcome[LayoutPlan]:
    """Return the fastest layout for the racks and the network given, with its certificate.

    `twice`: CP-SAT decides the best rows again; `near`: layouts of questions like this one, to start from; `memory`: what
    searches before this one found.
    """
    started = time.perf_counter()
    problem = problem_of(instance, request)
    found = remembered(problem, memory, options.time_limit, near, progress)
    if found.best is None:
        stop = found.stop
        return Outcome(
            stop=stop, infeasible=stop is Stop.PROVED, detail="no layout fits", seconds=time.perf_counter() - started
        )
    spent = time.perf_counter() - started
    rest = options if options.time_limit is None else replace(options, time_limit=options.time_limit - spent)
    confirmed = confirm(problem, found, rest) if twice else Confirmation()
    measured = LayoutMetrics.model_validate(step.metrics(instance, problem.conditions, found.best.cut))
    days = measured.days_to_train
    bound = days if found.bound >= found.best.seconds else min(days, _days(instance, problem, found.bound))
    gap = relative_gap(days, bound) or 0.0
    certificate = Certificate(
        status="optimal" if found.stop is Stop.PROVED else "feasible",
        objective=days,
        bound=bound,
        gap=gap,
        solver="numpy branch and bound over tables" + (f"; {SOLVER}" if twice else ""),
        formulation=FORMULATION + (_again(confirmed) if twice else "CP-SAT decided no row again."),
        variables=confirmed.variables,
        constraints=confirmed.constraints,
        seconds=time.perf_counter() - started,
        seed=options.seed,
        minimizes="days to train, for the racks and the network given",
        given=given_by(problem),
        space=declared_space(problem, found, confirmed),
        binding=binding(problem, found.best),
    )
    return Outcome(
        stop=found.stop,
        solution=plan_of(problem, found.best.cut, measured, certificate),
        objective=days,
        bound=bound,
        solver=certificate.solver,
        variables=confirmed.variables,
        constraints=confirmed.constraints,
        seconds=certificate.seconds,
    )


FORMULATION = (
    "Every combination of the declared space is a row with a lower bound (most even stages, most replicas, largest batch, least tails). Rows are "
    "split by ranges of their replicas and micro-batches; those whose bound reaches the incumbent, or whose stages cannot hold the layers in "
    "memory, are excluded. In every other all counts and all splits of the layers, recomputed or not, are timed exactly. "
)


def _again(told: Confirmation) -> str:
    """Say what CP-SAT decided again."""
    seen = (
        (": one has the optimum, none a better value" if told.own else ": none has a better value") if told.rows else ""
    )
    return (
        f"Of the rows opened, {told.excluded} cannot beat the optimum on even stages; CP-SAT decided {told.rows} of the other "
        f"{told.rows + told.left} again (replicas by site, micro-batches, layers and memory of every stage){seen}."
    )


def _days(instance: Instance, problem: Problem, seconds_per_sequence: float) -> float:
    w = instance.workload
    return layer_time.days_to_train(w.tokens, problem.machine.sequence, seconds_per_sequence, w.availability)


def remembered(
    problem: Problem,
    memory: SolutionCache | None,
    time_limit: float | None,
    near: Sequence[ParallelStrategy] = (),
    progress: Callable[[str], None] | None = None,
) -> Search:
    """Return the answer that memory has, or search from the layouts that it has of the most alike questions, and remember."""
    if memory is None:
        return search(problem, time_limit=time_limit, progress=progress, near=near)
    found = memory.answer(problem)
    if found is None:
        near, floors, paces = memory.near(problem) or near, memory.floors(problem), memory.paces(problem)
        ask = partial(search, problem, time_limit=time_limit, progress=progress, near=near)
        found = ask(paces=paces, floors=floors, margin=MARGIN, beyond=BEYOND)
        memory.keep(problem, found)
    return found


def least(
    instance: Instance, request: LayoutRequest, *, time_limit: float | None = None, memory: SolutionCache | None = None
) -> tuple[float, ParallelStrategy | None] | None:
    """Return a proven lower bound on the days to train for the racks and network given, and the fastest layout found; None where none fits."""
    problem = problem_of(instance, request)
    found = remembered(problem, memory, time_limit)
    return (
        None
        if found.bound == math.inf
        else (_days(instance, problem, found.bound), None if found.best is None else found.best.cut)
    )


def least_days(instance: Instance, request: LayoutRequest) -> float | None:
    """Return a proven lower bound on the days to train for the racks and network given; None where no layout fits."""
    found = least(instance, request)
    return None if found is None else found[0]


def alternatives(instance: Instance, request: LayoutRequest, options: Options, *, steps: int = 8) -> list[Alternative]:
    """Return the non-dominated trades of racks used against days to train, on `steps` even parts of the racks given."""
    kept: list[Alternative] = []
    for k in range(1, steps + 1):
        part = {s: r * k // steps for s, r in request.racks_by_site.items()}
        if not any(part.values()):
            continue
        problem = problem_of(instance, replace(request, racks_by_site=part))
        found = search(problem, time_limit=options.time_limit).best
        if found is None:
            continue
        cut = found.cut
        used = sum(math.ceil(d / cut.replicas_per_rack) for d in cut.data_parallel_by_site) * racks_of_replica(
            problem, cut
        )
        merits = {"days_to_train": _days(instance, problem, found.seconds), "racks_used": float(used)}
        kept = [
            a
            for a in kept
            if not (merits["days_to_train"] <= a.merits["days_to_train"] and used <= a.merits["racks_used"])
        ]
        if not any(
            a.merits["days_to_train"] <= merits["days_to_train"] and a.merits["racks_used"] <= used for a in kept
        ):
            kept.append(Alternative(merits=merits, choices={"cut": cut}))
    return kept


def conflict(instance: Instance, request: LayoutRequest) -> Conflict:
    """Name a smallest set of rules that leave no layout: pins, memory, batch, racks; each checked by searching without it."""
    problem = problem_of(instance, request)
    families: dict[str, Any] = {f"pins.{p}": p for p in problem.pins}
    families |= {"memory": None, "limits.max_batch_tokens": None}
    kept = list(families)
    for name in list(families):
        without = [f for f in kept if f != name]
        if not _possible(problem, without):
            kept = without
    return Conflict(decision="layout", rules=tuple(kept) or ("racks",), reason=_reason(problem, kept))


def _possible(problem: Problem, rules: list[str]) -> bool:
    """Tell whether a layout exists under some of the rules."""
    pins = {k: v for k, v in problem.pins.items() if f"pins.{k}" in rules}
    memory = problem.memory_limit if "memory" in rules else 1e6 * problem.machine.gpu.hbm_bytes
    batch = problem.most_sequences if "limits.max_batch_tokens" in rules else problem.most_sequences * 64
    return (
        search(replace(problem, pins=pins, memory_limit=memory, most_sequences=batch), time_limit=0.0).best is not None
    )


def _reason(problem: Problem, rules: list[str]) -> str:
    parts = []
    if "memory" in rules:
        least = least_memory_bytes(problem)
        least = least if math.isfinite(least) else least_memory_bytes(replace(problem, pins={}))
        parts.append(
            f"the smallest layout needs {least / 1e9:,.1f} GB a GPU where {problem.memory_limit / 1e9:,.1f} GB can be used"
        )
    if "limits.max_batch_tokens" in rules:
        parts.append(f"a step may hold {problem.most_sequences} sequences of {problem.machine.sequence} tokens")
    parts += [
        f"{r} = {problem.pins[r.removeprefix('pins.')]!r} is not met by any layout with the rest"
        for r in rules
        if r.startswith("pins.")
    ]
    return "; ".join(parts) or f"no whole pipeline fits {sum(problem.racks)} racks of {problem.machine.rack.gpus} GPUs"
