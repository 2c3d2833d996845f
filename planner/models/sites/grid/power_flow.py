"""The DC power flow of a site split in its MILP: what is stated at once.

The balance of each part of the network, reserves, and new circuits, whose flows enter the existing network as power
drawn at one end and fed in at the other. Each is stated for one year: of the model itself, or of a scenario's block in it.
"""

from collections.abc import Collection
from typing import Any

import networkx as nx
import numpy as np
import pyomo.environ as pyo

from planner.models.sites.data import Question
from planner.models.sites.grid.dc_network import System
from planner.physics.site.dc_power_flow import BASE_MVA
from planner.physics.site.grid import normal_share


def plants(q: Question, without: Collection[str]) -> list[str]:
    """List the nodes that can feed in under dc: those that can spare something, or all where that rule is left out."""
    if q.system is None:
        return []
    spare = {n.id: n.generation_mw for n in q.grid.nodes}
    return [n for n in q.graph if "generation" in without or spare[n] > 0]


def stand(m: Any, system: System) -> None:
    """Count the circuits that stand in each corridor; one split has the same in every year."""
    keys = system.circuits_to_build
    m.stands = pyo.Var(keys, domain=pyo.Binary)
    new = [c.id for c in system.buildable]
    m.counting = pyo.Constraint(
        new, rule=lambda m, k: sum(m.stands[k, j] for j in range(system.corridors[k].circuits)) == m.circuits[k]
    )
    m.in_order = pyo.Constraint(
        [(k, j) for k, j in keys if j], rule=lambda m, k, j: m.stands[k, j] <= m.stands[k, j - 1]
    )


def balance(m: Any, q: Question, system: System) -> None:
    """Feed what sites draw in each part of the existing network from its plants and over new circuits."""
    keys = system.circuits_to_build
    most = max((v.ub for v in m.generated.values()), default=0.0)
    m.carries = pyo.Var(keys, domain=pyo.Reals, bounds=(-most, most))
    island = system.base.network.island
    terms: list[list[Any]] = [[] for _ in range(int(island.max()) + 1)]
    for n, v in m.generated.items():
        terms[island[system.nodes[n]]].append(v)
    for s in q.candidates:
        terms[island[system.nodes[s]]].append(-q.module_mw * m.modules[s])
    for k, j in keys:
        c = system.corridors[k]
        if island[system.nodes[c.a]] != island[system.nodes[c.b]]:
            terms[island[system.nodes[c.a]]].append(-m.carries[k, j])
            terms[island[system.nodes[c.b]]].append(m.carries[k, j])
    m.island_balance = pyo.Constraint(
        [i for i, parts in enumerate(terms) if parts], rule=lambda _, i: pyo.quicksum(terms[i]) == 0
    )


def new_circuits(m: Any, q: Question, system: System) -> None:
    """Keep new circuits within their ratings, and let each that stands carry what the angles at its ends say.

    A circuit that does not stand leaves the angles apart by up to `_apart`: a smaller bound would forbid angles that can be.
    """
    keys, net = system.circuits_to_build, system.base.network
    rating = {k: system.corridors[k].rating_mw * normal_share(q.grid) for k, _ in keys}
    m.new_rating = pyo.Constraint(
        [(*key, way) for key in keys for way in (1, -1)],
        rule=lambda m, k, j, way: way * m.carries[k, j] <= rating[k] * m.stands[k, j],
    )
    apart = _apart(q, system)
    shifts = sorted({int(i) for i in net.island}) if system.joins_islands else []
    # Angles of a part are over its own reference; parts that new circuits join turn against each other.
    m.turned = pyo.Var(
        shifts, domain=pyo.Reals, bounds=(-max(apart.values(), default=0.0), max(apart.values(), default=0.0))
    )
    ends = {c.id: (system.nodes[c.a], system.nodes[c.b]) for c in system.buildable}
    m.angle = pyo.Var(list(ends), domain=pyo.Reals, bounds=lambda _, k: (-apart[k], apart[k]))
    held = columns(m, system)

    def angle(m: Any, k: str) -> Any:
        a, b = ends[k]
        unit = np.zeros(net.nodes)
        unit[a], unit[b] = 1.0, -1.0
        row = system.row(net.angles(unit), new=True)
        known = pyo.quicksum(float(row[i]) * v for i, v in enumerate(held) if v is not None and abs(row[i]) > 1e-15)
        turned = m.turned[int(net.island[a])] - m.turned[int(net.island[b])] if net.island[a] != net.island[b] else 0.0
        return m.angle[k] == known + turned

    m.angles = pyo.Constraint(list(ends), rule=angle)
    per_rad = {c.id: BASE_MVA / (c.reactance_pu or 1.0) for c in system.buildable}

    def follow(m: Any, k: str, j: int, way: int) -> Any:
        return way * (m.carries[k, j] - per_rad[k] * m.angle[k]) <= per_rad[k] * apart[k] * (1 - m.stands[k, j])

    m.follows = pyo.Constraint([(*key, way) for key in keys for way in (1, -1)], rule=follow)


def _apart(q: Question, system: System) -> dict[str, float]:
    """Bound the angle between the ends of each new corridor, in radians, by what ratings allow along a path.

    A circuit at its rating has its ends rating · x apart. Between parts of the network the path may lead over any new
    circuits and through any parts, so all of them are added up.
    """
    share = normal_share(q.grid) / BASE_MVA
    graph = nx.Graph()
    graph.add_nodes_from(system.nodes)
    for c in system.standing:
        across = share * c.rating_mw * (c.reactance_pu or 0.0)
        graph.add_edge(c.a, c.b, across=min(across, graph.get_edge_data(c.a, c.b, {"across": across})["across"]))
    found = {}
    whole = None
    for c in system.buildable:
        if nx.has_path(graph, c.a, c.b):
            found[c.id] = float(nx.dijkstra_path_length(graph, c.a, c.b, weight="across"))
        else:
            if whole is None:
                tree = nx.minimum_spanning_edges(graph, weight="across", data=True)
                whole = sum(d["across"] for _, _, d in tree) + sum(
                    share * x.rating_mw * (x.reactance_pu or 0.0) for x in system.buildable
                )
            found[c.id] = whole
    return found


def reserves(m: Any, system: System) -> None:
    """Keep a share of each part's plants free for the loss of any unit there, where building joins no parts."""
    net, spare, lost = system.base.network, system.spare_mw, system.lost
    if system.joins_islands:
        return
    here = {n: int(net.island[i]) for n, i in system.nodes.items() if n in m.generated}
    total = np.bincount(net.island, weights=spare)
    m.reserve = pyo.Var(sorted(set(here.values())), domain=pyo.NonNegativeReals, bounds=(0, 1))

    def kept(m: Any, n: str) -> Any:
        return m.generated[n] + float(spare[system.nodes[n]]) * m.reserve[here[n]] <= float(spare[system.nodes[n]])

    def asked(m: Any, n: str) -> Any:
        i = system.nodes[n]
        others = float(total[here[n]] - lost[i] * spare[i])
        if lost[i] * spare[i] == 0:
            return pyo.Constraint.Skip
        return float(lost[i]) * m.generated[n] <= others * m.reserve[here[n]] if others > 1e-9 else m.generated[n] <= 0

    m.security = pyo.Constraint([n for n in here if spare[system.nodes[n]] > 0], rule=kept)
    m.security_asked = pyo.Constraint([n for n in here if spare[system.nodes[n]] > 0], rule=asked)


def columns(m: Any, system: System) -> list[Any]:
    """Return the model's variables in the order of the system's columns; None where there is none."""
    fed = dict(m.generated.items())
    found = [fed.get(n) for n in system.nodes]
    found += [m.modules[s] for s in system.candidates] + [m.open[s] for s in system.candidates]
    return (
        found
        + [m.stands[key] for key in system.circuits_to_build]
        + [m.carries[key] for key in system.circuits_to_build]
    )


def flows_of(m: Any, system: System) -> dict[str, float]:
    """Return the flows that the values set in a model mean, by corridor."""
    x = np.asarray([0.0 if v is None else v.value for v in columns(m, system)])
    state = system.state(system.built(x))
    return dict(sorted(zip(state.lines, (float(f) for f in state.network.flows(system.injection(x))), strict=True)))
