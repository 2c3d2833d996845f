"""What a fabric costs and draws: switches, and every cable by its length where the instance gives a floor and media."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner.instance.network import Network, Switch
from planner.physics.network.families import wiring_of
from planner.physics.network.lengths import CableRun
from planner.physics.network.links import MediaTable, Places, media_of
from planner.physics.network.topology import TIERS, Design
from planner.physics.site.cost import endpoint_link_usd, fabric_mw, fabric_usd, switch_link_usd


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
        ends, *links = _bills(network, d, wiring_of(d).runs)
    else:
        ends, *links = _flat(network, 0, d.endpoint_links), _flat(network, d.switch_links, 0)
    each = [(endpoint_factor(switch, d.split), ends), *((switch.link_factor, x) for x in links)]
    usd = sum(n * s.price_usd for n, s in boxes) + sum(factor * x.usd for factor, x in each)
    mw = sum(n * s.power_watts for n, s in boxes) / 1e6 + sum(factor * x.mw for factor, x in each)
    gateway = wan_gateway_bill(network, switch, d)
    return Bill(usd + mw * 1e6 * network.power_usd_per_watt + gateway.usd, mw + gateway.mw)


def wan_gateway_bill(network: Network, switch: Switch, d: Design) -> Bill:
    """Return the price and power of a WAN gateway's switches, amid the site, and of its links to the fabric.

    What faces the wide area is in the price of a wavelength.
    """
    if not d.wan_ports:
        return Bill(0.0, 0.0)
    switches = {"switches": d.wan_gateways, "switch_links": 0, "endpoint_links": 0}
    links = _flat(network, d.wan_gateway_links, 0)
    if by_reach(network):
        (links,) = _bills(network, d, wiring_of(d).wan_runs)
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


def _bills(network: Network, d: Design, runs: Callable[[Places, Design], Iterator[CableRun]]) -> Iterator[Bill]:
    """Yield the price and power of cables, run by run, where the instance has a floor."""
    if network.floor is None:
        return
    media = media_table(network)
    for metres, cables in runs(Places(network.floor, d.racks), d):
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
