"""Price and power of a site's links by kind: one price each, or by their lengths on the floor, as in `price.bill`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from planner.instance.network import Network, Switch
from planner.models.fabric.modes import Mode
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
from planner.physics.network.price import by_reach, endpoint_factor, flat_usd, media_table, switch_usd

Price = tuple[float, float]  # dollars, power over the years included, and MW
FREE: Price = (0.0, 0.0)


def plus(a: Price, b: Price) -> Price:
    """Add two prices."""
    return a[0] + b[0], a[1] + b[1]


def times(n: float, a: Price) -> Price:
    """Return so many times a price; none costs nothing, also where no medium reaches."""
    return (n * a[0], n * a[1]) if n else FREE


@dataclass(kw_only=True)
class LinkPrices:
    """Price and power of links of one mode at a site of so many racks, in all networks side by side.

    `known` keeps sums of lengths priced, which all modes of a site share.
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
        """Price all links to GPUs, of leaves amid so many racks."""
        m, n = self.mode, self.network
        ends, factor = m.networks * m.rails * m.rail_gpus, endpoint_factor(m.switch, m.split)
        if self.places is None:
            watts = n.cables.endpoint_transceivers * n.optics.power_watts * factor
            return times(self.racks * ends, (flat_usd(n, m.switch, m.split)[0], watts / 1e6))
        places = self.places
        one = self._sum(("endpoints", domain, 0, 0), lambda: endpoint_metres(places, domain))
        return times(ends * factor, one)

    def leaf_uplink(self, domain: int, width: int) -> Price:
        """Price one uplink of every leaf, of pods of so many domains."""
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
        """Price one uplink of one spine of every pod of so many racks, or of one core of every zone.

        To switches amid the site, or amid zones of so many racks.
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

    def beside(self, links: int) -> Price:
        """Price links of one network, times all networks, between switches that stand together."""
        m = self.mode
        if self.places is None:
            return times(links * m.networks, self.flat_link)
        if not links:
            return FREE
        places = self.places
        one = self._sum(("beside", 0, 0, 0), lambda: beside_metres(places))
        return times(links * m.networks * m.switch.link_factor, one)

    def between(self, pod: int, rails: int) -> Price:
        """Price one link between each two groups of so many racks and rails."""
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
        together = self.beside(along * (across * (across - 1) // 2))
        return plus(times(m.networks * m.switch.link_factor, apart), together)

    def group_wan(self, pod: int, rails: int, ports: int) -> Price:
        """Price links of every network's WAN gateway to groups of so many racks and rails."""
        m = self.mode
        across, places = -(-m.rails // rails), self.places
        if not ports or places is None:
            return self.beside(ports)
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
