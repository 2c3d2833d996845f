"""Frontiers, checked against the definition of dominance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.report.plots.sweep_rows import SENSES, frontier, senses_of

POINT = st.tuples(st.integers(0, 6).map(float), st.integers(0, 6).map(float))


@given(st.lists(POINT, max_size=14), st.sampled_from(sorted(SENSES)))
def test_frontier_is_what_nothing_dominates(points: list[tuple[float, float]], name: str) -> None:
    """The frontier holds each undominated place once, and nothing else, by ascending x."""
    senses = senses_of(name)
    assert senses is not None
    sx, sy = (1 if s == "min" else -1 for s in senses)

    def dominated(p: tuple[float, float]) -> bool:
        return any(sx * q[0] <= sx * p[0] and sy * q[1] <= sy * p[1] and q != p for q in points)

    places = [points[i] for i in frontier(points, senses)]
    assert places == sorted({p for p in points if not dominated(p)})


def test_senses() -> None:
    """`none` asks for no frontier, and any other word is refused."""
    assert senses_of("none") is None
    with pytest.raises(InputError, match="--frontier up-down: must be one of min-min"):
        senses_of("up-down")
