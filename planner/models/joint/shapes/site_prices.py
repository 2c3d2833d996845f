"""Site bounds and site prices: what answers to questions to the sites say of other questions.

A point of the site bounds is a number of sites that hold blocks, their racks in all, the racks of the largest, the
longest round trip between two, and the wavelengths between them. The least capital grows with racks and wavelengths and
falls with the round trip, so an answer at one point is one at many others, of other shapes, columns and budgets.

Site prices are those of racks at sites without fabrics. Every choice of sites costs a fixed part, wavelengths, and
fibre pairs times the length of its routes: the least is concave in the pairs, so that it lies on or above the straight
line between two known prices, and no higher than known sites with other fibre. Where both meet, no MILP is run. Where
the fibre is designed, more wavelengths and shorter round trips cost no less than the bound for fewer and longer ones.
"""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.models.joint.shapes.site_question import Circuit, PlacedParts, SitePart, SitesExtent
from planner.models.joint.strategy_space import Floats
from planner.models.joint.time_bounds import EPS
from planner.physics.site.wan import fibre_pairs
from planner.physics.training.step_prediction import LayoutFibre

if TYPE_CHECKING:
    from planner.models.joint.shapes.site_choice import Sites

CENTS = 0.005
COARSE_BITS = 5  # behind the first, that a coarse number keeps: 1.6 to 3.1 % of it
MUCH_USD = 1e29  # above any budget: no limit is meant


@dataclass(frozen=True, slots=True)
class KnownPrice:
    """A known site price: least capital in USD at some wavelengths and longest round trip, and its sites if exact."""

    waves: int
    max_rtt_ms: float
    usd: float
    placed: PlacedParts | None


@dataclass(kw_only=True)
class Prices:
    """The site prices in USD of some parts, each at a site of its own, by wavelengths and round trip."""

    sites: "Sites"
    parts: tuple[SitePart, ...]
    racks: int | None = None  # of all sites at least, whatever the parts, for a bound on all parts of so many racks
    answers: list[KnownPrice] = field(default_factory=list)
    tables: dict[float, tuple[int, Floats]] = field(default_factory=dict)  # by round trip: answers that they rest on

    @property
    def several(self) -> bool:
        """Whether more than one site is open in these site prices."""
        return len(self.parts) > 1

    @property
    def exact(self) -> bool:
        """Whether site prices at other wavelengths follow from known ones: not where fibre is designed."""
        return not (self.several and self.sites.designed)

    def lower(self, waves: int, rtt: float) -> float:
        """Bound a site price in USD from below at one number of wavelengths."""
        return float(self.lowers(rtt)[waves])

    def lowers(self, rtt: float) -> Floats:
        """Bound site prices in USD from below by the number of wavelengths."""
        if rtt in self.tables and self.tables[rtt][0] == len(self.answers):
            return self.tables[rtt][1]
        wan, sites = self.sites.data.wan, len(self.parts)
        waves = np.arange(wan.max_wavelengths_per_pair * wan.max_fibre_pairs + 1)
        known = [a for a in self.answers if a.max_rtt_ms >= rtt or not self.several]
        # More wavelengths cost no less; at one site all answers are for none.
        found: Floats = np.max([np.zeros(len(waves)), *(np.where(waves >= a.waves, a.usd, 0.0) for a in known)], axis=0)
        if self.exact and self.several:
            routes = self.sites.min_routes_km(sites, rtt, tuple(p.racks for p in self.parts))
            if math.isinf(routes) or any(math.isinf(a.usd) for a in known):  # no sites hold the parts, at any price
                found, known = np.full(len(waves), np.inf), []
            # Fibre between all sites along the shortest and the longest routes, and none but its wavelengths.
            joined, pairs = sites * (sites - 1) // 2, fibre_pairs(wan, waves)
            lengths_km = routes, joined * rtt / wan.rtt_ms_per_100_route_km * 100, 0.0
            near, far, lit = (self.sites.all_fibre_usd(sites, km) for km in lengths_km)
            for a in known:
                more = np.where(waves >= a.waves, near - near[a.waves], far - far[a.waves])
                found = np.maximum(found, a.usd + more)
                for b in (x for x in known if x.waves > a.waves):
                    # The straight line between both, in pairs of fibres.
                    low, high = a.usd - lit[a.waves], b.usd - lit[b.waves]
                    over = pairs[b.waves] - pairs[a.waves]
                    line = low + (pairs - pairs[a.waves]) / over * (high - low) if over else min(low, high)
                    found = np.where((waves >= a.waves) & (waves <= b.waves), np.maximum(found, line + lit), found)
        self.tables[rtt] = len(self.answers), found
        return found

    def upper(self, waves: int, rtt: float) -> float:
        """Price in USD the cheapest known sites within a round trip, with `waves` wavelengths between them."""
        found, usd = math.inf, self.sites.fibre_usd
        for a in self.answers:
            if a.placed is not None and a.placed.rtt_ms <= rtt:
                lengths_km = [self.sites.data.pairs[p] for p in a.placed.pairs] if waves != a.waves else []
                found = min(found, float(a.usd + sum(usd(km, waves) - usd(km, a.waves) for km in lengths_km)))
        return found

    def is_known(self, waves: int, rtt: float) -> bool:
        """Return whether a site price is known: nothing more is to be learned of it."""
        if not self.exact:
            return any((a.waves, a.max_rtt_ms) == (waves, rtt) for a in self.answers)
        if self.several and math.isinf(self.lower(0, rtt)):
            return True
        return bool(self.answers) and self.upper(waves, rtt) <= self.lower(waves, rtt) + CENTS

    def ask(self, waves: int, rtt: float, stage_bytes: float = 0.0) -> None:
        """Ask the MILP for a site price that is not known; first for nearer sites than the cheapest known ones.

        Where fibre is designed it is the price for `stage_bytes` bytes of a stage or fewer; 0: for any number.
        """
        if self.is_known(waves, rtt):
            return
        far = min((a.placed.rtt_ms for a in self.answers if a.placed is not None), default=0.0)
        trips = (t for t in self.sites.rtts_ms if t < far and math.isfinite(self.lower(0, t)))
        nearer = max(trips, default=rtt) if self.exact and self.several else rtt
        for trip in (max(rtt, nearer), rtt):
            if self.is_known(waves, rtt):
                return
            circuit = Circuit(waves, trip, stage_bytes) if self.several else None
            if not self.exact:
                placed, usd = None, self.sites.least(self.parts, circuit)
            else:
                placed = self.sites.cheapest(self.parts, circuit, self.racks)
                usd = math.inf if placed is None else placed.capital_usd
            self.answers.append(KnownPrice(waves, trip, usd, placed))


@dataclass(kw_only=True)
class SiteBounds:
    """Site bounds: the capital in USD that does not pay any sites for a point's racks, and that of some sites that do.

    The site MILP decides whether an amount pays a point, not the least that does: a MILP with a limit on capital and
    no goal is answered in a tenth of the time, and the search only compares amounts.
    """

    sites: "Sites"
    known: dict[SitesExtent, float] = field(default_factory=dict)  # capital that does not pay; infinite: none does
    paid: dict[SitesExtent, float] = field(default_factory=dict)  # capital of sites that hold a point
    tables: dict[tuple[int, int, int], Floats] = field(default_factory=dict)  # of what is known at all round trips
    prices: dict[SitesExtent, Prices] = field(default_factory=dict)  # of points at any round trip
    # Whether the money pays any sites, and the widest fibre between them, by money, point and GPUs cabled.
    fibres: dict[Any, tuple[bool, LayoutFibre | None]] = field(default_factory=dict)

    def bound(self, at: SitesExtent) -> float:
        """Return the site bound on capital in USD for a point that follows from the points known."""
        return max((usd for p, usd in self.known.items() if p.covers(at)), default=0.0)

    def by_rtt(self, at: SitesExtent, rtts_ms: list[float]) -> Floats:
        """Return the site bounds on capital in USD for a point at each of all longest round trips, ascending."""
        key = at.sites, at.racks, at.largest
        if key not in self.tables:
            table, rtts = np.zeros(len(rtts_ms)), np.array(rtts_ms)
            for p, usd in self.known.items():
                if p.covers(replace(at, rtt_ms=p.rtt_ms)):
                    table[rtts <= p.rtt_ms] = np.maximum(table[rtts <= p.rtt_ms], usd)
            self.tables[key] = table
        return self.tables[key]

    def exceeds(self, at: SitesExtent, usd: float) -> bool:
        """Return whether a point needs more site capital than an amount; ask only where known points leave it open."""
        # A coarse point is asked first, and with more money: an amount that does not pay it does not pay many others
        # either, and a point that no money pays is asked once.
        if self.bound(at) > usd:
            return True
        coarse = replace(at, racks=rounded_down(at.racks), largest=rounded_down(at.largest))
        for point, amount in ((coarse, rounded_up(usd)), (at, usd)):
            if any(price <= amount and point.covers(p) for p, price in self.paid.items()):
                continue
            most = amount * (1 + EPS) + CENTS if amount < MUCH_USD else math.inf
            placed = self.sites.paid_sites(point, most)
            if placed is None:
                self.known[point] = max(self.known.get(point, 0.0), most)
                self.tables.clear()
                return True
            # Its sites pay the tightest point that they hold.
            racks, largest = sum(placed.racks.values()), max(placed.racks[x] for x in placed.parts)
            racks, largest = max(point.racks, racks), max(point.largest, largest)
            tightest = replace(point, racks=racks, largest=largest, rtt_ms=placed.rtt_ms)
            self.paid[tightest] = min(placed.capital_usd, self.paid.get(tightest, math.inf))
        return False


def rounded_down(racks: int) -> int:
    """Round a site bound's number of racks down to its first bits, for the coarse point that is asked first."""
    step = 1 << max(0, racks.bit_length() - 1 - COARSE_BITS)
    return racks // step * step


def rounded_up(usd: float) -> float:
    """Round a site bound's amount in USD up to its first bits, by 1 in 32 at most, for the coarse point."""
    if not 0 < usd < MUCH_USD:
        return usd
    step = 2.0 ** (math.floor(math.log2(usd)) - COARSE_BITS)
    return math.ceil(usd / step) * step
