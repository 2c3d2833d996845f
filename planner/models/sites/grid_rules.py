"""Rules of the power system, and the DC power flow of a site split in its MILP: the rows that are stated at once.

The rules are headroom, generation, line ratings and N-1, in every year of the split. The power flow is the balance of
each island of the existing network, reserves, and new circuits, whose flows enter the existing network as load at one
end and generation at the other. Each is stated for one year: of the model itself, or of a scenario's block.
"""

from typing import Any

import networkx as nx
import numpy as np
import pyomo.core as pyo

from planner.instance.grid import Line
from planner.models.sites.dc_network import DcNetwork
from planner.models.sites.site_rules import Rule, megawatts, modules_within
from planner.models.sites.split_data import SplitData, load_mw
from planner.physics.site.grid import BASE_MVA, normal_share


def power_balance(model: Any, data: SplitData, max_load_mw: float, *, bounded: bool) -> None:
    """Create the grid's dispatch and flows; require dispatch plus inflow of each node to equal its load and its site's.

    Transport is lossless, and dc asks the same of whole islands: its flows follow from the dispatch. `bounded`: the
    rule that limits the dispatch is in force without an excess.
    """
    transport, network = data.grid.rules.grid_model == "transport", data.network
    by_node, plants = {node.id: node for node in data.grid.nodes}, list(data.graph) if transport else []
    if network is not None:  # nodes without available generation feed in nothing where the rule bounds it
        plants = [node for node in data.graph if not bounded or by_node[node].generation_mw > 0]
    limits = -max_load_mw, max_load_mw
    model.generated = pyo.Var(plants, domain=pyo.NonNegativeReals, bounds=(0, max_load_mw))
    model.flow = pyo.Var(list(data.corridors) if transport else [], domain=pyo.Reals, bounds=limits)

    def row(model: Any, node: str) -> Any:
        inflow = 0
        for _, _, key in data.graph.edges(node, keys=True):
            corridor = data.corridors[key]
            # A corridor's flow is positive from a to b; a loop brings nothing.
            inflow += 0 if corridor.a == corridor.b else model.flow[key] if corridor.b == node else -model.flow[key]
        site = load_mw(model, data, [node]) if node in data.candidates else 0
        return model.generated[node] + inflow == by_node[node].load_mw + site

    model.balance = pyo.Constraint(list(data.graph) if transport else [], rule=row)
    if network is None:
        return
    # In each island of the existing grid generation and inflow over new circuits equal the load.
    keys = network.circuits_to_build
    limit = max((variable.ub for variable in model.generated.values()), default=0.0)
    model.circuit_flow = pyo.Var(keys, domain=pyo.Reals, bounds=(-limit, limit))
    island = network.base.network.island
    terms: list[list[Any]] = [[] for _ in range(int(island.max()) + 1)]
    for node, variable in model.generated.items():
        terms[island[network.nodes[node]]].append(variable)
    for site in data.candidates:
        terms[island[network.nodes[site]]].append(-load_mw(model, data, [site]))
    for key, (start, end) in zip(keys, island[network.ends].tolist(), strict=True):
        if start != end:
            terms[start].append(-model.circuit_flow[key])
            terms[end].append(model.circuit_flow[key])
    drawn = np.bincount(island, weights=network.load_mw, minlength=len(terms))
    islands = [i for i, parts in enumerate(terms) if parts or abs(drawn[i]) > 1e-9]
    # Load in an island that nothing can feed, or feed that nothing can take, leaves no split at all.
    none = pyo.Constraint.Infeasible
    model.island_balance = pyo.Constraint(
        islands, rule=lambda _, i: pyo.quicksum(terms[i]) == float(drawn[i]) if terms[i] else none
    )


def new_circuits(model: Any, data: SplitData, network: DcNetwork) -> None:
    """Limit the grid's new circuits to their ratings; each installed one has the flow that the angles at its ends give.

    |flow| <= rating · installed, and |flow - susceptance · angle| <= susceptance · max_angle · (1 - installed).
    """
    keys, net = network.circuits_to_build, network.base.network
    signed = [(*key, sign) for key in keys for sign in (1, -1)]
    rating = {k: network.corridors[k].rating_mw * normal_share(data.grid) for k, _ in keys}
    model.new_rating = pyo.Constraint(
        signed, rule=lambda m, k, j, sign: sign * m.circuit_flow[k, j] <= rating[k] * m.installed[k, j]
    )
    max_angle = _max_angles(data, network)
    widest = max(max_angle.values(), default=0.0)
    # Angles of an island are over its own reference; islands that new circuits join shift against each other.
    islands = sorted({int(i) for i in net.island}) if network.joins_islands else []
    model.island_shift = pyo.Var(islands, domain=pyo.Reals, bounds=(-widest, widest))
    ends = {corridor.id: (network.nodes[corridor.a], network.nodes[corridor.b]) for corridor in network.buildable}
    model.angle = pyo.Var(list(ends), domain=pyo.Reals, bounds=lambda _, k: (-max_angle[k], max_angle[k]))
    variables = columns(model, network)

    def angle(model: Any, k: str) -> Any:
        start, end = ends[k]
        unit = np.zeros(net.nodes)
        unit[start], unit[end] = 1.0, -1.0
        by_node = net.angles(unit)
        row = network.row(by_node, new=True)
        # Below 1e-15 a coefficient is what rounding leaves of zero.
        terms = ((float(x), own) for x, own in zip(row, variables, strict=True) if own is not None and abs(x) > 1e-15)
        within = pyo.quicksum(x * own for x, own in terms)
        apart = net.island[start] != net.island[end]
        shift = model.island_shift[int(net.island[start])] - model.island_shift[int(net.island[end])] if apart else 0.0
        return model.angle[k] == within - float(by_node @ network.load_mw) + shift

    model.angles = pyo.Constraint(list(ends), rule=angle)
    per_rad = {corridor.id: BASE_MVA / (corridor.reactance_pu or 1.0) for corridor in network.buildable}

    def follow(model: Any, k: str, j: int, sign: int) -> Any:
        gap = model.circuit_flow[k, j] - per_rad[k] * model.angle[k]
        return sign * gap <= per_rad[k] * max_angle[k] * (1 - model.installed[k, j])

    model.follows = pyo.Constraint(signed, rule=follow)


def _max_angles(data: SplitData, network: DcNetwork) -> dict[str, float]:
    """Bound the angle between the ends of each new grid corridor, in radians, by the ratings along a path."""
    # A circuit at its rating has its ends rating · |x| apart. Between islands the path may lead over any new circuits
    # and through any islands, so all of them are added up. A smaller bound would forbid angles that are possible.
    share, graph, bound = normal_share(data.grid) / BASE_MVA, nx.MultiGraph(), dict[str, float]()
    graph.add_nodes_from(network.nodes)
    for line in network.existing:
        graph.add_edge(line.a, line.b, across=share * line.rating_mw * abs(line.reactance_pu or 0.0))
    everywhere = 0.0
    if network.joins_islands:
        tree = nx.minimum_spanning_edges(graph, weight="across", keys=False)
        everywhere = sum(edge["across"] for *_, edge in tree)
        everywhere += sum(share * line.rating_mw * (line.reactance_pu or 0.0) for line in network.buildable)
    for new in network.buildable:
        joined = nx.has_path(graph, new.a, new.b)
        bound[new.id] = nx.dijkstra_path_length(graph, new.a, new.b, weight="across") if joined else everywhere
    return bound


def columns(model: Any, network: DcNetwork) -> list[Any]:
    """Return the split model's variables in the order of the DC grid's columns; None where there is none."""
    generated, extra = dict(model.generated.items()), model.component("extra_mw")
    return [
        *(generated.get(node) for node in network.nodes),
        *(model.modules[site] for site in network.candidates),
        *(model.open[site] for site in network.candidates),
        *(model.installed[key] for key in network.circuits_to_build),
        *(model.circuit_flow[key] for key in network.circuits_to_build),
        *(None if extra is None else extra[site] for site in network.candidates),
    ]


def generation(model: Any, data: SplitData) -> None:
    """Limit the dispatch of each grid node in MW to its plants' generation; without flows, an authority's sites to it.

    Plants may feed the sites and the load of other authorities: headroom limits what sites draw, and no plant.
    """
    if not data.grid.rules.generation:
        return
    if data.grid.rules.grid_model == "none":
        spare = {area: data.spare_mw([area]) for area in data.authorities if data.sites_of(area)}
        model.generation = pyo.Constraint(
            list(spare), rule=lambda m, area: load_mw(m, data, data.sites_of(area)) <= spare[area]
        )
        return
    mw = {node.id: node.generation_mw for node in data.grid.nodes}
    model.generation = pyo.Constraint(list(model.generated), rule=lambda m, node: m.generated[node] <= mw[node])


def _generation_modules(data: SplitData) -> float | None:
    if not data.grid.rules.generation:
        return None
    alone, areas = data.grid.rules.grid_model == "none", data.authorities  # without flows each area feeds its own sites
    total = sum(data.spare_mw([area]) for area in areas) if alone else data.spare_mw(areas)
    return modules_within(data, "generation", total, len(data.grid.nodes))


def _generation_sentence(data: SplitData) -> str:
    each = ", ".join(f"{area} {megawatts(data.spare_mw([area]))}" for area in data.authorities)
    sentence = f"plants can spare {each}"
    if data.grid.rules.grid_model == "none":
        return sentence
    best = max(data.candidates.values(), key=lambda node: (node.generation_mw, node.id))
    return f"{sentence}, at a site itself at most {megawatts(best.generation_mw)} ({best.id})"


def rating(model: Any, data: SplitData) -> None:
    """Limit the flow in MW on each grid corridor, both ways, to the rating of its circuits, built ones included."""
    share = normal_share(data.grid)

    def row(model: Any, key: str, sign: int) -> Any:
        corridor = data.corridors[key]
        circuits = corridor.circuits if isinstance(corridor, Line) else model.circuits[key]
        return sign * model.flow[key] <= share * corridor.rating_mw * circuits

    keys = list(data.corridors) if data.grid.rules.grid_model == "transport" else []
    model.rating = pyo.Constraint([(key, sign) for key in keys for sign in (1, -1)], rule=row)
    if data.network is not None:
        new_circuits(model, data, data.network)


def _rating_sentence(data: SplitData) -> str:
    if not data.corridors:
        return "no line joins the nodes"
    carry = dict.fromkeys(data.candidates, 0.0)
    for site in carry:
        for line in (data.corridors[key] for _, _, key in data.graph.edges(site, keys=True)):
            carry[site] += line.rating_mw * (line.circuits if isinstance(line, Line) else line.max_circuits)
    best = max(carry, key=lambda site: (carry[site], site))
    return f"lines into a site carry {megawatts(carry[best])} at most (at {best}, new circuits included)"


def security(model: Any, data: SplitData) -> None:
    """Require that after each N-1 contingency the grid keeps its ratings, and its plants their spare power in MW.

    Of the loss of any unit each island's plants keep a share as reserve, unless building joins islands:
    generated <= available · (1 - reserve), and lost unit <= reserve · available generation of the others.
    """
    # Only the reserves are stated at once; flows after contingencies are lazy rows.
    network = data.network
    if network is None or data.grid.rules.n1 != "full" or network.joins_islands:
        return
    net, available, unit_share = network.base.network, network.available_mw, network.unit_share
    island = {node: int(net.island[i]) for node, i in network.nodes.items() if node in model.generated}
    total = np.bincount(net.island, weights=available)
    model.reserve = pyo.Var(sorted(set(island.values())), domain=pyo.NonNegativeReals, bounds=(0, 1))

    def cover_unit(model: Any, node: str) -> Any:
        i = network.nodes[node]
        if unit_share[i] * available[i] == 0:
            return pyo.Constraint.Skip
        others = float(total[island[node]] - unit_share[i] * available[i])
        # A plant alone in its island has no other to make up for its unit.
        lost = float(unit_share[i]) * model.generated[node]
        return lost <= others * model.reserve[island[node]] if others > 1e-9 else model.generated[node] <= 0

    mw = {node: float(available[network.nodes[node]]) for node in island if available[network.nodes[node]] > 0}
    model.security = pyo.Constraint(
        list(mw), rule=lambda m, node: m.generated[node] + mw[node] * m.reserve[island[node]] <= mw[node]
    )
    model.unit_reserve = pyo.Constraint(list(mw), rule=cover_unit)


def _security_sentence(data: SplitData) -> str:
    after = "flows after an outage must stay within ratings, and plants within what they can spare"
    return f'grid.rules.n1 "{data.grid.rules.n1}": {after}'


GRID_RULES = (
    Rule(generation, _generation_sentence, "grid", yearly=True, unit="MW", max_modules=_generation_modules),
    Rule(rating, _rating_sentence, "grid", yearly=True, index_names=1, unit="MW"),
    Rule(security, _security_sentence, "grid", yearly=True),
)
