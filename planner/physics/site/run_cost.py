"""What a whole run draws and costs until it ends: energy, racks and fabric replaced, upkeep, staff, and carbon.

Dollars are those of today and not discounted; every site draws its full load all the time, as the bill has it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from planner.instance.instance import Instance, Operation
from planner.physics.site.cost import HOURS_PER_YEAR
from planner.physics.site.cost import bill as bill_of
from planner.physics.site.power import facility_mw, rack_of
from planner.physics.training import heterogeneous
from planner.plan.fabric import SiteFabric
from planner.plan.layout import LayoutPlan
from planner.plan.plan import Cost
from planner.plan.run import RunPlan, SiteRun, YearRun
from planner.plan.sites import SitesPlan

HOURS_PER_DAY = 24.0
JOULES_PER_MWH = 3.6e9
CLUSTER = "cluster"  # the one site of an instance without a grid
MAX_YEARS = 100  # that are listed one by one
ROUNDING = 1e-9  # of a count of lives: a run of just two lives replaces once


def years_of(days: float) -> float:
    """Convert days to years of 8,760 hours, as the bill counts them."""
    return days * HOURS_PER_DAY / HOURS_PER_YEAR


def energy_mwh(mw: float, years: float) -> float:
    """Compute the energy of a constant draw."""
    return mw * HOURS_PER_YEAR * years


def energy_joules_per_token(mw: float, days: float, tokens: float) -> float:
    """Compute the energy of a run by token."""
    return mw * HOURS_PER_DAY * days * JOULES_PER_MWH / tokens


def carbon_tonnes(mwh: float, kg_per_mwh: float) -> float:
    """Compute the mass of CO2 that energy stands for."""
    return mwh * kg_per_mwh / 1e3


def replacements(years: float, life_years: float | None) -> int:
    """Count the times that what is bought is replaced in full: ceil(years / life) - 1; never without a life."""
    return 0 if life_years is None else max(0, math.ceil(years / life_years - ROUNDING) - 1)


def replacements_by(year: int, years: float, life_years: float | None) -> int:
    """Count the replacements before the end of a year, counted from 0: the k-th falls at the end of the k-th life."""
    count = replacements(years, life_years)
    if life_years is None or year >= years - 1 - ROUNDING:
        return count
    return min(count, max(0, math.ceil((year + 1 - ROUNDING) / life_years) - 1))


@dataclass(frozen=True, slots=True)
class Bought:
    """What is bought at once and replaced at once."""

    name: str
    part: str  # of the money that its replacement belongs to
    usd: float
    life_years: float | None
    key: str  # of the instance that states its life


@dataclass(frozen=True)
class Run:
    """A run of some days: the power and the authority of each site, and the bill of what is bought."""

    instance: Instance
    days: float
    bill: Cost
    mw: Mapping[str, float]
    authority: Mapping[str, str]

    @property
    def years(self) -> float:
        """Years of operation that are counted."""
        given = self.instance.limits.operation_years
        return years_of(self.days) if given is None else given

    @property
    def operation(self) -> Operation:
        """What operation costs beside the energy of a grid."""
        return self.instance.operation or Operation()

    @cached_property
    def bought(self) -> tuple[Bought, ...]:
        """Racks, or those of each pool, and the fabric."""
        h, pools = self.instance.hardware, []
        for i, p in enumerate(h.pools):
            if not isinstance(p.rack, str):
                key = f"hardware.pools[{i}].rack.life_years"
                pools.append(Bought(p.name, "rack_replacement", p.racks * p.rack.price_usd, p.rack.life_years, key))
        if pools:
            return tuple(pools)
        usd = self.bill.capex_usd
        life = rack_of(h).life_years
        racks = Bought("racks", "rack_replacement", usd["racks"], life, "hardware.rack.life_years")
        if "fabric" not in usd:
            return (racks,)
        life, key = self.operation.fabric_life_years, "operation.fabric_life_years"
        return racks, Bought("fabric", "fabric_replacement", usd["fabric"], life, key)

    @cached_property
    def sites(self) -> dict[str, SiteRun]:
        """What each site draws, and what is known of its price and its carbon."""
        return {name: self._site(name, mw) for name, mw in sorted(self.mw.items())}

    def _site(self, name: str, mw: float) -> SiteRun:
        grid, price, carbon = self.instance.grid, None, None
        if grid is None:
            price, carbon = self.operation.energy_usd_per_mwh, self.operation.carbon_kg_per_mwh
        elif name in self.authority:
            area = next(b for b in grid.balancing_authorities if b.id == self.authority[name])
            price, carbon = area.energy_usd_per_mwh, area.carbon_kg_per_mwh
        mwh = energy_mwh(mw, self.years)
        return SiteRun(
            facility_mw=mw,
            energy_mwh=mwh,
            usd_per_mwh=price,
            energy_usd=None if price is None else mwh * price,
            carbon_tonnes=None if carbon is None else carbon_tonnes(mwh, carbon),
        )

    @property
    def upkeep_usd_per_year(self) -> dict[str, float]:
        """What every year costs alike, by part; what is not known is left out."""
        o, found = self.operation, {}
        if all(s.usd_per_mwh is not None for s in self.sites.values()):
            found["energy"] = sum(energy_mwh(s.facility_mw, 1.0) * (s.usd_per_mwh or 0.0) for s in self.sites.values())
        if o.maintenance_share_per_year is not None:
            found["maintenance"] = o.maintenance_share_per_year * sum(b.usd for b in self.bought)
        if o.staff_usd_per_year is not None:
            found["staff"] = o.staff_usd_per_year
        return found | {k: v for k, v in self.bill.opex_usd_per_year.items() if k != "energy"}

    @cached_property
    def by_year(self) -> tuple[YearRun, ...]:
        """The counted years one by one, of a long run the first."""
        count = min(MAX_YEARS, math.ceil(self.years - ROUNDING))
        return tuple(self._year(n, min(1.0, self.years - n)) for n in range(count))

    def _year(self, n: int, part: float) -> YearRun:
        usd = {k: v * part for k, v in self.upkeep_usd_per_year.items()}
        for b in self.bought:
            if b.life_years is not None:
                before = replacements_by(n - 1, self.years, b.life_years) if n else 0
                spent = b.usd * (replacements_by(n, self.years, b.life_years) - before)
                usd[b.part] = usd.get(b.part, 0.0) + spent
        return YearRun(years=part, energy_mwh=energy_mwh(sum(self.mw.values()), part), usd=usd)

    @property
    def usd(self) -> dict[str, float]:
        """Capital and each part of operation over the counted years."""
        found = {"capital": sum(self.bill.capex_usd.values())}
        found |= {k: v * self.years for k, v in self.upkeep_usd_per_year.items()}
        for b in self.bought:
            if b.life_years is not None:
                spent = b.usd * replacements(self.years, b.life_years)
                found[b.part] = found.get(b.part, 0.0) + spent
        return found

    def not_counted(self) -> Iterator[str]:
        """Yield the keys of the instance that would add to the run and are left out."""
        o, grid = self.operation, self.instance.grid
        if grid is not None and not self.authority:
            yield "grid"  # the sites are not chosen
        if self.instance.network is not None and "fabric" not in self.bill.capex_usd:
            yield "network"  # the fabric is not designed
        if grid is None and o.energy_usd_per_mwh is None:
            yield "operation.energy_usd_per_mwh"
        yield from (b.key for b in self.bought if b.life_years is None)
        for key in ("maintenance_share_per_year", "staff_usd_per_year"):
            if getattr(o, key) is None:
                yield f"operation.{key}"

    def section(self) -> RunPlan:
        """Return the section of the plan."""
        usd, tokens = self.usd, self.instance.workload.tokens
        total = sum(usd.values())
        carbon = [s.carbon_tonnes for s in self.sites.values()]
        return RunPlan(
            days=self.days,
            years=self.years,
            replacements={b.name: replacements(self.years, b.life_years) for b in self.bought},
            usd=usd,
            total_cost_of_ownership_usd=total,
            usd_per_million_tokens=total / tokens * 1e6,
            energy_mwh=sum(s.energy_mwh for s in self.sites.values()),
            energy_joules_per_token=energy_joules_per_token(sum(self.mw.values()), self.days, tokens),
            carbon_tonnes=None if any(x is None for x in carbon) else sum(x or 0.0 for x in carbon),
            sites=self.sites,
            by_year=self.by_year,
            not_counted=tuple(self.not_counted()),
        )


def section(
    instance: Instance,
    days: float,
    bill: Cost,
    racks: int,
    sites: SitesPlan | None = None,
    fabrics: Mapping[str, SiteFabric] | None = None,
) -> RunPlan:
    """Return what a run of some days draws and costs, at its sites where they are known, else on its racks alone."""
    if sites is not None:
        mw = {s.id: s.facility_mw for s in sites.sites}
        return Run(instance, days, bill, mw, {s.id: s.balancing_authority for s in sites.sites}).section()
    if instance.hardware.pools:
        drawn = heterogeneous.facility_mw(instance)
    else:
        drawn = facility_mw(instance.hardware, racks, sum(f.power_mw for f in (fabrics or {}).values()))
    return Run(instance, days, bill, {CLUSTER: drawn}, {}).section()


def of_layout(instance: Instance, layout: LayoutPlan) -> RunPlan:
    """Return what a layout's run draws and costs on its racks alone, idle GPUs with them."""
    racks = (layout.gpus_used + layout.gpus_idle) // rack_of(instance.hardware).gpus
    return section(instance, layout.metrics.days_to_train, bill_of(instance, racks, None, None), racks)
