"""The first instance that the planner writes for a user."""

import pytest

from planner.imports.instance_file import PLACES

# Latitude and longitude of the cities, by the gazetteer of the US Census.
CITIES = {
    "abilene": (32.45, -99.74),
    "new-albany": (40.08, -82.81),
    "council-bluffs": (41.26, -95.86),
    "goodyear": (33.44, -112.36),
    "ashburn": (39.04, -77.49),
}
# Between which meridians an interconnection's places are; that of Texas lies within the eastern one's.
MERIDIANS = {"western": (-125, -104), "ercot": (-104, -94), "eastern": (-104, -67)}


def test_places_are_where_their_cities_are() -> None:
    """Each place is within some km of the city of its name, in the interconnection that serves it."""
    assert {name for name, *_ in PLACES} == set(CITIES)
    for name, _, interconnection, latitude, longitude, usd_per_mwh in PLACES:
        assert (latitude, longitude) == pytest.approx(CITIES[name], abs=0.05)
        west, east = MERIDIANS[interconnection]
        assert west < longitude < east
        assert 20 <= usd_per_mwh <= 80  # of large users
