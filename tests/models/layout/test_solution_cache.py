"""What layout searches leave to similar problems: the same results, and bounds that no layout is under."""

import random
from dataclasses import replace

import numpy as np
import pytest
from layout_cases import random_case

from planner.models.layout.best_first import search
from planner.models.layout.bounds import column_table
from planner.models.layout.data import Problem, list_layer_strategies, problem_of
from planner.models.layout.solution_cache import SolutionCache
from planner.models.layout.solve import BOUND_TOLERANCE, search_with_cache


def similar(problem: Problem, rng: random.Random) -> Problem:
    """Return a problem that differs in racks and network alone."""
    slow = replace(
        problem.conditions,
        pipeline_send_slowdown=rng.choice((1.0, 1.5, 4.0)),
        allreduce_slowdown=rng.choice((1.0, 1.05, 2.0)),
    )
    if len(problem.racks) > 1:
        slow = replace(slow, wan_gbps=rng.choice((None, 10.0, 100.0)), wan_rtt_ms=rng.choice((0.0, 20.0)))
    return replace(problem, racks=tuple(rng.randint(1, 7) for _ in problem.racks), conditions=slow)


@pytest.mark.parametrize("seed", range(60))
def test_the_cache_changes_no_result(seed: int) -> None:
    """Solved one after another, similar problems have the results that each has alone."""
    rng, cache = random.Random(seed), SolutionCache()
    first = problem_of(*random_case(seed))
    for problem in (first, *(similar(first, rng) for _ in range(6))):
        alone, result = search(problem), search_with_cache(problem, cache, None)
        assert (result.best is None) == (alone.best is None)
        assert result.bound == pytest.approx(alone.bound, rel=1e-12)
        if result.best is not None and alone.best is not None:
            assert result.best.seconds == pytest.approx(alone.best.seconds, rel=1e-12)


@pytest.mark.parametrize("seed", range(60, 90))
def test_no_layout_is_under_its_known_bound(seed: int) -> None:
    """What searches prove of a column holds for its fastest layout, with as many racks or fewer."""
    problem = problem_of(*random_case(seed))
    cache, rng = SolutionCache(), random.Random(seed)
    for asked in (problem, *(similar(problem, rng) for _ in range(3))):
        search_with_cache(asked, cache, None)
    fewer = replace(problem, racks=tuple(max(1, r - 1) for r in problem.racks))
    for asked in (problem, fewer):
        bounds = cache.known_bounds(asked)
        for index, strategy in enumerate(list_layer_strategies(asked) if bounds is not None else []):
            table = column_table(asked, [strategy])
            for i in range(len(table)):
                column = table.column(i, float(table.bound[i]))
                best = search(asked, table=table.select(np.array([i]))).best
                key = index, column.zero_stage, column.pipeline, column.virtual_stages, column.filled
                assert bounds is None or best is None or best.seconds >= bounds.of(key) * (1 - 1e-12)


def test_known_bounds_exclude_columns() -> None:
    """Every layer strategy has a bound, and some bounds keep a problem with a slower network from searching it."""
    excluded = 0
    for seed in range(20):
        result = search(problem_of(*random_case(seed)), bound_tolerance=BOUND_TOLERANCE)
        if result.best is not None and result.known_bounds is not None:
            excluded += int((result.known_bounds.pairs >= result.best.seconds * 1.02).sum())
            assert np.all(result.known_bounds.pairs > 0) and np.all(np.isfinite(result.known_bounds.pairs))
    assert excluded > 0


def test_more_replicas_or_a_faster_network_take_no_bounds() -> None:
    """What is proven with few racks or a slow network says nothing of more and faster ones."""
    problem = next(p for p in (problem_of(*random_case(seed)) for seed in range(20)) if search(p).best is not None)
    cache = SolutionCache()
    search_with_cache(problem, cache, None)
    same, more = (
        cache.known_bounds(problem),
        cache.known_bounds(replace(problem, racks=tuple(r + 4 for r in problem.racks))),
    )
    assert same is not None and np.all(same.pairs[:, 1:] > 0)
    assert more is not None and not np.any(more.pairs) and not any(more.columns.values())
    assert (
        cache.known_bounds(
            replace(
                problem,
                conditions=replace(
                    problem.conditions, pipeline_send_slowdown=problem.conditions.pipeline_send_slowdown / 2
                ),
            )
        )
        is None
    )


def test_a_relaxed_split_takes_bounds_of_relaxed_splits_alone() -> None:
    """Sites that share shards fit more: bounds of sites that do not share are not valid for them; the reverse is."""
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
        cache = SolutionCache()
        search_with_cache(first, cache, None)
        assert (cache.known_bounds(second) is not None) == known


def test_no_layer_strategy_is_a_result_too() -> None:
    """A pin that leaves no layer strategy has no layout, however often it is solved."""
    problem = problem_of(*random_case(0))
    problem, cache = replace(problem, pins={"layout.tensor_parallel": 3}), SolutionCache()
    for racks in (4, 3):
        assert search_with_cache(replace(problem, racks=tuple(racks for _ in problem.racks)), cache, None).best is None
