"""What stops a split from holding one module more: the rules without room for it, read off the solution itself."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import networkx as nx
import pyomo.core as pyo
from networkx.algorithms.flow import shortest_augmenting_path

from planner.models.sites.data import SplitData
from planner.models.sites.grid.dc_network import DcNetwork
from planner.models.sites.model import build
from planner.models.sites.rules.registry import RULES
from planner.models.sites.rules.rule import Rule
from planner.models.sites.scenarios import years
from planner.models.sites.solution import SplitSolution
from planner.physics.site import wan
from planner.solvers import lazy_constraints

_POWER_FLOW = ("generation", "rating", "security")  # judged by cuts through the grid, not by the slack of rows
_WATTS = 1e6  # per MW: a minimum cut over whole numbers ends


def binding(data: SplitData, m: Any, solution: SplitSolution) -> tuple[str, ...]:
    """Name the rows in which one more module would not fit, and the counts that are used up."""
    _set_values(data, m, solution)
    names = {"demand"} if data.request.racks is not None else set()
    for year in years(m, data):
        # A year in which sites may run less stops nothing.
        if year.name and data.grid.rules.scenarios != "robust":
            continue
        rules = [rule for rule in RULES.values() if rule.slack is not None and (rule.yearly or not year.name)]
        found = {name for rule in rules for name in _without_room(year.data, year.block, solution, rule)}
        if data.network is None:
            dispatch = solution.scenarios[year.name] if year.name else solution
            found |= _minimum_cuts(year.data, replace(solution, generated=dispatch.generated, flow=dispatch.flow))
        names |= {name + year.suffix for name in found}
    if data.network is not None:
        names |= _dual_rows(data, data.network, solution)
    return tuple(sorted(names))


def _without_room(data: SplitData, block: Any, solution: SplitSolution, rule: Rule) -> Iterator[str]:
    """Yield the rows of a rule whose slack is less than one more module takes."""
    in_use = {
        "site": set(solution.modules),
        "authority": {data.candidates[s].balancing_authority for s in solution.modules},
    }
    for index, row in (block.component(rule.name) or {}).items():
        key = index[0] if isinstance(index, tuple) else index
        # A row of a place without an open site stops nothing.
        if rule.index is not None and key not in in_use[rule.index]:
            continue
        if rule.slack is not None and min(row.uslack(), row.lslack()) < rule.slack(data, key) - 1e-6:
            yield rule.label(index)


def _set_values(data: SplitData, m: Any, solution: SplitSolution) -> None:
    """Set the variables to what the solution means; the solver may leave slack in those that help it."""
    for s in data.candidates:
        m.open[s].set_value(int(s in solution.modules))
        m.modules[s].set_value(solution.modules.get(s, 0))
    for k in m.circuits:
        m.circuits[k].set_value(solution.circuits.get(k, 0))
    for s in m.steps:
        m.steps[s].set_value(solution.steps.get(s, 0))
    for a, b in m.pair:
        both = a in solution.modules and b in solution.modules
        m.pair[a, b].set_value(int(both))
        if not m.known_sites:
            waves = (data.wavelengths((a, b), len(solution.modules)) or 0) if both else 0
            m.wavelengths[a, b].set_value(waves)
            m.fibres[a, b].set_value(wan.fibre_pairs(data.wan, waves))
    reached = {data.interconnection(s) for s in solution.modules}
    for i in m.component("reached") or ():
        m.reached[i].set_value(int(i in reached))
    for k in m.component("built") or ():
        m.built[k].set_value(int(k in solution.circuits))


def _minimum_cuts(data: SplitData, solution: SplitSolution) -> set[str]:
    """Name the plants, authorities and corridors that keep power for one more module from an open site.

    They are a minimum cut in the residual network of the grid, in which the flows may be rerouted.
    """
    if data.grid.rules.grid_model == "none":
        return _authorities_without_room(data, solution)
    residual = _residual(data, solution)
    names: set[str] = set()
    for s in sorted(solution.modules):
        side = _short_of_power(residual, ("node", s), data.module_mw * _WATTS - 1)
        names |= {name for a, b, name in residual.edges(data="name") if name and a not in side and b in side}
    return names


def _short_of_power(residual: nx.DiGraph, node: tuple[str, str], need: float) -> set[Any]:
    """Return the node's side of a minimum cut between it and the plants; nothing where enough comes through."""
    flow = shortest_augmenting_path(residual, "plants", node, cutoff=need)
    if flow.graph["flow_value"] >= need:
        return set()
    flow.remove_edges_from([(a, b) for a, b, d in flow.edges(data=True) if d["flow"] == d["capacity"]])
    return set(nx.ancestors(flow, node)) | {node}


def _dual_rows(data: SplitData, network: DcNetwork, solution: SplitSolution) -> set[str]:
    """Name the plants, authorities, corridors and contingencies that stop one more module, whatever the dispatch.

    They are the rows with a dual when the most that one site can draw beside the others is sought.
    """
    m = build(data, without=set(RULES) - set(_POWER_FLOW))
    m.goal = pyo.Objective(expr=0.0)
    labels: dict[str, str] = {}
    for year in years(m, data):
        # What a plant can spare must stop it as a row with a name, and not as a bound.
        for generated in year.block.generated.values():
            generated.setub(None)
        # Balances and what only ties variables together are no rules.
        labels |= {row.name: name + year.suffix for name, row in _power_flow_rows(year.block)}
    modules = {network.first_modules + i: float(solution.modules.get(s, 0)) for i, s in enumerate(network.candidates)}
    binaries = {network.first_open + i: float(s in solution.modules) for i, s in enumerate(network.candidates)}
    for i, (k, j) in enumerate(network.circuits_to_build):
        binaries[network.first_installed + i] = float(j < solution.circuits.get(k, 0))
    search = lazy_constraints.Search(m, m.lazy, {"threads": 1}, None)
    names = set()
    for column in (column for column, n in modules.items() if n):
        others = {i: n for i, n in modules.items() if i != column}
        names |= search.stops(column, modules[column] + 1.0, {**others, **binaries})
    return {labels.get(name, name) for name in names if name in labels or name.startswith(("rating[", "security["))}


def _power_flow_rows(block: Any) -> Iterator[tuple[str, Any]]:
    """Yield the rows of the power flow of one year under dc, each with its name."""
    for rule in (RULES[name] for name in _POWER_FLOW):
        for component in (rule.name, *rule.components):
            for index, row in (block.component(component) or {}).items():
                yield rule.label(index), row


def _authorities_without_room(data: SplitData, solution: SplitSolution) -> set[str]:
    names = set()
    for b in data.authorities:
        load = sum(solution.modules.get(s, 0) for s in data.sites_of(b)) * data.module_mw
        if load and data.spare_mw([b]) - load < data.module_mw - 1e-6:
            names.add(RULES["generation"].label(b))
    return names


def _residual(data: SplitData, solution: SplitSolution) -> nx.DiGraph:
    """Return the residual network of the solution: plants feed nodes, corridors join nodes."""
    residual = nx.DiGraph()
    generation, rating = RULES["generation"], RULES["rating"]

    def edge(a: Any, b: Any, mw: float | None, name: str | None = None) -> None:
        # Without a capacity, an edge is unlimited.
        residual.add_edge(a, b, name=name, **({} if mw is None else {"capacity": max(round(mw * _WATTS), 0)}))

    for n in sorted(data.grid.nodes, key=lambda n: n.id):
        mw = solution.generated.get(n.id, 0.0)
        edge("plants", ("node", n.id), n.generation_mw - mw, generation.label(n.id))
        edge(("node", n.id), "plants", mw)
    for k, c in data.corridors.items():
        capacity = c.rating_mw * (solution.circuits.get(k, 0) if c.new else c.circuits)
        flow = solution.flow.get(k, 0.0)
        for a, b, left in ((c.a, c.b, capacity - flow), (c.b, c.a, capacity + flow)):
            # A vertex of its own keeps parallel corridors apart.
            edge(("node", a), ("line", k, a), left, rating.label(k) if capacity else None)
            edge(("line", k, a), ("node", b), None)
    return residual
