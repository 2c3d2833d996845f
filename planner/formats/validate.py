"""Validate the rows of any topology file, and return the Topology; schedulers accept some that are none."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from planner.cluster.hostlist import fold_names
from planner.cluster.topology import Block, Switch, Topology
from planner.formats.source import near, raise_all, some

# What no hostlist and no topology.conf takes as part of one name: it would come back as two, or not at all.
_UNFIT = re.compile(r"""[\s\x00-\x1f\x7f,\[\]="'#\\]""")


@dataclass(frozen=True, slots=True)
class SwitchRow:
    """A switch as a file has it; `where` is its line or path."""

    where: str
    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A block as a file has it."""

    where: str
    name: str
    nodes: tuple[str, ...]


def tree(
    source: str, rows: Sequence[SwitchRow], blocks: Sequence[BlockRow] = (), sizes: Sequence[int] = ()
) -> Topology:
    """Return the tree, with blocks beside it where there are any.

    Raises
    ------
    InputError
        Names every switch, node or block that breaks the tree, with its place in the file.
    """
    raise_all(source, [*_names(rows, "switch"), *_spelling(rows, "switch")])
    raise_all(source, [*_contents(rows), *_children(rows), *_homes(rows, "leaf"), *_block_problems(blocks, sizes)])
    parents = {child: row.name for row in rows for child in row.children}
    raise_all(source, _shape(rows, parents))
    leaf_nodes = {n for row in rows for n in row.nodes}
    strays = ((b, n) for b in blocks for n in b.nodes if n not in leaf_nodes)
    raise_all(source, (f"{b.where}: node {n!r} of block {b.name!r} is under no leaf; add it to one" for b, n in strays))
    return Topology(
        kind="tree",
        switches=tuple(Switch(name=r.name, parent=parents.get(r.name), nodes=r.nodes) for r in rows),
        blocks=tuple(Block(name=b.name, nodes=b.nodes) for b in blocks),
        block_sizes=tuple(sizes),
    )


def block_topology(
    source: str, blocks: Sequence[BlockRow], sizes: Sequence[int], sizes_where: str = "BlockSizes"
) -> Topology:
    """Return a topology of blocks alone.

    Raises
    ------
    InputError
        Names every block, node or size that breaks it, with its place in the file.
    """
    raise_all(source, _block_problems(blocks, sizes, sizes_where))
    return Topology(
        kind="block", blocks=tuple(Block(name=b.name, nodes=b.nodes) for b in blocks), block_sizes=tuple(sizes)
    )


def _block_problems(blocks: Sequence[BlockRow], sizes: Sequence[int], sizes_where: str = "BlockSizes") -> Iterator[str]:
    yield from _names(blocks, "block")
    yield from _spelling(blocks, "block")
    yield from _homes(blocks, "block")
    for b in blocks:
        if not b.nodes:
            yield f"{b.where}: block {b.name!r} has no nodes; give it some or remove it"
    for below, size in pairwise(sizes):
        times, rest = divmod(size, below)
        if rest or times < 2 or times & (times - 1):
            yield f"{sizes_where}: {size} is not {below} times a power of two; write such as {below},{below * 2}"
    if sizes and sizes[0] < 1:
        yield f"{sizes_where}: must be at least 1 (is {sizes[0]})"


def _names(rows: Sequence[SwitchRow] | Sequence[BlockRow], what: str) -> Iterator[str]:
    first: dict[str, str] = {}
    for row in rows:
        if first.setdefault(row.name, row.where) != row.where:
            yield f"{row.where}: {what} {row.name!r} is already at {first[row.name]}; rename one"


def _spelling(rows: Sequence[SwitchRow] | Sequence[BlockRow], what: str) -> Iterator[str]:
    for row in rows:
        for kind, name in [(what, row.name), *(("node", n) for n in row.nodes)]:
            unfit = _UNFIT.search(name)
            if unfit or not name:
                fault = f"contains {unfit[0]!r}" if unfit else "is empty"
                yield f"{row.where}: {kind} {name!r} {fault}; name it with letters, digits, '-', '_' and '.'"


def _contents(rows: Sequence[SwitchRow]) -> Iterator[str]:
    for row in rows:
        if row.nodes and row.children:
            both = "has both nodes and switches; put its nodes under a leaf of their own"
            yield f"{row.where}: switch {row.name!r} {both}"
        if not row.nodes and not row.children:
            yield f"{row.where}: switch {row.name!r} has neither nodes nor switches; give it some or remove it"


def _children(rows: Sequence[SwitchRow]) -> Iterator[str]:
    known = {r.name for r in rows}
    above: dict[str, SwitchRow] = {}
    for row in rows:
        for child in row.children:
            if child not in known:
                yield f"{row.where}: switch {row.name!r} has the unknown child {child!r}; {near(child, sorted(known))}"
            elif child in above:
                other = above[child]
                two = f"a child of {other.name!r} ({other.where}) and of {row.name!r}"
                twice = f"twice a child of {row.name!r}" if other is row else two
                yield f"{row.where}: switch {child!r} is {twice}; keep one"
            above.setdefault(child, row)


def _homes(rows: Sequence[SwitchRow] | Sequence[BlockRow], what: str) -> Iterator[str]:
    """Name the nodes with two homes, folded by the pair of homes."""
    home: dict[str, SwitchRow | BlockRow] = {}
    twice: dict[tuple[int, int], list[str]] = {}
    places = {id(row): i for i, row in enumerate(rows)}
    for row in rows:
        for node in row.nodes:
            first = home.setdefault(node, row)
            if first is not row:
                twice.setdefault((places[id(first)], places[id(row)]), []).append(node)
        repeated = [n for n, times in Counter(row.nodes).items() if times > 1]
        if repeated:
            yield f"{row.where}: {what} {row.name!r} names {some(repeated)} twice; keep one"
    for (a, b), nodes in twice.items():
        one, two = rows[a], rows[b]
        homes = f"under {what} {one.name!r} ({one.where}) and under {what} {two.name!r}"
        yield f"{two.where}: node {fold_names(nodes)} is {homes}; keep one"


def _shape(rows: Sequence[SwitchRow], parents: dict[str, str]) -> Iterator[str]:
    """Name cycles. Several roots make several trees, none of which a job leaves: controllers run such clusters."""
    places = {r.name: r.where for r in rows}
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
