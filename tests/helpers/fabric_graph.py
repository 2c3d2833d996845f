"""A fabric cable by cable: its ports ticked off, and as a graph of switches which losses cut leaves from another."""

from collections.abc import Iterable

import networkx as nx

from planner.checks.cables import CableTally
from planner.instance.network import Network
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_designs import StageCables, lay, switch_counts

Node = tuple[str, int]  # tier and number of a switch


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


def leaves_by_network(near: dict[Node, dict[Node, int]], without: Node | None = None) -> set[frozenset[int]]:
    """Return the leaves that the fabric joins, set by set, as if one switch were not there."""
    found, seen = set(), {without}
    for start in near:
        if start[0] != "leaf" or start in seen:
            continue
        part, ahead = [start], [start]
        seen.add(start)
        while ahead:
            new = [n for n in near[ahead.pop()] if n not in seen]
            seen.update(new)
            part += new
            ahead += new
        found.add(frozenset(n for tier, n in part if tier == "leaf"))
    return found


def survives(d: Design, loss: str) -> bool:
    """Say whether no one loss of a kind cuts leaves that were joined: every one is tried."""
    graph = graph_of(d)
    near = {a: {b: len(cables) for b, cables in graph.adj[a].items()} for a in graph}
    joined = leaves_by_network(near)
    if loss != "one_leaf_uplink":
        return all(leaves_by_network(near, node) == joined for node in near if node[0] != "leaf")
    alone = [(a, b) for a, above in near.items() if a[0] == "leaf" for b, cables in above.items() if cables == 1]
    for a, b in alone:
        del near[a][b], near[b][a]  # where there are more, others still join the two
        if leaves_by_network(near) != joined:
            return False
        near[a][b] = near[b][a] = 1
    return True


def meets(network: Network, d: Design) -> bool:
    """Say whether a design survives what its network asks for."""
    return network.survives is None or survives(d, network.survives)
