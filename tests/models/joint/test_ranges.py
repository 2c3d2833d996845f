"""Ranges of blocks: their floors lie below every column inside, and what the cutoff takes off holds none in time."""

import math
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from joint_brute_failures import failing
from joint_brute_force import toy
from tiers import slow

from planner.instance.instance import Instance
from planner.models.joint.columns import column_at, columns_of, free_seconds, pipelines_of, table_of, under_zero
from planner.models.joint.search.days import FewestDays
from planner.models.joint.search.ranges import Ranges, all_ranges, bounded, in_memory, under_stage
from planner.models.joint.solve import world_of
from planner.models.joint.split import Column
from planner.models.joint.world import World
from planner.models.requests import Options
from planner.solvers.signals import Deadline


@dataclass(kw_only=True)
class Within(FewestDays):
    """The goal of plans under some seconds."""

    most: float = math.inf

    @property
    def most_seconds(self) -> float:
        """Those seconds."""
        return self.most


def of_stage(goal: Within, x: Ranges, zero: int) -> Ranges:
    """Return the ranges under a ZeRO stage with all that sharpens them."""
    return in_memory(goal, bounded(goal, under_stage(bounded(goal, x), zero)))


CASES: list[tuple[str, Instance]] = [
    *((f"toy {seed}", toy(seed)) for seed in (0, 8)),
    ("two sites", toy(36, sites=2, forced=True)),
    ("parts fail", failing(16)),
]


def every_column(world: World, r: random.Random) -> list[tuple[Column, int, float]]:
    """Return columns of every pipeline and ZeRO stage, some of many, with their blocks and exact seconds."""
    found: list[tuple[Column, int, float]] = []
    for s in world.strategies():
        keys, rows = pipelines_of(world, s)
        for zero in s.problem.zero_stages if len(rows) else ():
            pipes = under_zero(s, zero, rows, keys, math.inf)
            columns = None if pipes is None else columns_of(world, s, zero, pipes, 1e18)
            if columns is None:
                continue
            table = columns[1]
            for j in r.sample(range(len(table)), min(60, len(table))):
                column = column_at(s, zero, table, j)
                exact = free_seconds(world, column, math.inf)
                if math.isfinite(exact):
                    found.append((column, int(table.blocks()[j]), exact))
    return found


@pytest.mark.parametrize("draw", [0, 1, *slow(2, 3, 4, 5)])
@pytest.mark.parametrize("i", [i for _, i in CASES], ids=[name for name, _ in CASES])
def test_columns_in_time_are_inside_and_above_the_floors(i: Instance, draw: int) -> None:
    """Columns under the time of a drawn one are in a range that is left, and take no less than its floor."""
    world, r, looked = world_of(i, Options(), Deadline()), random.Random(draw), 0
    columns = every_column(world, r)
    goal = Within(world=world, most=r.choice([exact for _, _, exact in columns]) * (1 + 1e-6))
    for column, blocks, exact in columns:
        if exact > goal.most:
            continue
        of = table_of(world, column.strategy)
        at = np.flatnonzero((of.rows.p == column.p) & (of.rows.v == column.v))
        low, high = r.randrange(blocks), r.randint(blocks, int(of.rows.blocks()[at[0]]))
        x = of_stage(goal, all_ranges(of, np.array([low]), np.array([high]), at), column.zero)
        assert len(x.at) == 1 and x.low[0] < blocks <= x.high[0]
        assert x.seconds[0] <= exact * (1 + 1e-9)
        looked += 1
    assert looked


def test_a_half_has_no_lower_floor() -> None:
    """Each half of a range has at least the floor of the whole."""
    world = world_of(toy(8), Options(), Deadline())
    goal = Within(world=world)
    halves = 0
    for s in world.strategies():
        of = table_of(world, s)
        most = np.maximum(of.rows.blocks(), 1)
        x = of_stage(goal, all_ranges(of, np.zeros_like(most), most, np.arange(len(most))), s.problem.zero_stages[0])
        wide = x.part(np.flatnonzero(x.high > x.low + 1))
        middle = (wide.low + wide.high) // 2
        lower = bounded(goal, replace(wide, high=middle, in_memory=np.zeros(len(middle), dtype=bool)))
        whole = dict(zip(wide.at.tolist(), wide.seconds.tolist(), strict=True))
        assert all(b >= whole[a] for a, b in zip(lower.at.tolist(), lower.seconds.tolist(), strict=True))
        halves += len(lower.at)
    assert halves
