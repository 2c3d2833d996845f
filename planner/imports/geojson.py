"""A grid as GeoJSON (RFC 7946): nodes as points, lines as line strings, positions as longitude, latitude."""

from typing import Any

from planner.instance.grid import Grid, Line, NewLine, PowerNode


def geojson(grid: Grid) -> dict[str, Any]:
    """Return the grid as a FeatureCollection; every other figure is a property, `kind` says node, line or new line."""
    where = {n.id: [n.longitude, n.latitude] for n in grid.nodes}
    features = [_feature(n, "node", {"type": "Point", "coordinates": where[n.id]}) for n in grid.nodes]
    for kind, lines in (("line", grid.lines), ("new_line", grid.new_lines)):
        features += [_feature(x, kind, {"type": "LineString", "coordinates": [where[x.a], where[x.b]]}) for x in lines]
    return {"type": "FeatureCollection", "features": features}


def _feature(item: PowerNode | Line | NewLine, kind: str, geometry: dict[str, Any]) -> dict[str, Any]:
    figures = item.model_dump(mode="json", exclude={"latitude", "longitude"}, exclude_none=True)
    return {"type": "Feature", "id": f"{kind}/{item.id}", "geometry": geometry, "properties": {"kind": kind} | figures}
