"""The list of all splits of a column against a walk over every pattern of every stage, and against the search's own."""

import itertools
import math
from dataclasses import replace

import pytest
from joint_brute_force import toy
from joint_strategies import strategies, with_rule

from planner.models.joint.bounds import RowConditions
from planner.models.joint.columns import column_at, pipelines_of
from planner.models.joint.space import problem_of
from planner.models.joint.split import Column, Stages
from planner.models.joint.stages.model import Patterns, fastest_split
from planner.models.joint.world import World

FREE = RowConditions(racks=1, shards=1, send=1.0, allreduce=1.0)


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


# Of the toys 3 and 0 these two frameworks run none of the pipelines that are looked at.
RULED = [("any", "megatron", 0), ("any", "megatron", 8), ("any", "megatron", 14)]
RULED += [("some", "torchtitan", 3), ("some", "torchtitan", 8), ("some", "torchtitan", 14)]


@pytest.mark.parametrize(
    ("recomputes", "stack", "seed"), [*itertools.product(("any", "some"), ("own",), (0, 3, 8, 14)), *RULED]
)
def test_the_list_has_the_fastest_split(recomputes: str, stack: str, seed: int) -> None:
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
