"""Money: capital by part, energy, and capital spread over years."""

from planner.instance import Grid, Network, Switch, Wan
from planner.physics.wan import fibre_pairs

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
    return switches * switch.price_usd + switch_links * switch_link_usd(network) + endpoint_links * endpoint_link_usd(network)


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
