"""What racks at sites cost without fabrics, by wavelengths and longest round trip, with few questions to the MILP.

At a limit on round trips every choice of sites costs a fixed part, wavelengths, and fibre pairs times the length of
its routes. The least of such lines is concave in the pairs of fibres: between two known prices it lies on or above
the straight line, and no higher than what known sites cost with other fibre. Where both meet nothing is asked.
"""

import math
from dataclasses import dataclass, field, replace

from planner.models.joint.sites import Circuit, Part, Placed, Sites
from planner.models.joint.world import CENTS


@dataclass(frozen=True, slots=True)
class Answer:
    """The cheapest sites at some wavelengths and longest round trip; None where there are none."""

    waves: int
    max_rtt_ms: float
    placed: Placed | None

    @property
    def usd(self) -> float:
        """Capital, infinite where no sites hold the racks."""
        return math.inf if self.placed is None else self.placed.capital_usd


@dataclass(kw_only=True)
class Prices:
    """The prices of some parts at sites of their own."""

    sites: Sites
    parts: tuple[Part, ...]
    answers: list[Answer] = field(default_factory=list)

    @property
    def several(self) -> bool:
        """Whether more than one site is open."""
        return len(self.parts) > 1

    def lower(self, waves: int, rtt: float) -> float:
        """Bound the price from below."""
        if not self.several:
            return max((a.usd for a in self.answers), default=0.0)
        known = [a for a in self.answers if a.max_rtt_ms >= rtt]
        if any(a.placed is None for a in known):
            return math.inf
        near = self.sites.min_route_km()
        below, above = [a for a in known if a.waves <= waves], [a for a in known if a.waves >= waves]
        found = max((a.usd + self._fibre(near, waves) - self._fibre(near, a.waves) for a in below), default=0.0)
        for a in below:
            for b in above:
                found = max(found, self._between(a, b, waves))
        return found

    def _between(self, a: Answer, b: Answer, waves: int) -> float:
        """Return the price on the straight line between two answers, in pairs of fibres."""
        pairs = [self._pairs(n) for n in (a.waves, waves, b.waves)]
        ends = [x.usd - self._fibre(0.0, x.waves) for x in (a, b)]
        share = 0.0 if pairs[2] == pairs[0] else (pairs[1] - pairs[0]) / (pairs[2] - pairs[0])
        own = min(ends) if pairs[2] == pairs[0] else ends[0] + share * (ends[1] - ends[0])
        return own + self._fibre(0.0, waves)

    def _pairs(self, waves: int) -> int:
        return -(-waves // self.sites.data.wan.max_wavelengths_per_pair)

    def _fibre(self, km: float, waves: int) -> float:
        """Price the fibre between every two sites, each so far apart."""
        n = len(self.parts)
        return n * (n - 1) // 2 * self.sites.fibre_usd(km, waves)

    def known(self, waves: int, rtt: float) -> Placed | None:
        """Return the cheapest of the known sites within a round trip, with so many wavelengths between them."""
        found = [self._with_waves(a, waves) for a in self.answers if a.placed is not None and a.placed.rtt_ms <= rtt]
        return min(found, key=lambda x: x.capital_usd, default=None)

    def _with_waves(self, a: Answer, waves: int) -> Placed:
        if a.placed is None:
            raise ValueError("no sites")
        s = self.sites
        km = [s.data.pairs[p] for p in a.placed.pairs]
        more = sum(s.fibre_usd(x, waves) - s.fibre_usd(x, a.waves) for x in km) if a.waves != waves else 0.0
        return replace(a.placed, capital_usd=a.placed.capital_usd + more)

    def settled(self, waves: int, rtt: float) -> bool:
        """Return whether the price is known to half a cent."""
        lower, known = self.lower(waves, rtt), self.known(waves, rtt)
        if known is None:
            return lower == math.inf
        return bool(self.answers) and known.capital_usd <= lower + CENTS

    def ask(self, waves: int, rtt: float) -> None:
        """Ask the MILP for a price that is not known."""
        if not self.settled(waves, rtt):
            circuit = Circuit(waves, rtt) if self.several else None
            self.answers.append(Answer(waves, rtt, self.sites.cheapest(self.parts, circuit)))
