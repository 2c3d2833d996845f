"""From the flows and clusters of a solution to leaves and pieces; no choice is left that the objective sees."""

from collections import Counter
from collections.abc import Sequence

from planner.models.cluster_exact import Formulation
from planner.models.cluster_pieces import Part, cut_cluster
from planner.models.cluster_question import Packing, Question
from planner.solvers.cpsat import Values

Holes = dict[int, dict[int, list[int]]]  # pod -> hole -> leaves, those best left alone first


def decode(f: Formulation, values: Values) -> tuple[Packing, list[int]]:
    """Return the whole groups, the clusters cut into pieces, and the groups of each kind that are still to be cut."""
    packing = Packing()
    holes: Holes = {}
    for pod in f.pods:
        for c, leaves in _walk(f, values, pod, packing).items():
            for i in leaves:
                holes.setdefault(f.q.pod_of[i], {}).setdefault(c, []).append(i)
    left = [int(values.of(f.split(k))) if f.q.kinds[k].count else 0 for k in range(len(f.q.kinds))]
    for j in range(f.slots):
        held = [values.of(v) for v in f.held[j]]
        if any(held):
            packing.split.extend(cut_cluster([k.size for k in f.q.kinds], *_parts(f, values, j, held, holes)))
            left = [a - b for a, b in zip(left, held, strict=True)]
    return settled(packing), left


def settled(packing: Packing) -> Packing:
    """Count among the whole groups those that were cut and have one piece."""
    whole = packing.whole + Counter((pieces[0][0], k) for k, pieces in packing.split if len(pieces) == 1)
    return Packing(whole=whole, split=[(k, pieces) for k, pieces in packing.split if len(pieces) > 1])


def _walk(f: Formulation, values: Values, pod: int, packing: Packing) -> dict[int, list[int]]:
    """Lead the leaves of a pod along the flow, wholly free ones to rest first, and return them by the hole they keep."""
    at: dict[int, list[int]] = {}
    for i in f.pods[pod]:
        at.setdefault(f.q.leaves[i].free, []).append(i)
    found: dict[int, list[int]] = {}
    for c in range(max(at, default=0), 0, -1):
        here = sorted(at.get(c, []), key=lambda i: (not f.q.leaves[i].free == f.q.leaves[i].size == c, f.q.leaves[i].free != c))
        if not here:
            continue
        resting = values.of(f.rest[pod, c])
        found[c], moving = here[:resting], here[resting:]
        for k, kind in enumerate(f.q.kinds):
            n = values.of(f.arcs[pod, c, k]) if (pod, c, k) in f.arcs else 0
            for i in moving[:n]:
                packing.whole[i, k] += 1
                at.setdefault(c - kind.size, []).append(i)
            moving = moving[n:]
    return found


def _parts(f: Formulation, values: Values, j: int, held: Sequence[int], holes: Holes) -> tuple[list[Part], list[int]]:
    """Return a cluster's holes pod by pod with the groups local to each, and the kinds of its other groups."""
    q, left = f.q, list(held)
    taken = {p: Counter({c: values.of(v) for (pod, c), v in f.take[j].items() if pod == p}) for p in f.pods}
    found = []
    for pod, wanted in sorted((taken if f.by_pod else _by_pod(taken[0], holes)).items(), key=lambda item: _height(q, item[0])):
        here = tuple((holes[pod][c].pop(), c) for c in sorted(wanted, reverse=True) for _ in range(wanted[c]))
        local = [values.of(f.local[j][0, pod, k]) for k in range(len(left))] if f.by_pod and q.tiers else _most_local(q, left, here)
        left = [a - b for a, b in zip(left, local, strict=True)]
        if here:
            found.append(Part(holes=here, local=tuple(k for k, n in enumerate(local) for _ in range(n))))
    return found, [k for k, n in enumerate(left) for _ in range(n)]


def _by_pod(wanted: Counter[int], holes: Holes) -> dict[int, Counter[int]]:
    """Find holes of the wanted sizes: in the pod with the fewest to spare that has them all, or pod by pod."""
    for pod in sorted(holes, key=lambda p: sum(map(len, holes[p].values()))):
        if all(len(holes[pod].get(c, [])) >= n for c, n in wanted.items()):
            return {pod: wanted}
    left, found = Counter(wanted), {}
    for pod in sorted(holes):
        found[pod] = Counter({c: min(n, len(holes[pod].get(c, []))) for c, n in left.items()})
        left -= found[pod]
    return found


def _most_local(q: Question, left: Sequence[int], here: Sequence[tuple[int, int]]) -> list[int]:
    """Keep within the holes as many groups as fit, the smallest first."""
    room, local = sum(n for _, n in here), [0] * len(left)
    for k in sorted(range(len(left)), key=lambda k: q.kinds[k].size):
        local[k] = min(left[k], room // q.kinds[k].size)
        room -= local[k] * q.kinds[k].size
    return local


def _height(q: Question, pod: int) -> tuple[int, ...]:
    """Order pods so that those under one switch follow each other, tier by tier."""
    return tuple(reversed(q.leaves[q.pods[pod][0]].path)) if pod in q.pods else ()
