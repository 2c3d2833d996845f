"""Lower bounds on the capital of one shape of a column, by fabrics, fibre and round trip, sharpened by answers.

Racks at sites without fabrics are priced with few questions to the MILP. At a limit on round trips every choice of
sites costs a fixed part, wavelengths, and fibre pairs times the length of its routes. The least of such lines is
concave in the pairs of fibres: between two known prices it lies on or above the straight line, and no higher than what
known sites cost with other fibre. Where both meet nothing is asked. Where the fibre is designed only this holds: more
wavelengths and shorter round trips cost no less than the bound that the sites return for fewer and longer ones.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from planner.errors import InputError
from planner.models.joint.places.shape_problem import ShapeProblem, exchanged_bytes
from planner.models.joint.places.site_question import Circuit, PlacedParts, SitePart
from planner.models.joint.space import Floats, Ints
from planner.models.joint.world import CENTS, EPS
from planner.physics.site.wan import fibre_pairs

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
    cheapest: Callable[[Circuit | None], PlacedParts | None]  # sites over a circuit
    answers: list[KnownPrice] = field(default_factory=list)
    tables: dict[float, tuple[int, Floats]] = field(default_factory=dict)  # by round trip: answers that they rest on

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
        return float(self.lowers(rtt)[waves])

    def lowers(self, rtt: float) -> Floats:
        """Bound the price from below by the number of wavelengths."""
        if rtt not in self.tables or self.tables[rtt][0] != len(self.answers):
            self.tables[rtt] = len(self.answers), self._lowers(rtt)
        return self.tables[rtt][1]

    def _lowers(self, rtt: float) -> Floats:
        wan, sites = self.sites.data.wan, len(self.parts)
        waves = np.arange(wan.max_wavelengths_per_pair * wan.max_fibre_pairs + 1)
        known = [a for a in self.answers if a.max_rtt_ms >= rtt or not self.several]
        found = np.zeros(len(waves))
        if not self.several:
            return np.asarray(np.maximum(found, max((a.usd for a in known), default=0.0)))
        if not self.exact:
            return np.asarray(np.max([found, *(np.where(waves >= a.waves, a.usd, 0.0) for a in known)], axis=0))
        routes = self.sites.min_routes_km(sites, rtt, tuple(p.racks for p in self.parts))
        if math.isinf(routes) or any(math.isinf(a.usd) for a in known):
            return np.full(len(waves), np.inf)
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
        return found

    def upper(self, waves: int, rtt: float) -> float:
        """Price the cheapest known sites within a round trip, with `waves` wavelengths between them."""
        found, usd = math.inf, self.sites.fibre_usd
        for a in self.answers:
            if a.placed is not None and a.placed.rtt_ms <= rtt:
                lengths_km = [self.sites.data.pairs[p] for p in a.placed.pairs] if waves != a.waves else []
                more = sum(usd(km, waves) - usd(km, a.waves) for km in lengths_km)
                found = min(found, float(a.usd + more))
        return found

    def is_known(self, waves: int, rtt: float) -> bool:
        """Return whether nothing more is to be learned of a price."""
        if not self.exact:
            return any((a.waves, a.max_rtt_ms) == (waves, rtt) for a in self.answers)
        if self.several and math.isinf(self.lower(0, rtt)):
            return True
        return bool(self.answers) and self.upper(waves, rtt) <= self.lower(waves, rtt) + CENTS

    def ask(self, waves: int, rtt: float) -> None:
        """Ask the MILP for a price that is not known; first for sites that are nearer than the cheapest known ones."""
        if self.is_known(waves, rtt):
            return
        far = min((a.placed.rtt_ms for a in self.answers if a.placed is not None), default=0.0)
        trips = (t for t in self.sites.rtts_ms if t < far and math.isfinite(self.lower(0, t)))
        nearer = max(trips, default=rtt) if self.exact and self.several else rtt
        for trip in (max(rtt, nearer), rtt):
            if self.is_known(waves, rtt):
                return
            circuit = Circuit(waves, trip) if self.several else None
            placed = self.cheapest(circuit) if self.exact else None
            usd = math.inf if placed is None else placed.capital_usd
            usd = usd if self.exact else self.sites.joined_least(self.parts, circuit)
            self.answers.append(KnownPrice(waves, trip, usd, placed))


@dataclass(frozen=True, slots=True)
class SlowdownLevel:
    """Slowdowns that the fabrics of all parts keep, and the least that such fabrics cost together."""

    send: float
    allreduce: float
    usd: float


@dataclass(kw_only=True)
class CapitalBounds:
    """Lower bounds on the capital of a shape: before the sites were asked, and given their answers."""

    shape_problem: ShapeProblem
    cutoff: float  # seconds a sequence that a plan must be below
    likely: bool = False  # only plans of stages as even as can be are sought
    # Of capital without fabric, by wavelengths and round trip.
    lower_bounds: dict[tuple[int, float], float] = field(default_factory=dict)
    floor_tables: dict[float, tuple[tuple[int, int, float, float], Floats]] = field(default_factory=dict)
    # Wavelengths, round trip and capital with fabrics.
    asked: dict[SlowdownLevel, list[tuple[int, float, float]]] = field(default_factory=dict)

    @cached_property
    def _wavelengths(self) -> Ints:
        """Numbers of wavelengths that may join two sites, unless a pin says how many; none of them at one site."""
        if not self.shape_problem.several:
            return np.zeros(1, dtype=np.int64)
        problem = self.shape_problem.world.problem
        wan, wanted = problem.wan, problem.instance.pins.get("wan.wavelengths")
        most = wan.max_wavelengths_per_pair * wan.max_fibre_pairs
        if wanted is not None and wanted > most:
            raise InputError(
                f"pins['wan.wavelengths']: {wanted} is outside the declared space; two sites share at most {most}"
            )
        return np.array([n for n in range(1, most + 1) if wanted in (None, n)], dtype=np.int64)

    @cached_property
    def _prices(self) -> Prices | None:
        """Prices of the racks at sites without fabrics, shared by all shapes with the same racks by site."""
        q, sites = self.shape_problem, self.shape_problem.world.sites
        if sites is None:
            return None
        # Fabrics that cost nothing and draw the least of any that may be built: the same for every column with as many
        # racks by site and as many GPUs of each cabled.
        mw, racks = sites.min_fabric_mw(q.traffic.rails), [(g, q.traffic.racks(g)) for g in q.shape.blocks]
        parts = tuple(sites.part(g, n, n * mw) for g, n in racks)
        own = Prices(sites=sites, parts=parts, cheapest=partial(sites.cheapest, parts))
        found: Prices = sites.prices.setdefault(parts, own)
        return found

    @cached_property
    def _extent_prices(self) -> Prices | None:
        """Prices of as many racks at as many sites with as large a part, without fabrics: of all shapes with these."""
        q, bounds = self.shape_problem, self.shape_problem.world.site_bounds
        if bounds is None or bounds.sites.designed or not q.several:
            return None
        at = q.point(0.0)
        own = Prices(sites=bounds.sites, parts=at.parts, cheapest=partial(bounds.cheapest, at))
        found: Prices = bounds.prices.setdefault(at, own)
        return found

    @property
    def _power_usd(self) -> float:
        """The price of the least power of all fabrics, which comes with the sites."""
        return 0.0

    @property
    def _most_bytes(self) -> float:
        """Bound the gradients of a stage from above: a stage of more layers takes longer than the cutoff."""
        q, sites = self.shape_problem, self.shape_problem.world.sites
        if sites is None or not sites.designed or not q.several:
            return 0.0
        column, layers = q.column, q.column.strategy.problem.layers
        even, most = -(-layers // column.p), layers - column.p + 1
        each = column.m * column.strategy.layer
        if self.likely:
            most = even
        elif math.isfinite(self.cutoff) and each > 0:
            most = min(most, max(even, math.floor(self.cutoff / q.min_stretch * column.sequences / each * (1 + EPS))))
        ends_and_middle = 0, column.p // 2, column.p - 1
        return exchanged_bytes(column, ((stage, most) for stage in ends_and_middle))

    def _totals(self, level: SlowdownLevel, rtt: float) -> Floats:
        """Bound the capital with fabrics that keep some slowdowns, by the number of wavelengths."""
        total = self._lower_bounds(rtt) + level.usd
        for n, t, usd in self.asked.get(level, ()):
            total = np.maximum(total, self._refused_at(n, t, usd)) if t >= rtt else total
        return total

    def floor(self, waves: int, rtt: float) -> float:
        """Bound the capital without fabrics from below."""
        return float(self._lower_bounds(rtt)[waves])

    def _lower_bounds(self, rtt: float) -> Floats:
        # The shortest route's fibre, or what the sites returned. What sites cost at n wavelengths they cost at fewer
        # but for at most the longest route's fibre, and at more by the shortest's.
        q, sites, count = self.shape_problem, self.shape_problem.world.sites, len(self.shape_problem.shape.blocks)
        known = float(q.site_bounds_by_rtt[q.rtts_ms.index(rtt)])
        prices = None if sites is None or sites.designed else self._prices
        if sites is None or not q.several:
            alone = 0.0 if prices is None else prices.lower(0, rtt)
            return np.array([max([q.floor_usd + self._power_usd, known, alone, *self.lower_bounds.values()])])
        key = len(self.lower_bounds), 0 if prices is None else len(prices.answers), known, self._most_bytes
        if rtt not in self.floor_tables or self.floor_tables[rtt][0] != key:
            fibre = q.min_fibre_usd if sites.designed else sites.all_fibre_usd(count, sites.min_routes_km(count, rtt))
            if sites.designed and count == 2:
                fibre = sites.fibre.least_usd(self._most_bytes, rtt)[: len(fibre)]
            near = q.floor_usd + self._power_usd + fibre
            found = np.maximum(near, self._elsewhere(1, rtt, known))
            for (n, t), usd in self.lower_bounds.items():
                if t >= rtt:
                    found = np.maximum(found, self._elsewhere(n, t, usd))
            if prices is not None:
                found = np.maximum(found, prices.lowers(rtt))
            self.floor_tables[rtt] = key, found
        return self.floor_tables[rtt][1]

    def _elsewhere(self, n: int, rtt: float, usd: float) -> Floats:
        """Bound the capital by number of wavelengths, given its bound `usd` at n wavelengths and a round trip."""
        # The bounds hold at that round trip or shorter ones.
        sites = self.shape_problem.world.sites
        if sites is None or not self.shape_problem.several:
            return np.array([usd])
        if sites.designed:  # more wavelengths need no less fibre; how much less fewer need is not known
            return np.where(np.arange(len(self.shape_problem.min_fibre_usd)) >= n, usd, 0.0)
        near, count = self.shape_problem.min_fibre_usd, len(self.shape_problem.shape.blocks)
        each_km = rtt / sites.data.wan.rtt_ms_per_100_route_km * 100
        far = sites.all_fibre_usd(count, count * (count - 1) // 2 * each_km)
        return np.asarray(np.where(np.arange(len(near)) >= n, usd + near - near[n], usd + far - far[n]))

    def _refused_at(self, n: int, rtt: float, usd: float) -> Floats:
        """Bound the capital by number of wavelengths, given that sites cost `usd` at n wavelengths and a round trip."""
        # Designed fibre of more wavelengths may carry less of other traffic, so that one price bounds no other; with
        # WAN gateways it does not bound that of fewer wavelengths, which take fewer ports.
        world, numbers = self.shape_problem.world, np.arange(len(self.shape_problem.min_fibre_usd))
        network, sites = world.problem.instance.network, world.sites if self.shape_problem.several else None
        if sites is not None and sites.designed:
            return np.where(numbers == n, usd, 0.0)
        if sites is not None and network is not None and network.wan_gateway:
            return np.where(numbers >= n, usd, 0.0)
        return self._elsewhere(n, rtt, usd)
