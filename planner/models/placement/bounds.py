"""Bounds of every level of a placement's objective without a solver: closed forms over leaves and pods."""

from collections.abc import Sequence

from planner.models.placement.data import Kind, Levels, Problem
from planner.physics.network.locality import lower_bound_split


def bounds(q: Problem, *, whole: bool = False) -> Levels:
    """Bound every level, given that those before it are minimal; `whole`: the last two assume that no group splits."""
    free = [leaf.free for leaf in q.leaves]
    split = min_split_groups(free, q.kinds)
    crossing = tuple(min_split_groups(_free_by_switch(q, t), q.kinds) for t in range(q.tiers))
    return Levels(
        weight_split=min_split_weight(free, q.kinds),
        extra_pieces=min_extra_pieces(q, split),
        crossing=crossing,
        boundaries=min_boundaries(q, crossing[0] if crossing else 0, whole=whole),
        part_free=min_part_free(q, whole=whole),
    )


def min_split_groups(free: Sequence[int], kinds: Sequence[Kind]) -> int:
    """Bound the groups that fit no leaf whole: of at least g units, floor(f / g) fit into f free ones, for every g."""
    sizes = {k.size for k in kinds}
    return max((lower_bound_split(free, sum(k.count for k in kinds if k.size >= g), g) for g in sizes), default=0)


def min_split_weight(free: Sequence[int], kinds: Sequence[Kind]) -> int:
    """Bound the weight of split groups: for every g the lightest among those of at least g units."""
    bound = 0
    for g in sorted({k.size for k in kinds}):
        large = [k for k in kinds if k.size >= g]
        left, weight = lower_bound_split(free, sum(k.count for k in large), g), 0
        for k in sorted(large, key=lambda k: k.weight):
            weight += k.weight * min(left, k.count)
            left -= min(left, k.count)
        bound = max(bound, weight)
    return bound


def min_extra_pieces(q: Problem, split: int) -> int:
    """Bound the pieces above one per group, given how many groups split at least.

    A group larger than every leaf needs as many pieces as the largest leaf goes into it. Where equal groups must split,
    every leaf takes as many whole ones as fit, and the split ones go into the holes that are left.
    """
    largest = max((leaf.free for leaf in q.leaves), default=0)
    if not split or not largest:
        return 0
    oversize = sum((-(-k.size // largest) - 1) * k.count for k in q.kinds if k.size > largest)
    forced = sum(k.count for k in q.kinds if k.size > largest)
    bound = oversize + max(0, split - forced)
    if len(q.kinds) == 1:
        size = q.kinds[0].size
        holes = sorted((leaf.free % size for leaf in q.leaves if leaf.free % size), reverse=True)
        bound = max(bound, _pieces_in_holes(holes, size, split) - split)
    return bound


def _pieces_in_holes(holes: Sequence[int], size: int, split: int) -> int:
    """Bound the pieces of equal groups: each needs as many as the largest holes do for it, all as many as for all."""
    if not holes:
        return split
    return max(split * _count_to_reach(holes, size), _count_to_reach(holes, split * size))


def _count_to_reach(descending: Sequence[int], need: int) -> int:
    """Return how many of the largest are needed to reach `need`; all where they do not."""
    count = 0
    for n in descending:
        if need <= 0:
            break
        need, count = need - n, count + 1
    return count


def min_boundaries(q: Problem, across: int, *, whole: bool) -> int:
    """Bound the neighbours along lines that are not in one pod: by the pods in use, and by the lines that fit no pod.

    Every pod with groups of its own is a run of some line, and so is every group across pods. One more group across
    pods saves at most one pod, so the bound for the fewest across is valid for more of them too.
    """
    free, lines = _free_by_pod(q), q.groups // q.line
    if len(q.kinds) == 1:
        room = [n // q.kinds[0].size for n in free]
        full = [sum(q.leaves[i].free // q.kinds[0].size for i in leaves) for leaves in q.pods.values()]
        if sum(full) < q.groups:
            # Groups must split, fewest where every leaf takes as many whole ones as fit: all these pods are used.
            return max(sum(n > 0 for n in full) + across - lines, 0)
        if whole:
            room = sorted(full, reverse=True)
        in_one_pod = sum(r // q.line for r in room) if q.line > 1 else lines
        return max(_count_to_reach(room, q.groups - across) + across - lines, lines - in_one_pod, 0)
    pods = _count_to_reach(free, q.need)
    if pods and free[pods - 1] < max(k.size for k in q.kinds):
        pods = 0  # a group across pods might save several of them
    return max(pods - 1, across - 1, 0)


def _free_by_pod(q: Problem) -> list[int]:
    """Return the free units of each pod, the largest first."""
    return sorted((sum(q.leaves[i].free for i in leaves) for leaves in q.pods.values()), reverse=True)


def _free_by_switch(q: Problem, tier: int) -> list[int]:
    """Return the free units under each switch of a tier."""
    free: dict[int, int] = {}
    for leaf in q.leaves:
        free[leaf.path[tier]] = free.get(leaf.path[tier], 0) + leaf.free
    return list(free.values())


def min_part_free(q: Problem, *, whole: bool) -> int:
    """Bound the leaves left part-free: those now, less those that the job can fill, by whole groups if `whole`."""
    sums = _sums([k.size for k in q.kinds], max((leaf.free for leaf in q.leaves), default=0)) if whole else None
    now = [leaf.free for leaf in q.leaves if 0 < leaf.free < leaf.size]
    left, filled = q.need, 0
    for free in sorted(n for n in now if sums is None or n in sums):
        if free > left:
            break
        left, filled = left - free, filled + 1
    return len(now) - filled


def _sums(sizes: Sequence[int], limit: int) -> set[int]:
    """Return the sums of sizes, each used any number of times, up to a limit."""
    sums = {0}
    for n in range(1, limit + 1):
        if any(n - g in sums for g in sizes):
            sums.add(n)
    return sums
