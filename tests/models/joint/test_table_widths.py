"""Tables of stages are worked out a few widths at a time, which changes no bound."""

from dataclasses import replace

import numpy as np
import pytest
from joint_strategies import strategies

from planner.models.joint import bounds
from planner.models.joint.columns import pipelines_in_memory, pipelines_of
from planner.models.joint.space import Floats, JointProblem, problem_of
from planner.models.joint.world import World
from planner.planning.load import load_instance


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


def test_every_row_stands_in_one_table() -> None:
    """Rows of all numbers of stages, in any order, stand in one table each."""
    p = np.random.default_rng(0).permutation(np.repeat(np.arange(1, 129), 20))
    tables = list(bounds._by_width(p))
    assert sorted(np.concatenate(tables).tolist()) == list(range(len(p)))
    assert [(int(p[t].min()), int(p[t].max())) for t in tables] == [(1, 8), (9, 32), (33, 128)]


def test_states_of_stages_that_the_stack_lacks_make_no_room() -> None:
    few: list[int] = []
    many: list[int] = []
    for problem, found in ((deep(zero_stages=[0]), few), (deep(zero_stages=[0, 1, 2]), many)):
        world = World(problem=problem, sites=None, templates=None)
        for s in [x for x in strategies(problem) if x.shape.tensor_parallel == 8 and x.shape.micro_batch == 1][::4]:
            found.append(int(pipelines_in_memory(world, s).sum()))
    assert len(few) == len(many) and sum(few) < sum(many)
    assert all(a <= b for a, b in zip(few, many, strict=True))
