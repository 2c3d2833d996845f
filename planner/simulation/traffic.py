"""Who sends to whom: the exchanges of a training step, random permutations, and lists from a file."""

import csv
import io
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from planner.errors import InputError
from planner.files import read_text
from planner.instance.base import range_of
from planner.simulation import rng
from planner.simulation.live_cables import Flows
from planner.simulation.rng import Ints
from planner.simulation.tree import Tree

MAX_FLOWS = 1 << 22  # of an all-to-all: a few GB at work
HEADER = ["src", "dst", "bytes"]


def permutation(slots: Ints, size: float, seed: int) -> Flows:
    """Return flows in which every host sends to one other and receives from one: along a random cycle through all."""
    order = slots[rng.order(len(slots), seed, 1)]
    return _flows(order, np.roll(order, -1), size)


def p2p(groups: list[Ints], size: float, *, wrap: bool = False) -> Flows:
    """Return flows from rank q of every stage to rank q of the next; `wrap`: the last stage sends to the first."""
    pairs = [(a[: min(len(a), len(b))], b[: min(len(a), len(b))]) for a, b in pairwise(groups)]
    if wrap and len(groups) > 1:
        shared = min(len(groups[0]), len(groups[-1]))
        pairs.append((groups[-1][:shared], groups[0][:shared]))
    return _flows(_joined([a for a, _ in pairs]), _joined([b for _, b in pairs]), size)


def allreduce(groups: list[Ints], size: float) -> Flows:
    """Return the flows of one step of ring all-reduces, a ring to each group; `size` is the buffer of a group."""
    several = [g for g in groups if len(g) > 1]
    each = np.concatenate([np.full(len(g), size / len(g)) for g in several]) if several else np.empty(0)
    return Flows(source=_joined(several), target=_joined([np.roll(g, -1) for g in several]), size=each)


def allreduce_steps(groups: list[Ints]) -> int:
    """Return the steps of a ring all-reduce of the largest group: 2·(n - 1)."""
    return 2 * (max((len(g) for g in groups), default=1) - 1)


def alltoall(groups: list[Ints], size: float) -> Flows:
    """Return flows from every host to all others of its group at once; `size` is the total that one host sends."""
    flows = sum(len(g) * (len(g) - 1) for g in groups)
    if flows > MAX_FLOWS:
        raise InputError(f"alltoall: {flows:,} flows > {MAX_FLOWS:,}; take fewer hosts or smaller groups")
    source, target, each = [], [], []
    for g in (g for g in groups if len(g) > 1):
        n = len(g)
        source.append(np.repeat(g, n - 1))
        target.append(g[(np.arange(n)[:, None] + np.arange(1, n)[None, :]) % n].ravel())
        each.append(np.full(n * (n - 1), size / (n - 1)))
    return Flows(source=_joined(source), target=_joined(target), size=np.concatenate([*each, np.empty(0)]))


def incast(tree: Tree, *, nodes: int, senders: int, size: float, sent: float, seed: int) -> tuple[Flows, Ints]:
    """Return a random permutation of `nodes` hosts of `size` bytes each, and an incast of `senders` others.

    Each of these sends one more host `sent` bytes.

    The second result names the flows of the permutation: those to wait for.
    """
    if nodes + senders + 1 > tree.hosts:
        needed = f"{nodes} hosts of a permutation + {senders} senders + 1 receiver"
        raise InputError(f"incast: {needed} > {tree.hosts} hosts; lower one of them")
    drawn = tree.slots[rng.order(tree.hosts, seed, 11)]
    ring, crowd = drawn[:nodes], drawn[nodes + 1 : nodes + 1 + senders]
    source = np.concatenate([ring, crowd])
    target = np.concatenate([np.roll(ring, -1), np.full(senders, drawn[nodes])])
    sizes = np.concatenate([np.full(nodes, size), np.full(senders, float(sent))])
    return Flows(source=source, target=target, size=sizes), np.arange(nodes)


def blocks(slots: Ints, size: int) -> list[Ints]:
    """Return hosts cut into groups of neighbours; the last may be smaller."""
    return [slots[k : k + size] for k in range(0, len(slots), size)]


def from_file(path: Path, slots: Ints) -> Flows:
    """Read flows from a CSV file with the header src,dst,bytes; hosts count from 0.

    Raises
    ------
    InputError
        Names the file, the line, the value and what was expected.
    """
    expected = f"give a CSV file with the header {','.join(HEADER)}"
    try:
        rows = list(csv.reader(io.StringIO(read_text(path, expected), newline="")))
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read as a CSV file ({error}); {expected}") from None
    if not rows or [c.strip() for c in rows[0]] != HEADER:
        first = ",".join(rows[0]) if rows else "empty"
        raise InputError(f"{path}: line 1: must be the header {','.join(HEADER)} (is {first}); add it")
    flows = [_row(path, n, row, len(slots)) for n, row in enumerate(rows[1:], start=2) if row]
    if not flows:
        raise InputError(f"{path}: has no flows; add lines such as 0,1,1e6")
    source, target, size = (np.asarray(column) for column in zip(*flows, strict=True))
    return Flows(source=slots[source], target=slots[target], size=size.astype(float))


def _row(path: Path, line: int, row: list[str], hosts: int) -> tuple[int, int, float]:
    where = f"{path}: line {line}"
    if len(row) != len(HEADER):
        raise InputError(f"{where}: must have {len(HEADER)} values (has {len(row)}); write {','.join(HEADER)}")
    ends = []
    for name, text in zip(HEADER, row[:2], strict=False):
        try:
            host = int(text)
        except ValueError:
            host = -1
        if not 0 <= host < hosts:
            known = f"a host from 0 to {hosts - 1}"
            raise InputError(f"{where}: {name}: must be {known} (is {text.strip()!r}); fix it there")
        ends.append(host)
    try:
        size = float(row[2])
    except ValueError:
        size = math.nan
    low, high = range_of("bytes", whole=False)
    if not low <= size <= high:
        given = row[2].strip()
        raise InputError(f"{where}: bytes: must be a number from {low:g} to {high:g} (is {given!r}); fix it there")
    if ends[0] == ends[1]:
        raise InputError(f"{where}: dst: must be another host than src (both are {ends[0]}); remove the line")
    return ends[0], ends[1], size


def _flows(source: Ints, target: Ints, size: float) -> Flows:
    return Flows(source=source, target=target, size=np.full(len(source), float(size)))


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([*parts, np.empty(0, np.int64)])


def switch_cables(tree: Tree) -> int:
    """Return how many cables between switches there are, all planes counted apart."""
    return sum(tree.cables[1:]) * len(tree.planes)


def failed_cables(tree: Tree, failed: int | Sequence[int], seed: int) -> Ints:
    """Return the cables between switches that are out: those listed, or so many drawn at random by the seed.

    Raises
    ------
    InputError
        There are not so many cables.
    """
    cables = switch_cables(tree)
    if isinstance(failed, int):
        if not 0 <= failed <= cables:
            known = f"from 0 to {cables}, the cables between switches"
            raise InputError(f"--failed-links {failed}: must be {known}; give another number")
        return np.sort(rng.order(cables, seed, 9)[:failed])
    wrong = [c for c in failed if not 0 <= c < cables]
    if wrong:
        known = f"the number of a cable between switches (there are {cables})"
        raise InputError(f"failed_cables: {wrong[0]} is not {known}; give one from 0 to {cables - 1}")
    return np.unique(np.asarray(failed, np.int64))
