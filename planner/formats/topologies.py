"""Topologies: made of the rows of a file or of a plan's fabric; Slurm's topology.conf and topology.yaml, both ways."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from planner.cluster.hostlists import MAX_NAMES, PREFIX, expand, fold_names, width
from planner.cluster.job import HOST_GPUS
from planner.cluster.placement import Placement
from planner.cluster.topology import Topology, TopologyBlock, TopologySwitch
from planner.errors import InputError, hint
from planner.formats.yaml_text import Node, dump, parse
from planner.plan.plan import Plan
from planner.plan.plan_sections import SiteFabric
from planner.units import few

SHOWN = 20  # Further complaints are counted, not printed: a file with one fault may have a thousand.
# What no hostlist and no topology.conf takes as part of one name: it would come back as two, or not at all.
_UNFIT = re.compile(r"""[\s\x00-\x1f\x7f,\[\]="'#\\]""")
ROOT = "root"
TopologyRows = Sequence["TopologyRow"]
KEYWORDS = ("SwitchName", "Nodes", "Switches", "LinkSpeed", "BlockName", "BlockSizes")
# With those that scontrol alone prints.
_SPELLING = {key.lower(): key for key in (*KEYWORDS, "Level", "AggregatedBlock", "BlockIndex", "BlockSize")}
_PAIR = re.compile(r"""\s*(?P<key>[^\s=]+)\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s"]*))(?=\s|$)""")
_KINDS = ("tree", "block", "flat", "ring", "torus3d")


class Hostlists:
    """The hostlists of one topology file, whose sum may expand to at most `MAX_NAMES` names."""

    def __init__(self, source: str) -> None:
        self.source, self.count = source, 0

    def names(self, where: str, text: str | None) -> tuple[str, ...]:
        """Expand a hostlist, if any, at a place of a topology file. InputError: wrong, empty, or one too many."""
        try:
            names = () if text is None else tuple(expand(text))
        except ValueError as error:
            raise InputError(f"{self.source}: {where}: {error}") from None
        if not names and text is not None:
            raise InputError(f"{self.source}: {where}: the hostlist is empty; name at least one, such as n[1-4]")
        self.count += len(names)
        if self.count > MAX_NAMES:
            problem = f"the file expands to more than {MAX_NAMES:,} names"
            raise InputError(f"{self.source}: {where}: {problem}; check its ranges")
        return names


def _raise_all(source: str, problems: Iterable[str]) -> None:
    lines = [f"{source}: {problem}" for problem in problems]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"{source}: and {len(lines) - SHOWN:,} more like these"]
    if lines:
        raise InputError("\n".join(lines))


def children_of(topology: Topology) -> dict[str, list[str]]:
    """Return the switches under each switch of a topology, in the order of the file."""
    children = defaultdict[str, list[str]](list)
    for switch in topology.switches:
        if switch.parent is not None:
            children[switch.parent].append(switch.name)
    return children


def heights(topology: Topology) -> dict[str, int]:
    """Return for the formats of a topology each switch's tier: 0 for a leaf, else one above its highest child."""
    tiers: dict[str, int] = {}
    for chain in topology.chains().values():
        tiers |= {switch: max(height, tiers.get(switch, 0)) for height, switch in enumerate(chain)}
    return tiers


def leaf_of(topology: Topology) -> dict[str, str]:
    """Return the leaf switch of each node, by name, for the formats of a topology."""
    return {node: switch.name for switch in topology.switches for node in switch.nodes}


def gpus_of_node(placed: Placement) -> int:
    """Return the GPUs of each node of a placed job, which its ranks fill node by node: 8 where none are stated."""
    return placed.gpus_per_node or HOST_GPUS


class TopologyRow(NamedTuple):
    """A row of a topology file: a switch or a block; `where` is its line or path."""

    where: str
    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


def tree(
    source: str, rows: TopologyRows, blocks: TopologyRows = (), sizes: Sequence[int] = (), sizes_where: str = ""
) -> Topology:
    """Return the topology of a tree's rows and blocks. InputError names every fault in names, contents and shape."""
    _raise_all(source, _names(rows, "switch"))
    contents, known, above = list[str](), {row.name for row in rows}, dict[str, TopologyRow]()
    for row in rows:
        if bool(row.nodes) == bool(row.children):
            both = "has both nodes and switches; put its nodes under a leaf of their own"
            problem = both if row.nodes else "has neither nodes nor switches; give it some or remove it"
            contents.append(f"{row.where}: switch {row.name!r} {problem}")
    for row in rows:
        for child in row.children:
            if child not in known:
                remedy = hint(child, sorted(known), most=5)
                contents.append(f"{row.where}: switch {row.name!r} has the unknown child {child!r}; {remedy}")
            elif (other := above.get(child)) is not None:
                two = f"a child of {other.name!r} ({other.where}) and of {row.name!r}"
                twice = f"twice a child of {row.name!r}" if other is row else two
                contents.append(f"{row.where}: switch {child!r} is {twice}; keep one")
            above.setdefault(child, row)
    _raise_all(source, [*contents, *_homes(rows, "leaf"), *_block_problems(blocks, sizes, sizes_where)])
    parents = {child: row.name for row in rows for child in row.children}
    # Cycles among the switches. Several roots make several trees, none of which a job leaves.
    places, sound = {row.name: row.where for row in rows}, set[str]()
    cycles = [] if rows else ["line 1: there is no switch; write SwitchName=leaf1 Nodes=n[1-4]"]
    for row in rows:
        path, at = dict[str, None](), row.name
        while at not in sound and at not in path and at in parents:
            path[at] = None
            at = parents[at]
        if at in path:
            circle = f"its parents run in a circle, {' under '.join([*[*path][[*path].index(at) :], at])}"
            cycles.append(f"{places[at]}: the tree has no root above {at!r}: {circle}; remove one of these links")
        sound.update(path, [at])
    _raise_all(source, cycles)
    leaf_nodes = {node for row in rows for node in row.nodes}
    strays = ((block, node) for block in blocks for node in block.nodes if node not in leaf_nodes)
    under_none = "is under no leaf; add it to one"
    _raise_all(source, (f"{row.where}: node {node!r} of block {row.name!r} {under_none}" for row, node in strays))
    switches = tuple(TopologySwitch(name=row.name, parent=parents.get(row.name), nodes=row.nodes) for row in rows)
    own_blocks = tuple(TopologyBlock(name=block.name, nodes=block.nodes) for block in blocks)
    return Topology(kind="tree", switches=switches, blocks=own_blocks, block_sizes=tuple(sizes))


def block_topology(source: str, blocks: TopologyRows, sizes: Sequence[int], sizes_where: str) -> Topology:
    """Return the topology of a file's rows of blocks alone."""
    _raise_all(source, _block_problems(blocks, sizes, sizes_where))
    own_blocks = tuple(TopologyBlock(name=block.name, nodes=block.nodes) for block in blocks)
    return Topology(kind="block", blocks=own_blocks, block_sizes=tuple(sizes))


def _block_problems(blocks: TopologyRows, sizes: Sequence[int], sizes_where: str) -> Iterator[str]:
    yield from _names(blocks, "block")
    yield from _homes(blocks, "block")
    for block in blocks:
        if not block.nodes:
            yield f"{block.where}: block {block.name!r} has no nodes; give it some or remove it"
    for below, size in pairwise(sizes):
        times, rest = divmod(size, below) if below else (2, 0)  # a size of 0 is one fault, not two
        if rest or times < 2 or times & (times - 1):
            yield f"{sizes_where}: {size} is not {below} times a power of two; write such as {below},{below * 2}"
    if sizes and sizes[0] < 1:
        yield f"{sizes_where}: must be at least 1 (is {sizes[0]})"


def _names(rows: TopologyRows, what: str) -> Iterator[str]:
    first: dict[str, str] = {}
    for row in rows:
        if first.setdefault(row.name, row.where) != row.where:
            yield f"{row.where}: {what} {row.name!r} is already at {first[row.name]}; rename one"
    for row in rows:
        for kind, name in [(what, row.name), *(("node", node) for node in row.nodes)]:
            unfit = _UNFIT.search(name)
            if unfit or not name:
                fault = f"contains {unfit[0]!r}" if unfit else "is empty"
                yield f"{row.where}: {kind} {name!r} {fault}; name it with letters, digits, '-', '_' and '.'"


def _homes(rows: TopologyRows, what: str) -> Iterator[str]:
    home: dict[str, int] = {}
    twice: dict[tuple[int, int], list[str]] = {}
    for i, row in enumerate(rows):
        for node in row.nodes:
            first = home.setdefault(node, i)
            if first != i:
                twice.setdefault((first, i), []).append(node)
        if repeated := [node for node, times in Counter(row.nodes).items() if times > 1]:
            yield f"{row.where}: {what} {row.name!r} names {few(repeated)} twice; keep one"
    for (first, second), nodes in twice.items():
        one, two = rows[first], rows[second]
        homes = f"under {what} {one.name!r} ({one.where}) and under {what} {two.name!r}"
        yield f"{two.where}: node {fold_names(nodes)} is {homes}; keep one"


def from_layers(source: str, rows: Iterable[tuple[str, str, Sequence[str], str | None]]) -> Topology:
    """Return the topology of rows of nodes, several highest switches under one named root. InputError: two parents.

    Of each node a row: where it is in the file, its name, the switches above it from its leaf up, its scale-up domain.
    """
    parents, places, seen = dict[str, str | None](), dict[str, str](), dict[str, str]()
    nodes, domains = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for where, node, chain, domain in rows:
        if seen.setdefault(node, where) != where:
            raise InputError(f"{source}: {where}: node {node!r} is already at {seen[node]}; keep one")
        for name, above in zip(chain, (*chain[1:], None), strict=True):
            if parents.setdefault(name, above) != above:
                one, two = (repr(parent) if parent else "the top" for parent in (parents[name], above))
                problem = f"switch {name!r} is below {one} at {places[name]} and below {two} here"
                raise InputError(f"{source}: {where}: {problem}; give switches names of their own")
            places.setdefault(name, where)
        nodes[chain[0]].append(node)
        if domain:
            domains[domain].append(node)
    roots = [switch for switch, above in parents.items() if above is None]
    if len(roots) > 1:
        places.setdefault(ROOT, "the top")
        parents |= {switch: ROOT for switch in roots if switch != ROOT}
        parents[ROOT] = None
    children = defaultdict[str | None, list[str]](list)
    for name, above in parents.items():
        children[above].append(name)
    switches = [TopologyRow(places[box], box, tuple(nodes[box]), tuple(children[box])) for box in parents]
    return tree(source, switches, [TopologyRow(seen[own[0]], name, tuple(own)) for name, own in domains.items()])


def read_conf(text: str, source: str) -> Topology:
    """Read a topology.conf. InputError: Slurm refuses it, or accepts what it should not, as a node under two leaves."""
    hostlists, sizes, sizes_where = Hostlists(source), list[int](), ""
    switches, blocks = list[TopologyRow](), list[TopologyRow]()
    printed, printed_sizes = set[str](), dict[int, str]()  # switches by scontrol; sizes, and where each is first stated
    first, plain = 1, "\n".join(raw.partition("#")[0].rstrip() for raw in text.split("\n"))
    for lines in re.split(r"(?<!\\)\n", plain):  # a line goes on behind a backslash
        where, line = f"line {first}", lines.removesuffix("\\").replace("\\\n", "")
        first += lines.count("\n") + 1
        if not line.strip():
            continue
        pairs = _line_pairs(line, source, where)
        if "SwitchName" in pairs:
            if pairs.pop("Level", None) is not None:
                printed.add(pairs["SwitchName"])
            name = _own(pairs, "SwitchName", ("Nodes", "Switches", "LinkSpeed"), source, where)
            own = (hostlists.names(f"{where}: {key}", pairs.get(key)) for key in ("Nodes", "Switches"))
            switches.append(TopologyRow(where, name, *own))
        elif "BlockName" in pairs or "AggregatedBlock" in pairs:
            for size in _sizes(pairs.pop("BlockSize"), source, where) if "BlockSize" in pairs else ():
                printed_sizes.setdefault(size, where)
            if "BlockName" in pairs:
                pairs.pop("BlockIndex", None)
                name = _own(pairs, "BlockName", ("Nodes",), source, where)
                blocks.append(TopologyRow(where, name, hostlists.names(f"{where}: Nodes", pairs.get("Nodes"))))
        elif pairs.keys() == {"BlockSizes"}:
            if sizes:
                raise InputError(f"{source}: {where}: BlockSizes is already at {sizes_where}; keep one")
            sizes, sizes_where = _sizes(pairs["BlockSizes"], source, where), where
        else:
            key, remedy = next(iter(pairs)), "begin the line with SwitchName=, BlockName= or BlockSizes="
            raise InputError(f"{source}: {where}: {key}= has no owner; {remedy}")
    if printed_sizes:
        printed_where = next(iter(printed_sizes.values()))
        if sizes:
            problem = f"BlockSizes= in addition to BlockSize= ({printed_where})"
            raise InputError(f"{source}: {sizes_where}: {problem}; keep one of them")
        sizes, sizes_where = sorted(printed_sizes), printed_where
    if not blocks and not sizes:
        return _conf_tree(source, switches, printed)
    if switches:
        where = blocks[0].where if blocks else sizes_where
        remedy = "Slurm reads one kind a topology.conf, topology.yaml takes both"
        raise InputError(f"{source}: {where}: blocks and switches in one file; {remedy}")
    return block_topology(source, blocks, sizes, sizes_where)


def _conf_tree(source: str, rows: list[TopologyRow], printed: set[str]) -> Topology:
    """Return the tree of a topology.conf; nodes that scontrol prints of an upper switch must be those of its leaves."""
    stated = {row.name: row for row in rows if row.children and row.nodes and row.name in printed}
    topology = tree(source, [row._replace(nodes=()) if row.name in stated else row for row in rows])
    below: dict[str, set[str]] = {name: set() for name in stated}
    nodes = {switch.name: switch.nodes for switch in topology.switches}
    for leaf, above in topology.chains().items():
        for name in below.keys() & above[1:]:
            below[name].update(nodes[leaf])
    for name, row in stated.items():
        if set(row.nodes) != below[name]:
            problem = f"switch {name!r} states nodes that are not those of its switches"
            raise InputError(f"{source}: {row.where}: {problem}; print the whole topology again")
    return topology


def _line_pairs(line: str, source: str, where: str) -> dict[str, str]:
    pairs, at = dict[str, str](), 0
    while line[at:].strip():
        if (match := _PAIR.match(line, at)) is None:
            text = f"{line[at:].strip()[:60]!r} is not KEY=VALUE"
            raise InputError(f"{source}: {where}: {text}; write such as SwitchName=leaf1 Nodes=n[1-4]")
        if (key := _SPELLING.get(match["key"].lower())) is None:
            raise InputError(f"{source}: {where}: unknown keyword {match['key']!r}; {hint(match['key'], KEYWORDS)}")
        if key in pairs:
            raise InputError(f"{source}: {where}: {key}= is given twice on one line; keep one")
        pairs[key] = match["plain"] if match["quoted"] is None else match["quoted"]
        at = match.end()
    return pairs


def _own(pairs: dict[str, str], owner: str, keys: tuple[str, ...], source: str, where: str) -> str:
    for key in pairs:
        if key != owner and key not in keys:
            use = " or ".join(f"{key}=" for key in keys)
            raise InputError(f"{source}: {where}: {key}= does not belong to {owner}=; use {use}")
    name = pairs[owner]
    if not name or re.search(r"[\[\],\s]", name):
        raise InputError(f"{source}: {where}: {owner}={name} must be one name; write a line for each")
    return name


def _sizes(text: str, source: str, where: str) -> list[int]:
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text, re.ASCII):
        raise InputError(f"{source}: {where}: BlockSizes={text} must be whole numbers, such as 4,8,16")
    return [int(size) for size in text.split(",")]


def write_conf(topology: Topology) -> str:
    """Write a topology.conf that slurmctld accepts; the blocks of a tree are left out, as a file has one kind only."""
    if topology.kind == "block":
        lines = [f"BlockName={block.name} Nodes={fold_names(block.nodes)}" for block in topology.blocks]
        if topology.block_sizes:
            lines.append(f"BlockSizes={','.join(map(str, topology.block_sizes))}")
    else:
        children, lines = children_of(topology), []
        for box in topology.switches:
            own = f"Nodes={fold_names(box.nodes)}" if box.nodes else f"Switches={fold_names(children[box.name])}"
            lines.append(f"SwitchName={box.name} {own}")
    return "".join(f"{line}\n" for line in lines)


def read_yaml(text: str, source: str, name: str | None = None) -> Topology:
    """Read a topology.yaml's named, default or first topology; a tree takes along the blocks of the file's only one."""
    root, hostlists, topologies = parse(text, source), Hostlists(source), dict[str, dict[str, Node]]()
    for item in [] if _is_empty(root) else _list(root, source, "the file"):
        pairs = _mapping(item, source, "a topology", ("topology", "cluster_default", *_KINDS), "topology")
        own = _text(pairs["topology"], source, "topology")
        if own in topologies:
            first = topologies[own]["topology"].line
            raise InputError(f"{source}: line {item.line}: topology {own!r} is already at line {first}; rename one")
        kinds = [kind for kind in _KINDS if kind in pairs and not _is_empty(pairs[kind], "false")]
        if len(kinds) != 1:
            stated = f"must be exactly one of {', '.join(_KINDS)} (is {', '.join(kinds) or 'none'})"
            raise InputError(f"{source}: line {item.line}: topology {own!r} {stated}")
        topologies[own] = {key: value for key, value in pairs.items() if key not in _KINDS or key in kinds}
    if not topologies:
        raise InputError(f"{source}: line 1: there is no topology; write such as - topology: fabric")
    if name is not None and name not in topologies:
        raise InputError(f"{source}: there is no topology {name!r}; {hint(name, topologies)}")
    flags = ((key, pairs["cluster_default"].value) for key, pairs in topologies.items() if "cluster_default" in pairs)
    default = next((key for key, flag in flags if str(flag).lower() in {"true", "yes", "on"}), next(iter(topologies)))
    chosen = topologies[name or default]
    if "block" in chosen:
        return block_topology(source, *_blocks(chosen["block"], hostlists))
    if "tree" not in chosen:
        is_ = f"{name or default!r} is {next(kind for kind in _KINDS if kind in chosen)}"
        raise InputError(f"{source}: line {chosen['topology'].line}: {is_}; only tree and block say where nodes stand")
    switches = _mapping(chosen["tree"], source, "tree", ("switches",), "switches")["switches"]
    rows = _rows(switches, "switch", "switches", ("nodes", "children"), hostlists)
    block_topologies = [topology["block"] for topology in topologies.values() if "block" in topology]
    return tree(source, rows, *(_blocks(block_topologies[0], hostlists) if len(block_topologies) == 1 else ()))


def _rows(node: Node, kind: str, kinds: str, keys: tuple[str, ...], hostlists: Hostlists) -> list[TopologyRow]:
    """Return the switches or blocks that a topology.yaml lists, each with the hostlists of its keys."""
    source, rows = hostlists.source, []
    for item in _list(node, source, kinds):
        row = _mapping(item, source, f"a {kind}", (kind, *keys), kind)
        name, lists = _text(row[kind], source, kind), list[tuple[str, ...]]()
        for key in keys:
            text = _text(row[key], source, key) if key in row and not _is_empty(row[key]) else None
            lists.append(hostlists.names(f"line {row.get(key, item).line}: {key}", text))
        rows.append(TopologyRow(f"line {item.line}", name, *lists))
    return rows


def _blocks(node: Node, hostlists: Hostlists) -> tuple[list[TopologyRow], list[int], str]:
    source = hostlists.source
    pairs = _mapping(node, source, "block", ("block_sizes", "blocks"), "blocks")
    rows, sizes = _rows(pairs["blocks"], "block", "blocks", ("nodes",), hostlists), list[int]()
    if "block_sizes" not in pairs:
        return rows, sizes, ""
    for item in _list(pairs["block_sizes"], source, "block_sizes"):
        text = _text(item, source, "block_sizes")
        if not (text.isdecimal() and text.isascii() and len(text) < 10):
            raise InputError(f"{source}: line {item.line}: block_sizes must be whole numbers (is {text!r}), such as 4")
        sizes.append(int(text))
    return rows, sizes, f"line {pairs['block_sizes'].line}: block_sizes"


def _is_empty(node: Node, *others: str) -> bool:
    """Return whether a value of a topology.yaml is empty: so controllers print keys that a topology does not have."""
    return not node.value or (isinstance(node.value, str) and node.value.lower() in {"null", "~", *others})


def _list(node: Node, source: str, what: str) -> list[Node]:
    if not isinstance(node.value, list):
        raise InputError(f"{source}: line {node.line}: {what} must be a list, its items beginning with a dash")
    return node.value


def _text(node: Node, source: str, what: str) -> str:
    if not isinstance(node.value, str) or not node.value:
        raise InputError(f"{source}: line {node.line}: {what} must be a text on one line, such as n[1-4]")
    return node.value


def _mapping(node: Node, source: str, what: str, known: tuple[str, ...], needed: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        keys = ", ".join(known)
        raise InputError(f"{source}: line {node.line}: {what} must be a mapping with {keys}; give some of these")
    for key, inner in node.value.items():
        if key not in known:
            raise InputError(f"{source}: line {inner.line}: unknown keyword {key!r} in {what}; {hint(key, known)}")
    if needed not in node.value:
        raise InputError(f"{source}: line {node.line}: {what} has no {needed!r}; add it")
    return node.value


def write_yaml(topology: Topology) -> str:
    """Write a topology.yaml; the blocks of a tree become a second topology of the file."""
    documents: list[dict[str, Any]] = []
    if topology.kind == "tree":
        children, switches = children_of(topology), []
        for box in topology.switches:
            below = {"nodes": box.nodes} if box.nodes else {"children": children[box.name]}
            switches.append({"switch": box.name} | {key: fold_names(names) for key, names in below.items()})
        documents.append({"topology": "fabric", "cluster_default": True, "tree": {"switches": switches}})
    if topology.blocks:
        sizes = {"block_sizes": list(topology.block_sizes)} if topology.block_sizes else {}
        blocks = [{"block": block.name, "nodes": fold_names(block.nodes)} for block in topology.blocks]
        own = {"cluster_default": topology.kind == "block", "block": {**sizes, "blocks": blocks}}
        documents.append({"topology": "blocks", **own})
    return "---\n" + dump(documents)


def plan_topology(plan: Plan, source: str) -> Topology:
    """Turn a plan's fabric into the form of a topology, racks named as placed. InputError: no fabric or no racks."""
    if plan.fabric is None or not plan.fabric.sites:
        raise InputError(f"{source}: fabric: the plan has none; solve an instance with a network")
    racks = dict.fromkeys(plan.fabric.sites, plan.instance.hardware.racks or 0)
    if plan.sites:
        racks = {site.id: site.racks for site in plan.sites.sites}
    if sum(racks.values()) > MAX_NAMES:
        problem = f"{sum(racks.values()):,} racks, more than {MAX_NAMES:,}"
        raise InputError(f"{source}: sites: {problem}; run `planner check` on the plan")
    several = len(plan.fabric.sites) > 1
    rows: list[TopologyRow] = []
    for site, fabric in sorted(plan.fabric.sites.items()):
        if racks.get(site, 0) < 1 or fabric.leaf_domain_racks < 1:
            where = f"{source}: fabric.sites.{site}"
            raise InputError(f"{where}: no racks, or a leaf domain of none; run `planner check` on the plan")
        rows += site_rows(site, fabric, racks[site], site, f"{site}-" if several else "")
    if several:
        rows.append(TopologyRow("fabric.sites", "wan", children=tuple(sorted(plan.fabric.sites))))
    return tree(source, rows)


def site_rows(site: str, fabric: SiteFabric, racks: int, root: str, prefix: str = "") -> Iterator[TopologyRow]:
    """Yield the topology of a plan's site, a row a switch up to its root: racks by leaf domain, the last part-full."""
    where, digits = f"fabric.sites.{site}", width(racks)
    size, per_pod = fabric.leaf_domain_racks, fabric.leaf_domains_per_pod
    leaves = []
    for i, first in enumerate(range(0, racks, size)):
        leaves.append(f"{prefix}leaf{i}")
        numbers = range(first, min(first + size, racks))
        yield TopologyRow(where, leaves[-1], tuple(f"{prefix}{PREFIX}{number:0{digits}d}" for number in numbers))
    below, domains_below = tuple(leaves), 1
    for word, domains in (("pod", per_pod), ("zone", fabric.leaf_domains_per_zone)):
        each = max(1, domains // domains_below)
        blocks = [below[i : i + each] for i in range(0, len(below), each)]
        if domains and len(blocks) > 1:
            for i, block in enumerate(blocks):
                yield TopologyRow(where, f"{prefix}{word}{i}", children=block)
            below = tuple(f"{prefix}{word}{i}" for i in range(len(blocks)))
            domains_below = domains
    yield TopologyRow(where, root, children=below)
