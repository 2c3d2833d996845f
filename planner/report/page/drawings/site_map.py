"""The map of a plan's sites, and what all maps share."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from planner.instance.grid import Grid
from planner.plan.sites import Link, SitesPlan
from planner.report.page.drawings.svg import WIDTH, drawing, el, line, path, text
from planner.report.plots.labels import amount
from planner.report.plots.projection import Point, albers, flat, in_us

MARGIN, LARGEST, SMALLEST = 12.0, 15.0, 5.0
MOST_HEIGHT = 340.0
LETTER, APART = {"strong": 7.2, "small": 5.4}, 12.0  # units: of a letter of a label, and between lines of labels
Lines = list[list[Point]]


@dataclass(frozen=True, slots=True)
class Frame:
    """How map coordinates lie on the drawing."""

    left: float
    top: float
    scale: float
    height: float

    def at(self, p: Point) -> Point:
        """Return where a point of the map is drawn."""
        return MARGIN + (p[0] - self.left) * self.scale, MARGIN + (self.top - p[1]) * self.scale


def _frame(points: list[Point]) -> Frame:
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    wide, tall = max(max(xs) - min(xs), 1e-3), max(max(ys) - min(ys), 1e-3)
    scale = min((WIDTH - 2 * MARGIN) / wide, MOST_HEIGHT / tall)
    return Frame(min(xs) - ((WIDTH - 2 * MARGIN) / scale - wide) / 2, max(ys), scale, tall * scale + 2 * MARGIN)


def outline() -> dict[str, list[list[list[float]]]]:
    """Return outline and state wan_gateways of the 48 states, lines of latitude and longitude."""
    held = json.loads((files("planner.report") / "data" / "us-outline.json").read_text(encoding="utf-8"))
    return {k: held[k] for k in ("outline", "borders")}


@dataclass(frozen=True, slots=True)
class Chart:
    """A map without anything on it yet: where each place lies, the land under it, and how high it is."""

    at: dict[str, Point]
    land: tuple[str, ...]
    height: float
    in_us: bool


def chart(places: Mapping[str, Point]) -> Chart:
    """Lay out places (latitude, longitude), on the outline of the US where all of them lie within it."""
    in_frame = all(in_us(*p) for p in places.values())
    names = list(places)
    flat_places = [albers(*places[n]) for n in names] if in_frame else flat([places[n] for n in names])
    land: dict[str, Lines] = (
        {k: [[albers(y, x) for y, x in part] for part in v] for k, v in outline().items()} if in_frame else {}
    )
    frame = _frame([*flat_places, *(p for part in land.get("outline", []) for p in part)])
    drawn = [path([frame.at(p) for p in part], "border") for part in land.get("borders", [])]
    drawn += [path([frame.at(p) for p in part], "coast") for part in land.get("outline", [])]
    return Chart(
        {n: frame.at(p) for n, p in zip(names, flat_places, strict=True)}, tuple(drawn), frame.height, in_frame
    )


def sites_on(c: Chart, s: SitesPlan) -> tuple[list[str], dict[str, float]]:
    """Draw sites, area by power; return the marks and how large each is."""
    most = max(x.facility_mw for x in s.sites)
    radius = {x.id: max(SMALLEST, LARGEST * (x.facility_mw / most) ** 0.5) if most else SMALLEST for x in s.sites}
    return [el("circle", cx=c.at[x.id][0], cy=c.at[x.id][1], r=radius[x.id], cls="site") for x in s.sites], radius


def site_map(s: SitesPlan, grid: Grid | None, links: Sequence[Link]) -> tuple[str, bool]:
    """Draw sites (area by power), links, and the grid's nodes and lines; say whether it is on the outline of the US."""
    nodes = {n.id: (n.latitude, n.longitude) for n in grid.nodes} if grid else {}
    c = chart({**nodes, **{x.id: (x.latitude, x.longitude) for x in s.sites}})
    drawn = list(c.land)
    if grid:
        drawn += [line(*c.at[x.a], *c.at[x.b], "line") for x in grid.lines]
        drawn += [
            el("circle", el("title", escape(n)), cx=c.at[n][0], cy=c.at[n][1], r=2.0, cls="node") for n in sorted(nodes)
        ]
    for k in links:
        (x1, y1), (x2, y2) = c.at[k.a], c.at[k.b]
        drawn.append(line(x1, y1, x2, y2, "wan"))
        drawn.append(
            text((x1 + x2) / 2, (y1 + y2) / 2 - 5, f"{k.route_km:,.0f} km, {k.rtt_ms:.1f} ms", "small halo", "middle")
        )
    marks, radius = sites_on(c, s)
    told = labels([(x.id, f"{x.id}, {amount(x.facility_mw)} MW", "strong") for x in s.sites], c.at, radius)
    alt = "Map of the sites: " + "; ".join(
        f"{x.id} at {x.latitude:.1f}, {x.longitude:.1f} with {amount(x.facility_mw)} MW" for x in s.sites
    )
    return drawing(c.height, alt, "".join([*drawn, *marks, told])), c.in_us


def labels(names: Sequence[tuple[str, str, str]], at: Mapping[str, Point], radius: Mapping[str, float]) -> str:
    """Write labels (place, text, class) above their places, inside the drawing, each below those before it where they would meet."""
    taken: list[tuple[float, float, float]] = []
    drawn = []
    for key, label, cls in names:
        half = len(label) * LETTER[cls] / 2
        x = min(max(at[key][0], half), WIDTH - half)
        y = max(at[key][1] - radius.get(key, 0.0) - 4, 10.0)
        while any(abs(y - other) < APART and x - half < right and left < x + half for left, right, other in taken):
            y += APART / 4
        taken.append((x - half, x + half, y))
        drawn.append(text(x, y, label, f"{cls} halo", "middle"))
    return "".join(drawn)
