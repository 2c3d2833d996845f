"""The least total cost of ownership of a toy by a deadline: every plan by plain loops, each priced over its own run."""

from dataclasses import replace
from itertools import count, takewhile
from typing import Any

from joint_brute_force import Column, Level, Toy

from planner.instance.instance import Instance
from planner.physics.site import cost, site_power
from planner.physics.training.layer_time import days_of


def run_toy(i: Instance, *, deadline_days: float | None = None, **operation: Any) -> Instance:
    """Return a toy without a budget that says what operation costs; energy has another price in every area."""
    limits = i.limits.replaced(budget_usd=None, deadline_days=deadline_days)
    rack_life, usd_per_mwh = operation.pop("rack_life_years", None), operation.pop("usd_per_mwh", 0.0)
    rack = i.hardware.rack.replaced(life_years=rack_life)
    given = i.model_dump(mode="json", exclude_none=True) | {"operation": operation}
    i = Instance.model_validate(given)
    grid = i.grid
    if grid is not None:
        areas = [a.replaced(energy_usd_per_mwh=usd_per_mwh * (1 + k)) for k, a in enumerate(grid.balancing_authorities)]
        grid = grid.replaced(balancing_authorities=tuple(areas))
    return i.replaced(limits=limits, hardware__rack=rack, grid=grid)


class RunToy(Toy):
    """Full enumeration of one instance by what its plans cost until they end."""

    def years(self, seconds: float) -> float:
        """Return the years of a run at so many seconds a sequence."""
        return cost.years_of(days_of(self.i, seconds))

    def usd(self, c: Column, split: tuple[int, ...], waves: int, level: Level, seconds: float) -> float:
        """Add up what a split on fabrics of a level costs over its run, at its cheapest."""
        years, ways = self.years(seconds), (replace(level, choices=(x,)) for x in level.choices)
        return min(self._least(c, split, waves, one) + self._running(c, split, one, years) for one in ways)

    def _running(self, c: Column, split: tuple[int, ...], one: Level, years: float) -> float:
        """Add up upkeep, replacements, staff and energy of a split on certain fabrics."""
        o, h = self.i.operation, self.i.hardware
        assert o is not None
        rack, ((fabric_usd, fabric_mw),) = h.rack, one.choices
        places = sorted((k for k, n in enumerate(split) if n), key=lambda k: -split[k])
        fabric_at = dict(zip(places, fabric_mw, strict=True))
        bought, energy = 0, 0.0
        for k, n in enumerate(split):
            own = -(-n * c.block.racks // h.racks_per_module) * h.racks_per_module if self.sites else h.racks or 0
            bought += own
            if self.sites is not None and own:
                usd_per_mwh = self.sites.areas[self.sites.nodes[k].balancing_authority].energy_usd_per_mwh
                energy += cost.energy_usd_per_year(site_power.facility_mw(h, own) + fabric_at[k], usd_per_mwh)
        upkeep = o.maintenance_share_per_year or 0.0
        lives = [(bought * rack.price_usd, rack.life_years), (fabric_usd, o.fabric_life_years)]
        again = sum(usd * (upkeep * years + _ends(years, life)) for usd, life in lives)
        return again + years * (energy + (o.staff_usd_per_year or 0.0))


def _ends(years: float, life: float | None) -> int:
    """Count the lives that end before a run does."""
    return 0 if life is None else sum(1 for _ in takewhile(lambda k: k * life < years * (1 - 1e-12), count(1)))
