"""The map of a plan: its sites, the places that could be one, the fibre between them, and its projection."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from planner.errors import InputError
from planner.instance.grid import Grid
from planner.plan.plan import Plan
from planner.plan.sites import Link
from planner.plan.wan import WanPlan
from planner.report.page.elements import WIDTH, drawing, el, line, path, text, title, width_of
from planner.units import amount

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


MARGIN, LARGEST, SMALLEST = 12.0, 15.0, 5.0  # units: around the map, and radii of sites
MAX_HEIGHT = 340.0  # units: a map of places in a column stays on one screen
THIN, THICK = 1.4, 4.5  # units: of a span with the fewest and the most wavelengths
MAX_NAMES = 24  # places without a site; of more none is named, since names would cover the map
Lines = list[list[Point]]


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
    xs, ys = zip(*points, *(p for part in land["outline"] for p in part), strict=True)
    wide, tall = max(max(xs) - min(xs), 1e-3), max(max(ys) - min(ys), 1e-3)
    scale = min((WIDTH - 2 * MARGIN) / wide, MAX_HEIGHT / tall)
    left, top = min(xs) - ((WIDTH - 2 * MARGIN) / scale - wide) / 2, max(ys)

    def at(p: Point) -> Point:
        return MARGIN + (p[0] - left) * scale, MARGIN + (top - p[1]) * scale

    drawn = [path([at(p) for p in part], "border") for part in land["borders"]]
    drawn += [path([at(p) for p in part], "coast") for part in land["outline"]]
    by_name = {n: at(p) for n, p in zip(places, points, strict=True)}
    return Chart(by_name, tuple(drawn), tall * scale + 2 * MARGIN, on_outline)


def plan_map(plan: Plan, grid: Grid) -> tuple[str, bool]:
    """Draw a plan's sites (area by power), what joins them, and the places and lines that there are.

    Return the drawing, and whether it is on the outline of the US.
    """
    sites = plan.sites.sites if plan.sites else ()
    nodes = {n.id: (n.latitude, n.longitude) for n in grid.nodes}
    fibre = plan.instance.wan if plan.wan else None
    cities = {n.id: (n.latitude, n.longitude) for n in fibre.fibre_nodes} if fibre and fibre.fibre_edges else {}
    c = chart({**cities, **nodes, **{x.id: (x.latitude, x.longitude) for x in sites}})
    drawn, names = list(c.land), list[Label]()
    if plan.wan and fibre:
        lit = {e.id for e in plan.wan.edges}
        dark = [x for x in fibre.fibre_edges if x.name not in lit]
        drawn += [line(*c.at[x.a], *c.at[x.b], "line", f"{x.name}: not lit") for x in dark]
        drawn += [*_lit(c, plan.wan), *(dot(n, c.at[n], 1.6) for n in cities)]
        names += _rates(c, plan.wan)
    else:
        drawn += [line(*c.at[x.a], *c.at[x.b], "line") for x in grid.lines]
        for k in plan.sites.links if plan.sites else ():
            drawn.append(line(*_end(c, k, k.a), *_end(c, k, k.b), "wan"))
            names.append(_between(c, k.a, k.b, f"{k.route_km:,.0f} km, {k.capacity_gbps / 1e3:,.4g} Tbps"))
    open_at = {x.id for x in sites}
    for n in grid.nodes:
        if n.id not in open_at:
            drawn.append(dot(n.id, c.at[n.id], 2.8 if n.site else 1.6, "candidate" if n.site else "node"))
    largest = max((x.facility_mw for x in sites), default=0.0) or 1.0
    for x in sites:
        radius = max(SMALLEST, LARGEST * (x.facility_mw / largest) ** 0.5)
        drawn.append(el("circle", cx=c.at[x.id][0], cy=c.at[x.id][1], r=radius, cls="site"))
        names.insert(0, Label(c.at[x.id], radius, f"{x.id}, {amount(x.facility_mw)} MW", "strong"))
    others = [n.id for n in grid.nodes if n.site and n.id not in open_at]
    names += [Label(c.at[n], 2.8, n, "small", must=False) for n in others] if len(others) <= MAX_NAMES else []
    places = (f"{x.id} at {x.latitude:.1f}, {x.longitude:.1f} with {amount(x.facility_mw)} MW" for x in sites)
    alt = f"Map of the sites: {'; '.join(places) or 'none is open'}"
    return drawing(c.height, alt, "".join([*drawn, labels(names, c.height)])), c.in_us


def dot(name: str, at: Point, radius: float, cls: str = "node") -> str:
    """Draw a node of a network."""
    return el("circle", title(name), cx=at[0], cy=at[1], r=radius, cls=cls)


def _end(c: Chart, k: Link, end: str) -> Point:
    if end not in c.at:
        remedy = "see what `planner check` says of the plan"
        raise InputError(f"wan.links: {k.a} - {k.b}: {end!r} is no site of the plan; {remedy}")
    return c.at[end]


def at_work(w: WanPlan) -> frozenset[str]:
    """Return the spans that routes use while nothing is cut."""
    return frozenset(e for d in w.demands for r in d.routes for e in r.edges)


def _lit(c: Chart, w: WanPlan) -> Iterator[str]:
    """Draw lit spans as thick as their wavelengths, dashed where no route uses them until a cut."""
    used, most = at_work(w), max((e.wavelengths for e in w.edges), default=1) or 1
    for e in sorted(w.edges, key=lambda e: e.id in used):
        tip = f"{e.id}: {e.route_km:,.0f} km, {e.wavelengths:,} wavelengths"
        cls, tip = ("lit", tip) if e.id in used else ("spare", f"{tip}, while another span is cut")
        yield line(*c.at[e.a], *c.at[e.b], cls, tip, THIN + (THICK - THIN) * e.wavelengths / most)


def _rates(c: Chart, w: WanPlan) -> Iterator["Label"]:
    """Yield the length and rate of each route that gradients take, at the middle span of it."""
    spans = {e.id: e for e in w.edges}
    for d in w.demands:
        for r in d.routes[:1] if d.priority == 0 else ():
            if e := spans.get(r.edges[len(r.edges) // 2] if r.edges else ""):
                yield _between(c, e.a, e.b, f"{r.route_km:,.0f} km, {r.gbps / 1e3:,.4g} Tbps")


def _between(c: Chart, a: str, b: str, content: str) -> "Label":
    (x1, y1), (x2, y2) = c.at[a], c.at[b]
    return Label(((x1 + x2) / 2, (y1 + y2) / 2), 0.0, content, "small")


@dataclass(frozen=True, slots=True)
class Label:
    """A text at a place; one that need not be there is left out where there is no room."""

    at: Point
    radius: float
    content: str
    cls: str
    must: bool = True


def labels(names: Sequence[Label], height: float) -> str:
    """Write each label next to its place, inside the drawing, where it touches no earlier one."""
    taken: list[tuple[float, float, float, float]] = []
    drawn = []
    for n in names:
        half = width_of(n.content, n.cls) / 2
        x, y = n.at
        tries = [(x, y - n.radius - 4), (x, y + n.radius + 12)]
        tries += [(x + n.radius + 4 + half, y + 4), (x - n.radius - 4 - half, y + 4)]
        tries += [(x, y + sign * step) for step in range(16, int(height), 4) for sign in (1, -1)] if n.must else []
        for left, low in tries:
            middle, base = min(max(left, half), WIDTH - half), min(max(low, 11.0), height - 4)
            box = (middle - half, base - 11, middle + half, base + 4)
            if all(box[0] >= t[2] or box[2] <= t[0] or box[1] >= t[3] or box[3] <= t[1] for t in taken):
                taken.append(box)
                drawn.append(text(middle, base, n.content, f"{n.cls} halo", "middle"))
                break
    return "".join(drawn)
