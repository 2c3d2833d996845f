"""Topologies known node by node, as the switches above each: topograph's graph and Kubernetes' node labels."""

from collections.abc import Iterable
from dataclasses import dataclass

from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.formats.validate import BlockRow, SwitchRow, tree

ROOT = "root"


@dataclass(frozen=True, slots=True)
class Layered:
    """A node, the switches above it from its leaf up, and its scale-up domain."""

    where: str
    node: str
    switches: tuple[str, ...]
    domain: str | None = None


def from_layers(source: str, rows: Iterable[Layered]) -> Topology:
    """Return the tree; several switches of the highest layer are joined under one more, named root.

    Raises
    ------
    InputError
        If a switch is below two others, or a node stands twice.
    """
    parents: dict[str, str | None] = {}
    places: dict[str, str] = {}
    nodes: dict[str, list[str]] = {}
    domains: dict[str, list[str]] = {}
    seen: dict[str, str] = {}
    for row in rows:
        if seen.setdefault(row.node, row.where) != row.where:
            raise InputError(f"{source}: {row.where}: node {row.node!r} is already at {seen[row.node]}; keep one")
        for name, above in zip(row.switches, (*row.switches[1:], None), strict=True):
            if parents.setdefault(name, above) != above:
                one, two = (repr(p) if p else "the top" for p in (parents[name], above))
                above_both = f"below {one} at {places[name]} and below {two} here"
                remedy = "give switches names of their own"
                raise InputError(f"{source}: {row.where}: switch {name!r} is {above_both}; {remedy}")
            places.setdefault(name, row.where)
        nodes.setdefault(row.switches[0], []).append(row.node)
        if row.domain:
            domains.setdefault(row.domain, []).append(row.node)
    roots = [s for s, above in parents.items() if above is None]
    if len(roots) > 1:
        places.setdefault(ROOT, "the top")
        parents |= {s: ROOT for s in roots if s != ROOT}
        parents[ROOT] = None
    children: dict[str, list[str]] = {}
    for name, above in parents.items():
        if above is not None:
            children.setdefault(above, []).append(name)
    switches = [SwitchRow(places[s], s, tuple(nodes.get(s, ())), tuple(children.get(s, ()))) for s in parents]
    return tree(source, switches, [BlockRow(seen[members[0]], d, tuple(members)) for d, members in domains.items()])
