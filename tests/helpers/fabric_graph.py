"""A fabric cable by cable: its ports ticked off, and as a graph of switches which losses cut leaves from another."""

from collections.abc import Iterable
from typing import Any

import networkx as nx

from planner.checks.cables import CableTally
from planner.instance.network import Network
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_cables import StageCables, lay, switch_counts


def counted(d: Design, stream: Iterable[StageCables] | None = None) -> CableTally:
    """Tick off the cables of a design, or of another stream for its switches."""
    shapes = {tier: (n, d.tier_ports.get(tier, d.ports) * d.split) for tier, n in switch_counts(d).items()}
    shapes |= {"gpu": (d.racks * d.gpus_per_rack, d.lanes)}
    return CableTally(lay(d, block=17) if stream is None else stream, shapes, d.split)


def laid(d: Design) -> CableTally:
    """Tick off the cables of a design: no port twice, no GPU or switch without, and as many as the design counts."""
    found = counted(d)
    assert not found.twice and not found.absent
    ends, edge = found.cables["gpu", "leaf"], found.cables.get(("wan-gateway", d.top[0]), 0)
    assert (ends, edge) == (d.endpoint_links, d.wan_gateway_links * d.split)
    assert sum(found.cables.values()) - ends - edge == d.switch_links * d.split
    assert found.used["gpu"].all()
    assert all(found.used[tier].any(axis=1).all() for tier in switch_counts(d)), "a switch without a cable"
    return found


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


def leaves_joined(graph: nx.Graph) -> set[frozenset[Any]]:
    """Return the leaves that a graph of switches joins, set by set."""
    parts = (frozenset(node for node in part if node[0] == "leaf") for part in nx.connected_components(graph))
    return {leaves for leaves in parts if leaves}


def survives(d: Design, loss: str) -> bool:
    """Say whether no one loss of a kind cuts leaves that were joined: every one that parts the graph is tried."""
    cables = graph_of(d)
    graph = nx.Graph(cables)
    if loss == "one_leaf_uplink":
        alone = [ends for ends in nx.bridges(graph) if cables.number_of_edges(*ends) == 1]
        lost = [([], [ends]) for ends in alone if "leaf" in (ends[0][0], ends[1][0])]
    else:
        lost = [([node], []) for node in nx.articulation_points(graph) if node[0] != "leaf"]
    return all(leaves_joined(nx.restricted_view(graph, *of)) == leaves_joined(graph) for of in lost)


def meets(network: Network, d: Design) -> bool:
    """Say whether a design survives what its network asks for."""
    return network.survives is None or survives(d, network.survives)
