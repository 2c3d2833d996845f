"""The joint optimum where parts and links fail equals full enumeration; what the calendar bounds for the search."""

from collections.abc import Callable

import numpy as np
import pytest
from joint_brute_failures import best_of, every_plan, failing, failing_links, one_way
from joint_solved import cheapest, require_optimum, solved
from joint_toys import case
from tiers import more

import planner
from planner.instance.hardware import FailingPart, Reliability
from planner.instance.instance import Instance
from planner.models.joint.solve_joint import Solving
from planner.models.joint.stops_and_spares import Calendar

SEEDS = (0, 10, 16, 26, 12, 27, 13, 43, 4)
CASES = [*((failing, seed) for seed in SEEDS), *((failing_links, seed) for seed in (0, 16, 24, 13, 2, 27))]
CASES += [(one_way, 3)]
MORE = [*((failing, seed) for seed in (15, 75, 41, 24, 57)), *((failing_links, seed) for seed in (26, 29, 12))]
Toys = Callable[[int], Instance]


@pytest.mark.parametrize(("toys", "seed"), [*CASES, *more(*MORE)])
def test_equals_full_enumeration(toys: Toys, seed: int) -> None:
    require_optimum(toys(seed), best_of(toys(seed)), rel=1e-8)


@pytest.mark.parametrize(("toys", "seed"), [(failing, 0), (failing_links, 16), *more((failing, 16), (failing, 27))])
def test_least_cost_equals_full_enumeration(toys: Toys, seed: int) -> None:
    i = toys(seed)
    plans, world = every_plan(i), Solving().world(i)
    times = sorted({p.seconds for p in plans})
    for limit in (times[0], times[len(times) // 3], times[-1]):
        best = min((p for p in plans if p.seconds <= limit * (1 + 1e-9)), key=lambda p: (round(p.usd, 2), p.seconds))
        found = cheapest(world, limit * (1 + 1e-9))
        assert found.usd == pytest.approx(best.usd, rel=1e-9)
        assert found.status == "optimal"


def test_spares_of_ties_stand_on_racks_that_are_there() -> None:
    """Plans within a tolerance have no more spare racks than a cluster has, where no network joins them either."""
    given = case(19).model_dump(mode="json", exclude_none=True)
    del given["network"]
    plan = planner.solve(given | {"reliability": "llama3-2024", "pins": {}, "objective": {"tolerance": 0.01}})
    assert plan.status == "optimal" and planner.check(plan) == []
    assert plan.layout.racks_per_replica + sum(plan.reliability.spare_racks_by_site.values()) <= 3


def test_a_job_that_goes_on_on_spares_alone_has_some() -> None:
    plan = planner.solve(one_way(3))
    assert plan.status == "optimal" and all(plan.reliability.spare_racks_by_site.values())


@pytest.mark.parametrize("seed", [16, *more(0)])
def test_no_failures_give_the_answer_without_them(seed: int) -> None:
    plain, r = solved(case(seed)), failing(seed).reliability
    none = case(seed).replaced(reliability=Reliability(parts={}))
    found = solved(none)
    assert (found.days, found.lower_bound, found.counts) == (plain.days, plain.lower_bound, plain.counts)
    w = case(seed).workload.replaced(availability=0.9)
    given = solved(case(seed).replaced(workload=w, reliability=r))
    assert given.days == solved(case(seed).replaced(workload=w)).days


def calendars() -> list[Calendar]:
    own = failing(0).reliability
    writing = {"restart_seconds": 0.0, "restart_seconds_per_gpu": 0.0, "storage_bytes_per_second_per_gpu": 1e7}
    rates = {"restart_seconds_per_gpu": 0.0085, "storage_bytes_per_second_per_gpu": 1.2e8}
    large = own.replaced(
        parts={"gpu": FailingPart(gpu_hours_per_event=5e4, repair_hours=24.0)}, measured_gpus=16384, **rates
    )
    return [
        Calendar(r=own, state_bytes=1e9),
        Calendar(r=large, state_bytes=4e14),
        Calendar(r=large.replaced(recoveries=("restart",)), state_bytes=4e14),
        Calendar(r=large.replaced(scale_exponent=0.3, correlated_share=0.0), state_bytes=4e12),
        Calendar(r=own.replaced(**writing, checkpoint_targets=("storage",)), state_bytes=4e12),
    ]


@pytest.mark.parametrize("k", range(5))
def test_bounds_hold_for_every_number_of_replicas(k: int) -> None:
    c, draw = calendars()[k], np.random.default_rng(k)
    for _ in range(60):
        g, most = int(draw.integers(1, 20_000)), int(draw.integers(1, 200))
        each, once = float(draw.uniform(0.1, 10.0)), float(draw.uniform(0.0, 0.1))
        d = np.arange(1, most + 1)
        own = (each / d + once) * c.column_floor(d, g)
        bound = float(c.min_seconds(each, once, most, g))
        assert bound <= own.min() * (1 + 1e-12)
        first = int(draw.integers(1, most + 1))
        assert float(c.floor(first * g)) <= c.column_floor(d[first - 1 :], g).min() * (1 + 1e-12)
        limit = float(np.quantile(own, 0.3))
        steps, low = c.step_limit(limit, each, once, most, g)
        fine = d[own < limit]
        assert len(fine) == 0 or (fine.min() >= low and (each / fine + once).max() <= steps * (1 + 1e-9))


def test_the_bound_over_replicas_is_near() -> None:
    """Where what comes once is nothing, the bound over all replicas is within a percent of the least of them."""
    c, d = calendars()[1], np.arange(1, 2001)
    own = 1 / d * c.column_floor(d, 512)
    assert float(c.min_seconds(1.0, 0.0, 2000, 512)) == pytest.approx(own.min(), rel=0.01)
