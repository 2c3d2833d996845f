"""The tiers of a fabric."""

from planner.plan.fabric import SiteFabric
from planner.report.page.drawings.svg import WIDTH, drawing, line, rect, text
from planner.units import counted

TIER, BETWEEN = 34.0, 30.0  # units: the height of a tier, and of what joins it to the next
CABLES = (-90, -30, 30, 90)  # units from the middle


def _box(y: float, width: float, height: float, name: str, cls: str = "") -> list[str]:
    """Draw a box in the middle with its name in it."""
    box = rect((WIDTH - width) / 2, y, width, height, "box")
    return [box, text(WIDTH / 2, y + 15, name, cls, "middle")]


def _cables(top: float, bottom: float) -> list[str]:
    return [line(WIDTH / 2 + dx, top, WIDTH / 2 + dx, bottom, "line") for dx in CABLES]


def tiers(site: str, f: SiteFabric) -> str:
    """Draw the tiers of a site from the top down to its GPUs."""
    rows = list(reversed(f.tiers))
    drawn, y = [], 2.0
    if f.group_links:
        joined = f"{f.pods:,} groups, {counted(f.group_links, 'link')} between each two"
        drawn += [*_box(2, WIDTH * 0.8, 22, joined, "strong"), *_cables(24, 40)]
        y = 40.0
    for n, t in enumerate(rows):
        drawn += _box(
            y, WIDTH * (0.55 + 0.4 * n / max(1, len(rows))), TIER, counted(t.switches, f"{t.name} switch"), "strong"
        )
        drawn.append(text(WIDTH / 2, y + 28, f"{t.down_ports} ports down, {t.up_ports} up", "small quiet", "middle"))
        down = f"{f.endpoint_links:,} cables to GPUs"
        if n + 1 < len(rows):
            down = f"{rows[n + 1].oversubscription:.3g} : 1, {rows[n + 1].bundle} parallel"
        drawn += _cables(y + TIER, y + TIER + BETWEEN)
        drawn.append(text(WIDTH / 2, y + TIER + BETWEEN / 2 + 4, down, "small halo", "middle"))
        y += TIER + BETWEEN
    drawn += _box(y, WIDTH - 4, 22, f"{counted(f.leaf_domains, 'leaf domain')} of {f.leaf_domain_racks} racks")
    names = ", ".join(counted(t.switches, f"{t.name} switch") for t in rows)
    alt = f"Fabric of {site}: {names} in {f.planes} plane(s)"
    alt += f"; {f.pods:,} groups, every two joined" if f.group_links else ""
    return drawing(y + 26, alt, "".join(drawn))
