"""Prices of links for the fabric's tables, in units: flat, or by their length for each leaf domain and pod."""

import math
from dataclasses import dataclass, field

import numpy as np

from planner.models.fabric.data import INFINITE_COST, Ints, Problem
from planner.physics.network.lengths import (
    beside_metres,
    endpoint_metres,
    group_metres,
    group_wan_links,
    group_wan_metres,
    leaf_metres,
    spine_metres,
)
from planner.physics.network.links import MediaTable, Metres, Places
from planner.physics.network.price import by_reach, endpoint_factor, flat_usd, media_table

TOGETHER = 32  # widths of pods priced at a time: one array of lengths, of a bounded size


@dataclass(slots=True)
class LinkPrices:
    """Prices of all links of a kind together, kept by leaf domain and pod once worked out."""

    problem: Problem
    places: Places | None = field(init=False)
    media: MediaTable = field(init=False)
    known: dict[tuple[str, int, int], float] = field(default_factory=dict)
    cutoff: float = math.inf  # units: the cost of the incumbent

    def __post_init__(self) -> None:
        network = self.problem.network
        self.media = media_table(network)
        by_length = by_reach(network) and network.floor is not None
        self.places = Places(network.floor, self.problem.request.racks) if by_length and network.floor else None

    def endpoints(self, mode: int, domain: int) -> int:
        """Return the price of all links to GPUs, of leaf domains of so many racks."""
        p, m = self.problem, self.problem.modes[mode]
        cables = m.networks * m.rails * m.rail_gpus
        if self.places is None:
            return p.request.racks * cables * p.units(flat_usd(p.weighed, m.switch, m.split)[0])
        if ("endpoint", domain, 0) not in self.known:
            self.known["endpoint", domain, 0] = float(self._powered(endpoint_metres(self.places, domain)).sum())
        return p.units(self.known["endpoint", domain, 0] * cables * endpoint_factor(m.switch, m.split))

    def leaf_uplink(self, mode: int, domain: int, width: Ints) -> Ints:
        """Return the price of one uplink of every leaf, by domains per pod."""
        p, m = self.problem, self.problem.modes[mode]
        if self.places is None:
            leaves = m.networks * m.rails * -(-p.request.racks // domain)
            return np.full_like(width, leaves * p.units(flat_usd(p.weighed, m.switch)[1]))
        return self._by_width("leaf", domain, width, m.networks * m.rails * m.switch.link_factor)

    def spine_uplink(self, mode: int, domain: int, width: Ints, rails: Ints) -> Ints:
        """Return the price of one uplink of one spine of every pod, by domains and rails per pod."""
        p, m = self.problem, self.problem.modes[mode]
        across = -(-m.rails // rails)
        if self.places is None:
            domains = -(-p.request.racks // domain)
            flat: Ints = across * -(-domains // width) * m.networks * p.units(flat_usd(p.weighed, m.switch)[1])
            return flat
        by_reach: Ints = across * self._by_width("spine", domain, width, m.networks * m.switch.link_factor)
        return by_reach

    def spine_uplink_in_zone(self, mode: int, domain: int, width: Ints, rails: Ints, zone: Ints) -> Ints:
        """Return the price by length of one uplink of one spine of every pod to its zone's cores.

        By domains and rails per pod and domains per zone.
        """
        m = self.problem.modes[mode]
        prices, across = np.zeros_like(width), -(-m.rails // rails)
        for w in np.unique(width).tolist():
            at = width == w
            usd = self._by_width("leaf", domain * w, zone[at] // w, m.networks * m.switch.link_factor)
            prices[at] = across[at] * usd
        return prices

    def min_link(self, mode: int) -> int:
        """Bound the price of one link between switches in every network."""
        p, m = self.problem, self.problem.modes[mode]
        if self.places is None:
            return m.networks * p.units(flat_usd(p.weighed, m.switch)[1])
        return int(self.min_links(mode, np.ones(1, dtype=np.int64), 0)[0])

    def wan_gateway(self, mode: int) -> int:
        """Return the price of the switches and links of the WAN gateway of every network."""
        p, m = self.problem, self.problem.modes[mode]
        ports = m.wan_ports(p.request)
        if not ports:
            return 0
        switches = math.ceil(ports / max(1, m.switch.ports // 2)) * p.switch_cost(mode)
        return switches + int(self.beside(mode, np.array([ports]))[0])

    def group_wan_gateway(self, mode: int, domain: int, width: Ints, rails: Ints) -> Ints:
        """Return the price of every network's WAN gateway with links to groups, by domains and rails of a group."""
        p, m = self.problem, self.problem.modes[mode]
        ports = m.wan_ports(p.request)
        if not ports or self.places is None:
            return np.full_like(width, self.wan_gateway(mode))
        switches = math.ceil(ports / max(1, m.switch.ports // 2)) * p.switch_cost(mode)
        shapes = zip((domain * width).tolist(), (-(-m.rails // rails)).tolist(), strict=True)
        links = [self._group_wan_links(mode, pod, ports, across) for pod, across in shapes]
        return switches + np.array(links, dtype=np.int64)

    def _group_wan_links(self, mode: int, pod: int, ports: int, across: int) -> int:
        """Return the price of every network's WAN gateway links to groups of so many racks, `across` at a place."""
        p, m = self.problem, self.problem.modes[mode]
        each = self._powered(group_wan_metres(self._floor(), pod))
        links = group_wan_links(ports, len(each) * across, across)
        usd = float((links[links > 0] * each[links > 0]).sum())  # a place with no link needs no medium
        return p.units(usd * m.networks * m.switch.link_factor)

    def beside(self, mode: int, links: Ints) -> Ints:
        """Return the price of links between switches that stand together."""
        p, m = self.problem, self.problem.modes[mode]
        if self.places is None:
            return links * (m.networks * p.units(flat_usd(p.weighed, m.switch)[1]))
        each = self.beside_usd * m.networks * m.switch.link_factor
        if math.isinf(each):
            return np.where(links > 0, INFINITE_COST, 0)
        return np.rint(links * each * 100 / p.unit_cents).astype(np.int64)

    def between(self, mode: int, domain: int, width: Ints, rails: Ints) -> Ints:
        """Return the price of one link between each two groups, by domains and rails of a group."""
        p, m = self.problem, self.problem.modes[mode]
        across = -(-m.rails // rails)
        if self.places is None:
            domains = -(-p.request.racks // domain)
            pods = across * -(-domains // width)
            flat: Ints = pods * (pods - 1) // 2 * (m.networks * p.units(flat_usd(p.weighed, m.switch)[1]))
            return flat
        shapes = zip(width.tolist(), across.tolist(), strict=True)
        usd = [self._between(domain * w, n) * m.networks * m.switch.link_factor for w, n in shapes]
        return np.array([p.units(x) for x in usd], dtype=np.int64)

    def _between(self, pod: int, across: int) -> float:
        """Return the price of one link between each two groups of so many racks, however these are cut into domains."""
        if ("between", pod, 0) not in self.known:
            lengths = group_metres(self._floor(), pod)
            self.known["between", pod, 0] = sum(float(self._powered(metres).sum()) for metres in lengths)
        apart = self.known["between", pod, 0]
        together = len(range(0, self._floor().racks, pod)) * (across * (across - 1) // 2)
        return across**2 * apart + (together * self.beside_usd if together else 0.0)

    @property
    def beside_usd(self) -> float:
        """Price of a cable between two switches that stand together."""
        return float(self._powered(beside_metres(self._floor()))[0])

    @property
    def min_usd(self) -> float:
        """Lower bound on the price of a cable: the cheapest medium at no length."""
        return float((self.media.price_usd + self.media.watts * self._watt_usd).min())

    def min_links(self, mode: int, links: Ints, ends: int) -> Ints:
        """Bound the price of links between switches and to GPUs from below, by reach."""
        m = self.problem.modes[mode]
        factors = m.switch.link_factor * links * m.networks + endpoint_factor(m.switch, m.split) * ends
        bound: Ints = np.floor(factors * self.min_usd * 100 / self.problem.unit_cents).astype(np.int64)
        return bound

    def _by_width(self, kind: str, domain: int, width: Ints, times: float) -> Ints:
        """Return the prices by width, worked out once for each, those of one domain together."""
        each, which = np.unique(width, return_inverse=True)
        wanted = [w for w in each.tolist() if (kind, domain, w) not in self.known]
        for at in range(0, len(wanted), TOGETHER):
            self._price_widths(kind, domain, wanted[at : at + TOGETHER])
        units = [self.problem.units(self.known[kind, domain, w] * times) for w in each.tolist()]
        return np.array(units, dtype=np.int64)[which.ravel()]

    def _price_widths(self, kind: str, domain: int, widths: list[int]) -> None:
        """Store the price of one cable from each place of a kind to the place above, for each width."""
        places = self._floor()
        step = [domain if kind == "leaf" else domain * w for w in widths]
        firsts = [np.arange(0, places.racks, n, dtype=np.int64) for n in step]
        many = [len(x) for x in firsts]
        first, pod = np.concatenate(firsts), np.repeat(np.array(widths, dtype=np.int64) * domain, many)
        metres = leaf_metres(places, first, domain, pod) if kind == "leaf" else spine_metres(places, first, pod)
        sums = np.add.reduceat(self._powered(metres), np.concatenate([[0], np.cumsum(many)[:-1]]))
        self.known |= {(kind, domain, w): float(usd) for w, usd in zip(widths, sums, strict=True)}

    def _powered(self, metres: Metres) -> Metres:
        """Return the price of links of each length with their power over the years."""
        usd, watts = self.media.usd_watts(metres)
        return usd + watts * self._watt_usd

    @property
    def _watt_usd(self) -> float:
        return self.media.usd_per_watt + self.problem.watt_usd

    def _floor(self) -> Places:
        if self.places is None:
            raise ValueError("there is no floor")
        return self.places
