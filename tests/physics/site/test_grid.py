"""What the grid around a site can carry by hand; flows, outages and bridges against solves done anew."""

import networkx as nx
import numpy as np
import pytest
from each_case import each

from planner.instance.grid import Grid, GridRules, InterconnectRule, InterconnectUpgrade, Line, NewLine, PowerNode
from planner.physics.site.grid import PowerNetwork, largest_circuit_mw, lost_share, normal_share, usable_interconnect_mw

UPGRADE = InterconnectUpgrade(step_mw=30, max_steps=3, capex_usd=0)
NODE = PowerNode(
    id="n", balancing_authority="b", latitude=0, longitude=0, generation_mw=100, interconnect_mw=400, upgrade=UPGRADE
)
LINES = (
    Line(id="1", a="n", b="m", circuits=3, rating_mw=100),
    Line(id="2", a="o", b="n", circuits=1, rating_mw=150),
    Line(id="3", a="m", b="o", circuits=2, rating_mw=900),
)
NEW = (
    NewLine(id="4", a="n", b="o", max_circuits=2, rating_mw=120, capex_usd=0),
    NewLine(id="5", a="m", b="n", max_circuits=2, rating_mw=180, capex_usd=0),
    NewLine(id="6", a="m", b="o", max_circuits=2, rating_mw=999, capex_usd=0),
)


def grid(reading: str = "explicit", **rules: object) -> Grid:
    on = GridRules(interconnect=InterconnectRule(enabled=True, reading=reading), **rules)
    return Grid(balancing_authorities=(), nodes=(NODE,), lines=LINES, new_lines=NEW, rules=on)


@each(("built", "steps", "explicit", "capacity", "less_one"), [
    ({}, 0, 400, 450, 300), ({}, 2, 400 + 60, 450 + 60, 300 + 60),
    # Two circuits of 120 MW: the old one of 150 stays the largest.
    ({"4": 2}, 0, 400 + 240, 450 + 240, 300 + 240),
    # A new one of 180 is now the one to lose; the old one, which was out of the 400, is back.
    ({"5": 1}, 0, 400 + 180 - 180 + 150, 450 + 180, 450 + 180 - 180),
    ({"4": 1, "5": 2}, 1, 400 + 120 + 360 + 30 - 30, 450 + 120 + 360 + 30, 450 + 120 + 360 + 30 - 180),
    # None built, and built elsewhere, add nothing and are no circuit to lose.
    ({"5": 0, "6": 2}, 0, 400, 450, 300),
])  # fmt: skip
def test_what_a_node_can_draw(built, steps, explicit, capacity, less_one) -> None:
    """The figure given, or 3·100 + 150 MW of circuits, with those built and steps of 30 MW; less the largest."""
    assert usable_interconnect_mw(grid(), NODE, built, steps) == explicit
    assert usable_interconnect_mw(grid("capacity"), NODE, built, steps) == capacity
    assert usable_interconnect_mw(grid("capacity_n1"), NODE, built, steps) == less_one
    assert usable_interconnect_mw(grid("import_share"), NODE, built, steps) == less_one


def test_a_node_without_a_figure_has_none() -> None:
    """The explicit reading needs the figure, the others do not; steps count only where they can be bought."""
    bare = NODE.replaced(interconnect_mw=None, upgrade=None)
    assert largest_circuit_mw(grid(), "nowhere") == 0
    assert usable_interconnect_mw(grid(), bare, {"4": 1}) is None
    assert usable_interconnect_mw(grid("capacity"), bare, {}, 5) == 450


@each(("generation", "unit", "share"), [
    (100, None, 1.0), (100, 25, 0.25), (100, 100, 1.0), (100, 130, 1.0), (0, 5, 0.0), (0, None, 1.0), (100, 0, 0.0),
])  # fmt: skip
def test_share_lost_with_the_largest_unit(generation: float, unit: float | None, share: float) -> None:
    """A unit of 25 MW of 100 takes a quarter, one as large as all takes all, and no more; unnamed, all is one unit."""
    assert lost_share(NODE.replaced(generation_mw=generation, largest_unit_mw=unit)) == share


@each(("n1", "share"), [("margin", 0.7), ("off", 1.0), ("full", 1.0)])
def test_ratings_before_a_contingency(n1: str, share: float) -> None:
    assert normal_share(grid(n1=n1, n1_margin=0.7)) == share


def drawn(seed: int) -> tuple[PowerNetwork, list[tuple[int, int, int, float]]]:
    """Return a random network of 8 nodes, with parallel lines, parallel circuits and maybe islands."""
    r = np.random.default_rng(seed)
    lines = []
    for _ in range(int(r.integers(6, 13))):
        a, b = r.choice(8, 2, replace=False)
        lines.append((int(a), int(b), int(r.integers(1, 4)), float(r.uniform(0.01, 0.1))))
    return network(lines), lines


def network(lines: list[tuple[int, int, int, float]]) -> PowerNetwork:
    a, b, c, x = zip(*lines, strict=True)
    return PowerNetwork(8, a, b, c, x)


def balanced(net: PowerNetwork, seed: int) -> np.ndarray:
    """Draw injections that sum to nothing in every island."""
    p = np.random.default_rng(seed).normal(size=net.nodes)
    for i in np.unique(net.island):
        p[net.island == i] -= p[net.island == i].mean()
    return p


@pytest.mark.parametrize("seed", range(10))
def test_outages_are_those_of_the_network_without_the_circuit(seed: int) -> None:
    """A circuit out shifts flows as a network built without it says; bridges are those that part the graph."""
    # Flows keep the balance of every node, and by the PTDF are the same.
    net, lines = drawn(seed)
    p = balanced(net, seed)
    flow, left = net.flows(p), p.copy()
    np.subtract.at(left, net.a, flow)
    np.add.at(left, net.b, flow)
    assert np.abs(left).max() < 1e-9
    assert net.ptdf(range(len(flow))) @ p == pytest.approx(flow)
    graph = nx.MultiGraph((a, b) for a, b, c, _ in lines for _ in range(c))
    for k, (a, b, c, x) in enumerate(lines):
        graph.remove_edge(a, b)
        assert (k in net.bridges) == (not nx.has_path(graph, a, b))
        if k in net.bridges:
            side = nx.node_connected_component(graph, a), nx.node_connected_component(graph, b)
            assert set(net.bridges[k].tolist()) in side
        else:
            rest = [line if j != k else (a, b, c - 1, x) for j, line in enumerate(lines)]
            kept = [j for j, line in enumerate(rest) if line[2]]
            after = np.zeros(len(lines))
            after[kept] = network([rest[j] for j in kept]).flows(p)
            assert flow + net.lodf([k])[:, 0] * flow[k] == pytest.approx(after, abs=1e-9)
        graph.add_edge(a, b)
