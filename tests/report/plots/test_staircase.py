"""The staircase of money against days: its corners, the bounds below it, and the picture."""

from itertools import pairwise
from random import Random

import pytest
from curves import POINTS, curve

from planner.report.plots.plan_plots import bound_corners, plan_corners, staircase


def test_between_two_plans_the_dearer_one_is_out_of_reach() -> None:
    """The days of a plan last to the money of the next: no line joins two plans, and the last goes on to the limit."""
    corners = plan_corners(curve())
    assert [c for c in corners if c in [(usd, days) for usd, days, _, _ in POINTS]] == [p[:2] for p in POINTS]
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(corners))
    assert corners[:3] == [(1e9, 40.0), (2e9, 40.0), (2e9, 16.0)]
    assert corners[-1] == (1e10, 10.9)
    assert plan_corners(curve(most_usd=None))[-1][0] > POINTS[-1][0]
    assert plan_corners(curve(())) == []


def test_a_bound_holds_of_any_less_money() -> None:
    """Up to a point's money its bound holds; a point without one has that of the next, and behind the last is none."""
    below, *rest = bound_corners(curve().points)
    assert below[0] < 1e9 and below[1] == 38.0
    assert rest[:3] == [(1e9, 38.0), (1e9, 15.4321), (2e9, 15.4321)]
    assert rest[3:] == [(2e9, 10.9), (5e9, 10.9), (5e9, 10.9), (9e9, 10.9)]
    assert bound_corners(curve(POINTS[2:3]).points) == []
    assert bound_corners(curve(((1e9, 9.0, 5.0, 1), (2e9, 8.0, 7.0, 2))).points)[-1] == (2e9, 7.0)
    assert bound_corners(curve(((1e9, 9.0, 5.0, 1), (2e9, 8.0, 7.0, 2))).points)[1] == (1e9, 7.0)


@pytest.mark.parametrize("seed", range(8))
def test_corners_are_those_of_the_definitions(seed: int) -> None:
    """At any money: the days of the fastest plan that it pays, and the largest bound of any plan that costs as much."""
    rng = Random(seed)
    money = sorted(rng.sample(range(1, 60), 6))
    days = sorted(rng.sample(range(20, 90), 6), reverse=True)
    bounds = [rng.choice([None, d * rng.uniform(0.5, 1.0)]) for d in days]
    drawn = curve(tuple(zip(map(float, money), map(float, days), bounds, money, strict=True)), most_usd=70.0)
    for usd in range(2, 70):
        at = usd - 0.5
        paid = [p.days_to_train for p in drawn.points if p.capital_usd <= at]
        proven = [p.bound_days for p in drawn.points if p.bound_days is not None and p.capital_usd >= at]
        assert level(plan_corners(drawn), at) == (min(paid) if paid else None)
        if at >= money[0]:
            assert level(bound_corners(drawn.points), at) == (max(proven) if proven else None)


def level(corners: list[tuple[float, float]], at: float) -> float | None:
    """Return the height of the level stretch above a place of the axis."""
    return next((a[1] for a, b in pairwise(corners) if a[0] < at < b[0]), None)


def test_the_picture() -> None:
    """It is the same twice, and a curve without plans, or with free ones, is drawn too."""
    svg = staircase(curve(), "worked", "svg")
    assert svg == staircase(curve(), "worked", "svg")
    assert b"worked: money against days" in svg
    assert staircase(curve(()), "worked", "png").startswith(b"\x89PNG")
    assert staircase(curve(((0.0, 9.0, None, 1),), most_usd=None), "worked", "png").startswith(b"\x89PNG")
