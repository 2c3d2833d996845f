"""The map of a plan's sites, and what all maps share."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from planner.errors import InputError
from planner.instance.grid import Grid
from planner.plan.sites import Link, SitesPlan
from planner.report.page.drawings.svg import WIDTH, drawing, el, line, path, text, title
from planner.report.plots.projection import Point, albers, flat, in_us
from planner.units import amount

MARGIN, LARGEST, SMALLEST = 12.0, 15.0, 5.0  # units: around the map, and radii of sites
MAX_HEIGHT = 340.0  # units: a map of places in a column stays on one screen
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
    scale = min((WIDTH - 2 * MARGIN) / wide, MAX_HEIGHT / tall)
    return Frame(min(xs) - ((WIDTH - 2 * MARGIN) / scale - wide) / 2, max(ys), scale, tall * scale + 2 * MARGIN)


def outline() -> dict[str, list[list[list[float]]]]:
    """Return outline and state borders of the 48 states, lines of latitude and longitude."""
    data = json.loads((files("planner.report") / "data" / "us-outline.json").read_text(encoding="utf-8"))
    return {k: data[k] for k in ("outline", "borders")}


@dataclass(frozen=True, slots=True)
class Chart:
    """A map without anything on it yet: where each place lies, the land under it, and how high it is."""

    at: dict[str, Point]
    land: tuple[str, ...]
    height: float
    in_us: bool


def chart(places: Mapping[str, Point]) -> Chart:
    """Return the map of places (latitude, longitude), on the outline of the US where all of them lie within it."""
    on_outline = all(in_us(*p) for p in places.values())
    points = [albers(*p) for p in places.values()] if on_outline else flat(list(places.values()))
    land: dict[str, Lines] = {"outline": [], "borders": []}
    if on_outline:
        land = {k: [[albers(y, x) for y, x in part] for part in parts] for k, parts in outline().items()}
    frame = _frame([*points, *(p for part in land["outline"] for p in part)])
    drawn = [path([frame.at(p) for p in part], "border") for part in land["borders"]]
    drawn += [path([frame.at(p) for p in part], "coast") for part in land["outline"]]
    at = {n: frame.at(p) for n, p in zip(places, points, strict=True)}
    return Chart(at, tuple(drawn), frame.height, on_outline)


def outline_caption(in_us: bool) -> str:
    """Return the part of a map's caption that says what it is drawn on."""
    if in_us:
        return "Albers equal-area; outline: Natural Earth."
    return "Places only: they lie beyond the outline that this page has."


def dot(name: str, at: Point, radius: float) -> str:
    """Draw a node of a network."""
    return el("circle", title(name), cx=at[0], cy=at[1], r=radius, cls="node")


def sites_on(c: Chart, s: SitesPlan) -> tuple[list[str], dict[str, float]]:
    """Draw sites, area by power; return the marks and the radius of each."""
    largest = max(x.facility_mw for x in s.sites)
    radius = dict.fromkeys((x.id for x in s.sites), SMALLEST)
    if largest:
        radius = {x.id: max(SMALLEST, LARGEST * (x.facility_mw / largest) ** 0.5) for x in s.sites}
    return [el("circle", cx=c.at[x.id][0], cy=c.at[x.id][1], r=radius[x.id], cls="site") for x in s.sites], radius


def site_map(s: SitesPlan, grid: Grid | None, links: Sequence[Link]) -> tuple[str, bool]:
    """Draw sites (area by power), links, and the grid's nodes and lines.

    Return the drawing, and whether it is on the outline of the US.
    """
    nodes = {n.id: (n.latitude, n.longitude) for n in grid.nodes} if grid else {}
    c = chart({**nodes, **{x.id: (x.latitude, x.longitude) for x in s.sites}})
    drawn = list(c.land)
    if grid:
        drawn += [line(*c.at[x.a], *c.at[x.b], "line") for x in grid.lines]
        drawn += [dot(n, c.at[n], 2.0) for n in sorted(nodes)]
    for k in links:
        strange = [end for end in (k.a, k.b) if end not in c.at]
        if strange:
            remedy = "see what `planner check` says of the plan"
            raise InputError(f"wan.links: {k.a} - {k.b}: {strange[0]!r} is no site of the plan; {remedy}")
        (x1, y1), (x2, y2) = c.at[k.a], c.at[k.b]
        length = f"{k.route_km:,.0f} km, {k.rtt_ms:.1f} ms"
        drawn.append(line(x1, y1, x2, y2, "wan"))
        drawn.append(text((x1 + x2) / 2, (y1 + y2) / 2 - 5, length, "small halo", "middle"))
    marks, radius = sites_on(c, s)
    names = labels([(x.id, f"{x.id}, {amount(x.facility_mw)} MW", "strong") for x in s.sites], c.at, radius)
    places = (f"{x.id} at {x.latitude:.1f}, {x.longitude:.1f} with {amount(x.facility_mw)} MW" for x in s.sites)
    return drawing(c.height, "Map of the sites: " + "; ".join(places), "".join([*drawn, *marks, names])), c.in_us


def labels(names: Sequence[tuple[str, str, str]], at: Mapping[str, Point], radius: Mapping[str, float]) -> str:
    """Write labels (place, text, class) above their places, inside the drawing, below earlier ones that they touch."""
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
