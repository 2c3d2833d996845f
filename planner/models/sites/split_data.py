"""Sets, parameters and costs of the site split: candidates, the grid, pins, links, and scenarios of its years.

A scenario is the split's data with other headroom, generation and prices, stated on a block of its own. Robust: the
split runs whole in each. Expected: a site may run less in a scenario, at the price of the curtailed work.
"""

import difflib
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import networkx as nx
import pyomo.core as pyo

from planner.errors import InputError
from planner.instance.grid import BalancingAuthority, Grid, Line, NewLine, PowerNode, Scenario
from planner.instance.hardware import Hardware
from planner.instance.instance import Instance
from planner.instance.network import Wan
from planner.instance.references import power_flow_gaps
from planner.models.requests import SitesRequest
from planner.models.sites.dc_network import Corridor, DcNetwork
from planner.physics.site import cost, fibre, wan
from planner.physics.site.cost import HOURS_PER_YEAR

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Decisions fixed by hand."""

    racks: int | None = None
    max_sites: int | None = None
    racks_by_site: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitData:
    """Everything that the rules of one site split read.

    Attributes
    ----------
    pairs, disconnected
        Route in km between every two candidates, and the pairs that the fibre cannot join.
    network
        The DC network; None under the other grid models.
    priced
        Prices of links between sites, once worked out.
    """

    instance: Instance
    request: SitesRequest
    grid: Grid
    hardware: Hardware
    wan: Wan
    candidates: dict[str, PowerNode]
    authorities: dict[str, BalancingAuthority]
    graph: nx.MultiGraph
    corridors: dict[str, Corridor]
    pairs: dict[Pair, float]
    disconnected: frozenset[Pair]
    pins: Pins
    network: DcNetwork | None = None
    priced: dict[Pair, tuple[float, float]] = field(default_factory=dict)

    def link_prices(self, pair: Pair) -> tuple[float, float]:
        """Return the price of one fibre pair and of one wavelength between two sites, over all that they light."""
        if pair not in self.priced:
            ends = {s: (self.candidates[s].latitude, self.candidates[s].longitude) for s in pair}
            self.priced[pair] = fibre.link_prices(self.wan, ends)
        return self.priced[pair]

    @property
    def module_racks(self) -> int:
        """Racks of one module."""
        return self.hardware.racks_per_module

    @property
    def module_mw(self) -> float:
        """Power of one module at the grid connection."""
        return cost.facility_mw(self.hardware, self.module_racks)

    @property
    def node_load_mw(self) -> float:
        """Return the power that nodes draw for other load than sites, must-run feed left out."""
        return sum(max(0.0, n.load_mw) for n in self.grid.nodes)

    def spare_mw(self, authorities: Collection[str]) -> float:
        """Compute the MW that the plants of some authorities can feed in beyond the load of their nodes, at least 0."""
        there = (n for n in self.grid.nodes if n.balancing_authority in authorities)
        return max(0.0, sum(n.generation_mw - n.load_mw for n in there))

    @property
    def racks(self) -> int | None:
        """The total where it is fixed; None: as many as possible."""
        return self.request.racks if self.request.racks is not None else self.pins.racks

    def sites_of(self, authority: str) -> list[str]:
        """Return the candidates of a balancing authority."""
        return [s for s, n in self.candidates.items() if n.balancing_authority == authority]

    def usd_per_mwh(self, site: str) -> float:
        """Return the energy price at a site."""
        return self.authorities[self.candidates[site].balancing_authority].energy_usd_per_mwh

    def energy_musd(self, site: str) -> float:
        """Return the price of one module's energy for a year at a site, in M$."""
        return cost.energy_usd_per_year(self.module_mw, self.usd_per_mwh(site)) / 1e6

    def step_usd(self, site: str) -> float:
        """Return the price of one step of a site's interconnect upgrade."""
        upgrade = self.candidates[site].upgrade
        return upgrade.capex_usd if upgrade else 0.0

    def interconnection(self, site: str) -> str:
        """Return the synchronous area of a site."""
        return self.authorities[self.candidates[site].balancing_authority].interconnection

    def rtt_ms(self, pair: Pair) -> float:
        """Return the round trip between two sites."""
        return wan.rtt_ms(self.wan, self.pairs[pair])

    def need_gbps(self, pair: Pair, sites: int) -> float:
        """Return the capacity that a pair's link needs when `sites` sites exchange gradients, headroom included."""
        exchange = self.request.exchange
        if exchange is None:
            return 0.0
        link_bytes = wan.exchange_bytes(exchange.stage_bytes, sites)
        need = wan.exchange_need_gbps(self.wan, link_bytes, exchange.window_seconds, self.rtt_ms(pair))
        return need * self.wan.headroom_factor

    def wavelengths(self, pair: Pair, sites: int) -> int | None:
        """Return the wavelengths that a pair needs among `sites` sites; None where no lease is large enough."""
        need = self.need_gbps(pair, sites)
        if math.isinf(need):
            return None
        count = wan.wavelengths(self.wan, need)
        return count if count <= self.wan.max_wavelengths_per_pair * self.wan.max_fibre_pairs else None


def gather(instance: Instance, request: SitesRequest) -> SplitData:
    """Gather the data of a split; refuse an instance with which the rules cannot be stated."""
    grid = instance.grid
    if grid is None:
        raise InputError("grid: missing; a site split needs balancing_authorities and nodes")
    candidates = {n.id: n for n in sorted(grid.nodes, key=lambda n: n.id) if n.site}
    if not candidates:
        raise InputError('grid.nodes: no node may hold a site; set "site": true on one at least')
    _require_interconnect(grid)
    gaps = list(power_flow_gaps(grid))
    if gaps:
        raise InputError("\n".join(gaps))
    corridors = _corridors(grid)
    links = instance.wan or Wan()
    reach = fibre.reach(links, {s: (n.latitude, n.longitude) for s, n in candidates.items()})
    network = None
    if grid.rules.grid_model == "dc":
        module_mw = cost.facility_mw(instance.hardware, instance.hardware.racks_per_module)
        network = DcNetwork(grid=grid, corridors=corridors, candidates=list(candidates), module_mw=module_mw)
    return SplitData(
        instance=instance,
        request=request,
        grid=grid,
        hardware=instance.hardware,
        wan=links,
        candidates=candidates,
        authorities={b.id: b for b in sorted(grid.balancing_authorities, key=lambda b: b.id)},
        graph=_graph(grid, corridors),
        corridors=corridors,
        pairs=reach.km,
        disconnected=reach.disconnected,
        pins=_pins(instance.pins, list(candidates)),
        network=network,
    )


def _require_interconnect(grid: Grid) -> None:
    if not grid.rules.interconnect.enabled or grid.rules.interconnect.reading != "explicit":
        return
    for i, node in enumerate(grid.nodes):
        if node.site and node.interconnect_mw is None:
            raise InputError(
                f"grid.nodes[{i}].interconnect_mw: missing for {node.id!r}; the explicit interconnect rule needs it: "
                'give it, set "site": false, or choose the reading "capacity_n1"'
            )


def _corridors(grid: Grid) -> dict[str, Corridor]:
    lines: list[tuple[Line | NewLine, int, float | None, str]]
    lines = [(x, x.circuits, None, f"grid.lines[{i}].id") for i, x in enumerate(grid.lines)]
    lines += [(x, x.max_circuits, x.capex_usd, f"grid.new_lines[{i}].id") for i, x in enumerate(grid.new_lines)]
    corridors: dict[str, Corridor] = {}
    for x, circuits, capex, path in lines:
        if x.id in corridors:
            raise InputError(f"{path}: {x.id!r} is the id of another line; give each line and new line its own")
        corridors[x.id] = Corridor(
            id=x.id,
            a=x.a,
            b=x.b,
            rating_mw=x.rating_mw,
            circuits=circuits,
            capex_usd=capex,
            reactance_pu=x.reactance_pu,
        )
    return dict(sorted(corridors.items()))


def _graph(grid: Grid, corridors: dict[str, Corridor]) -> nx.MultiGraph:
    graph = nx.MultiGraph()
    graph.add_nodes_from(sorted(n.id for n in grid.nodes))
    for c in corridors.values():
        graph.add_edge(c.a, c.b, key=c.id)
    return graph


def _pins(pins: dict[str, Any], candidates: list[str]) -> Pins:
    """Read the pins that begin with `sites.`; the rest belong to other decisions."""
    known = ["sites.racks", "sites.max_sites", *(f"sites.racks.{s}" for s in candidates)]
    own = {k: v for k, v in sorted(pins.items()) if k == "sites" or k.startswith("sites.")}
    for path, value in own.items():
        if path not in known:
            nearest = difflib.get_close_matches(path, known, 1, 0.0)[0]
            raise InputError(f"pins[{path!r}]: no such decision; the nearest is {nearest!r}")
        minimum = 0 if path.startswith("sites.racks.") else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise InputError(f"pins[{path!r}]: must be a whole number of at least {minimum} (is {value!r})")
    by_site = {k.removeprefix("sites.racks."): v for k, v in own.items() if k.startswith("sites.racks.")}
    return Pins(racks=own.get("sites.racks"), max_sites=own.get("sites.max_sites"), racks_by_site=by_site)


def rack_musd(data: SplitData) -> float:
    """Return the price of a module's racks with their fabric."""
    return data.module_racks * (cost.rack_of(data.hardware).price_usd + data.request.fabric_usd_per_rack) / 1e6


def site_musd(data: SplitData) -> tuple[float, float]:
    """Return the fixed part of a site's price and that of one module."""
    fixed = cost.site_capex_usd(data.grid, it_mw=0, facility_mw=0)
    it_mw = cost.it_mw(data.hardware, data.module_racks)
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


def of_scenario(data: SplitData, s: Scenario) -> SplitData:
    """Return the data with a scenario's figures in place of the grid's."""
    areas = []
    for b in sorted(data.grid.balancing_authorities, key=lambda b: b.id):
        usd = s.energy_usd_per_mwh.get(b.id, b.energy_usd_per_mwh)
        mw = s.headroom_mw.get(b.id, b.headroom_mw)
        areas.append(b.model_copy(update={"headroom_mw": mw, "energy_usd_per_mwh": usd}))
    nodes = []
    for n in data.grid.nodes:
        nodes.append(n.model_copy(update={"generation_mw": s.generation_mw.get(n.id, n.generation_mw)}))
    changes = {"balancing_authorities": tuple(areas), "nodes": tuple(nodes), "scenarios": ()}
    grid = data.grid.model_copy(update=changes)
    return replace(
        data,
        grid=grid,
        candidates={n.id: n for n in sorted(nodes, key=lambda n: n.id) if n.site},
        authorities={b.id: b for b in areas},
        network=None if data.network is None else data.network.in_year(s.name, grid),
    )


def scenarios(data: SplitData) -> dict[str, SplitData]:
    """Return the data of all scenarios that count, by name."""
    if data.grid.rules.scenarios == "off":
        return {}
    return {s.name: of_scenario(data, s) for s in sorted(data.grid.scenarios, key=lambda s: s.name)}


def weights(data: SplitData) -> tuple[float, dict[str, float]]:
    """Return the weight of the grid's own figures and those of the scenarios; they sum to 1."""
    weight = {s.name: s.weight for s in data.grid.scenarios}
    return max(0.0, 1.0 - sum(weight.values())), weight


def add_block(m: Any, data: SplitData, name: str, max_modules: int) -> Any:
    """Add the block of a scenario, with the modules that its sites run and the split's own circuits."""
    block = pyo.Block()
    m.add_component(f"scenario_{name}", block)
    block.circuits = pyo.Reference(dict(m.circuits.items()))
    block.open = pyo.Reference(dict(m.open.items()))
    if data.network is not None:
        block.installed = pyo.Reference(dict(m.installed.items()))
    extra = m.component("extra_mw")
    if data.grid.rules.scenarios == "robust":
        block.modules = pyo.Reference(dict(m.modules.items()))
        if extra is not None:
            block.extra_mw = pyo.Reference(dict(extra.items()))
        return block
    sites = list(data.candidates)
    block.modules = pyo.Var(sites, domain=pyo.NonNegativeReals, bounds=(0, max_modules))
    block.running = pyo.Constraint(sites, rule=lambda b, s: b.modules[s] <= m.modules[s])
    if extra is not None:
        block.extra_mw = pyo.Var(sites, domain=pyo.NonNegativeReals, bounds=lambda _, s: (0, extra[s].ub))
        block.running_extra = pyo.Constraint(sites, rule=lambda b, s: b.extra_mw[s] <= extra[s])
    return block


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitYear:
    """One year of the split with its rows: the model's own (without a name), or a scenario's block."""

    name: str
    data: SplitData
    block: Any

    @property
    def suffix(self) -> str:
        """Suffix of the names of a scenario's rows in reports."""
        return f" in {self.name}" if self.name else ""


def years(m: Any, data: SplitData) -> Iterator[SplitYear]:
    """Yield the grid's own year, then every scenario that counts."""
    yield SplitYear(name="", data=data, block=m)
    yield from (SplitYear(name=n, data=year, block=block_of(m, n)) for n, year in scenarios(data).items())


def block_of(m: Any, name: str) -> Any:
    """Return the block of a scenario."""
    return m.component(f"scenario_{name}")


def scenario_energy_musd(m: Any, block: Any, data: SplitData) -> Any:
    """Return the price of a year's energy in a scenario, and of the curtailed work, in M$."""
    curtailed = data.grid.rules.curtailment_usd_per_mwh * HOURS_PER_YEAR * data.module_mw / 1e6
    total = sum(data.energy_musd(s) * block.modules[s] for s in data.candidates)
    total += curtailed * sum(m.modules[s] - block.modules[s] for s in data.candidates)
    extra = m.component("extra_mw")
    if extra is None:
        return total
    extra_cost = sum(data.energy_musd(s) * block.extra_mw[s] for s in data.candidates)
    extra_cost += curtailed * sum(extra[s] - block.extra_mw[s] for s in data.candidates)
    return total + extra_cost / data.module_mw


def expected_musd(m: Any, data: SplitData, own_musd: Any) -> Any:
    """Return the price of a year's energy: the worst of the grid's own year and the scenarios, or the weighted mean."""
    by_name = scenarios(data)
    if not by_name:
        return own_musd
    costs = {n: scenario_energy_musd(m, block_of(m, n), year) for n, year in by_name.items()}
    if data.grid.rules.scenarios == "expected":
        own, weight = weights(data)
        return own * own_musd + sum(weight[n] * x for n, x in costs.items())
    if m.component("worst_energy") is None:
        dearest = max(year.energy_musd(s) for year in (data, *by_name.values()) for s in data.candidates)
        limit = dearest * sum(m.modules[s].ub for s in data.candidates)
        m.worst_energy = pyo.Var(domain=pyo.NonNegativeReals, bounds=(0, limit))
        m.worst = pyo.Constraint([*costs, ""], rule=lambda m, n: m.worst_energy >= (costs[n] if n else own_musd))
    return m.worst_energy
