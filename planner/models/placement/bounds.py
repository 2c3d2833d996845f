"""What no placement of a job beats, without a solver: closed forms over leaves and pods."""

from collections.abc import Sequence

from planner.models.placement.data import Kind, Levels, Question
from planner.physics.network.locality import lower_bound_split


def bounds(q: Question, *, whole: bool = False) -> Levels:
    """Bound every level of the objective, given that those before it are least; with `whole` the last two hold where no group splits."""
    free = [leaf.free for leaf in q.leaves]
    count = fewest_split(free, q.kinds)
    crossing = tuple(fewest_split(_free_by(q, t), q.kinds) for t in range(q.tiers))
    return Levels(
        weight_split=least_weight_split(free, q.kinds),
        extra_pieces=fewest_extra_pieces(q, count),
        crossing=crossing,
        boundaries=fewest_boundaries(q, crossing[0] if crossing else 0, whole=whole),
        part_free=fewest_part_free(q, whole=whole),
    )


def fewest_split(free: Sequence[int], kinds: Sequence[Kind]) -> int:
    """Bound the groups that no bin holds whole: those of at least g units fit floor(f / g) times into f, for every g."""
    found = 0
    for g in sorted({k.size for k in kinds}):
        count = sum(k.count for k in kinds if k.size >= g)
        found = max(found, lower_bound_split(free, count, g))
    return found


def least_weight_split(free: Sequence[int], kinds: Sequence[Kind]) -> int:
    """Bound the weight of split groups: for every g the lightest among those of at least g units."""
    found = 0
    for g in sorted({k.size for k in kinds}):
        large = [k for k in kinds if k.size >= g]
        left, weight = lower_bound_split(free, sum(k.count for k in large), g), 0
        for k in sorted(large, key=lambda k: k.weight):
            weight += k.weight * min(left, k.count)
            left -= min(left, k.count)
        found = max(found, weight)
    return found


def fewest_extra_pieces(q: Question, split: int) -> int:
    """Bound the pieces beyond one per group, given how many groups split at least.

    A group larger than every leaf needs as many pieces as the largest leaf goes into it. Where equal groups must split,
    every leaf holds as many whole ones as it can, and the split ones go into the holes that are left.
    """
    largest = max((leaf.free for leaf in q.leaves), default=0)
    if not split or not largest:
        return 0
    oversize = sum((-(-k.size // largest) - 1) * k.count for k in q.kinds if k.size > largest)
    forced = sum(k.count for k in q.kinds if k.size > largest)
    found = oversize + max(0, split - forced)
    if len(q.kinds) == 1:
        size = q.kinds[0].size
        holes = sorted((leaf.free % size for leaf in q.leaves if leaf.free % size), reverse=True)
        found = max(found, _pieces_in_holes(holes, size, split) - split)
    return found


def _pieces_in_holes(holes: Sequence[int], size: int, split: int) -> int:
    """Bound the pieces of equal groups over holes: no group fits in fewer than the largest, all in no fewer than hold them."""
    if not holes:
        return split
    need, used = split * size, 0
    while need > 0 and used < len(holes):
        need, used = need - holes[used], used + 1
    return max(split * _most_taken(holes, size), used)


def _most_taken(descending: Sequence[int], need: int) -> int:
    """Return how many of the largest are needed to reach `need`."""
    taken = 0
    for n in descending:
        if need <= 0:
            break
        need, taken = need - n, taken + 1
    return taken


def fewest_boundaries(q: Question, across: int, *, whole: bool) -> int:
    """Bound the neighbours along lines that are not in one pod: by the pods that the groups need, and by the lines that no pod holds.

    Every pod with groups of its own is a run of some line, and so is every group across pods. One more group across pods
    saves at most one pod, so the bound for the fewest across holds for more of them too.
    """
    free, lines = _free_by_pod(q), q.groups // q.line
    if len(q.kinds) == 1:
        room = [n // q.kinds[0].size for n in free]
        full = [sum(q.leaves[i].free // q.kinds[0].size for i in leaves) for leaves in q.pods.values()]
        if sum(full) < q.groups:
            # Groups must split, the fewest only where every leaf holds as many whole ones as it can: all these pods are used.
            return max(sum(n > 0 for n in full) + across - lines, 0)
        if whole:
            room = sorted(full, reverse=True)
        in_one_pod = sum(r // q.line for r in room) if q.line > 1 else lines
        return max(_most_taken(room, q.groups - across) + across - lines, lines - in_one_pod, 0)
    pods = _most_taken(free, q.need)
    if pods and free[pods - 1] < max(k.size for k in q.kinds):
        pods = 0  # a group across pods might save several of them
    return max(pods - 1, across - 1, 0)


def _free_by_pod(q: Question) -> list[int]:
    """Return the free units of each pod, the most first."""
    return sorted((sum(q.leaves[i].free for i in leaves) for leaves in q.pods.values()), reverse=True)


def _free_by(q: Question, tier: int) -> list[int]:
    """Return the free units under each switch of a tier."""
    found: dict[int, int] = {}
    for leaf in q.leaves:
        found[leaf.path[tier]] = found.get(leaf.path[tier], 0) + leaf.free
    return list(found.values())


def fewest_part_free(q: Question, *, whole: bool) -> int:
    """Bound the leaves left part-free: those that are so now, less the most that the job can fill; whole groups fill only sums of their sizes."""
    sums = _sums([k.size for k in q.kinds], max((leaf.free for leaf in q.leaves), default=0)) if whole else None
    now = [leaf.free for leaf in q.leaves if 0 < leaf.free < leaf.size]
    left, filled = q.need, 0
    for free in sorted(n for n in now if sums is None or n in sums):
        if free > left:
            break
        left, filled = left - free, filled + 1
    return len(now) - filled


def _sums(sizes: Sequence[int], most: int) -> set[int]:
    """Return the sums of sizes, each used any number of times, up to `most`."""
    found = {0}
    for n in range(1, most + 1):
        if any(n - g in found for g in sizes):
            found.add(n)
    return found
