"""The sets and parameters of the site split: candidates, the grid as a graph, pins, and the need of every WAN link."""

import difflib
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from planner.errors import InputError
from planner.instance.grid import BalancingAuthority, Grid, Line, NewLine, PowerNode
from planner.instance.hardware import Hardware
from planner.instance.instance import Instance
from planner.instance.references import power_flow_gaps
from planner.instance.wan import Wan
from planner.models.requests import SitesRequest
from planner.models.sites.grid.dc_network import Corridor, DcNetwork
from planner.physics.site import cost, fibre, power, wan

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
        return power.facility_mw(self.hardware, self.module_racks)

    @property
    def node_load_mw(self) -> float:
        """Return the power that nodes draw for other load than sites, must-run feed left out."""
        return sum(max(0.0, n.load_mw) for n in self.grid.nodes)

    def spare_mw(self, authorities: Collection[str]) -> float:
        """Return what the plants of some authorities can feed in beyond the load of their nodes."""
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
        module_mw = power.facility_mw(instance.hardware, instance.hardware.racks_per_module)
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
    """Return the existing and the possible corridors by id."""
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
    """Return the nodes joined by the corridors, existing and possible, keyed by id."""
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
