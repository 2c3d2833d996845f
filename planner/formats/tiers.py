"""How high each switch of a tree stands, and what stands above each leaf."""

from collections.abc import Iterator

from planner.cluster.topology import Switch, Topology


def children_of(topology: Topology) -> dict[str, list[str]]:
    """Return the switches under each switch, in the order of the file."""
    children: dict[str, list[str]] = {}
    for s in topology.switches:
        if s.parent is not None:
            children.setdefault(s.parent, []).append(s.name)
    return children


def heights(topology: Topology) -> dict[str, int]:
    """Return the tier of each switch: 0 for a leaf, else one more than its highest child."""
    tiers = {s.name: 0 for s in topology.switches if s.nodes}
    parents = {s.name: s.parent for s in topology.switches}
    for leaf in list(tiers):
        at, height = leaf, 0
        while (above := parents[at]) is not None and tiers.get(above, -1) < height + 1:
            at, height = above, height + 1
            tiers[at] = height
    return tiers


def leaves(topology: Topology) -> Iterator[Switch]:
    """Return the switches that have nodes, in the order of the file."""
    return (s for s in topology.switches if s.nodes)


def leaf_of(topology: Topology) -> dict[str, str]:
    """Return the leaf of each node."""
    return {n: s.name for s in leaves(topology) for n in s.nodes}


def chains(topology: Topology) -> dict[str, tuple[str, ...]]:
    """Return for each leaf the switches from itself up to the root."""
    parents = {s.name: s.parent for s in topology.switches}
    chains: dict[str, tuple[str, ...]] = {}
    for s in leaves(topology):
        chain, at = [s.name], s.parent
        while at is not None:
            chain.append(at)
            at = parents[at]
        chains[s.name] = tuple(chain)
    return chains
