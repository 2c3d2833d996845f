"""Pools of different GPUs that share a batch: against brute force over all shares, and proofs that hold."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from joint_toys import PRECISION

from planner.models import batch_shares
from planner.models.joint.search.free_network import fastest_of, problem_on
from planner.physics.training import memory, step_prediction
from planner.planning.load import load_instance
from planner.solvers.outcome import Stop

SMALL = {"name": "small", "layers": 4, "hidden": 2048, "heads": 4, "vocabulary": 32_000}


def problem(accelerator, batch, *, gpus=2, racks=1, pins=None, model=None):
    """Return the layout question of a cluster of small racks."""
    workload = {"model": model or SMALL, "tokens": 1e9, "sequence_length": 1024, "precision": PRECISION}
    rack = {"name": "r", "gpus": gpus, "it_kw": 10, "price_usd": 1}
    data = {"name": accelerator, "limits": {"max_batch_tokens": batch * 1024}, "workload": workload}
    data["hardware"] = {"accelerator": accelerator, "rack": rack, "racks": racks}
    data["pins"] = {"layout.zero_stage": 1, "layout.recompute": "none", **(pins or {})}
    return problem_on(load_instance(data), racks)


def shared(pools, batch, *, tail=lambda _: 0.0, **how):
    """Return the best shares of a batch, by default over pools that wait for no exchange."""
    return batch_shares.balance(pools, batch, tail=tail, progress=lambda *_: None, **how)


def exact_seconds(asked, n):
    """Return the fewest seconds of a step of exactly n sequences, over every way to make them up."""
    fewest = math.inf
    for b, d in itertools.product(range(1, 17), range(1, n + 1)):
        if n % (b * d) == 0:
            pins = {"layout.data_parallel": d, "layout.microbatches_per_step": n // (b * d)}
            pins["layout.microbatch_sequences"] = b
            fewest = min(fewest, fastest_of(problem(batch=n, pins=pins, **asked)).seconds * n)
    return fewest


CASES = [
    (4, [{"accelerator": "A100-80GB", "gpus": 2, "racks": 2}, {"accelerator": "H100", "gpus": 2, "racks": 1}]),
    (4, [{"accelerator": x, "gpus": n, "racks": 1} for x, n in (("A100-40GB", 1), ("H100", 2), ("H200", 1))]),
]


@pytest.mark.parametrize(("batch", "pools"), CASES)
def test_brute_force_over_all_shares_agrees(batch, pools):
    tables = [[0.0] + [exact_seconds(p, n) for n in range(1, batch + 1)] for p in pools]
    shares = [s for s in itertools.product(range(batch + 1), repeat=len(pools)) if 0 < sum(s) <= batch]
    best = min(max(t[n] for t, n in zip(tables, s, strict=True)) / sum(s) for s in shares)
    found = shared([problem(batch=batch, **p) for p in pools], batch, gap=0.0)
    assert found.stop is Stop.PROVED
    assert (found.rate, found.bound) == pytest.approx((best, best), rel=1e-9)


def test_the_slowest_exchange_is_waited_for():
    """A wait of a second for each step that two pools train leaves one pool alone, and is never under the bound."""
    pools = [problem("A100-80GB", 6), problem("H100", 6)]

    def tail(points):
        return 1.0 if sum(x is not None for x in points) > 1 else 0.0

    found = shared(pools, 6, tail=tail, min_tail=1.0, gap=0.0)
    alone = fastest_of(pools[1])
    assert [x is None for x in found.points] == [True, False]
    assert found.rate == found.bound == pytest.approx(alone.seconds)
    assert found.stop is Stop.PROVED


def test_a_pool_without_memory_does_not_train():
    wide = {"name": "wide", "layers": 8, "hidden": 8192, "heads": 64, "vocabulary": 32_000}
    small, large = problem("A100-40GB", 4, gpus=1, model=wide), problem("B200", 4, gpus=4, model=wide)
    assert [x is None for x in shared([small, large], 4).points] == [True, False]
    none = shared([small, small], 4)
    assert (none.points, none.stop) == ((), Stop.PROVED)


def test_layouts_with_other_micro_batches_fit_and_are_never_under_the_bound():
    asked = problem("H100", 40, racks=4)
    asked = replace(asked, pins=asked.pins | {"layout.data_parallel": 4, "layout.microbatch_sequences": 1})
    pool = batch_shares.PoolSearch(problem=asked)
    pool.rate(40)
    assert len(pool.points) > 3
    free = step_prediction.free_conditions(asked.transport_slowdown)
    for n, strategy in [(n, point.strategy) for n, point in pool.points.items()]:
        assert n == batch_shares.sequences_of(strategy) <= 40
        assert sum(memory.worst_memory(asked.machine, strategy).values()) <= asked.memory_limit
        seconds = sum(step_prediction.step_breakdown(asked.machine, free, strategy).values())
        assert seconds >= n * pool.rate(n) * (1 - 1e-9)


def test_a_pool_without_a_bound_yet_may_take_its_largest_share():
    """A search cut short bounds a pool by 0 seconds a sequence: the other's 3 sequences of 2 s take 6 s, over all 8."""
    large = SimpleNamespace(max_sequences=100)
    pools = [batch_shares.PoolSearch(problem=large, bounds=[(1, 8, rate)]) for rate in (0.0, 2.0)]
    search = batch_shares.Shares(pools=pools, batch=8, tail=lambda _: 0.0)
    assert search.bound_of(((0, 5), (3, 3))) == pytest.approx(6 / 8)
    assert search.bound_of(((0, 5), (0, 3))) == 0.0


def test_step_times_in_which_no_layouts_could_be_better_are_passed_over(monkeypatch):
    """Of 100 layouts a pool, the first of which are fast, those of few step times are joined, without loss."""
    pools = [batch_shares.PoolSearch(problem=None) for _ in range(2)]
    for (k, pool), n in itertools.product(enumerate(pools), range(1, 101)):
        each = (1 + k) * (1 if n == 10 else 3)
        pool.points[n] = batch_shares.PoolLayout(sequences=n, seconds=each * n, strategy=None)
        pool.improvements += 1
    fullest, joined = batch_shares.Shares._fullest, []
    monkeypatch.setattr(batch_shares.Shares, "_fullest", lambda s, limit: joined.append(limit) or fullest(s, limit))
    search = batch_shares.Shares(pools=pools, batch=200, tail=lambda _: 0.0)
    search.improve()
    assert search.rate == 10 / 11  # 10 of the first pool and 1 of the other in 10 s
    assert 10.0 in joined and len(joined) < 20
