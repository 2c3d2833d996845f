"""The least capital of a number of racks at a number of sites before fabrics: MILPs at a few counts, prices between."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from planner.models.joint.search.least_prices import MinPrices, floor_of
from planner.models.joint.space import Floats, Ints
from planner.models.joint.world import World
from planner.physics.site import cost

RATIO = 1.3  # from one number of racks of the table to the next


@dataclass(kw_only=True)
class CapitalFloor:
    """Floors of capital by racks, GPUs of each that are cabled, and sites; monotone in each.

    Between two counts R of the table a campus costs at least what it does at the lower one, and at least what it costs
    there without the price of its modules, and the price of all its modules:

        max(min capital, min(capital - price*modules) + price*ceil(racks/module)), over campuses of R racks or more.

    A cluster without a grid pays the racks that it uses.
    """

    world: World
    table: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)  # by sites and place in `counts`

    @cached_property
    def floor(self) -> MinPrices:
        """The prices of racks and of their least fabric."""
        return floor_of(self.world)

    @cached_property
    def rack_usd(self) -> float:
        """Price of a rack."""
        return cost.rack_of(self.world.problem.instance.hardware).price_usd

    @cached_property
    def sites(self) -> range:
        """Numbers of sites that may hold blocks."""
        return range(1, 2) if self.world.sites is None else range(self.world.sites.min_open, self.world.max_open + 1)

    @cached_property
    def counts(self) -> Ints:
        """Numbers of racks of the table, ascending from 1."""
        most = max(1, self.world.max_racks(1))
        found = {math.ceil(RATIO**k) for k in range(math.ceil(math.log(most) / math.log(RATIO)) + 1)} | {1}
        return np.array(sorted(x for x in found if x <= most), dtype=np.int64)

    def at_sites(self, racks: Any, sites: int) -> Floats:
        """Bound from below the capital, without fabrics, of `racks` racks at `sites` sites."""
        racks = np.asarray(racks)
        if self.world.sites is None:
            return np.asarray(racks * self.rack_usd, dtype=np.float64)
        at = np.clip(np.searchsorted(self.counts, racks, side="right") - 1, 0, len(self.counts) - 1)
        usd, rest = np.zeros(at.shape), np.zeros(at.shape)
        for place in np.unique(at):
            usd[at == place], rest[at == place] = self._known(sites, int(place))
        modules = np.ceil(racks / self.floor.module_racks)
        return np.asarray(np.maximum(usd, rest + self.floor.module_usd * modules), dtype=np.float64)

    def usd(self, racks: Any, rails: Any) -> Floats:
        """Bound the capital of a number of racks with a number of GPUs of each cabled, at any number of sites."""
        least = np.minimum.reduce([self.at_sites(racks, k) for k in self.sites])
        return np.asarray(least + np.asarray(racks) * np.asarray(rails) * self.floor.rail_usd, dtype=np.float64)

    def most_racks(self, usd: float, rails: Ints) -> Ints:
        """Return the most racks whose floor is within a capital, by the GPUs of each that are cabled."""
        kinds, at = np.unique(rails, return_inverse=True)
        low, high = np.zeros_like(kinds), np.full_like(kinds, max(1, self.world.max_racks(1)))
        while (low < high).any():
            middle = (low + high + 1) // 2
            fits = self.usd(np.maximum(middle, 1), kinds) <= usd
            low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
        return np.asarray(low[at], dtype=np.int64)

    def _known(self, sites: int, place: int) -> tuple[float, float]:
        """Return the least capital of a count of the table, and the least without the price of its modules."""
        if (sites, place) not in self.table and self.world.sites is not None:
            from planner.models.joint.places.site_bounds import least_campus_usd

            at, racks = self.world.sites, max(int(self.counts[place]), sites)
            usd = least_campus_usd(at, sites, racks, 0.0)
            self.table[sites, place] = usd, least_campus_usd(at, sites, racks, self.floor.module_usd / 1e6)
        return self.table[sites, place]
