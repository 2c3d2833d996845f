"""Pareto frontiers of points in the plane."""

from collections.abc import Sequence
from typing import Literal

from planner.errors import InputError

Sense = Literal["min", "max"]
SENSES: dict[str, tuple[Sense, Sense]] = {
    "min-min": ("min", "min"),
    "max-min": ("max", "min"),
    "min-max": ("min", "max"),
    "max-max": ("max", "max"),
}


def senses_of(text: str) -> tuple[Sense, Sense] | None:
    """Read `min-min` and its like, the sense of x first; None for `none`.

    Raises
    ------
    InputError
        It is none of the five.
    """
    if text == "none":
        return None
    if text not in SENSES:
        raise InputError(f"--frontier {text}: must be one of {', '.join(SENSES)}, none")
    return SENSES[text]


def frontier(points: Sequence[tuple[float, float]], senses: tuple[Sense, Sense]) -> list[int]:
    """Return the places of the points that no other point dominates, by ascending x.

    A point dominates another where it is no worse in both and better in one; of equal points the first is returned.
    """
    sx, sy = (1.0 if s == "min" else -1.0 for s in senses)
    order = sorted(range(len(points)), key=lambda i: (sx * points[i][0], sy * points[i][1], i))
    kept: list[int] = []
    best = float("inf")
    for i in order:
        if sy * points[i][1] < best:
            best = sy * points[i][1]
            kept.append(i)
    return sorted(kept, key=lambda i: points[i][0])
