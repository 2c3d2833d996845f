"""One switch in one family at one site: its ports, prices of links, pins and loads, which all builders read."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from planner.instance.network import FabricFamily, Network, Spares, Switch
from planner.models import resolved_switches
from planner.models.fabric.design_table import KEY, DesignTable, DominanceTest, Flags, Floats, Ints, no_options
from planner.models.fabric.traffic import ALLREDUCES, EXCHANGES, FLOWS, SHARES, Loads, SiteTraffic
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


Prices = Floats  # rows: dollars, power over the years included, and MW; a column each, or one for all


def times(count: Any, price: Prices) -> Prices:
    """Multiply prices by counts; no links are free, even where no medium reaches and the price is infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(np.equal(count, 0), 0.0, count * price)


def price_of(usd: float, watts: float) -> Prices:
    """Return a price of dollars and watts."""
    return np.array([[usd], [watts / 1e6]])


@dataclass(kw_only=True)
class LinkPrices:
    """Prices in USD and power in MW of the links of one mode at a site of `racks` racks, summed over all networks.

    Sizes of domains, pods and zones are numbers or arrays, with a column of prices each. `known` caches the price of
    one link over each set of lengths, which all modes of a site share.
    """

    network: Network
    mode: Mode
    racks: int
    known: dict[tuple[Any, ...], tuple[float, float]] = field(default_factory=dict)

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
    def switch(self) -> Prices:
        """A leaf, and a switch of any tier that has its model."""
        return self.box(self.mode.switch)

    def box(self, switch: Switch) -> Prices:
        """Price a switch of any model."""
        return price_of(switch_usd(self.network, switch), switch.power_watts)

    @cached_property
    def flat_link(self) -> Prices:
        """A link between two switches, by no length."""
        n, s = self.network, self.mode.switch
        return price_of(flat_usd(n, s)[1], n.cables.switch_transceivers * n.optics.power_watts * s.link_factor)

    def endpoints(self, domain: Any) -> Prices:
        """Price all links between GPUs and leaves, each leaf amid the `domain` racks of its domain."""
        m, n, places = self.mode, self.network, self.places
        ends, factor = m.networks * m.rails * m.rail_gpus, endpoint_factor(m.switch, m.split)
        if places is None:
            watts = n.cables.endpoint_transceivers * n.optics.power_watts * factor
            return times(self.racks * ends, price_of(flat_usd(n, m.switch, m.split)[0], watts))
        return times(ends * factor, self._by_length("endpoints", lambda d: [endpoint_metres(places, d)], domain))

    def leaf_uplink(self, domain: Any, width: Any) -> Prices:
        """Price one uplink of every leaf, with pods of `width` domains of `domain` racks."""
        m, places = self.mode, self.places
        if places is None:
            return times(m.networks * m.rails * -(-self.racks // domain), self.flat_link)

        def metres(domain: int, width: int) -> list[Metres]:
            return [leaf_metres(places, np.arange(0, places.racks, domain), domain, domain * width)]

        return times(m.networks * m.rails * m.switch.link_factor, self._by_length("leaf", metres, domain, width))

    def spine_uplink(self, pod: Any, rails: Any, zone: Any = 0) -> Prices:
        """Price one uplink of one spine of every pod of `pod` racks and `rails` rails, or of one core of every zone.

        The switches above are amid the site, or amid zones of `zone` racks.
        """
        m, places = self.mode, self.places
        across = -(-m.rails // rails)
        if places is None:
            return times(m.networks * across * -(-self.racks // pod), self.flat_link)

        def metres(pod: int, zone: int) -> list[Metres]:
            first = np.arange(0, places.racks, pod)
            return [leaf_metres(places, first, pod, zone) if zone else spine_metres(places, first, pod)]

        return times(m.networks * across * m.switch.link_factor, self._by_length("spine", metres, pod, zone))

    def wan_gateway(self, ports: int) -> Prices:
        """Price the WAN gateway switches of all networks, without their links."""
        m = self.mode
        return times(m.networks * -(-ports // max(1, m.switch.ports // 2)), self.switch)

    def adjacent_links(self, links: Any) -> Prices:
        """Price `links` links in each network between switches that are placed together."""
        m, places = self.mode, self.places
        if places is None:
            return times(links * m.networks, self.flat_link)
        one = self._by_length("adjacent", lambda _: [adjacent_metres(places)], 0)
        return times(links * m.networks * m.switch.link_factor, one)

    def between(self, pod: Any, rails: Any) -> Prices:
        """Price one link between each two groups, each of `pod` racks and `rails` rails."""
        m, places = self.mode, self.places
        across, along = -(-m.rails // rails), -(-self.racks // pod)
        groups = across * along
        if places is None:
            return times(m.networks * (groups * (groups - 1) // 2), self.flat_link)
        apart = self._by_length("between", lambda pod: group_metres(places, pod), pod)
        together = self.adjacent_links(along * (across * (across - 1) // 2))
        return times(m.networks * m.switch.link_factor, times(across**2, apart)) + together

    def group_wan(self, pod: int, rails: int, ports: int) -> Prices:
        """Price the `ports` links of every network's WAN gateway to its groups of `pod` racks and `rails` rails."""
        m, places = self.mode, self.places
        if not ports or places is None:
            return self.adjacent_links(ports)
        across, each = -(-m.rails // rails), self._priced(group_wan_metres(places, pod))
        total = times(group_wan_links(ports, each.shape[1] * across, across), each).sum(axis=1, keepdims=True)
        return times(m.networks * m.switch.link_factor, total)

    def _by_length(self, name: str, metres: Callable[..., Iterable[Metres]], *sizes: Any) -> Prices:
        """Sum the prices of cables of the lengths that each combination of sizes has; each is computed once."""
        wanted = list(zip(*(x.ravel().tolist() for x in np.broadcast_arrays(*sizes)), strict=True))
        for some in dict.fromkeys(wanted):
            if (name, *some) not in self.known:
                usd, mw = sum((self._priced(x).sum(axis=1) for x in metres(*some)), np.zeros(2)).tolist()
                self.known[name, *some] = usd, mw
        return np.array([self.known[name, *some] for some in wanted]).reshape(-1, 2).T

    def _priced(self, metres: Metres) -> Prices:
        """Price a cable of each length."""
        usd, watts = self.media.usd_watts(metres)
        return np.stack([usd + watts * self.network.power_usd_per_watt, watts / 1e6])


class LeafLoads(NamedTuple):
    """The loads that leave leaves of a size under each number of stripes, and the rows that none is no worse than."""

    stripes: Ints
    loads: Floats
    best: Ints


LoadsOfLeaves = Mapping[int, LeafLoads]  # by racks of a leaf domain
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
    def box_prices(self) -> tuple[Prices, Prices]:
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

    def domains(self, domain: Any) -> Any:
        """Count the leaf domains of `domain` racks at the site."""
        return -(-self.racks // domain)

    def pods(self, domain: int, rails: Any, width: Any) -> Any:
        """Count the pods of a network, of `rails` rails and `width` leaf domains of `domain` racks."""
        return -(-self.mode.rails // rails) * -(-self.domains(domain) // width)

    def uplinks(self, domain: Any) -> Any:
        """Count the ports of a leaf that remain for uplinks after the GPUs of `domain` racks and the spare ports."""
        s = self.mode.switch
        return uplinks_left(s.ports, self.mode.split, self.mode.rail_gpus, self.network.spares)[domain]

    def leaf_share(self, domain: Any) -> Any:
        """Count the uplinks that a leaf of `domain` racks needs for the core share and the losses to be survived."""
        n, gpus = self.network, domain * self.mode.rail_gpus
        least = max(n.asked_core_share, 1 / n.tier_ratios[0])
        share = np.ceil(gpus * least / self.mode.split * (1 - TOLERANCE)).astype(np.int64)
        return share if n.survives is None else np.maximum(share, n.asked_leaf_uplinks)

    def core_share(self, ends: Any) -> Any:
        """Count the links that the core share asks for out of a block of `ends` GPUs' ports."""
        return np.ceil(ends * self.network.asked_core_share / self.mode.split * (1 - TOLERANCE)).astype(np.int64)

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
        sizes = [d for d in sizes if d <= most and (allowed is None or d in allowed)]
        every = np.array(sizes[::-1], dtype=np.int64)
        kept: list[int] = every[self.uplinks(every) >= np.maximum(1, self.leaf_share(every))].tolist()
        return kept

    def crossing(
        self, load: Floats, racks: Any, over: Any, links: Any, rails: Any = 1, *, gone: Any = None
    ) -> tuple[Floats, Floats, Flags]:
        """Return the slowdowns over the transport's own of what leaves runs of `racks` racks and `rails` rails.

        And whether its links out carry the exchanges between sites and of experts at once without slowdown. `over`:
        ports of GPUs below over links. `gone`: the links' worth that the exchange between sites takes.
        """
        m = self.mode
        if gone is None:
            gone = self.exchange_ports * load[..., SHARES] * np.minimum(m.rails, rails)
        free = 1 - gone / links if self.exchange_ports else np.asarray(1.0)
        send = _over_free(load[..., FLOWS] / racks * over, free)
        allreduce = _over_free(load[..., ALLREDUCES] / (links * m.split / (rails * m.rail_gpus)), free)
        fits = load[..., EXCHANGES] * m.rail_gpus * rails / m.split + gone <= links * (1 + TOLERANCE)
        return np.maximum(1.0, send), np.maximum(1.0, allreduce), fits

    def leaf_crossing(self, domain: Any, up: Any, load: Floats) -> tuple[Floats, Floats, Flags]:
        """Return the same of what leaves leaves with `up` uplinks, of domains of `domain` racks."""
        return self.crossing(load, domain, domain * self.mode.rail_gpus / (up * self.mode.split), up)

    def fixed(self, domain: Any) -> Prices:
        """Price the parts that a leaf domain's size alone decides: links to GPUs, leaves, and a tree's WAN gateway."""
        leaves = self.mode.networks * self.mode.rails * self.domains(domain)
        return np.asarray(self.prices.endpoints(domain) + leaves * self.prices.switch + self.tree_wan)

    @cached_property
    def tree_wan(self) -> Prices:
        """Price of a WAN gateway and its links to the top tier of a tree, placed next to it."""
        return self.prices.wan_gateway(self.wan_ports) + self.prices.adjacent_links(self.wan_ports)

    def least_prices(self, domain: Ints, up: Ints, *, switches: int = 0, crossings: int = 0) -> Prices:
        """Bound the price and power of trees whose leaves have `up` uplinks.

        A tree has the fewest spines that have ports for all uplinks, and `switches` switches more. `crossings`: tiers
        above the leaves with several blocks, each with the links out that the core share and the ratio of spines ask
        for. Links cost something where they have one price; switches are of the cheapest models allowed.
        """
        m, n, p, pins = self.mode, self.network, self.prices, self.pins
        if min(pins.get("min_pods", 1), pins.get("min_zones", 1)) > 1:
            crossings = max(crossings, {3: 1, 4: 2}.get(pins.get("tiers", 0), 0))
        ends = m.rails * self.domains(domain) * up
        share = crossings * self.racks * m.rails * m.rail_gpus * n.asked_core_share / m.split
        out = np.maximum(share, ends * (min(crossings, 1) / n.tier_ratios[1] * (1 - TOLERANCE)))
        boxes = np.min(
            [
                np.maximum(-(-ends // x.ports) + switches, (ends + 2 * out) / x.ports) * p.box(x)
                for x in self.upper_models
            ],
            axis=0,
        )
        links = 0.0 if p.places else (ends + out) * p.flat_link
        return np.asarray(BELOW * (self.fixed(domain) + m.networks * (boxes + links)))

    def by_least_price(self, domains: list[int]) -> dict[int, float]:
        """Return the sizes of leaf domains whose trees may be worth it, with the least price of each, in its order."""
        domain = np.array(domains, dtype=np.int64)
        usd, mw = self.least_prices(domain, np.maximum(1, self.leaf_share(domain)))
        may = self.worthwhile(1.0, 1.0, usd, mw)
        return {domains[i]: float(usd[i]) for i in np.argsort(usd, kind="stable").tolist() if may[i]}

    def worthwhile_uplinks(
        self, domains: list[int], every: LoadsOfLeaves, *, switches: int = 0, crossings: int = 0
    ) -> dict[int, Ints]:
        """Return leaf domains with the uplinks of a leaf at which some tree may beat the templates found so far.

        The tree costs at least its least price, and is as slow as its leaves under the best number of stripes.
        """
        sizes = np.array(domains, dtype=np.int64)
        low, high = np.maximum(1, self.leaf_share(sizes)), self.uplinks(sizes)
        if "leaf_up_ports" in self.pins:
            low, high = (f(x, self.pins["leaf_up_ports"]) for f, x in ((np.maximum, low), (np.minimum, high)))
        at, more = members(np.maximum(0, high - low + 1))
        domain, up = sizes[at], low[at] + more
        usd, mw = self.least_prices(domain, up, switches=switches, crossings=crossings)
        kept = np.flatnonzero(self.worthwhile(1.0, 1.0, usd, mw))
        domain, up, usd, mw = domain[kept], up[kept], usd[kept], mw[kept]
        i, _, load = under_stripes(domain, every)
        send, allreduce, _ = self.leaf_crossing(domain[i], up[i], load)
        i = np.unique(i[self.worthwhile(send, allreduce, usd[i], mw[i])])
        domain, up = domain[i], up[i]
        return {d: up[domain == d] for d in domains if d in set(domain.tolist())}

    def table(self, send: Floats, allreduce: Floats, usd: Floats, mw: Floats, **columns: Any) -> DesignTable:
        """Return templates of this mode within the limits, with the columns of their keys that are not zero."""
        columns |= {"mode": self.index}
        key = np.stack([np.broadcast_to(columns.get(name, 0), usd.shape) for name in KEY], axis=1).astype(np.int64)
        phi = self.transport_slowdown
        x = DesignTable(
            phi * np.broadcast_to(send, usd.shape), phi * np.broadcast_to(allreduce, usd.shape), usd, mw, key
        )
        fits = (x.send <= self.max_slowdowns[0]) & (x.allreduce <= self.max_slowdowns[1])
        return x.part(fits & (usd <= self.max_usd) & np.isfinite(usd) & np.isfinite(x.send) & np.isfinite(x.allreduce))

    @property
    def most_usd(self) -> float:
        """Bound the price of a template that may beat those found so far: the cheapest's where none slows traffic."""
        least = self.front.x.usd.min(initial=self.max_usd)
        return float(least) if self.loads.nothing and not self.power_counts else self.max_usd

    def caps(self, send: Any, allreduce: Any) -> Floats:
        """Bound the price of a template with at least such slowdowns that may beat those found so far."""
        phi, found = self.transport_slowdown, np.full(np.shape(send), self.max_usd)
        if not self.power_counts:
            for usd, _ in self.front.keeping(phi * send, phi * allreduce):
                found = np.minimum(found, usd)
        return found

    def worthwhile(self, send: Any, allreduce: Any, usd: Any, mw: Any) -> Flags:
        """Return which of templates with at least such slowdowns, price and power may beat those found so far."""
        phi = self.transport_slowdown
        within = np.isfinite(usd) & (phi * send <= self.max_slowdowns[0]) & (phi * allreduce <= self.max_slowdowns[1])
        found: Flags = (usd <= self.max_usd) & within & ~self.front.beats(phi * send, phi * allreduce, usd, mw)
        return found


def _over_free(load: Floats, free: Floats) -> Floats:
    """Return loads over the free share of uplinks, which may be nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(load == 0, 0.0, np.where(free > 0, load / free, np.inf))


@lru_cache(maxsize=256)
def uplinks_left(ports: int, split: int, width: int, spares: Spares) -> Ints:
    """Count the ports of a leaf left for uplinks, by racks of its domain, each with `width` GPUs at the leaf."""
    down = width * np.arange(ports * split // width + 1)
    taken = down + np.array([spare_ports(used, spares) for used in down.tolist()])
    return np.asarray(ports - -(-taken // split), dtype=np.int64)


def members(sizes: Ints) -> tuple[Ints, Ints]:
    """Return the group of every member of groups of some sizes, and its place in the group."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    return group, np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def under_stripes(domain: Ints, every: LoadsOfLeaves) -> tuple[Ints, Ints, Floats]:
    """Take each of some designs under the best numbers of stripes: its place, the stripes, and the loads of leaves."""
    sizes, at = np.unique(domain, return_inverse=True)
    leaves = [every[d] for d in sizes.tolist()]
    many = np.array([len(x.best) for x in leaves], dtype=np.int64)
    i, more = members(many[at])
    row = (np.cumsum(many) - many)[at[i]] + more
    stripes = np.concatenate([np.empty(0, dtype=np.int64), *(x.stripes[x.best] for x in leaves)])
    return i, stripes[row], np.concatenate([np.empty((0, 4)), *(x.loads[x.best] for x in leaves)])[row]
