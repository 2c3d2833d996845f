"""Floors lie below every column, the list of splits holds the fastest, and tables of a few widths change no bound."""

import itertools
import math
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from joint_brute_failures import failing
from joint_brute_force import toy
from joint_strategies import strategies, with_rule
from tiers import more, slow

from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint import bounds
from planner.models.joint.bounds import RowConditions
from planner.models.joint.columns import (
    column_at,
    columns_of,
    free_seconds,
    pipelines_in_memory,
    pipelines_of,
    table_of,
    under_zero,
)
from planner.models.joint.search.days import FewestDays
from planner.models.joint.search.ranges import Ranges, all_ranges, bounded, in_memory, under_stage
from planner.models.joint.solve import world_of
from planner.models.joint.space import Floats, JointProblem, problem_of
from planner.models.joint.split import Column, Stages
from planner.models.joint.stage_layers import Patterns, fastest_split
from planner.models.joint.world import World
from planner.planning.load import load_instance
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


@pytest.mark.parametrize("draw", [0, 1, *slow(2), *more(3, 4, 5)])
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
                if split is None or not 1 < column.p < 4 or seen > 15:
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


def deep(**software: object) -> JointProblem:
    """Return 40 layers on 64 nodes of 8 A100, tight in memory: pipelines of 1 to 40 stages."""
    return problem_of(
        load_instance(
            {
                "name": "deep",
                "objective": {"minimize": "days_to_train"},
                "limits": {"max_batch_tokens": 256 * 2048},
                "workload": {
                    "model": {"name": "m", "layers": 40, "hidden": 16384, "heads": 128, "vocabulary": 51200},
                    "tokens": 1e10,
                    "sequence_length": 2048,
                    "software": {"name": "own", **software},
                    "precision": {
                        **{"compute": "fp16", "parameter_bytes": 2, "working_parameter_bytes": 2, "gradient_bytes": 4},
                        **{"optimizer_bytes": 12, "activation_bytes": 2, "collective_bytes": 2},
                    },
                },
                "hardware": {"accelerator": "A100-80GB", "rack": "DGX-A100", "racks": 64},
            }
        )
    )


def test_bounds_in_memory_are_those_of_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rows hold and how fast they are is the same in tables of 8, 32 and 40 stages as in a single one."""
    problem, held, narrowed = deep(), 0, 0
    world = World(problem=problem, sites=None, templates=None)
    for s in [x for x in strategies(problem) if x.shape.tensor_parallel == 8 and x.shape.micro_batch <= 2][::5]:
        _, rows = pipelines_of(world, s)
        found: list[Floats] = []
        at_once: list[Floats] = []
        for values, few in ((found, 1), (at_once, 1 << 40)):
            monkeypatch.setattr(bounds, "FEW_ENTRIES", few)
            narrowed += len(list(bounds._by_width(rows.p))) > 1
            for zero in (1, 3):
                values.append(bounds.holds_layers(s, zero, rows).astype(float))
                layer = np.full(len(rows), s.layer)
                values.append(bounds.min_stage_seconds_in_memory(s, zero, rows, rows.d, layer))
        held += int(sum(found[0]))
        assert 0 < np.isfinite(found[1]).sum() < len(rows) or not len(rows)
        for one, other in zip(found, at_once, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    assert held and narrowed


def test_bounds_in_memory_are_in_the_unit_of_the_seconds_given() -> None:
    """Of layers and recomputation that take ten thousand times as long, or a thousandth, the bounds do too."""
    problem, tight = deep(), 0
    world = World(problem=problem, sites=None, templates=None)
    for s in [x for x in strategies(problem) if x.shape.tensor_parallel == 8 and x.shape.micro_batch <= 2][::20]:
        _, rows = pipelines_of(world, s)
        layer, recompute = np.full((len(rows), 1), s.layer), s.between.times.recompute_seconds
        for share in (1.0, 0.8, 0.6, 0.4):
            x = bounds._memory_of(s, 1, rows, rows.d)
            x = replace(x, room=share * x.room, recomputing=share * x.recomputing)
            usual = bounds._min_stage_seconds(s, rows, x, layer, recompute)
            tight += int((np.isfinite(usual) & (usual > 40 / rows.p * s.layer * (1 + 1e-6))).sum())
            for times in (1e-3, 1e4):
                found = bounds._min_stage_seconds(s, rows, x, layer * times, recompute * times)
                np.testing.assert_allclose(found, usual * times, rtol=1e-9)
    assert tight


def test_states_of_stages_that_the_stack_lacks_make_no_room() -> None:
    few: list[int] = []
    many: list[int] = []
    for problem, found in ((deep(zero_stages=[0]), few), (deep(zero_stages=[0, 1, 2]), many)):
        world = World(problem=problem, sites=None, templates=None)
        for s in [x for x in strategies(problem) if x.shape.tensor_parallel == 8 and x.shape.micro_batch == 1][::4]:
            found.append(int(pipelines_in_memory(world, s).sum()))
    assert len(few) == len(many) and sum(few) < sum(many)
    assert all(a <= b for a, b in zip(few, many, strict=True))
