"""Lower bounds on capital: of racks by their prices, by MILPs at a few counts of racks, and of the fabric of one site.

Racks are bounded before sites, fabrics and fibre are decided; fabrics whatever their slowdowns.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.models.joint.joint_question import World, open_sites
from planner.models.joint.search.block_ranges import NEVER
from planner.models.joint.search.goal import Goal
from planner.models.joint.shapes.blocks_by_site import Shape
from planner.models.joint.shapes.shape_problem import ShapeProblem
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import Floats, Ints
from planner.physics.network.fabric_cost import min_fabric

RATIO = 1.3  # from one number of racks of the table to the next


@dataclass(kw_only=True)
class MinPrices:
    """Prices for a capital floor: a fixed part, one per site, whole modules of racks, links and leaf ports of GPUs."""

    fixed_usd: float
    site_usd: float  # of each open site
    module_racks: int
    module_usd: float
    rail_usd: float
    min_sites: int = 1
    joined_usd: tuple[float, ...] = (0.0,)  # of the least fibre by number of sites, the last for more of them

    def usd(self, racks: Any, rails: Any, sites: int | None = None) -> Any:
        """Return the capital floor in USD of racks with `rails` GPUs of each cabled, at some or any number of sites."""
        modules = np.ceil(racks / self.module_racks)
        alone = self._any_sites_usd if sites is None else self._sites_usd(sites)
        return alone + modules * self.module_usd + racks * rails * self.rail_usd

    def usd_over(self, racks: Sequence[int], rails: int = 0) -> float:
        """Return the capital floor in USD of racks by site, each site buying whole modules."""
        whole = sum(math.ceil(n / self.module_racks) for n in racks) * self.module_racks
        return float(self.usd(whole, 0, len(racks))) + sum(racks) * rails * self.rail_usd

    def _sites_usd(self, sites: int) -> float:
        return self.fixed_usd + self.site_usd * sites + self.joined_usd[min(sites, len(self.joined_usd) - 1)]

    @cached_property
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
    """Read the least prices of a capital floor from a joint question's sites and fabrics."""
    each = min_fabric(world.problem.instance.network).usd
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
class CapitalFloor(MinPrices):
    """Capital floors by racks, GPUs of each that are cabled, and sites; monotone in each.

    Between two counts R of the table a campus costs at least what it does at the lower one, and at least what it costs
    there without the price of its modules, and the price of all its modules:

        max(min capital, min(capital - price*modules) + price*ceil(racks/module)), over campuses of R racks or more.

    A cluster without a grid pays the racks that it uses.
    """

    world: World
    table: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)  # by sites and place in `counts`

    @classmethod
    def of(cls, world: World) -> "CapitalFloor":
        """Return the capital floor of a joint question's campuses, or of the racks in use of its cluster."""
        prices = vars(floor_of(world))
        if world.sites is None:
            prices |= {"fixed_usd": 0.0, "module_usd": world.problem.instance.hardware.rack.price_usd}
        return cls(world=world, **prices)

    @cached_property
    def counts(self) -> Ints:
        """Numbers of racks at which the capital floor is tabulated, ascending from 1."""
        most = max(1, self.world.max_racks(1))
        found = {math.ceil(RATIO**k) for k in range(math.ceil(math.log(most) / math.log(RATIO)) + 1)} | {1}
        return np.array(sorted(x for x in found if x <= most), dtype=np.int64)

    def usd(self, racks: Any, rails: Any, sites: int | None = None) -> Floats:
        """Return the capital floor in USD of racks with `rails` GPUs of each cabled, at some or any number of sites."""
        racks, at = np.asarray(racks), self.world.sites
        if sites is None:
            least = np.minimum.reduce([self.usd(racks, 0, k) for k in range(self.min_sites, self.world.max_open + 1)])
            return np.asarray(least + racks * np.asarray(rails) * self.rail_usd, dtype=np.float64)
        if at is None:
            return np.asarray(super().usd(racks, rails, sites), dtype=np.float64)
        places = np.clip(np.searchsorted(self.counts, racks, side="right") - 1, 0, len(self.counts) - 1)
        least, rest = np.zeros(places.shape), np.zeros(places.shape)
        for place in np.unique(places).tolist():
            if (sites, place) not in self.table:
                fewest = max(int(self.counts[place]), sites)
                self.table[sites, place] = (
                    at.least_campus_usd(sites, fewest, 0.0),
                    at.least_campus_usd(sites, fewest, self.module_usd / 1e6),
                )
            least[places == place], rest[places == place] = self.table[sites, place]
        own = np.maximum(least, rest + self.module_usd * np.ceil(racks / self.module_racks))
        return np.asarray(own + racks * np.asarray(rails) * self.rail_usd, dtype=np.float64)


@dataclass(kw_only=True)
class CapitalGoal(Goal):
    """A search goal that counts capital: its floors by racks, and by the cheapest fabric at one site."""

    # Least prices in USD of one site's fabric by its traffic and blocks, within a budget that never grows.
    fabrics_usd: dict[object, float] = field(default_factory=dict)

    @cached_property
    def floor(self) -> MinPrices:
        """Floors of capital in USD by racks, without the fabrics that may be built."""
        return floor_of(self.world)

    @abstractmethod
    def capped(self, usd: float, racks: int) -> World:
        """Return the question with a budget for a plan of some racks, at most that of use to the search goal."""

    def usd(self, racks: Any, rails: Any) -> Floats:
        """Bound the capital in USD of a number of racks at any sites."""
        return np.asarray(self.floor.usd(racks, rails), dtype=np.float64)

    def groups(self, entries: Ints, t: Floats, c: Floats) -> list[Ints]:
        """Group columns by pipeline and blocks, as these have the same floor of capital, the fastest first."""
        order = np.lexsort((t, entries))
        return np.split(order, np.flatnonzero(np.diff(entries[order])) + 1)

    def column_floor(self, column: Column, c: float) -> float:
        """Raise the capital floor of columns of as many blocks, over numbers of sites; at one, by its fabric."""
        return max(c, min((self.sites_floor(column, k, c) for k in open_sites(self.world, column)), default=c))

    def sites_floor(self, column: Column, sites: int, c: float) -> float:
        """Bound the capital in USD of a column at a number of sites; at one, without spares, by its least fabric."""
        # Few GPUs share few switches: these cost far more than the ports that are used. With spares the racks of a
        # column do not say which are joined.
        block, blocks = column.block, column.block.blocks(column.d)
        if sites > 1 or self.world.templates is None or self.world.problem.calendar is not None:
            return max(c, float(self.floor.usd(blocks * block.racks, block.rails, sites)))
        q = ShapeProblem(world=self.world, column=column, shape=Shape((blocks,), column.d))
        return max(c, float(self.floor.usd(blocks * block.racks, 0, sites)) + self.fabric_usd(q, blocks))

    def shape_floor(self, q: ShapeProblem, c: float) -> float:
        """Bound the capital in USD of a shape by its racks in whole modules at each site, spares included."""
        return max(c, self.floor.usd_over([q.traffic.racks(g) for g in q.shape.blocks], q.traffic.rails))

    def fabric_usd(self, q: ShapeProblem, blocks: int) -> float:
        """Return the least price in USD of a fabric that joins some blocks at one site, whatever its slowdowns.

        It is infinite where the capital of a useful plan does not pay any.
        """
        # A MW of it is paid at the site like one of racks.
        key, sites = (q.traffic, blocks), q.world.sites
        if key not in self.fabrics_usd:
            each = 0.0 if sites is None else sites.fabric_usd_per_mw
            one = Shape((blocks,), q.shape.min_replicas)
            x = replace(q, shape=one, world=self.capped(math.inf, q.racks)).options(NEVER)[blocks]
            self.fabrics_usd[key] = float((x.usd + each * x.mw).min()) if len(x) else math.inf
        return self.fabrics_usd[key]
