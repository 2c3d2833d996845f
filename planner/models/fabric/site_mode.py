"""A site mode: one switch in one fabric family at a site, the models above its leaves, and the prices of its links."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np

from planner.instance.network import FabricFamily, Network, Spares, Switch
from planner.models.fabric.site_traffic import ALLREDUCES, EXCHANGES, FLOWS, SHARES, LeafLoads, Loads, SiteTraffic
from planner.models.fabric.template_table import KEY, TOLERANCE, ArrayTable, DesignTable, DominanceTest, Flags, members
from planner.physics import Floats, Ints
from planner.physics.network import fabric_cables, fabric_cost, fabric_designs
from planner.physics.network.cable_lengths import Metres, Places
from planner.physics.network.dragonfly import group_wan_links
from planner.physics.site.wan import wan_ports

BELOW = 1 - 1e-12  # times a price: a template that another merely equals is left to the comparison of whole tables
LARGEST = np.finfo(np.float64).max
Pins = Mapping[str, Any]
# The fewest tiers of a tree that has what a pin names.
TIERS_OF_PIN = dict.fromkeys(("leaf_up_ports", "leaf_bundle", "spine_down_ports", "spine_switch"), 2)
TIERS_OF_PIN |= dict.fromkeys(("rails_per_pod", "leaf_domains_per_pod"), 2) | {"core_up_ports": 4}
TIERS_OF_PIN |= dict.fromkeys(("spine_up_ports", "spine_bundle", "core_down_ports", "core_switch"), 3)
Prices = Floats  # rows: dollars, power over the years included, and MW; a column each, or one for all


@dataclass(frozen=True, slots=True)
class Mode:
    """A mode of a site's templates: a switch in a family, one price of links; how GPUs of a rack meet its ports."""

    switch: Switch
    family: FabricFamily
    rails: int
    rail_gpus: int
    apart: int
    lanes: int
    nic_gbps: float  # of a GPU's link to its leaf
    split: int = 1
    grouped: bool = False  # pods are groups joined directly, as of a dragonfly
    has_spines: bool = True  # above the leaves, as all have but the routers of a dragonfly

    @property
    def link_nics(self) -> float:
        """Return how many NICs, or lanes of them, at full rate a link between switches carries in a mode of a site."""
        return self.switch.port_gbps / self.nic_gbps

    @property
    def networks(self) -> int:
        """Count the networks side by side in a mode of a site, over which link prices are summed."""
        return self.apart * self.lanes

    @property
    def planes(self) -> int:
        """Count the planes of switch chips in a mode of a site, over all lanes of a NIC."""
        return self.switch.planes * self.lanes


def switch_modes(network: Network, gpus: int, nic_bytes_per_second: float) -> Iterator[Mode]:
    """Yield the modes of a site: switches in families, for racks of `gpus` GPUs, NICs on the fewest lanes."""
    # A port may be split into 1, 2, 4 and so on parts that still carry a NIC, as many as the switch allows.
    for s in network.switches:
        lanes = fabric_designs.lanes_of(s, nic_bytes_per_second)
        rate = fabric_designs.lane_gbps(nic_bytes_per_second, lanes)
        if lanes > network.max_lanes:
            continue
        splits = fabric_designs.port_splits(s, rate)
        for family in dict.fromkeys(network.families):
            rack, kind = fabric_designs.FAMILIES[family].rack_ports(gpus), fabric_designs.FAMILIES[family].design
            for n, split in product(fabric_designs.rails_together(network, gpus) if family == "rail" else (1,), splits):
                yield Mode(s, family, *rack.shared(n), lanes, rate, split, kind.grouped, len(kind.tier_names) > 1)


def times(count: Any, price: Prices) -> Prices:
    """Multiply a site mode's link prices by counts; no links cost nothing, even at an infinite price."""
    with np.errstate(invalid="ignore"):
        return np.where(np.equal(count, 0), 0.0, count * price)


@dataclass(kw_only=True)
class LinkPrices:
    """Prices in USD and power in MW of the links of one mode at a site of `racks` racks, summed over all networks.

    Sizes of domains, pods and zones are numbers or arrays, with a column of prices each. `known` caches the price of
    one link over each set of lengths, which all modes of a site share.
    """

    network: Network
    mode: Mode
    racks: int
    known: dict[str, dict[int, tuple[float, float]]] = field(default_factory=dict)

    @cached_property
    def places(self) -> Places | None:
        """Return the floor places of a site mode's racks, where its links are priced by length; else None."""
        floor = self.network.floor
        return Places(floor, self.racks) if floor is not None and fabric_cost.by_reach(self.network) else None

    @cached_property
    def media(self) -> fabric_cables.MediaTable:
        """Return the table of cable media by which a site mode's links are priced."""
        return fabric_cables.MediaTable.of(self.network.media, self.network.power_usd_per_watt)

    @cached_property
    def flat_link(self) -> Prices:
        """Price one link of a site mode between two switches, the shortest where links have a length: USD and MW."""
        n, s = self.network, self.mode.switch
        if self.places is not None:
            return s.link_factor * self._priced(self.places.adjacent_metres()) * [[1.0], [0.0]]
        watts = n.cables.switch_transceivers * n.optics.power_watts * s.link_factor
        return np.array([[fabric_cost.flat_usd(n, s)[1]], [watts / 1e6]])

    def endpoints(self, domain: Any) -> Prices:
        """Price all links of a site mode between GPUs and leaves, each leaf amid the `domain` racks of its domain."""
        m, n, places = self.mode, self.network, self.places
        ends, factor = m.networks * m.rails * m.rail_gpus, fabric_cost.endpoint_factor(m.switch, m.split)
        if places is None:
            watts = n.cables.endpoint_transceivers * n.optics.power_watts * factor
            return self.racks * ends * np.array([[fabric_cost.flat_usd(n, m.switch, m.split)[0]], [watts / 1e6]])
        each = self._by_length("endpoints", lambda racks: [places.to_middle(1, racks, spread=False)], domain)
        return times(ends * factor, each)

    def uplink(self, racks: Any, rails: Any, above: Any = 0) -> Prices:
        """Price a site mode's link up from all leaves, pods or zones of some racks and rails, amid `above` (0: all)."""
        m, places = self.mode, self.places
        across = -(-m.rails // rails)
        if places is None:
            return times(m.networks * across * -(-self.racks // racks), self.flat_link)
        each = self._by_length("up", lambda run, over: [places.to_middle(run, over or places.racks)], racks, above)
        return times(m.networks * across * m.switch.link_factor, each)

    def adjacent_links(self, links: Any) -> Prices:
        """Price `links` links in each network of a site mode between switches that are next to each other."""
        m, places = self.mode, self.places
        if places is None:
            return times(links * m.networks, self.flat_link)
        one = self._by_length("adjacent", lambda _: [places.adjacent_metres()], 0)
        return times(links * m.networks * m.switch.link_factor, one)

    def between(self, pod: Any, rails: Any) -> Prices:
        """Price one link between every two groups of a site mode's dragonfly, each of `pod` racks and `rails` rails."""
        m, places = self.mode, self.places
        across, along = -(-m.rails // rails), -(-self.racks // pod)
        if places is None:
            return times(m.networks * (across * along * (across * along - 1) // 2), self.flat_link)
        apart = self._by_length("between", places.group_metres, pod)
        together = self.adjacent_links(along * (across * (across - 1) // 2))
        return times(m.networks * m.switch.link_factor, times(across**2, apart)) + together

    def group_wan(self, pod: int, rails: int, ports: int) -> Prices:
        """Price a site mode's `ports` links of each WAN gateway to groups of `pod` racks and `rails` rails."""
        m, places = self.mode, self.places
        if not ports or places is None:
            return self.adjacent_links(ports)
        across, each = -(-m.rails // rails), self._priced(places.to_middle(pod, places.racks))
        total = times(group_wan_links(ports, each.shape[1] * across, across), each).sum(axis=1, keepdims=True)
        return times(m.networks * m.switch.link_factor, total)

    def _by_length(self, name: str, metres: Callable[..., Iterable[Metres]], *sizes: Any) -> Prices:
        """Sum the prices of links of the lengths that each combination of sizes has; each is computed once."""
        columns = np.stack([x.ravel() for x in np.broadcast_arrays(*sizes)]).astype(np.int64)
        keys = np.array([1, 1 << 31])[: len(columns)] @ columns
        each, first, at = np.unique(keys, return_index=True, return_inverse=True)
        known, each = self.known.setdefault(name, {}), each.tolist()
        for key, place in zip(each, first.tolist(), strict=True):
            if key not in known:
                total = np.zeros(2)
                for x in metres(*columns[:, place].tolist()):
                    total = total + self._priced(x).sum(axis=1)
                    if total[0] == math.inf:  # no medium reaches, whatever the others cost
                        break
                known[key] = float(total[0]), float(total[1])
        return np.array([known[key] for key in each]).reshape(-1, 2)[at].T

    def _priced(self, metres: Metres) -> Prices:
        usd, watts = self.media.usd_watts(metres)
        return np.stack([usd + watts * self.network.power_usd_per_watt, watts / 1e6])


@dataclass(frozen=True, slots=True)
class Trees(ArrayTable):
    """Trees of two to four tiers at a site mode, one entry each; zero where a tree has no such tier.

    Pods have `rails` rails of `width` leaf domains of `domain` racks, zones `zone_rails` of `zone_width`; a leaf has
    `up` uplinks in bundles of `bundle`, a spine `spine_up` in bundles of `spine_bundle`, and a core `core_up`. `cores`
    are those of a zone, or of a network without zones, and `super_spines` those of a network, whether or not positions
    share them.
    """

    domain: Ints
    rails: Ints
    width: Ints
    up: Ints
    bundle: Ints
    spine_up: Ints
    spine_bundle: Ints
    cores: Ints
    zone_rails: Ints
    zone_width: Ints
    core_up: Ints
    super_spines: Ints

    @classmethod
    def of(cls, **columns: Any) -> "Trees":
        """Return trees of a site mode from columns, numbers or arrays of one length; columns not given are zero."""
        given = dict(zip(columns, np.broadcast_arrays(*columns.values()), strict=True))
        none = np.zeros_like(next(iter(given.values())))
        return cls(*(given.get(name, none) for name in cls.__slots__))

    @property
    def spines(self) -> Ints:
        """Count the spines of a pod of each of the trees at a site mode."""
        return self.up // self.bundle


@dataclass(kw_only=True)
class SiteMode:
    """A site mode: one mode at a site, with a pair of models above the leaves, from which templates are built."""

    prices: LinkPrices  # of links of a mode
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
    tick: Callable[[], None]  # raises where the time is over
    tops: dict[Any, tuple[Trees, Prices]] = field(default_factory=dict)  # over all leaf domains, which sites share
    spine: int = 0  # model of spines: its place in network.switches, from 1; 0 where it is the leaf's
    core: int = 0  # the same of cores
    first_core: bool = True  # no pair before has these spines: it stands for fabrics of spines without cores
    front: DominanceTest = field(init=False)  # the templates found so far, which later ones must beat in something

    def __post_init__(self) -> None:
        self.network, self.mode = self.prices.network, self.prices.mode
        m, every = self.mode, self.network.switches
        self.racks = self.prices.racks  # of the site that are cabled
        spine, core = (every[place - 1] if place else m.switch for place in (self.spine, self.core))
        self.ports, self.spine_ports, self.core_ports = m.switch.ports, spine.ports, core.ports
        self.leaf_box, self.spine_box, self.core_box = (
            np.array([[fabric_cost.switch_usd(self.network, x)], [x.power_watts / 1e6]])
            for x in (m.switch, spine, core)
        )
        # Of a network's WAN gateway: its ports towards the wide area, and the uplinks' worth that gradients to other
        # sites take of a leaf whose domain has a whole stage.
        self.wan_ports = wan_ports(self.traffic.wan_gbps, m.networks, m.switch.port_gbps)
        self.exchange_ports = self.traffic.exchange_gbps / (m.networks * m.rails) / m.switch.port_gbps
        # Half of the ports of a gateway's switch are towards the wide area; of a tree it stands next to the top tier.
        self.wan_boxes = m.networks * -(-self.wan_ports // max(1, m.switch.ports // 2)) * self.leaf_box
        self.tree_wan = self.wan_boxes + self.prices.adjacent_links(self.wan_ports)
        # One zone of four tiers is of use only where a pin, or a WAN gateway, asks for its super-spines.
        zoned = {"tiers", "core_up_ports"} & set(self.pins) or self.wan_ports
        self.min_zones: int = self.pins.get("min_zones") or (1 if zoned else 2)
        wanted, barred = self.pins.get("stripes"), self.pins.get("not_stripes")
        allowed = (n for n in range(1, self.traffic.stages + 1) if wanted in (None, n) and n != barred)
        self.stripes: Ints = np.array([*allowed], dtype=np.int64)

    def allows(self, tiers: int, *own: str) -> bool:
        """Return whether network and pins allow a site mode's fabrics of some tiers, which have `own` pins too."""
        lacking = {pin for pin, fewest in TIERS_OF_PIN.items() if fewest > tiers}.difference(own)
        return self.network.max_tiers >= tiers == self.pins.get("tiers", tiers) and lacking.isdisjoint(self.pins)

    def domains(self, domain: Any) -> Any:
        """Count the leaf domains of `domain` racks at the site of this mode."""
        return -(-self.racks // domain)

    def pods(self, domain: Any, rails: Any, width: Any) -> Any:
        """Count the pods of a network at a site mode, of `rails` rails and `width` leaf domains of `domain` racks."""
        return -(-self.mode.rails // rails) * -(-self.domains(domain) // width)

    def uplinks(self, domain: Any) -> Any:
        """Count the ports of a site mode's leaf left for uplinks after the GPUs of `domain` racks and spare ports."""
        s = self.mode.switch
        return uplinks_left(s.ports, self.mode.split, self.mode.rail_gpus, self.network.spares)[domain]

    def leaf_share(self, domain: Any) -> Any:
        """Count the uplinks that a site mode's leaf of `domain` racks needs for the core share and survived losses."""
        n, gpus = self.network, domain * self.mode.rail_gpus
        least = max(n.asked_core_share, 1 / n.tier_ratios[0])
        share = np.ceil(gpus * least / self.mode.link_nics * (1 - TOLERANCE)).astype(np.int64)
        return np.maximum(share, n.asked_leaf_uplinks)

    def core_share(self, ends: Any) -> Any:
        """Count the links that the core share asks of a site mode out of a block with ports of `ends` GPUs."""
        return np.ceil(ends * self.network.asked_core_share / self.mode.link_nics * (1 - TOLERANCE)).astype(np.int64)

    @cached_property
    def domain_sizes(self) -> Ints:
        """Return a site mode's leaf domain sizes, largest first: multiples of the traffic's units, uplinks left."""
        # None is larger than the site unless a pin says so.
        grain, width, pins = self.traffic.unit_racks, self.mode.rail_gpus, self.pins
        most = self.mode.switch.ports * self.mode.split // width
        # A leaf of all GPUs of some hosts is of the family rack.
        first = self.racks if self.mode.family == "rail" and self.mode.rails == 1 < self.mode.rail_gpus else grain
        sizes = list(range(first, min(most, self.racks) + 1, grain))
        wanted, down = pins.get("leaf_domain_racks"), pins.get("leaf_down_ports")
        if down is not None:
            wanted = down // width if down % width == 0 and wanted in (None, down // width) else 0
        if wanted is not None:
            fits = wanted >= self.racks or (wanted % grain == 0 and first == grain)
            sizes = [wanted] if 0 < wanted <= most and fits else []
        every = np.array([d for d in sizes[::-1] if d in pins.get("leaf_sizes", (d,))], dtype=np.int64)
        return np.asarray(every[self.uplinks(every) >= self.leaf_share(every)])

    @property
    def allows_two(self) -> bool:
        """Return whether network and pins allow trees of two tiers at a site mode, whose spines join all rails."""
        rails = self.mode.rails
        return self.first_core and self.pins.get("rails_per_pod", rails) == rails and self.allows(2)

    def sizes(self, tiers: int) -> Ints:
        """Return the leaf domain sizes of a site mode's dragonflies (1 tier) or trees that pins and ports allow.

        Trees have all domains in a pod (2 tiers, or 3), some of them (3), or zones (4).
        """
        domains, m = self.domains(self.domain_sizes), self.mode
        if m.grouped or tiers == 1:
            leaf_pins = "leaf_up_ports", "leaf_bundle", "rails_per_pod", "leaf_domains_per_pod"
            own = self.allows(2, "spine_up_ports") if m.has_spines else self.allows(1, *leaf_pins)
            allowed = np.full(len(domains), m.grouped and tiers == 1 and own)
        elif tiers == 2:
            leaves = domains * m.rails
            two = (leaves <= self.spine_ports) & (leaves >= self.pins.get("min_leaves", 1)) & self.allows_two
            allowed = two | (domains < self.spine_ports) & self.allows(3)
        else:
            allowed = (domains >= (2 if tiers == 3 else 1)) & self.allows(tiers)
        return np.asarray(self.domain_sizes[allowed])

    def crossing(
        self, load: Floats, racks: Any, over: Any, links: Any, rails: Any = 1, *, gone: Any = None
    ) -> tuple[Floats, Floats, Flags]:
        """Return the slowdowns, over the transport's, of a site mode's traffic out of runs of racks and rails.

        And whether its links out carry the exchanges between sites and of experts at once without slowdown. `over`:
        the rate of GPUs below over that of links. `gone`: the links' worth that the exchange between sites takes.
        """
        m = self.mode
        if gone is None:
            gone = self.exchange_ports * load[..., SHARES] * np.minimum(m.rails, rails) if self.exchange_ports else 0.0
        send = load[..., FLOWS] / racks * over
        allreduce = load[..., ALLREDUCES] / (links * m.link_nics / (rails * m.rail_gpus))
        if self.exchange_ports:
            with np.errstate(divide="ignore", invalid="ignore"):
                free = 1 - gone / links
                both = send, allreduce
                send, allreduce = (np.where(x == 0, 0.0, np.where(free > 0, x / free, np.inf)) for x in both)
        fits = load[..., EXCHANGES] * m.rail_gpus * rails / m.link_nics + gone <= links * (1 + TOLERANCE)
        return np.maximum(1.0, send), np.maximum(1.0, allreduce), fits

    def leaf_crossing(self, domain: Any, up: Any, load: Floats) -> tuple[Floats, Floats, Flags]:
        """Return the slowdowns of traffic out of a site mode's leaves with `up` uplinks, domains of `domain` racks."""
        return self.crossing(load, domain, domain * self.mode.rail_gpus / (up * self.mode.link_nics), up)

    def tree_crossing(self, x: Trees, *loads: Floats) -> tuple[Floats, Floats, Flags]:
        """Return the slowdowns of traffic out of leaves, pods and zones of a site mode's trees, by `crossing`."""
        over = x.domain * self.mode.rail_gpus / (x.up * self.mode.link_nics)
        found = [self.crossing(loads[0], x.domain, over, x.up)]
        if len(loads) > 1:
            over = over * (x.rails * x.width * x.bundle / x.spine_up)
            found.append(self.crossing(loads[1], x.domain * x.width, over, x.spines * x.spine_up, x.rails))
        if len(loads) > 2:
            zone_pods = x.zone_rails // x.rails * (x.zone_width // x.width)
            down = x.spines * (x.spine_up // x.spine_bundle) // x.cores * zone_pods * x.spine_bundle
            zone, links = x.domain * x.zone_width, x.cores * x.core_up
            found.append(self.crossing(loads[2], zone, over * (down / x.core_up), links, x.zone_rails))
        send, allreduce, fits = zip(*found, strict=True)
        return np.maximum.reduce(send), np.maximum.reduce(allreduce), np.logical_and.reduce(fits)

    def priced(self, x: Trees) -> Prices:
        """Price trees at a site mode with their links to GPUs and their WAN gateways: USD and MW."""
        return np.asarray(self.fixed(x.domain) + self.tree_bill(x))

    def tree_bill(self, x: Trees) -> Prices:
        """Price all above the leaves of a site mode's trees: leaf uplinks, switches and links of the tiers above."""
        p, pod, zone, zoned = self.prices, x.domain * x.width, x.domain * x.zone_width, x.zone_rails.any()
        switches = self.pods(x.domain, x.rails, x.width) * x.spines * self.spine_box
        links: Any = 0.0
        if x.spine_up.any():
            zones = self.pods(x.domain, x.zone_rails, x.zone_width) if zoned else 1
            switches = switches + zones * x.cores * self.core_box
            links = times(x.spines * x.spine_up, p.uplink(pod, x.rails, zone))
        if zoned:
            switches = switches + x.super_spines * self.core_box
            links = links + times(x.cores * x.core_up, p.uplink(zone, x.zone_rails))
        return np.asarray(x.up * p.uplink(x.domain, 1, pod) + (self.mode.networks * switches + links))

    def fixed(self, domain: Any) -> Prices:
        """Price what a leaf domain's size alone decides at a site mode: links to GPUs, leaves, a tree's WAN gateway."""
        leaves = self.mode.networks * self.mode.rails * self.domains(domain)
        return np.asarray(self.prices.endpoints(domain) + leaves * self.leaf_box + self.tree_wan)

    def least_prices(self, domain: Ints, up: Any, tiers: int = 2) -> Prices:
        """Bound below the price and power of a site mode's trees of `tiers` tiers or more, leaves of `up` uplinks."""
        # A tree has the fewest spines that have ports for all uplinks, and a core and super-spines above. Where pods,
        # or zones, are joined, each has the links out that the core share and the ratio of spines ask for. Of a
        # dragonfly only leaves and links to GPUs count, and nothing where these depend on the groups.
        m, n, p, pins = self.mode, self.network, self.prices, self.pins
        if m.grouped:
            return BELOW * self.fixed(domain) if p.places is None and not self.wan_ports else np.zeros((2, len(domain)))
        joined, switches = (tiers > 2, tiers - 2) if tiers < 4 else (2 * (self.min_zones > 1), self.min_zones + 1)
        if min(pins.get("min_pods", 1), pins.get("min_zones", 1)) > 1:
            joined = max(joined, {3: 1, 4: 2}.get(pins.get("tiers", 0), 0))
        ends = m.rails * self.domains(domain) * up
        share = self.racks * m.rails * m.rail_gpus * n.asked_core_share / m.link_nics
        of_pods = np.maximum(share, ends / n.tier_ratios[1]) * (1 - TOLERANCE) * (joined > 0)
        of_zones = share * (1 - TOLERANCE) * (joined > 1)
        # Links out of pods take ports of spines and of cores; those out of zones of cores and of super-spines.
        spines = np.maximum(-(-ends // self.spine_ports), (ends + of_pods) / self.spine_ports)
        cores = np.maximum(switches, (of_pods + 2 * of_zones) / self.core_ports)
        boxes = spines * self.spine_box + cores * self.core_box
        links = (ends + of_pods + of_zones) * p.flat_link
        return np.asarray(BELOW * (self.fixed(domain) + m.networks * (boxes + links)))

    def worthwhile_uplinks(self, domains: Ints, leaves: LeafLoads, tiers: int = 2) -> tuple[Ints, Ints]:
        """Return leaf domains and leaf uplinks at which some tree of a site mode may beat the templates so far."""
        # The tree costs at least its least price, and is as slow as its leaves under the best number of stripes. Rows
        # are in the order of the domains, uplinks ascending.
        low, high = self.leaf_share(domains), self.uplinks(domains)
        if "leaf_up_ports" in self.pins:
            low, high = (f(x, self.pins["leaf_up_ports"]) for f, x in ((np.maximum, low), (np.minimum, high)))
        at, more = members(np.maximum(0, high - low + 1))
        domain, up = domains[at], low[at] + more
        usd, mw = self.least_prices(domain, up, tiers)
        kept = np.flatnonzero(self.worthwhile(1.0, 1.0, usd, mw))
        domain, up, usd, mw = domain[kept], up[kept], usd[kept], mw[kept]
        i, _, load = leaves.best_of(domain)
        send, allreduce, _ = self.leaf_crossing(domain[i], up[i], load)
        kept = np.zeros(len(domain), dtype=bool)
        kept[i[self.worthwhile(send, allreduce, usd[i], mw[i])]] = True
        return domain[kept], up[kept]

    def table(self, send: Floats, allreduce: Floats, prices: Prices, **columns: Any) -> DesignTable:
        """Return a site mode's templates within the limits, as a table; key columns not given are zero."""
        usd, mw = prices
        columns |= {"mode": self.index}
        key = np.zeros((len(usd), len(KEY)), dtype=np.int64)
        for i, name in enumerate(KEY):
            key[:, i] = columns.get(name, 0)
        fits = self.within(send, allreduce) & (usd <= self.max_usd)
        send, allreduce = (self.transport_slowdown * np.broadcast_to(x, usd.shape) for x in (send, allreduce))
        return DesignTable(send, allreduce, usd, mw, key).part(fits & np.isfinite([usd, send, allreduce]).all(axis=0))

    def tree_table(self, x: Trees, crossing: tuple[Floats, Floats, Flags], prices: Prices, stripes: Any) -> DesignTable:
        """Return the table of a site mode's trees that may beat the templates so far, given what crosses."""
        # Boxes of the top tier are shared, or one for each position. Bundles of single links may be joined to larger
        # ones, unless a pin wants the bundle.
        send, allreduce, fits = crossing
        kept = np.flatnonzero(fits & self.worthwhile(send, allreduce, *(BELOW * prices)))
        x, send, allreduce, prices = x.part(kept), send[kept], allreduce[kept], prices[:, kept]
        stripes = np.broadcast_to(stripes, fits.shape)[kept]
        columns: dict[str, Any] = {"domain": x.domain, "leaf_up": x.up, "leaf_bundle": x.bundle, "stripes": stripes}
        columns |= {"rails_per_pod": x.rails, "domains_per_pod": x.width, "spine_model": self.spine}
        columns |= {"rails_per_zone": x.zone_rails, "domains_per_zone": x.zone_width}
        columns |= {"spine_up": x.spine_up, "spine_bundle": x.spine_bundle, "core_up": x.core_up}
        columns["core_model"] = self.core * (x.spine_up > 0)
        if x.spine_up.any():
            split = "spine_bundle" not in self.pins
            columns["spine_bundle"], columns["core_boxes"] = own_boxes(
                x.spines, x.spine_up, x.spine_bundle, x.cores, split=split
            )
        if x.core_up.any():
            own = own_boxes(x.cores, x.core_up, 1, x.super_spines, split=True)
            columns["core_bundle"], columns["super_spine_boxes"] = own
        return self.table(send, allreduce, prices, **columns)

    def caps(self, send: Any, allreduce: Any) -> Floats:
        """Bound the price that a site mode still pays for templates of at least such slowdowns, by those so far."""
        phi, found = self.transport_slowdown, np.full(np.shape(send), self.max_usd)
        if not self.power_counts:
            for usd, _ in self.front.keeping(phi * send, phi * allreduce):
                found = np.minimum(found, usd)
        return found

    def within(self, send: Any, allreduce: Any) -> Flags:
        """Return which slowdowns over the transport's own are within a site mode's limits."""
        send, allreduce = self.transport_slowdown * send, self.transport_slowdown * allreduce
        return np.asarray((send <= self.max_slowdowns[0]) & (allreduce <= self.max_slowdowns[1]))

    def worthwhile(self, send: Any, allreduce: Any, usd: Any, mw: Any) -> Flags:
        """Return which templates with at least such slowdowns, price and power may beat those of a site mode so far."""
        phi = self.transport_slowdown
        found: Flags = (usd <= min(self.max_usd, LARGEST)) & self.within(send, allreduce)
        return found & ~self.front.beats(phi * send, phi * allreduce, usd, mw)


def own_boxes(below: Ints, up: Ints, bundle: Ints | int, boxes: Ints, *, split: bool) -> tuple[Ints, Ints]:
    """Return bundles below a site mode's top tier, and the boxes that its positions share: 0 where each has its own."""
    # `split`: bundles of single links may be joined to larger ones.
    each = np.maximum(boxes // np.maximum(below, 1), 1)
    joined = (up == bundle * each) | (np.equal(bundle, 1) & split)
    alone = (below * each == boxes) & (up % each == 0) & joined
    return np.where(alone, up // each, bundle), np.where(alone, 0, boxes)


@lru_cache(maxsize=256)
def uplinks_left(ports: int, split: int, width: int, spares: Spares) -> Ints:
    """Count the ports of a site mode's leaf left for uplinks, by racks of its domain, with `width` GPUs of each."""
    down = width * np.arange(ports * split // width + 1)
    taken = down + np.array([fabric_designs.spare_ports(used, spares) for used in down.tolist()])
    return np.asarray(ports - -(-taken // split), dtype=np.int64)
