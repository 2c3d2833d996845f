"""The tiers of a fabric as a picture (SVG): switches, racks and the cables between them, as they are wired."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np

from planner.exports.from_plan import BuiltFabric
from planner.physics.network.cabling import WAN_GATEWAY, lay, stages, switch_counts
from planner.physics.network.links import Ints

WIDTH, ROW, BOX = 980, 130, 62  # of the picture, of a tier with the cables below it, and of a tier's box
LEFT, DRAWN = 20, 640  # where boxes begin, and the width that they share
MAX_DRAWN = 24  # boxes of a tier that the eye can separate; of a larger one the first are drawn, and the text says so
ARC = 40  # height of an arc between two switches of one tier
INK, PAPER = "#1f2933", "#ffffff"
RACK = "rack"
FILL = {
    WAN_GATEWAY: "#f3d1d1", "super-spine": "#dccdec", "core": "#c9d8f0", "spine": "#d6ead6", "leaf": "#f7e6c4",
    RACK: "#eeeeee",
}  # fmt: skip

Bundles = Counter[tuple[int, int]]  # cables by the switch or rack at either end


@dataclass(frozen=True, slots=True)
class Joined:
    """The cables between two tiers, or inside one: of those between boxes that are drawn the bundles, and how many."""

    low: str
    high: str
    cables: int
    bundles: Bundles

    @property
    def drawn(self) -> int:
        """Cables between boxes that are drawn."""
        return sum(self.bundles.values())


def picture(x: BuiltFabric) -> Iterator[str]:
    """Draw the picture: racks at the foot, the top tier above, a line for each bundle of cables as it is wired."""
    f = x.fabric
    rows = _rows(x)
    top = 50 + ARC
    height = top + ROW * len(rows) + 10
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    yield f' font-family="sans-serif" font-size="14" fill="{INK}">\n'
    yield f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>\n'
    title = f"{x.site}: {f.switches:,} switches {f.boxes}, {f.switch_links + f.endpoint_links:,} cables"
    if f.group_links:
        title += f"; {f.pods:,} groups, {f.group_links:,} links between each two"
    if (w := f.wan_gateway) is not None:
        title += f"; WAN gateway: {w.switches:,} switches, {w.wan_ports:,} ports to the wide area, {w.uplinks:,} up"
    yield _text(LEFT, 28, title, 18)
    tops = {tier: top + ROW * i for i, tier in enumerate(rows)}
    wiring = joined(x)
    for k in wiring:
        yield from _bundles(x, k, rows, tops)
    for tier, count in rows.items():
        yield from _tier(x, tops[tier], tier, count)
    for k in wiring:
        upper = min(tops[k.low], tops[k.high])
        y = upper - 8 if k.low == k.high else upper + (BOX + ROW) // 2 + 5
        cut = "" if k.drawn == k.cables else f", {k.drawn:,} drawn"
        yield _text(690, y, f"{k.cables:,} cables{cut}")
    yield "</svg>\n"


def _rows(x: BuiltFabric) -> dict[str, int]:
    """Return the tiers from the top down, with the switches, or racks, of each.

    Raises
    ------
    ValueError
        If a tier states other switches than are wired: the picture would not be of the plan.
    """
    counts = switch_counts(x.design)
    for t in x.fabric.tiers:
        if t.switches != counts[t.name]:
            raise ValueError(f"{x.site}: {t.switches:,} {t.name} switches are stated and {counts[t.name]:,} wired")
    above = {WAN_GATEWAY: counts[WAN_GATEWAY]} if WAN_GATEWAY in counts else {}
    return above | {t.name: counts[t.name] for t in reversed(x.fabric.tiers)} | {RACK: x.design.racks}


def joined(x: BuiltFabric) -> list[Joined]:
    """Return the cables of every stage of the wiring, counted between the boxes that are drawn."""
    cables = {(_tier_of(s.low), s.high): s.count for s in stages(x.design)}
    found: dict[tuple[str, str], Bundles] = defaultdict(Counter)
    for c in lay(x.design):
        low, high = c.low // x.design.gpus_per_rack if c.low_tier == "gpu" else c.low, c.high
        drawn = (low < MAX_DRAWN) & (high < MAX_DRAWN)
        found[_tier_of(c.low_tier), c.high_tier] += _counted(low[drawn], high[drawn])
    return [Joined(low, high, n, found[low, high]) for (low, high), n in cables.items() if n]


def _tier_of(end: str) -> str:
    """Return the tier that an end of a cable is drawn in: GPUs stand in their racks."""
    return RACK if end == "gpu" else end


def _counted(low: Ints, high: Ints) -> Bundles:
    """Count the cables of each pair of ends."""
    pairs, counts = np.unique(np.stack([low, high]), axis=1, return_counts=True)
    return Counter(dict(zip(map(tuple, pairs.T.tolist()), counts.tolist(), strict=True)))


def _middles(n: int) -> list[float]:
    """Return the middles of the boxes of a tier of so many."""
    drawn = min(n, MAX_DRAWN)
    return [LEFT + DRAWN * (i + 0.5) / drawn for i in range(drawn)]


def _tier(x: BuiltFabric, y: int, tier: str, count: int) -> Iterator[str]:
    """Draw the boxes of a tier with its counts."""
    middles = _middles(count)
    w = min(90.0, DRAWN / len(middles) - 6)
    for name, m in zip(x.names[tier], middles, strict=False):
        place = f'x="{m - w / 2:.1f}" y="{y}" width="{w:.1f}" height="{BOX}"'
        box = f'<rect {place} rx="4" fill="{FILL[tier]}" stroke="{INK}">'
        yield f"{box}<title>{escape(name)}</title></rect>\n"
    cut = f", the first {len(middles)} drawn" if count > len(middles) else ""
    what = "racks" if tier == RACK else tier
    yield _text(690, y + 26, f"{count:,} {what}{cut}", 16)
    yield _text(690, y + 48, _ports(x, tier), 12)


def _ports(x: BuiltFabric, tier: str) -> str:
    """Say what ports a switch of a tier uses, or what the racks hold."""
    f = x.fabric
    if tier == RACK:
        return f"{x.design.endpoint_links:,} GPU ports, {f.leaf_domain_racks:,} racks a leaf"
    for t in f.tiers:
        if t.name == tier:
            box = f"{t.switch}: " if f.boxes != f.switch else ""
            return f"{box}{t.down_ports} down" + (f", {t.up_ports} up in bundles of {t.bundle}" if t.up_ports else "")
    return "to the wide area"


def _bundles(x: BuiltFabric, k: Joined, rows: dict[str, int], tops: dict[str, int]) -> Iterator[str]:
    """Draw a line for each two boxes that cables join, an arc where they are of one tier."""
    low_at, high_at = _middles(rows[k.low]), _middles(rows[k.high])
    for (low, high), cables in sorted(k.bundles.items()):
        a, b = low_at[low], high_at[high]
        if k.low == k.high:
            y = tops[k.low]
            path = f"M {a:.1f} {y} Q {(a + b) / 2:.1f} {y - ARC} {b:.1f} {y}"
        else:
            foot = tops[k.low] > tops[k.high]
            y, other = (tops[k.low], tops[k.high] + BOX) if foot else (tops[k.low] + BOX, tops[k.high])
            path = f"M {a:.1f} {y} L {b:.1f} {other}"
        ends = f"{x.names[k.low][low]} to {x.names[k.high][high]}: {cables:,} cables"
        line = f'<path d="{path}" fill="none" stroke="{INK}" stroke-opacity="0.3">'
        yield f"{line}<title>{escape(ends)}</title></path>\n"


def _text(x: int, y: int, text: str, size: int = 14) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}">{escape(text)}</text>\n'
