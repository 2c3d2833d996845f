"""Cables that are out."""

from collections.abc import Sequence

import numpy as np

from planner.errors import InputError
from planner.simulation import dice
from planner.simulation.dice import Ints
from planner.simulation.tree import Tree


def switch_cables(tree: Tree) -> int:
    """Return how many cables between switches there are, all planes counted apart."""
    return sum(tree.cables[1:]) * len(tree.planes)


def failed_cables(tree: Tree, failed: int | Sequence[int], seed: int) -> Ints:
    """Return the cables between switches that are out: those listed, or so many drawn at random by the seed.

    Raises
    ------
    InputError
        There are not so many cables.
    """
    held = switch_cables(tree)
    if isinstance(failed, int):
        if not 0 <= failed <= held:
            raise InputError(f"--failed-links {failed}: must be from 0 to {held}, the cables between switches; give another number")
        return np.sort(dice.order(held, seed, 9)[:failed])
    wrong = [c for c in failed if not 0 <= c < held]
    if wrong:
        raise InputError(f"failed_cables: {wrong[0]} is not the number of a cable between switches (there are {held}); give one from 0 to {held - 1}")
    return np.unique(np.asarray(failed, np.int64))
