"""Fabric families and their designs: ports and lanes of their switches, the racks that they join, and their faults.

A new family has a design type with its counts and its cabling, an entry here, and its tables in `models/fabric`.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from planner.instance.hardware import Hardware
from planner.instance.instance import Instance
from planner.instance.network import FabricFamily, Network, Spares, Switch
from planner.physics.network.clos_fabric import Design
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.plan.plan_sections import SiteFabric

LANE_TOLERANCE = 1e-9  # relative: a port of the NIC's own rate carries it
MAX_LANES = 16  # of a NIC: an instance allows no more
MAX_WAN_PORTS = 10**9  # of a WAN gateway: more are a slip, and would overflow the arrays of its cables


def lanes_of(switch: Switch, nic_bytes_per_second: float) -> int:
    """Count the lanes over which fabric designs split a GPU's NIC: the fewest with which a switch's ports carry it."""
    return max(1, math.ceil(nic_bytes_per_second * 8 / (switch.port_gbps * 1e9) / (1 + LANE_TOLERANCE)))


def lane_gbps(nic_bytes_per_second: float, lanes: int) -> float:
    """Compute the rate in Gb/s of a NIC's lane in a fabric design, at which its link to a leaf runs."""
    return nic_bytes_per_second * 8 / 1e9 / lanes


def port_splits(switch: Switch, nic_gbps: float) -> list[int]:
    """List the parts into which a fabric design may split a leaf's port to GPUs; each carries a NIC or a lane of it."""
    splits = (1 << n for n in range(switch.breakout.bit_length()))
    return [n for n in splits if n == 1 or nic_gbps * n <= switch.port_gbps * (1 + LANE_TOLERANCE)]


def same_ports(one: Switch, other: Switch) -> bool:
    """Return whether a fabric design may join two switch models: ports of one rate, as many planes, one link price."""
    return (one.port_gbps, one.planes, one.link_factor) == (other.port_gbps, other.planes, other.link_factor)


def spare_ports(used: int, spares: Spares) -> int:
    """Count the ports that a fabric design's leaf keeps free for `used` ones: a share, and enough for failures."""
    # The smallest n with P(Binomial(used, failure_chance) > n) <= shortage_chance: ports fail each by itself.
    failure_chance = spares.failure_chance
    by_share = math.ceil(used * spares.share - 1e-9)
    if failure_chance <= 0:
        return by_share
    if failure_chance >= 1:
        return used
    log_odds = math.log(failure_chance) - math.log1p(-failure_chance)
    term = used * math.log1p(-failure_chance)
    below, n = math.exp(term), 0
    while 1 - below > spares.shortage_chance and n < used:
        term += math.log((used - n) / (n + 1)) + log_odds
        below += math.exp(term)
        n += 1
    return max(by_share, n)


class RackPorts(NamedTuple):
    """How the GPUs of a rack meet a fabric design: sets with a leaf each, GPUs of a set, networks side by side."""

    rails: int
    rail_gpus: int
    apart: int

    def shared(self, rails_per_leaf: int) -> "RackPorts":
        """Return the rack's ports of a fabric design in which a leaf takes the GPUs of several rails."""
        return RackPorts(self.rails // rails_per_leaf, self.rail_gpus * rails_per_leaf, self.apart)


@dataclass(frozen=True, slots=True)
class FamilyDefinition:
    """A fabric family: the function from the GPUs of a rack to its ports, and the type of the family's designs."""

    rack_ports: Callable[[int], RackPorts]
    design: type[Design]


FAMILIES: dict[FabricFamily, FamilyDefinition] = {
    "rail": FamilyDefinition(lambda gpus: RackPorts(gpus, 1, 1), Design),
    "rack": FamilyDefinition(lambda gpus: RackPorts(1, gpus, 1), Design),
    "rail-only": FamilyDefinition(lambda gpus: RackPorts(1, 1, gpus), Design),
    "dragonfly": FamilyDefinition(lambda gpus: RackPorts(gpus, 1, 1), Dragonfly),
    "dragonfly+": FamilyDefinition(lambda gpus: RackPorts(gpus, 1, 1), DragonflyPlus),
}


def max_joined_racks(instance: Instance, wired_gpus: int) -> float:
    """Bound the racks of a site that any fabric design joins, where its leaf is pinned or it has at most two tiers.

    `wired_gpus` GPUs of each rack are cabled. A leaf without ports for uplinks, or without a tier above it, is the only
    switch of its network and takes the GPUs of all racks. Infinity where the pins and tiers leave room for more.
    """
    network, pins = instance.network, instance.pins
    every = (path for path in sorted(pins, key=len) if path.startswith("fabric."))
    own = {path.rpartition(".")[2]: pins[path] for path in every if instance.grid is None or path.count(".") == 1}
    racks, down, up = (own.get(name) for name in ("leaf_domain_racks", "leaf_down_ports", "leaf_up_ports"))
    tiers = math.inf if network is None else min(network.max_tiers, own.get("tiers", network.max_tiers))
    if network is None or (tiers > 2 and racks is None and down is None and up is None):
        return math.inf
    most = 0
    for switch, family in product(network.switches, network.families):
        if own.get("switch", switch.name) != switch.name or own.get("family", family) != family:
            continue
        rack, kind = FAMILIES[family].rack_ports(wired_gpus), FAMILIES[family].design
        if kind.grouped and tiers < len(kind.tier_names):
            continue
        if not rack.rails * rack.rail_gpus:  # no GPU is cabled, so no port is asked
            return math.inf
        nic_bytes = instance.hardware.gpu_nic_bytes_per_second
        rate = lane_gbps(nic_bytes, lanes_of(switch, nic_bytes))
        split = max(port_splits(switch, rate))
        leaf = down or (racks or 1) * rack.rail_gpus
        if (tiers > 2 or kind.grouped) and -(-leaf // split) + max(1, up or 0) <= switch.ports:
            return math.inf
        joined = racks or (down or switch.ports * split) // (rack.rails * rack.rail_gpus)
        ends = down or joined * rack.rails * rack.rail_gpus
        if not up and -(-ends // split) <= switch.ports:
            most = max(most, joined)
        if tiers == 2 and not kind.grouped:
            together = rails_together(network, wired_gpus) if family == "rail" else [1]
            together = [n for n in together if not 1 < n == wired_gpus]  # one leaf then takes all, below no spine
            most = max(most, *(_two_tier_racks(network, own, switch, split, rack.shared(n), rate) for n in together))
    return most


def rails_together(network: Network, gpus: int) -> list[int]:
    """Return how many rails may share a leaf in fabric designs of the family rail, of racks with some GPUs cabled."""
    return [n for n in range(1, min(gpus, network.max_rails_per_leaf or gpus) + 1) if gpus % n == 0]


def joined_modules(instance: Instance, joined: float) -> float:
    """Bound the modules of a site that have racks in a fabric design, given the racks that it joins."""
    return joined if math.isinf(joined) else math.ceil(joined / instance.hardware.racks_per_module)


def _two_tier_racks(
    network: Network, pins: Mapping[str, Any], leaf: Switch, split: int, rack: RackPorts, nic_gbps: float
) -> int:
    """Bound the racks that a two-tier fabric joins: leaves of a model below spines with a port for every leaf."""
    racks, down, up = (pins.get(name) for name in ("leaf_domain_racks", "leaf_down_ports", "leaf_up_ports"))
    spines = (x for x in network.switches if x.name == leaf.name or same_ports(x, leaf))
    ports = max((x.ports for x in spines if pins.get("spine_switch", x.name) == x.name), default=0)
    most_over = network.ratio_of(0) * leaf.port_gbps / nic_gbps

    def too_large(domain: int) -> bool:
        ends = domain * rack.rail_gpus
        taken = -(-(ends + spare_ports(ends, network.spares)) // split)
        uplinks = max(math.ceil(ends / most_over * (1 - LANE_TOLERANCE)), network.asked_leaf_uplinks)
        return uplinks > (up or leaf.ports) or taken + (up or uplinks) > leaf.ports

    wanted = racks or (down // rack.rail_gpus if down else None)
    sizes = range(1, leaf.ports * split + 1) if wanted is None else range(wanted, wanted + 1)
    fitting = bisect_left(sizes, x=True, key=too_large)
    return sizes[fitting - 1] * (ports // rack.rails) if fitting else 0


def design_for(
    family: FabricFamily,
    network: Network,
    models: Sequence[Switch],
    racks: int,
    rack: RackPorts,
    nic_bytes_per_second: float,
    **choices: Any,
) -> Design:
    """Return the fabric design that `choices` give for `racks` racks; `models` are the switches from the leaf up."""
    kind, (leaf, *above) = FAMILIES[family].design, models
    names = zip(("spine_ports", "core_ports", "super_spine_ports"), above, strict=False)
    choices |= {name: switch.ports for name, switch in names if switch.name != leaf.name}
    spare, valiant = spare_ports(choices["leaf_down"], network.spares), network.group_routing == "valiant"
    choices |= {"ports": leaf.ports, "racks": racks, "leaf_spare": spare, "valiant": kind.grouped and valiant}
    rates = {"nic_gbps": lane_gbps(nic_bytes_per_second, choices["lanes"]), "link_gbps": leaf.port_gbps}
    return kind.of(**choices, **rates, **rack._asdict())


def design_of(fabric: SiteFabric, racks: int, gpus: int, network: Network, nic_bytes_per_second: float) -> Design:
    """Return the fabric design of a plan's site of `racks` racks of `gpus` GPUs; `design_fault` passes its fabric."""
    leaf, spine, family = fabric.tiers[0], fabric.tiers[1] if len(fabric.tiers) > 1 else None, FAMILIES[fabric.family]
    rack, kind = family.rack_ports(gpus).shared(fabric.rails_per_leaf), family.design
    own: dict[str, Any] = {"leaf_down": leaf.down_ports, "leaf_bundle": leaf.bundle}
    own |= {"lanes": fabric.lanes, "split": fabric.split}
    own |= {"rails_per_pod": fabric.rails_per_pod, "domains_per_pod": fabric.leaf_domains_per_pod}
    own["wan_ports"] = -(-fabric.wan_gateway.wan_ports // (rack.apart * fabric.lanes)) if fabric.wan_gateway else 0
    own |= {"leaf_up": leaf.up_ports} if spine or not kind.grouped else {}
    if kind.grouped:
        own["group_links"] = fabric.group_links
    else:
        own |= {"spine_up": spine.up_ports, "spine_bundle": spine.bundle} if spine else {}
        own |= {"core_boxes": fabric.core_boxes, "super_spine_boxes": fabric.super_spine_boxes}
        if len(fabric.tiers) == len(kind.tier_names):
            own |= {"core_up": fabric.tiers[2].up_ports, "core_bundle": fabric.tiers[2].bundle}
            own |= {"rails_per_zone": fabric.rails_per_zone, "domains_per_zone": fabric.leaf_domains_per_zone}
    switches = {box.name: box for box in network.switches}
    models = [switches[name] for name in (fabric.switch, *fabric.models[1:])]
    return design_for(fabric.family, network, models, racks, rack, nic_bytes_per_second, **own)


def design_fault(fabric: SiteFabric, racks: int) -> str | None:
    """Return which choice of a plan's fabric gives a fabric design without meaningful counts; None where none does."""
    if racks < 1 or not 1 <= fabric.lanes <= MAX_LANES:
        return f"{racks} racks and {fabric.lanes} lanes; at least 1 rack and 1 to {MAX_LANES} lanes expected"
    if fabric.split < 1:
        return f"ports split in {fabric.split}; at least 1 expected"
    shared = fabric.rails_per_leaf
    if shared < 1 or (shared > 1 and (fabric.family != "rail" or fabric.wired_gpus_per_rack % shared)):
        return f"{shared} rails of {fabric.wired_gpus_per_rack} GPUs share a leaf of the family {fabric.family}"
    if fabric.wan_gateway is not None and not 1 <= fabric.wan_gateway.wan_ports <= MAX_WAN_PORTS:
        return f"a WAN gateway of {fabric.wan_gateway.wan_ports:,} ports; 1 to {MAX_WAN_PORTS:,} expected"
    kind = FAMILIES[fabric.family].design
    return (_group_fault if kind.grouped else _tree_fault)(fabric, kind.tier_names)


def _tree_fault(fabric: SiteFabric, expected: tuple[str, ...]) -> str | None:  # all tiers expected with zones
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
            wanted = "none, or some where there is that tier"
            return f"{boxes} shared {tier} boxes in {len(names)} tiers; {wanted}, expected"
    zone, zoned = (fabric.rails_per_zone, fabric.leaf_domains_per_zone), names == expected
    if min(zone) < zoned or (max(zone) > 0 and not zoned):
        wanted = "at least 1 of each" if zoned else f"none under {names[-1]}s"
        return f"a zone of {zone[0]} rails and {zone[1]} leaf domains; {wanted} expected"
    return None


def _group_fault(fabric: SiteFabric, expected: tuple[str, ...]) -> str | None:
    names = tuple(tier.name for tier in fabric.tiers)
    if names != expected:
        return f"tiers of a {fabric.family} are {', '.join(names) or 'none'}; {', then '.join(expected)} expected"
    tier = fabric.tiers[0]
    least = min(tier.down_ports, tier.up_ports, tier.bundle, fabric.rails_per_pod, fabric.leaf_domains_per_pod)
    if least < 1 or fabric.group_links < 0:
        return (
            f"leaf: {tier.down_ports} down, {tier.up_ports} up in bundles of {tier.bundle}; "
            f"groups of {fabric.rails_per_pod} rails and {fabric.leaf_domains_per_pod} leaf domains, "
            f"{fabric.group_links} links between two; at least 1 of each, and no link fewer than 0, expected"
        )
    if len(fabric.tiers) > 1 and tier.up_ports % tier.bundle:
        return f"leaf bundle: {tier.up_ports} uplinks are not whole bundles of {tier.bundle}"
    return None


def half_rate_tbps(hardware: Hardware, wired_gpus: int) -> float:
    """Compute the rate in Tb/s of half of a cluster's racks in fabric designs with `wired_gpus` NICs of each."""
    return float((hardware.racks or 0) * wired_gpus * hardware.gpu_nic_bytes_per_second * 8 / 2 / 1e12)
