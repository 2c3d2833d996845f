"""What a plan says of the layout found: its section, the space that was searched, what the proof holds for and what binds."""

import math
from dataclasses import dataclass

from planner.models.layout.best_first import Search
from planner.models.layout.columns import declared_rows
from planner.models.layout.data import Problem
from planner.models.layout.pricing import Best
from planner.physics.training import stage_memory
from planner.physics.training.parallel_strategy import ParallelStrategy, write_layout
from planner.plan.certificate import Certificate
from planner.plan.layout import Assumptions, LayoutMetrics, LayoutPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What CP-SAT decided again: rows, those that even stages alone keep from the optimum, and those left to the tables."""

    rows: int = 0
    own: bool = False  # whether one of them is the optimum's
    excluded: int = 0
    left: int = 0
    weight: int = 0
    effort: float = 0.0
    variables: int = 0
    constraints: int = 0


def given_by(problem: Problem) -> str:
    """Say for which racks and which network the proof holds."""
    racks = ", ".join(f"{s} {r}" for s, r in zip(problem.sites, problem.racks, strict=True))
    c = problem.conditions
    wide = f", {c.wan_gbps:.0f} Gbps between sites at {c.wan_rtt_ms:.1f} ms" if c.wan_gbps else ""
    return f"racks {racks}; pipeline exchange {c.pipeline_send_slowdown:.3f}x and rings {c.allreduce_slowdown:.3f}x the NIC's ideal{wide}"


def declared_space(
    problem: Problem, found: Search, confirmed: Confirmation
) -> dict[str, int | float | str | list[int] | list[str]]:
    """Say what the optimum was proven over, and how much of it each argument excluded."""
    tables, paces = found.queue.tables, found.paces
    declared, no_room = declared_rows(problem, paces), sum(t.no_room for t in tables)
    over_memory = sum(t.memory for t in tables) + found.queue.hopeless
    return {
        "tensor_parallel": sorted({b.shape.tensor_parallel for b in paces}),
        "microbatch_sequences": sorted({b.shape.micro_batch for b in paces}),
        "recompute": sorted({str(b.shape.recompute) for b in paces}),
        "recomputed_layers_per_stage": "any number of each stage's"
        if any(b.recomputes == "any" for b in paces)
        else "none, or all as pinned",
        "sequence_parallel": sorted({str(b.shape.sequence_parallel).lower() for b in paces}),
        "tensor_parallel_inner": sorted({b.shape.tensor_inner for b in paces}),
        "context_parallel_above_1": "with the smallest micro-batch only",
        "context_parallel": sorted({b.shape.context_parallel for b in paces}),
        "expert_parallel": sorted({b.shape.expert_parallel for b in paces}),
        "schedule": sorted({str(b.order) for b in paces}),
        "zero_stage": problem.options("zero_stage", range(4)),
        "pipeline_parallel": f"1..{problem.machine.model.layers}",
        "virtual_stages": "1..layers / stages; interleaved stages take at least as many micro-batches as there are stages",
        "data_parallel_by_site": "any number that the racks hold; every site that can hold a replica takes part, as evenly as they permit",
        "stages_per_rack": "one, or as many as the rack's GPUs hold",
        "replicas_per_rack": "as many as the rack's GPUs hold, unless pinned",
        "microbatches_per_step": f"any, with at most {problem.most_sequences} sequences a step",
        "layers_per_stage": "any whole numbers",
        "rows_declared": declared,
        "rows_without_room": no_room,
        "rows_over_memory": over_memory,
        "rows_excluded_by_bound": declared - no_room - over_memory - len(found.opened),
        "rows_opened": len(found.opened),
        "excluded_again_on_even_stages": confirmed.excluded,
        "decided_again_by_cp_sat": confirmed.rows,
        "not_verified_by_cpsat": confirmed.left,
    }


def binding(problem: Problem, best: Best) -> tuple[str, ...]:
    """Name the limits that the layout fills: batch, memory, racks."""
    cut = best.cut
    found = []
    one_more = cut.micro_batch * cut.data_parallel
    sequences = cut.data_parallel * cut.micro_batches * cut.micro_batch
    if sequences + one_more > problem.most_sequences:
        found.append("limits.max_batch_tokens")
    held = sum(stage_memory.worst_memory(problem.machine, cut).values())
    if held > 0.95 * problem.memory_limit:
        found.append("memory")
    groups = [math.ceil(d / cut.replicas_per_rack) for d in cut.data_parallel_by_site]
    column = racks_of_replica(problem, cut)
    if all(r - g * column < column for r, g in zip(problem.racks, groups, strict=True)):
        found.append("racks")
    return tuple(found)


def racks_of_replica(problem: Problem, strategy: ParallelStrategy) -> int:
    """Return the racks that hold all stages of one replica, and of those that share its racks."""
    return strategy.rack_stages * strategy.racks_per_replica(problem.machine.rack.gpus)


def plan_of(
    problem: Problem, strategy: ParallelStrategy, metrics: LayoutMetrics, certificate: Certificate
) -> LayoutPlan:
    """Write a strategy as the plan's `layout` section, its network as the problem assumes it."""
    c = problem.conditions
    several = c.wan_gbps is not None and sum(d > 0 for d in strategy.data_parallel_by_site) > 1
    assumptions = Assumptions(
        pipeline_send_slowdown=c.pipeline_send_slowdown,
        allreduce_slowdown=c.allreduce_slowdown,
        wan_gbps=c.wan_gbps if several else None,
        wan_rtt_ms=c.wan_rtt_ms if several else None,
    )
    return write_layout(
        strategy,
        data_parallel_by_site=dict(zip(problem.sites, strategy.data_parallel_by_site, strict=True)),
        racks=sum(problem.racks),
        gpus_per_rack=problem.machine.rack.gpus,
        assumptions=assumptions,
        metrics=metrics,
        certificate=certificate,
    )
