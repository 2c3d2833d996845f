"""Days on a calendar: the joint optimum as rates of failures change, and the bounds that the search uses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from joint_brute_failures import failing
from joint_solved import solved
from joint_toys import case
from tiers import more, slow

from planner.instance.hardware import FailingPart, Reliability
from planner.instance.instance import Instance
from planner.models.joint.calendar import Calendar
from planner.physics.reliability.recovery import min_stretch

SEEDS = (0, 16, 24, *slow(27))


def changed(i: Instance, **keys: Any) -> Instance:
    """Return an instance with other figures of its failures."""
    assert isinstance(i.reliability, Reliability)
    return i.model_copy(update={"reliability": i.reliability.model_copy(update=keys)})


def with_hours(i: Instance, factor: float) -> Instance:
    """Return an instance whose parts last so many times as long."""
    assert isinstance(i.reliability, Reliability)
    parts = {
        name: p.model_copy(update={"gpu_hours_per_event": p.gpu_hours_per_event * factor})
        for name, p in i.reliability.parts.items()
    }
    return changed(i, parts=parts)


def days(i: Instance) -> float:
    """Return the days of the optimum."""
    found = solved(i).days
    assert found is not None
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_no_failures_give_the_answer_without_them(seed: int) -> None:
    """With no part that fails, or a given share that trains, every figure is the one without failures."""
    plain, r = solved(case(seed)), failing(seed).reliability
    none = case(seed).model_copy(update={"reliability": Reliability(parts={})})
    found = solved(none)
    assert (found.days, found.lower_bound, found.counts) == (plain.days, plain.lower_bound, plain.counts)
    w = case(seed).workload.model_copy(update={"availability": 0.9})
    given = solved(case(seed).model_copy(update={"workload": w, "reliability": r}))
    assert given.days == solved(case(seed).model_copy(update={"workload": w})).days


@pytest.mark.parametrize("seed", [0, 16, *slow(24), *more(27)])
def test_better_parts_never_take_more_days(seed: int) -> None:
    """Longer lives, shorter restarts and stalls, faster writes and more choices of spares never take more days."""
    i = failing(seed)
    assert isinstance(i.reliability, Reliability)
    r, known = i.reliability, days(i)
    better = [
        with_hours(i, 2.0),
        changed(i, restart_seconds=r.restart_seconds / 2, warm_restart_seconds=r.warm_restart_seconds / 2),
        changed(i, elastic_stall_seconds=r.elastic_stall_seconds / 2, rejoin_seconds=r.rejoin_seconds / 2),
        changed(i, storage_bytes_per_second_per_gpu=1e9, correlated_share=0.01),
        changed(i, spare_targets=(0.0, 0.5, 0.9, 0.95, 0.99)),
    ]
    assert [d for d in map(days, better) if d > known * (1 + 1e-9)] == []
    worse = [with_hours(i, 0.5), changed(i, recoveries=("restart",)), changed(i, spare_targets=(0.0,))]
    assert [d for d in map(days, worse) if d < known * (1 - 1e-9)] == []
    assert known > days(case(seed))


def calendars() -> list[Calendar]:
    """Return failures of different kinds."""
    own = failing(0).reliability
    assert isinstance(own, Reliability)
    large = own.model_copy(
        update={
            "parts": {"gpu": FailingPart(gpu_hours_per_event=5e4, repair_hours=24.0)},
            "measured_gpus": 16384,
            "restart_seconds_per_gpu": 0.0085,
            "storage_bytes_per_second_per_gpu": 1.2e8,
        }
    )
    return [
        Calendar(r=own, state_bytes=1e9),
        Calendar(r=large, state_bytes=4e14),
        Calendar(r=large.model_copy(update={"recoveries": ("restart",)}), state_bytes=4e14),
        Calendar(r=large.model_copy(update={"scale_exponent": 0.3, "correlated_share": 0.0}), state_bytes=4e12),
    ]


@pytest.mark.parametrize("k", range(4))
def test_bounds_hold_for_every_number_of_replicas(k: int) -> None:
    """The bounds over ranges of replicas are within the least of their members, and near it."""
    c, draw = calendars()[k], np.random.default_rng(k)
    for _ in range(200):
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


def test_a_step_is_the_shortest_interval() -> None:
    """A checkpoint cannot be written amid a step: the stretch grows with a step longer than the best interval."""
    c = calendars()[2]
    job = c.job(64, 512, 0.0, shares_state=False, lanes=0)
    free, long = (float(min_stretch(replace(job, step_seconds=s))) for s in (0.0, 3600.0))
    assert long > free
