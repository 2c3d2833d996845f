"""Money: capital by part, energy, and capital spread over years."""

from planner.instance.grid import Grid
from planner.instance.instance import Instance
from planner.instance.network import Network, Switch
from planner.instance.wan import Wan
from planner.physics.site.power import rack_of
from planner.physics.site.wan import fibre_pairs
from planner.physics.training.heterogeneous import racks_usd
from planner.plan.fabric import FabricPlan
from planner.plan.plan import Cost
from planner.plan.sites import SitesPlan
from planner.plan.wan import WanPlan

HOURS_PER_YEAR = 8760.0


def annuity(rate: float, years: float) -> float:
    """Yearly payment per dollar of capital over `years` at `rate`: r / (1 - (1 + r)^-n); 1/n without interest."""
    return 1 / years if rate == 0 else rate / (1 - (1 + rate) ** -years)


def energy_usd_per_year(mw: float, usd_per_mwh: float) -> float:
    """Price of a year at a constant draw."""
    return mw * HOURS_PER_YEAR * usd_per_mwh


def endpoint_link_usd(network: Network) -> float:
    """Price of one link between a GPU's NIC and its leaf: cable and transceivers."""
    return network.cables.endpoint_usd + network.cables.endpoint_transceivers * network.optics.price_usd


def switch_link_usd(network: Network) -> float:
    """Price of one link between two switches: cable and transceivers."""
    return network.cables.switch_usd + network.cables.switch_transceivers * network.optics.price_usd


def fabric_usd(network: Network, switch: Switch, *, switches: int, switch_links: int, endpoint_links: int) -> float:
    """Price of a fabric by its counts of boxes and cables."""
    return (
        switches * switch.price_usd
        + switch_links * switch_link_usd(network)
        + endpoint_links * endpoint_link_usd(network)
    )


def fabric_mw(network: Network, switch: Switch, *, switches: int, switch_links: int, endpoint_links: int) -> float:
    """Power of a fabric by its counts: boxes and every transceiver. It is part of the facility's overhead, not of the racks' IT power."""
    c = network.cables
    modules = switch_links * c.switch_transceivers + endpoint_links * c.endpoint_transceivers
    return (switches * switch.power_watts + modules * network.optics.power_watts) / 1e6


def site_capex_usd(grid: Grid, *, it_mw: float, facility_mw: float) -> float:
    """Price of an open site beside racks and fabric: fixed, building per IT MW, connection per facility MW."""
    p = grid.prices
    return p.site_usd + p.building_usd_per_it_mw * it_mw + p.interconnection_usd_per_mw * facility_mw


def wan_fibre_usd(wan: Wan, route_km: float, waves: int) -> float:
    """Price of the fibre pairs of a link."""
    return fibre_pairs(wan, waves) * route_km * wan.fibre_usd_per_route_km


def wan_wavelength_usd(wan: Wan, waves: int) -> float:
    """Price of the equipment that lights a link's wavelengths."""
    return waves * wan.wavelength_usd


def link_usd_per_year(grid: Grid, wan: Wan, route_km: float, waves: int) -> float:
    """Yearly price of a link between sites: fibre over its life, equipment over its own."""
    p = grid.prices
    fibre = wan_fibre_usd(wan, route_km, waves) * annuity(p.discount_rate, wan.fibre_life_years)
    return fibre + wan_wavelength_usd(wan, waves) * annuity(p.discount_rate, p.it_life_years)


def bill(
    instance: Instance, racks: int, sites: SitesPlan | None, fabric: FabricPlan | None, design: WanPlan | None = None
) -> Cost:
    """Price racks, sites, connections, lines, WAN (as designed, else by its links) and fabric; the total counts the years of operation."""
    capex = {"racks": racks_usd(instance) if instance.hardware.pools else racks * rack_of(instance.hardware).price_usd}
    opex: dict[str, float] = {}
    if fabric is not None:
        capex["fabric"] = sum(f.cost_usd for f in fabric.sites.values())
    if sites is not None and instance.grid is not None:
        grid, wan = instance.grid, instance.wan
        capex["sites"] = sum(site_capex_usd(grid, it_mw=s.it_mw, facility_mw=s.facility_mw) for s in sites.sites)
        price = {line.id: line.capex_usd for line in grid.new_lines}
        capex["new_lines"] = sum(n.circuits * price[n.line] for n in sites.new_lines)
        if sites.upgrades:
            step = {n.id: n.upgrade.capex_usd for n in grid.nodes if n.upgrade}
            capex["upgrades"] = sum(u.steps * step[u.node] for u in sites.upgrades)
        if design is not None:
            capex["wan"] = design.capex_usd
        elif wan is not None:
            capex["wan"] = sum(
                wan_fibre_usd(wan, k.route_km, k.wavelengths) + wan_wavelength_usd(wan, k.wavelengths)
                for k in sites.links
            )
        energy = {b.id: b.energy_usd_per_mwh for b in grid.balancing_authorities}
        opex["energy"] = sum(energy_usd_per_year(s.facility_mw, energy[s.balancing_authority]) for s in sites.sites)
    years = instance.limits.operation_years
    return Cost(
        capex_usd=capex,
        opex_usd_per_year=opex,
        operation_years=years,
        total_usd=sum(capex.values()) + years * sum(opex.values()),
    )
