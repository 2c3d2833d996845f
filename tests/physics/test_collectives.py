"""Time of collectives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.physics import collectives as c

SIZES = st.floats(0, 1e12)
RANKS = st.integers(1, 4096)


def test_ring_all_reduce() -> None:
    """1 GB over 4 ranks at 1 GB/s and 1 ms: 6 steps of 1 ms and 1.5 s."""
    assert c.all_reduce_seconds(1e9, 4, 1e9, 1e-3) == pytest.approx(1.506)


def test_ring_halves() -> None:
    """The reduce-scatter and the all-gather each take 3 steps of 1 ms and 0.75 s."""
    assert c.reduce_scatter_seconds(1e9, 4, 1e9, 1e-3) == pytest.approx(0.753)
    assert c.all_gather_seconds(1e9, 4, 1e9, 1e-3) == pytest.approx(0.753)


def test_one_rank_exchanges_nothing() -> None:
    """A single rank takes no time, not even latency."""
    assert c.all_reduce_seconds(1e9, 1, 1e9, 1e-3) == 0


def test_two_ranks_exchange_the_whole_tensor() -> None:
    """Between two ranks each direction carries the tensor once: 1 s and two latencies."""
    assert c.all_reduce_seconds(1e9, 2, 1e9, 1e-3) == pytest.approx(1.002)


@given(SIZES, RANKS)
def test_all_reduce_is_its_halves_and_below_two_tensors(size: float, ranks: int) -> None:
    """An all-reduce is a reduce-scatter and an all-gather, and without latency never moves more than two tensors."""
    whole = c.all_reduce_seconds(size, ranks, 1e9, 0.0)
    assert whole == pytest.approx(c.reduce_scatter_seconds(size, ranks, 1e9, 0.0) + c.all_gather_seconds(size, ranks, 1e9, 0.0))
    assert 0 <= whole <= 2 * size / 1e9


@given(SIZES, RANKS)
def test_more_ranks_never_take_less(size: float, ranks: int) -> None:
    """Time grows with the ranks."""
    assert c.all_reduce_seconds(size, ranks + 1, 1e9, 1e-6) >= c.all_reduce_seconds(size, ranks, 1e9, 1e-6)


@pytest.mark.parametrize(("backward", "tail"), [(3.0, 2.0), (2.0, 2.0), (1.0, 6.0), (0.0, 10.0)])
def test_exposed_tail(backward: float, tail: float) -> None:
    """Of 10 s over 5 layers the last layer's 2 s remain, or what four layers' backward does not hide."""
    assert c.exposed_tail_seconds(10.0, backward, 5) == tail


def test_one_layer_hides_nothing() -> None:
    """With one layer there is no other backward to run beside."""
    assert c.exposed_tail_seconds(10.0, 100.0, 1) == 10.0


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 500))
def test_tail_lies_between_the_last_share_and_all(total: float, backward: float, layers: int) -> None:
    """At least one layer's share is exposed and never more than everything."""
    assert total / layers <= c.exposed_tail_seconds(total, backward, layers) <= total * (1 + 1e-12)
