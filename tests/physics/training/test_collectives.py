"""Time of collectives, level by level."""

import itertools

import numpy as np
import pytest
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.physics.training import collectives as c
from planner.physics.training.collectives import Level

SIZES = st.floats(0, 1e12)
RANKS = st.integers(1, 4096)


def level(ranks: int, rate: float = 1e9, latency: float = 1e-3, *, switch: bool = False) -> Level:
    return Level(ranks=ranks, bytes_per_second=rate, latency_seconds=latency, reduces_in_network=switch)


def test_ring_all_reduce() -> None:
    """1 GB over 4 ranks at 1 GB/s and 1 ms: 6 steps of 1 ms and 1.5 s."""
    assert c.all_reduce(1e9, [level(4)]) == pytest.approx(1.506)


def test_one_rank_exchanges_nothing() -> None:
    for switch in (False, True):
        assert c.all_reduce(1e9, [level(1, switch=switch)]) == 0
        assert c.reduce_scatter(1e9, [level(1, switch=switch)]) == 0
    assert c.all_to_all(1e9, [level(1), level(1)]) == 0


def test_two_levels_by_hand() -> None:
    """8 GPUs share 8 GB at 8 GB/s (7/8 of it, 7 steps), 4 racks an eighth, 1 GB, at 1 GB/s (3/4 of it, 3 steps)."""
    levels = [level(8, 8e9), level(4)]
    assert c.reduce_scatter(8e9, levels) == pytest.approx(0.875 + 0.007 + 0.75 + 0.003)
    assert c.all_reduce(8e9, levels) == pytest.approx(2 * (0.875 + 0.007 + 0.75 + 0.003))


def test_switches_that_reduce_send_the_tensor_once() -> None:
    """Where switches reduce, an all-reduce of 1 GB over 8 ranks takes 1 s and two latencies, its halves one each."""
    assert c.all_reduce(1e9, [level(8, switch=True)]) == pytest.approx(1.002)
    assert c.reduce_scatter(1e9, [level(8, switch=True)]) == pytest.approx(0.876)


def _sent(inside: int, racks: int) -> tuple[float, float]:
    """Count what a rank sends of 1 byte to all ranks of a group: inside its rack, and out of it, message by message."""
    ranks = list(itertools.product(range(racks), range(inside)))
    each = 1 / len(ranks)
    near = sum(each for rack, k in ranks if rack == 0 and k != 0)
    return near, sum(each for rack, _ in ranks if rack != 0)


@each(("inside", "racks"), [(1, 1), (2, 1), (1, 3), (4, 2), (8, 4)])
def test_all_to_all_counts_every_message(inside: int, racks: int) -> None:
    near, far = _sent(inside, racks)
    assert c.all_to_all(1.0, [level(inside, 10.0, 0.0), level(racks, 1.0, 0.0)]) == pytest.approx(max(near / 10, far))


@given(SIZES, RANKS)
def test_all_reduce_is_its_halves_and_below_two_tensors(size: float, ranks: int) -> None:
    """An all-reduce is a reduce-scatter and an all-gather, and without latency never moves more than two tensors."""
    levels = [level(ranks, latency=0.0)]
    whole = float(c.all_reduce(size, levels))
    assert whole == pytest.approx(float(c.reduce_scatter(size, levels) + c.all_gather(size, levels)))
    assert 0 <= whole <= 2 * size / 1e9


@given(SIZES, st.integers(1, 64), st.integers(1, 64))
def test_levels_move_what_one_ring_moves(size: float, inside: int, racks: int) -> None:
    """At one rate and without latency, level by level moves just what a flat ring over all ranks does."""
    flat, two = [level(inside * racks, latency=0.0)], [level(inside, latency=0.0), level(racks, latency=0.0)]
    assert float(c.reduce_scatter(size, two)) == pytest.approx(float(c.reduce_scatter(size, flat)), abs=1e-12)


def test_tail_is_the_last_layer_or_the_excess() -> None:
    """Ten layers of 1 s beside backward passes of 2 s each leave the last layer's 1 s; beside 0.5 s, 10 - 9 x 0.5 s."""
    assert c.exposed_tail_seconds(10.0, 2.0, 10) == pytest.approx(1.0)
    assert c.exposed_tail_seconds(10.0, 0.5, 10) == pytest.approx(5.5)


@settings(deadline=None)
@given(st.floats(0.01, 9), st.floats(0, 3), st.integers(1, 5), st.integers(1, 4), st.integers(1, 6))
def test_what_passes_of_chunks_do_not_hide(each: float, work: float, size: int, chunks: int, batches: int) -> None:
    """A layer's gradients leave as the last pass leaves it, one exchange after another: run event by event."""
    ready, clock = [], 0.0
    for _ in range(chunks):
        clock += (batches - 1) * size * work
        for _ in range(size):
            clock += work
            ready.append(clock)
    free = 0.0
    for t in ready:
        free = max(free, t) + each
    exposed = c.exposed_behind_chunks(each, work, size * chunks, chunks, batches)
    assert exposed == pytest.approx(free - clock)
    if chunks == 1:
        assert exposed == pytest.approx(c.exposed_tail_seconds(each * size, work, size))


def test_the_floor_of_an_exchange_is_no_more_than_its_time() -> None:
    r = np.random.default_rng(5)
    n = 100_000
    each, work = np.exp(r.normal(0, 2, n)), np.exp(r.normal(0, 2, n))
    chunks, batches = r.integers(1, 9, n), r.integers(1, 65, n)
    layers = chunks + r.integers(0, 40, n)
    time = c.exposed_behind_chunks(each, work, layers, chunks, batches)
    fewer = np.maximum(chunks, layers - r.integers(0, 20, n))
    share, more, longer = r.uniform(0, 1, n), r.uniform(1, 2, n), batches + r.integers(0, 9, n)
    assert np.all(c.exposed_behind_chunks(each * share, work * more, fewer, chunks, longer) <= time * (1 + 1e-12))
