"""The picture of a fabric: nothing lies on another, every count adds up, and lines are what is wired."""

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from drawn_fabrics import DESIGNS, WORKED, built
from each_case import each

from planner.exports.fabric_parts import BuiltFabric
from planner.physics.network.fabric_cables import lay, stages, switch_counts
from planner.report.page.charts import WIDTH, width_of
from planner.report.page.drawings import LEFT, MANY, fabric_svg, fabric_tiers

SVG = "{http://www.w3.org/2000/svg}"
FABRICS = {"worked": WORKED} | {name: built(d) for name, d in DESIGNS.items()}
NAMES = {"leaves": "leaf", "racks": "rack", "WAN gateways": "wan-gateway", "WAN gateway": "wan-gateway"}

Box = tuple[float, float, float, float]  # left, top, right, bottom


def read(x: BuiltFabric) -> ET.Element:
    return ET.fromstring(fabric_tiers(x))


def words(x: BuiltFabric) -> str:
    """Return all that the picture says, lines joined."""
    return " ".join(t.text or "" for t in read(x).iter(f"{SVG}text"))


def texts(root: ET.Element) -> list[Box]:
    """Return the room of every line of text: its width at most, and the height of its letters."""
    found = []
    for t in root.iter(f"{SVG}text"):
        left, foot = float(t.get("x", 0)), float(t.get("y", 0))
        found.append((left, foot - 8.5, left + width_of(t.text or "", t.get("class", "")), foot + 2.5))
    return found


def boxes(root: ET.Element) -> dict[str, list[Box]]:
    found = {}
    for p in root.iter(f"{SVG}path"):
        if p.get("class") != "link":
            drawn = re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)", p.get("d", ""))
            corners = [tuple(map(float, one)) for one in drawn]
            found[p[0].text] = [(a, b, a + wide, b + high) for a, b, wide, high in corners]
    return found


def overlap(a: Box, b: Box) -> bool:
    """Say whether two rooms share more than an edge."""
    return min(a[2], b[2]) - max(a[0], b[0]) > 0.02 and min(a[3], b[3]) - max(a[1], b[1]) > 0.02


@each("name", FABRICS)
def test_nothing_lies_on_another(name: str) -> None:
    """No two texts, no two boxes, and no text and box or line overlap; all are within the picture."""
    root = read(FABRICS[name])
    high = float(root.get("viewBox", "").split()[3])
    lines, tiers = texts(root), boxes(root)
    cells = [c for own in tiers.values() for c in own]
    assert not [pair for pair in combinations(lines, 2) if overlap(*pair)]
    ordered = sorted(cells)
    for n, a in enumerate(ordered):
        for b in ordered[n + 1 :]:
            if b[0] >= a[2]:
                break
            assert not overlap(a, b)
    xs = [float(x) for p in root.iter(f"{SVG}path") for x in re.findall(r"[ML]([\d.]+)", p.get("d", ""))]
    head = min(b[1] for b in cells)
    assert all(t[2] <= LEFT - 5 or t[3] <= head for t in lines)
    assert min(xs) >= LEFT and max([*xs, *(t[2] for t in lines), *(c[2] for c in cells)]) <= WIDTH
    assert max(b for *_, b in [*lines, *cells]) <= high


@each("name", [n for n, x in FABRICS.items() if x.design.pods > 0 and not x.design.single])
def test_a_frame_holds_the_tiers_of_its_pod(name: str) -> None:
    """The frame of a pod has all its leaves and spines inside, and that of its zone has the pod's and cores inside."""
    root = read(FABRICS[name])
    rects = [[float(r.get(k, 0)) for k in ("x", "y", "width", "height")] for r in root.iter(f"{SVG}rect")]
    frames = {x: (x, y, x + wide, y + high) for x, y, wide, high in rects}  # those in front are drawn last
    pod, zone = frames[LEFT - 1.0], frames.get(LEFT - 4.0)
    tiers = boxes(root)

    def holds(outer: Box, inner: Box) -> bool:
        return outer[0] < inner[0] and outer[1] < inner[1] and inner[2] < outer[2] and inner[3] < outer[3]

    assert all(holds(pod, box) for tier in ("leaves", "spines") for box in tiers.get(tier, ()))
    assert (zone is not None) == (FABRICS[name].design.zones > 0)
    assert zone is None or (holds(zone, pod) and all(holds(zone, box) for box in tiers["cores"]))


@each("name", FABRICS)
def test_every_count_adds_up(name: str) -> None:
    """Of each tier the boxes drawn and those said to be more are all that are wired; cables are those of the stages."""
    x = FABRICS[name]
    said, drawn = words(x), {k: len(v) for k, v in boxes(read(x)).items()}
    counts = switch_counts(x.design) | {"rack": x.design.racks}
    for plural, cells in drawn.items():
        tier = NAMES.get(plural, plural.removesuffix("s"))
        total = counts.get(tier, x.design.pods - 1)
        drawn_of = r"(?:all drawn|([\d,]+) drawn, ([\d,]+) more)"
        more = re.search(rf"\b{total:,} ({plural}|{tier}|{tier} gateway) {drawn_of}", said)
        assert more is not None, (plural, said)
        figures = [int(n.replace(",", "")) for n in more.groups()[1:] if n]
        assert figures in ([], [cells, total - cells]) and (figures or cells == total)
    assert set(counts) == {NAMES.get(k, k.removesuffix("s")) for k in drawn} - {"other group"}
    cables = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) cables (?:a line|inside)", said)]
    assert sum(cables) == sum(s.count for s in stages(x.design))
    assert f"{sum(s.count for s in stages(x.design)):,} cable" in said
    for word, n in (("pod", x.design.pods), ("zone", x.design.zones)):
        assert (f"x {n - 1:,} more {'group' if x.fabric.group_links and word == 'pod' else word}" in said) == (n > 1)
    for t in x.fabric.tiers:
        up = f"{t.up_ports:,} up, {t.oversubscription:.3g}:1" if t.up_ports else "none"
        assert f"{t.down_ports:,} down, {up}" in said


@each("name", [n for n in FABRICS if "800k" not in n and "gateway" not in n and "dragonfly " not in n])
def test_lines_are_what_is_wired(name: str) -> None:
    """Every pair of boxes of the first pod that cables join has as many as its line says, and a line where all fit."""
    x = FABRICS[name]
    d, per_rack = x.design, x.design.gpus_per_rack
    said = [int(n.replace(",", "")) for n in re.findall(r"a line: ([\d,]+) x", words(x))][::-1]
    tiers = ["gpu", *(t for t in d.tier_switches if d.tier_switches[t])]
    racks = min(d.domain_racks, d.racks)
    rows = {k: len({round(b[1], 1) for b in v}) for k, v in boxes(read(x)).items()}
    paths = [p for p in read(x).iter(f"{SVG}path") if p.get("class") == "link"][::-1]
    for links, path, low, high in zip(said, paths, tiers, tiers[1:], strict=False):
        pairs: Counter[tuple[int, int]] = Counter()
        if low in ("spine", "core") and d.core_boxes > d.spine_up:  # shared boxes: one line for all, of a box's uplinks
            assert (links, path.get("d", "").count("M")) == (d.spine_up if low == "spine" else d.core_up, 1)
            continue
        for c in lay(d):
            if (c.low_tier, c.high_tier) == (low, high):
                of = c.low // per_rack if low == "gpu" else c.low
                column = c.high // (d.spine_up // d.spine_bundle) if high == "core" else c.high
                pairs.update(zip(of.tolist(), column.tolist(), strict=True))
        pod = {a * d.rails + b for a in range(max(1, d.domains_per_pod)) for b in range(max(1, d.rails_per_pod))}
        first = pod if low == "leaf" else range(racks if low == "gpu" else d.spines_per_pod)
        reached = range(d.rails_per_pod) if low == "gpu" and not d.single else range(10**6)
        own = {k: n for k, n in pairs.items() if k[0] in first and k[1] in reached}
        if low == "leaf" and d.networks == 1:
            assert {k[1] for k in own} == set(range(d.spines_per_pod))
        assert set(own.values()) == {links}
        if rows["racks" if low == "gpu" else "leaves" if low == "leaf" else "spines"] == 1:
            alone = f"of one {'rack' if low == 'gpu' else low} drawn" in words(x)
            assert alone if len(own) > MANY else path.get("d", "").count("M") == len(own)


@each("name", FABRICS)
def test_lines_are_the_wider_the_more_they_carry(name: str) -> None:
    """Of two lines the faster is no thinner, and the width goes by the root of the rate where it can be seen."""
    drawn = []
    for p in read(FABRICS[name]).iter(f"{SVG}path"):
        if p.get("class") == "link":
            rate = re.search(r"([\d,.]+) Gb/s", p[0].text)[1].replace(",", "")
            drawn.append((float(rate), float(p.get("stroke-width"))))
    for (rate, width), (other, wide) in combinations(sorted(drawn), 2):
        assert width <= wide
        if width > 0.4:
            assert wide / width == pytest.approx((other / rate) ** 0.5, rel=0.05)


def test_each_model_is_named_with_its_count() -> None:
    """Tiers of other models than the leaves are no switches of theirs; other switches than are wired are refused."""
    leaves, *above = WORKED.fabric.tiers
    tiers = leaves, *(tier.replaced(switch="larger") for tier in above)
    switches, own = sum(tier.switches for tier in tiers), WORKED.fabric.switch
    assert f"{switches} switches of {own}, " in words(WORKED)
    mixed = words(replace(WORKED, fabric=WORKED.fabric.replaced(tiers=tiers)))
    assert f"{switches} switches ({leaves.switches} of {own}, {switches - leaves.switches} of larger), " in mixed
    wrong = built(DESIGNS["rail 1k"]).fabric.replaced(tiers=(leaves.replaced(switches=16),))
    with pytest.raises(ValueError, match="16 leaf switches are stated"):
        fabric_tiers(replace(WORKED, fabric=wrong))


def test_the_file_has_its_own_colours() -> None:
    """A picture of its own has the light colours in place of the page's variables, and a renderer takes it."""
    text = "".join(fabric_svg(WORKED))
    assert "var(" not in text and ".link { stroke: #5a6570" in text
    ET.fromstring(text)
    if shutil.which("rsvg-convert"):
        ran = subprocess.run(["rsvg-convert", "-w", "420"], input=text.encode(), capture_output=True, check=True)
        assert ran.stdout.startswith(b"\x89PNG")
