"""Layouts as Megatron orders ranks: how many stages share a rack, by hand."""

import pytest

from planner.physics.training.parallel_strategy import even_layers, min_stages_per_rack, packing


@pytest.mark.parametrize(
    ("layers", "stages", "each"),
    [
        (8, 4, (2, 2, 2, 2)),
        (9, 4, (3, 2, 2, 2)),
        (10, 4, (2, 3, 3, 2)),
        (11, 4, (3, 3, 3, 2)),
        (126, 16, (7, *(8,) * 14, 7)),
        (4, 2, (2, 2)),
        (7, 1, (7,)),
    ],
)
def test_layers_are_spread_evenly(layers: int, stages: int, each: tuple[int, ...]) -> None:
    """Layers over go to the first stages; where two are short, the first and the last stage have one less."""
    assert even_layers(layers, stages) == each


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (32, (1, 8)),  # four racks: a stage each, its replicas side by side
        (31, (1, 8)),  # the fourth rack need not be full
        (24, (2, 4)),  # three: two stages share a rack
        (16, (2, 4)),
        (9, (2, 4)),
        (8, (4, 2)),  # one rack holds all four stages of both replicas
    ],
)
def test_stages_share_a_rack_where_the_gpus_ask_for_it(gpus: int, expected: tuple[int, int]) -> None:
    """Four stages of one GPU and two replicas on racks of 8."""
    assert packing(8, 1, 1, 4, 2, gpus) == expected


@pytest.mark.parametrize(
    ("unit", "stages", "replicas", "racks", "q"),
    [
        (16, 2, 3, 12, 1),  # a stage over two racks: twelve of them for two stages of three replicas
        (16, 2, 3, 11, 1),  # no two such stages share a rack
        (4, 4, 2, None, 1),  # nothing is known of the racks
        (4, 4, 2, 4, 1),
        (4, 4, 2, 3, 1),  # two stages a rack leave room for one replica: four racks again
        (2, 4, 2, 2, 2),
        (2, 4, 2, 1, 1),  # all four fill a rack with one replica
        (2, 4, 1, 1, 4),
    ],
)
def test_fewest_stages_that_fit_the_racks(unit: int, stages: int, replicas: int, racks: int | None, q: int) -> None:
    """Replicas of stages of so many GPUs on racks of 8; one stage a rack where no number fits."""
    assert min_stages_per_rack(8, unit, stages, replicas, racks) == q
