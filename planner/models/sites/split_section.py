"""Write a solution of the site split as the plan's section: sites, links, power and prices."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyomo.core as pyo

from planner.models.sites.campus_rules import load_mw
from planner.models.sites.grid_rules import columns
from planner.models.sites.model import RULES
from planner.models.sites.split_data import Pair, SplitData, scenario_blocks
from planner.physics.site import cost, fibre, wan
from planner.physics.site.grid import usable_interconnect_mw
from planner.plan.certificate import Certificate
from planner.plan.plan_sections import Excess, Flow, Link, NewCircuits, ScenarioRun, Site, SitesPlan, Upgrade


def sites_plan(
    m: Any, data: SplitData, fabric_mw: Mapping[str, float], *, lit: Mapping[Pair, int], certificate: Certificate
) -> SitesPlan:
    """Return the sites section of a plan from a model that is set to its solution.

    `fabric_mw` is the power of the fabric in MW by site, 0 where it is not; `lit` are the wavelengths of each link.
    """
    modules, circuits, steps = (
        {name: n for name, var in sorted(counts.items()) if (n := round(var.value))}
        for counts in (m.modules, m.circuits, m.steps)
    )
    excess = []
    for rule in RULES.values():
        for name, var in (m.component(f"{rule.name}_excess") or {}).items():
            if (var.value or 0.0) > 1e-6:
                amount = round(var.value * rule.scale, 6)
                usd = data.grid.rules.soft[rule.name].usd_per_year * amount
                excess.append(Excess(rule=name, amount=amount, unit=rule.unit or "", usd_per_year=usd))
    racks = {site: n * data.module_racks for site, n in modules.items()}
    return SitesPlan(
        sites=tuple(_site(data, s, racks[s], circuits, steps.get(s, 0), fabric_mw.get(s, 0.0)) for s in racks),
        links=tuple(_link(data, pair, waves) for pair, waves in lit.items()),
        new_lines=tuple(NewCircuits(line=k, circuits=n) for k, n in circuits.items()),
        upgrades=tuple(Upgrade(node=node, steps=n) for node, n in steps.items()),
        excess=tuple(sorted(excess, key=lambda x: x.rule)),
        scenarios={
            name: _scenario(block, data, year, racks, fabric_mw)
            for name, (block, year) in scenario_blocks(m, data).items()
        },
        certificate=certificate,
        **_dispatch(m, data),
    )


def _nonzero(mw: Mapping[str, float]) -> dict[str, float]:
    """Return powers to the watt, without those that round to nothing."""
    return {name: rounded for name, x in sorted(mw.items()) if (rounded := round(x, 6))}


def _dispatch(block: Any, data: SplitData) -> dict[str, Any]:
    flow, network = {line: var.value for line, var in block.flow.items()}, data.network
    if network is not None:
        point = np.asarray([0.0 if column is None else column.value for column in columns(block, network)])
        topology = network.topology(network.built(point))
        flow = dict(zip(topology.lines, topology.network.flows(network.injection(point)).tolist(), strict=True))
    generated = _nonzero({node: var.value for node, var in block.generated.items()})
    return {"generation_mw": generated, "flows": tuple(Flow(line=k, mw=x) for k, x in _nonzero(flow).items())}


def _scenario(
    block: Any, data: SplitData, year: SplitData, racks: Mapping[str, int], fabric_mw: Mapping[str, float]
) -> ScenarioRun:
    """Return what runs in a scenario, and the price of its energy and of the curtailed work."""
    running = [site for site, size in block.modules.items() if size.value > 1e-9]
    load, usd = _nonzero({site: pyo.value(load_mw(block, year, [site])) for site in running}), 0.0
    for site, count in racks.items():
        drawn = load.get(site, 0.0)
        curtailed = max(cost.facility_mw(data.hardware, count, fabric_mw.get(site, 0.0)) - drawn, 0.0)
        usd += cost.energy_usd_per_year(drawn, year.usd_per_mwh(site))
        usd += cost.energy_usd_per_year(curtailed, data.grid.rules.curtailment_usd_per_mwh)
    return ScenarioRun(running_mw=load, energy_usd_per_year=usd, **_dispatch(block, year))


def _site(data: SplitData, site: str, racks: int, circuits: Mapping[str, int], steps: int, fabric_mw: float) -> Site:
    node, enabled = data.candidates[site], data.grid.rules.interconnect.enabled
    return Site(
        id=site,
        balancing_authority=node.balancing_authority,
        interconnection=data.interconnection(site),
        modules=racks // data.module_racks,
        racks=racks,
        gpus=racks * cost.rack_of(data.hardware).gpus,
        it_mw=cost.it_mw(data.hardware, racks, fabric_mw),
        facility_mw=cost.facility_mw(data.hardware, racks, fabric_mw),
        interconnect_mw=usable_interconnect_mw(data.grid, node, circuits, steps) if enabled else None,
        cooling_m2=cost.cooling_m2(data.hardware, racks, fabric_mw),
        latitude=node.latitude,
        longitude=node.longitude,
    )


def _link(data: SplitData, pair: Pair, waves: int) -> Link:
    """Return the link of some wavelengths between two open sites, at the prices of a fibre pair and a wavelength."""
    ends = {site: (data.candidates[site].latitude, data.candidates[site].longitude) for site in pair}
    return Link(
        a=pair[0],
        b=pair[1],
        route_km=data.pairs[pair],
        rtt_ms=data.rtt_ms(pair),
        required_gbps=waves * data.wan.wavelength_gbps,
        wavelengths=waves,
        capacity_gbps=waves * data.wan.wavelength_gbps,
        fibre_pairs=wan.fibre_pairs(data.wan, waves),
        usd_per_year=cost.link_usd_per_year(data.grid, data.wan, fibre.link_prices(data.wan, ends), waves),
    )
