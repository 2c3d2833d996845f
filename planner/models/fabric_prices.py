"""Prices of links for the fabric's tables, in units: flat, or by their length for each leaf domain and pod of the floor."""

from dataclasses import dataclass, field

import numpy as np

from planner.models.fabric_question import Ints, Problem
from planner.physics.fabric_bill import by_reach, endpoint_metres, flat_usd, leaf_metres, spine_metres, table
from planner.physics.floor import Metres, Places
from planner.physics.media import MediaTable

TOGETHER = 32  # widths of pods priced at a time


@dataclass(slots=True)
class LinkPrices:
    """Prices of all links of a kind together, kept by leaf domain and pod once worked out."""

    problem: Problem
    places: Places | None = field(init=False)
    media: MediaTable = field(init=False)
    known: dict[tuple[str, int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        network = self.problem.network
        self.media = table(network)
        self.places = Places(network.floor, self.problem.request.racks) if by_reach(network) and network.floor is not None else None

    def endpoints(self, mode: int, domain: int) -> int:
        """All links to GPUs of leaf domains of so many racks."""
        p, m = self.problem, self.problem.modes[mode]
        cables = m.networks * m.rails * m.rail_gpus
        if self.places is None:
            return p.request.racks * cables * p.units(flat_usd(p.network, m.switch)[0])
        if ("endpoint", domain, 0) not in self.known:
            self.known["endpoint", domain, 0] = float(self._powered(endpoint_metres(self.places, domain)).sum())
        return p.units(self.known["endpoint", domain, 0] * cables * m.switch.link_factor)

    def leaf_uplink(self, mode: int, domain: int, width: Ints) -> Ints:
        """One uplink of every leaf, by domains per pod."""
        p, m = self.problem, self.problem.modes[mode]
        if self.places is None:
            leaves = m.networks * m.rails * -(-p.request.racks // domain)
            return np.full_like(width, leaves * p.units(flat_usd(p.network, m.switch)[1]))
        return self._by_width("leaf", domain, width, m.networks * m.rails * m.switch.link_factor)

    def spine_uplink(self, mode: int, domain: int, width: Ints, rails: Ints) -> Ints:
        """One uplink of one spine of every pod, by domains and rails per pod."""
        p, m = self.problem, self.problem.modes[mode]
        across = -(-m.rails // rails)
        if self.places is None:
            domains = -(-p.request.racks // domain)
            flat: Ints = across * -(-domains // width) * m.networks * p.units(flat_usd(p.network, m.switch)[1])
            return flat
        by_reach: Ints = across * self._by_width("spine", domain, width, m.networks * m.switch.link_factor)
        return by_reach

    def _by_width(self, kind: str, domain: int, width: Ints, times: float) -> Ints:
        """Return the prices by width, worked out once for each, those of one domain together."""
        each, which = np.unique(width, return_inverse=True)
        wanted = [w for w in each.tolist() if (kind, domain, w) not in self.known]
        for at in range(0, len(wanted), TOGETHER):
            self._learn(kind, domain, wanted[at : at + TOGETHER])
        units = [self.problem.units(self.known[kind, domain, w] * times) for w in each.tolist()]
        return np.array(units, dtype=np.int64)[which.ravel()]

    def _learn(self, kind: str, domain: int, widths: list[int]) -> None:
        """Price one cable from each place of a kind to the place above, for each width."""
        places = self._floor()
        step = [domain if kind == "leaf" else domain * w for w in widths]
        firsts = [np.arange(0, places.racks, n, dtype=np.int64) for n in step]
        many = [len(x) for x in firsts]
        first, pod = np.concatenate(firsts), np.repeat(np.array(widths, dtype=np.int64) * domain, many)
        metres = leaf_metres(places, first, domain, pod) if kind == "leaf" else spine_metres(places, first, pod)
        sums = np.add.reduceat(self._powered(metres), np.concatenate([[0], np.cumsum(many)[:-1]]))
        self.known |= {(kind, domain, w): float(usd) for w, usd in zip(widths, sums, strict=True)}

    def _powered(self, metres: Metres) -> Metres:
        """Price links of each length with their power over the years."""
        usd, watts = self.media.usd_watts(metres)
        return usd + watts * self.media.usd_per_watt

    def _floor(self) -> Places:
        if self.places is None:
            raise ValueError("there is no floor")
        return self.places
