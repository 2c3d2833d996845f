"""The fabric as a graph: switches and the racks of each leaf domain, or whole pods where there are too many."""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from planner.exports.from_plan import BuiltFabric
from planner.physics.network.cabling import WAN_GATEWAY, switch_counts
from planner.physics.network.links import Ints

TOPS = ("core", "super-spine", WAN_GATEWAY)  # tiers of which no switch is in a pod
MAX_EDGES = 50_000  # of a graph that viewers still open; larger ones are drawn by pod


def edges(x: BuiltFabric) -> int:
    """Return the edges at the level of switches: pairs that a bundle joins; links between groups may share an edge."""
    d = x.design
    return d.leaves + d.wan_gateway_links + d.switch_pairs


def graph(x: BuiltFabric, *, by_pod: bool) -> Any:
    """Return a networkx graph: an edge carries how many cables it stands for and the longest of them."""
    import networkx as nx

    g = nx.Graph(site=x.site, switch=x.fabric.switch, planes=x.fabric.planes, detail="pod" if by_pod else "switch")
    for tier, n in switch_counts(x.design).items():
        nodes, counts = np.unique(_node(x, tier, np.arange(n, dtype=np.int64), by_pod=by_pod), return_counts=True)
        for node, switches in zip(nodes.tolist(), counts.tolist(), strict=True):
            g.add_node(_label(x, tier, node, by_pod=by_pod), tier=tier, switches=switches)
    for c, metres in x.measured():
        low, high = (_node(x, *end, by_pod=by_pod) for end in ((c.low_tier, c.low), (c.high_tier, c.high)))
        pairs, which, cables = np.unique(np.stack([low, high]), axis=1, return_inverse=True, return_counts=True)
        longest = np.zeros(len(cables))
        np.maximum.at(longest, which.ravel(), metres)
        for a, b, n, m in zip(*pairs.tolist(), cables.tolist(), longest.tolist(), strict=True):
            ends = _label(x, c.low_tier, a, by_pod=by_pod), _label(x, c.high_tier, b, by_pod=by_pod)
            if ends[0] != ends[1]:
                _join(g, *ends, n, round(m, 1))
            if c.low_tier == "gpu":
                _count_gpus(g, _label(x, "gpu", a, by_pod=by_pod), n)
    return g


def graphml(g: Any) -> Iterator[str]:
    """Write such a graph as GraphML."""
    import networkx as nx

    return (f"{line}\n" for line in nx.generate_graphml(g))


def dot(g: Any) -> Iterator[str]:
    """Write such a graph for Graphviz: tiers in rows, racks lowest, lines wider the more cables they stand for."""
    yield f"graph {json.dumps(g.graph['site'])} {{\n  rankdir=BT; ranksep=2; node [shape=box];\n"
    for tier in dict.fromkeys(own for _, own in g.nodes(data="tier")):
        named = " ".join(f"{json.dumps(n)};" for n, own in g.nodes(data="tier") if own == tier)
        yield f"  {{ rank=same; {named} }}\n"
    for node, own in g.nodes(data=True):
        holds = f"{own['gpus']:,} GPUs" if "gpus" in own else f"x {own['switches']:,}" if own["switches"] > 1 else ""
        if holds:
            label = json.dumps(f"{node}\n{holds}")
            yield f"  {json.dumps(node)} [label={label}];\n"
    upward = ("racks", "leaf", "spine", *TOPS).index
    for a, b, own in g.edges(data=True):
        low, high = sorted((a, b), key=lambda n: upward(g.nodes[n]["tier"]))
        width = 1 + math.log2(own["cables"]) / 2
        yield f'  {json.dumps(low)} -- {json.dumps(high)} [label="{own["cables"]}", penwidth={width:.2f}];\n'
    yield "}\n"


def _join(g: Any, a: str, b: str, cables: int, longest_m: float) -> None:
    """Add cables to the edge between two nodes; those of one edge may come in several blocks."""
    before = g.edges[a, b] if g.has_edge(a, b) else {"cables": 0, "longest_m": 0.0}
    g.add_edge(a, b, cables=before["cables"] + cables, longest_m=max(before["longest_m"], longest_m))


def _count_gpus(g: Any, racks: str, gpus: int) -> None:
    g.nodes[racks]["tier"] = "racks"
    g.nodes[racks]["gpus"] = g.nodes[racks].get("gpus", 0) + gpus


def _node(x: BuiltFabric, tier: str, index: Ints, *, by_pod: bool) -> Ints:
    """Return the number of the node that stands for each switch or GPU, within its tier."""
    if not by_pod:
        return x.domain_of(tier, index) if tier == "gpu" else index
    return x.zone_of(index) if tier == "core" else x.pod_of(tier, index)


def _label(x: BuiltFabric, tier: str, node: int, *, by_pod: bool) -> str:
    """Return the name of a node."""
    if tier == "gpu":
        return "racks" if by_pod else f"racks-{node}"
    if by_pod:
        if tier == "core" and x.design.zones:
            return f"core-zone-{node}"
        return tier if tier in TOPS else f"{tier}-pod-{node}"
    return x.names[tier][node]
