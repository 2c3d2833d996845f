"""The fabric as Slurm's topology: racks as nodes under leaf domains, under pods, under the core.

All leaves of a domain have the same racks, so the domain is the switch that the scheduler sees; a pod is the leaf domains
that share their spines. Nodes have the names of the placement's hostlists.
"""

from collections.abc import Iterator

from planner.export.built import Built
from planner.physics.hostlist import PREFIX, width

Switch = tuple[str, str, str]  # name, "nodes" or "children", hostlist of them


def tree(x: Built) -> Iterator[Switch]:
    """Yield the switches of the tree from the leaf domains up."""
    d = x.design
    digits = width(d.racks)
    size = d.domain_racks
    for i in range(d.domains):
        yield _name("leaf", i, d.domains), "nodes", _run(PREFIX, i * size, min((i + 1) * size, d.racks), digits)
    per_pod = d.domains_per_pod or d.domains
    pods = -(-d.domains // per_pod)
    for i in range(pods if pods > 1 else 0):
        yield _name("pod", i, pods), "children", _run("leaf", i * per_pod, min((i + 1) * per_pod, d.domains), width(d.domains))
    below, n = ("pod", pods) if pods > 1 else ("leaf", d.domains)
    if n > 1:
        yield "core", "children", _run(below, 0, n, width(n))


def topology_conf(x: Built) -> Iterator[str]:
    """Yield topology.conf for the plugin topology/tree."""
    yield f"# {x.site}: {x.fabric.switches} boxes of {x.fabric.switch}; nodes are racks\n"
    for name, kind, members in tree(x):
        yield f"SwitchName={name} {'Nodes' if kind == 'nodes' else 'Switches'}={members}\n"


def topology_yaml(x: Built) -> Iterator[str]:
    """Yield topology.yaml with one tree, the default."""
    yield "---\n- topology: fabric\n  cluster_default: true\n  tree:\n    switches:\n"
    for name, kind, members in tree(x):
        yield f"      - switch: {name}\n        {kind}: {members}\n"


def _name(word: str, i: int, n: int) -> str:
    return f"{word}{i:0{width(n)}d}"


def _run(word: str, first: int, after: int, digits: int) -> str:
    """Write consecutive names as a hostlist."""
    one = f"{word}{first:0{digits}d}"
    return one if after - first == 1 else f"{word}[{first:0{digits}d}-{after - 1:0{digits}d}]"
