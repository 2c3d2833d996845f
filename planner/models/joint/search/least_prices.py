"""Lower bounds on the capital of racks, before sites, fabrics and fibre are decided."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.models.joint.world import World
from planner.physics.network.fabric_designs import min_fabric_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class MinPrices:
    """Lower bounds on the capital of plans: a fixed part, whole modules of racks, and links and leaf ports of GPUs."""

    fixed_usd: float
    site_usd: float  # of each open site
    module_racks: int
    module_usd: float
    rail_usd: float
    min_sites: int = 1
    joined_usd: tuple[float, ...] = (0.0,)  # of the least fibre by number of sites, the last for more of them

    def usd(self, racks: Any, rails: Any) -> Any:
        """Bound from below the capital of `racks` racks in all with `rails` GPUs of each cabled."""
        modules = np.ceil(racks / self.module_racks)
        return self._sites_usd(self.min_sites) + modules * self.module_usd + racks * rails * self.rail_usd

    def usd_at(self, sites: int, racks: int, rails: int) -> float:
        """Bound the capital of a number of racks in all at a number of sites."""
        modules = math.ceil(racks / self.module_racks)
        return self._sites_usd(sites) + modules * self.module_usd + racks * rails * self.rail_usd

    def usd_over(self, racks: Sequence[int], rails: int) -> float:
        """Bound the capital of racks by site, each of which has whole modules."""
        modules = sum(math.ceil(n / self.module_racks) for n in racks)
        return self._sites_usd(len(racks)) + modules * self.module_usd + sum(racks) * rails * self.rail_usd

    def _sites_usd(self, sites: int) -> float:
        return self.fixed_usd + self.site_usd * sites + self.joined_usd[min(sites, len(self.joined_usd) - 1)]

    def max_blocks(self, usd: float, racks: Any, rails: Any) -> Any:
        """Bound the number of blocks, each of `racks` racks with `rails` GPUs cabled, that a capital can pay."""
        each = racks * (self.module_usd / self.module_racks + rails * self.rail_usd)
        left = max(0.0, usd - self._sites_usd(self.min_sites))
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(each > 0, left / each * (1 + 1e-12) + 1e-9, np.inf)
        return np.floor(np.minimum(found, 1e15)).astype(np.int64)


RACKS_ALONE = MinPrices(fixed_usd=0.0, site_usd=0.0, module_racks=1, module_usd=1.0, rail_usd=0.0)  # counts racks


def floor_of(world: World) -> MinPrices:
    """Read the lower bound from the sites and the fabrics of a world."""
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
