"""Lay every cable of a fabric, port to port and in metres, and compute cost and power of switches and cables."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner.instance.network import Floor, Network, Switch
from planner.physics.network.links import CableRun, Ends, Ints, MediaTable, Metres, Places, Stage, media_of
from planner.physics.network.topology import TIERS, Design
from planner.physics.site.cost import endpoint_link_usd, fabric_mw, fabric_usd, switch_link_usd

WAN_GATEWAY = "wan-gateway"  # the tier of the switches at which the wide area ends
BLOCK = 1 << 16  # cables laid at a time: a few MB of numbers, and large enough for numpy


@dataclass(frozen=True, slots=True)
class StageCables:
    """Some cables of one stage: the switch and port at each end."""

    low_tier: str
    high_tier: str
    low: Ints
    low_port: Ints
    high: Ints
    high_port: Ints


def lay(d: Design, *, block: int = BLOCK) -> Iterator[StageCables]:
    """Yield every cable of a design once, block by block; the design can be wired."""
    for stage in stages(d):
        for first in range(0, stage.count, block):
            numbers = np.arange(first, min(first + block, stage.count), dtype=np.int64)
            yield StageCables(stage.low, stage.high, *stage.ends(numbers))


def stages(d: Design) -> list[Stage]:
    """Return the stages of a design from the GPUs up."""
    all_stages = [Stage("gpu", "leaf", d.endpoint_links, lambda e: _endpoints(d, e)), *d.stages()]
    if d.wan_ports:
        all_stages.append(Stage(WAN_GATEWAY, d.top[0], d.wan_gateway_links, lambda e: _wan_gateway_uplinks(d, e)))
    return all_stages


def switch_counts(d: Design) -> dict[str, int]:
    """Return the switches of each tier that a design has, its WAN gateway among them."""
    return {tier: n for tier, n in (d.tier_switches | {WAN_GATEWAY: d.wan_gateways}).items() if n}


def _endpoints(d: Design, e: Ints) -> Ends:
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


def _wan_gateway_uplinks(d: Design, e: Ints) -> Ends:
    network, own = e // d.wan_ports, e % d.wan_ports
    switches = d.wan_gateways // d.networks
    low_port = d.wan_gateway_side + own // switches
    return network * switches + own % switches, low_port, *d.wan_ends(network, own)


def lengths(d: Design, floor: Floor) -> Callable[[StageCables], Metres]:
    """Return a function from a block of cables to their lengths in metres; places are computed once."""
    places, middles = Places(floor, d.racks), {}
    for tier in ("gpu", *switch_counts(d)):
        first = np.arange(0, d.racks, d.racks_around(tier), dtype=np.int64)
        middles[tier] = places.middle(first, first + d.racks_around(tier))

    def measure(c: StageCables) -> Metres:
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


@dataclass(frozen=True, slots=True)
class Bill:
    """Price, the watts over the years included, and power."""

    usd: float
    mw: float


def by_reach(network: Network) -> bool:
    """Return whether links are priced by their length."""
    return network.floor is not None and bool(network.media)


def models_of(switch: Switch, above: Sequence[Switch]) -> dict[str, Switch]:
    """Return the model of each tier: the leaf's, those of the tiers above it, and the leaf's where none is given."""
    return dict(zip(TIERS, (switch, *above, *[switch] * (len(TIERS) - 1 - len(above))), strict=True))


def bill(network: Network, switch: Switch, d: Design, above: Sequence[Switch] = ()) -> Bill:
    """Return the price of a design and its power; infinite where no medium reaches.

    `switch` is the leaf's model, `above` are those of the tiers above it, which have the same ports.
    """
    boxes = [(d.tier_switches[tier], model) for tier, model in models_of(switch, above).items()]
    if by_reach(network):
        ends, *links = _bills(network, d, d.runs)
    else:
        ends, *links = _flat(network, 0, d.endpoint_links), _flat(network, d.switch_links, 0)
    each = [(endpoint_factor(switch, d.split), ends), *((switch.link_factor, x) for x in links)]
    usd = sum(n * s.price_usd for n, s in boxes) + sum(factor * x.usd for factor, x in each)
    mw = sum(n * s.power_watts for n, s in boxes) / 1e6 + sum(factor * x.mw for factor, x in each)
    gateway = wan_gateway_bill(network, switch, d)
    return Bill(usd + mw * 1e6 * network.power_usd_per_watt + gateway.usd, mw + gateway.mw)


def wan_gateway_bill(network: Network, switch: Switch, d: Design) -> Bill:
    """Return the price and power of a WAN gateway's switches, amid the site, and of its links to the fabric.

    The ports and optics towards the wide area are in the price of a wavelength.
    """
    if not d.wan_ports:
        return Bill(0.0, 0.0)
    switches = {"switches": d.wan_gateways, "switch_links": 0, "endpoint_links": 0}
    links = _flat(network, d.wan_gateway_links, 0)
    if by_reach(network):
        (links,) = _bills(network, d, d.wan_runs)
    usd = fabric_usd(network, switch, **switches) + switch.link_factor * links.usd
    mw = fabric_mw(network, switch, **switches) + switch.link_factor * links.mw
    return Bill(usd + mw * 1e6 * network.power_usd_per_watt, mw)


def endpoint_factor(switch: Switch, split: int) -> float:
    """Return price and power of a GPU's link over those of the network's optics, cables and media."""
    return switch.link_factor * (switch.breakout_link_factor if split > 1 else 1.0)


def _flat(network: Network, switch_links: int, endpoint_links: int) -> Bill:
    """Return links at the one price of their kind."""
    free = Switch(name="", ports=1, port_gbps=1, price_usd=0, power_watts=0)
    counts = {"switches": 0, "switch_links": switch_links, "endpoint_links": endpoint_links}
    return Bill(fabric_usd(network, free, **counts), fabric_mw(network, free, **counts))


def _bills(network: Network, d: Design, runs: Callable[[Places], Iterator[CableRun]]) -> Iterator[Bill]:
    """Yield the price and power of cables, run by run, where the instance has a floor."""
    if network.floor is None:
        return
    media = media_table(network)
    for metres, cables in runs(Places(network.floor, d.racks)):
        if isinstance(cables, int) and cables == 0:  # also where no medium would reach
            yield Bill(0.0, 0.0)
            continue
        usd, watts = media.usd_watts(metres)
        if isinstance(cables, int):
            yield Bill(cables * float(usd.sum()), cables * float(watts.sum()) / 1e6)
        else:
            laid = cables > 0  # a place with no cable needs no medium
            usd, watts = cables[laid] * usd[laid], cables[laid] * watts[laid]
            yield Bill(float(usd.sum()), float(watts.sum()) / 1e6)


def media_table(network: Network) -> MediaTable:
    """Return the instance's media as a table."""
    return MediaTable.of(media_of(network), network.power_usd_per_watt)


def switch_usd(network: Network, switch: Switch) -> float:
    """Return the price of a switch with its power over the years."""
    return switch.price_usd + switch.power_watts * network.power_usd_per_watt


def flat_usd(network: Network, switch: Switch, split: int = 1) -> tuple[float, float]:
    """Return the price of a link to a GPU and of one between switches, power over the years included, by no length."""
    watts = network.optics.power_watts * network.power_usd_per_watt
    ends = endpoint_link_usd(network) + network.cables.endpoint_transceivers * watts
    up = switch_link_usd(network) + network.cables.switch_transceivers * watts
    return ends * endpoint_factor(switch, split), up * switch.link_factor


def min_endpoint_usd(network: Network, switch: Switch) -> float:
    """Bound the price of a GPU's link and of the leaf's port at its end: the shortest cable, every port in use."""
    splits = 1, switch.breakout
    if not by_reach(network) or network.floor is None:
        link = min(flat_usd(network, switch, split)[0] for split in splits)
    else:
        usd, watts = media_table(network).usd_watts(np.array([2 * network.floor.rise_m]))
        powered = float(usd[0] + watts[0] * network.power_usd_per_watt)
        link = min(endpoint_factor(switch, split) for split in splits) * powered
    return link + switch_usd(network, switch) / (switch.ports * switch.breakout)


def min_fabric_usd(network: Network | None) -> float:
    """Price the least of any fabric for one cabled GPU, in dollars: its link and a port of the cheapest leaf."""
    if network is None:
        return 0.0
    return min((min_endpoint_usd(network, s) for s in network.switches if isinstance(s, Switch)), default=0.0)


def min_fabric_mw(network: Network | None) -> float:
    """Return the least power that any fabric takes for one cabled GPU, in MW."""
    if network is None:
        return 0.0
    return min((min_endpoint_mw(network, s) for s in network.switches if isinstance(s, Switch)), default=0.0)


def min_endpoint_mw(network: Network, switch: Switch) -> float:
    """Bound the power of a GPU's link and of the leaf's port at its end; by length, the link may be copper without."""
    link = 0.0
    if not by_reach(network):
        factor = min(endpoint_factor(switch, split) for split in (1, switch.breakout))
        link = network.cables.endpoint_transceivers * network.optics.power_watts * factor
    return (link + switch.power_watts / (switch.ports * switch.breakout)) / 1e6
