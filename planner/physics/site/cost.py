"""Prices: capital of fabrics, sites and WAN links, energy, capital spread over years, and the bill of a whole plan."""

from collections.abc import Mapping

from planner.instance.grid import Grid
from planner.instance.instance import Instance
from planner.instance.network import Network, Switch
from planner.instance.wan import Wan
from planner.physics.site.power import rack_of
from planner.physics.site.wan import fibre_pairs
from planner.physics.training.heterogeneous import racks_usd
from planner.plan.fabric import SiteFabric
from planner.plan.plan import Cost
from planner.plan.sites import SitesPlan
from planner.plan.wan import WanPlan

HOURS_PER_YEAR = 8760.0


def annuity(rate: float, years: float) -> float:
    """Compute the yearly payment per dollar of capital: r / (1 - (1 + r)^-n); 1/n without interest."""
    return 1 / years if rate == 0 else rate / (1 - (1 + rate) ** -years)


def energy_usd_per_year(mw: float, usd_per_mwh: float) -> float:
    """Compute the price of a year's energy at a constant draw."""
    return mw * HOURS_PER_YEAR * usd_per_mwh


def endpoint_link_usd(network: Network) -> float:
    """Compute the price of one link between a GPU's NIC and its leaf: cable and transceivers."""
    return network.cables.endpoint_usd + network.cables.endpoint_transceivers * network.optics.price_usd


def switch_link_usd(network: Network) -> float:
    """Compute the price of one link between two switches: cable and transceivers."""
    return network.cables.switch_usd + network.cables.switch_transceivers * network.optics.price_usd


def fabric_usd(network: Network, switch: Switch, *, switches: int, switch_links: int, endpoint_links: int) -> float:
    """Compute the price of a fabric by its counts of switches and links."""
    links = switch_links * switch_link_usd(network) + endpoint_links * endpoint_link_usd(network)
    return switches * switch.price_usd + links


def fabric_mw(network: Network, switch: Switch, *, switches: int, switch_links: int, endpoint_links: int) -> float:
    """Compute the power of a fabric's switches and transceivers."""
    cables = network.cables
    modules = switch_links * cables.switch_transceivers + endpoint_links * cables.endpoint_transceivers
    return (switches * switch.power_watts + modules * network.optics.power_watts) / 1e6


def site_capex_usd(grid: Grid, *, it_mw: float, facility_mw: float) -> float:
    """Compute the capital of an open site: fixed, building per IT MW, and connection per facility MW."""
    p = grid.prices
    return p.site_usd + p.building_usd_per_it_mw * it_mw + p.interconnection_usd_per_mw * facility_mw


def wan_fibre_usd(wan: Wan, route_km: float, waves: int) -> float:
    """Compute the price of the fibre pairs of a WAN link."""
    return fibre_pairs(wan, waves) * route_km * wan.fibre_usd_per_route_km


def wan_wavelength_usd(wan: Wan, waves: int) -> float:
    """Compute the price of the equipment for a WAN link's wavelengths."""
    return waves * wan.wavelength_usd


def link_usd_per_year(grid: Grid, wan: Wan, prices: tuple[float, float], waves: int) -> float:
    """Compute the yearly price of a WAN link: fibre over its life, equipment over its own.

    `prices`: of one fibre pair and of one wavelength all the way (`fibre.link_prices`).
    """
    p, (pair, wave) = grid.prices, prices
    lease = fibre_pairs(wan, waves) * pair * annuity(p.discount_rate, wan.fibre_life_years)
    return lease + waves * wave * annuity(p.discount_rate, p.it_life_years)


def bill(
    instance: Instance,
    racks: int,
    sites: SitesPlan | None,
    fabrics: Mapping[str, SiteFabric] | None,
    design: WanPlan | None = None,
) -> Cost:
    """Compute the cost of a plan by its parts; the total counts the years of operation.

    `fabrics` are those by site, None where the instance has no network. The WAN is priced as designed, else by the
    links between sites.
    """
    pools = bool(instance.hardware.pools)
    capex = {"racks": racks_usd(instance) if pools else racks * rack_of(instance.hardware).price_usd}
    opex: dict[str, float] = {}
    if fabrics is not None:
        capex["fabric"] = sum(f.cost_usd for f in fabrics.values())
    if sites is not None and instance.grid is not None:
        capex |= _sites_capex(instance.grid, sites)
        if design is not None:
            capex["wan"] = design.capex_usd
        elif instance.wan is not None or sites.links:
            capex["wan"] = _links_capex_usd(instance.wan or Wan(), sites)
        price = {b.id: b.energy_usd_per_mwh for b in instance.grid.balancing_authorities}
        opex["energy"] = sum(energy_usd_per_year(s.facility_mw, price[s.balancing_authority]) for s in sites.sites)
    years = instance.limits.budgeted_years
    total = sum(capex.values()) + years * sum(opex.values())
    return Cost(capex_usd=capex, opex_usd_per_year=opex, operation_years=years, total_usd=total)


def _sites_capex(grid: Grid, plan: SitesPlan) -> dict[str, float]:
    """Compute the capital of sites, new lines and interconnect upgrades."""
    line = {x.id: x.capex_usd for x in grid.new_lines}
    step = {n.id: n.upgrade.capex_usd for n in grid.nodes if n.upgrade}
    capex = {
        "sites": sum(site_capex_usd(grid, it_mw=s.it_mw, facility_mw=s.facility_mw) for s in plan.sites),
        "new_lines": sum(n.circuits * line[n.line] for n in plan.new_lines),
    }
    return capex | ({"upgrades": sum(u.steps * step[u.node] for u in plan.upgrades)} if plan.upgrades else {})


def _links_capex_usd(wan: Wan, plan: SitesPlan) -> float:
    links = [(k.route_km, k.wavelengths) for k in plan.links]
    return sum(wan_fibre_usd(wan, km, waves) + wan_wavelength_usd(wan, waves) for km, waves in links)
