"""The price and power of a fabric design: its switches, its links by length or flat, and bounds for any fabric."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner.instance.instance import Instance
from planner.instance.network import Network, Switch
from planner.physics.network.cable_lengths import Places
from planner.physics.network.clos_fabric import TIERS, CableRun, Design
from planner.physics.network.fabric_cables import MediaTable
from planner.physics.network.fabric_designs import FAMILIES, LANE_TOLERANCE, max_joined_racks, same_ports
from planner.physics.site.cost import link_usd


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of a fabric design: price in USD, the watts over the years included, and power in MW."""

    usd: float
    mw: float


def by_reach(network: Network) -> bool:
    """Return whether the cost of a network's fabric links is by their length."""
    return network.floor is not None and bool(network.media)


def models_of(switch: Switch, above: Sequence[Switch]) -> dict[str, Switch]:
    """Return the switch model by tier for a fabric design's cost: the leaf's where none is given above it."""
    return dict(zip(TIERS, (switch, *above, *[switch] * (len(TIERS) - 1 - len(above))), strict=True))


def bill(network: Network, switch: Switch, design: Design, above: Sequence[Switch] = ()) -> Bill:
    """Return the cost and power of a fabric design, of models `above` the leaf's; infinite where no medium reaches."""
    boxes = [(design.tier_switches[tier], model) for tier, model in models_of(switch, above).items()]
    ends, *links = _bills(network, design, design.runs, (0, design.endpoint_links), (design.switch_links, 0))
    each = [(endpoint_factor(switch, design.split), ends), *((switch.link_factor, link) for link in links)]
    usd = sum(count * switch.price_usd for count, switch in boxes) + sum(factor * part.usd for factor, part in each)
    mw = sum(count * box.power_watts for count, box in boxes) / 1e6 + sum(factor * part.mw for factor, part in each)
    gateway = wan_gateway_bill(network, switch, design)
    return Bill(usd + mw * 1e6 * network.power_usd_per_watt + gateway.usd, mw + gateway.mw)


def wan_gateway_bill(network: Network, switch: Switch, design: Design) -> Bill:
    """Return cost and power of a fabric's WAN gateway: its switches, amid the site, and its links to the fabric."""
    # The ports and optics towards the wide area are in the price of a wavelength.
    (links,) = _bills(network, design, design.wan_runs, (design.wan_gateway_links, 0))
    usd = design.wan_gateways * switch.price_usd + switch.link_factor * links.usd
    mw = design.wan_gateways * switch.power_watts / 1e6 + switch.link_factor * links.mw
    return Bill(usd + mw * 1e6 * network.power_usd_per_watt, mw)


def endpoint_factor(switch: Switch, split: int) -> float:
    """Return cost and power of a GPU's fabric link over those of other links, by its share of a split port."""
    least = switch.breakout_link_factor
    return switch.link_factor * (sorted((1.0, least, least * switch.breakout / split))[1] if split > 1 else 1.0)


def _bills(
    network: Network, design: Design, runs: Callable[[Places], Iterator[CableRun]], *flat: tuple[int, int]
) -> Iterator[Bill]:
    """Yield the price and power of a fabric design's cables run by run, or of (switch, endpoint) links at one price."""
    if network.floor is None or not by_reach(network):
        cables, (end_usd, up_usd) = network.cables, link_usd(network)
        for switch_links, endpoint_links in flat:
            modules = switch_links * cables.switch_transceivers + endpoint_links * cables.endpoint_transceivers
            yield Bill(switch_links * up_usd + endpoint_links * end_usd, modules * network.optics.power_watts / 1e6)
        return
    media = MediaTable.of(network.media, network.power_usd_per_watt)
    for metres, laid_cables in runs(Places(network.floor, design.racks)):
        count = np.broadcast_to(laid_cables, metres.shape)
        laid = count > 0  # a place with no cable needs no medium
        usd, watts = media.usd_watts(metres[laid])
        yield Bill(float((count[laid] * usd).sum()), float((count[laid] * watts).sum()) / 1e6)


def switch_usd(network: Network, switch: Switch) -> float:
    """Return the cost in USD of a fabric switch with its power over the years."""
    return switch.price_usd + switch.power_watts * network.power_usd_per_watt


def flat_usd(network: Network, switch: Switch, split: int = 1) -> tuple[float, float]:
    """Return the cost in USD of a fabric link of a GPU, and of one between switches, power included, without length."""
    cables, (ends, up) = network.cables, link_usd(network)
    watts = network.optics.power_watts * network.power_usd_per_watt
    ends = (ends + cables.endpoint_transceivers * watts) * endpoint_factor(switch, split)
    return ends, (up + cables.switch_transceivers * watts) * switch.link_factor


def min_fabric(network: Network | None) -> Bill:
    """Bound the cost and power of any fabric for one cabled GPU, each by itself: shortest link, full leaf's port."""
    if network is None:
        return Bill(0.0, 0.0)
    found = list[Bill]()
    for box in network.switches:
        splits, gpus = (1, box.breakout), box.ports * box.breakout
        factor = min(endpoint_factor(box, split) for split in splits)
        if network.floor is None or not by_reach(network):
            least_usd = min(flat_usd(network, box, split)[0] for split in splits)
            least_watts = network.cables.endpoint_transceivers * network.optics.power_watts * factor
        else:
            media = MediaTable.of(network.media, network.power_usd_per_watt)
            usd, watts = media.usd_watts(np.array([2 * network.floor.rise_m]))
            least_usd = factor * float(usd[0] + watts[0] * network.power_usd_per_watt)
            least_watts = 0.0  # it may be copper, which takes none
        found.append(Bill(least_usd + switch_usd(network, box) / gpus, (least_watts + box.power_watts / gpus) / 1e6))
    return Bill(min(x.usd for x in found), min(x.mw for x in found))


def min_uplinks(instance: Instance, wired_gpus: int) -> list[tuple[float, float]]:
    """Compute the least cost of a fabric's uplinks: racks from which leaves, or spines, need some, and USD a rack."""
    # They are those that the ratios ask for by the rate of a rack's GPUs, with a port at either end.
    network = instance.network
    if network is None or any(FAMILIES[family].design.grouped for family in network.families):
        return []
    boxes = network.switches
    port_usd = {box.name: switch_usd(network, box) / box.ports for box in boxes}
    each = [
        ((0.0 if by_reach(network) else flat_usd(network, box)[1]) + port_usd[box.name] + above) / box.port_gbps
        for box in boxes
        for above in [min(port_usd[x.name] for x in boxes if x is box or same_ports(x, box))]
    ]
    gbps = wired_gpus * instance.hardware.gpu_nic_bytes_per_second * 8 / 1e9 * (1 - LANE_TOLERANCE)
    leaf, spine, _ = network.tier_ratios
    shares = max(network.asked_core_share, 1 / leaf), max(network.asked_core_share, 1 / (leaf * spine))
    joined = (max_joined_racks(instance.replaced(network__max_tiers=tiers), wired_gpus) for tiers in (1, 2))
    prices = (share * gbps * min(each, default=0.0) for share in shares)
    return [(racks, usd) for racks, usd in zip(joined, prices, strict=True) if usd and math.isfinite(racks)]
