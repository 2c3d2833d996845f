"""How one training step is cut over GPUs: the fastest layout of the declared space, proven.

Tables of the physics bound every row of the space from below (layout_space). Rows are opened in order of
their bounds; in an open row every count of replicas and micro-batches that could win is timed exactly, until the next
bound is no better than the incumbent. CP-SAT then decides the opened rows again, from the same tables but with its own
variables for replicas, micro-batches and the layers of every stage (planner.models.layout_row), and must agree.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from planner.errors import InternalError
from planner.handoff import Alternative, LayoutRequest, Options
from planner.instance import Instance
from planner.models.layout_best import Best, best_of_row
from planner.models.layout_order import Queue
from planner.models.layout_smallest import least_memory_bytes
from planner.models.layout_question import Problem, problem_of
from planner.models.layout_row import solve_row
from planner.models.layout_space import Row, row_table
from planner.physics import step, steptime
from planner.plan import Assumptions, Certificate, Conflict, LayoutMetrics, LayoutPlan
from planner.solvers.cpsat import SOLVER
from planner.solvers.outcome import Outcome, Stop, relative_gap

AGREEMENT = 1e-7  # relative; CP-SAT counts in whole units of time, the tables in floats
CONFIRMED = 600  # stages of the rows that CP-SAT decides again


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What the search holds: the incumbent, the proven bound and where the space went."""

    best: Best | None
    bound: float
    stop: Stop
    opened: list[Row]
    queue: Queue
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What CP-SAT decided again: rows, and those left to the tables."""

    rows: int = 0
    left: int = 0
    weight: int = 0
    variables: int = 0
    constraints: int = 0


def search(problem: Problem, *, time_limit: float | None = None, progress: Callable[[str], None] | None = None) -> Search:
    """Open rows in order of their bounds until none can beat the incumbent."""
    started = time.perf_counter()
    queue = Queue(problem, row_table(problem))
    best: Best | None = None
    opened: list[Row] = []
    bound, stop = math.inf, Stop.PROVED
    for row in queue:
        if best is not None and row.bound >= best.seconds:
            break
        if best is not None and time_limit is not None and time.perf_counter() - started > time_limit:
            bound, stop = min(row.bound, queue.bound), Stop.LIMIT
            break
        opened.append(row)
        better = best_of_row(problem, row, best.seconds if best else math.inf)
        best = better or best
        if progress is not None and better is not None:
            tokens = better.cut.data_parallel * better.cut.micro_batches * better.cut.micro_batch
            progress(f"layout: step {better.seconds * tokens:.4g} s, no layout under {row.bound / better.seconds:.1%} of it")
    if best is not None:
        bound = min(bound, best.seconds)
    return Search(best=best, bound=bound, stop=stop, opened=opened, queue=queue, seconds=time.perf_counter() - started)


def confirm(problem: Problem, found: Search, options: Options) -> Confirmation:
    """Let CP-SAT decide the opened rows again: the incumbent's has its value, and no other has a better one.

    Rows that the tables could not exclude by bound go to CP-SAT in the order of their bounds, up to a size of models that keeps this short; how many were left to the tables alone is told.

    Raises
    ------
    InternalError
        The two disagree: a defect, never a result.
    """
    if found.best is None:
        return Confirmation()
    best, told = found.best, Confirmation()
    for row in sorted(found.opened, key=lambda row: not _is_row_of(row, best.cut)):
        if told.weight > CONFIRMED:
            told = replace(told, left=told.left + 1)
            continue
        own = _is_row_of(row, best.cut)
        out = solve_row(problem, row, best.seconds * (1 + AGREEMENT if own else 1 - AGREEMENT), options)
        if out.stop is not Stop.PROVED:
            told = replace(told, left=told.left + 1, weight=told.weight + row.pipeline)
            continue
        if own == out.infeasible:
            raise InternalError(f"layout: CP-SAT finds {out.objective} s per sequence where the tables find {best.seconds} s at best ({best.cut})")
        told = replace(
            told,
            rows=told.rows + 1,
            weight=told.weight + (row.pipeline if out.variables else 0),
            variables=told.variables + out.variables,
            constraints=told.constraints + out.constraints,
        )
    return told


def _is_row_of(row: Row, cut: step.Cut) -> bool:
    """Tell whether a layout belongs to a row."""
    held = (cut.pipeline_parallel, cut.virtual_stages, cut.micro_batches >= cut.pipeline_parallel, cut.zero_stage, cut.schedule, cut.stages_per_rack)
    kept = row.base.shape.recompute if cut.recompute == "full" else cut.recompute
    own = replace(cut.shape, recompute=kept) == row.base.shape and (cut.recompute != "full" or row.base.recomputes != "none")
    return own and held == (row.pipeline, row.virtual_stages, row.filled, row.zero, row.base.order, row.stages_per_rack)


def solve(instance: Instance, request: LayoutRequest, options: Options, *, twice: bool = True) -> Outcome[LayoutPlan]:
    """Return the fastest layout for the racks and the network given, with its certificate; `twice`: CP-SAT decides the best rows again."""
    started = time.perf_counter()
    problem = problem_of(instance, request)
    found = search(problem, time_limit=options.time_limit)
    if found.best is None:
        stop = found.stop
        return Outcome(stop=stop, infeasible=stop is Stop.PROVED, detail="no layout fits", seconds=time.perf_counter() - started)
    confirmed = confirm(problem, found, options) if twice else Confirmation()
    measured = LayoutMetrics.model_validate(step.metrics(instance, problem.conditions, found.best.cut))
    days = measured.days_to_train
    bound = days if found.bound >= found.best.seconds else min(days, _days(instance, problem, found.bound))
    gap = relative_gap(days, bound) or 0.0
    certificate = Certificate(
        status="optimal" if found.stop is Stop.PROVED else "feasible",
        objective=days,
        bound=bound,
        gap=gap,
        solver=f"numpy branch and bound over tables; {SOLVER}",
        formulation=FORMULATION.format(count=confirmed.rows, all=confirmed.rows + confirmed.left),
        variables=confirmed.variables,
        constraints=confirmed.constraints,
        seconds=time.perf_counter() - started,
        seed=options.seed,
        minimizes="days to train, for the racks and the network given",
        given=_given(problem),
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
    "Every combination of the declared space is a row with a lower bound (most even stages, most replicas, largest batch, no tails). "
    "Rows whose bound reaches the incumbent, or whose stages cannot hold the layers in memory, are excluded; in every other row all counts of "
    "replicas and micro-batches, ZeRO stages and sizes of the largest stage are timed exactly. CP-SAT decided {count} of {all} opened pairs of "
    "row and ZeRO stage again (replicas by site, micro-batches, layers and memory of every stage): one has the optimum, none a better value."
)


def _days(instance: Instance, problem: Problem, seconds_per_sequence: float) -> float:
    w = instance.workload
    return steptime.days_to_train(w.tokens, problem.machine.sequence, seconds_per_sequence, w.availability)


def _given(problem: Problem) -> str:
    racks = ", ".join(f"{s} {r}" for s, r in zip(problem.sites, problem.racks, strict=True))
    c = problem.conditions
    wide = f", {c.wan_gbps:.0f} Gbps between sites at {c.wan_rtt_ms:.1f} ms" if c.wan_gbps else ""
    return f"racks {racks}; pipeline exchange {c.hop_slowdown:.3f}x and rings {c.allreduce_slowdown:.3f}x the NIC's ideal{wide}"


def declared_space(problem: Problem, found: Search, confirmed: Confirmation) -> dict[str, int | float | str | list[int] | list[str]]:
    """Say what the optimum was proven over, and how much of it each argument excluded."""
    table = found.queue.table
    return {
        "tensor_parallel": sorted({b.shape.tensor_parallel for b in table.bases}),
        "microbatch_sequences": sorted({b.shape.micro_batch for b in table.bases}),
        "recompute": sorted({str(b.shape.recompute) for b in table.bases}),
        "recomputed_layers_per_stage": "any number of each stage's" if any(b.recomputes == "any" for b in table.bases) else "none, or all as pinned",
        "sequence_parallel": sorted({str(b.shape.sequence_parallel).lower() for b in table.bases}),
        "tensor_parallel_inner": sorted({b.shape.tensor_inner for b in table.bases}),
        "context_parallel": sorted({b.shape.context_parallel for b in table.bases}),
        "expert_parallel": sorted({b.shape.expert_parallel for b in table.bases}),
        "schedule": sorted({str(b.order) for b in table.bases}),
        "zero_stage": problem.options("zero_stage", range(4)),
        "pipeline_parallel": f"1..{problem.machine.model.layers}",
        "virtual_stages": "1..layers / stages; interleaved stages take at least as many micro-batches as there are stages",
        "data_parallel_by_site": "any number that the racks hold; every site that can hold a replica takes part, as evenly as they permit",
        "stages_per_rack": "one, or as many as the rack's GPUs hold",
        "replicas_per_rack": "as many as the rack's GPUs hold, unless pinned",
        "microbatches_per_step": f"any, with at most {problem.most_sequences} sequences a step",
        "layers_per_stage": "any whole numbers",
        "rows_declared": table.declared,
        "rows_without_room": table.no_room,
        "rows_over_memory": table.memory + found.queue.hopeless,
        "rows_excluded_by_bound": len(table) - found.queue.hopeless - len(found.opened),
        "rows_opened": len(found.opened),
        "decided_again_by_cp_sat": confirmed.rows,
        "left_to_the_tables": confirmed.left,
    }


def binding(problem: Problem, best: Best) -> tuple[str, ...]:
    """Name the limits that the layout fills: batch, memory, racks."""
    cut = best.cut
    found = []
    one_more = cut.micro_batch * cut.data_parallel
    sequences = cut.data_parallel * cut.micro_batches * cut.micro_batch
    if sequences + one_more > problem.most_sequences:
        found.append("limits.max_batch_tokens")
    held = sum(step.worst_memory(problem.machine, cut).values())
    if held > 0.95 * problem.memory_limit:
        found.append("memory")
    groups = [math.ceil(d / cut.replicas_per_rack) for d in cut.data_parallel_by_site]
    column = racks_of_replica(problem, cut)
    if all(r - g * column < column for r, g in zip(problem.racks, groups, strict=True)):
        found.append("racks")
    return tuple(found)


def racks_of_replica(problem: Problem, cut: step.Cut) -> int:
    """Racks that hold all stages of one replica, and of those that share its racks."""
    return -(-cut.pipeline_parallel // cut.stages_per_rack) * -(-cut.shape.gpus // problem.machine.rack.gpus)


def plan_of(problem: Problem, cut: step.Cut, measured: LayoutMetrics, certificate: Certificate) -> LayoutPlan:
    """Write a layout as the plan's section."""
    c, sites = problem.conditions, problem.sites
    gpus = sum(problem.racks) * problem.machine.rack.gpus
    spread = -(-cut.shape.gpus // problem.machine.rack.gpus)
    several = c.wan_gbps is not None and sum(d > 0 for d in cut.data_parallel_by_site) > 1
    by_site = dict(zip(sites, cut.data_parallel_by_site, strict=True))
    return LayoutPlan(
        tensor_parallel=cut.tensor_parallel,
        tensor_parallel_inner=cut.tensor_inner,
        context_parallel=cut.context_parallel,
        expert_parallel=cut.expert_parallel,
        pipeline_parallel=cut.pipeline_parallel,
        data_parallel=cut.data_parallel,
        data_parallel_by_site=by_site,
        schedule=cut.schedule,
        virtual_stages=cut.virtual_stages,
        microbatch_sequences=cut.micro_batch,
        microbatches_per_step=cut.micro_batches,
        recompute=cut.recompute,
        recomputed_layers_per_stage=cut.recomputed if cut.recompute == "full" else (),
        sequence_parallel=cut.sequence_parallel,
        zero_stage=cut.zero_stage,
        layers_per_stage=cut.layers_per_stage,
        replicas_per_rack=cut.replicas_per_rack,
        racks_per_replica=spread,
        stages_per_rack=cut.stages_per_rack,
        racks_per_stage_by_site={s: steptime.group_racks(d, cut.replicas_per_rack) * spread for s, d in by_site.items()},
        gpus_used=cut.gpus,
        gpus_idle=gpus - cut.gpus,
        assumptions=Assumptions(
            hop_slowdown=c.hop_slowdown,
            allreduce_slowdown=c.allreduce_slowdown,
            wan_gbps=c.wan_gbps if several else None,
            wan_rtt_ms=c.wan_rtt_ms if several else None,
        ),
        metrics=measured,
        certificate=certificate,
    )


def least_days(instance: Instance, request: LayoutRequest, *, time_limit: float | None = None) -> float | None:
    """Return a proven lower bound on the days to train for the racks and network given; None where no layout fits."""
    problem = problem_of(instance, request)
    found = search(problem, time_limit=time_limit)
    return None if found.bound == math.inf else _days(instance, problem, found.bound)


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
        used = sum(math.ceil(d / cut.replicas_per_rack) for d in cut.data_parallel_by_site) * racks_of_replica(problem, cut)
        merits = {"days_to_train": _days(instance, problem, found.seconds), "racks_used": float(used)}
        kept = [a for a in kept if not (merits["days_to_train"] <= a.merits["days_to_train"] and used <= a.merits["racks_used"])]
        if not any(a.merits["days_to_train"] <= merits["days_to_train"] and a.merits["racks_used"] <= used for a in kept):
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
    return search(replace(problem, pins=pins, memory_limit=memory, most_sequences=batch)).best is not None


def _reason(problem: Problem, rules: list[str]) -> str:
    parts = []
    if "memory" in rules:
        least = least_memory_bytes(problem)
        least = least if math.isfinite(least) else least_memory_bytes(replace(problem, pins={}))
        parts.append(f"the smallest layout needs {least / 1e9:,.1f} GB a GPU where {problem.memory_limit / 1e9:,.1f} GB can be used")
    if "limits.max_batch_tokens" in rules:
        parts.append(f"a step may hold {problem.most_sequences} sequences of {problem.machine.sequence} tokens")
    parts += [f"{r} = {problem.pins[r.removeprefix('pins.')]!r} is not met by any layout with the rest" for r in rules if r.startswith("pins.")]
    return "; ".join(parts) or f"no whole pipeline fits {sum(problem.racks)} racks of {problem.machine.rack.gpus} GPUs"
