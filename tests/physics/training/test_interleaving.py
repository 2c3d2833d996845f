"""Chunks of unequal work under interleaved 1F1B: where they cost nothing, to the last digit, and what they cost."""

import itertools

import pytest

from planner.physics.training.schedule import (
    chunk_sizes,
    excess_seconds,
    finish_seconds,
    min_excess_seconds,
)

SECONDS = (0.1, 0.7, 0.3)  # of a layer forward, backward and recomputed: sums of them round


@pytest.mark.parametrize(
    ("layers", "chunks", "sizes"), [(6, 3, (2, 2, 2)), (7, 3, (3, 2, 2)), (8, 3, (3, 3, 2)), (2, 3, (1, 1, 0))]
)
def test_the_larger_chunks_come_first(layers: int, chunks: int, sizes: tuple[int, ...]) -> None:
    """Chunks differ by one layer at the most."""
    assert chunk_sizes(layers, chunks) == sizes


@pytest.mark.parametrize(("layers", "recomputed"), list(itertools.product([3, 5, 7], [0, 1, 3])))
def test_one_stage_waits_for_nothing(layers: int, recomputed: int) -> None:
    """A single stage passes from chunk to chunk without a pause, whatever their sizes: exactly nothing is added."""
    for m in (1, 3, 7, 11, 50):
        assert excess_seconds(1, 2, m, layers, recomputed, SECONDS) == 0.0
        assert excess_seconds(1, 2, m, layers, recomputed, SECONDS, head=(0.05, 0.11)) == 0.0


@pytest.mark.parametrize(("p", "v", "layers", "recomputed"), [(3, 1, 7, 2), (4, 2, 6, 4), (2, 3, 9, 0), (4, 2, 6, 0)])
def test_chunks_that_are_alike_add_nothing(p: int, v: int, layers: int, recomputed: int) -> None:
    """One chunk a stage, and chunks of as many layers and as many recomputed: exactly nothing is added."""
    for m in (1, 3, 7, 12):
        assert excess_seconds(p, v, m, layers, recomputed, SECONDS) == 0.0


def test_two_stages_of_unlike_chunks() -> None:
    """Two stages of two chunks, of two seconds each way and of one, and two micro-batches, by hand.

    Passes by when they end, forward of the first and second chunk, then backward of the second and first: of stage 0
    at 2, 4, 5, 7 and 9, 11, 14, 16; of stage 1 at 4, 6, 7, 9 and 8, 10, 12, 14. That is two times a stage and the
    larger chunk once: its size adds nothing more.
    """
    assert finish_seconds(2, 2, (2.0, 1.0), (2.0, 1.0)) == 16.0 == 2 * 6 + 4
    assert excess_seconds(2, 2, 2, 3, 0, (1.0, 1.0, 0.0)) == 0.0


@pytest.mark.parametrize(
    ("p", "v", "m", "layers", "recomputed", "least"),
    [
        # Chunks of two layers and one of a second each: eight stages wait 7·1 - 2 a round, but for the first two.
        (8, 2, 8, 3, 0, 0.0),
        (8, 2, 16, 3, 0, 0.0),
        (8, 2, 24, 3, 0, 5.0),
        (8, 2, 40, 3, 0, 15.0),
        # One layer recomputed in half a second beside two chunks of one: 7·0.5 - 1.5.
        (8, 2, 32, 2, 1, 2 * 2.0),
        # A short round of four counts as half of four micro-batches of three seconds: 2·5 - 6.
        (8, 2, 36, 3, 0, 4.0),
        (8, 2, 28, 3, 0, 0.0),
        (3, 2, 30, 3, 0, 0.0),
        (8, 1, 40, 3, 0, 0.0),
        (8, 3, 40, 3, 0, 0.0),
    ],
)
def test_what_unlike_chunks_wait_at_least(p: int, v: int, m: int, layers: int, recomputed: int, least: float) -> None:
    """Stages times a layer's difference less the largest chunk, each round behind the second; never more than it is."""
    assert float(min_excess_seconds(p, v, m, layers, recomputed, 1.0, 0.5)) == pytest.approx(least)
    assert least <= excess_seconds(p, v, m, layers, recomputed, (0.5, 0.5, 0.5)) + 1e-9
