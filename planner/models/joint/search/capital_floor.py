"""Lower bounds on capital: of racks by their prices, by MILPs at a few counts of racks, and of the fabric of one site.

Racks are bounded before sites, fabrics and fibre are decided; fabrics whatever their slowdowns.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.models.joint.joint_world import Shape, World
from planner.models.joint.search.block_ranges import NEVER
from planner.models.joint.shapes.shape_problem import ShapeProblem
from planner.models.joint.strategy_space import Floats, Ints
from planner.physics.network.fabric_designs import min_fabric_usd
from planner.physics.site import cost

RATIO = 1.3  # from one number of racks of the table to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class MinPrices:
    """Prices for a capital floor: a fixed part, one per site, whole modules of racks, links and leaf ports of GPUs."""

    fixed_usd: float
    site_usd: float  # of each open site
    module_racks: int
    module_usd: float
    rail_usd: float
    min_sites: int = 1
    joined_usd: tuple[float, ...] = (0.0,)  # of the least fibre by number of sites, the last for more of them

    def usd(self, racks: Any, rails: Any) -> Any:
        """Return the capital floor in USD of `racks` racks in all, with `rails` GPUs of each cabled."""
        modules = np.ceil(racks / self.module_racks)
        return self._any_sites_usd + modules * self.module_usd + racks * rails * self.rail_usd

    def usd_at(self, sites: int, racks: int, rails: int) -> float:
        """Return the capital floor in USD of a number of racks in all at a number of sites."""
        modules = math.ceil(racks / self.module_racks)
        return self._sites_usd(sites) + modules * self.module_usd + racks * rails * self.rail_usd

    def usd_over(self, racks: Sequence[int], rails: int) -> float:
        """Return the capital floor in USD of racks by site, each site buying whole modules."""
        modules = sum(math.ceil(n / self.module_racks) for n in racks)
        return self._sites_usd(len(racks)) + modules * self.module_usd + sum(racks) * rails * self.rail_usd

    def _sites_usd(self, sites: int) -> float:
        return self.fixed_usd + self.site_usd * sites + self.joined_usd[min(sites, len(self.joined_usd) - 1)]

    @property
    def _any_sites_usd(self) -> float:
        # Fibre may join three sites and more where it joins no two.
        return min(self._sites_usd(n) for n in range(self.min_sites, max(self.min_sites + 1, len(self.joined_usd))))

    def max_blocks(self, usd: float, racks: Any, rails: Any) -> Any:
        """Bound the blocks, of `racks` racks with `rails` GPUs cabled each, that a capital floor lets one pay."""
        each = racks * (self.module_usd / self.module_racks + rails * self.rail_usd)
        left = max(0.0, usd - self._any_sites_usd)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(each > 0, left / each * (1 + 1e-12) + 1e-9, np.inf)
        return np.floor(np.minimum(found, 1e15)).astype(np.int64)


RACKS_ALONE = MinPrices(fixed_usd=0.0, site_usd=0.0, module_racks=1, module_usd=1.0, rail_usd=0.0)  # counts racks


def floor_of(world: World) -> MinPrices:
    """Read the least prices of a capital floor from a world's sites and fabrics."""
    network = world.problem.instance.network
    each = min_fabric_usd(network)
    sites = world.sites
    if sites is None:
        return MinPrices(fixed_usd=world.owned_usd, site_usd=0.0, module_racks=1, module_usd=0.0, rail_usd=each)
    module, fixed = sites.data.module_racks, sites.floor_usd(0, 1)
    energy = min((sites.data.energy_musd(x) for x in sites.data.candidates), default=0.0)
    years = world.problem.instance.limits.budgeted_years
    return MinPrices(
        fixed_usd=0.0,
        site_usd=fixed,
        module_racks=module,
        module_usd=sites.floor_usd(module, 1) - fixed + years * energy * 1e6,
        rail_usd=each,
        min_sites=sites.min_open,
        joined_usd=tuple(sites.min_joined_usd(n) for n in range(max(sites.min_open, sites.max_open) + 1)),
    )


@dataclass(kw_only=True)
class CapitalFloor:
    """Capital floors by racks, GPUs of each that are cabled, and sites; monotone in each.

    Between two counts R of the table a campus costs at least what it does at the lower one, and at least what it costs
    there without the price of its modules, and the price of all its modules:

        max(min capital, min(capital - price*modules) + price*ceil(racks/module)), over campuses of R racks or more.

    A cluster without a grid pays the racks that it uses.
    """

    world: World
    table: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)  # by sites and place in `counts`

    @cached_property
    def floor(self) -> MinPrices:
        """Least prices of racks and of their fabric, on which the capital floor rests."""
        return floor_of(self.world)

    @cached_property
    def rack_usd(self) -> float:
        """Price of a rack in USD, for the capital floor."""
        return cost.rack_of(self.world.problem.instance.hardware).price_usd

    @cached_property
    def sites(self) -> range:
        """Numbers of sites that may hold blocks, over which the capital floor is tabulated."""
        return range(1, 2) if self.world.sites is None else range(self.world.sites.min_open, self.world.max_open + 1)

    @cached_property
    def counts(self) -> Ints:
        """Numbers of racks at which the capital floor is tabulated, ascending from 1."""
        most = max(1, self.world.max_racks(1))
        found = {math.ceil(RATIO**k) for k in range(math.ceil(math.log(most) / math.log(RATIO)) + 1)} | {1}
        return np.array(sorted(x for x in found if x <= most), dtype=np.int64)

    def at_sites(self, racks: Any, sites: int) -> Floats:
        """Return the capital floor in USD, without fabrics, of `racks` racks at `sites` sites."""
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
        """Return the capital floor in USD of racks with a number of GPUs of each cabled, at any number of sites."""
        least = np.minimum.reduce([self.at_sites(racks, k) for k in self.sites])
        return np.asarray(least + np.asarray(racks) * np.asarray(rails) * self.floor.rail_usd, dtype=np.float64)

    def _known(self, sites: int, place: int) -> tuple[float, float]:
        """Return the least capital at a tabulated count of racks, and the least without the price of modules."""
        if (sites, place) not in self.table and self.world.sites is not None:
            from planner.models.joint.shapes.site_bounds import least_campus_usd

            at, racks = self.world.sites, max(int(self.counts[place]), sites)
            usd = least_campus_usd(at, sites, racks, 0.0)
            self.table[sites, place] = usd, least_campus_usd(at, sites, racks, self.floor.module_usd / 1e6)
        return self.table[sites, place]


@dataclass(slots=True)
class LeastFabrics:
    """Least prices in USD of one site's fabric by its traffic, within a budget that never grows; infinite if unpaid."""

    within: Callable[[ShapeProblem], World]  # whose budget the fabric may spend
    known: dict[object, float] = field(default_factory=dict)

    def usd(self, q: ShapeProblem, blocks: int) -> float:
        """Return the least price in USD of a fabric that joins some blocks at one site within the budget."""
        # A MW of it is paid at the site like one of racks.
        key, sites = (q.traffic, blocks), q.world.sites
        if key not in self.known:
            each = 0.0 if sites is None else sites.fabric_usd_per_mw
            one = replace(q, shape=Shape((blocks,), q.shape.min_replicas), world=self.within(q))
            x = one.options(NEVER)[blocks]
            self.known[key] = float((x.usd + each * x.mw).min()) if len(x) else math.inf
        return self.known[key]
