"""The proof of a joint optimum as a plan states it: its bounds, and the columns that only the sites refused."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from planner.instance.instance import Instance
from planner.models.joint.solution import JointSolution
from planner.models.joint.split import Column
from planner.physics.network.price import min_fabric_usd
from planner.plan.certificate import OUTSIDE, ExcludedColumn, JointProof, ObjectiveValue, declared_space
from planner.solvers.outcome import relative_gap


def proof_of(instance: Instance, solution: JointSolution) -> JointProof:
    """Return the facts other than physics on which the bound of a solution rests, for the checker to follow."""
    figures = {
        "fabric_free_bound_days": solution.fabric_free_bound
        if instance.objective.minimize == "days_to_train"
        else None,
        "counts": solution.counts,
        "min_fabric_usd_per_wired_gpu": min_fabric_usd(instance.network) if instance.network else None,
    }
    return refused_of(solution).model_copy(update=figures)


def refused_of(solution: JointSolution) -> JointProof:
    """Return what a proof says that sites and budget refused: racks beyond the most, and columns."""
    return JointProof(max_racks_by_wired_gpus=dict(sorted(solution.max_racks.items())), columns=columns_of(solution))


def columns_of(solution: JointSolution) -> tuple[ExcludedColumn, ...]:
    """Return the columns that only the sites and the budget refused."""
    return tuple(_grouped(solution.excluded))


def _grouped(columns: Sequence[tuple[float, Column]]) -> Iterator[ExcludedColumn]:
    """Group columns that differ in replicas and micro-batches only, replicas without gaps in ranges."""
    groups: dict[Any, dict[int, float]] = defaultdict(dict)
    for days, column in columns:
        block = column.strategy.block(column.p)
        if block is None:
            raise ValueError("joint: a column without a block")
        key = (column.strategy.shape, column.p, column.v, column.zero, column.strategy.order, block.stages_per_rack)
        groups[key][column.d] = min(days, groups[key].get(column.d, days))
    for (s, p, v, zero, order, q), by_replicas in groups.items():
        for first, last in _ranges(sorted(by_replicas)):
            yield ExcludedColumn(
                tensor_parallel=s.tensor_parallel,
                tensor_parallel_inner=s.tensor_inner,
                context_parallel=s.context_parallel,
                expert_parallel=s.expert_parallel,
                pipeline_parallel=p,
                virtual_stages=v,
                microbatch_sequences=s.micro_batch,
                sequence_parallel=s.sequence_parallel,
                recompute=s.recompute,
                experts_overlap=s.experts_overlap,
                zero_stage=zero,
                schedule=order,
                stages_per_rack=q,
                min_data_parallel=first,
                max_data_parallel=last,
                lower_bound_days=min(by_replicas[replicas] for replicas in range(first, last + 1)),
            )


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the runs of consecutive numbers, each by its first and last."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def objective_of(
    instance: Instance, solution: JointSolution, value: float | None, bound: float | None
) -> ObjectiveValue:
    """Return the objective of a plan with its bounds, and the space that they are over."""
    gap, days = relative_gap(value, bound), instance.objective.minimize == "days_to_train"
    free = solution.fabric_free_bound if days and value is not None else None
    return ObjectiveValue(
        name=instance.objective.minimize,
        value=value,
        bound=bound,
        gap=gap,
        joint_bound=bound,
        joint_gap=gap,
        fabric_free_bound=None if free is None or value is None or not math.isfinite(free) else min(free, value),
        space=declared_space(instance.workload.rules),
        outside=OUTSIDE,
    )
