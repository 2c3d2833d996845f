"""Rules of the cables one by one: each port used once, and as many switches, ports and cables as the plan counts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.checks.rule import Rule, broken, must_equal
from planner.physics.network.cabling import WAN_GATEWAY, Cables, lay
from planner.physics.network.links import Ints
from planner.physics.network.topology import Design
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Violation
from planner.plan.fabric import SiteFabric

MAX_TICKED = 10**8  # cables, or ports of a tier, that are ticked off one by one: a byte each


@dataclass
class Count:
    """What a stream of cables adds up to.

    Attributes
    ----------
    cables
        Cables by stage.
    used
        Ports in use by tier and switch.
    ticked
        Ports in use by tier.
    twice, absent
        Ports with more than one cable, and ports that are not there.
    """

    cables: dict[tuple[str, str], int] = field(default_factory=dict)
    used: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    ticked: dict[str, int] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def count(stream: Iterable[Cables], tiers: dict[str, tuple[int, int]]) -> Count:
    """Tick off both ends of every cable; `tiers`: how many switches a tier has and how many ports each of them."""
    total = Count(used={tier: np.zeros(shape, dtype=np.bool_) for tier, shape in tiers.items()})
    for c in stream:
        stage = c.low_tier, c.high_tier
        total.cables[stage] = total.cables.get(stage, 0) + len(c.low)
        for tier, switch, port in ((c.low_tier, c.low, c.low_port), (c.high_tier, c.high, c.high_port)):
            _tick(total, tier, switch, port)
    return total


def _tick(total: Count, tier: str, switch: Ints, port: Ints) -> None:
    """Mark ports as used, and name the first that is used already or not there."""
    n, ports = total.used[tier].shape
    there = (switch >= 0) & (switch < n) & (port >= 0) & (port < ports)
    if not there.all():
        i = int(np.argmin(there))
        total.absent.append(f"{tier} {switch[i]:,} port {port[i]:,}: beyond {n:,} switches of {ports:,} ports")
    flat, at = total.used[tier].reshape(-1), (switch * ports + port)[there]
    taken = at[flat[at]]
    flat[at] = True
    ticked = total.ticked.get(tier, 0) + len(at)
    total.ticked[tier] = int(np.count_nonzero(flat))
    if total.ticked[tier] < ticked:
        seen, times = np.unique(at, return_counts=True)
        first = int(np.concatenate([taken, seen[times > 1]]).min())
        total.twice.append(f"{tier} {first // ports:,} port {first % ports:,} has more than 1 cable")


def laid(c: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Design]]:
    """Yield the fabrics whose cables can be laid and are few enough to be ticked off."""
    fabrics = c.plan.fabric.sites if c.plan.fabric else {}
    for s, d in sorted(c.wired.items()):
        f = fabrics[s]
        ports = [t.switches * d.tier_ports[t.name] for t in f.tiers]
        ports += [f.wan_gateway.switches * d.ports] if f.wan_gateway else []
        if max(d.endpoint_links, d.switch_links, d.wan_gateway_links, max(ports) * d.split) <= MAX_TICKED:
            yield s, f, d


def cables(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the cables use no port twice, reach every GPU once, and are as many as the plan counts."""
    for s, f, d in laid(c):
        rule, shapes = f"cables[{s}]", {"gpu": (d.racks * d.gpus_per_rack, d.lanes)}
        shapes |= {t.name: (t.switches, d.tier_ports[t.name] * d.split) for t in f.tiers}
        shapes |= {WAN_GATEWAY: (f.wan_gateway.switches, d.ports * d.split)} if f.wan_gateway else {}
        total = count(in_parts(lay(d), d.split), shapes)
        yield from (broken(rule, text) for text in (*total.twice, *total.absent))
        gateway_stages = [stage for stage in total.cables if stage[0] == WAN_GATEWAY]
        joined = sum(total.cables.pop(stage) for stage in gateway_stages) // d.split
        yield from _wan_gateway(rule, f, total, d, joined)
        yield from _totals(rule, f, total, d)


def in_parts(stream: Iterable[Cables], split: int) -> Iterator[Cables]:
    """Yield cables by the parts of ports that they take: one at a GPU's end of a leaf, all of both between switches."""
    part = np.arange(split, dtype=np.int64)
    for c in stream:
        if split == 1 or c.low_tier == "gpu":
            yield c
        else:
            low, high = (np.repeat(switch, split) for switch in (c.low, c.high))
            ports = [(port[:, None] * split + part).reshape(-1) for port in (c.low_port, c.high_port)]
            yield Cables(c.low_tier, c.high_tier, low, ports[0], high, ports[1])


def _wan_gateway(rule: str, f: SiteFabric, total: Count, d: Design, joined: int) -> Iterator[Violation]:
    """Check that a WAN gateway has the links laid, each of its switches a port to the wide area for every link up."""
    if f.wan_gateway is None:
        return
    yield from must_equal(rule, "WAN gateway's uplinks", f.wan_gateway.uplinks, joined)
    up = total.used[WAN_GATEWAY].sum(axis=1) // d.split
    matched = int(np.minimum(up, d.ports - up).sum())
    yield from must_equal(rule, "ports to the wide area beside as many links up", f.wan_gateway.wan_ports, matched)
    yield from must_equal(rule, "WAN gateway switches without a cable", 0, int((up == 0).sum()))


def _totals(rule: str, f: SiteFabric, total: Count, d: Design) -> Iterator[Violation]:
    """Check that the plan's counts are those of the cables laid."""
    split = d.split
    ends = sum(n for (low, _), n in total.cables.items() if low == "gpu")
    yield from must_equal(rule, "endpoint_links", f.endpoint_links, ends)
    yield from must_equal(rule, "switch_links", f.switch_links, (sum(total.cables.values()) - ends) // split)
    yield from must_equal(rule, "NIC ports with a cable", f.endpoint_links, int(total.used["gpu"].sum()))
    for t in f.tiers:
        bare = int((~total.used[t.name].any(axis=1)).sum())
        yield from must_equal(rule, f"{t.name} switches without a cable", 0, bare)
        # Down ports of a switch at the edge may stay free; no switch uses more than stated.
        used = int(total.used[t.name].sum(axis=1).max(initial=0))
        parts = t.down_ports * (1 if t.name == "leaf" else split) + t.up_ports * split
        parts += d.top_wan_links * split * (t is f.tiers[-1])
        if used > parts:
            stated = f"{parts:,}, {t.down_ports:,} down + {t.up_ports:,} up"
            yield broken(rule, f"{t.name}: {used:,} ports of a switch in use > {stated}")


RULES: tuple[Rule, ...] = (cables,)
