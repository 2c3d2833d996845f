"""The prices of a fabric's links and boxes at a site, for one switch in one family: flat, by length, or as bounds."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from planner.instance.network import FabricFamily, Network, Switch
from planner.models import resolved_switches
from planner.models.fabric.design_table import Floats
from planner.physics.network.clos_fabric import Metres, Places
from planner.physics.network.dragonfly import group_wan_links
from planner.physics.network.fabric_designs import (
    FAMILIES,
    MediaTable,
    by_reach,
    endpoint_factor,
    flat_usd,
    lane_gbps,
    lanes_of,
    media_table,
    port_splits,
    rails_together,
)

Prices = Floats  # rows: dollars, power over the years included, and MW; a column each, or one for all


@dataclass(frozen=True, slots=True)
class Mode:
    """A switch in one fabric family, with one price of links: how a rack's GPUs meet its ports, in which networks."""

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
        """Return how many NICs, or lanes of them, at full rate a link between switches of this mode carries."""
        return self.switch.port_gbps / self.nic_gbps

    @property
    def networks(self) -> int:
        """Count the networks side by side of this mode, over which link prices are summed."""
        return self.apart * self.lanes

    @property
    def planes(self) -> int:
        """Count the planes of switch chips of this mode over all lanes of a NIC."""
        return self.switch.planes * self.lanes


def switch_modes(network: Network, gpus: int, nic_bytes_per_second: float) -> Iterator[Mode]:
    """Yield the modes to price links of: switches in families, for racks of `gpus` GPUs, NICs on the fewest lanes."""
    # A port may be split into 1, 2, 4 and so on parts that still carry a NIC, as many as the switch allows.
    for s in resolved_switches(network.switches):
        lanes = lanes_of(s, nic_bytes_per_second)
        rate = lane_gbps(nic_bytes_per_second, lanes)
        if lanes > network.max_lanes:
            continue
        splits = port_splits(s, rate)
        for family in dict.fromkeys(network.families):
            rack, kind = FAMILIES[family].rack_ports(gpus), FAMILIES[family].design
            above = kind.grouped, len(kind.tier_names) > 1
            for n, split in product(rails_together(network, gpus) if family == "rail" else (1,), splits):
                yield Mode(s, family, *rack.shared(n), lanes, rate, split, *above)


def times(count: Any, price: Prices) -> Prices:
    """Multiply link prices by counts; no links cost nothing, even where no medium reaches and the price is infinite."""
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
    bounds: bool = False  # links between switches are all as short as can be, and draw nothing

    @cached_property
    def bound(self) -> "LinkPrices":
        """Return lower bounds of the link prices that are quick to compute: these, where links have no length."""
        return replace(self, bounds=True)

    @cached_property
    def places(self) -> Places | None:
        """Return the places of racks on the floor, where links are priced by length; else None."""
        floor = self.network.floor
        return Places(floor, self.racks) if floor is not None and by_reach(self.network) else None

    @cached_property
    def media(self) -> MediaTable:
        """Return the table of cable media by which links are priced."""
        return media_table(self.network)

    @property
    def measured(self) -> Places | None:
        """Return the floor on which links between switches are measured; None where prices are flat or bounds."""
        return None if self.bounds else self.places

    @cached_property
    def flat_link(self) -> Prices:
        """Price one link between two switches without a length: USD and MW; of bounds by length the shortest link."""
        n, s = self.network, self.mode.switch
        if self.places is not None:
            return s.link_factor * self._priced(self.places.adjacent_metres()) * [[1.0], [0.0]]
        watts = n.cables.switch_transceivers * n.optics.power_watts * s.link_factor
        return np.array([[flat_usd(n, s)[1]], [watts / 1e6]])

    def endpoints(self, domain: Any) -> Prices:
        """Price all links between GPUs and leaves, each leaf amid the `domain` racks of its domain."""
        m, n, places = self.mode, self.network, self.places
        ends, factor = m.networks * m.rails * m.rail_gpus, endpoint_factor(m.switch, m.split)
        if places is None:
            watts = n.cables.endpoint_transceivers * n.optics.power_watts * factor
            return self.racks * ends * np.array([[flat_usd(n, m.switch, m.split)[0]], [watts / 1e6]])
        if self.bounds:
            return self.racks * ends * factor * self._priced(np.array([2 * places.floor.rise_m])) * [[1.0], [0.0]]
        each = self._by_length("endpoints", lambda racks: [places.to_middle(1, racks, spread=False)], domain)
        return times(ends * factor, each)

    def uplink(self, racks: Any, rails: Any, above: Any = 0) -> Prices:
        """Price one link up from every leaf, pod or zone of some racks and rails, to amid `above` racks (0: all)."""
        m, places = self.mode, self.measured
        across = -(-m.rails // rails)
        if places is None:
            return times(m.networks * across * -(-self.racks // racks), self.flat_link)
        each = self._by_length("up", lambda run, over: [places.to_middle(run, over or places.racks)], racks, above)
        return times(m.networks * across * m.switch.link_factor, each)

    def adjacent_links(self, links: Any) -> Prices:
        """Price `links` links in each network between switches that are placed next to each other."""
        m, places = self.mode, self.measured
        if places is None:
            return times(links * m.networks, self.flat_link)
        one = self._by_length("adjacent", lambda _: [places.adjacent_metres()], 0)
        return times(links * m.networks * m.switch.link_factor, one)

    def between(self, pod: Any, rails: Any) -> Prices:
        """Price one link between every two groups of a dragonfly, each of `pod` racks and `rails` rails."""
        m, places = self.mode, self.measured
        across, along = -(-m.rails // rails), -(-self.racks // pod)
        if places is None:
            return times(m.networks * (across * along * (across * along - 1) // 2), self.flat_link)
        apart = self._by_length("between", places.group_metres, pod)
        together = self.adjacent_links(along * (across * (across - 1) // 2))
        return times(m.networks * m.switch.link_factor, times(across**2, apart)) + together

    def group_wan(self, pod: int, rails: int, ports: int) -> Prices:
        """Price the `ports` links of every network's WAN gateway to its groups of `pod` racks and `rails` rails."""
        m, places = self.mode, self.measured
        if not ports or places is None:
            return self.adjacent_links(ports)
        lengths = places.to_middle(pod, places.racks)
        across, each = -(-m.rails // rails), self._priced(lengths)
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
