"""The data of the site split: candidates, the grid, pins, links, costs, and scenarios of its years.

A scenario is the split's data with other headroom, generation and prices, stated on a block of its own. Robust: the
split runs whole in each. Expected: a site may run less in a scenario, at the price of the curtailed work.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import networkx as nx
import pyomo.core as pyo

from planner.errors import InputError
from planner.instance.grid import BalancingAuthority, Grid, Line, NewLine, PowerNode
from planner.instance.hardware import Hardware
from planner.instance.instance import Instance
from planner.instance.network import Wan
from planner.instance.pins import RACKS_AT
from planner.models import SitesRequest
from planner.models.sites.dc_network import DcNetwork
from planner.physics.site import cost, site_power, wan

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """The pins of the site split's data: racks of the campus and of sites, and the most open sites, fixed by hand."""

    racks: int | None = None
    max_sites: int | None = None
    racks_by_site: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitData:
    """The data of one site split: everything that its rules read."""

    instance: Instance
    request: SitesRequest
    grid: Grid
    hardware: Hardware
    wan: Wan
    candidates: dict[str, PowerNode]
    authorities: dict[str, BalancingAuthority]
    graph: nx.MultiGraph
    corridors: dict[str, Line | NewLine]  # existing ones, and those in which circuits can be built
    pairs: dict[Pair, float]  # route in km between every two candidates
    disconnected: frozenset[Pair]  # that the fibre cannot join
    pins: Pins
    network: DcNetwork | None = None  # under the grid model dc
    # By name, of scenarios that count: this data with their figures of areas and nodes in place of the grid's.
    scenarios: "dict[str, SplitData]" = field(default_factory=dict)

    @property
    def module_racks(self) -> int:
        """Return the racks of one module of the split."""
        return self.hardware.racks_per_module

    @property
    def module_mw(self) -> float:
        """Return the power of one module of the split at the grid connection, in MW."""
        return site_power.facility_mw(self.hardware, self.module_racks)

    @property
    def counts_power(self) -> bool:
        """Whether the power of a site's fabric is load of the split in addition to that of the racks."""
        return self.instance.network is not None and not self.hardware.overhead_includes_fabric

    @property
    def new_circuits(self) -> dict[str, int]:
        """Return the most circuits that can be built in each corridor of the split's grid."""
        return {name: line.max_circuits for name, line in self.corridors.items() if isinstance(line, NewLine)}

    def spare_mw(self, authorities: Collection[str]) -> float:
        """Compute the MW that some authorities' plants can feed into the split's grid beyond their load, at least 0."""
        there = (node for node in self.grid.nodes if node.balancing_authority in authorities)
        return max(0.0, sum(node.generation_mw - node.load_mw for node in there))

    def sites_of(self, authority: str) -> list[str]:
        """Return the candidate sites of the split in a balancing authority."""
        return [site for site, node in self.candidates.items() if node.balancing_authority == authority]

    def usd_per_mwh(self, site: str) -> float:
        """Return the energy price at a site of the split, in USD per MWh."""
        return self.authorities[self.candidates[site].balancing_authority].energy_usd_per_mwh

    def energy_musd(self, site: str) -> float:
        """Return the price in M$ of one module's energy for a year at a site of the split."""
        return cost.energy_usd_per_year(self.module_mw, self.usd_per_mwh(site)) / 1e6

    def interconnection(self, site: str) -> str:
        """Return the interconnection (synchronous area) of a site of the split."""
        return self.authorities[self.candidates[site].balancing_authority].interconnection

    @property
    def load_musd(self) -> float:
        """Return the price in M$ of a MW more of a site's draw in the split: its building and its grid connection."""
        prices, overhead = self.grid.prices, self.hardware.facility_overhead_factor
        return (prices.building_usd_per_it_mw / overhead + prices.interconnection_usd_per_mw) / 1e6

    @property
    def joinable(self) -> list[Pair]:
        """List the pairs of candidate sites that fibre of the split can join."""
        return [pair for pair in self.pairs if pair not in self.disconnected]

    def rtt_ms(self, pair: Pair) -> float:
        """Return the round trip in ms between two sites of the split."""
        return wan.rtt_ms(self.wan, self.pairs[pair])


def gather(instance: Instance, request: SitesRequest) -> SplitData:
    """Gather the data of a site split from a loaded instance; refuse one without the figures that a rule needs."""
    grid, links = instance.grid, instance.wan or Wan()
    if grid is None:
        raise InputError("grid: missing; a site split needs balancing_authorities and nodes")
    if grid.rules.interconnect.enabled and grid.rules.interconnect.reading == "explicit":
        for i, node in enumerate(grid.nodes):
            if node.site and node.interconnect_mw is None:
                remedy = 'give it, set "site": false, or choose the reading "capacity_n1"'
                need = f"missing for {node.id!r}; the explicit interconnect rule needs it"
                raise InputError(f"grid.nodes[{i}].interconnect_mw: {need}: {remedy}")
    candidates = {node.id: node for node in sorted(grid.nodes, key=lambda node: node.id) if node.site}
    lines: list[Line | NewLine] = [*grid.lines, *grid.new_lines]
    corridors = {line.id: line for line in sorted(lines, key=lambda line: line.id)}
    graph = nx.MultiGraph()
    graph.add_nodes_from(sorted(node.id for node in grid.nodes))
    graph.add_edges_from((corridor.a, corridor.b, corridor.id) for corridor in corridors.values())
    pairs, disconnected = wan.reach(links, {site: (node.latitude, node.longitude) for site, node in candidates.items()})
    pins = instance.pins
    at_sites = {x.removeprefix(RACKS_AT): racks for x, racks in sorted(pins.items()) if x.startswith(RACKS_AT)}
    network = None
    if grid.rules.grid_model == "dc":
        module_mw = site_power.facility_mw(instance.hardware, instance.hardware.racks_per_module)
        network = DcNetwork(grid=grid, corridors=corridors, candidates=list(candidates), module_mw=module_mw)
    data = SplitData(
        instance=instance,
        request=request,
        grid=grid,
        hardware=instance.hardware,
        wan=links,
        candidates=candidates,
        authorities={area.id: area for area in sorted(grid.balancing_authorities, key=lambda area: area.id)},
        graph=graph,
        corridors=corridors,
        pairs=pairs,
        disconnected=disconnected,
        pins=Pins(racks=pins.get("sites.racks"), max_sites=pins.get("sites.max_sites"), racks_by_site=at_sites),
        network=network,
    )
    scenarios = dict[str, SplitData]()
    for scenario in sorted(grid.scenarios if grid.rules.scenarios != "off" else (), key=lambda own: own.name):
        # The data with the scenario's figures in place of the grid's; its cuts are its own.
        areas = {
            area.id: area.replaced(
                headroom_mw=scenario.headroom_mw.get(area.id, area.headroom_mw),
                energy_usd_per_mwh=scenario.energy_usd_per_mwh.get(area.id, area.energy_usd_per_mwh),
            )
            for area in data.authorities.values()
        }
        feed = scenario.generation_mw
        nodes = {x.id: x.replaced(generation_mw=feed.get(x.id, x.generation_mw)) for x in grid.nodes}
        own = grid.replaced(balancing_authorities=tuple(areas.values()), nodes=tuple(nodes.values()), scenarios=())
        sites = {site: nodes[site] for site in candidates}
        cuts = None if network is None else replace(network, grid=own, pool={}, contingencies={})
        scenarios[scenario.name] = replace(data, grid=own, candidates=sites, authorities=areas, network=cuts)
    return replace(data, scenarios=scenarios)


def rack_musd(data: SplitData) -> float:
    """Return the price in M$ of a module in the split's data: its racks with their fabric."""
    return data.module_racks * (data.hardware.rack.price_usd + data.request.fabric_usd_per_rack) / 1e6


def site_musd(data: SplitData) -> tuple[float, float]:
    """Return the fixed part of a site's price in M$, and the part of each module of the split."""
    fixed = cost.site_capex_usd(data.grid, it_mw=0, facility_mw=0)
    it_mw = site_power.it_mw(data.hardware, data.module_racks)
    return fixed / 1e6, (cost.site_capex_usd(data.grid, it_mw=it_mw, facility_mw=data.module_mw) - fixed) / 1e6


def module_capital_musd(data: SplitData) -> float:
    """Return the capital in M$ of one module of the split, with its fabric and its part of the site."""
    return rack_musd(data) + site_musd(data)[1]


def capital_musd(model: Any, data: SplitData) -> Any:
    """Return the capital in M$ of a split: racks with their fabric, sites, new lines and upgrades."""
    fixed, module = site_musd(data)
    new = [line for line in data.corridors.values() if isinstance(line, NewLine)]
    lines = sum(model.circuits[line.id] * (line.capex_usd / 1e6) for line in new)
    upgrades = {site: node.upgrade.capex_usd for site, node in data.candidates.items() if node.upgrade}
    steps = sum(model.steps[site] * (upgrades[site] / 1e6) for site in model.steps)
    construction = fixed * sum(model.open.values()) + module * sum(model.modules.values()) + lines + steps
    return rack_musd(data) * sum(model.modules.values()) + construction


def load_mw(model: Any, data: SplitData, sites: Any) -> Any:
    """Return the draw in MW of some sites of a split at the grid: their modules, and the load `extra_mw`, if any."""
    extra, own = model.component("extra_mw"), data.module_mw * sum(model.modules[site] for site in sites)
    return own + (0 if extra is None else sum(extra[site] for site in sites))


def energy_musd(model: Any, data: SplitData) -> Any:
    """Return the price in M$ of a year's energy of a split, at the price of each site's authority."""
    return sum(data.energy_musd(site) * model.modules[site] for site in data.candidates)


def add_block(model: Any, data: SplitData, name: str, max_modules: int) -> Any:
    """Add the block of a scenario of the split's data to its model: the modules that sites run, the same circuits."""
    block, sites, robust = pyo.Block(), list(data.candidates), data.grid.rules.scenarios == "robust"
    model.add_component(f"scenario_{name}", block)
    for shared in ("circuits", "open", "installed", *(("modules", "extra_mw") if robust else ())):
        if (decided := model.component(shared)) is not None:
            block.add_component(shared, pyo.Reference(dict(decided.items())))
    if robust:
        return block
    block.modules = pyo.Var(sites, domain=pyo.NonNegativeReals, bounds=(0, max_modules))
    block.running = pyo.Constraint(sites, rule=lambda block, site: block.modules[site] <= model.modules[site])
    extra = model.component("extra_mw")
    if extra is not None:
        block.extra_mw = pyo.Var(sites, domain=pyo.NonNegativeReals, bounds=lambda _, site: (0, extra[site].ub))
        block.running_extra = pyo.Constraint(sites, rule=lambda block, site: block.extra_mw[site] <= extra[site])
    return block


def scenario_musd(model: Any, data: SplitData) -> dict[str, Any]:
    """Return the price in M$ of a year's energy in each scenario of the split that counts, and of curtailed work."""
    costs, curtailed_usd = dict[str, Any](), data.grid.rules.curtailment_usd_per_mwh
    for name, year in data.scenarios.items():
        block, usd = model.years[name], 0.0
        for site in data.candidates:
            drawn = load_mw(block, year, [site])
            usd += cost.energy_usd_per_year(drawn, year.usd_per_mwh(site))
            usd += cost.energy_usd_per_year(load_mw(model, data, [site]) - drawn, curtailed_usd)
        costs[name] = usd / 1e6
    return costs
