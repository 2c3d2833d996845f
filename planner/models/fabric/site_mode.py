"""One switch in one family at one site: its ports, prices of links, pins and loads, which all builders read."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.instance.network import FabricFamily, Network, Switch
from planner.models.fabric.design_table import KEY, DesignTable, DominanceTest, Flags, Floats, Ints, no_options
from planner.models.fabric.traffic import ALLREDUCES, EXCHANGES, FLOWS, SHARES, Loads, SiteTraffic
from planner.models.requests import resolved_switches
from planner.physics.network.fabric_designs import (
    FAMILIES,
    by_reach,
    endpoint_factor,
    flat_usd,
    media_table,
    switch_usd,
)
from planner.physics.network.links import (
    MediaTable,
    Metres,
    Places,
    adjacent_metres,
    endpoint_metres,
    group_metres,
    group_wan_links,
    group_wan_metres,
    lanes_of,
    leaf_metres,
    spare_ports,
    spine_metres,
)
from planner.physics.network.transport import leaf_ports, wan_ports

TOLERANCE = 1e-9  # relative, on slowdowns: 1.05 · 4 must count as within 4.2


@dataclass(frozen=True, slots=True)
class Mode:
    """A switch in one of the families: how a rack's GPUs meet at its ports, and over how many networks."""

    switch: Switch
    family: FabricFamily
    rails: int
    rail_gpus: int
    apart: int
    lanes: int
    split: int = 1

    @property
    def networks(self) -> int:
        """Networks side by side."""
        return self.apart * self.lanes

    @property
    def planes(self) -> int:
        """Planes of chips over all lanes of a NIC."""
        return self.switch.planes * self.lanes

    @property
    def grouped(self) -> bool:
        """Whether pods are groups joined directly, as of a dragonfly."""
        return FAMILIES[self.family].design.grouped

    def spare(self, network: Network, used: int) -> int:
        """Return the ports of a leaf kept free."""
        return spare_ports(used, network.spares)


def switch_modes(network: Network, gpus: int, nic_bytes_per_second: float) -> Iterator[Mode]:
    """Yield every switch in every family, for racks of `gpus` GPUs, a NIC split over as many lanes as carry it."""
    for s in resolved_switches(network.switches):
        lanes = lanes_of(s, nic_bytes_per_second)
        if lanes > network.max_lanes:
            continue
        for family in dict.fromkeys(network.families):
            for split in splits(s, nic_bytes_per_second):
                yield Mode(s, family, *FAMILIES[family].rack_ports(gpus), lanes, split)


def splits(switch: Switch, nic_bytes_per_second: float) -> Iterator[int]:
    """Yield 1, 2, 4 and so on: parts of a port that still carry a NIC, as many as the switch allows."""
    split = 1
    while split <= switch.breakout and (
        split == 1 or nic_bytes_per_second * 8 * split <= switch.port_gbps * 1e9 * (1 + TOLERANCE)
    ):
        yield split
        split *= 2


Price = tuple[float, float]  # dollars, power over the years included, and MW
FREE: Price = (0.0, 0.0)


def plus(a: Price, b: Price) -> Price:
    """Add two prices."""
    return a[0] + b[0], a[1] + b[1]


def times(n: float, a: Price) -> Price:
    """Multiply a price by n; zero links are free, even where no medium reaches and the price is infinite."""
    return (n * a[0], n * a[1]) if n else FREE


@dataclass(kw_only=True)
class LinkPrices:
    """Prices in USD and power in MW of the links of one mode at a site of `racks` racks, summed over all networks.

    `known` caches the price of one link over each set of lengths, which all modes of a site share.
    """

    network: Network
    mode: Mode
    racks: int
    known: dict[tuple[str, int, int, int], Price] = field(default_factory=dict)

    @cached_property
    def places(self) -> Places | None:
        """The floor, where links are priced by length."""
        floor = self.network.floor
        return Places(floor, self.racks) if floor is not None and by_reach(self.network) else None

    @cached_property
    def media(self) -> MediaTable:
        """The kinds of cable."""
        return media_table(self.network)

    @cached_property
    def switch(self) -> Price:
        """A leaf, and a switch of any tier that has its model."""
        return self.box(self.mode.switch)

    def box(self, switch: Switch) -> Price:
        """Price a switch of any model."""
        return switch_usd(self.network, switch), switch.power_watts / 1e6

    @cached_property
    def flat_link(self) -> Price:
        """A link between two switches, by no length."""
        n, s = self.network, self.mode.switch
        watts = n.cables.switch_transceivers * n.optics.power_watts * s.link_factor
        return flat_usd(n, s)[1], watts / 1e6

    def endpoints(self, domain: int) -> Price:
        """Price all links between GPUs and leaves, each leaf amid the `domain` racks of its domain."""
        m, n = self.mode, self.network
        ends, factor = m.networks * m.rails * m.rail_gpus, endpoint_factor(m.switch, m.split)
        if self.places is None:
            watts = n.cables.endpoint_transceivers * n.optics.power_watts * factor
            return times(self.racks * ends, (flat_usd(n, m.switch, m.split)[0], watts / 1e6))
        places = self.places
        one = self._sum(("endpoints", domain, 0, 0), lambda: endpoint_metres(places, domain))
        return times(ends * factor, one)

    def leaf_uplink(self, domain: int, width: int) -> Price:
        """Price one uplink of every leaf, with pods of `width` domains of `domain` racks."""
        m = self.mode
        if self.places is None:
            return times(m.networks * m.rails * -(-self.racks // domain), self.flat_link)
        places = self.places
        one = self._sum(
            ("leaf", domain, width, 0),
            lambda: leaf_metres(places, np.arange(0, places.racks, domain), domain, domain * width),
        )
        return times(m.networks * m.rails * m.switch.link_factor, one)

    def spine_uplink(self, pod: int, rails: int, zone: int = 0) -> Price:
        """Price one uplink of one spine of every pod of `pod` racks and `rails` rails, or of one core of every zone.

        The switches above are amid the site, or amid zones of `zone` racks.
        """
        m = self.mode
        across = -(-m.rails // rails)
        if self.places is None:
            return times(m.networks * across * -(-self.racks // pod), self.flat_link)
        places = self.places

        def metres() -> Metres:
            first = np.arange(0, places.racks, pod)
            return leaf_metres(places, first, pod, zone) if zone else spine_metres(places, first, pod)

        return times(m.networks * across * m.switch.link_factor, self._sum(("spine", pod, zone, 0), metres))

    def wan_gateway(self, ports: int) -> Price:
        """Price the WAN gateway switches of all networks, without their links."""
        m = self.mode
        return times(m.networks * -(-ports // max(1, m.switch.ports // 2)), self.switch) if ports else FREE

    def adjacent_links(self, links: int) -> Price:
        """Price `links` links in each network between switches that are placed together."""
        m = self.mode
        if self.places is None:
            return times(links * m.networks, self.flat_link)
        if not links:
            return FREE
        places = self.places
        one = self._sum(("adjacent", 0, 0, 0), lambda: adjacent_metres(places))
        return times(links * m.networks * m.switch.link_factor, one)

    def between(self, pod: int, rails: int) -> Price:
        """Price one link between each two groups, each of `pod` racks and `rails` rails."""
        m = self.mode
        across, places = -(-m.rails // rails), self.places
        along = -(-self.racks // pod)
        if places is None:
            groups = across * along
            return times(m.networks * (groups * (groups - 1) // 2), self.flat_link)
        if ("between", pod, 0, 0) not in self.known:
            each = [self._priced(metres) for metres in group_metres(places, pod)]
            self.known["between", pod, 0, 0] = (
                sum(float(usd.sum()) for usd, _ in each),
                sum(float(mw.sum()) for _, mw in each),
            )
        apart = times(across**2, self.known["between", pod, 0, 0])
        together = self.adjacent_links(along * (across * (across - 1) // 2))
        return plus(times(m.networks * m.switch.link_factor, apart), together)

    def group_wan(self, pod: int, rails: int, ports: int) -> Price:
        """Price the `ports` links of every network's WAN gateway to its groups of `pod` racks and `rails` rails."""
        m = self.mode
        across, places = -(-m.rails // rails), self.places
        if not ports or places is None:
            return self.adjacent_links(ports)
        usd, mw = self._priced(group_wan_metres(places, pod))
        links = group_wan_links(ports, len(usd) * across, across)
        some = links > 0
        total = float((links[some] * usd[some]).sum()), float((links[some] * mw[some]).sum())
        return times(m.networks * m.switch.link_factor, total)

    def _sum(self, key: tuple[str, int, int, int], metres: Callable[[], Metres]) -> Price:
        if key not in self.known:
            usd, mw = self._priced(metres())
            self.known[key] = float(usd.sum()), float(mw.sum())
        return self.known[key]

    def _priced(self, metres: Metres) -> tuple[Metres, Metres]:
        """Return price, power over the years included, and MW of a cable of each length."""
        usd, watts = self.media.usd_watts(metres)
        return usd + watts * self.network.power_usd_per_watt, watts / 1e6


Pins = Mapping[str, Any]
BELOW = 1 - 1e-12  # times a price: a template that another merely equals is left to the comparison of whole tables


@dataclass(kw_only=True)
class SiteMode:
    """The inputs from which the templates of one mode at one site are built.

    `front` holds the templates found so far, which later ones must beat in something.
    """

    network: Network
    mode: Mode
    index: int  # of the mode
    pins: Pins
    traffic: SiteTraffic
    blocks: int
    loads: Loads
    transport_slowdown: float
    power_counts: bool
    whole: bool
    max_usd: float
    max_slowdowns: tuple[float, float]
    prices: LinkPrices
    tick: Callable[[], None]  # raises where the time is over
    pairs: tuple[tuple[int, int], ...] = ((0, 0),)  # that spines and cores may be of
    spine: int = 0  # model of spines: its place in network.switches, from 1; 0 where it is the leaf's
    core: int = 0  # the same of cores
    front: DominanceTest = field(default_factory=lambda: DominanceTest(no_options(), power_counts=False))

    @cached_property
    def racks(self) -> int:
        """Racks of the site that are cabled."""
        return self.traffic.racks(self.blocks)

    @property
    def ports(self) -> int:
        """Ports of a leaf."""
        return self.mode.switch.ports

    def with_models(self, pairs: tuple[tuple[int, int], ...] = ()) -> Iterator["SiteMode"]:
        """Yield the site with each pair of models that spines and cores may be of, or with some of them."""
        for spine, core in pairs or self.pairs:
            yield self if (spine, core) == (self.spine, self.core) else replace(self, spine=spine, core=core)

    @cached_property
    def boxes(self) -> tuple[Switch, Switch]:
        """The models of spines and cores."""
        leaf, every = self.mode.switch, resolved_switches(self.network.switches)
        return every[self.spine - 1] if self.spine else leaf, every[self.core - 1] if self.core else leaf

    @cached_property
    def upper_models(self) -> list[Switch]:
        """Every model that spines or cores may be of."""
        return list({x.boxes[k].name: x.boxes[k] for x in self.with_models() for k in (0, 1)}.values())

    @property
    def spine_ports(self) -> int:
        """Ports of a spine."""
        return self.boxes[0].ports

    @property
    def core_ports(self) -> int:
        """Ports of a core."""
        return self.boxes[1].ports

    @cached_property
    def box_prices(self) -> tuple[Price, Price]:
        """Price and power of a spine, and of a core."""
        return self.prices.box(self.boxes[0]), self.prices.box(self.boxes[1])

    @cached_property
    def wan_ports(self) -> int:
        """Ports of a network's WAN gateway towards the wide area."""
        return wan_ports(self.traffic.wan_gbps, self.mode.networks, self.mode.switch.port_gbps)

    @cached_property
    def exchange_ports(self) -> float:
        """Uplinks' worth that gradients to other sites take of a leaf whose domain has a whole stage."""
        m = self.mode
        return leaf_ports(self.traffic.exchange_gbps, m.networks * m.rails, m.switch.port_gbps)

    @property
    def stripes(self) -> Iterator[int]:
        """Numbers of stripes that pins allow."""
        wanted, barred = self.pins.get("stripes"), self.pins.get("not_stripes")
        return (n for n in range(1, self.traffic.stages + 1) if wanted in (None, n) and n != barred)

    def domains(self, domain: int) -> int:
        """Count the leaf domains of `domain` racks at the site."""
        return -(-self.racks // domain)

    def uplinks(self, domain: int) -> int:
        """Count the ports of a leaf that remain for uplinks after the GPUs of `domain` racks and the spare ports."""
        m, down = self.mode, domain * self.mode.rail_gpus
        return m.switch.ports - -(-(down + m.spare(self.network, down)) // m.split)

    def leaf_share(self, domain: int) -> int:
        """Count the uplinks that a leaf of `domain` racks needs for the core share and the losses to be survived."""
        n, gpus = self.network, domain * self.mode.rail_gpus
        least = max(n.asked_core_share, 1 / n.tier_ratios[0])
        share = math.ceil(gpus * least / self.mode.split * (1 - TOLERANCE))
        return share if n.survives is None else max(share, n.asked_leaf_uplinks)

    def domain_sizes(self) -> list[int]:
        """List the sizes of leaf domains, the largest first.

        Whole multiples of the traffic's grain, no more than the site has unless a pin says so, and a port left for an
        uplink.
        """
        grain, width = self.traffic.grain, self.mode.rail_gpus
        most = self.mode.switch.ports * self.mode.split // width
        sizes: list[int] = list(range(grain, min(most, self.racks) + 1, grain))
        wanted, down = self.pins.get("leaf_domain_racks"), self.pins.get("leaf_down_ports")
        if down is not None:
            wanted = down // width if down % width == 0 and wanted in (None, down // width) else 0
        if wanted is not None:
            sizes = [wanted] if wanted > 0 and (wanted % grain == 0 or wanted >= self.racks) else []
        allowed = self.pins.get("leaf_sizes")
        return [
            d
            for d in reversed(sizes)
            if (allowed is None or d in allowed) and self.uplinks(d) >= max(1, self.leaf_share(d))
        ]

    def leaf_slowdowns(self, domain: int, up: Floats | Ints, load: Floats) -> tuple[Floats, Floats]:
        """Return the slowdowns over the transport's own that the uplinks of leaves cause; 1 at the least."""
        m = self.mode
        free = 1 - self.exchange_ports * load[..., SHARES] / up if self.exchange_ports else np.asarray(1.0)
        send = load[..., FLOWS] / domain * (domain * m.rail_gpus / (up * m.split))
        allreduce = load[..., ALLREDUCES] / (up * m.split / m.rail_gpus)
        return np.maximum(1.0, over(send, free)), np.maximum(1.0, over(allreduce, free))

    def leaf_fits(self, up: Floats | Ints, load: Floats) -> Flags:
        """Return whether a leaf's uplinks carry the exchanges between sites and of experts at once without slowdown."""
        m = self.mode
        needed = load[..., EXCHANGES] * m.rail_gpus / m.split + self.exchange_ports * load[..., SHARES]
        fits: Flags = needed <= np.asarray(up) * (1 + TOLERANCE)
        return fits

    def block_fits(self, links: Floats | Ints, load: Floats, rails: Ints) -> Flags:
        """Return whether the links out of pods or zones of `rails` rails carry both exchanges without slowdown."""
        m = self.mode
        gone = self.exchange_ports * load[..., SHARES] * np.minimum(m.rails, rails)
        fits: Flags = load[..., EXCHANGES] * m.rail_gpus * rails / m.split + gone <= np.asarray(links) * (1 + TOLERANCE)
        return fits

    def fixed(self, domain: int) -> Price:
        """Price the parts that a leaf domain's size alone decides: links to GPUs, leaves, and a tree's WAN gateway."""
        m, p = self.mode, self.prices
        leaves = m.networks * m.rails * self.domains(domain)
        own = p.endpoints(domain)[0] + leaves * p.switch[0], p.endpoints(domain)[1] + leaves * p.switch[1]
        return plus(own, self.tree_wan)

    @cached_property
    def tree_wan(self) -> Price:
        """Price of a WAN gateway and its links to the top tier of a tree, placed next to it."""
        return plus(self.prices.wan_gateway(self.wan_ports), self.prices.adjacent_links(self.wan_ports))

    def worthwhile_domains(self, domains: list[int]) -> list[int]:
        """Return the sizes of leaf domains whose trees may be worth it if they slow nothing, by their least price."""
        usd, mw = self.least_prices(domains)
        may = self.worthwhile(1.0, 1.0, usd, mw)
        return [domains[i] for i in np.argsort(usd, kind="stable").tolist() if may[i]]

    def least_prices(self, domains: list[int]) -> tuple[Floats, Floats]:
        """Bound the price and power of trees with leaf domains of some sizes.

        They take the uplinks of each leaf that the core share asks for, at least one, and the ports of spines at their
        ends; links cost something where they have one price.
        """
        p, m = self.prices, self.mode
        boxes = [(p.box(x), x.ports) for x in self.upper_models]
        port = [m.networks * min(price[i] / ports for price, ports in boxes) for i in (0, 1)]
        up = np.array([max(1, self.leaf_share(d)) for d in domains], dtype=np.int64)
        fixed = np.array([self.fixed(d) for d in domains]).reshape(-1, 2).T
        leaves = m.rails * -(-self.racks // np.array(domains, dtype=np.int64))
        out = self.links_out(self.crossings, leaves * up)
        link, above = (0.0, 0.0) if p.places else p.flat_link, (0.0, 0.0) if p.places else p.flat_link
        usd, mw = (
            BELOW
            * (fixed[i] + m.networks * (up * leaves * link[i] + out * above[i]) + (leaves * up + 2 * out) * port[i])
            for i in (0, 1)
        )
        return usd, mw

    @property
    def crossings(self) -> int:
        """Tiers above the leaves that pins ask to join several blocks."""
        tiers = self.pins.get("tiers", 0)
        return {3: 1, 4: 2}.get(tiers, 0) if min(self.pins.get("min_pods", 1), self.pins.get("min_zones", 1)) > 1 else 0

    def links_out(self, crossings: int, leaf_links: Ints) -> Floats:
        """Bound the links out of pods and zones, `crossings` tiers of them, by the core share and the ratio of spines.

        `leaf_links`: uplinks of all leaves.
        """
        m, n = self.mode, self.network
        share = crossings * self.racks * m.rails * m.rail_gpus * n.asked_core_share / m.split
        links: Floats = np.maximum(share, leaf_links * (min(crossings, 1) / n.tier_ratios[1] * (1 - TOLERANCE)))
        return links

    def worthwhile_uplinks(self, domain: int, leaf_loads: Floats, *, switches: int = 0, crossings: int = 0) -> Ints:
        """Return the uplinks of a leaf at which some tree with leaf domains of a size may beat the templates so far.

        The tree is priced with the fewest spines that have ports for all uplinks, and `switches` switches more, and is
        as slow as its leaves under the best number of stripes in `leaf_loads`. `crossings`: tiers above the leaves with
        several blocks, so that each block has the links out that the core share needs.
        """
        m, p, fixed = self.mode, self.prices, self.fixed(domain)
        up = np.arange(max(1, self.leaf_share(domain)), self.uplinks(domain) + 1)
        if "leaf_up_ports" in self.pins:
            up = up[up == self.pins["leaf_up_ports"]]
        ends = m.rails * self.domains(domain) * up
        out = self.links_out(max(crossings, self.crossings), ends)
        # Upper tiers are of any models allowed: each figure is bounded by the model with the least of it.
        every = self.upper_models
        counts = [np.maximum(-(-ends // x.ports) + switches, (ends + 2 * out) / x.ports) for x in every]
        boxes = [np.min([n * p.box(x)[i] for n, x in zip(counts, every, strict=True)], axis=0) for i in (0, 1)]
        link, above = (FREE, FREE) if p.places else (p.leaf_uplink(domain, 1), p.flat_link)
        usd, mw = (BELOW * (fixed[i] + up * link[i] + m.networks * (boxes[i] + out * above[i])) for i in (0, 1))
        kept = np.flatnonzero(self.worthwhile(1.0, 1.0, usd, mw))
        if not len(kept):
            return kept
        up, usd, mw = up[kept], usd[kept], mw[kept]
        send, allreduce = self.leaf_slowdowns(domain, up, leaf_loads[:, None])
        found: Ints = up[self.worthwhile(send, allreduce, usd, mw).any(axis=0)]
        return found

    def table(self, send: Floats, allreduce: Floats, usd: Floats, mw: Floats, **columns: Ints | int) -> DesignTable:
        """Return templates of this mode with the columns of their keys that are not zero."""
        key = np.zeros((len(usd), len(KEY)), dtype=np.int64)
        for i, name in enumerate(KEY):
            key[:, i] = columns.get(name, 0)
        key[:, 0] = self.index
        phi = self.transport_slowdown
        x = DesignTable(
            phi * np.broadcast_to(send, usd.shape), phi * np.broadcast_to(allreduce, usd.shape), usd, mw, key
        )
        fits = (x.send <= self.max_slowdowns[0]) & (x.allreduce <= self.max_slowdowns[1])
        return x.part(fits & (usd <= self.max_usd) & np.isfinite(usd) & np.isfinite(x.send) & np.isfinite(x.allreduce))

    def worthwhile(self, send: Any, allreduce: Any, usd: Any, mw: Any) -> Flags:
        """Return which of templates with at least such slowdowns, price and power may beat those found so far."""
        phi = self.transport_slowdown
        within = np.isfinite(usd) & (phi * send <= self.max_slowdowns[0]) & (phi * allreduce <= self.max_slowdowns[1])
        found: Flags = (usd <= self.max_usd) & within & ~self.front.beats(phi * send, phi * allreduce, usd, mw)
        return found


def over(load: Floats, free: Floats) -> Floats:
    """Return loads over the free share of uplinks, which may be nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(load == 0, 0.0, np.where(free > 0, load / np.where(free > 0, free, 1.0), np.inf))
