"""Every cable of a fabric, port to port, in blocks: what the counts of `wiring` say, laid one by one in constant memory.

Boxes are numbered within their tier, network after network: leaf domain·rails + rail, spine pod·s + position, core (zone·s + group)·c +
position in the group, super-core (position of the core)·e + position, WAN gateway boxes in their order. A box's ports are numbered from 0, those
towards the GPUs first. A GPU is rack·(GPUs of a rack) + its index, its NIC has a port for each lane. Where a leaf's ports are split, its
ends towards GPUs are numbered by part of a port: the first port has parts 0 to split - 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.instance.network import Floor
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.dragonfly_cabling import Groups, between_groups
from planner.physics.network.links import Metres, Places
from planner.physics.network.topology import Design

Ints = NDArray[np.int64]
BORDER = "wan_gateway"  # the boxes at which the wide area ends
BLOCK = 1 << 16  # cables laid at a time
Ends = tuple[Ints, Ints, Ints, Ints]  # low box, its port, high box, its port


@dataclass(frozen=True, slots=True)
class Stage:
    """The cables between two tiers: how many there are, and the ends of any of them by number."""

    low: str
    high: str
    count: int
    ends: Callable[[Ints], Ends]


@dataclass(frozen=True, slots=True)
class Cables:
    """Some cables of one stage: the box and port at each end."""

    low_tier: str
    high_tier: str
    low: Ints
    low_port: Ints
    high: Ints
    high_port: Ints


def lay(d: Design, *, block: int = BLOCK) -> Iterator[Cables]:
    """Yield every cable of a design once, block by block; the design can be wired."""
    for stage in stages(d):
        for at in range(0, stage.count, block):
            yield Cables(
                stage.low, stage.high, *stage.ends(np.arange(at, min(at + block, stage.count), dtype=np.int64))
            )


def stages(d: Design) -> list[Stage]:
    """Return the stages of a design from the GPUs up."""
    found = [Stage("gpu", "leaf", d.endpoint_links, lambda e: _endpoints(d, e))]
    found += _group_stages(d) if isinstance(d, Dragonfly) else _tree_stages(d)
    if d.wan_ports:
        found.append(Stage(BORDER, d.top[0], d.wan_gateway_links, lambda e: _border_uplinks(d, e)))
    return found


def _tree_stages(d: Design) -> list[Stage]:
    """Return the stages above the leaves of a tree."""
    found = []
    if d.tiers > 1:
        found.append(Stage("leaf", "spine", d.leaves * d.leaf_up, lambda e: _leaf_uplinks(d, e)))
    if d.tiers > 2:
        found.append(Stage("spine", "core", d.spines * d.spine_up, lambda e: _spine_uplinks(d, e)))
    if d.tiers > 3:
        found.append(Stage("core", "super-core", d.cores * d.core_up, lambda e: _core_uplinks(d, e)))
    return found


def _group_stages(d: Dragonfly) -> list[Stage]:
    """Return the stages above the leaves of a dragonfly: inside groups, then between them."""
    if isinstance(d, DragonflyPlus):
        inside = Stage("leaf", "spine", d.local_links, lambda e: _leaf_uplinks(d, e))
        return [inside, Stage("spine", "spine", d.global_links, lambda e: between_groups(d, e))]
    groups = Groups(d)
    stages = [
        Stage("leaf", "leaf", d.local_links, groups.inside),
        Stage("leaf", "leaf", d.global_links, groups.between),
    ]
    return [s for s in stages if s.count]


def boxes(d: Design) -> dict[str, int]:
    """Return the boxes of each tier that a design has."""
    tiers = (
        ("leaf", d.leaves),
        ("spine", d.spines),
        ("core", d.cores),
        ("super-core", d.super_cores),
        (BORDER, d.wan_gateways),
    )
    return {tier: n for tier, n in tiers if n}


def _endpoints(d: Design, e: Ints) -> Ends:
    """Set g of the racks of a domain meets at leaf g of the domain; a single switch takes its GPUs in order. Lanes go to networks in turn."""
    gpu, lane = e // d.lanes, e % d.lanes
    rack, index = gpu // d.gpus_per_rack, gpu % d.gpus_per_rack
    apart, own = index // (d.rails * d.rail_gpus), index % (d.rails * d.rail_gpus)
    network = apart * d.lanes + lane
    if d.single:
        return gpu, lane, network, rack * d.rails * d.rail_gpus + own
    leaf = rack // d.domain_racks * d.rails + own // d.rail_gpus
    return gpu, lane, network * d.domains * d.rails + leaf, rack % d.domain_racks * d.rail_gpus + own % d.rail_gpus


def _leaf_uplinks(d: Design, e: Ints) -> Ends:
    """Each leaf sends a bundle to every spine of its pod; a spine keeps a bundle of ports for each leaf of a full pod."""
    leaf, up = e // d.leaf_up, e % d.leaf_up
    network, own = leaf // (d.domains * d.rails), leaf % (d.domains * d.rails)
    domain, rail = own // d.rails, own % d.rails
    pod = network * d.pods + domain // d.domains_per_pod * pods_across(d) + rail // d.rails_per_pod
    seat = domain % d.domains_per_pod * d.rails_per_pod + rail % d.rails_per_pod
    return (
        leaf,
        d.leaf_down_used + up,
        pod * d.spines_per_pod + up // d.leaf_bundle,
        seat * d.leaf_bundle + up % d.leaf_bundle,
    )


def _spine_uplinks(d: Design, e: Ints) -> Ends:
    """Spine i of every pod of a zone sends a bundle to each core of its group i; a core keeps a bundle of ports for each pod of a full zone."""
    spine, up = e // d.spine_up, e % d.spine_up
    pod, group = spine // d.spines_per_pod, spine % d.spines_per_pod
    zone, seat = _zone_seat(d, pod)
    core = (zone * d.spines_per_pod + group) * (d.spine_up // d.spine_bundle) + up // d.spine_bundle
    return spine, d.spine_down + up, core, seat * d.spine_bundle + up % d.spine_bundle


def _zone_seat(d: Design, pod: Ints) -> tuple[Ints, Ints]:
    """Return the zone of each pod, counted over all networks, and the pod's place among those of a full zone; of three tiers a network is one."""
    network, own = pod // d.pods, pod % d.pods
    if d.tiers < 4:
        return network, own
    row, column = own // pods_across(d), own % pods_across(d)
    rows, columns = d.domains_per_zone // d.domains_per_pod, d.rails_per_zone // d.rails_per_pod
    zone = network * d.zones + row // rows * zones_across(d) + column // columns
    return zone, row % rows * columns + column % columns


def _core_uplinks(d: Design, e: Ints) -> Ends:
    """Core i of every zone of a network sends a bundle to each super-core of its group i, which keeps a bundle of ports for each zone."""
    core, up = e // d.core_up, e % d.core_up
    zone, position = core // d.core_positions, core % d.core_positions
    top = (zone // d.zones * d.core_positions + position) * (d.core_up // d.core_bundle) + up // d.core_bundle
    return core, d.core_down + up, top, zone % d.zones * d.core_bundle + up % d.core_bundle


def _border_uplinks(d: Design, e: Ints) -> Ends:
    """Links of a network's WAN gateway go from its boxes in turn to the boxes of the top tier in turn, ports towards the wide area before them."""
    network, own = e // d.wan_ports, e % d.wan_ports
    boxes, tops = d.wan_gateways // d.networks, d.top[1]
    top = (
        Groups(d).wan_gateway(network, own)
        if isinstance(d, Dragonfly)
        else (network * tops + own % tops, d.top_taken + own // tops)
    )
    return network * boxes + own % boxes, d.border_side + own // boxes, *top


def pods_across(d: Design) -> int:
    """Pods side by side that take the rails of one set of domains."""
    return -(-d.rails // d.rails_per_pod)


def zones_across(d: Design) -> int:
    """Zones side by side that take the rails of one set of domains."""
    return -(-d.rails // d.rails_per_zone)


def lengths(d: Design, floor: Floor) -> Callable[[Cables], Metres]:
    """Return what measures a block's cables; places of racks and boxes are worked out once."""
    places = Places(floor, d.racks)
    middles = {tier: places.middle(*_served(d, tier)) for tier in ("gpu", *boxes(d))}
    return lambda c: places.metres(
        _at(d, middles, c.low_tier, c.low), _at(d, middles, c.high_tier, c.high), spread=c.low_tier != "gpu"
    )


def routers(d: Design) -> bool:
    """Tell whether the first tier stands together, group by group, amid the racks of its group: routers of a dragonfly."""
    return isinstance(d, Dragonfly) and not isinstance(d, DragonflyPlus)


def _at(d: Design, middles: dict[str, Metres], tier: str, box: Ints) -> Metres:
    """Return where boxes stand, all networks alike: amid a rack, a domain (leaves), a group (routers), a pod (spines), a zone (cores) or the site."""
    if tier in ("super-core", BORDER) or (d.single and tier == "leaf") or (tier == "core" and d.tiers < 4):
        return middles[tier][np.zeros_like(box)]
    if tier == "core":
        return middles[tier][box // d.core_positions % d.zones // zones_across(d)]
    if tier == "gpu":
        return middles[tier][box // d.gpus_per_rack]
    if tier == "leaf":
        domain = box % (d.domains * d.rails) // d.rails
        return middles[tier][domain // d.domains_per_pod if routers(d) else domain]
    return middles[tier][box // d.spines_per_pod % d.pods // pods_across(d)]


def _served(d: Design, tier: str) -> tuple[Ints, Ints]:
    """Return the first rack that each place of a tier serves, and the one after its last."""
    pod = d.domain_racks * d.domains_per_pod
    zone = d.domain_racks * d.domains_per_zone if d.tiers > 3 else d.racks
    racks = {"gpu": 1, "leaf": pod if routers(d) else d.domain_racks, "spine": pod, "core": zone}.get(tier, d.racks)
    first = np.arange(0, d.racks, racks, dtype=np.int64)
    return first, first + racks
