"""From counts to ranks: which group of the job is which of the packing, and which nodes carry its ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.job import Job, slots
from planner.models.cluster_question import Packing, Piece, Question

Pieces = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A group of a job: its name, its nodes in ring order, the leaves they stand in, and their ranks."""

    name: str
    nodes: tuple[str, ...]
    leaves: tuple[int, ...]
    ranks: tuple[int, ...]


def rank(q: Question, packing: Packing, job: Job, units: Sequence[Sequence[tuple[str, ...]]]) -> list[Ranked]:
    """Give the job's groups their nodes: `units` are the free segments of each leaf, taken in their order."""
    following = [0] * len(units)
    queue = [iter(_in_order(q, packing, k)) for k in range(len(q.kinds))]
    found = []
    for slot in slots(job):
        nodes: list[str] = []
        pieces = next(queue[slot.kind])
        for i, n in pieces:
            for unit in units[i][following[i] : following[i] + n]:
                nodes.extend(unit)
            following[i] += n
        found.append(Ranked(slot.name, tuple(nodes), tuple(i for i, _ in pieces), slot.ranks))
    return found


def in_rank_order(groups: Sequence[Ranked], nodes: int) -> tuple[str, ...]:
    """Return a job's nodes by rank."""
    found = [""] * nodes
    for g in groups:
        for r, node in zip(g.ranks, g.nodes, strict=True):
            found[r] = node
    return tuple(found)


def _in_order(q: Question, packing: Packing, kind: int) -> list[Pieces]:
    """Return a kind's groups as they are numbered: whole lines pod by pod, then what is left of each pod, then groups across pods."""
    size = q.kinds[kind].size
    groups: list[Pieces] = [((i, size),) for (i, k), n in packing.whole.items() if k == kind for _ in range(n)]
    groups += [pieces for k, pieces in packing.split if k == kind]
    by_pod: dict[int, list[Pieces]] = {}
    across = []
    for pieces in sorted(groups):
        pods = {q.pod_of[i] for i, _ in pieces}
        if len(pods) == 1:
            by_pod.setdefault(pods.pop(), []).append(pieces)
        else:
            across.append(pieces)
    line = q.line if q.line < q.groups else 1
    lines = [g for _, held in sorted(by_pod.items()) for g in held[: len(held) // line * line]]
    rest = [g for _, held in sorted(by_pod.items()) for g in held[len(held) // line * line :]]
    return lines + rest + across
