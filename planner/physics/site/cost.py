"""Compute the prices of a site, the bill of a plan, and the energy and cost of a whole run.

Dollars are those of today and not discounted; every site draws its full load all the time, as the bill has it. The cost
of a run grows with the purchases (maintenance, replacements) and with the power drawn (energy), which can be written as
prices; costs that all plans of an instance share are added.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from planner.instance.base_types import Frozen
from planner.instance.grid import Grid
from planner.instance.instance import ONE_SITE, Instance, Operation
from planner.instance.network import Network, Wan
from planner.physics.site.site_power import facility_mw, pools_mw
from planner.physics.site.wan import fibre_pairs
from planner.plan.plan import Cost, RunPlan, SiteRun, YearRun
from planner.plan.plan_sections import SiteFabric, SitesPlan, WanPlan

HOURS_PER_YEAR = 8760.0


def annuity(rate: float, years: float) -> float:
    """Compute the yearly cost per dollar of capital: r / (1 - (1 + r)^-n); 1/n without interest."""
    return 1 / years if rate == 0 else rate / (1 - (1 + rate) ** -years)


def energy_usd_per_year(mw: float, usd_per_mwh: float) -> float:
    """Compute the cost in USD of a year's energy at a constant draw in MW."""
    return mw * HOURS_PER_YEAR * usd_per_mwh


def link_usd(network: Network) -> tuple[float, float]:
    """Compute the cost in USD of a link from NIC to leaf and of one between switches: cable and transceivers."""
    cables, optics = network.cables, network.optics
    ends = cables.endpoint_usd + cables.endpoint_transceivers * optics.price_usd
    return ends, cables.switch_usd + cables.switch_transceivers * optics.price_usd


def site_capex_usd(grid: Grid, *, it_mw: float, facility_mw: float) -> float:
    """Compute the capital in USD of an open site: fixed, building per IT MW, and connection per facility MW."""
    prices = grid.prices
    return prices.site_usd + prices.building_usd_per_it_mw * it_mw + prices.interconnection_usd_per_mw * facility_mw


def link_capex_usd(wan: Wan, prices: tuple[float, float], waves: Any) -> Any:
    """Compute the capital in USD of a WAN link: `waves` wavelengths and their fibre pairs, each at its price."""
    return fibre_pairs(wan, waves) * prices[0] + waves * prices[1]


def link_usd_per_year(grid: Grid, wan: Wan, prices: tuple[float, float], waves: int) -> float:
    """Compute the yearly cost in USD of a WAN link: fibre over its life, equipment over its own."""
    rate, (pair, wave) = grid.prices.discount_rate, prices
    yearly = pair * annuity(rate, wan.fibre_life_years), wave * annuity(rate, grid.prices.it_life_years)
    return float(link_capex_usd(wan, yearly, waves))


def bill(
    instance: Instance,
    racks: int,
    sites: SitesPlan | None,
    fabrics: Mapping[str, SiteFabric] | None,
    design: WanPlan | None = None,
) -> Cost:
    """Compute a plan's bill in USD by part, counted years included; the WAN is priced as designed, else by links."""
    pools = instance.hardware.pools
    of_pools = sum(p.racks * p.rack.price_usd for p in pools)
    capex = {"racks": of_pools if pools else racks * instance.hardware.rack.price_usd}
    opex: dict[str, float] = {}
    if fabrics is not None:
        capex["fabric"] = sum(fabric.cost_usd for fabric in fabrics.values())
    if sites is not None and instance.grid is not None:
        grid, lines = instance.grid, {line.id: line.capex_usd for line in instance.grid.new_lines}
        steps = {node.id: node.upgrade.capex_usd for node in grid.nodes if node.upgrade}
        capex["sites"] = sum(site_capex_usd(grid, it_mw=one.it_mw, facility_mw=one.facility_mw) for one in sites.sites)
        capex["new_lines"] = sum(new.circuits * lines[new.line] for new in sites.new_lines)
        if sites.upgrades:
            capex["upgrades"] = sum(upgrade.steps * steps[upgrade.node] for upgrade in sites.upgrades)
        if design is not None:
            capex["wan"] = design.capex_usd
        elif instance.wan is not None or sites.links:
            wan = instance.wan or Wan()
            links = [(link.route_km * wan.fibre_usd_per_route_km, link.wavelengths) for link in sites.links]
            capex["wan"] = sum(link_capex_usd(wan, (pair, wan.wavelength_usd), waves) for pair, waves in links)
        price = {area.id: area.energy_usd_per_mwh for area in instance.grid.balancing_authorities}
        drawn = [(site.facility_mw, price[site.balancing_authority]) for site in sites.sites]
        opex["energy"] = sum(energy_usd_per_year(mw, usd_per_mwh) for mw, usd_per_mwh in drawn)
    years = instance.limits.budgeted_years
    total = sum(capex.values()) + years * sum(opex.values())
    return Cost(capex_usd=capex, opex_usd_per_year=opex, operation_years=years, total_usd=total)


HOURS_PER_DAY = 24.0
JOULES_PER_MWH = 3.6e9
MAX_YEARS = 100  # that are listed one by one
ROUNDING = 1e-9  # of a count of lives: a run of just two lives replaces once


def years_of(days: float) -> float:
    """Convert days to years of 8,760 hours, as the bill counts them."""
    return days * HOURS_PER_DAY / HOURS_PER_YEAR


def replacements(years: float, life_years: float | None, year: float = math.inf) -> int:
    """Count the replacements of a run's purchase within `years`, or before the end of a year of them, from 0.

    The k-th ends the k-th life: ceil(years / life) - 1 in all, 0 without a stated life.
    """
    if life_years is None:
        return 0
    count = max(0, math.ceil(years / life_years - ROUNDING) - 1)
    if year >= years - 1 - ROUNDING:
        return count
    return min(count, max(0, math.ceil((year + 1 - ROUNDING) / life_years) - 1))


@dataclass(frozen=True, slots=True)
class Bought:
    """A purchase of a run, replaced whole at the end of its life: its cost in USD, and the part of the bill."""

    name: str
    part: str  # of the money that its replacement belongs to
    usd: float
    life_years: float | None
    key: str  # of the instance that states its life


def _bought(instance: Instance, capex: Mapping[str, float]) -> tuple[Bought, ...]:
    """Return the purchases of a run: racks, or those of each pool, and the fabric."""
    hardware, kind = instance.hardware, "rack_replacement"
    pools = [
        Bought(x.name, kind, x.racks * x.rack.price_usd, x.rack.life_years, f"hardware.pools[{i}].rack.life_years")
        for i, x in enumerate(hardware.pools)
    ]
    if pools:
        return tuple(pools)
    bought = [Bought("racks", kind, capex["racks"], hardware.rack.life_years, "hardware.rack.life_years")]
    if "fabric" in capex:
        life, key = (instance.operation or Operation()).fabric_life_years, "operation.fabric_life_years"
        bought.append(Bought("fabric", "fabric_replacement", capex["fabric"], life, key))
    return tuple(bought)


def _replaced_usd(bought: Iterable[Bought], years: float, before: float, until: float) -> dict[str, float]:
    """Compute the USD of replacements of a run by part, of those after the end of one of its years until another's."""
    usd: dict[str, float] = {}
    for item in bought:
        if item.life_years is not None:
            one, other = (replacements(years, item.life_years, year) for year in (before, until))
            usd[item.part] = usd.get(item.part, 0.0) + item.usd * (other - one)
    return usd


def _not_counted(instance: Instance, bill: Cost, bought: Iterable[Bought], *, sited: bool) -> Iterator[str]:
    """Yield the keys of the instance that would add to the cost of a run and are left out."""
    operation = instance.operation or Operation()
    if instance.grid is not None and not sited:
        yield "grid"  # the sites are not chosen
    if instance.network is not None and "fabric" not in bill.capex_usd:
        yield "network"  # the fabric is not designed
    if instance.grid is None and operation.energy_usd_per_mwh is None:
        yield "operation.energy_usd_per_mwh"
    yield from (item.key for item in bought if item.life_years is None)
    for key in ("maintenance_share_per_year", "staff_usd_per_year"):
        if getattr(operation, key) is None:
            yield f"operation.{key}"


def run_section(
    instance: Instance, days: float, bill: Cost, mw: Mapping[str, float], authority: Mapping[str, str]
) -> RunPlan:
    """Compute the cost in USD and energy of a run of `days` days, by power in MW and balancing authority of each site.

    Costs are counted for its years of operation, with cost and CO2 of a site's energy where price and carbon are known.
    """
    operation, grid, tokens = instance.operation or Operation(), instance.grid, instance.workload.tokens
    given = instance.limits.operation_years
    years, bought = years_of(days) if given is None else given, _bought(instance, bill.capex_usd)
    areas = {} if grid is None else {area.id: area for area in grid.balancing_authorities}
    sites: dict[str, SiteRun] = {}
    for name, load in sorted(mw.items()):
        priced = operation if grid is None else areas.get(authority.get(name, ""))
        price, carbon = (None, None) if priced is None else (priced.energy_usd_per_mwh, priced.carbon_kg_per_mwh)
        mwh = load * HOURS_PER_YEAR * years
        sites[name] = SiteRun(
            facility_mw=load,
            energy_mwh=mwh,
            usd_per_mwh=price,
            energy_usd=None if price is None else mwh * price,
            carbon_tonnes=None if carbon is None else mwh * carbon / 1e3,  # kg to tonnes
        )
    yearly: dict[str, float] = {}  # by part; parts whose price is unknown are left out
    if all(site.usd_per_mwh is not None for site in sites.values()):
        yearly["energy"] = sum(energy_usd_per_year(x.facility_mw, x.usd_per_mwh or 0.0) for x in sites.values())
    if operation.maintenance_share_per_year is not None:
        yearly["maintenance"] = operation.maintenance_share_per_year * sum(item.usd for item in bought)
    if operation.staff_usd_per_year is not None:
        yearly["staff"] = operation.staff_usd_per_year
    yearly |= {part: usd for part, usd in bill.opex_usd_per_year.items() if part != "energy"}
    by_year, power = [], sum(mw.values())
    for year in range(min(MAX_YEARS, math.ceil(years - ROUNDING))):
        part = min(1.0, years - year)
        spent = {name: usd * part for name, usd in yearly.items()} | _replaced_usd(bought, years, year - 1, year)
        by_year.append(YearRun(years=part, energy_mwh=power * HOURS_PER_YEAR * part, usd=spent))
    usd = {"capital": sum(bill.capex_usd.values())} | {name: each * years for name, each in yearly.items()}
    usd |= _replaced_usd(bought, years, -1, math.inf)
    total, carbons = sum(usd.values()), [site.carbon_tonnes for site in sites.values()]
    return RunPlan(
        days=days,
        years=years,
        replacements={item.name: replacements(years, item.life_years) for item in bought},
        usd=usd,
        total_cost_of_ownership_usd=total,
        usd_per_million_tokens=total / tokens * 1e6,
        energy_mwh=sum(site.energy_mwh for site in sites.values()),
        energy_joules_per_token=power * HOURS_PER_DAY * days * JOULES_PER_MWH / tokens,
        carbon_tonnes=None if any(value is None for value in carbons) else sum(value or 0.0 for value in carbons),
        sites=sites,
        by_year=tuple(by_year),
        not_counted=tuple(_not_counted(instance, bill, bought, sited=bool(authority))),
    )


def section(
    instance: Instance,
    days: float,
    bill: Cost,
    racks: int,
    sites: SitesPlan | None = None,
    fabrics: Mapping[str, SiteFabric] | None = None,
) -> RunPlan:
    """Compute the cost in USD and energy of a run of `days` days, at its sites if known, else on racks alone."""
    if sites is not None:
        mw = {site.id: site.facility_mw for site in sites.sites}
        return run_section(instance, days, bill, mw, {site.id: site.balancing_authority for site in sites.sites})
    if instance.hardware.pools:
        drawn = pools_mw(instance)
    else:
        drawn = facility_mw(instance.hardware, racks, sum(fabric.power_mw for fabric in (fabrics or {}).values()))
    return run_section(instance, days, bill, {ONE_SITE: drawn}, {})


WATTS_PER_MW = 1e6
Priced = TypeVar("Priced", bound=Frozen)


def at_run_prices(instance: Instance, years: float) -> Instance:
    """Price an instance's racks, fabric and energy at their cost over `years` years of a run, less `alike_usd`."""
    # Racks and fabric are priced with maintenance and replacements, as `Run` counts them. Energy is priced by the years
    # of operation where a grid prices it, else by the watt of the fabric.
    operation, network = instance.operation or Operation(), instance.network
    hardware, rack, price = instance.hardware, instance.hardware.rack, operation.energy_usd_per_mwh

    def times(life_years: float | None) -> float:  # that a price is paid: at first, for maintenance, by replacement
        return 1 + (operation.maintenance_share_per_year or 0.0) * years + replacements(years, life_years)

    if network is not None:
        each, watt = times(operation.fabric_life_years), 0.0
        if instance.grid is None and not hardware.overhead_includes_fabric and price is not None:
            watt = years * energy_usd_per_year(hardware.facility_overhead_factor / WATTS_PER_MW, price)
        network = network.replaced(
            switches=tuple(_scaled(switch, each, "price_usd") for switch in network.switches),
            optics=_scaled(network.optics, each, "price_usd"),
            cables=_scaled(network.cables, each, "endpoint_usd", "switch_usd"),
            media=tuple(_scaled(medium, each, "price_usd", "usd_per_m") for medium in network.media),
            power_usd_per_watt=network.power_usd_per_watt * each + watt,
        )
    rack, span = _scaled(rack, times(rack.life_years), "price_usd"), years if instance.grid is not None else None
    return instance.replaced(hardware__rack=rack, network=network, limits__operation_years=span)


def alike_usd(instance: Instance, years: float) -> float:
    """Compute the run cost in USD over `years` years that all plans share: staff, and energy without a grid."""
    operation, hardware = instance.operation or Operation(), instance.hardware
    staff = years * (operation.staff_usd_per_year or 0.0)
    if instance.grid is not None or operation.energy_usd_per_mwh is None:
        return staff
    return staff + years * energy_usd_per_year(facility_mw(hardware, hardware.racks or 0), operation.energy_usd_per_mwh)


def _scaled(priced: Priced, times: float, *names: str) -> Priced:
    """Return an object with the named prices in USD times `times`."""
    return priced.replaced(**{name: getattr(priced, name) * times for name in names})
