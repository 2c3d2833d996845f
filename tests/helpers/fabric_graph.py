"""A fabric as a graph of switches, cable by cable: which losses cut leaves from one another."""

import networkx as nx

from planner.instance.network import Network
from planner.physics.network.cabling import lay
from planner.physics.network.topology import Design


def graph_of(d: Design) -> nx.MultiGraph:
    """Return the switches of a design and every cable between two of them; WAN gateways and GPUs are left out."""
    graph = nx.MultiGraph()
    graph.add_nodes_from(("leaf", n) for n in range(d.leaves))
    for c in lay(d):
        if c.low_tier not in ("gpu", "wan-gateway"):
            graph.add_edges_from(
                ((c.low_tier, int(a)), (c.high_tier, int(b))) for a, b in zip(c.low, c.high, strict=True)
            )
    return graph


def leaves_by_network(graph: nx.MultiGraph) -> set[frozenset[int]]:
    """Return the leaves that the fabric joins, set by set."""
    found = (frozenset(n for tier, n in part if tier == "leaf") for part in nx.connected_components(graph))
    return {leaves for leaves in found if leaves}


def survives(d: Design, loss: str) -> bool:
    """Say whether no one loss of a kind cuts leaves that were joined: every one is tried."""
    graph = graph_of(d)
    joined, less = leaves_by_network(graph), graph.copy()
    if loss == "one_leaf_uplink":
        for a, b, key in list(graph.edges(keys=True)):
            if "leaf" in (a[0], b[0]):
                less.remove_edge(a, b, key)
                if leaves_by_network(less) != joined:
                    return False
                less.add_edge(a, b, key)
        return True
    for node in list(graph):
        if node[0] != "leaf":
            less = graph.copy()
            less.remove_node(node)
            if leaves_by_network(less) != joined:
                return False
    return True


def meets(network: Network, d: Design) -> bool:
    """Say whether a design survives what its network asks for."""
    return network.survives is None or survives(d, network.survives)
