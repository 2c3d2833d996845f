"""Prices at which the capital of a plan is what it costs until its run ends, so that least capital is least cost.

What a run of some years costs grows with what was bought (upkeep, replacements) and with what it draws (energy); both
can be written as prices. What every plan of an instance costs alike is no price, and is added.
"""

from typing import TypeVar

from planner.instance.base import Frozen
from planner.instance.instance import Instance, Operation
from planner.instance.network import Network
from planner.physics.site.cost import energy_usd_per_year
from planner.physics.site.power import facility_mw, rack_of
from planner.physics.site.run_cost import replacements

WATTS_PER_MW = 1e6
Priced = TypeVar("Priced", bound=Frozen | str)


def at_run_prices(instance: Instance, years: float) -> Instance:
    """Return an instance whose plans have as capital what they cost over so many years, but for `alike_usd`.

    Racks and fabric are priced with upkeep and replacements, as `run_cost.Run` counts them; energy by the years of
    operation where a grid prices it, else by the watt of the fabric.
    """
    o, limits, network = _operation(instance), instance.limits, instance.network
    rack = rack_of(instance.hardware)
    priced = rack.model_copy(update={"price_usd": rack.price_usd * _times(o, years, rack.life_years)})
    if network is not None:
        network = _priced(network, _times(o, years, o.fabric_life_years), _watt_usd(instance, years))
    return instance.model_copy(
        update={
            "hardware": instance.hardware.model_copy(update={"rack": priced}),
            "network": network,
            "limits": limits.model_copy(update={"operation_years": years if instance.grid is not None else None}),
        }
    )


def alike_usd(instance: Instance, years: float) -> float:
    """Return what all plans cost alike over so many years: staff and, without a grid, the energy of the racks owned."""
    o, h = _operation(instance), instance.hardware
    staff = years * (o.staff_usd_per_year or 0.0)
    if instance.grid is not None or o.energy_usd_per_mwh is None:
        return staff
    return staff + years * energy_usd_per_year(facility_mw(h, h.racks or 0), o.energy_usd_per_mwh)


def _operation(instance: Instance) -> Operation:
    return instance.operation or Operation()


def _times(o: Operation, years: float, life_years: float | None) -> float:
    """Return how often the price of what is bought is paid: at first, for its upkeep, and when its life ends."""
    return 1 + (o.maintenance_share_per_year or 0.0) * years + replacements(years, life_years)


def _watt_usd(instance: Instance, years: float) -> float:
    """Return the energy of a watt of fabric over the years, overhead with it; none where no price or no draw is known.

    It is counted by the sites where there is a grid.
    """
    o, h = _operation(instance), instance.hardware
    if instance.grid is not None or h.overhead_includes_fabric or o.energy_usd_per_mwh is None:
        return 0.0
    return years * energy_usd_per_year(h.facility_overhead_factor / WATTS_PER_MW, o.energy_usd_per_mwh)


def _priced(network: Network, times: float, watt_usd: float) -> Network:
    """Return a network at so many times its prices, and a watt of it dearer."""
    return network.model_copy(
        update={
            "switches": tuple(_scaled(x, times, "price_usd") for x in network.switches),
            "optics": _scaled(network.optics, times, "price_usd"),
            "cables": _scaled(network.cables, times, "endpoint_usd", "switch_usd"),
            "media": tuple(_scaled(x, times, "price_usd", "usd_per_m") for x in network.media),
            "power_usd_per_watt": network.power_usd_per_watt * times + watt_usd,
        }
    )


def _scaled(priced: Priced, times: float, *names: str) -> Priced:
    """Return an object with some of its prices so many times as high; a name stays, as it is refused elsewhere."""
    if isinstance(priced, str):
        return priced
    return priced.model_copy(update={name: getattr(priced, name) * times for name in names})
