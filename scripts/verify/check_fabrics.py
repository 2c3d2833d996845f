"""Reproduce published fabrics: `scripts/verify/check_fabrics.py DESIGNS.csv` fails where a computable figure differs.

A row is reproduced where a design with equal bundles has its counts of switches and cables. Where only the ports
add up, no such design exists, and the row is refused with the fewest boxes that can be wired.
"""

import csv
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.instance.catalogue_entries import catalogue
from planner.physics.network.clos_fabric import Design

sys.path.insert(0, str(Path(__file__).parents[1] / "paper"))
from closed_forms import fat_tree_endpoints, fat_tree_links, fat_tree_switches, relaxed_tiers

Row = dict[str, str]
BOX = "25.6T-64x400G"  # whose price is the one that the published bills of materials have


def number(row: Row, name: str) -> int:
    """Return a count of a row; 0 where it holds none."""
    return int(float(row[name] or 0))


def designs(row: Row, apart: int) -> Iterator[Design]:
    """Yield the designs with the row's ports of one rail, side by side: every bundle, every pod that fills spines."""
    down, up, spine_down, spine_up = (number(row, f"{t}_{way}") for t in ("leaf", "spine") for way in ("down", "up"))
    racks = number(row, "endpoints") // apart
    leaf: dict[str, Any] = {
        "ports": number(row, "radix_ports"),
        "rails": 1,
        "racks": racks,
        "apart": apart,
        "leaf_down": down,
        "leaf_up": up,
        "rails_per_pod": 1,
    }
    for bundle in (b for b in range(1, up + 1) if up % b == 0):
        widest = min(spine_down // bundle, math.ceil(racks / down))
        for width in range(1, widest + 1) if spine_up else [widest]:
            two = Design(**leaf, leaf_bundle=bundle, domains_per_pod=width)
            if not spine_up:
                yield two
            for b in (b for b in range(1, spine_up + 1) if spine_up % b == 0):
                three = replace(two, spine_up=spine_up, spine_bundle=b)
                tall = zoned(three, spine_down, spine_up) if number(row, "tiers") > 3 else [three]
                yield from (x for d in tall for x in shared(d))


def zoned(three: Design, core_down: int, core_up: int) -> Iterator[Design]:
    """Yield the designs of four tiers whose cores have the ports of spines: every full zone, every bundle."""
    pods = core_down // three.spine_bundle
    four = replace(
        three, rails_per_zone=1, domains_per_zone=pods * three.domains_per_pod, core_up=core_up, core_bundle=1
    )
    for b in (b for b in range(1, core_up + 1) if core_up % b == 0 and four.zones * b <= four.ports):
        yield replace(four, core_bundle=b)


def shared(d: Design) -> Iterator[Design]:
    """Yield a design whose top positions have a box each, and with the fewest boxes that can share them."""
    yield d
    name, positions, taken = ("core_boxes", d.core_positions, d.pods * d.spine_bundle)
    if d.tiers > 3:
        name, positions, taken = "super_spine_boxes", d.super_spine_positions, d.zones * d.core_bundle
    if each := d.ports // max(1, taken):
        boxes: dict[str, Any] = {name: math.ceil(positions / each)}
        yield replace(d, **boxes)


def counts(d: Design) -> tuple[int, ...]:
    """Return what rows state of a design: boxes by tier and in all, links by stage."""
    links = d.leaves * d.leaf_up, d.spines * d.spine_up
    return d.leaves, d.spines, d.cores, d.switches, d.endpoint_links, *links


def stated(row: Row) -> tuple[int, ...]:
    """Return the same of a row."""
    names = ("leaf", "spine", "core", "switches_total", "links_endpoint", "links_t1_t2", "links_t2_t3")
    return tuple(number(row, name) for name in names)


def by_ports(row: Row) -> bool:
    """Tell whether the row's counts are those of ports alone, whatever the bundles."""
    tiers, ports, n = number(row, "tiers"), number(row, "radix_ports"), number(row, "endpoints")
    pairs = [(number(row, "leaf_down"), number(row, "leaf_up")), (number(row, "spine_down"), number(row, "spine_up"))]
    found = relaxed_tiers(n, (*pairs[: tiers - 1], *([pairs[-1]] * (tiers - 3))), ports)
    links = [found[0] * pairs[0][1], found[1] * pairs[1][1]] if tiers > 2 else [found[0] * pairs[0][1], 0]
    if tiers > 3 and pairs[0][0] == pairs[0][1]:
        assert sum(found) == fat_tree_switches(n, ports, tiers) and (tiers - 1) * links[0] == fat_tree_links(n, tiers)
    return (*[*found, 0][:3], sum(found), n, *links) == stated(row)


def judge(row: Row) -> tuple[bool, str]:
    """Say whether a row holds, and what of it."""
    rails = re.match(r"(\d+) rails", row["rails_or_planes"])
    apart = [1, int(rails[1])] if rails else [1]
    several = [d for n in apart for d in designs(row, n) if not d.faults()]
    same = next((d for d in several if counts(d) == stated(row)), None)
    if same is not None:
        money = row["cost_musd"] and math.isclose(
            same.switches * catalogue("switches")[BOX]["price_usd"] / 1e6, float(row["cost_musd"])
        )
        if row["cost_musd"] and not money:
            return False, f"switches at the price of {BOX} do not cost {row['cost_musd']} M$"
        side = f"{same.apart} networks side by side, " if same.apart > 1 else ""
        return True, f"exact: {same.switches:,} boxes, {side}bundles {same.leaf_bundle} and {same.spine_bundle}" + (
            ", cost too" if money else ""
        )
    if not by_ports(row):
        return False, f"no wiring and no count of ports gives {stated(row)}"
    least = min(d.switches for d in several)
    if number(row, "tiers") > 3:
        told = f"{number(row, 'switches_total'):,} boxes over {row['tiers']} tiers"
        return True, f"exact by ports: {told}; wired with equal bundles of the same ports they are {least:,}"
    ports = number(row, "switches_total")
    return True, f"refused as printed: {ports:,} boxes by ports alone; equal bundles take {least:,} at the least"


def others(row: Row) -> Iterator[tuple[bool, str]]:
    """Judge further sizes that a note names as endpoints:switches, of non-blocking trees or of rails."""
    ports, tiers, sides = (
        number(row, "radix_ports"),
        number(row, "tiers"),
        8 if "separate" in row["rails_or_planes"] else 1,
    )
    for n, switches in ((int(a), int(b)) for a, b in re.findall(r"(\d+):(\d+)", row["note"])):
        most = sides * fat_tree_endpoints(ports, tiers)
        if n > most:
            yield True, f"{n:,} endpoints refused: more than the {most:,} of {tiers} tiers of {ports} ports"
        else:
            yield fat_tree_switches(n, ports, tiers) == switches, f"{n:,} endpoints: {switches:,} boxes"


def main() -> int:
    """Judge every row of the file named."""
    if len(sys.argv) != 2:
        print("usage: scripts/verify/check_fabrics.py DESIGNS.csv", file=sys.stderr)
        return 2
    failed = 0
    with Path(sys.argv[1]).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for holds, text in (judge(row), *others(row)):
                failed += not holds
                print(f"{'ok ' if holds else 'BAD'} {row['id']} {text}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
