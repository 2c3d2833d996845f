"""The tiers of a fabric as a picture (SVG), with the counts of switches, ports and cables."""

from collections.abc import Iterator
from itertools import pairwise
from xml.sax.saxutils import escape

from planner.exports.from_plan import BuiltFabric
from planner.physics.network.cabling import stages

WIDTH, ROW, BOX = 900, 130, 62  # of the picture, of a tier with the cables below it, and of a tier's box
MAX_DRAWN = 12  # switches of a tier that are drawn: more run together; the count says how many there are
INK, PAPER = "#1f2933", "#ffffff"
FILL = {"super-spine": "#dccdec", "core": "#c9d8f0", "spine": "#d6ead6", "leaf": "#f7e6c4", "gpu": "#eeeeee"}


def picture(x: BuiltFabric) -> Iterator[str]:
    """Draw the picture: racks at the foot, the top tier above, cables between them."""
    tiers = list(reversed(x.fabric.tiers))
    height = 70 + ROW * (len(tiers) + 1)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    yield f' font-family="sans-serif" font-size="14" fill="{INK}">\n'
    yield f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>\n'
    f = x.fabric
    title = f"{x.site}: {f.switches:,} switches {f.switch}, {f.switch_links + f.endpoint_links:,} cables"
    if f.group_links:
        title += f"; {f.pods:,} groups, {f.group_links:,} links between each two"
    if (w := f.wan_gateway) is not None:
        title += f"; WAN gateway: {w.switches:,} switches, {w.wan_ports:,} ports to the wide area, {w.uplinks:,} up"
    yield _text(20, 28, title, 18)
    cables = {s.low: s.count for s in stages(x.design)}
    drawn = {t.name: min(t.switches, MAX_DRAWN) for t in tiers} | {"gpu": min(x.design.racks, MAX_DRAWN)}
    names = [*(t.name for t in tiers), "gpu"]
    for i, (high, low) in enumerate(pairwise(names)):
        yield from _lines(50 + ROW * i + BOX, 50 + ROW * (i + 1), drawn[high], drawn[low])
        yield _text(690, 50 + ROW * i + (BOX + ROW) // 2 + 5, f"{cables[low]:,} cables")
    for i, t in enumerate(tiers):
        ports = f"{t.down_ports} down" + (f", {t.up_ports} up in bundles of {t.bundle}" if t.up_ports else "")
        yield from _tier(50 + ROW * i, t.name, drawn[t.name], f"{t.switches:,} {t.name}", ports)
    racks, gpus = f"{x.design.racks:,} racks", f"{x.design.endpoint_links:,} GPUs"
    foot = f"{gpus}, {f.leaf_domain_racks:,} racks a leaf"
    yield from _tier(50 + ROW * len(tiers), "gpu", drawn["gpu"], racks, foot)
    yield "</svg>\n"


def _middles(n: int) -> list[float]:
    return [20 + 640 * (i + 0.5) / n for i in range(n)]


def _tier(y: int, tier: str, n: int, count: str, ports: str) -> Iterator[str]:
    w = min(90.0, 640 / n - 8)
    for m in _middles(n):
        place = f'x="{m - w / 2:.1f}" y="{y}" width="{w:.1f}" height="{BOX}"'
        yield f'<rect {place} rx="4" fill="{FILL[tier]}" stroke="{INK}"/>\n'
    yield _text(690, y + 26, count, 16)
    yield _text(690, y + 48, ports, 12)


def _lines(top: int, bottom: int, high: int, low: int) -> Iterator[str]:
    for a in _middles(high):
        for b in _middles(low):
            ends = f'x1="{a:.1f}" y1="{top}" x2="{b:.1f}" y2="{bottom}"'
            yield f'<line {ends} stroke="{INK}" stroke-opacity="0.25"/>\n'


def _text(x: int, y: int, text: str, size: int = 14) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}">{escape(text)}</text>\n'
