"""Draw docs/figures/layers.svg: the layers of the package with their folders, and who imports whom, read from the code.

Run `.venv/bin/python scripts/docs/make_architecture.py`; with `--check` it only fails where the picture is stale.
"""

import sys
from html import escape
from pathlib import Path

import networkx as nx
from layers import LAYERS, ROOT, area, arrows, modules

OUT = ROOT / "docs" / "figures" / "layers.svg"
WIDTH, ROW, BOX, MARGIN = 960, 84, 46, 150
WHAT = (
    "python -m planner",
    "commands and calls",
    "what people read",
    "decisions taken",
    "other formats",
    "formulations, rules",
    "back ends",
    "flows",
    "formulas",
    "data",
    "shared",
)


def folders(row: tuple[str, ...]) -> list[str]:
    """Return the areas of a layer that hold Python."""
    areas = {area(m) for m in modules()}
    return [a for a in row if a in areas and a != "planner"]


def places() -> dict[str, tuple[float, float, float]]:
    """Place each area's box: left edge, top edge, width."""
    found = {}
    for i, row in enumerate(LAYERS):
        names = folders(row)
        width = min(190.0, (WIDTH - MARGIN - 20) / max(1, len(names)) - 20)
        for k, name in enumerate(names):
            found[name] = (MARGIN + 20 + k * (width + 20), 10.0 + i * ROW, width)
    return found


def picture() -> str:
    """Return the picture as SVG."""
    where = places()
    pairs = {(area(a), area(b)) for a, targets in arrows().items() for b in targets if area(a) != area(b)}
    direct = nx.transitive_reduction(nx.DiGraph(pairs))  # an arrow that two others make up is left out
    lines = []
    for a, b in sorted(direct.edges):
        if a in where and b in where and where[a][1] < where[b][1]:
            (x, y, w), (u, v, t) = where[a], where[b]
            lines.append(f'<line x1="{x + w / 2:.0f}" y1="{y + BOX:.0f}" x2="{u + t / 2:.0f}" y2="{v:.0f}"/>')
    boxes = []
    for name, (x, y, w) in where.items():
        label = escape(name.removeprefix("planner."))
        boxes.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="{BOX}" rx="6"/>')
        boxes.append(f'<text x="{x + w / 2:.0f}" y="{y + 28:.0f}" class="name">{label}</text>')
    words = [f'<text x="10" y="{10 + i * ROW + 28}" class="what">{escape(WHAT[i])}</text>' for i in range(len(LAYERS))]
    style = (
        "rect{fill:#eef3f8;stroke:#35506b}line{stroke:#35506b;stroke-opacity:.25}text{font-family:sans-serif;fill:#1c2b3a}"
        ".name{font-size:13px;font-weight:600;text-anchor:middle}.what{font-size:12px}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {len(LAYERS) * ROW}" role="img">'
    title = "<title>Layers of the package: every import runs down; those that others make up are left out</title>"
    backdrop = f'<rect width="{WIDTH}" height="{len(LAYERS) * ROW}" style="fill:#fff;stroke:none"/>'
    return "\n".join([head, title, f"<style>{style}</style>", backdrop, *lines, *boxes, *words, "</svg>"]) + "\n"


def main(arguments: list[str], out: Path = OUT) -> int:
    """Write the picture, or check that it is current."""
    if "--check" in arguments:
        current = out.exists() and out.read_text(encoding="utf-8") == picture()
        print("" if current else f"{out.name} is stale; run scripts/docs/make_architecture.py")
        return 0 if current else 1
    out.write_text(picture(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
