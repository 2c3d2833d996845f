"""The cables of a fabric design port to port, their lengths in metres, and the cheapest medium of each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from planner.instance.network import Floor, Medium
from planner.physics.network.cable_lengths import Metres, Places
from planner.physics.network.clos_fabric import Design, Ends, Ints, Stage

ROUNDING = 1e-9  # relative, of sums of lengths
NO_MEDIUM = -1  # index of the medium where none reaches
WAN_GATEWAY = "wan-gateway"  # the tier of the switches at which the wide area ends
BLOCK = 1 << 16  # cables laid at a time: a few MB of numbers, and large enough for numpy


@dataclass(frozen=True, slots=True)
class StageCables:
    """Some of the fabric cables of one stage of a design: the switch and port at each end."""

    low_tier: str
    high_tier: str
    low: Ints
    low_port: Ints
    high: Ints
    high_port: Ints


def lay(design: Design, *, block: int = BLOCK) -> Iterator[StageCables]:
    """Yield every fabric cable of a design once, port to port, block by block; the design can be wired."""
    for stage in stages(design):
        for first in range(0, stage.count, block):
            numbers = np.arange(first, min(first + block, stage.count), dtype=np.int64)
            yield StageCables(stage.low, stage.high, *stage.ends(numbers))


def stages(design: Design) -> list[Stage]:
    """Return the stages of a design's fabric cables from the GPUs up, its WAN gateway's last."""

    def endpoints(link: Ints) -> Ends:  # set g of a domain meets at leaf g, or all at one switch
        gpu, lane = link // design.lanes, link % design.lanes
        rack, index = gpu // design.gpus_per_rack, gpu % design.gpus_per_rack
        apart, own = index // (design.rails * design.rail_gpus), index % (design.rails * design.rail_gpus)
        network = apart * design.lanes + lane
        if design.single:
            return gpu, lane, network, rack * design.rails * design.rail_gpus + own
        leaf = rack // design.domain_racks * design.rails + own // design.rail_gpus
        port = rack % design.domain_racks * design.rail_gpus + own % design.rail_gpus
        return gpu, lane, network * design.domains * design.rails + leaf, port

    all_stages = [Stage("gpu", "leaf", design.endpoint_links, endpoints), *design.stages()]

    def wan_gateway_uplinks(link: Ints) -> Ends:
        network, own = link // design.wan_ports, link % design.wan_ports
        switches = design.wan_gateways // design.networks
        low_port = -(-design.wan_ports // switches) + own // switches  # after those to the wide area
        return network * switches + own % switches, low_port, *design.wan_ends(network, own)

    if design.wan_ports:
        all_stages.append(Stage(WAN_GATEWAY, design.top[0], design.wan_gateway_links, wan_gateway_uplinks))
    return all_stages


def switch_counts(design: Design) -> dict[str, int]:
    """Count the switches that a design's fabric cables join by tier, those of its WAN gateway among them."""
    return {tier: count for tier, count in (design.tier_switches | {WAN_GATEWAY: design.wan_gateways}).items() if count}


def lengths(design: Design, floor: Floor) -> Callable[[StageCables], Metres]:
    """Return a function from a block of a design's fabric cables to their lengths in metres."""
    places = Places(floor, design.racks)
    middles = {tier: places.runs(design.racks_around(tier)) for tier in ("gpu", *switch_counts(design))}

    def measure(cables: StageCables) -> Metres:
        low = middles[cables.low_tier][_place(design, cables.low_tier, cables.low)]
        high = middles[cables.high_tier][_place(design, cables.high_tier, cables.high)]
        return places.metres(low, high, spread=cables.low_tier != "gpu")

    return measure


def _place(design: Design, tier: str, index: Ints) -> Ints:
    """Return the place on the floor of a design's GPUs or switches of a tier: the run of racks that they serve."""
    if tier == "gpu":
        return index // design.gpus_per_rack
    if tier == "leaf":
        domain = index % (design.domains * design.rails) // design.rails
        return domain * design.domain_racks // design.racks_around("leaf")
    if tier == "spine":
        return index // design.spines_per_pod % design.pods // design.pods_across
    if tier == "core" and design.tiers > 3:
        return index // design.zone_cores % design.zones // design.zones_across
    return np.zeros_like(index)


@dataclass(frozen=True, slots=True)
class MediaTable:
    """The media of fabric cables (copper, optics) as columns, to price links of many lengths at once."""

    price_usd: Metres
    usd_per_m: Metres
    watts: Metres
    ends: Metres  # of the stretches of length in each of which one medium is the cheapest
    cheapest: Ints  # of each stretch, and behind them none

    @classmethod
    def of(cls, media: tuple[Medium, ...], usd_per_watt: float = 0.0) -> "MediaTable":
        """Return the table of some media of fabric cables, where a watt over the years is worth `usd_per_watt`."""
        columns = [[medium.reach_m, medium.price_usd, medium.usd_per_m, medium.power_watts] for medium in media]
        reach, price, per_m, watts = np.array(columns, dtype=np.float64).reshape(-1, 4).T
        # A medium gives way to another at its reach, or where their prices are the same.
        powered, other = price + watts * usd_per_watt, per_m[:, None] - per_m
        same = (powered - powered[:, None])[other != 0] / other[other != 0]
        ends = np.unique(np.concatenate([reach, same[(same > 0) & (same < reach.max(initial=0.0))]]))
        inside = (ends + np.concatenate([[0.0], ends[:-1]])) / 2
        each = np.where(inside <= reach[:, None], powered[:, None] + per_m[:, None] * inside, np.inf)
        cheapest = each.argmin(axis=0) if len(media) else np.empty(0, np.int64)
        return cls(price, per_m, watts, ends, np.append(cheapest, NO_MEDIUM))

    def choose(self, metres: Metres) -> Ints:
        """Return for each fabric cable's length the cheapest medium with its power, by index; NO_MEDIUM: none."""
        # A length of sums of pitches may be above its reach by their rounding.
        return np.asarray(self.cheapest[np.searchsorted(self.ends, np.asarray(metres) * (1 - ROUNDING))])

    def usd_watts(self, metres: Metres) -> tuple[Metres, Metres]:
        """Return USD and watts of a fabric cable of each length in metres; an infinite price: no medium reaches."""
        at = self.choose(metres)
        usd = np.where(at == NO_MEDIUM, np.inf, self.price_usd[at] + self.usd_per_m[at] * metres)
        return usd, np.where(at == NO_MEDIUM, 0.0, self.watts[at])
