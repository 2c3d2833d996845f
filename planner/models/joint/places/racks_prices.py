"""Price racks at sites without fabrics, by wavelengths and longest round trip, with few questions to the MILP.

At a limit on round trips every choice of sites costs a fixed part, wavelengths, and fibre pairs times the length of
its routes. The least of such lines is concave in the pairs of fibres: between two known prices it lies on or above
the straight line, and no higher than what known sites cost with other fibre. Where both meet nothing is asked.
Where the fibre is designed only this holds: more wavelengths and shorter round trips cost no less than the bound that
the sites return for fewer and longer ones.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from planner.models.joint.places.site_question import Circuit, PlacedParts, SitePart
from planner.models.joint.world import CENTS

if TYPE_CHECKING:
    from planner.models.joint.sites import Sites


@dataclass(frozen=True, slots=True)
class KnownPrice:
    """The least capital at some wavelengths and longest round trip, and the sites where it is exact."""

    waves: int
    max_rtt_ms: float
    usd: float
    placed: PlacedParts | None


@dataclass(kw_only=True)
class Prices:
    """The prices of some parts at sites of their own."""

    sites: "Sites"
    parts: tuple[SitePart, ...]
    answers: list[KnownPrice] = field(default_factory=list)

    @property
    def several(self) -> bool:
        """Whether more than one site is open."""
        return len(self.parts) > 1

    @property
    def exact(self) -> bool:
        """Whether prices at other wavelengths follow from known ones."""
        return not (self.several and self.sites.designed)

    def lower(self, waves: int, rtt: float) -> float:
        """Bound the price from below."""
        if not self.several:
            return max((a.usd for a in self.answers), default=0.0)
        known = [a for a in self.answers if a.max_rtt_ms >= rtt]
        below, above = [a for a in known if a.waves <= waves], [a for a in known if a.waves >= waves]
        if not self.exact:
            return max((a.usd for a in below), default=0.0)
        if any(a.usd == math.inf for a in known):
            return math.inf
        routes = self._routes_km(rtt)
        if math.isinf(routes):
            return math.inf
        near = routes / (len(self.parts) * (len(self.parts) - 1) // 2)
        found = max((a.usd + self._fibre(near, waves) - self._fibre(near, a.waves) for a in below), default=0.0)
        return max([found, *(self._between(a, b, waves) for a in below for b in above)])

    def _routes_km(self, rtt: float) -> float:
        """Bound the routes between sites that have room for the parts; infinite where none are so near."""
        return self.sites.min_routes_km(len(self.parts), rtt, tuple(p.racks for p in self.parts))

    def _between(self, a: KnownPrice, b: KnownPrice, waves: int) -> float:
        """Return the price on the straight line between two answers, in pairs of fibres."""
        low, at, high = (self._pairs(n) for n in (a.waves, waves, b.waves))
        ends = [x.usd - self._fibre(0.0, x.waves) for x in (a, b)]
        own = min(ends) if high == low else ends[0] + (at - low) / (high - low) * (ends[1] - ends[0])
        return own + self._fibre(0.0, waves)

    def _pairs(self, waves: int) -> int:
        return -(-waves // self.sites.data.wan.max_wavelengths_per_pair)

    def _fibre(self, km: float, waves: int) -> float:
        """Price the fibre between every two sites, each so far apart."""
        n = len(self.parts)
        return n * (n - 1) // 2 * self.sites.fibre_usd(km, waves)

    def upper(self, waves: int, rtt: float) -> float:
        """Price the cheapest known sites within a round trip, with `waves` wavelengths between them."""
        fits = [(a, a.placed) for a in self.answers if a.placed is not None and a.placed.rtt_ms <= rtt]
        return min((a.usd + self._more(a, placed, waves) for a, placed in fits), default=math.inf)

    def _more(self, a: KnownPrice, placed: PlacedParts, waves: int) -> float:
        """Price other wavelengths between the sites of an answer, less its own."""
        if waves == a.waves:
            return 0.0
        km = [self.sites.data.pairs[p] for p in placed.pairs]
        return sum(self.sites.fibre_usd(x, waves) - self.sites.fibre_usd(x, a.waves) for x in km)

    def is_known(self, waves: int, rtt: float) -> bool:
        """Return whether nothing more is to be learned of a price."""
        if not self.exact:
            return any((a.waves, a.max_rtt_ms) == (waves, rtt) for a in self.answers)
        if self.several and math.isinf(self._routes_km(rtt)):
            return True
        return bool(self.answers) and self.upper(waves, rtt) <= self.lower(waves, rtt) + CENTS

    def ask(self, waves: int, rtt: float) -> None:
        """Ask the MILP for a price that is not known; first for sites that are nearer than the cheapest known ones."""
        if self.is_known(waves, rtt):
            return
        far = min((a.placed.rtt_ms for a in self.answers if a.placed is not None), default=0.0)
        trips = (t for t in self.sites.rtts_ms() if t < far and math.isfinite(self._routes_km(t)))
        nearer = max(trips, default=rtt) if self.exact and self.several else rtt
        self._ask(waves, max(rtt, nearer))
        if not self.is_known(waves, rtt):
            self._ask(waves, rtt)

    def _ask(self, waves: int, rtt: float) -> None:
        circuit = Circuit(waves, rtt) if self.several else None
        placed = self.sites.cheapest(self.parts, circuit) if self.exact else None
        usd = self.sites.joined_least(self.parts, circuit) if placed is None else placed.capital_usd
        self.answers.append(KnownPrice(waves, rtt, usd, placed))
