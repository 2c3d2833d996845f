"""From counts to pieces: how a cluster of split groups is divided along the holes that it alone uses."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.models.placement.cpsat import Formulation
from planner.models.placement.data import Packing, Piece, Problem
from planner.models.plan_placement.numbering import next_fit
from planner.solvers.cpsat import Values

Split = tuple[int, tuple[Piece, ...]]


@dataclass(frozen=True, slots=True)
class Part:
    """The holes of one pod that a cluster uses, and the kinds of the groups that stay within them."""

    holes: tuple[Piece, ...]
    local: tuple[int, ...]


def split_cluster(sizes: Sequence[int], parts: Sequence[Part], over: Sequence[int]) -> Iterator[Split]:
    """Return the pieces of a cluster's groups: each part takes its own, the kinds `over` fill what is left in turn.

    Pieces follow each other along the holes, so that a groups over b holes make a + b - 1 pieces at most.
    """
    room = [sum(n for _, n in p.holes) - sum(sizes[k] for k in p.local) for p in parts]
    fragments = next_fit([sizes[k] for k in over], room)
    across: list[list[Piece]] = [[] for _ in over]
    for j, part in enumerate(parts):
        here = [(x, n) for x, pieces in enumerate(fragments) for at, n in pieces if at == j]
        going = [(x, n) for x, n in here if fragments[x][-1][0] > j]
        coming = [(x, n) for x, n in here if fragments[x][-1][0] <= j]
        lengths = [*(n for _, n in coming), *(sizes[k] for k in part.local), *(n for _, n in going)]
        by_item = [
            [(part.holes[h][0], n) for h, n in pieces] for pieces in next_fit(lengths, [n for _, n in part.holes])
        ]
        within = len(coming) + len(part.local)
        yield from ((k, tuple(pieces)) for k, pieces in zip(part.local, by_item[len(coming) : within], strict=True))
        for (x, _), pieces in zip([*coming, *going], by_item[: len(coming)] + by_item[within:], strict=True):
            across[x].extend(pieces)
    yield from ((k, tuple(pieces)) for k, pieces in zip(over, across, strict=True))


Holes = dict[int, dict[int, list[int]]]  # pod -> hole -> leaves, those best left alone first


def decode(f: Formulation, values: Values) -> tuple[Packing, list[int]]:
    """Return the whole groups, the pieces of the clusters, and the groups of each kind that are still to be split."""
    packing = Packing()
    holes: Holes = {}
    for pod in f.pods:
        for c, leaves in walk(f, values, pod, packing).items():
            for i in leaves:
                holes.setdefault(f.q.pod_of[i], {}).setdefault(c, []).append(i)
    placed = Counter[int]()
    for (_, _, k), arc in f.arcs.items():
        placed[k] += int(values.of(arc))
    left = [kind.count - placed[k] for k, kind in enumerate(f.q.kinds)]
    for j in range(f.slots):
        members = [values.of(v) for v in f.members[j]]
        if any(members):
            wanted = Counter({c: int(values.of(v)) for (_, c), v in f.take[j].items()})
            parts = _parts(f, values, j, members, holes) if f.by_pod else spread(f.q, members, wanted, holes)
            packing.split.extend(split_cluster([k.size for k in f.q.kinds], *parts))
            left = [a - b for a, b in zip(left, members, strict=True)]
    return settled(packing), left


def settled(packing: Packing) -> Packing:
    """Return the packing with split groups of one piece among the whole ones."""
    whole = packing.whole + Counter((pieces[0][0], k) for k, pieces in packing.split if len(pieces) == 1)
    return Packing(whole=whole, split=[(k, pieces) for k, pieces in packing.split if len(pieces) > 1])


def walk(f: Formulation, values: Values, pod: int, packing: Packing) -> dict[int, list[int]]:
    """Lead the leaves of a pod along the flow, wholly free ones to rest first; return them by the hole they keep."""
    at: dict[int, list[int]] = {}
    for i in f.pods[pod]:
        at.setdefault(f.q.leaves[i].free, []).append(i)
    resting_at: dict[int, list[int]] = {}
    for c in range(max(at, default=0), 0, -1):
        here = sorted(
            at.get(c, []), key=lambda i: (not f.q.leaves[i].free == f.q.leaves[i].size == c, f.q.leaves[i].free != c)
        )
        if not here:
            continue
        resting = values.of(f.rest[pod, c])
        resting_at[c], moving = here[:resting], here[resting:]
        for k, kind in enumerate(f.q.kinds):
            n = values.of(f.arcs[pod, c, k]) if (pod, c, k) in f.arcs else 0
            for i in moving[:n]:
                packing.whole[i, k] += 1
                at.setdefault(c - kind.size, []).append(i)
            moving = moving[n:]
    return resting_at


def spread(q: Problem, members: Sequence[int], wanted: Counter[int], holes: Holes) -> tuple[list[Part], list[int]]:
    """Return a cluster's holes pod by pod with the groups that fit there, and the kinds of its other groups."""
    left, parts = list(members), []
    for pod, here_wanted in sorted(_by_pod(wanted, holes).items(), key=lambda item: _height(q, item[0])):
        here = tuple((holes[pod][c].pop(), c) for c in sorted(here_wanted, reverse=True) for _ in range(here_wanted[c]))
        local = _most_local(q, left, here)
        left = [a - b for a, b in zip(left, local, strict=True)]
        if here:
            parts.append(Part(holes=here, local=tuple(k for k, n in enumerate(local) for _ in range(n))))
    return parts, [k for k, n in enumerate(left) for _ in range(n)]


def _parts(
    f: Formulation, values: Values, j: int, members: Sequence[int], holes: Holes
) -> tuple[list[Part], list[int]]:
    """Return a cluster's holes pod by pod with the groups local to each, and the kinds of its other groups."""
    q, left = f.q, list(members)
    parts = []
    for pod in sorted(f.pods, key=lambda pod: _height(q, pod)):
        wanted = Counter({c: int(values.of(v)) for (p, c), v in f.take[j].items() if p == pod})
        here = tuple((holes[pod][c].pop(), c) for c in sorted(wanted, reverse=True) for _ in range(wanted[c]))
        local = (
            [int(values.of(f.local[j][0, pod, k])) for k in range(len(left))] if q.tiers else _most_local(q, left, here)
        )
        left = [a - b for a, b in zip(left, local, strict=True)]
        if here:
            parts.append(Part(holes=here, local=tuple(k for k, n in enumerate(local) for _ in range(n))))
    return parts, [k for k, n in enumerate(left) for _ in range(n)]


def _by_pod(wanted: Counter[int], holes: Holes) -> dict[int, Counter[int]]:
    """Find holes of the wanted sizes: in the pod with the fewest to spare that has them all, or pod by pod."""
    for pod in sorted(holes, key=lambda p: sum(map(len, holes[p].values()))):
        if all(len(holes[pod].get(c, [])) >= n for c, n in wanted.items()):
            return {pod: wanted}
    left, chosen = Counter(wanted), {}
    for pod in sorted(holes):
        chosen[pod] = Counter({c: min(n, len(holes[pod].get(c, []))) for c, n in left.items()})
        left -= chosen[pod]
    return chosen


def _most_local(q: Problem, left: Sequence[int], here: Sequence[tuple[int, int]]) -> list[int]:
    """Keep within the holes as many groups as fit, the smallest first."""
    room, local = sum(n for _, n in here), [0] * len(left)
    for k in sorted(range(len(left)), key=lambda k: q.kinds[k].size):
        local[k] = min(left[k], room // q.kinds[k].size)
        room -= local[k] * q.kinds[k].size
    return local


def _height(q: Problem, pod: int) -> tuple[int, ...]:
    """Order pods so that those under one switch follow each other, tier by tier."""
    return tuple(reversed(q.leaves[q.pods[pod][0]].path)) if pod in q.pods else ()
