"""Prices of links for the fabric's tables, in units: flat, or by their length for each leaf domain and pod of the floor."""

import math
from dataclasses import dataclass, field

import numpy as np

from planner.models.fabric_question import Ints, Problem
from planner.physics.fabric_bill import by_reach, endpoint_metres, flat_usd, leaf_metres, link_usd_watts, spine_metres
from planner.physics.floor import Metres, Places


@dataclass(slots=True)
class LinkPrices:
    """Prices of all links of a kind together, kept by leaf domain and pod once worked out."""

    problem: Problem
    places: Places | None = field(init=False)
    known: dict[tuple[str, int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        network = self.problem.network
        self.places = Places(network.floor, self.problem.request.racks) if by_reach(network) and network.floor is not None else None

    def endpoints(self, mode: int, domain: int) -> int:
        """All links to GPUs of leaf domains of so many racks."""
        p, m = self.problem, self.problem.modes[mode]
        cables = m.networks * m.rails * m.rail_gpus
        if self.places is None:
            return p.request.racks * cables * p.units(flat_usd(p.network, m.switch)[0])
        return p.units(self._sum("endpoint", domain, 0) * cables * m.switch.link_factor)

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
        """Return the prices by width, worked out once for each."""
        each, which = np.unique(width, return_inverse=True)
        units = [self.problem.units(self._sum(kind, domain, w) * times) for w in each.tolist()]
        return np.array(units, dtype=np.int64)[which.ravel()]

    def _sum(self, kind: str, domain: int, width: int) -> float:
        """Price of one cable from each place of a kind to the place above."""
        key = kind, domain, width
        if key not in self.known:
            usd, watts = link_usd_watts(self.problem.network, self._metres(*key))
            total = float(usd.sum())
            self.known[key] = total if math.isinf(total) else total + float(watts.sum()) * self.problem.network.power_usd_per_watt
        return self.known[key]

    def _metres(self, kind: str, domain: int, width: int) -> Metres:
        if self.places is None:
            raise ValueError("there is no floor")
        if kind == "endpoint":
            return endpoint_metres(self.places, domain)
        return leaf_metres(self.places, domain, domain * width) if kind == "leaf" else spine_metres(self.places, domain * width)
