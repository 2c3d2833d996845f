"""Drawings of a layout and a fabric: the pipeline, one rack, the tiers, and what leaf domains hold."""

from collections.abc import Sequence
from itertools import groupby

from planner.plan.fabric import SiteFabric
from planner.plan.layout import LayoutPlan
from planner.report.page.drawings.svg import WIDTH, drawing, line, rect, text

MOST_STAGES = 128  # beyond, equal neighbours are drawn as one
MOST_CELLS = 288  # GPUs of a rack


def pipeline(x: LayoutPlan) -> str:
    """Draw the stages from first to last, each as high as its layers; layers that run again in the backward pass are darker."""
    whole = x.layers_per_stage if x.recompute == "full" else (0,) * x.pipeline_parallel
    again = x.recomputed_layers_per_stage or whole
    stages = list(zip(x.layers_per_stage, again, strict=True))
    runs = [(k, len(list(g))) for k, g in groupby(stages)] if len(stages) > MOST_STAGES else [(k, 1) for k in stages]
    most, full, foot = max(*x.layers_per_stage, 1), 64.0, 86.0
    drawn, first = [], 0
    for (layers, recomputed), count in runs:
        left, width = (
            first / len(stages) * WIDTH,
            count / len(stages) * WIDTH - (0.6 if len(runs) <= MOST_STAGES else 0.2),
        )
        name = f"stage {first}" if count == 1 else f"stages {first} to {first + count - 1}"
        told = f"{name}: {layers} layers" + (f", {recomputed} recomputed" if recomputed else "")
        drawn.append(rect(left, foot - full * layers / most, width, full * layers / most, "c5", told))
        drawn.append(rect(left, foot - full * recomputed / most, width, full * recomputed / most, "c0", told))
        first += count
    drawn += [
        text(0, 12, f"{most} layers", "quiet"),
        text(0, 100, "stage 0"),
        text(WIDTH, 100, f"stage {len(stages) - 1}", "", "end"),
    ]
    alt = f"Pipeline of {len(stages)} stages with {min(x.layers_per_stage)} to {most} layers each"
    return drawing(106, alt, "".join(drawn))


def rack(x: LayoutPlan, gpus: int) -> str | None:
    """Draw the GPUs of one rack by the group that they work in; None where the groups do not fill a rack in an even way."""
    groups = x.replicas_per_rack * x.stages_per_rack
    size = -(-x.tensor_parallel * x.context_parallel // x.racks_per_replica)
    if gpus > MOST_CELLS or groups * size > gpus:
        return None
    across = min(gpus, 24 if gpus > 72 else 18)
    side = WIDTH / max(across, 12)
    drawn = []
    for n in range(gpus):
        group, used = n // size, n < groups * size
        told = f"GPU {n}: " + (f"group {group} of {groups}" if used else "idle")
        drawn.append(
            rect(
                n % across * side, n // across * side, side - 1.5, side - 1.5, f"c{group % 6}" if used else "rest", told
            )
        )
    alt = f"One rack of {gpus} GPUs: {groups} groups of {size}, {gpus - groups * size} idle"
    return drawing(-(-gpus // across) * side + 2, alt, "".join(drawn))


def tiers(site: str, f: SiteFabric) -> str:
    """Draw the tiers of a site from the top down to its GPUs."""
    high, gap = 34.0, 30.0
    rows = list(reversed(f.tiers))
    drawn, top = [], 2.0
    if f.group_links:
        told = f"{f.pods:,} groups, {f.group_links:,} link{'' if f.group_links == 1 else 's'} between each two"
        drawn += [rect(WIDTH * 0.1, 2, WIDTH * 0.8, 22, "box"), text(WIDTH / 2, 17, told, "strong", "middle")]
        drawn += [line(WIDTH / 2 + dx, 24, WIDTH / 2 + dx, 40, "line") for dx in (-90, -30, 30, 90)]
        top = 40.0
    for n, t in enumerate(rows):
        y, width = top + n * (high + gap), WIDTH * (0.55 + 0.4 * n / max(1, len(rows)))
        left = (WIDTH - width) / 2
        drawn.append(rect(left, y, width, high, "box"))
        drawn.append(text(WIDTH / 2, y + 15, f"{t.switches:,} {t.name} switches", "strong", "middle"))
        drawn.append(text(WIDTH / 2, y + 28, f"{t.down_ports} ports down, {t.up_ports} up", "small quiet", "middle"))
        below = rows[n + 1] if n + 1 < len(rows) else None
        told = (
            f"{below.oversubscription:.3g} : 1, {below.bundle} parallel"
            if below
            else f"{f.endpoint_links:,} cables to GPUs"
        )
        drawn += [line(WIDTH / 2 + dx, y + high, WIDTH / 2 + dx, y + high + gap, "line") for dx in (-90, -30, 30, 90)]
        drawn.append(text(WIDTH / 2, y + high + gap / 2 + 4, told, "small halo", "middle"))
    y = top + len(rows) * (high + gap)
    drawn.append(rect(2, y, WIDTH - 4, 22, "box"))
    drawn.append(
        text(
            WIDTH / 2,
            y + 15,
            f"{f.leaf_domains} leaf domain{'' if f.leaf_domains == 1 else 's'} of {f.leaf_domain_racks} racks",
            "",
            "middle",
        )
    )
    alt = (
        f"Fabric of {site}: "
        + ", ".join(f"{t.switches:,} {t.name} switches" for t in rows)
        + f" in {f.planes} plane(s)"
    )
    alt += f"; {f.pods:,} groups, every two joined" if f.group_links else ""
    return drawing(y + 26, alt, "".join(drawn))


def leaves(site: str, kinds: Sequence[tuple[str, int, float, float, float]]) -> str:
    """Draw one bar a kind of leaf domain: racks of whole groups, of split groups' pieces, and idle.

    Each kind is its name, how many domains are of it, and those three.
    """
    most = max((w + s + i for _, _, w, s, i in kinds), default=1.0) or 1.0
    drawn = []
    for n, (name, _, *parts) in enumerate(kinds):
        y, x = 2 + n * 34.0, 0.0
        drawn.append(text(0, y + 10, name))
        for value, cls, told in zip(
            parts, ("c0", "c1", "rest"), ("racks of whole groups", "racks of split groups", "idle racks"), strict=True
        ):
            width = value / most * (WIDTH - 2)
            if width > 0:
                drawn.append(rect(x, y + 14, width, 13, cls, f"{value:g} {told}"))
            x += width
    alt = f"Leaf domains of {site} by what they hold: " + "; ".join(name for name, *_ in kinds)
    return drawing(2 + len(kinds) * 34.0, alt, "".join(drawn))
