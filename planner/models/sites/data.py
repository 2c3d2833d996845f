"""The site split's data, gathered once: candidates, the grid as a graph, pins, and the need of every pair."""

import difflib
import math
from dataclasses import dataclass
from typing import Any

import networkx as nx

from planner.errors import InputError
from planner.instance.grid import BalancingAuthority, Grid, PowerNode
from planner.instance.hardware import Hardware
from planner.instance.instance import Instance
from planner.instance.references import power_flow_gaps
from planner.instance.wan import Wan
from planner.models.requests import SitesRequest
from planner.models.sites.grid.dc_network import Corridor, System
from planner.physics.site import cost, fibre, power, wan


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Decisions fixed by hand."""

    racks: int | None = None
    max_sites: int | None = None
    racks_by_site: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One site split: everything the rules read."""

    instance: Instance
    request: SitesRequest
    grid: Grid
    hardware: Hardware
    wan: Wan
    candidates: dict[str, PowerNode]
    authorities: dict[str, BalancingAuthority]
    graph: nx.MultiGraph
    corridors: dict[str, Corridor]
    pairs: dict[tuple[str, str], float]
    parted: frozenset[tuple[str, str]]
    pins: Pins
    system: System | None = None

    @property
    def module_racks(self) -> int:
        """Racks of one module."""
        return self.hardware.racks_per_module

    @property
    def module_mw(self) -> float:
        """Power of one module at the grid connection."""
        return power.facility_mw(self.hardware, self.module_racks)

    @property
    def racks(self) -> int | None:
        """The total where it is fixed; None: as many as can be."""
        return self.request.racks if self.request.racks is not None else self.pins.racks

    def energy_musd(self, site: str) -> float:
        """Energy of one module for a year at a site, in M$."""
        return (
            cost.energy_usd_per_year(
                self.module_mw, self.authorities[self.candidates[site].balancing_authority].energy_usd_per_mwh
            )
            / 1e6
        )

    def step_usd(self, site: str) -> float:
        """Price of one step of a site's interconnect."""
        upgrade = self.candidates[site].upgrade
        return upgrade.capex_usd if upgrade else 0.0

    def interconnection(self, site: str) -> str:
        """Return the synchronous area of a site."""
        return self.authorities[self.candidates[site].balancing_authority].interconnection

    def rtt_ms(self, pair: tuple[str, str]) -> float:
        """Round trip between two sites."""
        return wan.rtt_ms(self.wan, self.pairs[pair])

    def need_gbps(self, pair: tuple[str, str], sites: int) -> float:
        """Capacity that a pair's link must have when `sites` sites exchange gradients, headroom included."""
        if self.request.exchange is None:
            return 0.0
        link_bytes = wan.exchange_bytes(self.request.exchange.stage_bytes, sites)
        return (
            wan.exchange_need_gbps(self.wan, link_bytes, self.request.exchange.window_seconds, self.rtt_ms(pair))
            * self.wan.headroom_factor
        )

    def wavelengths(self, pair: tuple[str, str], sites: int) -> int | None:
        """Wavelengths that light a pair among `sites` sites; None where no lease can."""
        need = self.need_gbps(pair, sites)
        if math.isinf(need):
            return None
        count = wan.wavelengths(self.wan, need)
        return count if count <= self.wan.max_wavelengths_per_pair * self.wan.max_fibre_pairs else None


def ask(instance: Instance, request: SitesRequest) -> Question:
    """Gather the question; refuse data that the rules cannot be stated with."""
    grid = instance.grid
    if grid is None:
        raise InputError("grid: missing; a site split needs balancing_authorities and nodes")
    candidates = {n.id: n for n in sorted(grid.nodes, key=lambda n: n.id) if n.site}
    if not candidates:
        raise InputError('grid.nodes: no node may hold a site; set "site": true on one at least')
    if grid.rules.interconnect.on and grid.rules.interconnect.reading == "explicit":
        for i, node in enumerate(grid.nodes):
            if node.site and node.interconnect_mw is None:
                raise InputError(
                    f"grid.nodes[{i}].interconnect_mw: missing for {node.id!r}; the explicit interconnect rule needs it: "
                    'give it, set "site": false, or choose the reading "capacity_n1"'
                )
    gaps = list(power_flow_gaps(grid))
    if gaps:
        raise InputError("\n".join(gaps))
    corridors = _corridors(grid)
    links = instance.wan or Wan()
    joined = fibre.reach(links, {s: (n.latitude, n.longitude) for s, n in candidates.items()})
    return Question(
        instance=instance,
        request=request,
        grid=grid,
        hardware=instance.hardware,
        wan=links,
        candidates=candidates,
        authorities={b.id: b for b in sorted(grid.balancing_authorities, key=lambda b: b.id)},
        graph=_graph(grid, corridors),
        corridors=corridors,
        pairs=joined.km,
        parted=joined.parted,
        pins=_pins(instance.pins, list(candidates)),
        system=_system(instance.hardware, grid, corridors, list(candidates)) if grid.rules.grid_model == "dc" else None,
    )


def _system(hardware: Hardware, grid: Grid, corridors: dict[str, Corridor], candidates: list[str]) -> System:
    return System(
        grid=grid,
        corridors=corridors,
        candidates=candidates,
        module_mw=power.facility_mw(hardware, hardware.racks_per_module),
    )


def _corridors(grid: Grid) -> dict[str, Corridor]:
    rows = [
        Corridor(
            id=x.id,
            a=x.a,
            b=x.b,
            rating_mw=x.rating_mw,
            circuits=x.circuits,
            capex_usd=None,
            reactance_pu=x.reactance_pu,
        )
        for x in grid.lines
    ]
    rows += [
        Corridor(
            id=x.id,
            a=x.a,
            b=x.b,
            rating_mw=x.rating_mw,
            circuits=x.max_circuits,
            capex_usd=x.capex_usd,
            reactance_pu=x.reactance_pu,
        )
        for x in grid.new_lines
    ]
    found: dict[str, Corridor] = {}
    for i, row in enumerate(rows):
        if row.id in found:
            path = f"grid.new_lines[{i - len(grid.lines)}].id" if row.new else f"grid.lines[{i}].id"
            raise InputError(f"{path}: {row.id!r} is the id of another line; give each line and new line its own")
        found[row.id] = row
    return dict(sorted(found.items()))


def _graph(grid: Grid, corridors: dict[str, Corridor]) -> nx.MultiGraph:
    """Join the nodes by the corridors, existing and possible, keyed by id."""
    graph = nx.MultiGraph()
    for node in sorted(grid.nodes, key=lambda n: n.id):
        graph.add_node(node.id, node=node)
    for c in corridors.values():
        graph.add_edge(c.a, c.b, key=c.id)
    return graph


def _pins(pins: dict[str, Any], candidates: list[str]) -> Pins:
    """Read the pins that begin with `sites.`; the rest belong to other decisions."""
    known = ["sites.racks", "sites.max_sites", *(f"sites.racks.{s}" for s in candidates)]
    mine = {k: v for k, v in sorted(pins.items()) if k == "sites" or k.startswith("sites.")}
    for path, value in mine.items():
        if path not in known:
            near = difflib.get_close_matches(path, known, 1, 0.0)[0]
            raise InputError(f"pins[{path!r}]: no such decision; the nearest is {near!r}")
        least = 0 if path.startswith("sites.racks.") else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"pins[{path!r}]: must be a whole number of at least {least} (is {value!r})")
    by_site = {k.removeprefix("sites.racks."): v for k, v in mine.items() if k.startswith("sites.racks.")}
    return Pins(racks=mine.get("sites.racks"), max_sites=mine.get("sites.max_sites"), racks_by_site=by_site)
