"""GeoJSON as RFC 7946 has it: a feature collection, positions as longitude and latitude, nothing beside JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
from import_cases import imported

from planner.imports.read_grid import geojson
from planner.instance.grid import Grid


def positions(geometry: dict[str, Any]) -> list[list[float]]:
    """Return a geometry's positions; sections 3.1.2 and 3.1.4: one for a point, two or more for a line."""
    if geometry["type"] == "Point":
        return [geometry["coordinates"]]
    assert geometry["type"] == "LineString" and len(geometry["coordinates"]) >= 2
    return list(geometry["coordinates"])


def assert_valid(data: dict[str, Any]) -> None:
    """Hold a feature collection to sections 3.2 and 3.3, and 4 (WGS 84, no crs)."""
    assert set(data) == {"type", "features"} and data["type"] == "FeatureCollection"
    for f in data["features"]:
        assert set(f) == {"type", "id", "geometry", "properties"} and f["type"] == "Feature"
        assert isinstance(f["id"], str) and isinstance(f["properties"], dict)
        assert all(-180 <= lon <= 180 and -90 <= lat <= 90 for lon, lat in positions(f["geometry"]))
    assert len({f["id"] for f in data["features"]}) == len(data["features"])


@pytest.mark.parametrize("names", ["case4.m", "bus.csv branch.csv gen.csv", "plants.csv", "zones.csv interfaces.csv"])
def test_valid(tmp_path: Path, names: str) -> None:
    options = {"at": (40.0, -75.0)} if names == "case4.m" else {}
    g = imported(tmp_path, names, **options).grid
    data = json.loads(json.dumps(geojson(g), allow_nan=False))
    assert_valid(data)
    assert [f["properties"]["id"] for f in data["features"]] == [n.id for n in g.nodes] + [x.id for x in g.lines]


def test_longitude_goes_first(tmp_path: Path) -> None:
    """A node in the west has a negative first coordinate; a line goes from its a to its b; figures are properties."""
    features = {f["id"]: f for f in geojson(imported(tmp_path, "zones.csv interfaces.csv").grid)["features"]}
    assert features["node/p3"]["geometry"] == {"type": "Point", "coordinates": [-112.0, 33.4]}
    assert features["line/p2--p3"]["geometry"]["coordinates"] == [[-76.0, 41.0], [-112.0, 33.4]]
    assert features["line/p2--p3"]["properties"]["rating_mw"] == 200
    assert features["node/p3"]["properties"]["kind"] == "node"
    assert "latitude" not in features["node/p3"]["properties"]


def test_new_lines_are_features_too() -> None:
    """A corridor that can be built is distinct from one that exists, also under the same id."""
    ends = {"a": "x", "b": "y", "rating_mw": 1.0}
    node = {"balancing_authority": "A", "latitude": 1.0, "generation_mw": 1.0}
    grid = {
        "balancing_authorities": [{"id": "A", "interconnection": "i", "headroom_mw": 1.0, "energy_usd_per_mwh": 1.0}],
        "nodes": [node | {"id": "x", "longitude": 2.0}, node | {"id": "y", "longitude": 3.0}],
        "lines": [ends | {"id": "l"}],
        "new_lines": [ends | {"id": "l", "capex_usd": 1.0}],
    }
    data = geojson(Grid.model_validate(grid))
    assert_valid(data)
    assert [f["properties"]["kind"] for f in data["features"]] == ["node", "node", "line", "new_line"]
