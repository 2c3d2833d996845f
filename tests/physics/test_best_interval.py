"""The interval between checkpoints is that of the least stretch; the stretch against derivations of its own."""

import math
import random
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from each_case import each
from hypothesis import example, given
from hypothesis import strategies as st
from joint_brute_failures import stretches_by_search
from scipy.stats import binom

from planner.instance.catalogue_entries import catalogue
from planner.instance.reliability import FailingPart, Reliability
from planner.models.joint.stops_and_spares import Calendar
from planner.physics.recovery import (
    CheckpointedJob,
    best_interval,
    best_interval_seconds,
    enough_share,
    inverse_share_there,
    losses,
    mean_short,
    min_spares,
    min_stretch,
    restart_stretch,
    way_at,
    ways,
)

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
        r=r, gpus=float(replicas * replica_gpus), replica_gpus=replica_gpus, replicas=replicas,
        state_bytes=log_uniform(draw, 1e9, 1e15), step_seconds=log_uniform(draw, 1e-2, 1e5),
        shares_state=draw.random() < 0.5,
    )  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_no_step_stretches_less_than_the_bound(seed: int) -> None:
    """Steps of no length reach it."""
    draw = random.Random(seed)
    for _ in range(200):
        job = drawn_job(draw)
        bound = Calendar(r=job.r, state_bytes=job.state_bytes).least_stretch(int(job.replicas), int(job.replica_gpus))
        longer = replace(job, step_seconds=np.array([0.0, *(log_uniform(draw, 1e-3, 1e6) for _ in range(40))]))
        for way in ways(longer, spares=True):
            assert np.all(way.stretch >= bound), (way.recovery, way.target)
        least = min(float(w.stretch) for w in ways(replace(job, step_seconds=0.0), spares=True))
        assert least * (1 - 2e-12) <= bound or math.isinf(least)


LESS = (
    "correlated_share", "restart_seconds", "restart_seconds_per_gpu", "elastic_stall_seconds", "rejoin_seconds",
    "detection_seconds",
)  # fmt: skip
MORE = "storage_bytes_per_second_per_gpu", "memory_bytes_per_second_per_gpu"


@pytest.mark.parametrize("seed", SEEDS)
def test_better_parts_never_stretch_more(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(40):
        job = replace(drawn_job(draw), step_seconds=draw.choice([0.0, log_uniform(draw, 1e-2, 1e5)]))
        factor, hours = draw.uniform(1, 3), job.r.parts["gpu"].gpu_hours_per_event
        better: dict[str, Any] = {name: getattr(job.r, name) / factor for name in LESS}
        better |= {name: (getattr(job.r, name) or 0.0) * factor or None for name in MORE}
        better["parts"] = {"gpu": FailingPart(gpu_hours_per_event=hours * factor)}
        for name, value in better.items():
            other = replace(job, r=job.r.replaced(**{name: value}))
            for a, b in zip(ways(job, spares=True), ways(other, spares=True), strict=True):
                assert float(b.stretch) <= float(a.stretch) * (1 + 1e-12), (name, a.recovery, a.target)


def test_writes_that_outlast_the_time_between_stops() -> None:
    """A job that is stopped before it can write never trains; it does not pass for one that nothing stops."""
    slow = {"parts": {"gpu": {"gpu_hours_per_event": 1e3}}, "storage_bytes_per_second_per_gpu": 1e6}
    r = Reliability.model_validate(slow)
    job = CheckpointedJob(r=r, gpus=1e6, replica_gpus=1e3, replicas=1000, state_bytes=2e14)
    assert float(job.write_seconds("storage") * job.stops_per_second) > 37
    assert all(float(w.stretch) > 1e12 for w in ways(job, spares=True) if w.recovery != "elastic")


@given(factor=st.floats(1e-4, 1e4), seed=st.integers(0, 1000), step=st.sampled_from([0.0, 1e-3, 5.0, 500.0]))
@example(factor=1.0, seed=2051, step=1e-3)  # stalls for 49 seconds of every second of work
def test_no_other_interval_is_better(factor: float, seed: int, step: float) -> None:
    job = replace(drawn_job(random.Random(seed)), step_seconds=step)
    for way in ways(job, spares=True):
        if 0 < float(way.interval_seconds) < math.inf:
            others = np.maximum(way.interval_seconds * np.array([factor, 1 - 1e-5, 1 + 1e-5]), step)
            stretch = way_at(job, way.recovery, way.target, others).stretch
            assert np.all(stretch >= float(way.stretch) * (1 - 1e-13))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_alone_writes_at_the_interval_that_it_has_in_a_table(seed: int) -> None:
    job = replace(drawn_job(random.Random(seed)), step_seconds=0.0)
    replicas = np.unique(np.geomspace(2, 1e6, 100).astype(int))
    table = replace(job, gpus=1.0 * replicas * job.replica_gpus, replicas=replicas)
    for way in ways(job, spares=True):
        own = way.recovery, way.target
        each = [float(best_interval(replace(job, gpus=float(n * job.replica_gpus)), *own)) for n in replicas]
        assert np.broadcast_to(best_interval(table, *own), replicas.shape).tolist() == each


KNOWN = Reliability.model_validate(catalogue("reliability")["llama3-2024"])
JOB = CheckpointedJob(r=KNOWN, gpus=16_384.0, replica_gpus=512, replicas=32, state_bytes=5e12, step_seconds=5.0)


@each(("mean", "interval", "write", "restart"), [(1000, 100, 5, 300), (300, 200, 20, 50), (5e4, 900, 30, 200)])
def test_restarts_by_random_stops(mean: float, interval: float, write: float, restart: float) -> None:
    draw, need = np.random.default_rng(3), interval + write
    tries = draw.exponential(mean, 400_000)
    met = tries >= need
    total = np.where(met, need, tries + restart).sum()
    assert total / (met.sum() * interval) == pytest.approx(restart_stretch(mean, interval, write, restart), rel=0.01)


@given(ratio=st.floats(-30, 2.5).map(lambda x: 10**x))
@example(ratio=2.4e-9)
@example(ratio=1e-5)
@example(ratio=1e100)
def test_interval_by_bisection(ratio: float) -> None:
    """The interval is that of -ln(1 - y) - y = c to nine digits, at any write over mean time."""
    with localcontext(prec=60):
        low, high = Decimal(0), Decimal(1)
        for _ in range(160):
            y = (low + high) / 2
            low, high = (y, high) if -(1 - y).ln() - y < Decimal(ratio) else (low, y)
    mean = 1000.0
    assert float(best_interval_seconds(mean, ratio * mean)) == pytest.approx(float(y) * mean, rel=1e-9)


@given(away=st.floats(0, 5), stalled=st.floats(0, 100))
def test_replicas_that_are_there(away: float, stalled: float) -> None:
    y = float(inverse_share_there(away, stalled))
    assert y == pytest.approx(1 + away * y / (y + stalled), rel=1e-9)
    assert 1 - 1e-12 <= y <= 1 + away + 1e-12


@given(needed=st.integers(1, 3000), p=st.floats(0.5, 0.9999), target=st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_the_fewest_spares(needed: int, p: float, target: float) -> None:
    count = min_spares(needed, p, target)
    assert count >= 1
    assert enough_share(needed, count, p) >= target
    assert count == 1 or enough_share(needed, count - 1, p) < target


def test_a_restart_is_the_sum_of_its_stages() -> None:
    """Detected in 2 s, begun in 30 s and 3 s for each of 16 GPUs, or on spares in 5 s and 0.5 s, then 7 s of power."""
    figures = {
        "detection_seconds": 2.0, "restart_seconds": 30.0, "restart_seconds_per_gpu": 3.0, "power_ramp_seconds": 7.0,
        "warm_restart_seconds": 5.0, "warm_restart_seconds_per_gpu": 0.5,
    }  # fmt: skip
    job = replace(JOB, r=KNOWN.replaced(**figures), gpus=16.0)
    assert float(job.restart_seconds("restart")) == pytest.approx(2 + 30 + 3 * 16 + 7)
    assert float(job.restart_seconds("warm-spares")) == pytest.approx(2 + 5 + 0.5 * 16 + 7)


@each("gpus", [4.0, 512.0, 98_304.0])
@each("step", [0.0, 0.5, 5.0, 4000.0])
@each("shared", [False, True])
@each("memory", [1e9, None])
def test_every_way_by_a_search(gpus: float, step: float, shared: bool, memory: float | None) -> None:
    """Ways, their stretch and write are those of a search over intervals, by plain sums of what is lost."""
    r = KNOWN.replaced(correlated_share=0.05, memory_bytes_per_second_per_gpu=memory)
    job = replace(JOB, r=r, gpus=gpus, replica_gpus=gpus / 4, replicas=4, step_seconds=step, shares_state=shared)
    found = {(w.recovery, w.target): w for w in ways(job, spares=True)}
    wanted = stretches_by_search(job, 1 / float(job.stops_per_second), warm=True)
    assert list(found) == list(wanted)
    assert {key: float(w.stretch) for key, w in found.items()} == pytest.approx(wanted, rel=1e-8)
    rates = {"storage": r.storage_bytes_per_second_per_gpu, "memory": memory}
    assert all(float(job.write_seconds(w.target)) == job.state_bytes / (gpus * rates[w.target]) for w in found.values())


def test_checkpoints_of_nothing_cost_nothing() -> None:
    """Where no state is written and steps take no time, whole restarts lose their restart alone, and say so."""
    job = replace(JOB, state_bytes=0.0, step_seconds=0.0)
    for way in ways(job, spares=True):
        if way.recovery != "elastic":
            restart = float(job.restart_seconds(way.recovery)) * float(job.stops_per_second)
            assert (float(way.interval_seconds), float(losses(job, way)["checkpoints"])) == (0.0, 0.0)
            assert float(way.stretch) == pytest.approx(1 + restart, rel=1e-12)
            assert float(losses(job, way)["lost work"]) == pytest.approx(0.0, abs=1e-12)


def test_racks_that_are_always_or_never_fit() -> None:
    assert (enough_share(7, 0, 1.0), mean_short(7, 0, 1.0), min_spares(7, 1.0, 0.99)) == (1.0, 0.0, 1)
    assert min_spares(7, 0.9, 0.0) == min_spares(0, 0.9, 0.5) == 0
    with pytest.raises(ValueError, match="never fit"):
        min_spares(7, 0.0, 0.5)


@each(("needed", "spares", "p"), [
    (200, 150, 0.6), (400, 3, 0.9), (3000, 900, 0.8), (3000, 100, 0.4), (40, 3, 0.97), (900, 30, 0.98), (1, 0, 0.9),
    (10_000, 220, 0.981), (5, 2, 0.8), (12, 3, 0.97), (8, 8, 0.5),
])  # fmt: skip
def test_racks_short_by_sums_of_chances(needed: int, spares: int, p: float) -> None:
    """The chances of k of n racks are those of SciPy."""
    chances = binom.pmf(np.arange(needed), needed + spares, p)
    short = chances @ (needed - np.arange(needed))
    assert mean_short(needed, spares, p) == pytest.approx(short, rel=1e-6, abs=1e-13)
    assert enough_share(needed, spares, p) == pytest.approx(1 - chances.sum(), rel=1e-9, abs=1e-10)


@each("gpus", [1e3, 1e6, 1e9])
def test_the_least_stretch_counts_steps_of_no_length(gpus: float) -> None:
    """A job of which no step is known may write as often as it likes, is of two replicas and copies nothing."""
    r = KNOWN.replaced(storage_bytes_per_second_per_gpu=1e12, memory_bytes_per_second_per_gpu=1e12)
    job = CheckpointedJob(r=r, gpus=gpus, replica_gpus=gpus / 2, state_bytes=1e3)
    wanted = min(stretches_by_search(job, 1 / float(job.stops_per_second), warm=True).values())
    assert float(min_stretch(job)) == pytest.approx(wanted, rel=1e-9)


@each("rejoin", [0.0, 600.0])
def test_elastic_jobs_that_never_stall(rejoin: float) -> None:
    """Where a lost replica stalls nothing only its own share of the work is lost: the stretch is 1 + A."""
    figures = {"correlated_share": 0.0, "elastic_stall_seconds": 0.0, "rejoin_seconds": rejoin}
    job = replace(JOB, r=KNOWN.replaced(**figures, recoveries=("elastic",)))
    (way,) = ways(job, spares=True)
    away = job.replica_gpus / job.gpus * float(job.stops_per_second) * rejoin
    assert float(way.stretch) == pytest.approx(1 + away, rel=1e-12)
