"""Layout: agreement with a brute force over every layout of small cases, and of CP-SAT with the tables."""

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
    least_seconds_per_sequence,
    random_case,
    request,
)

from planner.api import check
from planner.instance.instance import Instance
from planner.models.layout import columns as layout_columns
from planner.models.layout import columns_dp_microbatch
from planner.models.layout import data as layout_data
from planner.models.layout import pricing as layout_pricing
from planner.models.layout import solve as layout
from planner.models.layout.best_first import Queue, is_row_of
from planner.models.requests import LayoutRequest, Options
from planner.physics.training import schedule
from planner.planning.joint_bound import evenly
from planner.planning.solve import solve_instance


@pytest.mark.parametrize("seed", range(200))
def test_agrees_with_brute_force(seed: int) -> None:
    """The tables find the fastest of all layouts, or find none where there is none, and CP-SAT agrees."""
    i, asked = random_case(seed)
    right = least_seconds_per_sequence(i, asked)
    problem = layout_data.problem_of(i, asked)
    found = layout.search(problem)
    assert (found.best is None) == (right is None)
    if found.best is not None and right is not None:
        assert found.best.seconds == pytest.approx(right, rel=1e-9)
        assert found.bound == found.best.seconds
        told = layout.confirm(problem, found, Options())
        assert told.rows + told.excluded + told.left == len(found.opened)


@pytest.mark.parametrize("seed", range(200, 230))
def test_row_bounds_are_bounds(seed: int) -> None:
    """No layout of a row is faster than the row's bound, nor than the bound that memory sharpens."""
    i, asked = random_case(seed)
    problem = layout_data.problem_of(i, asked)
    table = layout_columns.row_table(problem)
    for leaf in itertools.islice(Queue(problem, table), 60):
        held = layout_pricing.best_of_row(problem, leaf.row, math.inf, span=leaf.span)
        assert held is None or held.seconds >= leaf.row.bound * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_brute_force_where_the_batch_is_small(seed: int) -> None:
    """Where the batch leaves most racks idle, the tables find the fastest of all layouts, or none where there is none."""
    i, asked = batch_limited_case(seed)
    right = least_seconds_per_sequence(i, asked)
    found = layout.search(layout_data.problem_of(i, asked))
    assert (found.best is None) == (right is None)
    if found.best is not None:
        assert found.best.seconds == pytest.approx(right, rel=1e-9)
        assert found.bound == found.best.seconds


@pytest.mark.parametrize("seed", range(40, 60))
def test_no_layout_is_faster_than_its_part_of_a_row(seed: int) -> None:
    """Every layout that fits memory belongs to a part of a row, and none is faster than the bound of that part."""
    i, asked = batch_limited_case(seed)
    problem = layout_data.problem_of(i, asked)
    leaves = list(Queue(problem, layout_columns.row_table(problem)))
    for seconds, cut in every_time(i, asked):
        own = [
            x.row.bound
            for x in leaves
            if x.span.replicas[0] <= cut.data_parallel <= x.span.replicas[1]
            and (x.row.filled or x.span.batches[0] <= cut.micro_batches <= x.span.batches[1])
            and is_row_of(x.row, cut)
        ]
        assert len(own) == 1
        assert seconds >= own[0] * (1 - 1e-12)


def days(i: Instance, asked: LayoutRequest) -> float:
    """Return the least days to train."""
    return layout.least_days(i, asked) or math.inf


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


@pytest.mark.parametrize("hbm", [0.4e9 + 0.02e9 * k for k in range(40)])
def test_interleaved_stages_hold_more_past_the_first_round(hbm: float) -> None:
    """At every memory limit CP-SAT and the tables agree on interleaved stages, whose chunks in flight grow from one round to the next."""
    i = instance(
        layers=4,
        sequences=8,
        hbm=hbm,
        pins={"layout.pipeline_parallel": 2, "layout.virtual_stages": 2, "layout.data_parallel": 1},
    )
    problem = layout_data.problem_of(i, request(a=2))
    found = layout.search(problem)
    layout.confirm(problem, found, Options())
    in_flight = [int(schedule.chunks_in_flight("1f1b", 0, 2, 2, m)) for m in (2, 4, 6)]
    assert in_flight == [4, 5, 5]


def test_even_split_over_sites() -> None:
    """Replicas split as evenly as the sites' racks permit."""
    shares = columns_dp_microbatch.split_replicas(np.array([2, 9]), np.array([2, 3, 8, 11]))
    assert shares.T.tolist() == [[1, 1], [1, 2], [2, 6], [2, 9]]


def test_conflict_names_memory() -> None:
    """A model that no layout fits into memory is infeasible by memory, with the bytes that the smallest layout needs."""
    found = layout.conflict(instance(hbm=2e8), request(a=1))
    assert "memory" in found.rules
    assert "GB a GPU" in found.reason


def test_conflict_names_a_pin() -> None:
    """A pin that no layout meets is what the conflict names."""
    found = layout.conflict(instance(pins={"layout.tensor_parallel": 3}), request(a=2))
    assert found.rules == ("pins.layout.tensor_parallel",)


def test_alternatives_do_not_dominate_each_other() -> None:
    """Of two alternatives the faster takes more racks."""
    held = layout.alternatives(instance(sequences=32), request(a=8), Options())
    pairs = sorted((a.merits["racks_used"], a.merits["days_to_train"]) for a in held)
    assert len(pairs) > 1
    assert all(x[0] < y[0] and x[1] > y[1] for x, y in itertools.pairwise(pairs))


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
    """Between the memory that keeps everything and that which keeps nothing, some layers are recomputed (never one alone: it is rebuilt in work)."""
    pins = {
        "layout.tensor_parallel": 1,
        "layout.pipeline_parallel": 1,
        "layout.data_parallel": 1,
        "layout.zero_stage": 0,
        "layout.microbatch_sequences": 4,
    }
    seen = set()
    for hbm in np.linspace(1.5e9, 6e9, 46):
        found = layout.search(layout_data.problem_of(instance(layers=4, hbm=float(hbm), pins=pins), request(a=1))).best
        if found is not None:
            seen.add(sum(found.cut.recomputed))
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
    found = layout.search(problem, time_limit=0.0)
    assert found.best is not None
    assert found.bound <= found.best.seconds


def test_second_decision_ends_at_its_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT leaves to the tables what its effort does not reach, says how much, and spends the same effort every time."""
    problem = layout_data.problem_of(*random_case(3))
    found = layout.search(problem)
    whole, again = (layout.confirm(problem, found, Options()) for _ in range(2))
    assert whole.rows > 0 and whole.effort > 0 and whole == again
    monkeypatch.setattr(layout, "EFFORT", 0.0)
    none = layout.confirm(problem, found, Options())
    assert (none.rows, none.left) == (0, len(found.opened))


@pytest.mark.parametrize("seed", range(12))
def test_no_split_is_faster_than_the_even_one(seed: int) -> None:
    """Racks split over one or two sites in any way, behind any network, train no sooner than split evenly behind the fastest."""
    i = random_case(seed)[0].model_copy(update={"pins": {}})
    racks = 2 + seed % 4
    bound = layout.least_days(i, evenly(racks, 2, 1.0)) or math.inf
    splits = [request(a=racks), *(request(a=n, b=racks - n) for n in range(1, racks))]
    held = [
        days(i, replace(s, pipeline_send_slowdown=1.0, allreduce_slowdown=1.0, wan_gbps=w))
        for s in splits
        for w in (None, 1.0)
    ]
    assert bound <= min(held) * (1 + 1e-12) and (bound < math.inf) == (min(held) < math.inf)
