"""From counts to ranks: which group of the job is which of the packing, and which nodes carry its ranks."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from planner.cluster.job import Slot
from planner.models.placement.data import Kind, Leaf, Packing, Piece, Problem
from planner.models.placement.greedy import greedy

Pieces = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A group of a job: its name, its nodes in ring order, the leaves they stand in, and their ranks."""

    name: str
    nodes: tuple[str, ...]
    leaves: tuple[int, ...]
    ranks: tuple[int, ...]


Units = Sequence[Sequence[tuple[str, ...]]]


def rank(
    q: Problem,
    packing: Packing,
    order: Iterable[Slot],
    units: Units,
    blocks: Callable[[int], Sequence[int]] | None = None,
) -> list[Ranked]:
    """Give groups their nodes in an order: `units` are the free units of each leaf, taken in their order.

    With `blocks`, the number of each free segment's block in a leaf, the pieces of a leaf stay within blocks as far as
    they can.
    """
    following = [0] * len(units)
    queue = [_in_order(q, packing, k) for k in range(len(q.kinds))]
    chosen = {} if blocks is None else _within_blocks([p for kind in queue for pieces in kind for p in pieces], blocks)
    orders = [iter(kind) for kind in queue]
    ranked = []
    for slot in order:
        nodes: list[str] = []
        pieces = next(orders[slot.kind])
        for i, n in pieces:
            taken = chosen[i, n].pop() if (i, n) in chosen else range(following[i], following[i] + n)
            for at in taken:
                nodes.extend(units[i][at])
            following[i] += n
        ranked.append(Ranked(slot.name, tuple(nodes), tuple(i for i, _ in pieces), slot.ranks))
    return ranked


def _within_blocks(pieces: Sequence[Piece], blocks: Callable[[int], Sequence[int]]) -> dict[Piece, list[list[int]]]:
    """Choose the free segments of the pieces of each leaf: pieces are placed on its blocks as groups on leaves."""
    by_leaf: dict[int, Counter[int]] = {}
    for i, n in pieces:
        by_leaf.setdefault(i, Counter())[n] += 1
    chosen: dict[Piece, list[list[int]]] = {}
    for i, sizes in by_leaf.items():
        free: dict[int, list[int]] = {}
        for at, block in enumerate(blocks(i)):
            free.setdefault(block, []).append(at)
        if len(free) < 2:
            continue
        segments = list(free.values())
        kinds = tuple(Kind(n, times) for n, times in sorted(sizes.items()))
        leaves = tuple(Leaf((), len(b), len(b)) for b in segments)
        inner = greedy(Problem(leaves=leaves, kinds=kinds, line=1, follows=False))
        whole = [(k, ((b, kinds[k].size),)) for (b, k), times in sorted(inner.whole.items()) for _ in range(times)]
        for k, parts in whole + inner.split:
            taken = [segments[b].pop(0) for b, n in parts for _ in range(n)]
            chosen.setdefault((i, kinds[k].size), []).append(taken)
    return chosen


def in_rank_order(groups: Sequence[Ranked], nodes: int) -> tuple[str, ...]:
    """Return a job's nodes by rank."""
    by_rank = [""] * nodes
    for g in groups:
        for r, node in zip(g.ranks, g.nodes, strict=True):
            by_rank[r] = node
    return tuple(by_rank)


def _in_order(q: Problem, packing: Packing, kind: int) -> list[Pieces]:
    """Return a kind's groups as they are numbered: whole lines pod by pod, the rest of each pod, groups across pods."""
    size = q.kinds[kind].size
    groups: list[Pieces] = [((i, size),) for (i, k), n in packing.whole.items() if k == kind for _ in range(n)]
    groups += [pieces for k, pieces in packing.split if k == kind]
    by_pod: dict[int, list[Pieces]] = {}
    across: list[Pieces] = []
    for pieces in sorted(groups):
        pods = {q.pod_of[i] for i, _ in pieces}
        (by_pod.setdefault(pods.pop(), []) if len(pods) == 1 else across).append(pieces)
    line = q.line if q.line < q.groups else 1
    in_pods = [(own, len(own) // line * line) for _, own in sorted(by_pod.items())]
    return [g for own, n in in_pods for g in own[:n]] + [g for own, n in in_pods for g in own[n:]] + across
