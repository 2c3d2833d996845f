"""Drawings of a page: the fabric of a site tier by tier, and the map of a plan with its fibre.

Words are at the left, boxes at the right, so that no line crosses a word. A box is a switch or a rack, a line the
cables between two of them, as wide as their rate. Cores and super-spines are in columns above the spine that they join.
"""

import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import combinations

from planner.errors import InputError
from planner.exports.fabric_parts import BuiltFabric
from planner.instance.grid import Grid
from planner.instance.network import Wan
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.price import WAN_GATEWAY, stages, switch_counts
from planner.plan.plan import Plan
from planner.plan.plan_sections import Link, WanPlan
from planner.report.page.charts import WIDTH, drawing, el, line, path, rect, shown, text, title, width_of
from planner.report.plots.sweep_plot import style
from planner.units import amount, counted

# Units: the room for words, and where boxes begin and end.
WORDS, LEFT, RIGHT = 152.0, 168.0, WIDTH - 14
ACROSS = 80  # most boxes drawn side by side
DEEP, LEAVES_DEEP = 12, 40  # most rows drawn, and of leaves, so that a pod is drawn whole but for the largest
# Units: height of a box, of the lines between tiers and of a row of words; room around boxes, and between stacked ones.
BOX, FAN, LINE, GAP, STACK = 9.0, 52.0, 12.0, 6.0, 3.0
WIDEST, THINNEST = 3.0, 0.15  # units: of lines
FREE = {"pairs": 0.3, "hub": 0.3, "columns": 0.6, "trunk": 1.0}  # width of a line over the pitch of boxes, at most
MANY = 240  # lines between two tiers that the eye can follow; of more those of one box are drawn
RING = 46.0  # units: radius of the routers of a group
OTHERS = "other groups"
PLURAL = {"rack": "racks", "leaf": "leaves", "spine": "spines", "core": "cores", "super-spine": "super-spines"}
PLURAL |= {WAN_GATEWAY: "WAN gateways", OTHERS: OTHERS}
SHADES = {"rack": "rest", "leaf": "c4", "spine": "c2", "core": "c0", "super-spine": "c3", WAN_GATEWAY: "c1"}

Point = tuple[float, float]
Lines = list[tuple[Point, Point]]


@dataclass(frozen=True, slots=True)
class DrawnTier:
    """The boxes of one tier in the part that is drawn, row by row from the bottom, and how many the site has."""

    name: str
    boxes: int
    columns: int
    total: int
    notes: tuple[str, ...] = ()
    ring: bool = False

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Column and row of the boxes drawn."""
        every = ((n % self.columns, n // self.columns) for n in range(self.boxes))
        return [(column, row) for column, row in every if column < ACROSS and row < self.deep]

    @property
    def deep(self) -> int:
        """Most rows drawn."""
        return LEAVES_DEEP if self.name == "leaf" else DEEP

    @property
    def rows(self) -> int:
        """Rows drawn."""
        return min(self.deep, -(-self.boxes // self.columns))

    @property
    def pitch(self) -> Point:
        """Units from box to box, across and up."""
        return min(26.0, (RIGHT - LEFT) / min(self.columns, ACROSS)), max(2.5, min(BOX + 2, 66 / self.rows))

    @property
    def height(self) -> float:
        """Units that the boxes take."""
        return 2 * RING + BOX if self.ring else self.pitch[1] * self.rows

    @property
    def size(self) -> Point:
        """Width and height of a box."""
        if self.ring:
            return (min(6.0, 4.0 * RING / len(self.cells)),) * 2
        return self.pitch[0] * 0.75, self.pitch[1] * 0.75

    def middle(self, cell: tuple[int, int], top: float) -> Point:
        """Return the middle of a box, of a ring from its foot on, where the boxes begin at a height."""
        if self.ring:
            angle = 2 * math.pi * (cell[0] + cell[1] * self.columns + 0.5 - self.columns / 2) / len(self.cells)
            return (LEFT + RIGHT) / 2 + RING * math.sin(angle), top + self.height / 2 + RING * math.cos(angle)
        wide, high = self.pitch
        left = (LEFT + RIGHT - wide * min(self.columns, ACROSS)) / 2
        return left + wide * (cell[0] + 0.5), top + self.height - high * (cell[1] + 0.5)

    @property
    def words(self) -> list[tuple[str, str]]:
        """Lines of text on the tier, each with its style."""
        drawn = len(self.cells)
        more = "all drawn" if drawn == self.total else f"{drawn:,} drawn, {self.total - drawn:,} more"
        name = self.name if self.total == 1 else PLURAL[self.name]
        notes = [line for note in (more, *self.notes) for line in _styled(note, "small")]
        return _styled(f"{self.total:,} {name}", "strong") + notes


@dataclass(frozen=True, slots=True)
class DrawnLinks:
    """The lines from a tier to the one above, the cables of each line, and the site's cables between the two tiers.

    `pairs` joins the row of boxes above with that below; `columns` boxes above each other; `hub` one point below with
    all above, and `trunk` one point with one.
    """

    shape: str
    cables: int
    each: int  # cables of a line
    gbps: float  # of a cable
    reached: int = ACROSS  # columns above that `pairs` reach

    @property
    def rate(self) -> float:
        """Rate of a line in Gb/s."""
        return self.each * self.gbps

    @property
    def words(self) -> list[tuple[str, str]]:
        """Lines of text on the links, each with its style."""
        reported = f"{self.cables:,} cables", f"a line: {self.each:,} x {amount(self.gbps)} Gb/s"
        return [line for note in reported for line in _styled(note, "small quiet")]

    def between(self, above: tuple[DrawnTier, float], below: tuple[DrawnTier, float]) -> Lines:
        """Return the ends of the lines between two tiers, each with the height at which its boxes begin."""
        (high, high_top), (low, low_top) = above, below
        foot = high_top + (high.height - BOX / 2 if high.ring else high.height)
        tops = [(high.middle(c, high_top)[0], foot) for c in high.cells if c[1] == 0 and c[0] < self.reached]
        if high.ring:
            tops = [high.middle(c, high_top) for c in high.cells if c[1] == 0]
        last = max(row for _, row in low.cells)
        feet = [(low.middle(c, low_top)[0], low_top) for c in low.cells if c[1] == last]
        centre = (LEFT + RIGHT) / 2
        if self.shape == "columns":
            return list(zip(tops, [(x, low_top) for x, _ in tops], strict=True))
        if self.shape == "hub":
            return [(top, (centre, low_top)) for top in tops]
        if self.shape == "trunk":
            return [((centre, foot), (centre, low_top))]
        half = len(feet) // 2
        return [(top, at) for at in (feet if len(feet) * len(tops) <= MANY else feet[half : half + 1]) for top in tops]

    def scale(self, above: DrawnTier, below: DrawnTier) -> float:
        """Return the units of width for a root of Gb/s that keep lines apart: widths go by the roots of rates."""
        pitch = min(above.pitch[0], below.pitch[0] if self.shape == "pairs" else WIDTH)
        return min(WIDEST, FREE[self.shape] * pitch) / math.sqrt(self.rate)


def fabric_svg(x: BuiltFabric) -> Iterator[str]:
    """Draw a site's fabric as a file of its own, in the light colours of pages."""
    colours = dict(re.findall(r"--(\w+): (#\w+)", style().partition("}")[0]))
    rules = "\n".join(line for line in style().splitlines() if line.startswith("svg "))
    css = re.sub(r"var\(--(\w+)\)", lambda m: colours[m[1]], rules)
    paper = el("rect", width="100%", height="100%", fill=colours["paper"])
    drawn = fabric_tiers(x).replace("<svg ", f'<svg width="{2 * WIDTH:.0f}" ', 1)
    yield drawn.replace("</title>", f"</title>{el('style', css)}{paper}", 1) + "\n"


def fabric_tiers(x: BuiltFabric) -> str:
    """Draw the tiers of a site from the top down to the racks of one leaf domain.

    ValueError if a tier states other switches than are wired: the picture would not be of the plan.
    """
    f, counts = x.fabric, switch_counts(x.design)
    for t in f.tiers:
        if t.switches != counts[t.name]:
            raise ValueError(f"{x.site}: {t.switches:,} {t.name} switches are stated and {counts[t.name]:,} wired")
    tiers, links = _tiers(x), _links(x)
    cables = counted(sum(s.count for s in stages(x.design)), "cable")
    head = f"{x.site}: {counted(f.switches, 'switch')} of {f.switch}, {cables}"
    drawn, y = _written([*_styled(head, "strong", WIDTH), *_styled(_part(x), "small", WIDTH)], 0)
    tops, y = list[float](), y + GAP
    for tier, k in zip(tiers, [*links, None], strict=True):
        tops.append(y + GAP)
        words, foot = _written(tier.words, y)
        drawn, y = drawn + words, max(foot, tops[-1] + tier.height) + GAP
        if k is not None:
            words, foot = _written(k.words, y + (FAN - LINE * len(k.words)) / 2)
            drawn, y = drawn + words, max(y + FAN, foot)
    at = list(zip(tiers, tops, strict=True))
    scale = min(k.scale(*ends) for k, *ends in zip(links, tiers, tiers[1:], strict=False))
    lines = [_lines(k.between(*ends), k, scale) for k, *ends in zip(links, at, at[1:], strict=False)]
    inside = DrawnLinks("pairs", 0, x.design.leaf_bundle, x.switch.port_gbps)
    lines += [_lines(_inside(*leaf), inside, scale) for leaf in at if leaf[0].ring]
    names = ", ".join(counted(t.switches, f"{t.name} switch") for t in reversed(f.tiers))
    boxes = []
    for tier, top in at:
        wide, high = tier.size
        corners = ((a - wide / 2, b - high / 2) for a, b in (tier.middle(c, top) for c in tier.cells))
        d = "".join(f"M{a:.2f} {b:.2f}h{wide:.2f}v{high:.2f}h-{wide:.2f}z" for a, b in corners)
        boxes.append(el("path", title(PLURAL[tier.name]), d=d, cls=SHADES.get(tier.name, "c4")))
    parts = [*_frames(x, at), *lines, *boxes, *drawn]
    return drawing(y, f"Fabric of {x.site}: {names}", "".join(parts))


def _part(x: BuiltFabric) -> str:
    d = x.design
    reported = "Drawn: the racks of one leaf domain"
    reported += f", one {_pod(x)} of {d.pods:,}" if d.pods > 1 else ""
    reported += f", one zone of {d.zones:,}" if d.zones > 1 else ""
    return reported + (f", of one of {d.networks:,} networks side by side" if d.networks > 1 else "")


def _pod(x: BuiltFabric) -> str:
    return "group" if x.design.grouped else "pod"


def _tiers(x: BuiltFabric) -> list[DrawnTier]:
    d, counts, word, grouped = x.design, switch_counts(x.design), _pod(x), x.design.grouped
    rails, domains = (1, 1) if d.single else (min(d.rails_per_pod, d.rails), min(d.domains_per_pod, d.domains))
    of_pod = [] if d.single else [f"{word} of {counted(rails, 'rail')} x {counted(domains, 'leaf domain')}"]
    ring = isinstance(d, Dragonfly) and not d.spines
    if isinstance(d, Dragonfly) and ring:
        of_pod.append(f"{counted(d.local_links, 'cable')} inside groups")
    blocks = {"leaf": of_pod + _more(d.pods, word), "core": _more(d.zones, "zone")}
    racks = min(d.domain_racks, d.racks)
    own = f"{counted(d.gpus_per_rack, 'GPU')} a rack" + (f", {counted(d.lanes, 'lane')} each" if d.lanes > 1 else "")
    tiers = [DrawnTier("rack", racks, _columns(racks), d.racks, (own,))]
    for t in x.fabric.tiers:
        up = f", {t.up_ports:,} up, {t.oversubscription:.3g}:1" if t.up_ports else ", none up"
        boxes = {"leaf": rails * domains, "spine": d.spines_per_pod, "super-spine": d.super_spines // d.networks}
        drawn = d.zone_cores if t.name == "core" else boxes[t.name]
        columns = d.spines_per_pod if t.name != "leaf" else rails if rails > 1 else _columns(drawn)
        if (t.name == "core" and d.core_boxes) or (t.name == "super-spine" and (d.core_boxes or d.super_spine_boxes)):
            columns = _columns(drawn)
        notes = (f"{t.down_ports:,} down{up}", *blocks.get(t.name, ()))
        tiers.append(DrawnTier(t.name, drawn, columns, counts[t.name], notes, ring and t.name == "leaf"))
    if grouped and d.pods > 1:
        tiers.append(DrawnTier(OTHERS, d.pods - 1, _columns(d.pods - 1), d.pods - 1, ("every two joined",)))
    if (w := x.fabric.wan_gateway) is not None and d.wan_ports:
        boxes_here, ends = d.wan_gateways // d.networks, f"{w.wan_ports:,} ports to the wide area"
        tiers.append(DrawnTier(WAN_GATEWAY, boxes_here, _columns(boxes_here), d.wan_gateways, (ends,)))
    return tiers[::-1]


def _columns(boxes: int) -> int:
    """Return how many boxes of a list are side by side, in rows of one length."""
    return -(-boxes // -(-boxes // ACROSS))


def _more(count: int, word: str) -> list[str]:
    return [f"x {counted(count - 1, f'more {word}')}"] if count > 1 else []


def _links(x: BuiltFabric) -> list[DrawnLinks]:
    d, gbps, cables = x.design, x.switch.port_gbps, Counter[tuple[str, str]]()
    for s in stages(d):
        cables[s.low, s.high] += s.count
    gpus, reached = (d.rail_gpus * d.rails, 1) if d.single else (d.rail_gpus, d.rails_per_pod)
    links = [DrawnLinks("pairs", cables["gpu", "leaf"], gpus, gbps / d.split, reached)]
    if d.spines:
        links.append(DrawnLinks("pairs", cables["leaf", "spine"], d.leaf_bundle, gbps))
    if d.cores:
        all_reached = 0 < d.core_boxes <= d.spine_up // d.spine_bundle
        shape = "pairs" if all_reached else "trunk" if d.core_boxes else "columns"
        each = d.spine_up // d.core_boxes if all_reached else d.spine_up
        links.append(DrawnLinks(shape, cables["spine", "core"], each, gbps))
    if d.super_spines:
        column, shared = d.spine_up // d.spine_bundle * d.core_up, d.core_boxes or d.super_spine_boxes
        each, shape = (d.core_up, "trunk") if shared else (column, "columns")
        links.append(DrawnLinks(shape, cables["core", "super-spine"], each, gbps))
    if isinstance(d, Dragonfly) and d.pods > 1:
        links.append(DrawnLinks("hub", d.global_links, d.group_links, gbps))
    if d.wan_ports:
        links.append(DrawnLinks("trunk", d.wan_gateway_links, d.wan_ports, gbps))
    return links[::-1]


def _inside(tier: DrawnTier, top: float) -> Lines:
    """Return the lines between every two routers of a group, where they are many those of one of them."""
    first, *others = points = [tier.middle(c, top) for c in tier.cells]
    return list(combinations(points, 2)) if len(points) * len(others) <= 2 * MANY else [(first, p) for p in others]


def _lines(ends: Lines, k: DrawnLinks, scale: float) -> str:
    d = "".join(f"M{shown(a)} {shown(b)}L{shown(c)} {shown(e)}" for (a, b), (c, e) in ends)
    width = max(THINNEST, scale * math.sqrt(k.rate))
    tip = f"{counted(k.each, 'cable')}, {amount(k.rate)} Gb/s each way"
    return el("path", title(tip), d=d, cls="link", stroke_width=f"{width:.2f}")


def _frames(x: BuiltFabric, at: list[tuple[DrawnTier, float]]) -> Iterator[str]:
    """Draw a frame around the pod or group, and around its zone, others behind it where there are more."""
    where = {tier.name: (top, top + tier.height) for tier, top in at}
    for count, first, out in ((x.design.zones, "core", 4.0), (x.design.pods, "spine", 1.0)):
        if count < 1 or x.design.single:
            continue
        top, foot = where.get(first, where["leaf"])[0] - GAP / 2 - out / 4, where["leaf"][1] + GAP / 2 + out / 4
        for behind in range(min(count - 1, 2), -1, -1):
            left, up = LEFT - out + STACK * behind, top - STACK * behind
            yield rect(left, up, RIGHT - LEFT + 2 * out, foot - top, "box")


def _styled(content: str, cls: str, room: float = WORDS) -> list[tuple[str, str]]:
    return [(line, cls) for line in textwrap.wrap(content, int(room / width_of("x", cls)))]


def _written(lines: list[tuple[str, str]], top: float) -> tuple[list[str], float]:
    written = [text(0, top + LINE * (n + 0.85), line, cls) for n, (line, cls) in enumerate(lines)]
    return written, top + LINE * len(lines)


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
MapLines = list[list[Point]]


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
    land: dict[str, MapLines] = {"outline": [], "borders": []}
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
    """Draw a plan's sites (area by power), the links between them, and the grid's other places and lines.

    Return the drawing, and whether it is on the outline of the US.
    """
    sites = plan.sites.sites if plan.sites else ()
    nodes = {n.id: (n.latitude, n.longitude) for n in grid.nodes}
    fibre = plan.instance.wan if plan.wan else None
    cities = {n.id: (n.latitude, n.longitude) for n in fibre.fibre_nodes} if fibre and fibre.fibre_edges else {}
    c = chart({**cities, **nodes, **{x.id: (x.latitude, x.longitude) for x in sites}})
    drawn, names = list(c.land), list[Label]()
    if plan.wan and fibre:
        drawn += _spans(c, plan.wan, fibre)
        drawn += [dot(n, c.at[n], 1.6) for n in cities]
        spans = {e.id: e for e in plan.wan.edges}
        for r in (r for d in plan.wan.demands if d.priority == 0 for r in d.routes[:1]):  # that gradients take
            if e := spans.get(r.edges[len(r.edges) // 2] if r.edges else ""):
                names.append(_between(c, e.a, e.b, f"{r.route_km:,.0f} km, {r.gbps / 1e3:,.4g} Tbps"))
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


def _spans(c: Chart, w: WanPlan, fibre: Wan) -> Iterator[str]:
    """Draw dark spans thin, and lit ones as thick as their wavelengths, dashed where no route uses them until a cut."""
    lit = {e.id for e in w.edges}
    for x in fibre.fibre_edges:
        if x.name not in lit:
            yield line(*c.at[x.a], *c.at[x.b], "line", f"{x.name}: not lit")
    used, most = at_work(w), max((e.wavelengths for e in w.edges), default=1) or 1
    for e in sorted(w.edges, key=lambda e: e.id in used):
        tip = f"{e.id}: {e.route_km:,.0f} km, {e.wavelengths:,} wavelengths"
        cls, tip = ("lit", tip) if e.id in used else ("spare", f"{tip}, while another span is cut")
        yield line(*c.at[e.a], *c.at[e.b], cls, tip, THIN + (THICK - THIN) * e.wavelengths / most)


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
