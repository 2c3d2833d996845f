"""Leaves of a cluster as its topology names them: their nodes by block, and the switches above them as numbers."""

from collections.abc import Iterable
from dataclasses import dataclass

from planner.errors import InputError
from planner.topology import Block, Topology


@dataclass(frozen=True, slots=True)
class LeafNodes:
    """A leaf's nodes, those of one scale-up domain together, and the numbers of the switches above it, the common root left out."""

    name: str
    nodes: tuple[str, ...]
    blocks: tuple[tuple[str, ...], ...]
    path: tuple[int, ...]


def leaves_of(topology: Topology) -> list[LeafNodes]:
    """Return the leaves in the order of the topology; without switches each block is one.

    Raises
    ------
    InputError
        If there is no leaf, a node stands twice, or the switches form no tree.
    """
    found = _of_blocks(topology) if topology.kind == "block" or not topology.switches else _of_switches(topology)
    if not found:
        raise InputError("topology: has no leaf with nodes; give switches with nodes, or blocks")
    seen: dict[str, str] = {}
    for leaf in found:
        for node in leaf.nodes:
            if seen.setdefault(node, leaf.name) != leaf.name:
                raise InputError(f"topology: node {node!r} is under {seen[node]!r} and {leaf.name!r}; keep it under one")
    if len(seen) < sum(len(leaf.nodes) for leaf in found):
        raise InputError("topology: a leaf names a node twice; name it once")
    return found


def _of_switches(topology: Topology) -> list[LeafNodes]:
    """Return the switches that have nodes, with the blocks inside them."""
    above = {s.name: s.parent for s in topology.switches}
    block = {node: b for b in topology.blocks for node in b.nodes}
    chains = {s.name: _chain(s.name, above) for s in topology.switches if s.nodes}
    paths = _numbered([chains[s.name] for s in topology.switches if s.nodes])
    return [
        LeafNodes(s.name, s.nodes, _by_block(s.nodes, block), path) for s, path in zip((s for s in topology.switches if s.nodes), paths, strict=True)
    ]


def _by_block(nodes: Iterable[str], block: dict[str, Block]) -> tuple[tuple[str, ...], ...]:
    """Group a leaf's nodes by block; nodes without one are together."""
    found: dict[str | None, list[str]] = {}
    for node in nodes:
        found.setdefault(block[node].name if node in block else None, []).append(node)
    return tuple(tuple(group) for group in found.values())


def _chain(name: str, above: dict[str, str | None]) -> list[str]:
    """Return the switches above one, from the next to the root."""
    chain: list[str] = []
    at = above[name]
    while at is not None:
        if at not in above or at in chain:
            raise InputError(
                f"topology: switch {name!r} leads up to {at!r}, which is {'missing' if at not in above else 'above itself'}; fix its parent"
            )
        chain.append(at)
        at = above[at]
    return chain


def _numbered(chains: list[list[str]]) -> list[tuple[int, ...]]:
    """Give numbers to the switches above leaves, without a root that all share; shorter chains repeat their last switch."""
    if len({chain[-1] if chain else None for chain in chains}) == 1:
        chains = [chain[:-1] for chain in chains]
    depth = max((len(chain) for chain in chains), default=0)
    numbers: dict[str, int] = {}
    found = []
    for i, chain in enumerate(chains):
        own = chain or [f"leaf {i}"]
        full = [*own, *[own[-1]] * (depth - len(own))] if depth else []
        found.append(tuple(numbers.setdefault(name, len(numbers)) for name in full))
    return found


def _of_blocks(topology: Topology) -> list[LeafNodes]:
    """Return blocks as leaves; aggregated blocks, so many in a row, are the tiers above them."""
    base, *larger = topology.block_sizes or (0,)
    tiers = [size // base for size in larger if size // base < len(topology.blocks)]
    return [
        LeafNodes(b.name, b.nodes, (b.nodes,), tuple(_tier_number(tiers, t) + i // n for t, n in enumerate(tiers)))
        for i, b in enumerate(topology.blocks)
    ]


def _tier_number(tiers: list[int], tier: int) -> int:
    """Return where the numbers of a tier start, so that no two tiers share one."""
    return tier * 1_000_000 if tiers else 0
