"""Clusters with names, for the tests of the library and of the command."""

import random

from planner.cluster.topology import Topology, TopologyBlock, TopologySwitch


def tree(leaves: list[int], per_pod: int, *, block: int = 0) -> Topology:
    """Return leaves of so many nodes under pods under one root, with blocks of so many nodes inside the leaves."""
    switches, blocks, first = [TopologySwitch(name="root")], [], 0
    for i, size in enumerate(leaves):
        if i % per_pod == 0:
            switches.append(TopologySwitch(name=f"pod{i // per_pod}", parent="root"))
        nodes = tuple(f"n{n:05d}" for n in range(first, first + size))
        first += size
        switches.append(TopologySwitch(name=f"leaf{i}", parent=f"pod{i // per_pod}", nodes=nodes))
        if block:
            blocks += [TopologyBlock(name=f"block{i}.{b}", nodes=nodes[b : b + block]) for b in range(0, size, block)]
    return Topology(switches=tuple(switches), blocks=tuple(blocks))


def some_busy(topology: Topology, share: float, seed: int) -> list[str]:
    nodes = [n for s in topology.switches for n in s.nodes]
    return sorted(random.Random(seed).sample(nodes, round(share * len(nodes))))
