"""Placement of equal groups on equal leaves in equal pods: the plan's own placement solves it, with its proofs."""

from collections import Counter

from planner.cluster.hostlist import parse
from planner.models.placement.data import Packing, Problem
from planner.models.plan_placement.solve import solve
from planner.models.requests import Options, PlacementRequest


def request_of(q: Problem) -> tuple[PlacementRequest, list[int]] | None:
    """Return the plan's request and the leaves in its order; None where more differs than a last leaf or pod."""
    if len(q.kinds) != 1 or q.tiers > 1:
        return None
    pods = [[i for i in leaves if q.leaves[i].free] for leaves in q.pods.values()]
    pods = sorted((p for p in pods if p), key=lambda p: -sum(q.leaves[i].free for i in p))
    order = [i for p in pods for i in sorted(p, key=lambda i: (-q.leaves[i].free, i))]
    free = [q.leaves[i].free for i in order]
    lengths = [len(p) for p in pods]
    if len(set(free[:-1])) > 1 or free[-1] > free[0] or len(set(lengths[:-1])) > 1 or lengths[-1] > lengths[0]:
        return None
    kind = q.kinds[0]
    request = PlacementRequest(
        racks=sum(free), groups=kind.count, group_racks=kind.size, leaf_domain_racks=free[0], domains_per_pod=lengths[0]
    )
    return request, order


def place_equal(q: Problem, options: Options) -> tuple[Packing, tuple[int, int, int]] | None:
    """Return the plan's placement and its bounds of split groups, extra pieces and groups across pods.

    None where the cluster is not as regular as a plan's.
    """
    asked = request_of(q)
    placement = None if asked is None else solve(asked[0], options, site="cluster").solution
    if asked is None or placement is None:
        return None
    order = asked[1]
    pieces: dict[int, list[tuple[int, int]]] = {}
    for a in placement.assignment:
        pieces.setdefault(a.stage, []).append((order[a.leaf_domain], len(parse(a.racks))))
    whole = Counter((p[0][0], 0) for p in pieces.values() if len(p) == 1)
    packing = Packing(whole=whole, split=[(0, tuple(p)) for p in pieces.values() if len(p) > 1])
    return packing, (placement.lower_bound, placement.extra_pieces_bound, placement.cross_pod_bound)
