"""The free segments that the pieces of a leaf take where it has blocks: whole ones, the first first."""

from planner.models.placement.rank_order import _within_blocks


def test_pieces_take_the_first_free_segments_of_one_block_in_order() -> None:
    """Two pieces of two on blocks of three and two: each in a block of its own, its segments ascending."""
    numbers = [7, 8, 7, 8, 7]
    chosen = _within_blocks([(0, 2), (0, 2)], lambda _: numbers)
    taken = sorted(chosen[0, 2])
    assert taken == [[0, 2], [1, 3]]


def test_a_leaf_of_one_block_leaves_the_choice_to_the_order() -> None:
    """Where all segments are of one block there is nothing to choose."""
    assert _within_blocks([(0, 2)], lambda _: [4, 4, 4]) == {}
