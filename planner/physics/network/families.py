"""The fabric families: how each connects a rack's GPUs, the type of its designs, and the design of a plan's fabric.

A new family has a design type with its counts and its cabling, an entry here, and its tables in `models/fabric`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from planner.instance.network import FabricFamily, Network, Switch
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.links import spare_ports
from planner.physics.network.topology import Design
from planner.plan.plan_sections import SiteFabric

MAX_LANES = 16  # of a NIC: an instance allows no more
MAX_WAN_PORTS = 10**9  # of a WAN gateway: more are a slip, and would overflow the arrays of its cables


class RackPorts(NamedTuple):
    """How the GPUs of a rack meet the fabric: sets with a leaf each, GPUs of a set, and networks side by side."""

    rails: int
    rail_gpus: int
    apart: int


@dataclass(frozen=True, slots=True)
class FamilyDefinition:
    """A fabric family: the function from the GPUs of a rack to its ports, and the type of the family's designs."""

    rack_ports: Callable[[int], RackPorts]
    design: type[Design]


def _rails(gpus: int) -> RackPorts:
    return RackPorts(gpus, 1, 1)


FAMILIES: dict[FabricFamily, FamilyDefinition] = {
    "rail": FamilyDefinition(_rails, Design),
    "rack": FamilyDefinition(lambda gpus: RackPorts(1, gpus, 1), Design),
    "rail-only": FamilyDefinition(lambda gpus: RackPorts(1, 1, gpus), Design),
    "dragonfly": FamilyDefinition(_rails, Dragonfly),
    "dragonfly+": FamilyDefinition(_rails, DragonflyPlus),
}


def max_joined_racks(network: Network, pins: Mapping[str, Any], wired_gpus: int) -> float:
    """Bound the racks of a site that a fabric can join where its leaf is pinned or is the only tier.

    `wired_gpus` GPUs of each rack are cabled. A leaf without ports for uplinks, or without a tier above it, is the only
    switch of its network and takes the GPUs of all racks. Infinity where the pins and tiers leave room for uplinks.
    """
    own = {path.rpartition(".")[2]: pins[path] for path in sorted(pins, key=len) if path.startswith("fabric.")}
    racks, down, up = (own.get(name) for name in ("leaf_domain_racks", "leaf_down_ports", "leaf_up_ports"))
    tiers = min(network.max_tiers, own.get("tiers", network.max_tiers))
    if tiers > 1 and racks is None and down is None and up is None:
        return math.inf
    most = 0
    for switch, family in product(network.switches, network.families):
        if isinstance(switch, str):
            return math.inf
        if own.get("switch", switch.name) != switch.name or own.get("family", family) != family:
            continue
        rack, kind = FAMILIES[family].rack_ports(wired_gpus), FAMILIES[family].design
        if kind.grouped and tiers < len(kind.tier_names):
            continue
        if not rack.rails * rack.rail_gpus:  # no GPU is cabled, so no port is asked
            return math.inf
        leaf = down or (racks or 1) * rack.rail_gpus
        if (tiers > 1 or kind.grouped) and -(-leaf // switch.breakout) + max(1, up or 0) <= switch.ports:
            return math.inf
        joined = racks or (down or switch.ports * switch.breakout) // (rack.rails * rack.rail_gpus)
        ends = down or joined * rack.rails * rack.rail_gpus
        if not up and -(-ends // switch.breakout) <= switch.ports:
            most = max(most, joined)
    return most


def design_for(
    family: FabricFamily, network: Network, models: Sequence[Switch], racks: int, rack: RackPorts, **choices: Any
) -> Design:
    """Return the design that `choices` give for `racks` racks; `models` are the tiers' switches from the leaf up."""
    kind, (leaf, *above) = FAMILIES[family].design, models
    names = zip(("spine_ports", "core_ports", "super_spine_ports"), above, strict=False)
    choices |= {name: switch.ports for name, switch in names if switch.name != leaf.name}
    spare, valiant = spare_ports(choices["leaf_down"], network.spares), network.group_routing == "valiant"
    choices |= {"ports": leaf.ports, "racks": racks, "leaf_spare": spare, "valiant": kind.grouped and valiant}
    return kind.of(**choices, **rack._asdict())


def design_of(fabric: SiteFabric, racks: int, *, switches: Mapping[str, Switch], gpus: int, network: Network) -> Design:
    """Return the design of a plan's fabric at a site of `racks` racks, each with `gpus` GPUs.

    The fabric must be free of the faults that `design_fault` reports; `switches` holds the switch models by name.
    """
    leaf, spine, family = fabric.tiers[0], fabric.tiers[1] if len(fabric.tiers) > 1 else None, FAMILIES[fabric.family]
    rack, kind = family.rack_ports(gpus), family.design
    models = [switches[name] for name in (fabric.switch, *fabric.models[1:])]
    own: dict[str, Any] = {
        "leaf_down": leaf.down_ports,
        "leaf_bundle": leaf.bundle,
        "lanes": fabric.lanes,
        "split": fabric.split,
    }
    own |= {"rails_per_pod": fabric.rails_per_pod, "domains_per_pod": fabric.leaf_domains_per_pod}
    own["wan_ports"] = -(-fabric.wan_gateway.wan_ports // (rack.apart * fabric.lanes)) if fabric.wan_gateway else 0
    own |= {"leaf_up": leaf.up_ports} if spine or not kind.grouped else {}
    if kind.grouped:
        return design_for(fabric.family, network, models, racks, rack, **own, group_links=fabric.group_links)
    own |= {"spine_up": spine.up_ports, "spine_bundle": spine.bundle} if spine else {}
    own |= {"core_boxes": fabric.core_boxes, "super_spine_boxes": fabric.super_spine_boxes}
    if len(fabric.tiers) == len(kind.tier_names):
        own |= {"core_up": fabric.tiers[2].up_ports, "core_bundle": fabric.tiers[2].bundle}
        own |= {"rails_per_zone": fabric.rails_per_zone, "domains_per_zone": fabric.leaf_domains_per_zone}
    return design_for(fabric.family, network, models, racks, rack, **own)


def design_fault(fabric: SiteFabric, racks: int) -> str | None:
    """Return which of a fabric's choices makes its counts meaningless, None where none does."""
    if racks < 1 or not 1 <= fabric.lanes <= MAX_LANES:
        return f"{racks} racks and {fabric.lanes} lanes; at least 1 rack and 1 to {MAX_LANES} lanes expected"
    if fabric.split < 1:
        return f"ports split in {fabric.split}; at least 1 expected"
    if fabric.wan_gateway is not None and not 1 <= fabric.wan_gateway.wan_ports <= MAX_WAN_PORTS:
        return f"a WAN gateway of {fabric.wan_gateway.wan_ports:,} ports; 1 to {MAX_WAN_PORTS:,} expected"
    kind = FAMILIES[fabric.family].design
    return group_fault(fabric, kind.tier_names) if kind.grouped else tree_fault(fabric, kind.tier_names)


def tree_fault(fabric: SiteFabric, expected: tuple[str, ...]) -> str | None:
    """Return the fault in the tiers of a tree, or None; they must be the first names of `expected`, in order.

    A tree with all the expected tiers has zones.
    """
    names = tuple(tier.name for tier in fabric.tiers)
    if not names or names != expected[: len(names)]:
        return f"tiers are {', '.join(names) or 'none'}; {', then '.join(expected)} expected"
    last = len(fabric.tiers) - 1
    for i, stated in enumerate(fabric.tiers):
        top = (stated.up_ports > 0) != (i < last) or (stated.bundle > 0) != (i < last)
        if top or stated.down_ports < 1 or min(stated.up_ports, stated.bundle) < 0:
            ports = f"{stated.down_ports} down, {stated.up_ports} up in bundles of {stated.bundle}"
            return f"{stated.name}: {ports}; only the top tier, {names[-1]}, has no uplinks"
    if last > 0 and min(fabric.rails_per_pod, fabric.leaf_domains_per_pod) < 1:
        pod = f"{fabric.rails_per_pod} rails and {fabric.leaf_domains_per_pod} leaf domains"
        return f"a pod of {pod}; at least 1 of each expected"
    for tier, boxes in (("core", fabric.core_boxes), ("super-spine", fabric.super_spine_boxes)):
        if boxes < 0 or (boxes > 0 and tier not in names):
            return (
                f"{boxes} shared {tier} boxes in {len(names)} tiers; none, or some where there is that tier, expected"
            )
    zone, zoned = (fabric.rails_per_zone, fabric.leaf_domains_per_zone), names == expected
    if min(zone) < zoned or (max(zone) > 0 and not zoned):
        wanted = "at least 1 of each" if zoned else f"none under {names[-1]}s"
        return f"a zone of {zone[0]} rails and {zone[1]} leaf domains; {wanted} expected"
    return None


def group_fault(fabric: SiteFabric, expected: tuple[str, ...]) -> str | None:
    """Return which of a dragonfly's choices makes its counts meaningless."""
    names = tuple(tier.name for tier in fabric.tiers)
    if names != expected:
        return f"tiers of a {fabric.family} are {', '.join(names) or 'none'}; {', then '.join(expected)} expected"
    tier = fabric.tiers[0]
    if (
        min(tier.down_ports, tier.up_ports, tier.bundle, fabric.rails_per_pod, fabric.leaf_domains_per_pod) < 1
        or fabric.group_links < 0
    ):
        return (
            f"leaf: {tier.down_ports} down, {tier.up_ports} up in bundles of {tier.bundle}; "
            f"groups of {fabric.rails_per_pod} rails and {fabric.leaf_domains_per_pod} leaf domains, "
            f"{fabric.group_links} links between two; at least 1 of each, and no link fewer than 0, expected"
        )
    if len(fabric.tiers) > 1 and tier.up_ports % tier.bundle:
        return f"leaf bundle: {tier.up_ports} uplinks are not whole bundles of {tier.bundle}"
    return None
