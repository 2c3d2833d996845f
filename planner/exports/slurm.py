"""The fabric as Slurm's topology: racks under leaf domains, under pods, under zones of four tiers, under the top.

Racks are the nodes. All leaves of a domain have the same racks, so the domain is the switch that the scheduler sees; a
pod is the leaf domains that share their spines. Nodes have the names of the placement's hostlists.
"""

from collections.abc import Iterator

from planner.cluster.hostlist import PREFIX, width
from planner.exports.from_plan import BuiltFabric

Switch = tuple[str, str, str]  # name, "nodes" or "children", hostlist of them


def tree(x: BuiltFabric) -> Iterator[Switch]:
    """Yield the switches of the tree from the leaf domains up."""
    d = x.design
    digits = width(d.racks)
    size = d.domain_racks
    for i in range(d.domains):
        yield _name("leaf", i, d.domains), "nodes", _run(PREFIX, i * size, min((i + 1) * size, d.racks), digits)
    below, n, domains_below = "leaf", d.domains, 1
    for word, domains in (("pod", d.domains_per_pod), ("zone", d.domains_per_zone)):
        blocks, each = -(-d.domains // (domains or d.domains)), domains // domains_below
        if blocks > 1:
            for i in range(blocks):
                yield _name(word, i, blocks), "children", _run(below, i * each, min((i + 1) * each, n), width(n))
            below, n, domains_below = word, blocks, domains
    if n > 1:
        yield "super-spine" if d.zones else "core", "children", _run(below, 0, n, width(n))


def topology_conf(x: BuiltFabric) -> Iterator[str]:
    """Write topology.conf for the plugin topology/tree."""
    yield f"# {x.site}: {x.fabric.switches} switches of {x.fabric.boxes}; nodes are racks\n"
    for name, kind, members in tree(x):
        yield f"SwitchName={name} {'Nodes' if kind == 'nodes' else 'Switches'}={members}\n"


def topology_yaml(x: BuiltFabric) -> Iterator[str]:
    """Write topology.yaml with one tree, the default."""
    yield "---\n- topology: fabric\n  cluster_default: true\n  tree:\n    switches:\n"
    for name, kind, members in tree(x):
        yield f"      - switch: {name}\n        {kind}: {members}\n"


def _name(word: str, i: int, n: int) -> str:
    return f"{word}{i:0{width(n)}d}"


def _run(word: str, first: int, after: int, digits: int) -> str:
    """Write consecutive names as a hostlist."""
    one = f"{word}{first:0{digits}d}"
    return one if after - first == 1 else f"{word}[{first:0{digits}d}-{after - 1:0{digits}d}]"
