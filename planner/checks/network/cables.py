"""The cables one by one: each port used once, and as many boxes, ports and cables as the plan counts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.checks.rule import Rule, broken, must_equal
from planner.physics.network.cabling import WAN_GATEWAY, Cables, lay
from planner.physics.network.topology import Design
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Violation
from planner.plan.fabric import SiteFabric

MOST = 10**8  # cables, or ports of a tier, that are ticked off one by one: a byte each


@dataclass
class Count:
    """What a stream of cables holds: cables by stage, ports in use by tier and box and how many, and ports named twice or not there."""

    cables: dict[tuple[str, str], int] = field(default_factory=dict)
    used: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    ticked: dict[str, int] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def count(stream: Iterable[Cables], boxes: dict[str, tuple[int, int]]) -> Count:
    """Tick off both ends of every cable; `boxes` says how many boxes a tier has and how many ports each of them."""
    found = Count(used={tier: np.zeros(shape, dtype=np.bool_) for tier, shape in boxes.items()})
    for c in stream:
        stage = c.low_tier, c.high_tier
        found.cables[stage] = found.cables.get(stage, 0) + len(c.low)
        for tier, box, port in ((c.low_tier, c.low, c.low_port), (c.high_tier, c.high, c.high_port)):
            _tick(found, tier, box, port)
    return found


def _tick(found: Count, tier: str, box: NDArray[np.int64], port: NDArray[np.int64]) -> None:
    n, ports = found.used[tier].shape
    there = (box >= 0) & (box < n) & (port >= 0) & (port < ports)
    if not there.all():
        i = int(np.argmin(there))
        found.absent.append(f"{tier} {box[i]:,} port {port[i]:,}: beyond {n:,} boxes of {ports:,} ports")
    flat, at = found.used[tier].reshape(-1), (box * ports + port)[there]
    taken = at[flat[at]]
    flat[at] = True
    ticked = found.ticked.get(tier, 0) + len(at)
    found.ticked[tier] = int(np.count_nonzero(flat))
    if found.ticked[tier] < ticked:
        seen, times = np.unique(at, return_counts=True)
        first = int(np.concatenate([taken, seen[times > 1]]).min())
        found.twice.append(f"{tier} {first // ports:,} port {first % ports:,} has more than 1 cable")


def laid(c: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Design]]:
    """Yield the fabrics whose cables can be laid and ticked off."""
    held = c.plan.fabric.sites if c.plan.fabric else {}
    for s, d in sorted(c.wired.items()):
        f = held[s]
        boxes = max(f.wan_gateway.switches if f.wan_gateway else 0, *(t.switches for t in f.tiers))
        if max(d.endpoint_links, d.switch_links, d.wan_gateway_links, boxes * d.ports * d.split) <= MOST:
            yield s, f, d


def cables(c: PlanPhysics) -> Iterator[Violation]:
    """Lay every cable: no port twice, every GPU once, and the counts of the plan."""
    for s, f, d in laid(c):
        shapes = {"gpu": (d.racks * d.gpus_per_rack, d.lanes)} | {
            t.name: (t.switches, d.ports * d.split) for t in f.tiers
        }
        shapes |= {WAN_GATEWAY: (f.wan_gateway.switches, d.ports * d.split)} if f.wan_gateway else {}
        found = count(in_parts(lay(d), d.split), shapes)
        yield from (broken(f"cables[{s}]", text) for text in (*found.twice, *found.absent))
        joined = (
            sum(found.cables.pop(stage, 0) for stage in [x for x in found.cables if x[0] == WAN_GATEWAY]) // d.split
        )
        yield from _border(f"cables[{s}]", f, found, d, joined)
        yield from _totals(f"cables[{s}]", f, found, d)


def in_parts(stream: Iterable[Cables], split: int) -> Iterator[Cables]:
    """Name the parts of ports that cables take: one at a GPU's end of a leaf, all of both ports between switches."""
    part = np.arange(split, dtype=np.int64)
    for c in stream:
        if split == 1 or c.low_tier == "gpu":
            yield c
        else:
            low, high = (np.repeat(box, split) for box in (c.low, c.high))
            ports = [(port[:, None] * split + part).reshape(-1) for port in (c.low_port, c.high_port)]
            yield Cables(c.low_tier, c.high_tier, low, ports[0], high, ports[1])


def _border(rule: str, f: SiteFabric, found: Count, d: Design, joined: int) -> Iterator[Violation]:
    """Hold a WAN gateway's links against those laid, and leave each of its boxes a port to the wide area for every link up."""
    if f.wan_gateway is None:
        return
    yield from must_equal(rule, "WAN gateway's uplinks", f.wan_gateway.uplinks, joined)
    up = found.used[WAN_GATEWAY].sum(axis=1) // d.split
    yield from must_equal(
        rule,
        "ports to the wide area beside as many links up",
        f.wan_gateway.wan_ports,
        int(np.minimum(up, d.ports - up).sum()),
    )
    yield from must_equal(rule, "WAN gateway boxes without a cable", 0, int((up == 0).sum()))


def _totals(rule: str, f: SiteFabric, found: Count, d: Design) -> Iterator[Violation]:
    """Hold the plan's counts against what was laid."""
    split = d.split
    ends = sum(n for (low, _), n in found.cables.items() if low == "gpu")
    yield from must_equal(rule, "endpoint_links", f.endpoint_links, ends)
    yield from must_equal(rule, "switch_links", f.switch_links, (sum(found.cables.values()) - ends) // split)
    yield from must_equal(rule, "NIC ports with a cable", f.endpoint_links, int(found.used["gpu"].sum()))
    for t in f.tiers:
        bare = int((~found.used[t.name].any(axis=1)).sum())
        yield from must_equal(rule, f"{t.name} boxes without a cable", 0, bare)
        # Down ports of a box at the edge may stay free; no box uses more than stated.
        most = int(found.used[t.name].sum(axis=1).max(initial=0))
        parts = t.down_ports * (1 if t.name == "leaf" else split) + t.up_ports * split
        parts += d.top_wan_links * split * (t is f.tiers[-1])
        if most > parts:
            yield broken(
                rule, f"{t.name}: {most:,} ports of a box in use > {parts:,}, {t.down_ports:,} down + {t.up_ports:,} up"
            )


RULES: tuple[Rule, ...] = (cables,)
