"""Lower bounds on the capital of one shape of a column, by fabrics, fibre and round trip, sharpened by answers."""

import math
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from planner.errors import InputError
from planner.models.joint.places.built import most_bytes
from planner.models.joint.places.racks_prices import Prices
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.space import Floats, Ints
from planner.models.joint.world import EPS


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
        return bounds.prices.setdefault(at, own)

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
        return most_bytes(column, most)

    def _usd(self, level: SlowdownLevel, rtt: float, waves: int) -> float:
        """Bound the capital of a candidate from below."""
        return float(self._totals(level, rtt)[waves])

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
        """Bound the capital without fabrics from below by the number of wavelengths."""
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
            fibre = q.min_fibre_usd if sites.designed else q.fibre_usd(sites.min_routes_km(count, rtt))
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
        far = self.shape_problem.fibre_usd(count * (count - 1) // 2 * each_km)
        return np.asarray(np.where(np.arange(len(near)) >= n, usd + near - near[n], usd + far - far[n]))

    def _refused_at(self, n: int, rtt: float, usd: float) -> Floats:
        """Bound the capital by number of wavelengths, given that sites cost `usd` at n wavelengths and a round trip."""
        # Designed fibre of more wavelengths may carry less of other traffic, so that one price bounds no other; with
        # WAN gateways it does not bound that of fewer wavelengths, which take fewer ports.
        world, numbers = self.shape_problem.world, np.arange(len(self.shape_problem.min_fibre_usd))
        network = world.problem.instance.network
        if world.sites is None or not self.shape_problem.several:
            return self._elsewhere(n, rtt, usd)
        if world.sites.designed:
            return np.where(numbers == n, usd, 0.0)
        if network is not None and network.wan_gateway:
            return np.where(numbers >= n, usd, 0.0)
        return self._elsewhere(n, rtt, usd)
