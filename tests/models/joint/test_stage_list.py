"""The list of all splits of a column against a walk over every pattern of every stage, and against the search's own."""

import itertools
import math
from dataclasses import replace

import pytest
from joint_brute_force import toy

import planner
from planner.models.joint.bounds import Conditions
from planner.models.joint.columns import column_at, pipelines_of
from planner.models.joint.space import Problem, problem_of, strategies
from planner.models.joint.split import Column, Stages
from planner.models.joint.stages.model import Patterns, fastest_split
from planner.models.joint.world import World

FREE = Conditions(racks=1, shards=1, send=1.0, allreduce=1.0)


def with_rule(problem: Problem, stack: str) -> Problem:
    """Return a problem under the rules of the framework of that name."""
    work = problem.instance.workload
    named = work.software.model_copy(update={"name": stack})
    work = work.model_copy(update={"software": named, "framework_rules": True})
    return replace(problem, instance=problem.instance.model_copy(update={"workload": work}))


def keeps_rule(stack: str, layers: list[int], repeats: list[int], v: int) -> bool:
    """Return whether stages recompute by a framework's rule, chunk by chunk."""
    chunks = [[n // v + (k < n % v) for k in range(v)] for n in layers]
    numbers = [0, 99] if stack == "torchtitan" else range(99) if stack == "megatron" else []
    alike = any([sum(min(each, n) for n in own) for own in chunks] == repeats for each in numbers)
    return alike or stack == "own"


def walked(column: Column, seconds: float, stack: str) -> float:
    """Return the seconds of the fastest split among all patterns of all stages."""
    x = Patterns(stages=Stages(column=column, conditions=FREE, cutoff=seconds))
    choices = [[k for k in range(len(x.table)) if x.fits[i, k] and x.seconds[i, k] <= seconds] for i in range(column.p)]
    best = math.inf
    for picked in itertools.product(*choices):
        rows = x.table[list(picked)]
        if rows[:, 0].sum() != column.strategy.problem.layers:
            continue
        if column.strategy.recomputes == "some" and not rows[:, 1].any():
            continue
        if not keeps_rule(stack, rows[:, 0].tolist(), rows[:, 1].tolist(), column.v):
            continue
        slowest = max(float(x.seconds[i, k]) for i, k in enumerate(picked))
        once = x.stages.once(float(x.chunks[list(picked)].max()), int(rows[:, 0].max()))
        best = min(best, slowest + once)
    return best


@pytest.mark.parametrize("seed", [0, 3, 8, 14])
@pytest.mark.parametrize(
    ("recomputes", "stack"), [("any", "own"), ("some", "own"), ("any", "megatron"), ("some", "torchtitan")]
)
def test_the_list_has_the_fastest_split(seed: int, recomputes: str, stack: str) -> None:
    """Its time is the least of a walk over all patterns, and that of the search; a slower split is disproved."""
    free, seen = with_rule(problem_of(toy(seed)), stack), 0
    for share in (1.0, 0.4, 0.2, 0.1, 0.05):
        problem = replace(free, memory_limit=free.memory_limit * share)
        world = World(problem=problem, sites=None, templates=None)
        for s in [x for x in strategies(problem) if x.recomputes == "any"][::3]:
            own = replace(s, recomputes=recomputes)
            _, rows = pipelines_of(world, own)
            for j in range(len(rows)):
                column = column_at(own, 0, rows, j)
                split = Stages(column=column, conditions=FREE).fastest()
                if split is None or not 1 < column.p < 4 or seen > 25:
                    continue
                found, loose = (fastest_split(column, FREE, split.seconds * factor) for factor in (1.0, 1.05))
                assert found.bound == pytest.approx(1, abs=1e-9)
                assert loose.bound * 1.05 == pytest.approx(
                    walked(column, split.seconds * 1.05, stack) / split.seconds, rel=1e-9
                )
                assert loose.bound * 1.05 == pytest.approx(1, abs=1e-9) and loose.patterns >= found.patterns
                assert keeps_rule(stack, list(split.layers), list(split.recomputed), column.v)
                seen += 1
    assert seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 8])
def test_a_plan_under_the_rules(seed: int) -> None:
    """A whole plan keeps the rule, is proven and checked, and is no faster than without it."""
    i = toy(seed)
    ruled = with_rule(problem_of(i), "megatron").instance
    free, plan = planner.solve(i), planner.solve(ruled)
    assert plan.status == "optimal" and planner.check(plan) == []
    assert plan.objective.value is not None and free.objective.value is not None and plan.layout is not None
    assert plan.objective.value >= free.objective.value * (1 - 1e-9)
    x = plan.layout
    counts = list(x.recomputed_layers_per_stage) or [0] * x.pipeline_parallel
    assert keeps_rule("megatron", list(x.layers_per_stage), counts, x.virtual_stages)
    uneven = x.model_copy(
        update={"recompute": "full", "recomputed_layers_per_stage": (1, *(0,) * (x.pipeline_parallel - 1))}
    )
    broken = {v.rule for v in planner.check(plan.model_copy(update={"layout": uneven}))}
    assert x.pipeline_parallel == 1 or "framework" in broken
