"""What a plan says of the layout: its section, the space searched, what the proof assumes and which limits bind."""

import math
from dataclasses import dataclass

from planner.models.layout.best_first import SearchResult
from planner.models.layout.columns import declared_columns
from planner.models.layout.data import Problem
from planner.physics.training import stage_memory
from planner.physics.training.parallel_strategy import ParallelStrategy, write_layout
from planner.plan.certificate import Certificate
from planner.plan.layout import Assumptions, LayoutMetrics, LayoutPlan

FULL_MEMORY = 0.95  # of the limit; above, the next larger micro-batch or less recompute rarely fits

FORMULATION = (
    "Every combination of the declared space is a column with a lower bound (most even stages, most replicas, largest "
    "batch, least tails). Columns are branched on ranges of their replicas and micro-batches; those whose bound "
    "reaches the incumbent, or whose stages cannot hold the layers in memory, are excluded. In every other all counts "
    "and all splits of the layers, recomputed or not, are timed exactly. "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What CP-SAT verified: columns, those excluded by even stages alone, and those not verified."""

    columns: int = 0
    optimum: bool = False  # whether one of them has the optimum
    excluded: int = 0
    unverified: int = 0
    stages: int = 0  # of all models
    effort: float = 0.0
    variables: int = 0
    constraints: int = 0

    def __str__(self) -> str:
        """Return the verification in a sentence."""
        seen = ""
        if self.columns:
            seen = ": one has the optimum, none a better value" if self.optimum else ": none has a better value"
        return (
            f"Of the columns expanded, {self.excluded} cannot beat the optimum on even stages; CP-SAT verified "
            f"{self.columns} of the other {self.columns + self.unverified} (replicas by site, micro-batches, layers "
            f"and memory of every stage){seen}."
        )


def given_by(problem: Problem) -> str:
    """Return for which racks and which network the proof holds."""
    racks = ", ".join(f"{s} {r}" for s, r in zip(problem.sites, problem.racks, strict=True))
    c = problem.conditions
    slowdowns = f"pipeline sends {c.pipeline_send_slowdown:.3f}x and all-reduces {c.allreduce_slowdown:.3f}x"
    wan = f", {c.wan_gbps:.0f} Gbps between sites at {c.wan_rtt_ms:.1f} ms" if c.wan_gbps else ""
    return f"racks {racks}; {slowdowns} the NIC's ideal{wan}"


def declared_space(
    problem: Problem, result: SearchResult, verification: Verification
) -> dict[str, int | float | str | list[int] | list[str]]:
    """Return what the optimum was proven over, and how much of it each argument excluded."""
    tables, strategies = result.queue.tables, result.layer_strategies
    declared, without_replicas = declared_columns(problem, strategies), sum(t.without_replicas for t in tables)
    over_memory = sum(t.over_memory for t in tables) + result.queue.over_memory
    shapes = [s.shape for s in strategies]
    recomputes_any = any(s.recomputes == "any" for s in strategies)
    return {
        "tensor_parallel": sorted({s.tensor_parallel for s in shapes}),
        "microbatch_sequences": sorted({s.micro_batch for s in shapes}),
        "recompute": sorted({str(s.recompute) for s in shapes}),
        "recomputed_layers_per_stage": "any number of each stage's" if recomputes_any else "none, or all as pinned",
        "sequence_parallel": sorted({str(s.sequence_parallel).lower() for s in shapes}),
        "tensor_parallel_inner": sorted({s.tensor_inner for s in shapes}),
        "context_parallel_above_1": "with the smallest micro-batch only",
        "context_parallel": sorted({s.context_parallel for s in shapes}),
        "expert_parallel": sorted({s.expert_parallel for s in shapes}),
        "schedule": sorted({str(s.schedule) for s in strategies}),
        "zero_stage": problem.options("zero_stage", range(4)),
        "pipeline_parallel": f"1..{problem.machine.model.layers}",
        "virtual_stages": "1..layers / stages; interleaved stages take at least as many micro-batches as stages",
        "data_parallel_by_site": "any number that fits the racks; every site that can train does, as evenly as can be",
        "stages_per_rack": "one, or as many as the rack's GPUs hold",
        "replicas_per_rack": "as many as the rack's GPUs hold, unless pinned",
        "microbatches_per_step": f"any, with at most {problem.max_sequences} sequences a step",
        "layers_per_stage": "any whole numbers",
        "columns_declared": declared,
        "columns_without_replicas": without_replicas,
        "columns_over_memory": over_memory,
        "columns_excluded_by_bound": declared - without_replicas - over_memory - len(result.expanded),
        "columns_expanded": len(result.expanded),
        "excluded_on_even_stages": verification.excluded,
        "verified_by_cpsat": verification.columns,
        "not_verified_by_cpsat": verification.unverified,
    }


def binding(problem: Problem, strategy: ParallelStrategy) -> tuple[str, ...]:
    """Name the limits that bind the layout: batch, memory, racks."""
    names = []
    one_more = strategy.micro_batch * strategy.data_parallel
    sequences = strategy.data_parallel * strategy.micro_batches * strategy.micro_batch
    if sequences + one_more > problem.max_sequences:
        names.append("limits.max_batch_tokens")
    if sum(stage_memory.worst_memory(problem.machine, strategy).values()) > FULL_MEMORY * problem.memory_limit:
        names.append("memory")
    groups = [math.ceil(d / strategy.replicas_per_rack) for d in strategy.data_parallel_by_site]
    racks = racks_of_replica(problem, strategy)
    if all(r - g * racks < racks for r, g in zip(problem.racks, groups, strict=True)):
        names.append("racks")
    return tuple(names)


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
