"""Rows of any topology file, validated and made a Topology: switches, blocks, nodes with the switches above them."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from planner.cluster import HOST_GPUS, MAX_NAMES, Placement, Topology, TopologyBlock, TopologySwitch, expand, fold_names
from planner.errors import InputError, hint

MAX_NAMES_OF_FILE = MAX_NAMES
SHOWN = 20  # Further complaints are counted, not printed: a file with one fault may have a thousand.
# What no hostlist and no topology.conf takes as part of one name: it would come back as two, or not at all.
_UNFIT = re.compile(r"""[\s\x00-\x1f\x7f,\[\]="'#\\]""")
ROOT = "root"


class Hostlists:
    """The hostlists of one topology file, which together may expand to at most `MAX_NAMES_OF_FILE` names."""

    def __init__(self, source: str) -> None:
        self.source, self.count = source, 0

    def names(self, where: str, text: str) -> tuple[str, ...]:
        """Expand a hostlist at a place of a topology file. InputError: it is none, empty, or one too many."""
        try:
            names = tuple(expand(text))
        except ValueError as error:
            raise InputError(f"{self.source}: {where}: {error}") from None
        if not names:
            raise InputError(f"{self.source}: {where}: the hostlist is empty; name at least one, such as n[1-4]")
        self.count += len(names)
        if self.count > MAX_NAMES_OF_FILE:
            problem = f"the file expands to more than {MAX_NAMES_OF_FILE:,} names"
            raise InputError(f"{self.source}: {where}: {problem}; check its ranges")
        return names


def _raise_all(source: str, problems: Iterable[str]) -> None:
    lines = [f"{source}: {problem}" for problem in problems]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"{source}: and {len(lines) - SHOWN:,} more like these"]
    if lines:
        raise InputError("\n".join(lines))


def some(names: Sequence[str], limit: int = 5) -> str:
    """List a few names of a topology file for a message, and how many more there are."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit:,} more" if len(names) > limit else "")


def children_of(topology: Topology) -> dict[str, list[str]]:
    """Return the switches under each switch of a topology, in the order of the file."""
    children = defaultdict[str, list[str]](list)
    for switch in topology.switches:
        if switch.parent is not None:
            children[switch.parent].append(switch.name)
    return children


def heights(topology: Topology) -> dict[str, int]:
    """Return the tier of each switch of a topology: 0 for a leaf, else one more than its highest child."""
    tiers: dict[str, int] = {}
    for chain in chains(topology).values():
        for height, switch in enumerate(chain):
            tiers[switch] = max(height, tiers.get(switch, 0))
    return tiers


def leaf_of(topology: Topology) -> dict[str, str]:
    """Return the name of the leaf switch of each node of a topology."""
    return {node: switch.name for switch in topology.switches for node in switch.nodes}


def chains(topology: Topology) -> dict[str, tuple[str, ...]]:
    """Return for each leaf of a topology the switches from itself up to the root."""
    parents = {switch.name: switch.parent for switch in topology.switches}
    chains: dict[str, tuple[str, ...]] = {}
    for leaf in (switch for switch in topology.switches if switch.nodes):
        chain, at = [leaf.name], leaf.parent
        while at is not None:
            chain.append(at)
            at = parents[at]
        chains[leaf.name] = tuple(chain)
    return chains


def gpus_of_node(placed: Placement) -> int:
    """Return the ranks that fill a node of a placed job before the next, one a GPU: 8 where none are stated."""
    return placed.gpus_per_node or HOST_GPUS


class TopologyRow(NamedTuple):
    """A row of a topology file: a switch or a block; `where` is its line or path."""

    where: str
    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


TopologyRows = Sequence[TopologyRow]


def tree(source: str, rows: TopologyRows, blocks: TopologyRows = (), sizes: Sequence[int] = ()) -> Topology:
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
    _raise_all(source, [*contents, *_homes(rows, "leaf"), *_block_problems(blocks, sizes)])
    parents = {child: row.name for row in rows for child in row.children}
    _raise_all(source, _shape(rows, parents))
    leaf_nodes = {node for row in rows for node in row.nodes}
    strays = ((block, node) for block in blocks for node in block.nodes if node not in leaf_nodes)
    under_none = "is under no leaf; add it to one"
    _raise_all(source, (f"{row.where}: node {node!r} of block {row.name!r} {under_none}" for row, node in strays))
    switches = tuple(TopologySwitch(name=row.name, parent=parents.get(row.name), nodes=row.nodes) for row in rows)
    own_blocks = tuple(TopologyBlock(name=block.name, nodes=block.nodes) for block in blocks)
    return Topology(kind="tree", switches=switches, blocks=own_blocks, block_sizes=tuple(sizes))


def block_topology(
    source: str, blocks: TopologyRows, sizes: Sequence[int], sizes_where: str = "BlockSizes"
) -> Topology:
    """Return the topology of a file's rows of blocks alone."""
    _raise_all(source, _block_problems(blocks, sizes, sizes_where))
    own_blocks = tuple(TopologyBlock(name=block.name, nodes=block.nodes) for block in blocks)
    return Topology(kind="block", blocks=own_blocks, block_sizes=tuple(sizes))


def _block_problems(blocks: TopologyRows, sizes: Sequence[int], sizes_where: str = "BlockSizes") -> Iterator[str]:
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
        repeated = [node for node, times in Counter(row.nodes).items() if times > 1]
        if repeated:
            yield f"{row.where}: {what} {row.name!r} names {some(repeated)} twice; keep one"
    for (first, second), nodes in twice.items():
        one, two = rows[first], rows[second]
        homes = f"under {what} {one.name!r} ({one.where}) and under {what} {two.name!r}"
        yield f"{two.where}: node {fold_names(nodes)} is {homes}; keep one"


def _shape(rows: TopologyRows, parents: dict[str, str]) -> Iterator[str]:
    """Name cycles among a topology file's switches. Several roots make several trees, none of which a job leaves."""
    places = {row.name: row.where for row in rows}
    sound: set[str] = set()
    for row in rows:
        path, at = dict[str, None](), row.name
        while at not in sound and at not in path and at in parents:
            path[at] = None
            at = parents[at]
        if at in path:
            cycle = [*path][[*path].index(at) :]
            circle = f"its parents run in a circle, {' under '.join([*cycle, at])}"
            yield f"{places[at]}: the tree has no root above {at!r}: {circle}; remove one of these links"
        sound.update(path, [at])
    if not rows:
        yield "line 1: there is no switch; write SwitchName=leaf1 Nodes=n[1-4]"


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
