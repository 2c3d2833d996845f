"""The design that a plan's fabric stands for, and which of its choices make its counts meaningless."""

from collections.abc import Mapping
from typing import Any

from planner.instance.network import Network, Switch
from planner.physics.network.dragonfly import Dragonfly, dragonfly
from planner.physics.network.families import FAMILIES
from planner.physics.network.links import spare_ports
from planner.physics.network.topology import Design
from planner.plan.fabric import SiteFabric

MAX_LANES = 16  # of a NIC: an instance allows no more
MAX_WAN_PORTS = 10**9  # of a WAN gateway: more are a slip, and would overflow the arrays of its cables


def design_of(f: SiteFabric, racks: int, *, switches: Mapping[str, Switch], gpus: int, network: Network) -> Design:
    """Return the design of a fabric without a fault, of switches by name and racks of so many GPUs."""
    leaf, spine, spares, family = (
        f.tiers[0],
        f.tiers[1] if len(f.tiers) > 1 else None,
        network.spares,
        FAMILIES[f.family],
    )
    rack, wiring = family.rack_ports(gpus), family.wiring
    models = zip(("spine_ports", "core_ports", "super_spine_ports"), f.models[1:], strict=False)
    own: dict[str, Any] = {name: switches[model].ports for name, model in models if model != f.switch}
    own |= {"ports": switches[f.switch].ports, "racks": racks, "leaf_down": leaf.down_ports, "leaf_bundle": leaf.bundle}
    own |= rack._asdict() | {"lanes": f.lanes, "split": f.split}
    own |= {"rails_per_pod": f.rails_per_pod, "domains_per_pod": f.leaf_domains_per_pod}
    own["leaf_spare"] = spare_ports(leaf.down_ports, spares.share, spares.failure_chance, spares.shortage_chance)
    own["wan_ports"] = -(-f.wan_gateway.wan_ports // (rack.apart * f.lanes)) if f.wan_gateway else 0
    own |= {"leaf_up": leaf.up_ports} if spine or not wiring.grouped else {}
    if issubclass(wiring.design, Dragonfly):
        return dragonfly(wiring.design, **own, group_links=f.group_links, valiant=network.group_routing == "valiant")
    own |= {"spine_up": spine.up_ports, "spine_bundle": spine.bundle} if spine else {}
    own |= {"core_boxes": f.core_boxes, "super_spine_boxes": f.super_spine_boxes}
    if len(f.tiers) == len(wiring.tiers):
        own |= {"core_up": f.tiers[2].up_ports, "core_bundle": f.tiers[2].bundle}
        own |= {"rails_per_zone": f.rails_per_zone, "domains_per_zone": f.leaf_domains_per_zone}
    return wiring.design(**own)


def design_fault(f: SiteFabric, racks: int) -> str | None:
    """Return which of a fabric's choices makes its counts meaningless, None where none does."""
    if racks < 1 or not 1 <= f.lanes <= MAX_LANES:
        return f"{racks} racks and {f.lanes} lanes; at least 1 rack and 1 to {MAX_LANES} lanes expected"
    if f.split < 1:
        return f"ports split in {f.split}; at least 1 expected"
    if f.wan_gateway is not None and not 1 <= f.wan_gateway.wan_ports <= MAX_WAN_PORTS:
        return f"a WAN gateway of {f.wan_gateway.wan_ports:,} ports; 1 to {MAX_WAN_PORTS:,} expected"
    wiring = FAMILIES[f.family].wiring
    return group_fault(f, wiring.tiers) if wiring.grouped else tree_fault(f, wiring.tiers)


def tree_fault(f: SiteFabric, expected: tuple[str, ...]) -> str | None:
    """Return what is wrong with the tiers of a tree, which are the first of those expected; all of them have zones."""
    names = tuple(t.name for t in f.tiers)
    if not names or names != expected[: len(names)]:
        return f"tiers are {', '.join(names) or 'none'}; {', then '.join(expected)} expected"
    last = len(f.tiers) - 1
    for i, t in enumerate(f.tiers):
        top = (t.up_ports > 0) != (i < last) or (t.bundle > 0) != (i < last)
        if top or t.down_ports < 1 or min(t.up_ports, t.bundle) < 0:
            ports = f"{t.down_ports} down, {t.up_ports} up in bundles of {t.bundle}"
            return f"{t.name}: {ports}; only the top tier, {names[-1]}, has no uplinks"
    if last > 0 and min(f.rails_per_pod, f.leaf_domains_per_pod) < 1:
        pod = f"{f.rails_per_pod} rails and {f.leaf_domains_per_pod} leaf domains"
        return f"a pod of {pod}; at least 1 of each expected"
    for tier, boxes in (("core", f.core_boxes), ("super-spine", f.super_spine_boxes)):
        if boxes < 0 or (boxes > 0 and tier not in names):
            return (
                f"{boxes} shared {tier} boxes in {len(names)} tiers; none, or some where there is that tier, expected"
            )
    zone, zoned = (f.rails_per_zone, f.leaf_domains_per_zone), names == expected
    if min(zone) < zoned or (max(zone) > 0 and not zoned):
        wanted = "at least 1 of each" if zoned else f"none under {names[-1]}s"
        return f"a zone of {zone[0]} rails and {zone[1]} leaf domains; {wanted} expected"
    return None


def group_fault(f: SiteFabric, expected: tuple[str, ...]) -> str | None:
    """Return which of a dragonfly's choices makes its counts meaningless."""
    names = tuple(t.name for t in f.tiers)
    if names != expected:
        return f"tiers of a {f.family} are {', '.join(names) or 'none'}; {', then '.join(expected)} expected"
    t = f.tiers[0]
    if min(t.down_ports, t.up_ports, t.bundle, f.rails_per_pod, f.leaf_domains_per_pod) < 1 or f.group_links < 0:
        return (
            f"leaf: {t.down_ports} down, {t.up_ports} up in bundles of {t.bundle}; groups of {f.rails_per_pod} rails "
            f"and {f.leaf_domains_per_pod} leaf domains, {f.group_links} links between two; at least 1 of each, and no "
            "link fewer than 0, expected"
        )
    if len(f.tiers) > 1 and t.up_ports % t.bundle:
        return f"leaf bundle: {t.up_ports} uplinks are not whole bundles of {t.bundle}"
    return None
