"""Place a job on a cluster, and order its nodes: a first packing, bounds, a solver where the two do not meet, ranks.

Ranks may follow the order of node names. Leaves follow each other by name. A cut is a place in the rank order where one
leaf ends and the next begins; what a cut divides is split. What a cut costs depends on the last one before it alone,
which says whether its group and its member were cut already. So the minimum over the numbers of ranks that have a node
after each leaf is exact:

    cost = (members cut, groups split, pieces beyond one a group), compared from the left.
"""

import sys
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from planner.cluster.job import Slot
from planner.models import Options
from planner.models.placement import placement_problem as problems
from planner.models.placement.placement_problem import Packing, Piece, PlacementProblem, Solution, WholeGroups
from planner.solvers.search_deadline import Deadline
from planner.solvers.signals import uninterrupted

FORMULATION = (
    "Counts of leaves by free nodes and whole groups on them, of chains of split groups by the holes that they share; "
    "level by level, each fixed before the next: best fit where it meets the analytic bound, CP-SAT where it does not, "
    "HiGHS pod by pod."
)
LOADING_SECONDS = 2.0  # To import CP-SAT where it is not loaded yet: measured 1.3 to 1.6.
NEVER = np.int64(2**62)
Pieces = tuple[Piece, ...]
Places = NDArray[np.int64] | slice


def greedy(problem: PlacementProblem) -> Packing:
    """Place a job's groups greedily, the roomiest pods first, the rest in the fullest that fits; split none, or few."""
    left, packing = [kind.count for kind in problem.kinds], Packing()
    unit = problem.kinds[0].size if len(problem.kinds) == 1 else 1
    pods = sorted(problem.pods, key=lambda pod: (sum(problem.leaves[i].free // unit for i in problem.pods[pod]), pod))
    while pods:
        for pod in pods:
            room = sum(problem.leaves[i].free for i in problem.pods[pod])
            if room >= sum(count * kind.size for count, kind in zip(left, problem.kinds, strict=True)):
                placed, rest = best_fit(problem, problem.pods[pod], left)
                if not any(rest):
                    packing.whole.update(placed)
                    return packing
        placed, left = best_fit(problem, problem.pods[pods.pop()], left)
        packing.whole.update(placed)
    # As many groups whole as best fit can, the heaviest and smallest before the others, and the rest split.
    order = sorted(range(len(problem.kinds)), key=lambda k: (problem.kinds[k].weight, -problem.kinds[k].size, k))
    total = problem.groups

    def keeping(count: int) -> tuple[list[int], WholeGroups, list[int]]:
        left, keep = total - count, [kind.count for kind in problem.kinds]
        for k in order:
            gone = min(left, keep[k])
            keep[k] -= gone
            left -= gone
        placed, rest = best_fit(problem, range(len(problem.leaves)), keep)
        return keep, placed, rest

    most = total - problem.min_split
    low = most - bisect_left(range(most, 0, -1), True, key=lambda count: not any(keeping(count)[2]))
    # One group more than fits: best fit may still place some of it where another does not.
    counts = {low} if len(problem.kinds) == 1 else sorted({low, min(low + 1, total), total})
    least_extra, packings = problems.min_extra_pieces(problem, problem.min_split), list[Packing]()
    for keep, placed, rest in map(keeping, counts):
        left = [kind.count - keep[j] + rest[j] for j, kind in enumerate(problem.kinds)]
        packings.append(with_split(problem, placed, left))
        if sum(len(pieces) - 1 for _, pieces in packings[-1].split) > least_extra:
            packings.append(with_split(problem, placed, left, by_pod=False))
    return min(packings, key=lambda packing: problems.measure(problem, packing))


def best_fit(problem: PlacementProblem, leaves: Iterable[int], counts: list[int]) -> tuple[WholeGroups, list[int]]:
    """Place a job's whole groups by best fit, the largest first, where fewest units stay free; return left ones too."""
    placed: WholeGroups = Counter()
    left = list(counts)
    if len(problem.kinds) > 1:
        # Holes by (free units, leaf is wholly free, leaf): part-used leaves of the same room come first.
        holes = sorted((problem.leaves[i].free, problem.leaves[i].free == problem.leaves[i].size, i) for i in leaves)
        for k in sorted(range(len(problem.kinds)), key=lambda k: (-problem.kinds[k].size, k)):
            size = problem.kinds[k].size
            while left[k] and (at := bisect_left(holes, (size, False, -1))) < len(holes):
                free, _, i = holes.pop(at)
                placed[i, k] += 1
                left[k] -= 1
                insort(holes, (free - size, False, i))
        return placed, left
    # Groups of one size go into leaves of the smallest remainder first, wholly free ones last.
    size, own = problem.kinds[0].size, [(i, problem.leaves[i]) for i in leaves]
    order = sorted((leaf.free == leaf.size and leaf.free % size > 0, leaf.free % size, leaf.free, i) for i, leaf in own)
    whole_groups = [(free // size, i) for _, _, free, i in order if free >= size]
    largest_from = [*accumulate((room for room, _ in reversed(whole_groups)), max)][::-1]
    for at, (whole, i) in enumerate(whole_groups):
        if largest_from[at] >= left[0]:
            enough = [(problem.leaves[j], j) for room, j in whole_groups[at:] if room >= left[0]]
            _, _, last = min((leaf.free == leaf.size, leaf.free, j) for leaf, j in enough)
            placed[last, 0] = left[0]
            return placed, [0]
        placed[i, 0] = whole
        left[0] -= whole
    return placed, left


def with_split(problem: PlacementProblem, whole: WholeGroups, left: list[int], *, by_pod: bool = True) -> Packing:
    """Place a job's groups left over as split ones in holes of leaves, within a pod where that makes no more pieces."""
    packing = Packing(whole=Counter(whole))
    holes = [leaf.free - units for leaf, units in zip(problem.leaves, problems.used(problem, packing), strict=True)]
    pods = problem.pods.values() if by_pod else ()
    for k in sorted(range(len(problem.kinds)), key=lambda k: (-problem.kinds[k].size, k)):
        size = problem.kinds[k].size
        for _ in range(left[k]):
            # In the pod with fewest pieces and then the smallest rest, or in all.
            fits = [_fewest_holes(holes, leaves, size) for leaves in pods if sum(holes[i] for i in leaves) >= size]
            pieces = min(fits, key=lambda fit: (len(fit), sum(holes[i] for i, _ in fit), fit), default=())
            if not pieces or len(pieces) > -(-size // max(holes)):
                everywhere = _fewest_holes(holes, range(len(holes)), size)
                pieces = pieces if pieces and len(pieces) <= len(everywhere) else everywhere
            if len(pieces) == 1:
                packing.whole[pieces[0][0], k] += 1
            else:
                packing.split.append((k, pieces))
            for i, units in pieces:
                holes[i] -= units
    return packing


def _fewest_holes(holes: Sequence[int], leaves: Iterable[int], size: int) -> tuple[Piece, ...]:
    """Choose the fewest holes of leaves that hold a group: the largest ones, and as the last the smallest enough."""
    order = sorted((i for i in leaves if holes[i]), key=holes.__getitem__, reverse=True)  # equal ones as they come
    pieces = [(i, holes[i]) for i in order[: problems.count_to_reach([holes[i] for i in order], size) - 1]]
    rest = size - sum(units for _, units in pieces)
    return tuple(sorted([*pieces, (next(i for i in reversed(order) if holes[i] >= rest), rest)]))


def solver_affordable(options: Options) -> bool:
    """Return whether the time limit lets a solver place a job: to load one may take longer than a scheduler waits."""
    loaded = "ortools.sat.python.cp_model" in sys.modules
    return options.time_limit is None or options.time_limit >= LOADING_SECONDS or loaded


def solve(problem: PlacementProblem, options: Options, *, fragmentation: bool = True) -> Solution[Packing] | None:
    """Place a job: fewest split groups, then extra pieces, groups across pods, boundaries and part-free leaves.

    None: it needs more units than are free. Without `fragmentation` the last level is left to best fit, and the rest
    alone is called proven; so is the level before it where groups do not follow each other along a line.
    """
    deadline = Deadline(options.time_limit)
    if problem.need > problem.free:
        return None
    packing = greedy(problem)
    # Nothing split is minimal at every level up to the crossings, so that bounds may assume it of all that is as good.
    solution = bounded_packing(problem, packing, whole=not packing.split, fragmentation=fragmentation)
    solution.deadline = deadline
    if not solution.proven(solution.searched - 1) and solver_affordable(options):
        try:
            with uninterrupted():
                from planner.models.placement.placement_levels import improve, level_model
            improve(solution, options, partial(level_model, problem, solution))
        except KeyboardInterrupt:
            solution.interrupted = True
    return solution


def bounded_packing(
    problem: PlacementProblem, packing: Packing, *, whole: bool = False, fragmentation: bool = False
) -> Solution[Packing]:
    """Return a placed job's packing as a solution with analytic bounds; `whole`: as if no group splits."""
    analytic = problems.bounds(problem, whole=whole)
    searched = len(analytic) - (not fragmentation) - (not fragmentation and not problem.follows)
    return Solution(packing, problems.measure(problem, packing), analytic, searched, analytic, problem.min_split)


def solve_in_one_tree(
    trees: Sequence[PlacementProblem], options: Options, *, fragmentation: bool
) -> tuple[int, Solution[Packing] | None]:
    """Place a job in each tree that has room for it; return the best one's index, and its solution bounded over all."""
    # The problem of a tree is that of the cluster with all other trees taken.
    if len(trees) == 1:
        return 0, solve(trees[0], options, fragmentation=fragmentation)
    deadline, solutions = Deadline(options.time_limit), dict[int, Solution[Packing]]()
    left_part_free = [problems.part_free(tree, [0] * len(tree.leaves)) for tree in trees]
    for at, tree in enumerate(trees):
        limit = None if deadline.limit is None else deadline.limit / (len(trees) - at)
        solution = solve(tree, replace(options, time_limit=limit), fragmentation=fragmentation)
        if solution is not None:
            # The part-free leaves of the other trees stay as they are, and count too.
            elsewhere = sum(left_part_free) - left_part_free[at]
            rows = solution.values, solution.bounds, solution.analytic
            values, lower, analytic = ((*row[:-1], row[-1] + elsewhere) for row in rows)
            solutions[at] = replace(solution, values=values, bounds=lower, analytic=analytic)
    best = min(solutions, key=lambda index: (solutions[index].values, index))
    every = list(solutions.values())
    # Each level is bounded by the trees that may tie in all levels before. One that is not proven at a level, or may
    # be better there than is known, bounds no later level.
    bounds, alive, open_ended = list[int](), every, False
    for level, value in enumerate(solutions[best].values):
        bounds.append(0 if open_ended else min((solution.bounds[level] for solution in alive), default=value))
        alive = [solution for solution in alive if solution.bounds[level] <= value]
        open_ended = open_ended or any(solution.values[level] != solution.bounds[level] for solution in alive)
    return best, replace(
        solutions[best],
        bounds=tuple(bounds),
        analytic=tuple(map(min, solutions[best].analytic, bounds)),
        min_split=min(solution.min_split for solution in every),
        deadline=deadline,
        variables=sum(solution.variables for solution in every),
        constraints=sum(solution.constraints for solution in every),
        interrupted=any(solution.interrupted for solution in every),
    )


def rank(
    problem: PlacementProblem,
    packing: Packing,
    order: Iterable[Slot],
    units: Sequence[Sequence[tuple[str, ...]]],
    blocks: Callable[[int], Sequence[int]] | None = None,
) -> tuple[str, ...]:
    """Return a placed job's nodes by rank: groups in an order, of the free `units` of each leaf in theirs.

    With `blocks`, the number of each free segment's block in a leaf, pieces stay within blocks as far as they can.
    """
    following = [0] * len(units)
    queue = list[list[Pieces]]()  # of each kind its groups in rank order
    for kind, own in enumerate(problem.kinds):
        groups: list[Pieces] = [((i, own.size),) for i, k in packing.whole.elements() if k == kind]
        by_pod: dict[int, list[Pieces]] = {}
        across: list[Pieces] = []
        for pieces in sorted(groups + [pieces for k, pieces in packing.split if k == kind]):
            pods = {problem.leaves[i].pod for i, _ in pieces}
            (by_pod.setdefault(pods.pop(), []) if len(pods) == 1 else across).append(pieces)
        queue.append(problems.in_lines(by_pod, problem.line) + across)
    every = [piece for kind in queue for pieces in kind for piece in pieces]
    chosen = {} if blocks is None else _within_blocks(every, blocks)
    orders = [iter(kind) for kind in queue]
    by_rank: dict[int, str] = {}
    for slot in order:
        nodes: list[str] = []
        for i, amount in next(orders[slot.kind]):
            taken = chosen[i, amount].pop() if (i, amount) in chosen else range(following[i], following[i] + amount)
            for at in taken:
                nodes.extend(units[i][at])
            following[i] += amount
        by_rank.update(zip(slot.ranks, nodes, strict=True))
    return tuple(by_rank[at] for at in range(len(by_rank)))


def _within_blocks(pieces: Sequence[Piece], blocks: Callable[[int], Sequence[int]]) -> dict[Piece, list[list[int]]]:
    """Choose free segments for each leaf's pieces of a job: pieces are placed on its blocks as groups on leaves."""
    by_leaf: dict[int, Counter[int]] = {}
    for i, units in pieces:
        by_leaf.setdefault(i, Counter())[units] += 1
    chosen: dict[Piece, list[list[int]]] = {}
    for i, sizes in by_leaf.items():
        free: dict[int, list[int]] = {}
        for at, block in enumerate(blocks(i)):
            free.setdefault(block, []).append(at)
        if len(free) < 2:
            continue
        segments = list(free.values())
        kinds = tuple(problems.Kind(size, times) for size, times in sorted(sizes.items()))
        leaves = tuple(problems.Leaf((), len(block), len(block)) for block in segments)
        inner = greedy(PlacementProblem(leaves=leaves, kinds=kinds, line=1, follows=False))
        whole = [(k, ((block, kinds[k].size),)) for block, k in sorted(inner.whole.elements())]
        for k, parts in whole + inner.split:
            taken = [segments[block].pop(0) for block, count in parts for _ in range(count)]
            chosen.setdefault((i, kinds[k].size), []).append(taken)
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order in which to place a job's ranks: nodes of consecutive groups, and of the members of each group."""

    groups: tuple[int, ...]
    member: int = 1


@dataclass(frozen=True, slots=True)
class Chosen:
    """A job placed in node-name order: nodes taken of each leaf, members cut, groups split, and extra pieces."""

    taken: tuple[int, ...]
    values: tuple[int, int, int]
    proved: bool = True


def fewest_cuts(free: Sequence[int], order: Order, deadline: Deadline | None = None) -> Chosen | None:
    """Place a job's ranks in node-name order with the fewest cuts: nodes of each leaf; None where too few are free."""
    # Where time runs out they are the first that are free, and nothing is proven of them.
    nodes, weight = sum(order.groups), len(free) + 1
    if sum(free) < nodes:
        return None
    inside = np.ones(nodes + 1, dtype=bool)  # a group goes on there
    inside[[0, *accumulate(order.groups)]] = False
    within = np.ones(nodes + 1, dtype=bool)  # a member goes on; a group of no whole member ends in a shorter one
    for end, size in zip(accumulate(order.groups), order.groups, strict=True):
        within[end - size : end : order.member] = False
    within[nodes] = False
    ranks = np.arange(nodes + 1)
    # Where the group and the member under way begin: a cut behind that has cut them already.
    group, member = (np.where(on, np.maximum.accumulate(np.where(on, 0, ranks)), nodes) for on in (inside, within))
    first_cut = inside * (1 + weight) + within * weight**2

    def cost(by: Places, to: Places) -> NDArray[np.int64]:
        """Return the cost of cuts of a job's rank order at `to` that each follow a cut at `by`."""
        known = weight * (ranks[by] > group[to]) + weight**2 * (ranks[by] > member[to])
        total: NDArray[np.int64] = first_cut[to] - known
        return total

    def chosen(taken: Sequence[int], total: int, *, proved: bool) -> Chosen:
        return Chosen(tuple(taken), (total // weight**2, total // weight % weight, total % weight), proved)

    costs = np.full(nodes + 1, NEVER)
    costs[0] = used = 0
    left, choices = sum(free), list[tuple[int, NDArray[np.int64]]]()
    for room in free:
        if deadline is not None and deadline.passed:
            taken = np.diff(np.minimum(np.cumsum([0, *free]), nodes))
            ends = np.unique([0, *np.cumsum(taken)])
            return chosen(taken.tolist(), int(cost(ends[:-1], ends[1:]).sum()), proved=False)
        left, used = left - room, used + room
        low, high = max(0, nodes - left), min(nodes, used)
        best, number = np.full(nodes + 1, NEVER), np.zeros(high + 1 - low, dtype=np.int64)
        best[low : high + 1] = costs[low : high + 1]
        for count in range(1, room + 1):
            first = max(low, count)
            if first > high:
                break
            by, to = slice(first - count, high + 1 - count), slice(first, high + 1)
            found = costs[by] + cost(by, to)
            better = found < best[to]
            best[to][better] = found[better]
            number[first - low :][better] = count
        costs = best
        choices.append((low, number))
    at, counts = nodes, list[int]()
    for low, number in reversed(choices):  # followed back from the last leaf
        counts.append(int(number[at - low]))
        at -= counts[-1]
    return chosen(counts[::-1], int(costs[nodes]), proved=True)
