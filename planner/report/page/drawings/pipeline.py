"""Drawings of a layout and a fabric: the pipeline, one rack, the tiers, and what stands in leaf domains."""

from collections.abc import Sequence
from itertools import groupby

from planner.plan.fabric import SiteFabric
from planner.plan.layout import LayoutPlan
from planner.report.page.drawings.svg import WIDTH, drawing, line, rect, text
from planner.units import counted

MAX_STAGES = 128  # of more, equal neighbours are drawn as one: each would be under three units wide
MAX_CELLS = 288  # GPUs of a rack
FOOT, FULL = 86.0, 64.0  # units: the foot of the stages, and the height of the highest
TIER, BETWEEN = 34.0, 30.0  # units: the height of a tier, and of what joins it to the next
CABLES = (-90, -30, 30, 90)  # units from the middle


def pipeline(x: LayoutPlan) -> str:
    """Draw the stages from first to last, each as high as its layers; recomputed layers are darker."""
    recomputed = x.recomputed_layers_per_stage
    if not recomputed:
        recomputed = x.layers_per_stage if x.recompute == "full" else (0,) * len(x.layers_per_stage)
    stages = list(zip(x.layers_per_stage, recomputed, strict=True))
    merged = len(stages) > MAX_STAGES
    runs = [(k, len(list(g))) for k, g in groupby(stages)] if merged else [(k, 1) for k in stages]
    highest, space = max(*x.layers_per_stage, 1), 0.6 if len(runs) <= MAX_STAGES else 0.2
    drawn, first = [], 0
    for (layers, repeated), count in runs:
        left, width = first / len(stages) * WIDTH, count / len(stages) * WIDTH - space
        name = f"stage {first}" if count == 1 else f"stages {first} to {first + count - 1}"
        tip = f"{name}: {layers} layers" + (f", {repeated} recomputed" if repeated else "")
        for number, cls in ((layers, "c5"), (repeated, "c0")):
            height = FULL * number / highest
            drawn.append(rect(left, FOOT - height, width, height, cls, tip))
        first += count
    drawn += [text(0, 12, f"{highest} layers", "quiet"), text(0, 100, "stage 0")]
    drawn.append(text(WIDTH, 100, f"stage {len(stages) - 1}", "", "end"))
    alt = f"Pipeline of {len(stages)} stages with {min(x.layers_per_stage)} to {highest} layers each"
    return drawing(106, alt, "".join(drawn))


def rack(x: LayoutPlan, gpus: int) -> str | None:
    """Draw the GPUs of one rack by the group that they work in; None where groups do not fill a rack evenly."""
    groups = x.replicas_per_rack * x.stages_per_rack
    size = -(-x.tensor_parallel * x.context_parallel // x.racks_per_replica)
    if gpus > MAX_CELLS or groups * size > gpus:
        return None
    across = min(gpus, 24 if gpus > 72 else 18)
    side = WIDTH / max(across, 12)
    drawn = []
    for n in range(gpus):
        group, used = n // size, n < groups * size
        tip = f"GPU {n}: " + (f"group {group} of {groups}" if used else "idle")
        cls = f"c{group % 6}" if used else "rest"
        drawn.append(rect(n % across * side, n // across * side, side - 1.5, side - 1.5, cls, tip))
    alt = f"One rack of {gpus} GPUs: {groups} groups of {size}, {gpus - groups * size} idle"
    return drawing(-(-gpus // across) * side + 2, alt, "".join(drawn))


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
            y, WIDTH * (0.55 + 0.4 * n / max(1, len(rows))), TIER, f"{t.switches:,} {t.name} switches", "strong"
        )
        drawn.append(text(WIDTH / 2, y + 28, f"{t.down_ports} ports down, {t.up_ports} up", "small quiet", "middle"))
        down = f"{f.endpoint_links:,} cables to GPUs"
        if n + 1 < len(rows):
            down = f"{rows[n + 1].oversubscription:.3g} : 1, {rows[n + 1].bundle} parallel"
        drawn += _cables(y + TIER, y + TIER + BETWEEN)
        drawn.append(text(WIDTH / 2, y + TIER + BETWEEN / 2 + 4, down, "small halo", "middle"))
        y += TIER + BETWEEN
    drawn += _box(y, WIDTH - 4, 22, f"{counted(f.leaf_domains, 'leaf domain')} of {f.leaf_domain_racks} racks")
    names = ", ".join(f"{t.switches:,} {t.name} switches" for t in rows)
    alt = f"Fabric of {site}: {names} in {f.planes} plane(s)"
    alt += f"; {f.pods:,} groups, every two joined" if f.group_links else ""
    return drawing(y + 26, alt, "".join(drawn))


def leaves(site: str, kinds: Sequence[tuple[str, tuple[float, float, float]]]) -> str:
    """Draw one bar a kind of leaf domain: racks of complete groups, of split groups' pieces, and idle."""
    widest = max((sum(racks) for _, racks in kinds), default=1.0) or 1.0
    names = ("racks of whole groups", "racks of split groups", "idle racks")
    drawn = []
    for n, (name, racks) in enumerate(kinds):
        y, x = 2 + n * 34.0, 0.0
        drawn.append(text(0, y + 10, name))
        for value, cls, what in zip(racks, ("c0", "c1", "rest"), names, strict=True):
            width = value / widest * (WIDTH - 2)
            if width > 0:
                drawn.append(rect(x, y + 14, width, 13, cls, f"{value:g} {what}"))
            x += width
    alt = f"Leaf domains of {site} by what they hold: " + "; ".join(name for name, _ in kinds)
    return drawing(2 + len(kinds) * 34.0, alt, "".join(drawn))
