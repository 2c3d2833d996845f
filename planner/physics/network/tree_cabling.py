"""Every cable of a tree, port to port, by number, and the lengths of its cables on the floor.

Switches are numbered within their tier, network after network: leaf domain·rails + rail, spine pod·s + position, core
zone·(cores of a zone) + place in the zone, super-spine network·(super-spines of a network) + place there, WAN gateway
switches in their order. Boxes take the positions of their tier in turn, each with ports of its own. The ports of a
switch are numbered from 0, those towards the GPUs first. A GPU is rack·(GPUs of a rack) + its index, its NIC has a
port for each lane. Where a leaf's ports are split, its ends towards GPUs are numbered by part of a port: the first
port has parts 0 to split - 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from planner.physics.network.lengths import CableRun, beside_metres, endpoint_metres, leaf_metres, spine_metres
from planner.physics.network.links import Ints, Places
from planner.physics.network.topology import Design

Ends = tuple[Ints, Ints, Ints, Ints]  # low switch, its port, high switch, its port


@dataclass(frozen=True, slots=True)
class Stage:
    """The cables between two tiers: how many there are, and the ends of any of them by number."""

    low: str
    high: str
    count: int
    ends: Callable[[Ints], Ends]


def tree_stages(d: Design) -> list[Stage]:
    """Return the stages above the leaves of a tree, those that have cables."""
    stages = [
        Stage("leaf", "spine", d.leaves * d.leaf_up, lambda e: leaf_uplinks(d, e)),
        Stage("spine", "core", d.spines * d.spine_up, lambda e: _spine_uplinks(d, e)),
        Stage("core", "super-spine", d.cores * d.core_up, lambda e: _core_uplinks(d, e)),
    ]
    return [s for s in stages if s.count]


def endpoints(d: Design, e: Ints) -> Ends:
    """Return the ends of GPU links: set g of the racks of a domain meets at its leaf g; lanes go to networks in turn.

    A single switch takes its GPUs in order.
    """
    gpu, lane = e // d.lanes, e % d.lanes
    rack, index = gpu // d.gpus_per_rack, gpu % d.gpus_per_rack
    apart, own = index // (d.rails * d.rail_gpus), index % (d.rails * d.rail_gpus)
    network = apart * d.lanes + lane
    if d.single:
        return gpu, lane, network, rack * d.rails * d.rail_gpus + own
    leaf = rack // d.domain_racks * d.rails + own // d.rail_gpus
    return gpu, lane, network * d.domains * d.rails + leaf, rack % d.domain_racks * d.rail_gpus + own % d.rail_gpus


def leaf_uplinks(d: Design, e: Ints) -> Ends:
    """Return the ends of leaf uplinks: a bundle to every spine of the pod, which has ports for each of its leaves."""
    leaf, up = e // d.leaf_up, e % d.leaf_up
    network, own = leaf // (d.domains * d.rails), leaf % (d.domains * d.rails)
    domain, rail = own // d.rails, own % d.rails
    pod = network * d.pods + domain // d.domains_per_pod * d.pods_across + rail // d.rails_per_pod
    seat = domain % d.domains_per_pod * d.rails_per_pod + rail % d.rails_per_pod
    spine, port = pod * d.spines_per_pod + up // d.leaf_bundle, seat * d.leaf_bundle + up % d.leaf_bundle
    return leaf, d.leaf_down_used + up, spine, port


def _spine_uplinks(d: Design, e: Ints) -> Ends:
    """Return the ends of spine uplinks: a bundle from spine i of every pod to each core of group i in its zone.

    A core keeps a bundle of ports for each pod of a full zone.
    """
    spine, up = e // d.spine_up, e % d.spine_up
    pod, group = spine // d.spines_per_pod, spine % d.spines_per_pod
    zone, seat = _zone_seat(d, pod)
    position, boxes = group * (d.spine_up // d.spine_bundle) + up // d.spine_bundle, d.zone_cores
    port = (position // boxes * d.core_pods + seat) * d.spine_bundle + up % d.spine_bundle
    return spine, d.spine_down + up, zone * boxes + position % boxes, port


def _zone_seat(d: Design, pod: Ints) -> tuple[Ints, Ints]:
    """Return the zone of each pod, counted over all networks, and its place there; of three tiers a network is one."""
    network, own = pod // d.pods, pod % d.pods
    if d.tiers < 4:
        return network, own
    row, column = own // d.pods_across, own % d.pods_across
    rows, columns = d.domains_per_zone // d.domains_per_pod, d.rails_per_zone // d.rails_per_pod
    zone = network * d.zones + row // rows * d.zones_across + column // columns
    return zone, row % rows * columns + column % columns


def _core_uplinks(d: Design, e: Ints) -> Ends:
    """Return the ends of core uplinks: a bundle from core i of every zone of a network to each position above core i.

    A super-spine keeps a bundle of ports for each zone and position.
    """
    core, up = e // d.core_up, e % d.core_up
    network, zone, own = core // d.zone_cores // d.zones, core // d.zone_cores % d.zones, core % d.zone_cores
    position, boxes = own * (d.core_up // d.core_bundle) + up // d.core_bundle, d.super_spines // d.networks
    port = (position // boxes * d.zones + zone) * d.core_bundle + up % d.core_bundle
    return core, d.core_down + up, network * boxes + position % boxes, port


def tree_wan_ends(d: Design, network: Ints, n: Ints) -> tuple[Ints, Ints]:
    """Return the switch and port at which links of a network's WAN gateway end: switches of the top tier in turn."""
    tops = d.top[1]
    return network * tops + n % tops, d.top_taken + n // tops


def tree_runs(places: Places, d: Design) -> Iterator[CableRun]:
    """Yield the cables of each stage of a tree, those of GPUs first."""
    domain, pod, zone = d.domain_racks, d.domain_racks * d.domains_per_pod, d.domain_racks * d.domains_per_zone
    yield endpoint_metres(places, domain), d.endpoint_links // d.racks
    if d.tiers > 1:
        yield leaf_metres(places, np.arange(0, d.racks, domain), domain, pod), d.networks * d.rails * d.leaf_up
    if d.tiers > 2:
        pods = np.arange(0, d.racks, pod)
        metres = leaf_metres(places, pods, pod, zone) if d.tiers > 3 else spine_metres(places, pods, pod)
        yield metres, d.networks * d.pods_across * d.pod_uplinks
    if d.tiers > 3:
        metres = spine_metres(places, np.arange(0, d.racks, zone), zone)
        yield metres, d.networks * d.zones_across * d.zone_uplinks


def tree_wan_runs(places: Places, d: Design) -> Iterator[CableRun]:
    """Yield the cables between the WAN gateway and the top tier of a tree: both stand amid the site."""
    yield beside_metres(places), d.wan_gateway_links
