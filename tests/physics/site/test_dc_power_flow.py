"""Power flow: factors against solves done anew, islands and bridges against a graph library."""

import networkx as nx
import numpy as np
import pytest

from planner.physics.site.grid import PowerNetwork


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


@pytest.mark.parametrize("seed", range(10))
def test_flows_keep_the_balance_and_the_angles(seed: int) -> None:
    """What goes into a node leaves it, and factors give the flows that the solve gives."""
    net, _ = drawn(seed)
    p = np.random.default_rng(seed).normal(size=8)
    for i in np.unique(net.island):
        p[net.island == i] -= p[net.island == i].mean()
    flow, left = net.flows(p), p.copy()
    np.subtract.at(left, net.a, flow)
    np.add.at(left, net.b, flow)
    assert np.abs(left).max() < 1e-9
    assert net.ptdf(range(len(flow))) @ p == pytest.approx(flow)


@pytest.mark.parametrize("seed", range(10))
def test_outages_are_those_of_the_network_without_the_circuit(seed: int) -> None:
    """A circuit out shifts flows as a network built without it says; bridges are those that part the graph."""
    net, lines = drawn(seed)
    p = np.random.default_rng(seed).normal(size=8)
    for i in np.unique(net.island):
        p[net.island == i] -= p[net.island == i].mean()
    flow = net.flows(p)
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
