"""How figures are compared: within the tolerance, whole numbers exactly, and what is beyond any number."""

import math

import pytest

from planner.checks.rule import Number, at_most, exceeds, must_equal, same, show

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("a", "b", "agree"),
    [
        (None, None, True),
        (None, 0, False),
        (0.0, None, False),
        (3, 3, True),
        (10**9, 10**9 + 1, False),
        (1.0, 1.0 + 9e-7, True),
        (1.0, 1.0 + 2e-6, False),
        (-1.0, -1.0 - 9e-7, True),
        (0.0, 1e-12, False),
        (0.0, 0, True),
        (3.6, INF, False),
        (INF, 3.6, False),
        (INF, INF, True),
        (INF, -INF, False),
        (NAN, 1.0, False),
        (NAN, NAN, False),
    ],
)
def test_figures_agree_within_the_tolerance(a: Number, b: Number, agree: bool) -> None:
    """A millionth apart is the same, of whole numbers only the same; nothing finite is near an infinity."""
    assert same(a, b) == agree
    assert bool(list(must_equal("r", "x", a, b))) != agree


@pytest.mark.parametrize(
    ("a", "b", "above"),
    [
        (2, 1, True),
        (1, 1, False),
        (10**9 + 1, 10**9, True),
        (1.0 + 9e-7, 1.0, False),
        (1.0 + 2e-6, 1.0, True),
        (1.0, 2.0, False),
        (-1.0, -1.1, True),
        (INF, 1.0, True),
        (1.0, INF, False),
        (INF, INF, False),
        (-INF, 1.0, False),
        (1.0, -INF, True),
        (NAN, 1.0, True),
        (1.0, NAN, True),
    ],
)
def test_a_limit_is_exceeded_beyond_the_tolerance(a: float, b: float, above: bool) -> None:
    """An infinite figure is above every limit but an infinite one, and what is no number is within none."""
    assert exceeds(a, b) == above
    found = [v.message for v in at_most("r", a, b, "days", "days allowed")]
    assert found == ([f"{show(a)} days > {show(b)} days allowed"] if above else [])
