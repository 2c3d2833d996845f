"""Rules of a fabric's cables one by one, of its WAN gateway, and of the links that pipeline sends and rings share."""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from planner.checks.rule import Violations, broken, figures, must_equal
from planner.instance.network import Network
from planner.physics.network.clos_fabric import Design, Ints
from planner.physics.network.fabric_cables import WAN_GATEWAY, StageCables, lay
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan_sections import SiteFabric

MAX_TICKED = 10**8  # cables, or ports of a tier, that are ticked off one by one: a byte each


def fabrics(physics: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Network]]:
    """Yield, for the checks of its cables and traffic, the name and the fabric of each site of a plan."""
    if physics.plan.fabric is not None and physics.instance.network is not None:
        for site, fabric in sorted(physics.plan.fabric.sites.items()):
            if site in physics.racks_by_site:
                yield site, fabric, physics.instance.network


def wired(physics: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Network, Design]]:
    """Yield, to check their cables one by one, the fabrics of a plan that can be wired, with the design behind each."""
    for site, fabric, network in fabrics(physics):
        if site in physics.wired:
            yield site, fabric, network, physics.wired[site]


class CableTally:
    """The checker's tally of a fabric's cables by stage and used ports by tier; `tiers`: switches and ports of each.

    Ports are counted by their `split` parts: a cable takes one at the GPU's end of a leaf, else all of a port.
    """

    def __init__(self, stream: Iterable[StageCables], tiers: dict[str, tuple[int, int]], split: int) -> None:
        self.cables: Counter[tuple[str, str]] = Counter()
        self.used = {tier: np.zeros(shape, dtype=np.bool_) for tier, shape in tiers.items()}
        self.ticked: Counter[str] = Counter()  # ports in use by tier
        self.twice, self.absent = list[str](), list[str]()  # ports of several cables, and ports that are not there
        for cable in stream:
            parts = 1 if cable.low_tier == "gpu" else split
            self.cables[cable.low_tier, cable.high_tier] += len(cable.low) * parts
            self._tick(cable.low_tier, cable.low, cable.low_port, parts)
            self._tick(cable.high_tier, cable.high, cable.high_port, parts)

    def _tick(self, tier: str, switch: Ints, port: Ints, parts: int) -> None:
        """Mark switch ports as taken by a cable, and name the first that is taken already or does not exist."""
        if parts > 1:
            switch, port = np.repeat(switch, parts), (port[:, None] * parts + np.arange(parts)).reshape(-1)
        switches, ports = self.used[tier].shape
        there = (switch >= 0) & (switch < switches) & (port >= 0) & (port < ports)
        if not there.all():
            i, shape = int(np.argmin(there)), f"{switches:,} switches of {ports:,} ports"
            self.absent.append(f"{tier} {switch[i]:,} port {port[i]:,}: beyond {shape}")
        flat, at = self.used[tier].reshape(-1), (switch * ports + port)[there]
        taken, ticked = at[flat[at]], self.ticked[tier] + len(at)
        flat[at] = True
        self.ticked[tier] = int(np.count_nonzero(flat))
        if self.ticked[tier] < ticked:
            seen, times = np.unique(at, return_counts=True)
            first = int(np.concatenate([taken, seen[times > 1]]).min())
            self.twice.append(f"{tier} {first // ports:,} port {first % ports:,} has more than 1 cable")


def cables(physics: PlanPhysics) -> Violations:
    """Check that a fabric's cables use no switch port twice, reach every GPU once, and are as many as stated."""
    for site, fabric, _, design in wired(physics):
        rule, gateway, split = f"cables[{site}]", fabric.wan_gateway, design.split
        shapes = {str(tier.name): (tier.switches, design.tier_ports[tier.name] * split) for tier in fabric.tiers}
        shapes |= {WAN_GATEWAY: (gateway.switches, design.ports * split)} if gateway else {}
        ports = max(switches * each for switches, each in shapes.values())
        if max(design.endpoint_links, design.switch_links, design.wan_gateway_links, ports) > MAX_TICKED:
            continue
        shapes["gpu"] = design.racks * design.gpus_per_rack, design.lanes
        total = CableTally(lay(design), shapes, split)
        yield from (broken(rule, text) for text in (*total.twice, *total.absent))
        ends, joined = (sum(n for (low, _), n in total.cables.items() if low == own) for own in ("gpu", WAN_GATEWAY))
        if gateway is not None:
            # Each switch of a gateway has a port to the wide area for every link up.
            up = total.used[WAN_GATEWAY].sum(axis=1) // split
            matched = int(np.minimum(up, design.ports - up).sum())
            yield from figures(rule, gateway, {"uplinks": joined // split, "wan_ports": matched})
            yield from must_equal(rule, "WAN gateway switches without a cable", 0, int((up == 0).sum()))
        between = (total.cables.total() - ends - joined) // split
        yield from figures(rule, fabric, {"endpoint_links": ends, "switch_links": between})
        yield from must_equal(rule, "NIC ports with a cable", fabric.endpoint_links, int(total.used["gpu"].sum()))
        for tier in fabric.tiers:
            unused = int((~total.used[tier.name].any(axis=1)).sum())
            yield from must_equal(rule, f"{tier.name} switches without a cable", 0, unused)
            # Down ports of a switch at the edge may stay free; no switch uses more than stated.
            used = int(total.used[tier.name].sum(axis=1).max(initial=0))
            parts = tier.down_ports * (1 if tier.name == "leaf" else split) + tier.up_ports * split
            parts += design.top_ports[1] * split * (tier is fabric.tiers[-1])  # links to a WAN gateway
            if used > parts:
                stated = f"{parts:,}, {tier.down_ports:,} down + {tier.up_ports:,} up"
                yield broken(rule, f"{tier.name}: {used:,} ports of a switch in use > {stated}")


CABLE_RULES = (cables,)
