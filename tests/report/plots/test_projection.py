"""The map's projection and outline."""

import math

import pytest
from each_case import each

from planner.report.page.drawings import albers, flat, in_us, outline


def test_albers_meets_the_worked_example() -> None:
    """35 N 75 W from 23 N 96 W is where Snyder (1987, p. 291) computes it by hand."""
    (x, y), (x0, y0) = albers(35, -75), albers(23, -96)
    assert (x - x0, y - y0) == pytest.approx((0.2952720, 0.2416774), abs=5e-8)


@each("latitude", [26.0, 37.0, 48.0])
def test_albers_keeps_areas(latitude: float) -> None:
    """A small square of latitude and longitude covers its area on the sphere."""
    d = 0.01
    corners = [
        albers(latitude, -80), albers(latitude, -80 + d), albers(latitude + d, -80 + d), albers(latitude + d, -80),
    ]  # fmt: skip
    area = abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(corners, [*corners[1:], corners[0]], strict=True))) / 2
    assert area == pytest.approx(math.radians(d) ** 2 * math.cos(math.radians(latitude + d / 2)), rel=1e-5)


def test_flat_is_true_to_scale() -> None:
    """Elsewhere a degree east is as long as it is at the places' mean latitude."""
    (x0, y0), (x1, y1) = flat([(60.0, 10.0), (60.0, 11.0)])
    assert (x1 - x0, y1 - y0) == pytest.approx((math.radians(1) / 2, 0.0))


def test_outline_is_the_48_states() -> None:
    """The outline is small, lies in the map's frame, and reaches Maine, Florida, Texas and Washington."""
    shapes = outline()
    points = [tuple(p) for lines in shapes.values() for part in lines for p in part]
    assert 300 < len(points) < 800
    assert all(in_us(*p) for p in points)
    for place in ((44.8, -66.97), (25.1, -80.6), (25.9, -97.3), (48.2, -124.6)):
        assert min(math.dist(place, p) for p in points) < 1.0
