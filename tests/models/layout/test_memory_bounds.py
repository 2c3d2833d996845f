"""What memory lets stages hold, by columns: never less than the stages of a row hold one by one."""

import math
import random

import numpy as np
import pytest
from layout_cases import FLASH, UNFUSED, ZERO_BUBBLE, instance, request

from planner.models.layout import columns as layout_columns
from planner.models.layout import data as layout_data
from planner.models.layout import memory_bounds
from planner.models.layout.layer_split import Stages
from planner.models.layout.pricing import pace_of


@pytest.mark.parametrize("seed", range(30))
def test_the_least_stage_by_columns_is_a_bound(seed: int) -> None:
    """No split of a row's layers has a smaller largest stage; in whole layers the bound is what the best split has, but for the halving."""
    r = random.Random(seed)
    i = instance(
        layers=r.choice([9, 16, 23]),
        sequences=64,
        hbm=r.choice([0.3e9, 0.5e9, 1e9, 2e9, 4e9]),
        software=r.choice([UNFUSED, FLASH, ZERO_BUBBLE]),
    )
    problem = layout_data.problem_of(i, request(a=64))
    table = layout_columns.row_table(problem)
    layers = problem.machine.model.layers
    for index in r.sample(range(len(table)), min(len(table), 60)):
        row = table.row(index, 0.0)
        p, v = row.pipeline, row.virtual_stages
        replicas = r.choice([1, 2, 8])
        batches = p + r.randint(0, p) if row.filled else r.randint(1, p - 1)
        layer = float(np.asarray(pace_of(problem, row, 1).layer_seconds))
        stages = Stages(
            problem=problem, row=row, replicas=replicas, batches=batches, layer=layer, most_layers=layers - (p - 1) * v
        )
        first = stages.first_budget
        exact = math.inf if first is None else float(stages.budgets[first])
        columns = [np.array([x]) for x in (p, v, batches, replicas)]
        low = memory_bounds.least_stage(problem, row.base, row.zero, *columns, np.array([layer]))[0]
        whole = memory_bounds.least_whole_stage(problem, row.base, row.zero, *columns, np.array([layer]))[0]
        assert low <= exact * (1 + 1e-12)
        assert whole <= exact * (1 + 1e-12)
        if whole and math.isfinite(exact) and exact < 2 * -(-layers // p) * layer:
            assert whole >= exact * (1 - 1e-3)
