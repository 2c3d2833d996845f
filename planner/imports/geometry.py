"""Points on the sphere: which lie within a radius, which is nearest, and plants grouped around the largest of them."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.physics.site.wan import EARTH_RADIUS_KM

Vectors = NDArray[np.float64]
Indices = NDArray[np.intp]


def unit_vectors(latitude: Sequence[float], longitude: Sequence[float]) -> Vectors:
    """Return points as unit vectors, one a row; angles in degrees."""
    lat, lon = np.radians(latitude), np.radians(longitude)
    return np.column_stack((np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)))


def _chord2(points: Vectors, centre: Vectors) -> NDArray[np.float64]:
    """Return squared straight distances to one point, in earth radii.

    They order points as the great circle does, and cost no arcsine.
    """
    squared: NDArray[np.float64] = ((points - centre) ** 2).sum(axis=1)
    return squared


def _chord2_of(km: float) -> float:
    """Return the squared chord that spans a great circle of `km`: (2·sin(d/2r))²."""
    return float((2 * np.sin(min(km / (2 * EARTH_RADIUS_KM), np.pi / 2))) ** 2)


def nearest(points: Vectors, centre: Vectors) -> int:
    """Return the index of the point nearest to `centre`; the first of equals."""
    return int(_chord2(points, centre).argmin())


def groups(points: Vectors, size: Sequence[float], radius_km: float) -> Iterator[Indices]:
    """Group points greedily: the largest that remains absorbs all that remain within the radius, and so on.

    Not connected components, which chain a dense region into one group. The first index of each group is its centre;
    points of equal size keep their order.
    """
    limit = _chord2_of(radius_km)
    left: Indices = np.argsort(-np.asarray(size, dtype=float), kind="stable")
    while left.size:
        within = _chord2(points[left], points[left[0]]) <= limit
        within[0] = True
        yield left[within]
        left = left[~within]
