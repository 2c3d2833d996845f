"""What a fabric costs and draws: boxes, and every cable by its length where the instance gives a floor and media."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.instance.network import Network, Switch
from planner.physics.network.cabling import pods_across, routers, zones_across
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.links import Ints, MediaTable, Metres, Places, media_of
from planner.physics.network.topology import Design
from planner.physics.site.cost import endpoint_link_usd, fabric_mw, fabric_usd, switch_link_usd

PAIRS = 1 << 18  # cables between groups measured at a time


@dataclass(frozen=True, slots=True)
class Bill:
    """Price, the watts over the years included, and power."""

    usd: float
    mw: float


def by_reach(network: Network) -> bool:
    """Tell whether links are priced by their length."""
    return network.floor is not None and bool(network.media)


def bill(network: Network, switch: Switch, d: Design) -> Bill:
    """Price a design and add up its power; infinite where no medium reaches."""
    boxes = {"switches": d.switches, "switch_links": 0, "endpoint_links": 0}
    ends, *links = (
        list(_links(network, d))
        if by_reach(network)
        else [_flat(network, 0, d.endpoint_links), _flat(network, d.switch_links, 0)]
    )
    each = [(endpoint_factor(switch, d.split), ends), *((switch.link_factor, x) for x in links)]
    usd = fabric_usd(network, switch, **boxes) + sum(factor * x.usd for factor, x in each)
    mw = fabric_mw(network, switch, **boxes) + sum(factor * x.mw for factor, x in each)
    edge = border_bill(network, switch, d)
    return Bill(usd + mw * 1e6 * network.power_usd_per_watt + edge.usd, mw + edge.mw)


def border_bill(network: Network, switch: Switch, d: Design) -> Bill:
    """Price a WAN gateway's boxes, amid the site, and its links to the top tier; the price of a wavelength holds what faces the wide area."""
    if not d.wan_ports:
        return Bill(0.0, 0.0)
    boxes = {"switches": d.wan_gateways, "switch_links": 0, "endpoint_links": 0}
    links = _flat(network, d.wan_gateway_links, 0)
    if by_reach(network) and network.floor is not None:
        links = _border_links(table(network), Places(network.floor, d.racks), d)
    usd = fabric_usd(network, switch, **boxes) + switch.link_factor * links.usd
    mw = fabric_mw(network, switch, **boxes) + switch.link_factor * links.mw
    return Bill(usd + mw * 1e6 * network.power_usd_per_watt, mw)


def _border_links(media: MediaTable, places: Places, d: Design) -> Bill:
    """Return a WAN gateway's links: to a top tier amid the site, or to the groups of a dragonfly in turn, each amid its racks."""
    if not isinstance(d, Dragonfly):
        return _sum(media, beside_metres(places), d.wan_gateway_links)
    usd, watts = media.usd_watts(border_metres(places, d.domain_racks * d.domains_per_pod))
    links = d.networks * wan_gateway_counts(d.wan_ports, d.pods, pods_across(d))
    return Bill(float((links * usd).sum()), float((links * watts).sum()) / 1e6)


def border_metres(places: Places, pod: int) -> Metres:
    """Return the length of a cable from the middle of the site to each place of groups of so many racks."""
    return spine_metres(places, np.arange(0, places.racks, pod, dtype=np.int64), pod)


def wan_gateway_counts(ports: int, groups: int, across: int) -> Ints:
    """Count the links that each place of groups has of a WAN gateway's ports in one network: groups in turn, `across` of them at a place."""
    return np.bincount(np.arange(ports) % groups // across, minlength=-(-groups // across))


def endpoint_factor(switch: Switch, split: int) -> float:
    """Price and power of a GPU's link over those of the network's optics, cables and media."""
    return switch.link_factor * (switch.breakout_link_factor if split > 1 else 1.0)


def _flat(network: Network, switch_links: int, endpoint_links: int) -> Bill:
    """Return links at the one price of their kind."""
    box = Switch(name="", ports=1, port_gbps=1, price_usd=0, power_watts=0)
    counts = {"switches": 0, "switch_links": switch_links, "endpoint_links": endpoint_links}
    return Bill(fabric_usd(network, box, **counts), fabric_mw(network, box, **counts))


def _links(network: Network, d: Design) -> Iterator[Bill]:
    """Yield the links of each stage, those of GPUs first: lengths by place, and as many cables to each."""
    floor = network.floor
    if floor is None:
        return
    places, media = Places(floor, d.racks), table(network)
    if isinstance(d, Dragonfly):
        yield from _group_links(media, places, d)
        return
    yield _sum(media, endpoint_metres(places, d.domain_racks), d.endpoint_links // d.racks)
    if d.tiers > 1:
        domain, pod = d.domain_racks, d.domain_racks * d.domains_per_pod
        yield _sum(
            media, leaf_metres(places, np.arange(0, d.racks, domain), domain, pod), d.networks * d.rails * d.leaf_up
        )
    if d.tiers > 2:
        pods, each = np.arange(0, d.racks, pod), d.networks * pods_across(d) * d.pod_uplinks
        yield _sum(
            media,
            leaf_metres(places, pods, pod, d.domain_racks * d.domains_per_zone)
            if d.tiers > 3
            else spine_metres(places, pods, pod),
            each,
        )
    if d.tiers > 3:
        zone = d.domain_racks * d.domains_per_zone
        yield _sum(
            media,
            spine_metres(places, np.arange(0, d.racks, zone), zone),
            d.networks * zones_across(d) * d.zone_uplinks,
        )


def _group_links(media: MediaTable, places: Places, d: Dragonfly) -> Iterator[Bill]:
    """Yield the links of a dragonfly: routers stand amid the racks of their group, the leaves of a dragonfly+ amid their domain's."""
    domain, pod, per_rack = d.domain_racks, d.domain_racks * d.domains_per_pod, d.endpoint_links // d.racks
    if routers(d):
        yield _sum(media, endpoint_metres(places, pod), per_rack)
        yield _sum(media, beside_metres(places), d.local_links)
    else:
        yield _sum(media, endpoint_metres(places, domain), per_rack)
        yield _sum(
            media, leaf_metres(places, np.arange(0, d.racks, domain), domain, pod), d.networks * d.rails * d.leaf_up
        )
    across, links = pods_across(d), d.networks * d.group_links
    yield _sum(media, beside_metres(places), links * len(range(0, d.racks, pod)) * (across * (across - 1) // 2))
    for metres in group_metres(places, pod):
        yield _sum(media, metres, links * across**2)


def _sum(media: MediaTable, metres: Metres, cables: int) -> Bill:
    """Return `cables` links of each length."""
    if not cables:
        return Bill(0.0, 0.0)
    usd, watts = media.usd_watts(metres)
    return Bill(cables * float(usd.sum()), cables * float(watts.sum()) / 1e6)


def table(network: Network) -> MediaTable:
    """Return the instance's media as a table."""
    return MediaTable.of(media_of(network), network.power_usd_per_watt)


def endpoint_metres(places: Places, domain: int) -> Metres:
    """Return the length of a cable from each rack to its leaves, in the middle of the domain."""
    rack = np.arange(places.racks, dtype=np.int64)
    first = rack // domain * domain
    return places.metres(places.middle(rack, rack + 1), places.middle(first, first + domain), spread=False)


def leaf_metres(places: Places, leaf: Ints, domain: int, pod: Ints | int) -> Metres:
    """Return the length of a cable from the leaves of the domains that begin at racks `leaf` to their spines, amid the pod's racks.

    Of four tiers also that from the spines of pods to their cores, amid the zone's racks.
    """
    first = leaf // pod * pod
    return places.metres(places.middle(leaf, leaf + domain), places.middle(first, first + pod), spread=True)


def spine_metres(places: Places, first: Ints, pod: Ints | int) -> Metres:
    """Return the length of a cable from the spines of the pods that begin at racks `first` to the cores, amid the site.

    Of four tiers that from the cores of zones to the super-cores.
    """
    site = np.zeros(1, dtype=np.int64)
    return places.metres(places.middle(first, first + pod), places.middle(site, site + places.racks), spread=True)


def beside_metres(places: Places) -> Metres:
    """Return the length of a cable between two switches of one middle."""
    middle = np.zeros((1, 2))
    return places.metres(middle, middle, spread=True)


def group_metres(places: Places, pod: int) -> Iterator[Metres]:
    """Yield the lengths of cables, one between each two places of groups of so many racks, some places at a time."""
    first = np.arange(0, places.racks, pod, dtype=np.int64)
    middle = places.middle(first, first + pod)
    step = max(1, PAIRS // len(first))
    for at in range(0, len(first), step):
        low, high = np.nonzero(np.arange(at, min(at + step, len(first)))[:, None] < np.arange(len(first)))
        if len(low):
            yield places.metres(middle[at + low], middle[high], spread=True)


def box_usd(network: Network, switch: Switch) -> float:
    """Price of a box with its power over the years."""
    return switch.price_usd + switch.power_watts * network.power_usd_per_watt


def flat_usd(network: Network, switch: Switch, split: int = 1) -> tuple[float, float]:
    """Price of a link to a GPU and of one between switches, with power over the years, where length does not count."""
    watts = network.optics.power_watts * network.power_usd_per_watt
    ends = endpoint_link_usd(network) + network.cables.endpoint_transceivers * watts
    up = switch_link_usd(network) + network.cables.switch_transceivers * watts
    return ends * endpoint_factor(switch, split), up * switch.link_factor


def least_endpoint_usd(network: Network, switch: Switch) -> float:
    """Price of a GPU's link and of the leaf's port at its end, at the least: the shortest cable, a box with every port in use."""
    if not by_reach(network) or network.floor is None:
        link = min(flat_usd(network, switch, split)[0] for split in (1, switch.breakout))
    else:
        usd, watts = table(network).usd_watts(np.array([2 * network.floor.rise_m]))
        link = min(endpoint_factor(switch, split) for split in (1, switch.breakout)) * float(
            usd[0] + watts[0] * network.power_usd_per_watt
        )
    return link + box_usd(network, switch) / (switch.ports * switch.breakout)
