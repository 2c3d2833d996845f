"""Power of a site in MW, of its racks and their fabric, at the grid connection, and the land that cooling it takes."""

from planner.instance.hardware import Hardware
from planner.instance.instance import Instance


def it_mw(hardware: Hardware, racks: int, fabric_mw: float = 0.0) -> float:
    """Compute the IT power of a site at full load in MW: of racks and, unless overhead holds it, of their fabric."""
    return racks * hardware.rack.it_kw / 1e3 + (0.0 if hardware.overhead_includes_fabric else fabric_mw)


def facility_mw(hardware: Hardware, racks: int, fabric_mw: float = 0.0) -> float:
    """Compute a site's power at the grid connection in MW: IT power times facility overhead (PUE)."""
    return it_mw(hardware, racks, fabric_mw) * hardware.facility_overhead_factor


def cooling_m2(hardware: Hardware, racks: int, fabric_mw: float = 0.0) -> float | None:
    """Compute the area that dry cooling of a site needs, in m²; None where the instance states no density."""
    density = hardware.cooling_kw_per_m2
    return None if density is None else facility_mw(hardware, racks, fabric_mw) * 1e3 / density


def pools_mw(instance: Instance) -> float:
    """Compute the facility power of all pools in MW, overhead included."""
    it_kw = sum(p.racks * p.rack.it_kw for p in instance.hardware.pools)
    return it_kw / 1e3 * instance.hardware.facility_overhead_factor
