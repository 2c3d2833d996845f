"""Pipeline schedules against an event-driven run of each device's order of passes, with chunks of unequal work."""

import itertools
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from pipeline_orders import Pass, ends_of, interleaved, zero_bubble

from planner.physics.training import schedule
from planner.physics.training.schedule import PipelineCounts, bubble_seconds, chunk_sizes, excess_seconds

SHAPES = [(p, m) for p in range(1, 7) for m in range(1, 2 * p + 4)]
TIMES = [(1, 1, 1), (2, 3, 1), (3, 1, 2), (1, 5, 3), (4, 3, 9), (2, 7, 2)]
seconds = st.integers(1, 40)


def peak(order: list[Pass], release: str, sizes: tuple[int, ...] = (1,) * 99) -> int:
    """Count the most micro-batches, times a chunk's size, kept from their forward pass to their release."""
    kept = most = 0
    for kind, chunk, _ in order:
        kept += sizes[chunk] * (kind == "F")
        most = max(most, kept)
        kept -= sizes[chunk] * (kind == release)
    return most


def run_1f1b(p: int, v: int, m: int, times: tuple[int, int, int], send: int = 0, **how: int | bool) -> float:
    """Seconds of a simulated step under 1F1B, where B and W are one pass."""
    forward, backward = times[0], times[1] + times[2]
    orders = [interleaved(p, v, m, i, **how) for i in range(p)]
    return max(ends_of(orders, v, lambda _, kind, __: forward if kind == "F" else backward, send).values())


def run_zero_bubble(p: int, m: int, times: tuple[int, int, int], send: int = 0) -> float:
    """Seconds of a simulated step under ZB-H1."""
    orders = [zero_bubble(p, m, i) for i in range(p)]
    return max(ends_of(orders, 1, lambda _, kind, __: times["FBW".index(kind)], send).values())


def test_simulated_orders_are_those_published() -> None:
    """Figure 3 of Qi 2023, third device of four; and Megatron-LM, last of two devices, two chunks."""
    order = " ".join(f"{kind}{k}" for kind, _, k in zero_bubble(4, 5, 2))
    assert order == "F0 F1 B0 F2 B1 F3 B2 W0 F4 B3 W1 B4 W2 W3 W4"
    order = " ".join(f"{kind}{chunk}{k}" for kind, chunk, k in interleaved(2, 2, 4, 1))
    assert order == "F00 F01 F10 B10 F11 B11 F02 B00 F03 B01 F12 B12 F13 B13 B02 B03"


@each(("p", "m"), SHAPES)
def test_steps_without_exchanges(p: int, m: int) -> None:
    """Both schedules take m times a stage's work and the bubble, exactly, for fewer micro-batches than stages too."""
    for times in TIMES:
        f, b, w = times
        counts = PipelineCounts(p, 1, m)
        assert run_1f1b(p, 1, m, times) == m * (f + b + w) + bubble_seconds("1f1b", counts, times, 0)
        bubble = bubble_seconds("zb-h1", counts, times, 0)
        assert run_zero_bubble(p, m, times) == m * (f + b + w) + bubble
        assert m < p or bubble == (p - 1) * (f + b - min(f, b, w))
        alone = (bubble_seconds(name, PipelineCounts(1, v, m), times, 5) for name in ("1f1b", "zb-h1") for v in (1, 2))
        assert not any(alone)  # whatever its sends


@each(("p", "m"), [(p, m) for p, m in SHAPES if m % p == 0 or m < p])
@each("v", [2, 3])
def test_interleaved_steps(p: int, m: int, v: int) -> None:
    """Whole rounds, and less than one, take exactly the effective micro-batches' work and the bubble of a chunk."""
    n = m if m % p == 0 else m + Fraction((v - 1) * (p - m), v)
    assert schedule.effective_micro_batches(m, p, v) == pytest.approx(float(n))
    for times in TIMES:
        f, b, w = times
        bubble = bubble_seconds("1f1b", PipelineCounts(p, v, m), times, 0)
        assert run_1f1b(p, v, m, times) == v * n * (f + b + w) + bubble


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 3), st.data(), seconds, seconds)
def test_a_short_last_round_is_bounded(p: int, v: int, whole: int, data: st.DataObject, f: int, b: int) -> None:
    """Behind complete rounds a short one waits for backward slots, and no longer than effective micro-batches say."""
    r = data.draw(st.integers(1, p - 1))
    m = whole * p + r
    bubble = bubble_seconds("1f1b", PipelineCounts(p, v, m), (f, b, 0), 0)
    least = (v * m * (f + b) + (v - 1) * (p - r) * b) + bubble
    most = v * schedule.effective_micro_batches(m, p, v) * (f + b) + bubble
    assert least <= run_1f1b(p, v, m, (f, b, 0), padded=True) <= most + 1e-6


@given(st.integers(2, 5), st.integers(2, 3), st.data(), seconds, seconds)
def test_longer_rounds_wait_for_nothing_and_keep_more(p: int, v: int, data: st.DataObject, f: int, b: int) -> None:
    """Megatron-Core's rounds of n > p micro-batches lose no time if the last has p or more."""
    m = data.draw(st.integers(2 * p, 4 * p))
    n = next(n for n in range(p, m + 1) if m % n == 0 or m % n >= p)
    bubble = bubble_seconds("1f1b", PipelineCounts(p, v, m), (f, b, 0), 0)
    assert run_1f1b(p, v, m, (f, b, 0), rounds=n) == v * m * (f + b) + bubble
    for i in range(p):
        kept = schedule.chunks_in_flight("1f1b", i, p, v, m) + (v - 1) * (n - p)
        assert peak(interleaved(p, v, m, i, rounds=n), "B") == min(kept, v * m)


@given(st.integers(1, 6), st.integers(1, 14), seconds, seconds, st.integers(0, 60))
def test_plain_sends_show_beside_the_bubble(p: int, m: int, f: int, b: int, send: int) -> None:
    """Plain 1F1B pays, beside the bubble, one round trip for each p micro-batches, whatever overlaps."""
    bubble = bubble_seconds("1f1b", PipelineCounts(p, 1, m), (f, b, 0), send)
    assert run_1f1b(p, 1, m, (f, b, 0), send) == m * (f + b) + bubble + 2 * ((m - 1) * (p - 1) // p) * send


@given(st.integers(1, 5), st.integers(2, 4), st.integers(1, 4), seconds, seconds, st.data())
def test_interleaved_sends_show_in_the_bubble_only(p, v, rounds, f, b, data) -> None:
    send, m = data.draw(st.integers(0, min(f, b))) if p > 1 else 0, rounds * p
    bubble = bubble_seconds("1f1b", PipelineCounts(p, v, m), (f, b, 0), send)
    assert run_1f1b(p, v, m, (f, b, 0), send) == v * m * (f + b) + bubble


@given(st.integers(1, 7), st.integers(1, 16), seconds, seconds, seconds, st.integers(0, 12))
def test_zero_bubble_exchanges(p: int, m: int, f: int, b: int, w: int, send: int) -> None:
    """ZB-H1 hides sends of up to half a W: the bubble is exact above p micro-batches, and an upper bound up to p."""
    predicted = m * (f + b + w) + bubble_seconds("zb-h1", PipelineCounts(p, 1, m), (f, b, w), send)
    simulated = run_zero_bubble(p, m, (f, b, w), send)
    if m <= p:
        assert simulated <= predicted
    elif 2 * send <= w:
        assert simulated == predicted
    else:
        assert simulated >= predicted


@each(("p", "m"), SHAPES)
def test_in_flight(p: int, m: int) -> None:
    for i in range(p):
        for v in (1, 2, 3):
            kept = schedule.chunks_in_flight("1f1b", i, p, v, m)
            assert kept == peak(interleaved(p, v, m, i), "B")
            assert v == 1 or peak(interleaved(p, v, m, i, padded=True), "B") <= kept
        assert schedule.chunks_in_flight("zb-h1", i, p, 1, m) == peak(zero_bubble(p, m, i), "W") == min(m, p)


@each("p", (2, 3, 4, 8))
def test_layers_in_flight(p: int) -> None:
    """By the order of events, exactly: smaller chunks first on the first stage, larger ones first on any."""
    for v, m, more, i in itertools.product((2, 3, 5), (1, p - 1, p, 2 * p, 5 * p), range(5), range(p)):
        layers = 2 * v + min(more, v - 1)
        for first in {False, i == 0}:
            sizes, flying = chunk_sizes(layers, v, smaller_first=first), schedule.chunks_in_flight("1f1b", i, p, v, m)
            larger = schedule.larger_in_flight(p, m, smaller_first=first)
            kept = schedule.layers_in_flight(flying, v, layers, larger)
            assert kept == peak(interleaved(p, v, m, i), "B", sizes), (v, m, layers, i, first)


def test_formulas_broadcast() -> None:
    p, v, m = np.array([1, 2, 4, 8]), np.array([1, 3, 2, 1]), np.array([5, 7, 3, 16])
    for order in get_args(schedule.Schedule):
        whole = bubble_seconds(order, PipelineCounts(p, v, m), (2.0, 3.0, 1.0), 0.5)
        alone = (PipelineCounts(*x) for x in zip(p, v, m, strict=True))
        assert whole.tolist() == [bubble_seconds(order, one, (2.0, 3.0, 1.0), 0.5) for one in alone]
        kept = schedule.chunks_in_flight(order, np.zeros((3, 1), dtype=int), p, v, m)
        assert kept.shape == (3, 4)
        assert kept[0].tolist() == [schedule.chunks_in_flight(order, 0, *x) for x in zip(p, v, m, strict=True)]
    n = schedule.effective_micro_batches(m, p, v)
    assert n.tolist() == [schedule.effective_micro_batches(*x) for x in zip(m, p, v, strict=True)]


SECONDS = (0.1, 0.7, 0.3)  # of a layer forward, backward and recomputed: sums of them round


ALIKE = [(3, 1, 7, 2), (4, 2, 6, 4), (2, 3, 9, 0), (4, 2, 6, 0)]


@each(("p", "v", "layers", "recomputed"), [*ALIKE, *itertools.product([1], [2], [3, 5, 7], [0, 1, 3])])
def test_alike_chunks_and_one_stage_wait_for_nothing(p: int, v: int, layers: int, recomputed: int) -> None:
    for m, head in itertools.product((1, 3, 7, 12, 50), ((0.0, 0.0), (0.05, 0.11))):
        assert excess_seconds(PipelineCounts(p, v, m), layers, recomputed, SECONDS, head=head) == 0.0


@each(("p", "v", "m", "layers", "recomputed", "least"), [
    (8, 2, 16, 3, 0, 0.0), (8, 2, 24, 3, 0, 5.0), (8, 2, 40, 3, 0, 15.0), (8, 2, 32, 2, 1, 2 * 2.0),
    (8, 2, 36, 3, 0, 4.0), (8, 2, 28, 3, 0, 0.0), (3, 2, 30, 3, 0, 0.0), (8, 1, 40, 3, 0, 0.0), (8, 3, 40, 3, 0, 0.0),
])  # fmt: skip
def test_what_unlike_chunks_wait_at_least(p: int, v: int, m: int, layers: int, recomputed: int, least: float) -> None:
    """Stages times a layer's difference less the largest chunk, each round behind the second; never more than it is."""
    # Chunks of two layers and one of a second each: eight stages wait 7·1 - 2 a round, but for the first two. One layer
    # recomputed in half a second beside two chunks of one: 7·0.5 - 1.5. A short round of four counts as half of four
    # micro-batches of three seconds: 2·5 - 6.
    counts = PipelineCounts(p, v, m)
    assert float(schedule.min_excess_seconds(counts, layers, recomputed, 1.0, 0.5)) == pytest.approx(least)
    assert least <= excess_seconds(counts, layers, recomputed, (0.5, 0.5, 0.5)) + 1e-9
