"""Layout: agreement with a brute force over every layout of small cases, and of CP-SAT with the search."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from layout_cases import (
    ZERO_BUBBLE,
    batch_limited_case,
    every_time,
    instance,
    min_seconds_per_sequence,
    random_case,
    request,
)

from planner.api import check
from planner.instance.instance import Instance
from planner.models.layout import data as layout_data
from planner.models.layout import solve as layout
from planner.models.layout.best_first import is_column_of
from planner.models.layout.bounds import column_table
from planner.models.layout.candidates import split_replicas
from planner.models.layout.nodes import BestFirstQueue
from planner.models.layout.pricing import price_column
from planner.models.requests import LayoutRequest, Options
from planner.physics.training import schedule
from planner.planning.solve import evenly, solve_instance


@pytest.mark.parametrize("seed", range(200))
def test_agrees_with_brute_force(seed: int) -> None:
    """The search finds the fastest of all layouts, or finds none where there is none, and CP-SAT agrees."""
    i, asked = random_case(seed)
    expected = min_seconds_per_sequence(i, asked)
    problem = layout_data.problem_of(i, asked)
    result = layout.search(problem)
    assert (result.best is None) == (expected is None)
    if result.best is not None and expected is not None:
        assert result.best.seconds == pytest.approx(expected, rel=1e-9)
        assert result.bound == result.best.seconds
        seen = layout.verify(problem, result, Options())
        assert seen.columns + seen.excluded + seen.unverified == len(result.expanded)


@pytest.mark.parametrize("seed", range(200, 230))
def test_column_bounds_are_bounds(seed: int) -> None:
    """No layout of a column is faster than the column's bound, nor than the bound that memory sharpens."""
    i, asked = random_case(seed)
    problem = layout_data.problem_of(i, asked)
    for leaf in itertools.islice(BestFirstQueue(problem, column_table(problem)), 60):
        best = price_column(problem, leaf.column, math.inf, ranges=leaf.ranges)
        assert best is None or best.seconds >= leaf.column.bound * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_brute_force_where_the_batch_is_small(seed: int) -> None:
    """Where the batch leaves most racks idle, the search finds the fastest of all layouts, or none if there is none."""
    i, asked = batch_limited_case(seed)
    expected = min_seconds_per_sequence(i, asked)
    result = layout.search(layout_data.problem_of(i, asked))
    assert (result.best is None) == (expected is None)
    if result.best is not None:
        assert result.best.seconds == pytest.approx(expected, rel=1e-9)
        assert result.bound == result.best.seconds


@pytest.mark.parametrize("seed", range(40, 60))
def test_no_layout_is_faster_than_its_node(seed: int) -> None:
    """Every layout that fits memory belongs to one node, and none is faster than the bound of that node."""
    i, asked = batch_limited_case(seed)
    problem = layout_data.problem_of(i, asked)
    leaves = list(BestFirstQueue(problem, column_table(problem)))
    for seconds, strategy in every_time(i, asked):
        own = [
            x.column.bound
            for x in leaves
            if x.ranges.replicas[0] <= strategy.data_parallel <= x.ranges.replicas[1]
            and (x.column.filled or x.ranges.micro_batches[0] <= strategy.micro_batches <= x.ranges.micro_batches[1])
            and is_column_of(x.column, strategy)
        ]
        assert len(own) == 1
        assert seconds >= own[0] * (1 - 1e-12)


def days(i: Instance, asked: LayoutRequest) -> float:
    """Return the least days to train; infinite where no layout fits."""
    return (layout.bound_days(i, asked) or (math.inf, None))[0]


@pytest.mark.parametrize("seed", range(10))
def test_more_never_hurts(seed: int) -> None:
    """More memory, a larger batch or more racks never slow training down."""
    i, asked = random_case(seed)
    free = i.model_copy(update={"pins": {}})
    before = days(free, asked)
    gpu = free.hardware.accelerator
    assert not isinstance(gpu, str)
    roomy = free.model_copy(
        update={"hardware": free.hardware.model_copy(update={"accelerator": gpu.model_copy(update={"hbm_bytes": 8e9})})}
    )
    batch = free.model_copy(update={"limits": free.limits.model_copy(update={"max_batch_tokens": 9 * 1024.0})})
    more = request(**{s: n + 1 for s, n in asked.racks_by_site.items()})
    assert days(roomy, asked) <= before * (1 + 1e-12)
    assert days(batch, asked) <= before * (1 + 1e-12)
    if len(asked.racks_by_site) == 1:
        assert days(free, more) <= before * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_interleaved_stages_keep_more_past_the_first_round(seed: int) -> None:
    """At every memory limit CP-SAT and the search agree on interleaved stages, whose chunks in flight grow by round."""
    i = instance(
        layers=4,
        sequences=8,
        hbm=0.4e9 + 0.02e9 * seed,
        pins={"layout.pipeline_parallel": 2, "layout.virtual_stages": 2, "layout.data_parallel": 1},
    )
    problem = layout_data.problem_of(i, request(a=2))
    result = layout.search(problem)
    layout.verify(problem, result, Options())
    in_flight = [int(schedule.chunks_in_flight("1f1b", 0, 2, 2, m)) for m in (2, 4, 6)]
    assert in_flight == [4, 5, 5]


def test_even_split_over_sites() -> None:
    """Replicas split as evenly as the sites' racks permit."""
    shares = split_replicas(np.array([2, 9]), np.array([2, 3, 8, 11]))
    assert shares.T.tolist() == [[1, 1], [1, 2], [2, 6], [2, 9]]


def test_conflict_names_memory() -> None:
    """A model that fits memory with no layout is infeasible by memory, with the bytes of the smallest layout."""
    result = layout.conflict(instance(hbm=2e8), request(a=1))
    assert "memory" in result.rules
    assert "GB a GPU" in result.reason


def test_conflict_names_a_pin() -> None:
    """A pin that no layout meets is what the conflict names."""
    result = layout.conflict(instance(pins={"layout.tensor_parallel": 3}), request(a=2))
    assert result.rules == ("pins.layout.tensor_parallel",)


def test_zero_bubble_is_taken_where_the_framework_has_it() -> None:
    """With few micro-batches the ZB-H1 schedule beats 1F1B, and is left out where a pin says so."""
    pins = {"layout.pipeline_parallel": 3, "layout.data_parallel": 1}
    free = days(instance(sequences=6, hbm=8e9, pins=pins, software=ZERO_BUBBLE), request(a=3))
    pinned = days(
        instance(
            sequences=6,
            hbm=8e9,
            pins={**pins, "layout.schedule": "1f1b", "layout.virtual_stages": 1},
            software=ZERO_BUBBLE,
        ),
        request(a=3),
    )
    assert free < pinned


def test_memory_decides_how_many_layers_recompute() -> None:
    """Between memory for all activations and for none, some layers are recomputed; never one alone, rebuilt in work."""
    pins = {
        "layout.tensor_parallel": 1,
        "layout.pipeline_parallel": 1,
        "layout.data_parallel": 1,
        "layout.zero_stage": 0,
        "layout.microbatch_sequences": 4,
    }
    seen = set()
    for hbm in np.linspace(1.5e9, 6e9, 46):
        result = layout.search(layout_data.problem_of(instance(layers=4, hbm=float(hbm), pins=pins), request(a=1))).best
        if result is not None:
            seen.add(sum(result.strategy.recomputed))
    assert seen == {0, 2, 3, 4}


@pytest.mark.parametrize("seed", range(300, 330))
def test_every_layout_keeps_the_rules(seed: int) -> None:
    """A layout found on one cluster breaks no rule of the checker."""
    i, asked = random_case(seed)
    plan = solve_instance(
        i.model_copy(update={"hardware": i.hardware.model_copy(update={"racks": asked.racks_by_site["a"]})}),
        Options(),
        str,
    )
    assert plan.status in ("optimal", "infeasible")
    assert check(plan) == []


def test_a_limit_still_gives_a_layout() -> None:
    """Out of time at once, the search returns the first layout that it finds, with a bound under it."""
    problem = layout_data.problem_of(instance(layers=4, sequences=64, hbm=2e9), request(a=8))
    result = layout.search(problem, time_limit=0.0)
    assert result.best is not None
    assert result.bound <= result.best.seconds


def test_verification_ends_at_its_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT verifies what its effort reaches, counts the rest, and spends the same effort every time."""
    problem = layout_data.problem_of(*random_case(3))
    result = layout.search(problem)
    first, second = (layout.verify(problem, result, Options()) for _ in range(2))
    assert first.columns > 0 and first.effort > 0 and first == second
    monkeypatch.setattr(layout, "MAX_EFFORT", 0.0)
    none = layout.verify(problem, result, Options())
    assert (none.columns, none.unverified) == (0, len(result.expanded))


@pytest.mark.slow  # each seed searches every split of several sites
@pytest.mark.parametrize("seed", range(12))
def test_no_split_is_faster_than_the_even_one(seed: int) -> None:
    """Racks split over sites in any way, behind any network, train no sooner than split evenly behind the fastest."""
    i = random_case(seed)[0].model_copy(update={"pins": {}})
    racks = 2 + seed % 4
    bound = days(i, evenly(racks, 2, 1.0))
    splits = [request(a=racks), *(request(a=n, b=racks - n) for n in range(1, racks))]
    times = [
        days(i, replace(s, pipeline_send_slowdown=1.0, allreduce_slowdown=1.0, wan_gbps=w))
        for s in splits
        for w in (None, 1.0)
    ]
    assert bound <= min(times) * (1 + 1e-12) and (bound < math.inf) == (min(times) < math.inf)
