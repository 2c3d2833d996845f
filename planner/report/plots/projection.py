"""Project places onto a flat map."""

import math
from collections.abc import Sequence

Point = tuple[float, float]

# Standard parallels and centre that the USGS uses for the 48 states (Snyder 1987, p. 99).
US_PARALLELS, US_CENTRE = (29.5, 45.5), (37.5, -96.0)
US_SOUTH, US_NORTH, US_WEST, US_EAST = 22.0, 52.0, -130.0, -62.0


def albers(latitude: float, longitude: float) -> Point:
    """Return x (east) and y (north) of a place in the 48 states, in Earth radii.

    Albers equal-area conic on a sphere: Snyder, J. P. (1987), Map Projections: A Working Manual, USGS Professional
    Paper 1395, equations (14-1) to (14-6).
    """
    first, second = (math.radians(p) for p in US_PARALLELS)
    n = (math.sin(first) + math.sin(second)) / 2
    c = math.cos(first) ** 2 + 2 * n * math.sin(first)

    def radius(phi: float) -> float:
        return math.sqrt(c - 2 * n * math.sin(phi)) / n

    theta = n * math.radians(longitude - US_CENTRE[1])
    rho = radius(math.radians(latitude))
    return rho * math.sin(theta), radius(math.radians(US_CENTRE[0])) - rho * math.cos(theta)


def in_us(latitude: float, longitude: float) -> bool:
    """Return whether a place belongs on a map of the 48 states."""
    return US_SOUTH <= latitude <= US_NORTH and US_WEST <= longitude <= US_EAST


def flat(places: Sequence[Point]) -> list[Point]:
    """Return x and y of places (latitude, longitude) anywhere.

    Equirectangular, true to scale at their mean latitude: Snyder 1987, equations (12-1) and (12-2).
    """
    scale = math.cos(math.radians(sum(p[0] for p in places) / len(places)))
    return [(math.radians(p[1]) * scale, math.radians(p[0])) for p in places]
