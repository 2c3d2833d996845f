"""Slurm's topology.yaml (25.05 and newer), read and written: several topologies by name, trees and blocks."""

from collections.abc import Iterator
from typing import Any

from planner.cluster.hostlist import fold_names
from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.formats.kubernetes.yaml import Node, dump, parse
from planner.formats.source import Hostlists, near
from planner.formats.tiers import children_of
from planner.formats.validate import BlockRow, SwitchRow, block_topology, tree

TREE, BLOCKS = "fabric", "blocks"
_KINDS = ("tree", "block", "flat", "ring", "torus3d")


def read_yaml(text: str, source: str, name: str | None = None) -> Topology:
    """Read a topology.yaml: the topology of that name, else the cluster's default, else the first.

    A tree takes the blocks of the file's one block topology along, where there is exactly one.

    Raises
    ------
    InputError
        Names file, line, value and remedy.
    """
    topologies = _topologies(parse(text, source), source)
    hostlists = Hostlists(source)
    chosen = _chosen(topologies, source, name)
    if "block" in topologies[chosen]:
        return block_topology(source, *_blocks(topologies[chosen]["block"], hostlists))
    if "tree" not in topologies[chosen]:
        kind = next(k for k in _KINDS if k in topologies[chosen])
        line = topologies[chosen]["topology"].line
        raise InputError(f"{source}: line {line}: {chosen!r} is {kind}; only tree and block say where nodes stand")
    rows = list(_switches(topologies[chosen]["tree"], hostlists))
    beside = [t["block"] for t in topologies.values() if "block" in t]
    blocks, sizes, _ = _blocks(beside[0], hostlists) if len(beside) == 1 else ([], [], "")
    return tree(source, rows, blocks, sizes)


def _topologies(root: Node, source: str) -> dict[str, dict[str, Node]]:
    """Return the topologies by name."""
    topologies: dict[str, dict[str, Node]] = {}
    for item in _list(root, source, "the file"):
        pairs = _pairs(item, source, "a topology", ("topology", "cluster_default", *_KINDS), ("topology",))
        name = _text(pairs["topology"], source, "topology")
        if name in topologies:
            first = topologies[name]["topology"].line
            raise InputError(f"{source}: line {item.line}: topology {name!r} is already at line {first}; rename one")
        kinds = [k for k in _KINDS if k in pairs and not _is_empty(pairs[k], "false")]
        if len(kinds) != 1:
            stated = f"must be exactly one of {', '.join(_KINDS)} (is {', '.join(kinds) or 'none'})"
            raise InputError(f"{source}: line {item.line}: topology {name!r} {stated}")
        topologies[name] = {k: v for k, v in pairs.items() if k not in _KINDS or k in kinds}
    return topologies


def _chosen(topologies: dict[str, dict[str, Node]], source: str, name: str | None) -> str:
    if not topologies:
        raise InputError(f"{source}: line 1: there is no topology; write such as - topology: fabric")
    if name is not None:
        if name not in topologies:
            raise InputError(f"{source}: there is no topology {name!r}; {near(name, topologies)}")
        return name
    flags = {n: str(t["cluster_default"].value).lower() for n, t in topologies.items() if "cluster_default" in t}
    return next((n for n, flag in flags.items() if flag in {"true", "yes", "on"}), next(iter(topologies)))


def _switches(node: Node, hostlists: Hostlists) -> Iterator[SwitchRow]:
    source = hostlists.source
    pairs = _pairs(node, source, "tree", ("switches",), ("switches",))
    for item in _list(pairs["switches"], source, "switches"):
        row = _pairs(item, source, "a switch", ("switch", "nodes", "children"), ("switch",))
        nodes, children = (_names(row, k, hostlists) for k in ("nodes", "children"))
        yield SwitchRow(f"line {item.line}", _text(row["switch"], source, "switch"), nodes, children)


def _names(row: dict[str, Node], key: str, hostlists: Hostlists) -> tuple[str, ...]:
    """Return the names of a hostlist under a key; none where it is missing, or null as controllers print it."""
    if key not in row or _is_empty(row[key]):
        return ()
    return hostlists.names(f"line {row[key].line}: {key}", _text(row[key], hostlists.source, key))


def _blocks(node: Node, hostlists: Hostlists) -> tuple[list[BlockRow], list[int], str]:
    source = hostlists.source
    pairs = _pairs(node, source, "block", ("block_sizes", "blocks"), ("blocks",))
    rows, sizes = [], list[int]()
    for item in _list(pairs["blocks"], source, "blocks"):
        row = _pairs(item, source, "a block", ("block", "nodes"), ("block",))
        name = _text(row["block"], source, "block")
        rows.append(BlockRow(f"line {item.line}", name, _names(row, "nodes", hostlists)))
    if "block_sizes" not in pairs:
        return rows, sizes, ""
    for item in _list(pairs["block_sizes"], source, "block_sizes"):
        text = _text(item, source, "block_sizes")
        if not (text.isdecimal() and text.isascii() and len(text) < 10):
            raise InputError(f"{source}: line {item.line}: block_sizes must be whole numbers (is {text!r}), such as 4")
        sizes.append(int(text))
    return rows, sizes, f"line {pairs['block_sizes'].line}: block_sizes"


def _is_empty(node: Node, *others: str) -> bool:
    """Return whether a value says nothing: controllers print keys that a topology does not have so."""
    return not node.value or (isinstance(node.value, str) and node.value.lower() in {"null", "~", *others})


def _list(node: Node, source: str, what: str) -> list[Node]:
    if not isinstance(node.value, list):
        raise InputError(f"{source}: line {node.line}: {what} must be a list, its items beginning with a dash")
    return node.value


def _text(node: Node, source: str, what: str) -> str:
    if not isinstance(node.value, str) or not node.value:
        raise InputError(f"{source}: line {node.line}: {what} must be a text on one line, such as n[1-4]")
    return node.value


def _pairs(node: Node, source: str, what: str, known: tuple[str, ...], needed: tuple[str, ...]) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        keys = ", ".join(known)
        raise InputError(f"{source}: line {node.line}: {what} must be a mapping with {keys}; give some of these")
    for key, inner in node.value.items():
        if key not in known:
            raise InputError(f"{source}: line {inner.line}: unknown keyword {key!r} in {what}; {near(key, known)}")
    for key in needed:
        if key not in node.value:
            raise InputError(f"{source}: line {node.line}: {what} has no {key!r}; add it")
    return node.value


def write_yaml(topology: Topology) -> str:
    """Write a topology.yaml; blocks beside a tree become a topology of their own."""
    documents: list[dict[str, Any]] = []
    if topology.kind == "tree":
        children = children_of(topology)
        switches = [
            {
                "switch": s.name,
                **({"nodes": fold_names(s.nodes)} if s.nodes else {"children": fold_names(children[s.name])}),
            }
            for s in topology.switches
        ]
        documents.append({"topology": TREE, "cluster_default": True, "tree": {"switches": switches}})
    if topology.blocks:
        sizes = {"block_sizes": list(topology.block_sizes)} if topology.block_sizes else {}
        blocks = [{"block": b.name, "nodes": fold_names(b.nodes)} for b in topology.blocks]
        documents.append(
            {"topology": BLOCKS, "cluster_default": topology.kind == "block", "block": {**sizes, "blocks": blocks}}
        )
    return "---\n" + dump(documents)
