"""What layout searches leave to like questions: the same answers, and floors that no layout is under."""

import random
from dataclasses import replace

import numpy as np
import pytest
from layout_cases import random_case

from planner.models.layout.best_first import search
from planner.models.layout.columns import row_table
from planner.models.layout.data import Problem, layer_strategies, problem_of
from planner.models.layout.solve import MARGIN, remembered
from planner.models.layout.warm_start import SolutionCache


def like(problem: Problem, rng: random.Random) -> Problem:
    """Return a question that differs in racks and network alone."""
    slow = replace(
        problem.conditions,
        pipeline_send_slowdown=rng.choice((1.0, 1.5, 4.0)),
        allreduce_slowdown=rng.choice((1.0, 1.05, 2.0)),
    )
    if len(problem.racks) > 1:
        slow = replace(slow, wan_gbps=rng.choice((None, 10.0, 100.0)), wan_rtt_ms=rng.choice((0.0, 20.0)))
    return replace(problem, racks=tuple(rng.randint(1, 7) for _ in problem.racks), conditions=slow)


@pytest.mark.parametrize("seed", range(60))
def test_memory_changes_no_answer(seed: int) -> None:
    """Asked one after another, like questions have the answers that each has alone."""
    rng, memory = random.Random(seed), SolutionCache()
    first = problem_of(*random_case(seed))
    for problem in (first, *(like(first, rng) for _ in range(6))):
        alone, found = search(problem), remembered(problem, memory, None)
        assert (found.best is None) == (alone.best is None)
        assert found.bound == pytest.approx(alone.bound, rel=1e-12)
        if found.best is not None and alone.best is not None:
            assert found.best.seconds == pytest.approx(alone.best.seconds, rel=1e-12)


@pytest.mark.parametrize("seed", range(60, 90))
def test_no_layout_is_under_its_floor(seed: int) -> None:
    """What searches prove of a row holds for its fastest layout, with as many racks or fewer."""
    problem = problem_of(*random_case(seed))
    memory, rng = SolutionCache(), random.Random(seed)
    for asked in (problem, *(like(problem, rng) for _ in range(3))):
        remembered(asked, memory, None)
    fewer = replace(problem, racks=tuple(max(1, r - 1) for r in problem.racks))
    for asked in (problem, fewer):
        floors = memory.floors(asked)
        for way, base in enumerate(layer_strategies(asked) if floors is not None else []):
            table = row_table(asked, [base])
            for i in range(len(table)):
                row = table.row(i, float(table.bound[i]))
                held = search(asked, table=table.part(np.array([i]))).best
                key = way, row.zero, row.pipeline, row.virtual_stages, row.filled
                assert floors is None or held is None or held.seconds >= floors.of(key) * (1 - 1e-12)


def test_floors_leave_rows_out() -> None:
    """Floors are known of every way to cut a layer, and some keep a slower network's question from searching it."""
    kept = 0
    for seed in range(20):
        found = search(problem_of(*random_case(seed)), margin=MARGIN)
        if found.best is not None and found.floors is not None:
            kept += int((found.floors.pairs >= found.best.seconds * 1.02).sum())
            assert np.all(found.floors.pairs > 0) and np.all(np.isfinite(found.floors.pairs))
    assert kept > 0


def test_more_replicas_or_a_faster_network_take_no_floors() -> None:
    """What is proven with few racks or a slow network says nothing of more and faster ones."""
    problem = next(p for p in (problem_of(*random_case(seed)) for seed in range(20)) if search(p).best is not None)
    memory = SolutionCache()
    remembered(problem, memory, None)
    same, more = memory.floors(problem), memory.floors(replace(problem, racks=tuple(r + 4 for r in problem.racks)))
    assert same is not None and np.all(same.pairs[:, 1:] > 0)
    assert more is not None and not np.any(more.pairs) and not any(more.rows.values())
    assert (
        memory.floors(
            replace(
                problem,
                conditions=replace(
                    problem.conditions, pipeline_send_slowdown=problem.conditions.pipeline_send_slowdown / 2
                ),
            )
        )
        is None
    )


def test_a_relaxed_split_takes_floors_of_its_like_alone() -> None:
    """Where all sites' replicas share shards more fits: what was proven of sites that do not share says nothing of it, but the other way round."""
    problem = next(
        p
        for p in (problem_of(*random_case(seed)) for seed in range(40))
        if len(p.racks) == 2 and search(p).best is not None
    )
    problem = replace(problem, racks=(6, 6))
    relaxed = replace(problem, racks=(3, 3), racks_in_all=3)
    for first, second, known in (
        (problem, relaxed, False),
        (replace(problem, racks_in_all=6), replace(problem, racks=(3, 3)), True),
    ):
        memory = SolutionCache()
        remembered(first, memory, None)
        assert (memory.floors(second) is not None) == known


def test_no_way_to_cut_a_layer_is_an_answer_too() -> None:
    """A pin that leaves no way to cut a layer has no layout, however often it is asked."""
    problem = problem_of(*random_case(0))
    problem, memory = replace(problem, pins={"layout.tensor_parallel": 3}), SolutionCache()
    for racks in (4, 3):
        assert remembered(replace(problem, racks=tuple(racks for _ in problem.racks)), memory, None).best is None
