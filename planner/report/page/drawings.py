"""Drawings of a page: the fabric of a site tier by tier, and the map of a plan with its fibre.

Words are at the left, boxes at the right, so that no line crosses a word. A box is a switch or a rack, a line the
cables between two of them, as wide as their rate. Cores and super-spines are in columns above the spine that they join.
"""

import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import combinations
from typing import NamedTuple

from planner.errors import InputError
from planner.exports.fabric_parts import BuiltFabric
from planner.instance.grid import Grid, PowerNode
from planner.instance.network import FibreNode
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.fabric_cables import WAN_GATEWAY, stages, switch_counts
from planner.plan.plan import Plan
from planner.plan.plan_sections import Site
from planner.report.decisions import TIER_NAMES
from planner.report.page.charts import WIDTH, Point, drawing, el, line, path, rect, shown, text, width_of
from planner.report.page.page_parts import PAGE_CSS
from planner.units import amount, counted, power, to_one

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
OTHERS = "other group"
PLURAL = TIER_NAMES | {"rack": "racks", WAN_GATEWAY: "WAN gateways", OTHERS: "other groups"}
SHADES = {"rack": "rest", "leaf": "c4", "spine": "c2", "core": "c0", "super-spine": "c3", WAN_GATEWAY: "c1"}

Lines = list[tuple[Point, Point]]


class DrawnTier:
    """The boxes of a drawn fabric's tier, row by row from the bottom, and how many switches the site has."""

    def __init__(self, name: str, boxes: int, total: int, *notes: str, columns: int = 0, ring: bool = False) -> None:
        columns = columns or -(-boxes // -(-boxes // ACROSS))  # side by side, else in rows of one length
        self.name, self.columns, self.ring = name, columns, ring
        self.top = 0.0  # units: where its boxes begin
        deep = LEAVES_DEEP if name == "leaf" else DEEP
        every = ((box % columns, box // columns) for box in range(boxes))
        self.cells = [(column, row) for column, row in every if column < ACROSS and row < deep]
        # Units from box to box, across and up, that all boxes take, and of one box.
        rows = min(deep, -(-boxes // columns))
        self.pitch = min(26.0, (RIGHT - LEFT) / min(columns, ACROSS)), max(2.5, min(BOX + 2, 66 / rows))
        self.height = 2 * RING + BOX if ring else self.pitch[1] * rows
        self.size = self.pitch[0] * 0.75, self.pitch[1] * 0.75
        if ring:
            self.size = (min(6.0, 4.0 * RING / len(self.cells)),) * 2
        # Lines of text on the tier, each with its style.
        drawn = len(self.cells)
        more = "all drawn" if drawn == total else f"{drawn:,} drawn, {total - drawn:,} more"
        self.words = _styled(f"{total:,} {name if total == 1 else PLURAL[name]}", "strong")
        self.words += [line for note in (more, *notes) for line in _styled(note, "small")]

    def middle(self, cell: tuple[int, int]) -> Point:
        """Return the middle of a box of a drawn tier (a ring's from its foot)."""
        if self.ring:
            angle = 2 * math.pi * (cell[0] + cell[1] * self.columns + 0.5 - self.columns / 2) / len(self.cells)
            return (LEFT + RIGHT) / 2 + RING * math.sin(angle), self.top + self.height / 2 + RING * math.cos(angle)
        wide, high = self.pitch
        left = (LEFT + RIGHT - wide * min(self.columns, ACROSS)) / 2
        return left + wide * (cell[0] + 0.5), self.top + self.height - high * (cell[1] + 0.5)


class DrawnLinks(NamedTuple):
    """The drawn lines from a fabric's tier to the next above, the cables of each, and all between the two.

    `pairs` joins the row of boxes above to that below; `columns` boxes above each other; `hub` one point below with
    all above, and `trunk` one point with one; `inside` every two routers of a group.
    """

    shape: str
    cables: int
    each: int  # cables of a line
    gbps: float  # of a cable
    reached: int = ACROSS  # columns above that `pairs` reach

    def words(self, above: DrawnTier, below: DrawnTier) -> list[tuple[str, str]]:
        """Write the lines of text on the links between two drawn tiers, each with its style."""
        ends = {end[1] for end in self.between(above, below)}
        alone = len(ends) == 1 < sum(row == 0 for _, row in below.cells) and self.shape == "pairs"
        reported = [f"{self.cables:,} cables", f"a line: {self.each:,} x {amount(self.gbps)} Gb/s"]
        reported += [f"of one {below.name} drawn"] * alone
        return [line for note in reported for line in _styled(note, "small quiet")]

    def between(self, high: DrawnTier, low: DrawnTier) -> Lines:
        """Return the ends of the lines between two drawn tiers."""
        if self.shape == "inside":  # where they are many, those of one router
            first, *others = points = [high.middle(cell) for cell in high.cells]
            few = len(points) * len(others) <= 2 * MANY
            return list(combinations(points, 2)) if few else [(first, other) for other in others]
        foot = high.top + (high.height - BOX / 2 if high.ring else high.height)
        tops = [(high.middle(box)[0], foot) for box in high.cells if box[1] == 0 and box[0] < self.reached]
        if high.ring:
            tops = [high.middle(cell) for cell in high.cells if cell[1] == 0]
        last = max(row for _, row in low.cells)
        feet = [(low.middle(cell)[0], low.top) for cell in low.cells if cell[1] == last]
        centre = (LEFT + RIGHT) / 2
        if self.shape == "columns":
            return list(zip(tops, [(x, low.top) for x, _ in tops], strict=True))
        if self.shape == "hub":
            return [(top, (centre, low.top)) for top in tops]
        if self.shape == "trunk":
            return [((centre, foot), (centre, low.top))]
        half = len(feet) // 2
        return [(top, at) for at in (feet if len(feet) * len(tops) <= MANY else feet[half : half + 1]) for top in tops]

    def scale(self, above: DrawnTier, below: DrawnTier) -> float:
        """Return the line width per root of Gb/s that keeps drawn links apart: widths go by the roots of rates."""
        pitch = above.pitch[0]
        if self.shape == "pairs":
            lines = min(self.reached, len(above.cells)) * below.columns
            crossing = 2 * pitch / below.columns if lines <= MANY else WIDTH  # half way all lines are side by side
            pitch = min(pitch, below.pitch[0], crossing)
        return min(WIDEST, FREE[self.shape] * pitch) / math.sqrt(self.each * self.gbps)


def fabric_svg(built: BuiltFabric) -> Iterator[str]:
    """Draw a site's fabric as an SVG file of its own, in the light colours of pages."""
    colours = dict(re.findall(r"--(\w+): (#\w+)", PAGE_CSS.partition("}")[0]))
    rules = "\n".join(line for line in PAGE_CSS.splitlines() if line.startswith("svg "))
    css = re.sub(r"var\(--(\w+)\)", lambda match: colours[match[1]], rules)
    paper = el("rect", width="100%", height="100%", fill=colours["paper"])
    drawn = fabric_tiers(built).replace("<svg ", f'<svg width="{2 * WIDTH:.0f}" ', 1)
    yield drawn.replace("</title>", f"</title>{el('style', css)}{paper}", 1) + "\n"


def fabric_tiers(built: BuiltFabric) -> str:
    """Draw a site's fabric tiers to one leaf domain. ValueError: a tier states other switches than are wired."""
    fabric, design, counts = built.fabric, built.design, switch_counts(built.design)
    for level in fabric.tiers:
        if level.switches != counts[level.name]:
            stated = f"{level.switches:,} {level.name} switches are stated"
            raise ValueError(f"{built.site}: {stated} and {counts[level.name]:,} wired")
    tiers, links = _tiers_and_links(built)
    # The heading: what the site has, and which part of it is drawn.
    of = Counter[str]()
    for tier, model in zip(fabric.tiers, fabric.models, strict=True):
        of[model] += tier.switches
    models = f" ({', '.join(f'{count:,} of {model}' for model, count in of.items())})"
    switches = counted(fabric.switches, "switch") + (f" of {fabric.boxes}" if len(of) == 1 else models)
    cables = counted(sum(stage.count for stage in stages(design)), "cable")
    part = "Drawn: the racks of one leaf domain"
    part += f", one {'group' if design.grouped else 'pod'} of {design.pods:,}" if design.pods > 1 else ""
    part += f", one zone of {design.zones:,}" if design.zones > 1 else ""
    part += f", of one of {design.networks:,} networks side by side" if design.networks > 1 else ""
    heading = _styled(f"{built.site}: {switches}, {cables}", "strong", WIDTH) + _styled(part, "small", WIDTH)
    drawn, y = _written(heading, 0)
    y += GAP
    # Tiers from the top down, each with the links to the one below, and their labels.
    for drawn_tier, link, below in zip(tiers, [*links, None], [*tiers[1:], None], strict=True):
        drawn_tier.top = y + GAP
        words, foot = _written(drawn_tier.words, y)
        drawn, y = drawn + words, max(foot, drawn_tier.top + drawn_tier.height) + GAP
        if link is not None and below is not None:
            spoken = link.words(drawn_tier, below)
            words, foot = _written(spoken, y + (FAN - LINE * len(spoken)) / 2)
            drawn, y = drawn + words, max(y + FAN, foot)
    scale = min(link.scale(*ends) for link, *ends in zip(links, tiers, tiers[1:], strict=False))
    inside = DrawnLinks("inside", 0, design.leaf_bundle, built.switch.port_gbps)
    lines, rings = [], ((inside, leaf, leaf) for leaf in tiers if leaf.ring)
    for link, upper, lower in (*zip(links, tiers, tiers[1:], strict=False), *rings):
        ends = link.between(upper, lower)
        shape = "".join(f"M{shown(a)} {shown(b)}L{shown(c)} {shown(e)}" for (a, b), (c, e) in ends)
        rate = link.each * link.gbps
        tip = f"{counted(link.each, 'cable')}, {amount(rate)} Gb/s each way"
        width = f"{max(THINNEST, scale * math.sqrt(rate)):.2f}"
        lines.append(el("path", tip=tip, d=shape, cls="link", stroke_width=width))
    names = ", ".join(counted(tier.switches, f"{tier.name} switch") for tier in reversed(fabric.tiers))
    boxes = []
    for drawn_tier in tiers:
        wide, high = drawn_tier.size
        corners = ((a - wide / 2, b - high / 2) for a, b in map(drawn_tier.middle, drawn_tier.cells))
        shape = "".join(f"M{a:.2f} {b:.2f}h{wide:.2f}v{high:.2f}h-{wide:.2f}z" for a, b in corners)
        boxes.append(el("path", tip=PLURAL[drawn_tier.name], d=shape, cls=SHADES.get(drawn_tier.name, "c4")))
    # Behind them the frames of zones and pods, three at most, one behind the other.
    frames, named = list[str](), {drawn_tier.name: drawn_tier for drawn_tier in tiers}
    for count, first, out in ((design.zones, "core", 4.0), (design.pods, "spine", 1.0)) if not design.single else ():
        leaf, top = named["leaf"], named.get(first, named["leaf"]).top - GAP / 2 - out / 4
        foot = leaf.top + leaf.height + GAP / 2 + out / 4
        for behind in range(min(count - 1, 2), -1, -1):
            left, up = LEFT - out + STACK * behind, top - STACK * behind
            frames.append(rect(left, up, RIGHT - LEFT + 2 * out, foot - top, "box"))
    return drawing(y, f"Fabric of {built.site}: {names}", [*frames, *lines, *boxes, *drawn])


def _tiers_and_links(built: BuiltFabric) -> tuple[list[DrawnTier], list[DrawnLinks]]:
    design, counts, word = built.design, switch_counts(built.design), "group" if built.design.grouped else "pod"
    rails, domains = min(design.rails_per_pod, design.rails), min(design.domains_per_pod, design.domains)
    if design.single:
        rails, domains = 1, 1
    of_pod = [] if design.single else [f"{word} of {counted(rails, 'rail')} x {counted(domains, 'leaf domain')}"]
    ring = isinstance(design, Dragonfly) and not design.spines
    if isinstance(design, Dragonfly) and ring:
        of_pod.append(f"{counted(design.local_links, 'cable')} inside groups")
    blocks = {"leaf": of_pod, "core": list[str]()}
    for name, count, noun in (("leaf", design.pods, word), ("core", design.zones, "zone")):
        blocks[name] += [f"x {counted(count - 1, f'more {noun}')}"] if count > 1 else []
    racks = min(design.domain_racks, design.racks)
    lanes = f", {counted(design.lanes, 'lane')} each" if design.lanes > 1 else ""
    tiers = [DrawnTier("rack", racks, design.racks, f"{counted(design.gpus_per_rack, 'GPU')} a rack{lanes}")]
    shared = {"core": design.core_boxes, "super-spine": design.core_boxes or design.super_spine_boxes}
    boxes = {"leaf": rails * domains, "spine": design.spines_per_pod}
    boxes["super-spine"] = design.super_spines // design.networks
    for tier in built.fabric.tiers:
        up = f", {tier.up_ports:,} up, {to_one(tier.oversubscription, 3)}" if tier.up_ports else ", none up"
        drawn = design.zone_cores if tier.name == "core" else boxes[tier.name]
        across = design.spines_per_pod if tier.name != "leaf" else rails if rails > 1 else 0
        across = 0 if shared.get(tier.name) else across
        notes, is_ring = (f"{tier.down_ports:,} down{up}", *blocks.get(tier.name, ())), ring and tier.name == "leaf"
        tiers.append(DrawnTier(tier.name, drawn, counts[tier.name], *notes, columns=across, ring=is_ring))
    if design.grouped and design.pods > 1:
        tiers.append(DrawnTier(OTHERS, design.pods - 1, design.pods - 1, "every two joined"))
    if (gateway := built.fabric.wan_gateway) is not None and design.wan_ports:
        here, ends = design.wan_gateways // design.networks, f"{gateway.wan_ports:,} ports to the wide area"
        tiers.append(DrawnTier(WAN_GATEWAY, here, design.wan_gateways, ends))
    # The links between them, from the racks up.
    gbps, cables = built.switch.port_gbps, Counter[tuple[str, str]]()
    for stage in stages(design):
        cables[stage.low, stage.high] += stage.count
    gpus, reached = (design.rail_gpus * design.rails, 1) if design.single else (design.rail_gpus, design.rails_per_pod)
    links = [DrawnLinks("pairs", cables["gpu", "leaf"], gpus, design.nic_gbps, reached)]
    if design.spines:
        links.append(DrawnLinks("pairs", cables["leaf", "spine"], design.leaf_bundle, gbps))
    if design.cores:
        all_reached = 0 < design.core_boxes <= design.spine_up // design.spine_bundle
        shape = "pairs" if all_reached else "trunk" if design.core_boxes else "columns"
        each = design.spine_up // design.core_boxes if all_reached else design.spine_up
        links.append(DrawnLinks(shape, cables["spine", "core"], each, gbps))
    if design.super_spines:
        column = design.spine_up // design.spine_bundle * design.core_up
        one_box = design.core_boxes or design.super_spine_boxes
        each, shape = (design.core_up, "trunk") if one_box else (column, "columns")
        links.append(DrawnLinks(shape, cables["core", "super-spine"], each, gbps))
    if isinstance(design, Dragonfly) and design.pods > 1:
        links.append(DrawnLinks("hub", design.global_links, design.group_links, gbps))
    if design.wan_ports:
        links.append(DrawnLinks("trunk", design.wan_gateway_links, design.wan_ports, gbps))
    return tiers[::-1], links[::-1]


def _styled(content: str, cls: str, room: float = WORDS) -> list[tuple[str, str]]:
    return [(line, cls) for line in textwrap.wrap(content, int(room / width_of("x", cls)))]


def _written(lines: list[tuple[str, str]], top: float) -> tuple[list[str], float]:
    written = [text(0, top + LINE * (row + 0.85), line, cls) for row, (line, cls) in enumerate(lines)]
    return written, top + LINE * len(lines)


# Standard parallels and centre that the USGS uses for the 48 states (Snyder 1987, p. 99).
US_PARALLELS, US_CENTRE = (29.5, 45.5), (37.5, -96.0)
US_SOUTH, US_NORTH, US_WEST, US_EAST = 22.0, 52.0, -130.0, -62.0
US_OUTLINE = files("planner.report") / "data" / "us-outline.json"
LAND = {"borders": "border", "outline": "coast"}  # classes of its lines, in the order in which they are drawn


def albers(latitude: float, longitude: float) -> Point:
    """Return x (east) and y (north) of a place on a map of the 48 states, in Earth radii.

    Albers equal-area conic on a sphere: Snyder, J. P. (1987), Map Projections: A Working Manual, USGS Professional
    Paper 1395, equations (14-1) to (14-6).
    """
    first, second = map(math.radians, US_PARALLELS)
    n = (math.sin(first) + math.sin(second)) / 2
    c = math.cos(first) ** 2 + 2 * n * math.sin(first)
    theta = n * math.radians(longitude - US_CENTRE[1])
    rho, rho_0 = (math.sqrt(c - 2 * n * math.sin(math.radians(x))) / n for x in (latitude, US_CENTRE[0]))
    return rho * math.sin(theta), rho_0 - rho * math.cos(theta)


def projected(places: Sequence[Point]) -> tuple[list[Point], bool]:
    """Return map x and y of places (latitude, longitude), and whether all are on a map of the 48 states.

    Places elsewhere are equirectangular about their mean latitude (Snyder 1987, (12-1) and (12-2)).
    """
    if all(US_SOUTH <= y <= US_NORTH and US_WEST <= x <= US_EAST for y, x in places):
        return [albers(*place) for place in places], True
    scale = math.cos(math.radians(sum(place[0] for place in places) / len(places)))
    return [(math.radians(place[1]) * scale, math.radians(place[0])) for place in places], False


MARGIN, LARGEST, SMALLEST = 12.0, 15.0, 5.0  # units: around the map, and radii of sites
THIN, THICK = 1.4, 4.5  # units: of a span with the fewest and the most wavelengths


def plan_map(plan: Plan, grid: Grid) -> tuple[str, bool]:
    """Draw a map of a plan's sites (area by power), links and grid; return whether it is on the US outline too."""
    sites = plan.sites.sites if plan.sites else ()
    fibre = plan.instance.wan if plan.wan else None
    meets = fibre.fibre_nodes if fibre and fibre.fibre_edges else ()
    every: list[FibreNode | PowerNode | Site] = [*meets, *grid.nodes, *sites]
    places = {place.id: (place.latitude, place.longitude) for place in every}
    points, in_us = projected(list(places.values()))
    # The base map: land under the places, all to one scale, with north at the top.
    land: dict[str, list[list[Point]]] = {name: [] for name in LAND}
    if in_us:
        lines = json.loads(US_OUTLINE.read_text(encoding="utf-8"))  # of latitude and longitude
        land = {name: [[albers(y, x) for y, x in part] for part in lines[name]] for name in land}
    xs, ys = zip(*points, *(point for part in land["outline"] for point in part), strict=True)
    wide, tall = max(max(xs) - min(xs), 1e-3), max(max(ys) - min(ys), 1e-3)
    scale = min((WIDTH - 2 * MARGIN) / wide, 340.0 / tall)  # units: places in a column stay on one screen
    left, top, height = min(xs) - ((WIDTH - 2 * MARGIN) / scale - wide) / 2, max(ys), tall * scale + 2 * MARGIN

    def placed(point: Point) -> Point:
        return MARGIN + (point[0] - left) * scale, MARGIN + (top - point[1]) * scale

    drawn = [path([placed(point) for point in part], LAND[name]) for name, parts in land.items() for part in parts]
    at = {name: placed(point) for name, point in zip(places, points, strict=True)}
    spoken: list[tuple[str, str, str]] = []  # what is written half way between two places
    if plan.wan and fibre:
        spans = {edge.id: edge for edge in plan.wan.edges}
        used = {name for demand in plan.wan.demands for route in demand.routes for name in route.edges}
        dark = (span for span in fibre.fibre_edges if span.name not in spans)
        drawn += [line(*at[span.a], *at[span.b], "line", f"{span.name}: not lit") for span in dark]
        most = max((edge.wavelengths for edge in plan.wan.edges), default=1) or 1
        for edge in sorted(plan.wan.edges, key=lambda edge: edge.id in used):
            tip = f"{edge.id}: {edge.route_km:,.0f} km, {edge.wavelengths:,} wavelengths"
            cls, tip = ("lit", tip) if edge.id in used else ("spare", f"{tip}, while another span is cut")
            drawn.append(line(*at[edge.a], *at[edge.b], cls, tip, THIN + (THICK - THIN) * edge.wavelengths / most))
        drawn += [el("circle", tip=x.id, cx=at[x.id][0], cy=at[x.id][1], r=1.6, cls="node") for x in meets]
        for route in (demand.routes[0] for demand in plan.wan.demands if demand.priority == 0 and demand.routes):
            if middle := spans.get(route.edges[len(route.edges) // 2] if route.edges else ""):
                spoken.append((middle.a, middle.b, f"{route.route_km:,.0f} km, {route.gbps / 1e3:,.4g} Tbps"))
    else:
        drawn += [line(*at[corridor.a], *at[corridor.b], "line") for corridor in grid.lines]
        for link in plan.sites.links if plan.sites else ():
            if missing := [end for end in (link.a, link.b) if end not in at]:
                problem = f"wan.links: {link.a} - {link.b}: {missing[0]!r} is no site of the plan"
                raise InputError(f"{problem}; see what `planner check` says of the plan")
            drawn.append(line(*at[link.a], *at[link.b], "wan"))
            spoken.append((link.a, link.b, f"{link.route_km:,.0f} km, {link.capacity_gbps / 1e3:,.4g} Tbps"))
    names = [Label(((at[a][0] + at[b][0]) / 2, (at[a][1] + at[b][1]) / 2), 0.0, far, "small") for a, b, far in spoken]
    others = [node for node in grid.nodes if node.id not in {site.id for site in sites}]
    spots = ((x.id, *((2.8, "candidate") if x.site else (1.6, "node"))) for x in others)
    drawn += [el("circle", tip=x, cx=at[x][0], cy=at[x][1], r=radius, cls=cls) for x, radius, cls in spots]
    largest = max((site.facility_mw for site in sites), default=0.0) or 1.0
    for site in sites:
        radius = max(SMALLEST, LARGEST * (site.facility_mw / largest) ** 0.5)
        drawn.append(el("circle", cx=at[site.id][0], cy=at[site.id][1], r=radius, cls="site"))
        names.insert(0, Label(at[site.id], radius, f"{site.id}, {power(site.facility_mw)}", "strong"))
    candidates = [node.id for node in others if node.site]  # of over 24 none is named: names would cover the map
    names += [Label(at[x], 2.8, x, "small", must=False) for x in (candidates if len(candidates) <= 24 else ())]
    spoken_of = (f"{own.id} at {own.latitude:.1f}, {own.longitude:.1f} with {power(own.facility_mw)}" for own in sites)
    alt = f"Map of the sites: {'; '.join(spoken_of) or 'none is open'}"
    return drawing(height, alt, [*drawn, labels(names, height)]), in_us


class Label(NamedTuple):
    """A label of a map at a place; an optional one is left out where there is no room."""

    at: Point
    radius: float
    content: str
    cls: str
    must: bool = True


def labels(names: Sequence[Label], height: float) -> str:
    """Write each label of a map next to its place, inside the drawing, where it touches no earlier one."""
    taken, drawn = list[tuple[float, float, float, float]](), []
    for name in names:
        half = width_of(name.content, name.cls) / 2
        x, y = name.at
        tries = [(x, y - name.radius - 4), (x, y + name.radius + 12)]
        tries += [(x + name.radius + 4 + half, y + 4), (x - name.radius - 4 - half, y + 4)]
        tries += [(x, y + sign * step) for step in range(16, int(height), 4) for sign in (1, -1)] if name.must else []
        for left, low in tries:
            middle, base = min(max(left, half), WIDTH - half), min(max(low, 11.0), height - 4)
            box = (middle - half, base - 11, middle + half, base + 4)
            if all(box[0] >= one[2] or box[2] <= one[0] or box[1] >= one[3] or box[3] <= one[1] for one in taken):
                taken.append(box)
                drawn.append(text(middle, base, name.content, f"{name.cls} halo", "middle"))
                break
    return "".join(drawn)
