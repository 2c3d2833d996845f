"""Bounds on the largest stage from memory, over arrays: never above what the stages of a column need one by one."""

import math
import random

import numpy as np
import pytest
from layout_cases import FLASH, UNFUSED, ZERO_BUBBLE, instance, request

from planner.models.layout import memory_bounds
from planner.models.layout.bounds import column_table
from planner.models.layout.candidates import StepTimes
from planner.models.layout.data import problem_of
from planner.models.layout.layer_split import Stages


@pytest.mark.parametrize("seed", range(30))
def test_the_least_stage_is_a_bound(seed: int) -> None:
    """No split of layers has a smaller largest stage than the bounds; with whole layers the best is close to them."""
    r = random.Random(seed)
    i = instance(
        layers=r.choice([9, 16, 23]),
        sequences=64,
        hbm=r.choice([0.3e9, 0.5e9, 1e9, 2e9, 4e9]),
        software=r.choice([UNFUSED, FLASH, ZERO_BUBBLE]),
    )
    problem = problem_of(i, request(a=64))
    table = column_table(problem)
    layers = problem.machine.model.layers
    for index in r.sample(range(len(table)), min(len(table), 60)):
        column = table.column(index, 0.0)
        p, v = column.pipeline, column.virtual_stages
        replicas = r.choice([1, 2, 8])
        micro_batches = p + r.randint(0, p) if column.filled else r.randint(1, p - 1)
        layer = float(np.asarray(StepTimes(problem=problem, column=column).layer(1).layer_seconds))
        stages = Stages(
            problem=problem,
            column=column,
            shards=replicas,
            micro_batches=micro_batches,
            layer_seconds=layer,
            max_layers=layers - (p - 1) * v,
        )
        first = stages.first_budget
        exact = math.inf if first is None else float(stages.budgets[first])
        arrays = [np.array([x]) for x in (p, v, micro_batches, replicas)]
        low = memory_bounds.min_stage_of_divisible_layers(
            problem, column.layer_strategy, column.zero_stage, *arrays, np.array([layer])
        )[0]
        whole = memory_bounds.min_stage_of_whole_layers(
            problem, column.layer_strategy, column.zero_stage, *arrays, np.array([layer])
        )[0]
        assert low <= exact * (1 + 1e-12)
        assert whole <= exact * (1 + 1e-12)
        if whole and math.isfinite(exact) and exact < 2 * -(-layers // p) * layer:
            assert whole >= exact * (1 - 1e-3)
