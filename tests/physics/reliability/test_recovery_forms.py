"""The stretch of failures against derivations of its own: renewal by random stops, first orders, and k of n."""

import math
from dataclasses import replace
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner.checks.reliability import Failures, at_least
from planner.checks.reliability import mean_short as checked_short
from planner.instance.hardware import Reliability
from planner.instance.workload import catalogue
from planner.physics.recovery import (
    CheckpointedJob,
    best_interval_seconds,
    inverse_share_there,
    min_stretch,
    restart_stretch,
    ways,
)
from planner.physics.spares import enough_share, mean_short, min_spares

KNOWN = Reliability.model_validate(catalogue("reliability")["llama3-2024"])
JOB = CheckpointedJob(r=KNOWN, gpus=16_384.0, replica_gpus=512, replicas=32, state_bytes=5e12, step_seconds=5.0)


@pytest.mark.parametrize(
    ("mean", "interval", "write", "restart"), [(1000, 100, 5, 300), (300, 200, 20, 50), (5e4, 900, 30, 200)]
)
def test_restarts_by_random_stops(mean: float, interval: float, write: float, restart: float) -> None:
    draw, need = np.random.default_rng(3), interval + write
    tries = draw.exponential(mean, 400_000)
    met = tries >= need
    total = np.where(met, need, tries + restart).sum()
    assert total / (met.sum() * interval) == pytest.approx(restart_stretch(mean, interval, write, restart), rel=0.01)


@given(ratio=st.floats(-30, 2.5).map(lambda x: 10**x))
@settings(max_examples=150, deadline=None)
@example(ratio=2.4e-9)
@example(ratio=1e-5)
@example(ratio=1e100)
def test_interval_by_bisection(ratio: float) -> None:
    """Planner and checker have the interval of -ln(1 - y) - y = c to nine digits, at any write over mean time."""
    with localcontext(prec=60):
        low, high = Decimal(0), Decimal(1)
        for _ in range(160):
            y = (low + high) / 2
            low, high = (y, high) if -(1 - y).ln() - y < Decimal(ratio) else (low, y)
    gpus = 64.0
    checker = Failures(r=KNOWN, state_bytes=0.0)
    mean = 1 / float(checker.rate(gpus))
    rate = KNOWN.storage_bytes_per_second_per_gpu
    assert rate is not None
    checker = replace(checker, state_bytes=ratio * mean * gpus * rate)
    assert float(best_interval_seconds(mean, ratio * mean)) == pytest.approx(float(y) * mean, rel=1e-9)
    found = float(checker.interval_seconds(gpus, ("restart", "storage"), 0.0))
    assert found == pytest.approx(float(y) * mean, rel=1e-9)


def test_first_orders() -> None:
    """Where little is lost, the useful share is 1 less each of the losses."""
    r = KNOWN.model_copy(update={"restart_seconds_per_gpu": 0.0})
    job = replace(JOB, r=r, gpus=512.0, replica_gpus=16, state_bytes=1e10)
    mean = 1 / float(job.stops_per_second)
    for way in ways(job, spares=False):
        tau, w = float(way.interval_seconds), float(way.write_seconds)
        if way.recovery == "elastic":
            away = job.replica_gpus / job.gpus / mean * r.rejoin_seconds
            rare = r.correlated_share * (float(job.restart_seconds) + tau / 2) / mean
            wanted = 1 - w / tau - away - r.elastic_stall_seconds / mean - rare
        elif way.target == "storage":
            wanted = 1 - w / tau - tau / (2 * mean) - float(way.restart_seconds) / mean
        else:
            continue
        assert 1 / float(way.stretch) == pytest.approx(wanted, abs=1e-4)


@given(away=st.floats(0, 5), stalled=st.floats(0, 100))
@settings(max_examples=200, deadline=None)
def test_replicas_that_are_there(away: float, stalled: float) -> None:
    y = float(inverse_share_there(away, stalled))
    assert y == pytest.approx(1 + away * y / (y + stalled), rel=1e-9)
    assert 1 - 1e-12 <= y <= 1 + away + 1e-12


def test_nothing_fails() -> None:
    """Without parts that fail nothing is stretched, to the last digit."""
    assert float(min_stretch(replace(JOB, r=Reliability(parts={})))) == 1.0


@pytest.mark.parametrize(("needed", "spares", "p"), [(1, 0, 0.9), (5, 2, 0.8), (12, 3, 0.97), (8, 8, 0.5)])
def test_k_of_n_by_every_pattern(needed: int, spares: int, p: float) -> None:
    n = needed + spares
    chance = short = 0.0
    for pattern in range(2**n):
        fit = pattern.bit_count()
        weight = p**fit * (1 - p) ** (n - fit)
        chance += weight * (fit >= needed)
        short += weight * max(0, needed - fit)
    assert enough_share(needed, spares, p) == pytest.approx(chance, rel=1e-9)
    assert mean_short(needed, spares, p) == pytest.approx(short, rel=1e-6, abs=1e-12)


@given(needed=st.integers(1, 3000), p=st.floats(0.5, 0.9999), target=st.sampled_from([0.5, 0.9, 0.99, 0.999]))
@settings(max_examples=60, deadline=None)
def test_the_fewest_spares(needed: int, p: float, target: float) -> None:
    """So many spares reach the target, and one fewer does not, unless it is the one that a target asks for."""
    count = min_spares(needed, p, target)
    assert count >= 1
    assert enough_share(needed, count, p) >= target
    assert count == 1 or enough_share(needed, count - 1, p) < target


@pytest.mark.parametrize("recovery", ["restart", "warm-spares"])
def test_a_restart_is_the_sum_of_its_stages(recovery: str) -> None:
    """Detected in 2 s, begun in 30 s and 3 s for each of 16 GPUs, or on spares in 5 s and 0.5 s, then 7 s of power."""
    figures = {
        "detection_seconds": 2.0, "restart_seconds": 30.0, "restart_seconds_per_gpu": 3.0, "power_ramp_seconds": 7.0,
        "warm_restart_seconds": 5.0, "warm_restart_seconds_per_gpu": 0.5,
    }  # fmt: skip
    r = KNOWN.model_copy(update=figures)
    expected = {"restart": 2 + 30 + 3 * 16 + 7, "warm-spares": 2 + 5 + 0.5 * 16 + 7}[recovery]
    found = [w for w in ways(replace(JOB, r=r, gpus=16.0), spares=True) if w.recovery == recovery]
    assert found and all(float(w.restart_seconds) == pytest.approx(expected) for w in found)
    assert float(Failures(r=r, state_bytes=1.0).restart_seconds(16.0, recovery)) == pytest.approx(expected)


def test_elastic_without_correlated_stops_writes_no_checkpoints() -> None:
    """Nothing is ever read back, so that stalls and replicas away are all that is lost, to first order."""
    r = KNOWN.model_copy(update={"correlated_share": 0.0})
    job = replace(JOB, r=r, gpus=512.0, replica_gpus=16)
    (way,) = (w for w in ways(job, spares=False) if w.recovery == "elastic")
    mean = 1 / float(job.stops_per_second)
    assert math.isinf(way.interval_seconds)
    assert float(way.parts["checkpoints"]) == 0.0
    wanted = 1 + r.elastic_stall_seconds / mean + 16 / 512 / mean * r.rejoin_seconds
    assert float(way.stretch) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("gpus", [4.0, 512.0, 98_304.0])
@pytest.mark.parametrize("step", [0.0, 0.5, 5.0, 4000.0])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("memory", [1e9, None])
def test_two_derivations_of_every_way(gpus: float, step: float, shared: bool, memory: float | None) -> None:
    """Stretch, interval, write and restart of each way are those of the checker's own formulas."""
    r = KNOWN.model_copy(update={"correlated_share": 0.05, "memory_bytes_per_second_per_gpu": memory})
    job = replace(JOB, r=r, gpus=gpus, replica_gpus=gpus / 4, replicas=4, step_seconds=step, shares_state=shared)
    f = Failures(r=r, state_bytes=job.state_bytes)
    found = list(ways(job, spares=True))
    assert [(w.recovery, w.target) for w in found] == f.ways(spares=True)
    for w in found:
        way = (w.recovery, w.target)
        own = f.stretch(gpus, gpus / 4, 4, way, step, shared=shared)
        assert float(w.stretch) == pytest.approx(float(own), rel=1e-8), way
        interval = f.interval_seconds(gpus, way, step, shared=shared, replica_gpus=gpus / 4)
        assert float(w.interval_seconds) == pytest.approx(float(interval), rel=1e-5), way
        assert float(w.write_seconds) == pytest.approx(float(f.write_seconds(gpus, way[1]))), way
        assert float(w.restart_seconds) == pytest.approx(float(f.restart_seconds(gpus, way[0]))), way


def test_checkpoints_of_nothing_cost_nothing() -> None:
    """Where no state is written and steps take no time, whole restarts lose their restart alone, and say so."""
    job = replace(JOB, state_bytes=0.0, step_seconds=0.0)
    for way in ways(job, spares=True):
        if way.recovery != "elastic":
            restart = float(way.restart_seconds) * float(job.stops_per_second)
            assert (float(way.interval_seconds), float(way.parts["checkpoints"])) == (0.0, 0.0)
            assert float(way.stretch) == pytest.approx(1 + restart, rel=1e-12)
            assert float(way.parts["lost work"]) == pytest.approx(0.0, abs=1e-12)
            own = Failures(r=KNOWN, state_bytes=0.0).stretch(job.gpus, 512.0, 32, (way.recovery, way.target))
            assert float(own) == pytest.approx(1 + restart, rel=1e-12)


def test_racks_that_are_always_or_never_fit() -> None:
    """Racks that never fail are all there and want one spare at most; those never fit have no number of spares."""
    assert (enough_share(7, 0, 1.0), mean_short(7, 0, 1.0), min_spares(7, 1.0, 0.99)) == (1.0, 0.0, 1)
    assert (at_least(7, 7, 1.0), checked_short(7, 7, 1.0)) == (1.0, 0.0)
    assert min_spares(7, 0.9, 0.0) == min_spares(0, 0.9, 0.5) == 0
    with pytest.raises(ValueError, match="never fit"):
        min_spares(7, 0.0, 0.5)


@pytest.mark.parametrize(
    ("needed", "spares", "p"), [(200, 150, 0.6), (400, 3, 0.9), (3000, 900, 0.8), (3000, 100, 0.4)]
)
def test_racks_short_by_sums_of_chances(needed: int, spares: int, p: float) -> None:
    n = needed + spares
    logs = [
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
        for k in range(needed)
    ]
    short = math.fsum((needed - k) * math.exp(x) for k, x in enumerate(logs))
    assert mean_short(needed, spares, p) == pytest.approx(short, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("gpus", [1e3, 1e6, 1e9])
def test_the_least_stretch_counts_steps_of_no_length(gpus: float) -> None:
    """A job of which no step is known may write as often as it likes, is of two replicas and copies nothing."""
    r = KNOWN.model_copy(update={"storage_bytes_per_second_per_gpu": 1e12, "memory_bytes_per_second_per_gpu": 1e12})
    job = CheckpointedJob(r=r, gpus=gpus, replica_gpus=gpus / 2, state_bytes=1e3)
    own = Failures(r=r, state_bytes=1e3).min_stretch(2, gpus / 2)
    assert float(min_stretch(job)) == pytest.approx(float(own), rel=1e-9)
    assert (job.step_seconds, job.replicas, job.shares_state, job.writers) == (0.0, 2, False, 0.0)


@pytest.mark.parametrize("rejoin", [0.0, 600.0])
def test_elastic_jobs_that_never_stall(rejoin: float) -> None:
    """Where a lost replica stalls nothing only its own share of the work is lost: by both derivations 1 + A."""
    figures = {
        "correlated_share": 0.0,
        "elastic_stall_seconds": 0.0,
        "rejoin_seconds": rejoin,
        "recoveries": ["elastic"],
    }
    r = KNOWN.model_copy(update=figures | {"recoveries": ("elastic",)})
    job = replace(JOB, r=r)
    (way,) = ways(job, spares=True)
    away = job.replica_gpus / job.gpus * float(job.stops_per_second) * rejoin
    own = Failures(r=r, state_bytes=job.state_bytes).stretch(
        job.gpus, job.replica_gpus, 32, ("elastic", "storage"), 5.0
    )
    assert float(way.stretch) == pytest.approx(1 + away, rel=1e-12)
    assert float(own) == pytest.approx(1 + away, rel=1e-12)
