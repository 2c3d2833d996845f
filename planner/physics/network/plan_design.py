"""The design that a plan's fabric stands for, and what of its choices cannot be computed with."""

from planner.instance.network import Network
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus, dragonfly
from planner.physics.network.links import spare_ports
from planner.physics.network.topology import Design
from planner.plan.fabric import SiteFabric

GROUPED = {"dragonfly": ("leaf",), "dragonfly+": ("leaf", "spine")}  # families without a core, and their tiers
TREE = ("leaf", "spine", "core", "super-core")  # only the whole of it has zones
MOST_LANES = 16  # of a NIC
MOST_WAN_PORTS = 10**9  # of a border: more are a slip


def design_of(f: SiteFabric, racks: int, *, ports: int, gpus: int, network: Network) -> Design:
    """Return the design of a fabric without a fault, of boxes of so many ports and racks of so many GPUs."""
    leaf, spine, spares = f.tiers[0], f.tiers[1] if len(f.tiers) > 1 else None, network.spares
    rails, rail_gpus, apart = {"rack": (1, gpus, 1), "rail-only": (1, 1, gpus)}.get(f.family, (gpus, 1, 1))
    own = {"ports": ports, "rails": rails, "racks": racks, "leaf_down": leaf.down_ports, "leaf_bundle": leaf.bundle}
    own |= {
        "rail_gpus": rail_gpus,
        "apart": apart,
        "lanes": f.lanes,
        "split": f.split,
        "rails_per_pod": f.rails_per_pod,
        "domains_per_pod": f.leaf_domains_per_pod,
    }
    own["leaf_spare"] = spare_ports(leaf.down_ports, spares.share, spares.failure_chance, spares.shortage_chance)
    own["wan_ports"] = -(-f.wan_gateway.wan_ports // (apart * f.lanes)) if f.wan_gateway else 0
    if f.family in GROUPED:
        own |= {"group_links": f.group_links, "valiant": network.group_routing == "valiant"}
        return dragonfly(Dragonfly, **own) if spine is None else dragonfly(DragonflyPlus, **own, leaf_up=leaf.up_ports)
    own |= {"spine_up": spine.up_ports, "spine_bundle": spine.bundle} if spine else {}
    if len(f.tiers) == len(TREE):
        own |= {"core_up": f.tiers[2].up_ports, "core_bundle": f.tiers[2].bundle}
        own |= {"rails_per_zone": f.rails_per_zone, "domains_per_zone": f.leaf_domains_per_zone}
    return Design(**own, leaf_up=leaf.up_ports)


def design_fault(f: SiteFabric, racks: int) -> str | None:
    """Say what of a fabric's choices makes its counts meaningless."""
    if racks < 1 or not 1 <= f.lanes <= MOST_LANES:
        return f"{racks} racks and {f.lanes} lanes; at least 1 rack and 1 to {MOST_LANES} lanes expected"
    if f.split < 1:
        return f"ports split in {f.split}; at least 1 expected"
    if f.wan_gateway is not None and not 1 <= f.wan_gateway.wan_ports <= MOST_WAN_PORTS:
        return f"a WAN gateway of {f.wan_gateway.wan_ports:,} ports; 1 to {MOST_WAN_PORTS:,} expected"
    return group_fault(f) if f.family in GROUPED else tree_fault(f)


def tree_fault(f: SiteFabric) -> str | None:
    """Say what is wrong with the tiers of a tree."""
    names = tuple(t.name for t in f.tiers)
    if not names or names != TREE[: len(names)]:
        return f"tiers are {', '.join(names) or 'none'}; {', then '.join(TREE)} expected"
    last = len(f.tiers) - 1
    for i, t in enumerate(f.tiers):
        if (
            t.down_ports < 1
            or (t.up_ports > 0) != (i < last)
            or (t.bundle > 0) != (i < last)
            or min(t.up_ports, t.bundle) < 0
        ):
            return f"{t.name}: {t.down_ports} down, {t.up_ports} up in bundles of {t.bundle}; only the top tier, {names[-1]}, has no uplinks"
    if last > 0 and min(f.rails_per_pod, f.leaf_domains_per_pod) < 1:
        return (
            f"a pod of {f.rails_per_pod} rails and {f.leaf_domains_per_pod} leaf domains; at least 1 of each expected"
        )
    zone, zoned = (f.rails_per_zone, f.leaf_domains_per_zone), names == TREE
    if min(zone) < zoned or (max(zone) > 0 and not zoned):
        return f"a zone of {zone[0]} rails and {zone[1]} leaf domains; {'at least 1 of each' if zoned else f'none under {names[-1]}s'} expected"
    return None


def group_fault(f: SiteFabric) -> str | None:
    """Say what of a dragonfly's choices makes its counts meaningless."""
    names, expected = tuple(t.name for t in f.tiers), GROUPED[f.family]
    if names != expected:
        return f"tiers of a {f.family} are {', '.join(names) or 'none'}; {', then '.join(expected)} expected"
    t = f.tiers[0]
    if min(t.down_ports, t.up_ports, t.bundle, f.rails_per_pod, f.leaf_domains_per_pod) < 1 or f.group_links < 0:
        return (
            f"leaf: {t.down_ports} down, {t.up_ports} up in bundles of {t.bundle}; groups of {f.rails_per_pod} rails and "
            f"{f.leaf_domains_per_pod} leaf domains, {f.group_links} links between two; at least 1 of each, and no link fewer than 0, expected"
        )
    if len(f.tiers) > 1 and t.up_ports % t.bundle:
        return f"leaf bundle: {t.up_ports} uplinks are not whole bundles of {t.bundle}"
    return None
