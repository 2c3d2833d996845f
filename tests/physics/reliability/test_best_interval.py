"""The interval between checkpoints is that of the least stretch, so that no step of a job falls below its bound."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.checks.reliability import Failures
from planner.instance.hardware import FailingPart, Reliability
from planner.models.joint.calendar import Calendar
from planner.physics.recovery import (
    CheckpointedJob,
    best_interval,
    choices,
    way_at,
    ways,
)

GOLDEN = (Decimal(5).sqrt() - 1) / 2
SEEDS = range(4)


def log_uniform(draw: random.Random, low: float, high: float) -> float:
    return math.exp(draw.uniform(math.log(low), math.log(high)))


def drawn_job(draw: random.Random) -> CheckpointedJob:
    """Draw a job and its rates, from one that hardly stops to one that hardly trains."""
    r = Reliability(
        parts={"gpu": FailingPart(gpu_hours_per_event=log_uniform(draw, 1e3, 1e7))},
        correlated_share=draw.choice([0.0, 1.0, log_uniform(draw, 1e-6, 1)]),
        restart_seconds=log_uniform(draw, 1, 1e4),
        restart_seconds_per_gpu=draw.choice([0.0, log_uniform(draw, 1e-4, 1e-1)]),
        elastic_stall_seconds=draw.choice([0.0, log_uniform(draw, 1, 1e4)]),
        rejoin_seconds=log_uniform(draw, 1, 1e6),
        storage_bytes_per_second_per_gpu=log_uniform(draw, 1e5, 1e10),
        memory_bytes_per_second_per_gpu=draw.choice([None, log_uniform(draw, 1e8, 1e11)]),
    )
    replicas, replica_gpus = draw.randint(2, 500), draw.randint(1, 5000)
    return CheckpointedJob(
        r=r,
        gpus=float(replicas * replica_gpus),
        replica_gpus=replica_gpus,
        replicas=replicas,
        state_bytes=log_uniform(draw, 1e9, 1e15),
        step_seconds=log_uniform(draw, 1e-2, 1e5),
        shares_state=draw.random() < 0.5,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_no_step_stretches_less_than_the_bound(seed: int) -> None:
    """However long the step, and whatever is copied behind it, none is better than with steps of no length."""
    draw = random.Random(seed)
    for _ in range(300):
        job = drawn_job(draw)
        bound = Calendar(r=job.r, state_bytes=job.state_bytes).least_stretch(int(job.replicas), int(job.replica_gpus))
        longer = replace(job, step_seconds=np.array([0.0, *(log_uniform(draw, 1e-3, 1e6) for _ in range(40))]))
        for way in ways(longer, spares=True):
            assert np.all(way.stretch >= bound), (way.recovery, way.target)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_is_reached(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        job = replace(drawn_job(draw), step_seconds=0.0)
        bound = Calendar(r=job.r, state_bytes=job.state_bytes).least_stretch(int(job.replicas), int(job.replica_gpus))
        least = min(float(w.stretch) for w in ways(job, spares=True))
        assert least * (1 - 2e-12) <= bound <= least or math.isinf(least)


BETTER = (
    "correlated_share", "restart_seconds", "restart_seconds_per_gpu", "elastic_stall_seconds", "rejoin_seconds",
    "detection_seconds", "storage_bytes_per_second_per_gpu", "memory_bytes_per_second_per_gpu", "parts",
)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_better_parts_never_stretch_more(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(40):
        job = replace(drawn_job(draw), step_seconds=draw.choice([0.0, log_uniform(draw, 1e-2, 1e5)]))
        for name in BETTER:
            value, factor = getattr(job.r, name), draw.uniform(1, 3)
            if value is None:
                continue
            hours = job.r.parts["gpu"].gpu_hours_per_event
            better: Any = value * factor if "bytes" in name else value
            if name == "parts":
                better = {"gpu": FailingPart(gpu_hours_per_event=hours * factor)}
            elif "bytes" not in name:
                better = value / factor
            other = replace(job, r=job.r.model_copy(update={name: better}))
            for a, b in zip(ways(job, spares=True), ways(other, spares=True), strict=True):
                assert float(b.stretch) <= float(a.stretch) * (1 + 1e-12), (name, a.recovery, a.target)


def elastic(job: CheckpointedJob) -> Callable[[Decimal], Decimal]:
    """Return the time of an elastic job by its interval: writes and copies, stalls, lost work, replicas away."""
    r, rate = job.r, Decimal(float(job.stops_per_second))
    write, share = Decimal(float(job.write_seconds("storage"))), Decimal(r.correlated_share)
    away = rate * Decimal(job.replica_gpus) / Decimal(job.gpus) * Decimal(r.rejoin_seconds)
    stalls = rate * (Decimal(r.elastic_stall_seconds) + share * Decimal(float(job.restart_seconds)))
    copies = Decimal(float(job.write_seconds("memory"))) / Decimal(job.step_seconds) if job.shares_state else Decimal(0)

    def stretch(tau: Decimal) -> Decimal:
        stopped = stalls + share * rate * tau / 2
        b = 1 + away - stopped
        there = (b + (b * b + 4 * stopped).sqrt()) / 2
        return (1 + copies + write / tau) * (there + stopped)

    return stretch


def least_at(f: Callable[[Decimal], Decimal], low: float, high: float) -> float:
    """Return where a function is least, by golden sections of the logarithm in numbers of 60 digits."""
    with localcontext() as context:
        context.prec = 60
        a, b = Decimal(low).ln(), Decimal(high).ln()
        c, d = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
        at_c, at_d = f(c.exp()), f(d.exp())
        while b - a > Decimal("1e-12"):
            if at_c < at_d:
                b, d, at_d = d, c, at_c
                c = b - GOLDEN * (b - a)
                at_c = f(c.exp())
            else:
                a, c, at_c = c, d, at_d
                d = a + GOLDEN * (b - a)
                at_d = f(d.exp())
        return float(((a + b) / 2).exp())


@pytest.mark.parametrize("seed", SEEDS)
def test_elastic_jobs_write_at_the_interval_of_a_search(seed: int) -> None:
    """So is that of elastic jobs, to which replicas away count; the checker finds the same by its own search."""
    draw = random.Random(seed)
    for _ in range(12):
        job = drawn_job(draw)
        if not job.r.correlated_share:
            continue
        job = replace(job, step_seconds=1e-3)
        found = float(best_interval(job, "elastic", "storage"))
        wanted = least_at(elastic(job), found / 1e3, found * 1e3)
        assert found == pytest.approx(wanted, rel=1e-9) or wanted < 1e-3
        f = Failures(r=job.r, state_bytes=job.state_bytes)
        each, way = job.replica_gpus, ("elastic", "storage")
        own = f.interval_seconds(job.gpus, way, 1e-3, shared=job.shares_state, replica_gpus=each)
        assert float(own) == pytest.approx(found, rel=1e-8)


def test_a_job_that_mostly_stalls_writes_at_the_interval_of_a_search() -> None:
    """So is that of a job that stalls for 49 seconds of every second of work."""
    job = replace(drawn_job(random.Random(2051)), step_seconds=1e-3)
    stalled = job.r.elastic_stall_seconds + job.r.correlated_share * float(job.restart_seconds)
    assert stalled * float(job.stops_per_second) > 49
    found = float(best_interval(job, "elastic", "storage"))
    assert found == pytest.approx(least_at(elastic(job), found / 1e3, found * 1e3), rel=1e-9)


def test_writes_that_outlast_the_time_between_stops() -> None:
    """A job that is stopped before it can write never trains; it does not pass for one that nothing stops."""
    slow = {"parts": {"gpu": {"gpu_hours_per_event": 1e3}}, "storage_bytes_per_second_per_gpu": 1e6}
    job = CheckpointedJob(
        r=Reliability.model_validate(slow), gpus=1e6, replica_gpus=1e3, replicas=1000, state_bytes=2e14
    )
    assert float(job.write_seconds("storage") * job.stops_per_second) > 37
    assert all(float(w.stretch) > 1e12 for w in ways(job, spares=True) if w.recovery != "elastic")


@given(factor=st.floats(1e-4, 1e4), seed=st.integers(0, 1000), step=st.sampled_from([0.0, 0.0, 5.0, 500.0]))
@settings(max_examples=100, deadline=None)
def test_no_other_interval_is_better(factor: float, seed: int, step: float) -> None:
    job = replace(drawn_job(random.Random(seed)), step_seconds=step)
    for way in ways(job, spares=True):
        if 0 < float(way.interval_seconds) < math.inf:
            other = way_at(job, way.recovery, way.target, np.maximum(way.interval_seconds * factor, step))
            assert float(other.stretch) >= float(way.stretch) * (1 - 1e-13)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_alone_writes_at_the_interval_that_it_has_in_a_table(seed: int) -> None:
    job = replace(drawn_job(random.Random(seed)), step_seconds=0.0)
    replicas = np.unique(np.geomspace(2, 1e6, 100).astype(int))
    table = replace(job, gpus=1.0 * replicas * job.replica_gpus, replicas=replicas)
    for way in choices(job.r, spares=True):
        each = [float(best_interval(replace(job, gpus=float(n * job.replica_gpus)), *way)) for n in replicas]
        assert np.broadcast_to(best_interval(table, *way), replicas.shape).tolist() == each
