"""A first packing of a job without a solver: whole groups by best fit, pod by pod; split ones in the fullest holes."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

from planner.models.placement import placement_problem as problems
from planner.models.placement.placement_problem import Packing, Piece, PlacementProblem, WholeGroups

Counts = list[int]


def greedy(problem: PlacementProblem) -> Packing:
    """Pack a job's groups greedily, the roomiest pods first, the rest in the fullest that fits; split none, or few."""
    left, packing = [kind.count for kind in problem.kinds], Packing()
    unit = problem.kinds[0].size if len(problem.kinds) == 1 else 1
    pods = sorted(problem.pods, key=lambda pod: (sum(problem.leaves[i].free // unit for i in problem.pods[pod]), pod))
    while any(left):
        for pod in pods:
            room = sum(problem.leaves[i].free for i in problem.pods[pod])
            if room >= sum(count * kind.size for count, kind in zip(left, problem.kinds, strict=True)):
                placed, rest = best_fit(problem, problem.pods[pod], left)
                if not any(rest):
                    packing.whole.update(placed)
                    return packing
        if not pods:
            return _whole_first(problem)
        placed, left = best_fit(problem, problem.pods[pods.pop()], left)
        packing.whole.update(placed)
    return packing


def best_fit(problem: PlacementProblem, leaves: Iterable[int], counts: Counts) -> tuple[WholeGroups, Counts]:
    """Pack whole groups by best fit, the largest first, where fewest units stay free; return placed and left ones."""
    if len(problem.kinds) == 1:
        return _one_size(problem, leaves, counts[0])
    # Holes by (free units, leaf is wholly free, leaf): part-used leaves of the same room come first.
    holes = sorted((problem.leaves[i].free, problem.leaves[i].free == problem.leaves[i].size, i) for i in leaves)
    placed: WholeGroups = Counter()
    left = list(counts)
    for k in sorted(range(len(problem.kinds)), key=lambda k: (-problem.kinds[k].size, k)):
        size = problem.kinds[k].size
        while left[k]:
            at = bisect_left(holes, (size, False, -1))
            if at == len(holes):
                break
            free, _, i = holes.pop(at)
            placed[i, k] += 1
            left[k] -= 1
            insort(holes, (free - size, False, i))
    return placed, left


def _one_size(problem: PlacementProblem, leaves: Iterable[int], count: int) -> tuple[WholeGroups, Counts]:
    """Pack groups of one size into leaves of the smallest remainder first, wholly free ones last, by best fit."""
    size = problem.kinds[0].size
    own = [(i, problem.leaves[i]) for i in leaves]
    order = sorted((leaf.free == leaf.size and leaf.free % size > 0, leaf.free % size, leaf.free, i) for i, leaf in own)
    placed: WholeGroups = Counter()
    whole_groups = [(free // size, i) for _, _, free, i in order if free >= size]
    largest_from = [*accumulate((room for room, _ in reversed(whole_groups)), max)][::-1]
    for at, (whole, i) in enumerate(whole_groups):
        if not count:
            break
        if largest_from[at] >= count:
            enough = [(problem.leaves[j], j) for room, j in whole_groups[at:] if room >= count]
            _, _, last = min((leaf.free == leaf.size, leaf.free, j) for leaf, j in enough)
            placed[last, 0] = count
            return placed, [0]
        placed[i, 0] = whole
        count -= whole
    return placed, [count]


def _whole_first(problem: PlacementProblem) -> Packing:
    """Pack as many groups whole as best fit can, the heaviest and smallest before the others, and split the rest."""
    order = sorted(range(len(problem.kinds)), key=lambda k: (problem.kinds[k].weight, -problem.kinds[k].size, k))
    total = problem.groups

    def keeping(count: int) -> tuple[Counts, WholeGroups, Counts]:
        left, keep = total - count, [kind.count for kind in problem.kinds]
        for k in order:
            gone = min(left, keep[k])
            keep[k] -= gone
            left -= gone
        placed, rest = best_fit(problem, range(len(problem.leaves)), keep)
        return keep, placed, rest

    low, high = 0, total - problem.min_split
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if not any(keeping(middle)[2]) else (low, middle - 1)
    # One group more than fits: best fit may still place some of it where another does not.
    counts = {low} if len(problem.kinds) == 1 else sorted({low, min(low + 1, total), total})
    least_extra, packings = problems.min_extra_pieces(problem, problem.min_split), list[Packing]()
    for keep, placed, rest in map(keeping, counts):
        left = [kind.count - keep[j] + rest[j] for j, kind in enumerate(problem.kinds)]
        packings.append(with_split(problem, placed, left))
        if sum(len(pieces) - 1 for _, pieces in packings[-1].split) > least_extra:
            packings.append(with_split(problem, placed, left, by_pod=False))
    return min(packings, key=lambda packing: problems.measure(problem, packing))


def with_split(problem: PlacementProblem, whole: WholeGroups, left: Counts, *, by_pod: bool = True) -> Packing:
    """Pack the groups left over as split ones in the holes of leaves, within a pod where that makes no more pieces."""
    packing = Packing(whole=Counter(whole))
    holes = [leaf.free - units for leaf, units in zip(problem.leaves, problems.used(problem, packing), strict=True)]
    for k in sorted(range(len(problem.kinds)), key=lambda k: (-problem.kinds[k].size, k)):
        for _ in range(left[k]):
            pieces = split_group(problem, holes, problem.kinds[k].size, by_pod=by_pod)
            if len(pieces) == 1:
                packing.whole[pieces[0][0], k] += 1
            else:
                packing.split.append((k, pieces))
            for i, units in pieces:
                holes[i] -= units
    return packing


def split_group(problem: PlacementProblem, holes: Sequence[int], size: int, *, by_pod: bool) -> tuple[Piece, ...]:
    """Split one group over the leaves' holes, of the pod with fewest pieces and then the smallest rest, or of all."""
    fewest = -(-size // max(holes))
    pods = problem.pods.values() if by_pod else ()
    fits = [_fewest_holes(holes, leaves, size) for leaves in pods if sum(holes[i] for i in leaves) >= size]
    best = min(fits, key=lambda fit: (len(fit), sum(holes[i] for i, _ in fit) - size, fit), default=())
    if best and len(best) == fewest:
        return best
    everywhere = _fewest_holes(holes, range(len(holes)), size)
    return best if best and len(best) <= len(everywhere) else everywhere


def _fewest_holes(holes: Sequence[int], leaves: Iterable[int], size: int) -> tuple[Piece, ...]:
    """Choose the fewest holes of leaves that hold a group: the largest ones, and as the last the smallest enough."""
    order = sorted((i for i in leaves if holes[i]), key=lambda i: (-holes[i], i))
    pieces: list[Piece] = []
    for at, i in enumerate(order):
        if holes[i] >= size:
            enough = next(j for j in reversed(order[at:]) if holes[j] >= size)
            return tuple(sorted([*pieces, (enough, size)]))
        pieces.append((i, holes[i]))
        size -= holes[i]
    return tuple(sorted(pieces))


MAX_TRIES = 300  # Ways to give a chain its holes in one pod; a chain of many holes has too many to try all.


class Exchange:
    """Leaves of a placement that may still exchange their groups, by free units and by the hole that is left."""

    def __init__(self, problem: PlacementProblem, packing: Packing, holes: dict[int, list[int]]) -> None:
        self.q, self.packing = problem, packing
        self.hole = {i: hole for hole, leaves in holes.items() for i in leaves}
        self.by_hole: dict[Piece, set[int]] = {}  # (room, hole) -> leaves
        self.by_pod: dict[int, dict[int, set[int]]] = {}  # pod -> room -> leaves
        for i, hole in self.hole.items():
            leaf = problem.leaves[i]
            self.by_hole.setdefault((leaf.free, hole), set()).add(i)
            self.by_pod.setdefault(leaf.pod, {}).setdefault(leaf.free, set()).add(i)

    def gather(self, wanted: Counter[int]) -> list[Piece] | None:
        """Give a chain of split groups holes in one pod, that with the fewest leaves; None where no pod has them."""
        holes = sorted(wanted.elements(), reverse=True)
        for pod in sorted(self.by_pod, key=lambda pod: (sum(map(len, self.by_pod[pod].values())), pod)):
            rooms = self._free_of(pod, holes)
            if rooms is not None:
                return [(self._take(pod, room, hole), hole) for room, hole in zip(rooms, holes, strict=True)]
        return None

    def _free_of(self, pod: int, holes: Sequence[int]) -> list[int] | None:
        """Return free units for each hole of a chain, of leaves that the pod has and some leaf with the hole has."""
        left = Counter({room: len(leaves) for room, leaves in self.by_pod[pod].items()})
        used: Counter[Piece] = Counter()
        chosen: list[int] = []
        tries = 0

        def search(at: int) -> bool:
            nonlocal tries
            tries += 1
            if at == len(holes) or tries > MAX_TRIES:
                return at == len(holes)
            hole = holes[at]
            for room in sorted(left):
                if left[room] and len(self.by_hole.get((room, hole), ())) > used[room, hole]:
                    left[room] -= 1
                    used[room, hole] += 1
                    chosen.append(room)
                    if search(at + 1):
                        return True
                    chosen.pop()
                    left[room] += 1
                    used[room, hole] -= 1
            return False

        return chosen if search(0) else None

    def _take(self, pod: int, room: int, hole: int) -> int:
        """Return a leaf of the pod with the hole, after swapping groups with one that has it; it swaps no more."""
        here, there, whole = self.by_pod[pod][room], self.by_hole[room, hole], self.packing.whole
        i = min(here & there, default=min(here))
        if self.hole[i] != hole:
            j, other = min(there), self.hole[i]
            for k in range(len(self.q.kinds)):
                whole[i, k], whole[j, k] = whole[j, k], whole[i, k]
            self.by_hole[room, other].remove(i)
            self.by_hole[room, other].add(j)
            there.remove(j)
            self.hole[i], self.hole[j] = hole, other
        else:
            there.remove(i)
        here.remove(i)
        return i

    def rest(self) -> dict[int, list[int]]:
        """Return the leaves that no chain of split groups has taken, by hole, those of each pod together."""
        rest: dict[int, list[int]] = {}
        for rooms in self.by_pod.values():
            for i in sorted(i for leaves in rooms.values() for i in leaves):
                rest.setdefault(self.hole[i], []).append(i)
        return rest
