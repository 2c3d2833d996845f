"""The bill of a plan: what its decisions cost, part by part."""

from planner.instance import Instance
from planner.physics import cost
from planner.physics.pools import racks_usd
from planner.physics.power import rack_of
from planner.plan import Cost, FabricPlan, SitesPlan, WanPlan


def bill(instance: Instance, racks: int, sites: SitesPlan | None, fabric: FabricPlan | None, design: WanPlan | None = None) -> Cost:
    """Price racks, sites, connections, lines, WAN (as designed, else by its links) and fabric; the total counts the years of operation."""
    capex = {"racks": racks_usd(instance) if instance.hardware.pools else racks * rack_of(instance.hardware).price_usd}
    opex: dict[str, float] = {}
    if fabric is not None:
        capex["fabric"] = sum(f.cost_usd for f in fabric.sites.values())
    if sites is not None and instance.grid is not None:
        grid, wan = instance.grid, instance.wan
        capex["sites"] = sum(cost.site_capex_usd(grid, it_mw=s.it_mw, facility_mw=s.facility_mw) for s in sites.sites)
        price = {line.id: line.capex_usd for line in grid.new_lines}
        capex["new_lines"] = sum(n.circuits * price[n.line] for n in sites.new_lines)
        if sites.upgrades:
            step = {n.id: n.upgrade.capex_usd for n in grid.nodes if n.upgrade}
            capex["upgrades"] = sum(u.steps * step[u.node] for u in sites.upgrades)
        if design is not None:
            capex["wan"] = design.capex_usd
        elif wan is not None:
            capex["wan"] = sum(cost.wan_fibre_usd(wan, k.route_km, k.wavelengths) + cost.wan_wavelength_usd(wan, k.wavelengths) for k in sites.links)
        energy = {b.id: b.energy_usd_per_mwh for b in grid.balancing_authorities}
        opex["energy"] = sum(cost.energy_usd_per_year(s.facility_mw, energy[s.balancing_authority]) for s in sites.sites)
    years = instance.limits.operation_years
    return Cost(capex_usd=capex, opex_usd_per_year=opex, operation_years=years, total_usd=sum(capex.values()) + years * sum(opex.values()))
