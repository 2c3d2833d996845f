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


def lay(design: Design, *, block: int = BLOCK) -> Iterator[StageCables]:
    """Yield every cable of a design once, block by block; the design can be wired."""
    for stage in stages(design):
        for first in range(0, stage.count, block):
            numbers = np.arange(first, min(first + block, stage.count), dtype=np.int64)
            yield StageCables(stage.low, stage.high, *stage.ends(numbers))


def stages(design: Design) -> list[Stage]:
    """Return the stages of a design from the GPUs up."""
    all_stages = [Stage("gpu", "leaf", design.endpoint_links, lambda link: _endpoints(design, link)), *design.stages()]
    if design.wan_ports:
        all_stages.append(
            Stage(WAN_GATEWAY, design.top[0], design.wan_gateway_links, lambda link: _wan_gateway_uplinks(design, link))
        )
    return all_stages


def switch_counts(design: Design) -> dict[str, int]:
    """Return the switches of each tier that a design has, its WAN gateway among them."""
    return {tier: count for tier, count in (design.tier_switches | {WAN_GATEWAY: design.wan_gateways}).items() if count}


def _endpoints(design: Design, link: Ints) -> Ends:
    """Return the ends of GPU links: set g of the racks of a domain meets at its leaf g; lanes go to networks in turn.

    A single switch takes its GPUs in order.
    """
    gpu, lane = link // design.lanes, link % design.lanes
    rack, index = gpu // design.gpus_per_rack, gpu % design.gpus_per_rack
    apart, own = index // (design.rails * design.rail_gpus), index % (design.rails * design.rail_gpus)
    network = apart * design.lanes + lane
    if design.single:
        return gpu, lane, network, rack * design.rails * design.rail_gpus + own
    leaf = rack // design.domain_racks * design.rails + own // design.rail_gpus
    port = rack % design.domain_racks * design.rail_gpus + own % design.rail_gpus
    return gpu, lane, network * design.domains * design.rails + leaf, port


def _wan_gateway_uplinks(design: Design, link: Ints) -> Ends:
    network, own = link // design.wan_ports, link % design.wan_ports
    switches = design.wan_gateways // design.networks
    low_port = design.wan_gateway_side + own // switches
    return network * switches + own % switches, low_port, *design.wan_ends(network, own)


def lengths(design: Design, floor: Floor) -> Callable[[StageCables], Metres]:
    """Return a function from a block of cables to their lengths in metres; places are computed once."""
    places, middles = Places(floor, design.racks), {}
    for tier in ("gpu", *switch_counts(design)):
        first = np.arange(0, design.racks, design.racks_around(tier), dtype=np.int64)
        middles[tier] = places.middle(first, first + design.racks_around(tier))

    def measure(cables: StageCables) -> Metres:
        low, high = (
            middles[cables.low_tier][_place(design, cables.low_tier, cables.low)],
            middles[cables.high_tier][_place(design, cables.high_tier, cables.high)],
        )
        return places.metres(low, high, spread=cables.low_tier != "gpu")

    return measure


def _place(design: Design, tier: str, index: Ints) -> Ints:
    """Return the place of GPUs or switches of a tier, all networks alike: the number of the run of racks they serve."""
    if tier == "gpu":
        return index // design.gpus_per_rack
    if tier == "leaf":
        return (
            index % (design.domains * design.rails) // design.rails * design.domain_racks // design.racks_around("leaf")
        )
    if tier == "spine":
        return index // design.spines_per_pod % design.pods // design.pods_across
    if tier == "core" and design.tiers > 3:
        return index // design.zone_cores % design.zones // design.zones_across
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


def bill(network: Network, switch: Switch, design: Design, above: Sequence[Switch] = ()) -> Bill:
    """Return the price of a design and its power; infinite where no medium reaches.

    `switch` is the leaf's model, `above` are those of the tiers above it, which have the same ports.
    """
    boxes = [(design.tier_switches[tier], model) for tier, model in models_of(switch, above).items()]
    if by_reach(network):
        ends, *links = _bills(network, design, design.runs)
    else:
        ends, *links = _flat(network, 0, design.endpoint_links), _flat(network, design.switch_links, 0)
    each = [(endpoint_factor(switch, design.split), ends), *((switch.link_factor, link) for link in links)]
    usd = sum(count * switch.price_usd for count, switch in boxes) + sum(factor * part.usd for factor, part in each)
    mw = sum(count * box.power_watts for count, box in boxes) / 1e6 + sum(factor * part.mw for factor, part in each)
    gateway = wan_gateway_bill(network, switch, design)
    return Bill(usd + mw * 1e6 * network.power_usd_per_watt + gateway.usd, mw + gateway.mw)


def wan_gateway_bill(network: Network, switch: Switch, design: Design) -> Bill:
    """Return the price and power of a WAN gateway's switches, amid the site, and of its links to the fabric.

    The ports and optics towards the wide area are in the price of a wavelength.
    """
    if not design.wan_ports:
        return Bill(0.0, 0.0)
    switches = {"switches": design.wan_gateways, "switch_links": 0, "endpoint_links": 0}
    links = _flat(network, design.wan_gateway_links, 0)
    if by_reach(network):
        (links,) = _bills(network, design, design.wan_runs)
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


def _bills(network: Network, design: Design, runs: Callable[[Places], Iterator[CableRun]]) -> Iterator[Bill]:
    """Yield the price and power of cables, run by run, where the instance has a floor."""
    if network.floor is None:
        return
    media = media_table(network)
    for metres, cables in runs(Places(network.floor, design.racks)):
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
    return min((min_endpoint_usd(network, box) for box in network.switches if isinstance(box, Switch)), default=0.0)


def min_fabric_mw(network: Network | None) -> float:
    """Return the least power that any fabric takes for one cabled GPU, in MW."""
    if network is None:
        return 0.0
    return min((min_endpoint_mw(network, box) for box in network.switches if isinstance(box, Switch)), default=0.0)


def min_endpoint_mw(network: Network, switch: Switch) -> float:
    """Bound the power of a GPU's link and of the leaf's port at its end; by length, the link may be copper without."""
    link = 0.0
    if not by_reach(network):
        factor = min(endpoint_factor(switch, split) for split in (1, switch.breakout))
        link = network.cables.endpoint_transceivers * network.optics.power_watts * factor
    return (link + switch.power_watts / (switch.ports * switch.breakout)) / 1e6
