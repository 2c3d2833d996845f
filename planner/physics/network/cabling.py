"""Every cable of a fabric, port to port and in metres, laid in blocks: what a design counts, in constant memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from planner.instance.network import Floor
from planner.physics.network.families import wiring_of
from planner.physics.network.links import Ints, Metres, Places
from planner.physics.network.topology import Design
from planner.physics.network.tree_cabling import Ends, Stage, endpoints

WAN_GATEWAY = "wan-gateway"  # the tier of the switches at which the wide area ends
BLOCK = 1 << 16  # cables laid at a time: a few MB of numbers, and large enough for numpy


@dataclass(frozen=True, slots=True)
class Cables:
    """Some cables of one stage: the switch and port at each end."""

    low_tier: str
    high_tier: str
    low: Ints
    low_port: Ints
    high: Ints
    high_port: Ints


def lay(d: Design, *, block: int = BLOCK) -> Iterator[Cables]:
    """Yield every cable of a design once, block by block; the design can be wired."""
    for stage in stages(d):
        for first in range(0, stage.count, block):
            numbers = np.arange(first, min(first + block, stage.count), dtype=np.int64)
            yield Cables(stage.low, stage.high, *stage.ends(numbers))


def stages(d: Design) -> list[Stage]:
    """Return the stages of a design from the GPUs up."""
    all_stages = [Stage("gpu", "leaf", d.endpoint_links, lambda e: endpoints(d, e)), *wiring_of(d).stages(d)]
    if d.wan_ports:
        all_stages.append(Stage(WAN_GATEWAY, d.top[0], d.wan_gateway_links, lambda e: _wan_gateway_uplinks(d, e)))
    return all_stages


def switch_counts(d: Design) -> dict[str, int]:
    """Return the switches of each tier that a design has, its WAN gateway among them."""
    return {tier: n for tier, n in (d.tier_switches | {WAN_GATEWAY: d.wan_gateways}).items() if n}


def _wan_gateway_uplinks(d: Design, e: Ints) -> Ends:
    """Return the ends of a WAN gateway's links: its switches in turn, their ports to the wide area before those up."""
    network, own = e // d.wan_ports, e % d.wan_ports
    switches = d.wan_gateways // d.networks
    low_port = d.wan_gateway_side + own // switches
    return network * switches + own % switches, low_port, *wiring_of(d).wan_ends(d, network, own)


def lengths(d: Design, floor: Floor) -> Callable[[Cables], Metres]:
    """Return what measures a block's cables; places of racks and switches are worked out once."""
    places, middles = Places(floor, d.racks), {}
    for tier in ("gpu", *switch_counts(d)):
        first = np.arange(0, d.racks, d.racks_around(tier), dtype=np.int64)
        middles[tier] = places.middle(first, first + d.racks_around(tier))

    def measure(c: Cables) -> Metres:
        low, high = (
            middles[c.low_tier][_place(d, c.low_tier, c.low)],
            middles[c.high_tier][_place(d, c.high_tier, c.high)],
        )
        return places.metres(low, high, spread=c.low_tier != "gpu")

    return measure


def _place(d: Design, tier: str, index: Ints) -> Ints:
    """Return the place of GPUs or switches of a tier, all networks alike: the number of the run of racks they serve."""
    if tier == "gpu":
        return index // d.gpus_per_rack
    if tier == "leaf":
        return index % (d.domains * d.rails) // d.rails * d.domain_racks // d.racks_around("leaf")
    if tier == "spine":
        return index // d.spines_per_pod % d.pods // d.pods_across
    if tier == "core" and d.tiers > 3:
        return index // d.zone_cores % d.zones // d.zones_across
    return np.zeros_like(index)
