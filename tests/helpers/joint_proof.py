"""The proof of a joint optimum as its search finds it: every column that it opened below its final value."""

from collections import defaultdict
from typing import Any
from unittest.mock import patch

from joint_brute_force import includes_fabric

from planner.checks.joint.racks import min_fabric_usd
from planner.instance.instance import Instance
from planner.models.joint import solve
from planner.models.joint.solution import JointSolution
from planner.models.joint.split import Column
from planner.models.requests import Options
from planner.plan.proof import ExcludedColumn, JointProof


def solved_with_proof(i: Instance, *, overhead_includes_fabric: bool | None = None) -> tuple[JointSolution, JointProof]:
    """Solve an instance; return its solution and the proof that the checker asks for."""
    opened: list[tuple[float, Column]] = []
    trees: list[solve.Tree] = []
    expand, run = solve.EXPAND["column"], solve._run

    def record(tree: solve.Tree, key: float, column: Column) -> None:
        opened.append((key, column))
        expand(tree, key, column)

    def remember(tree: solve.Tree) -> bool:
        trees.append(tree)
        return run(tree)

    included = includes_fabric(i) if overhead_includes_fabric is None else overhead_includes_fabric
    with patch.dict(solve.EXPAND, {"column": record}), patch.object(solve, "_run", remember):
        found = solve.solve_joint(i, Options(), lambda _: None, overhead_includes_fabric=included)
    tree, per_day = trees[0], _days_of_a_second(i)
    most = tree.world.sites.most if tree.world.sites is not None else {}
    proof = JointProof(
        fabric_free_bound_days=found.fabric_free_bound,
        counts=found.counts,
        max_racks_by_wired_gpus=most,
        min_fabric_usd_per_wired_gpu=min_fabric_usd(i) if i.network else None,
        columns=excluded([(key * per_day, c) for key, c in opened if key < tree.cutoff]),
    )
    return found, proof


def _days_of_a_second(i: Instance) -> float:
    w = i.workload
    return w.tokens / w.sequence_length / w.availability / 86_400


def excluded(columns: list[tuple[float, Column]]) -> tuple[ExcludedColumn, ...]:
    """Group columns that differ in replicas and micro-batches only, replicas without gaps in ranges."""
    groups: dict[Any, dict[int, float]] = defaultdict(dict)
    for days, c in columns:
        s, block = c.strategy.shape, c.strategy.block(c.p)
        assert block is not None
        key = (s, c.p, c.v, c.zero, c.strategy.order, block.stages_per_rack)
        groups[key][c.d] = min(days, groups[key].get(c.d, days))
    return tuple(
        ExcludedColumn(
            tensor_parallel=s.tensor_parallel,
            tensor_parallel_inner=s.tensor_inner,
            context_parallel=s.context_parallel,
            expert_parallel=s.expert_parallel,
            pipeline_parallel=p,
            virtual_stages=v,
            microbatch_sequences=s.micro_batch,
            sequence_parallel=s.sequence_parallel,
            recompute=s.recompute,
            zero_stage=zero,
            schedule=order,
            stages_per_rack=q,
            min_data_parallel=first,
            max_data_parallel=last,
            lower_bound_days=min(by_replicas[d] for d in range(first, last + 1)),
        )
        for (s, p, v, zero, order, q), by_replicas in groups.items()
        for first, last in _ranges(sorted(by_replicas))
    )


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for n in numbers:
        if found and found[-1][1] == n - 1:
            found[-1] = (found[-1][0], n)
        else:
            found.append((n, n))
    return found
