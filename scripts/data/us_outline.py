"""Make planner/report/data/us-outline.json, the outline and state borders of the 48 states, from a GeoJSON file.

Run it as `.venv/bin/python scripts/data/us_outline.py STATES.geojson`, where STATES is Natural Earth's 1:110m
"Admin 1 - States, Provinces" (public domain); each feature needs `state_code` or `postal` among its properties.
"""

import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from planner.files import write_atomically
from planner.report.page.drawings import albers

OUT = Path(__file__).parents[2] / "planner" / "report" / "data" / "us-outline.json"
ELSEWHERE = {"AK", "HI"}
COAST, BORDER = 0.0022, 0.0035  # Earth radii that a line may move: 14 and 22 km
LEAST = 0.01  # Earth radii of the longest side of an island that is kept
SOURCE = (
    "Natural Earth, 1:110m Admin 1 - States, Provinces (public domain, naturalearthdata.com); simplified by "
    "scripts/data/us_outline.py"
)
Place = tuple[float, float]  # longitude, latitude


def rings(states: dict[str, Any]) -> Iterator[list[Place]]:
    """Yield each ring of each state of the 48."""
    for state in states["features"]:
        p, g = state["properties"], state["geometry"]
        if (p.get("state_code") or p.get("postal")) not in ELSEWHERE:
            for polygon in g["coordinates"] if g["type"] == "MultiPolygon" else [g["coordinates"]]:
                yield from ([(x, y) for x, y in ring] for ring in polygon)


def chains(edges: set[frozenset[Place]], ends: set[Place]) -> Iterator[list[Place]]:
    """Join edges to lines that end where lines of any kind meet, or close."""
    beside: dict[Place, set[Place]] = defaultdict(set)
    for edge in edges:
        a, b = edge
        beside[a].add(b)
        beside[b].add(a)
    for start in [*sorted(p for p in beside if p in ends), *sorted(beside)]:
        for follow in sorted(beside[start]):
            line = [start]
            at: Place | None = follow
            while at is not None and at in beside[line[-1]]:
                beside[line[-1]].discard(at)
                beside[at].discard(line[-1])
                line.append(at)
                at = None if at in ends or at == start else next(iter(sorted(beside[at])), None)
            if len(line) > 1:
                yield line


def simplified(line: list[Place], within: float) -> list[Place]:
    """Drop points that lie near the line without them (Douglas and Peucker 1973), measured on the map."""
    flat = [albers(y, x) for x, y in line]
    kept = {0, len(line) - 1}
    if line[0] == line[-1]:  # A closed line has no chord to measure from: split it at its farthest point.
        kept.add(max(range(len(line)), key=lambda i: (flat[i][0] - flat[0][0]) ** 2 + (flat[i][1] - flat[0][1]) ** 2))
    todo = list(pairwise(sorted(kept)))
    while todo:
        first, last = todo.pop()
        away = [(_away(flat[i], flat[first], flat[last]), i) for i in range(first + 1, last)]
        if away and max(away)[0] > within:
            i = max(away)[1]
            kept.add(i)
            todo += [(first, i), (i, last)]
    return [line[i] for i in sorted(kept)]


def _away(p: Place, a: Place, b: Place) -> float:
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = dx * dx + dy * dy
    t = 0.0 if length == 0 else max(0.0, min(1.0, ((p[0] - a[0]) * dx + (p[1] - a[1]) * dy) / length))
    return math.hypot(p[0] - a[0] - t * dx, p[1] - a[1] - t * dy)


def large(line: list[Place]) -> bool:
    """Tell whether a line is long enough to be seen."""
    flat = [albers(y, x) for x, y in line]
    return bool(max(max(c) - min(c) for c in zip(*flat, strict=True)) >= LEAST)


def main() -> None:
    """Write the outline."""
    times = Counter(
        frozenset(edge) for ring in rings(json.loads(Path(sys.argv[1]).read_text())) for edge in pairwise(ring)
    )
    degree = Counter(p for edge in times for p in edge)
    ends = {p for p, n in degree.items() if n > 2}
    found = {}
    for name, count, within in (("outline", 1, COAST), ("borders", 2, BORDER)):
        lines = chains({e for e, n in times.items() if n == count}, ends)
        found[name] = [
            [[round(y, 2), round(x, 2)] for x, y in simplified(line, within)] for line in lines if large(line)
        ]
    write_atomically(OUT, json.dumps({"source": SOURCE, **found}, separators=(",", ":")) + "\n")
    print(*(f"{k}: {len(v)} lines, {sum(map(len, v))} points" for k, v in found.items()), sep="\n")


if __name__ == "__main__":
    main()
