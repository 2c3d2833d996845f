"""The costs of the site split as expressions over its variables, in M$."""

from typing import Any

from planner.models.sites.data import SplitData
from planner.physics.site import cost, power


def rack_musd(data: SplitData) -> float:
    """Return the price of a module's racks with their fabric."""
    return data.module_racks * (power.rack_of(data.hardware).price_usd + data.request.fabric_usd_per_rack) / 1e6


def site_musd(data: SplitData) -> tuple[float, float]:
    """Return the fixed part of a site's price and that of one module."""
    fixed = cost.site_capex_usd(data.grid, it_mw=0, facility_mw=0)
    it_mw = power.it_mw(data.hardware, data.module_racks)
    one = cost.site_capex_usd(data.grid, it_mw=it_mw, facility_mw=data.module_mw)
    return fixed / 1e6, (one - fixed) / 1e6


def module_capital_musd(data: SplitData) -> float:
    """Return the price of one module with its fabric and its part of the site."""
    return rack_musd(data) + site_musd(data)[1]


def construction_musd(m: Any, data: SplitData) -> Any:
    """Return the price of sites, new lines and upgrades."""
    fixed, module = site_musd(data)
    lines = sum(m.circuits[k] * ((data.corridors[k].capex_usd or 0.0) / 1e6) for k in m.circuits)
    steps = sum(m.steps[s] * (data.step_usd(s) / 1e6) for s in m.steps)
    return fixed * sum(m.open.values()) + module * sum(m.modules.values()) + lines + steps


def capital_musd(m: Any, data: SplitData) -> Any:
    """Return the price of racks, fabric, sites, new lines and WAN."""
    fibre = sum(m.fibres[p] * (data.link_prices(p)[0] / 1e6) for p in m.pair)
    waves = sum(m.wavelengths[p] * (data.link_prices(p)[1] / 1e6) for p in m.pair)
    return rack_musd(data) * sum(m.modules.values()) + construction_musd(m, data) + fibre + waves


def energy_musd(m: Any, data: SplitData) -> Any:
    """Return the price of a year's energy, at the price of each site's authority."""
    return sum(data.energy_musd(s) * m.modules[s] for s in data.candidates)
