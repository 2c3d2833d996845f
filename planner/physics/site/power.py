"""Power and cooling of racks at a site."""

from planner.instance.hardware import Hardware, Rack


def rack_of(hardware: Hardware) -> Rack:
    """Return the resolved rack."""
    if isinstance(hardware.rack, str):
        raise TypeError(f"hardware.rack {hardware.rack!r} is a name; load the instance through planner.load")
    return hardware.rack


def it_mw(hardware: Hardware, racks: int, fabric_mw: float = 0.0) -> float:
    """Compute the IT power at full load, in MW: of racks and, unless the overhead factor holds it, of their fabric."""
    counted = 0.0 if hardware.overhead_includes_fabric else fabric_mw
    return racks * rack_of(hardware).it_kw / 1e3 + counted


def facility_mw(hardware: Hardware, racks: int, fabric_mw: float = 0.0) -> float:
    """Compute the power at the grid connection: IT power times facility overhead (PUE), in MW."""
    return it_mw(hardware, racks, fabric_mw) * hardware.facility_overhead_factor


def cooling_m2(hardware: Hardware, racks: int, fabric_mw: float = 0.0) -> float | None:
    """Compute the area that dry cooling of a site needs, in m²; None where the instance gives no density."""
    density = hardware.cooling_kw_per_m2
    return None if density is None else facility_mw(hardware, racks, fabric_mw) * 1e3 / density
