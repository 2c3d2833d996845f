"""Slurm's topology.conf and topology.yaml, read and written: trees of switches, and blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from planner.cluster.hostlist import fold_names
from planner.cluster.placement import Topology
from planner.errors import InputError
from planner.formats.topology_rows import (
    BlockRow,
    Hostlists,
    SwitchRow,
    block_topology,
    chains,
    children_of,
    near,
    tree,
)
from planner.formats.yaml_text import Node, dump, parse

KEYWORDS = ("SwitchName", "Nodes", "Switches", "LinkSpeed", "BlockName", "BlockSizes")
_PRINTED = ("Level", "AggregatedBlock", "BlockIndex", "BlockSize")  # by scontrol alone
_SPELLING = {k.lower(): k for k in (*KEYWORDS, *_PRINTED)}
_PAIR = re.compile(r"""\s*(?P<key>[^\s=]+)\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s"]*))(?=\s|$)""")

Pairs = dict[str, str]


def read_conf(text: str, source: str) -> Topology:
    """Read a topology.conf.

    InputError names file, line, value and remedy; also for what Slurm accepts and should not, such as a node under two
    leaves.
    """
    rows = _ConfRows(Hostlists(source))
    for number, line in _lines(text):
        rows.add(_line_pairs(line, source, f"line {number}"), f"line {number}")
    sizes, sizes_where = rows.block_sizes()
    if rows.switches and (rows.blocks or sizes):
        where = rows.blocks[0].where if rows.blocks else sizes_where
        remedy = "Slurm reads one kind a topology.conf, topology.yaml takes both"
        raise InputError(f"{source}: {where}: blocks beside switches; {remedy}")
    if rows.blocks or sizes:
        return block_topology(source, rows.blocks, sizes, sizes_where)
    stated = {row.name: row for row in rows.switches if row.children and row.nodes and row.name in rows.printed}
    switches = [replace(row, nodes=()) if row.name in stated else row for row in rows.switches]
    topology = tree(source, switches)
    below: dict[str, set[str]] = {name: set() for name in stated}
    nodes = {s.name: s.nodes for s in topology.switches}
    for leaf, above in chains(topology).items():
        for name in below.keys() & above[1:]:
            below[name].update(nodes[leaf])
    for name, row in stated.items():
        if set(row.nodes) != below[name]:
            problem = f"switch {name!r} states nodes that are not those of its switches"
            raise InputError(f"{source}: {row.where}: {problem}; print the whole topology again")
    return topology


@dataclass(slots=True)
class _ConfRows:
    """What the lines of a file say."""

    hostlists: Hostlists
    switches: list[SwitchRow] = field(default_factory=list)
    blocks: list[BlockRow] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    sizes_where: str = ""
    printed: set[str] = field(default_factory=set)  # switches that scontrol printed
    printed_sizes: dict[int, str] = field(default_factory=dict)  # of blocks, and where it first states them

    def add(self, pairs: Pairs, where: str) -> None:
        """Read a line."""
        source = self.hostlists.source
        if "SwitchName" in pairs:
            if pairs.pop("Level", None) is not None:
                self.printed.add(pairs["SwitchName"])
            name = _own(pairs, "SwitchName", ("Nodes", "Switches", "LinkSpeed"), source, where)
            nodes, children = (self._hosts(pairs, k, where) for k in ("Nodes", "Switches"))
            self.switches.append(SwitchRow(where, name, nodes, children))
        elif "BlockName" in pairs or "AggregatedBlock" in pairs:
            if "BlockSize" in pairs:
                for size in _sizes(pairs.pop("BlockSize"), source, where):
                    self.printed_sizes.setdefault(size, where)
            if "BlockName" in pairs:
                pairs.pop("BlockIndex", None)
                name = _own(pairs, "BlockName", ("Nodes",), source, where)
                self.blocks.append(BlockRow(where, name, self._hosts(pairs, "Nodes", where)))
        elif pairs.keys() == {"BlockSizes"}:
            if self.sizes:
                raise InputError(f"{source}: {where}: BlockSizes is already at {self.sizes_where}; keep one")
            self.sizes, self.sizes_where = _sizes(pairs["BlockSizes"], source, where), where
        else:
            key, remedy = next(iter(pairs)), "begin the line with SwitchName=, BlockName= or BlockSizes="
            raise InputError(f"{source}: {where}: {key}= has no owner; {remedy}")

    def _hosts(self, pairs: Pairs, key: str, where: str) -> tuple[str, ...]:
        return self.hostlists.names(f"{where}: {key}", pairs[key]) if key in pairs else ()

    def block_sizes(self) -> tuple[list[int], str]:
        """Return the sizes of aggregated blocks, and where they stand."""
        if not self.printed_sizes:
            return self.sizes, self.sizes_where
        if self.sizes:
            problem = f"BlockSizes= beside BlockSize= ({next(iter(self.printed_sizes.values()))})"
            raise InputError(f"{self.hostlists.source}: {self.sizes_where}: {problem}; keep one of them")
        return sorted(self.printed_sizes), next(iter(self.printed_sizes.values()))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Return logical lines with the number of their first: comments gone, a backslash at the end joins the next."""
    joined, first = "", 0
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.partition("#")[0].rstrip()
        first = first or number
        joined += line.removesuffix("\\")
        if not line.endswith("\\"):
            if joined.strip():
                yield first, joined
            joined, first = "", 0
    if joined.strip():
        yield first, joined


def _line_pairs(line: str, source: str, where: str) -> Pairs:
    pairs: Pairs = {}
    at = 0
    while line[at:].strip():
        match = _PAIR.match(line, at)
        if match is None:
            text = f"{line[at:].strip()[:60]!r} is not KEY=VALUE"
            raise InputError(f"{source}: {where}: {text}; write such as SwitchName=leaf1 Nodes=n[1-4]")
        key = _SPELLING.get(match["key"].lower())
        if key is None:
            raise InputError(f"{source}: {where}: unknown keyword {match['key']!r}; {near(match['key'], KEYWORDS)}")
        if key in pairs:
            raise InputError(f"{source}: {where}: {key}= stands twice on one line; keep one")
        pairs[key] = match["plain"] if match["quoted"] is None else match["quoted"]
        at = match.end()
    return pairs


def _own(pairs: Pairs, owner: str, keys: tuple[str, ...], source: str, where: str) -> str:
    for key in pairs:
        if key != owner and key not in keys:
            use = " or ".join(f"{k}=" for k in keys)
            raise InputError(f"{source}: {where}: {key}= does not belong to {owner}=; use {use}")
    name = pairs[owner]
    if not name or re.search(r"[\[\],\s]", name):
        raise InputError(f"{source}: {where}: {owner}={name} must be one name; write a line for each")
    return name


def _sizes(text: str, source: str, where: str) -> list[int]:
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text, re.ASCII):
        raise InputError(f"{source}: {where}: BlockSizes={text} must be whole numbers, such as 4,8,16")
    return [int(s) for s in text.split(",")]


def write_conf(topology: Topology) -> str:
    """Write a topology.conf that slurmctld accepts; blocks beside a tree stay out, as Slurm reads one kind a file."""
    if topology.kind == "block":
        lines = [f"BlockName={b.name} Nodes={fold_names(b.nodes)}" for b in topology.blocks]
        if topology.block_sizes:
            lines.append(f"BlockSizes={','.join(map(str, topology.block_sizes))}")
        return "\n".join(lines) + "\n"
    children = children_of(topology)
    below = {
        s.name: f"Nodes={fold_names(s.nodes)}" if s.nodes else f"Switches={fold_names(children[s.name])}"
        for s in topology.switches
    }
    return "".join(f"SwitchName={name} {contents}\n" for name, contents in below.items())


TREE, BLOCKS = "fabric", "blocks"
_KINDS = ("tree", "block", "flat", "ring", "torus3d")


def read_yaml(text: str, source: str, name: str | None = None) -> Topology:
    """Read a topology.yaml: the topology of that name, else the cluster's default, else the first.

    A tree takes the blocks of the file's one block topology along, where there is exactly one.
    """
    topologies = _topologies(parse(text, source), source)
    hostlists = Hostlists(source)
    if not topologies:
        raise InputError(f"{source}: line 1: there is no topology; write such as - topology: fabric")
    if name is not None and name not in topologies:
        raise InputError(f"{source}: there is no topology {name!r}; {near(name, topologies)}")
    flags = {n: str(t["cluster_default"].value).lower() for n, t in topologies.items() if "cluster_default" in t}
    default = next((n for n, flag in flags.items() if flag in {"true", "yes", "on"}), next(iter(topologies)))
    chosen = default if name is None else name
    if "block" in topologies[chosen]:
        return block_topology(source, *_blocks(topologies[chosen]["block"], hostlists))
    if "tree" not in topologies[chosen]:
        kind = next(k for k in _KINDS if k in topologies[chosen])
        line = topologies[chosen]["topology"].line
        raise InputError(f"{source}: line {line}: {chosen!r} is {kind}; only tree and block say where nodes stand")
    rows = []
    switches = _mapping(topologies[chosen]["tree"], source, "tree", ("switches",), ("switches",))["switches"]
    for item in _list(switches, source, "switches"):
        row = _mapping(item, source, "a switch", ("switch", "nodes", "children"), ("switch",))
        nodes, children = (_names(row, k, hostlists) for k in ("nodes", "children"))
        rows.append(SwitchRow(f"line {item.line}", _text(row["switch"], source, "switch"), nodes, children))
    beside = [t["block"] for t in topologies.values() if "block" in t]
    blocks, sizes, _ = _blocks(beside[0], hostlists) if len(beside) == 1 else ([], [], "")
    return tree(source, rows, blocks, sizes)


def _topologies(root: Node, source: str) -> dict[str, dict[str, Node]]:
    topologies: dict[str, dict[str, Node]] = {}
    for item in _list(root, source, "the file"):
        pairs = _mapping(item, source, "a topology", ("topology", "cluster_default", *_KINDS), ("topology",))
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


def _names(row: dict[str, Node], key: str, hostlists: Hostlists) -> tuple[str, ...]:
    """Return the names of a hostlist under a key; none where it is missing, or null as controllers print it."""
    if key not in row or _is_empty(row[key]):
        return ()
    return hostlists.names(f"line {row[key].line}: {key}", _text(row[key], hostlists.source, key))


def _blocks(node: Node, hostlists: Hostlists) -> tuple[list[BlockRow], list[int], str]:
    source = hostlists.source
    pairs = _mapping(node, source, "block", ("block_sizes", "blocks"), ("blocks",))
    rows, sizes = [], list[int]()
    for item in _list(pairs["blocks"], source, "blocks"):
        row = _mapping(item, source, "a block", ("block", "nodes"), ("block",))
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


def _mapping(node: Node, source: str, what: str, known: tuple[str, ...], needed: tuple[str, ...]) -> dict[str, Node]:
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
