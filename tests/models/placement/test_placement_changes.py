"""Leaves made free, jobs to stop and units that groups miss: as good as the best of all ways, by plain loops."""

import itertools
import random
from collections import Counter
from functools import cache

import pytest
from cluster_cases import ways

from planner.models import Options
from planner.models.placement import placement_changes
from planner.models.placement.placement_changes import (
    IncompleteGroup,
    LeafBlock,
    LeafLoad,
    cost,
    in_order,
    minimize_stop_cost,
    repair,
)
from planner.models.placement.placement_problem import Kind, Leaf


def drawn(seed: int) -> tuple[LeafLoad, ...]:
    """Draw a few leaves of up to six nodes, with nodes that stay, and pieces of one to three."""
    r = random.Random(seed)
    leaves = []
    for _ in range(r.randint(2, 4)):
        size, pieces = r.randint(3, 6), []
        fixed = r.choice([0, 0, 0, 1, 2])
        while (piece := r.randint(1, 3)) <= size - fixed - sum(pieces) and r.random() < 0.6:
            pieces.append(piece)
        leaves.append(LeafLoad(size, fixed, tuple(pieces)))
    return tuple(leaves)


def played(leaves: tuple[LeafLoad, ...], pieces: list[tuple[int, int]], steps: list[tuple[int, int]]) -> list[int]:
    """Make the moves one after another, each into nodes that are free by then; return where the pieces are at last."""
    free, at = [leaf.size - leaf.fixed - sum(leaf.pieces) for leaf in leaves], [i for i, _ in pieces]
    for piece, to in steps:
        assert to != at[piece] and free[to] >= pieces[piece][1]
        free[at[piece]] += pieces[piece][1]
        free[to] -= pieces[piece][1]
        at[piece] = to
    return at


@pytest.mark.parametrize("seed", range(30))
def test_moves_find_their_nodes_free(seed: int) -> None:
    """Pieces sent to any leaves that hold them all at the end get there, each move into free nodes, or no order is."""
    r, leaves = random.Random(seed), drawn(seed)
    pieces = [(i, n) for i, leaf in enumerate(leaves) for n in leaf.pieces]
    for _ in range(20):
        ends = [r.randrange(len(leaves)) for _ in pieces]
        held = Counter({i: leaf.fixed for i, leaf in enumerate(leaves)})
        for to, (_, n) in zip(ends, pieces, strict=True):
            held[to] += n
        if any(held[i] > leaf.size for i, leaf in enumerate(leaves)):
            continue
        targets = {p: to for p, (to, (i, _)) in enumerate(zip(ends, pieces, strict=True)) if to != i}
        steps = in_order(leaves, pieces, targets)
        if steps is not None:
            assert played(leaves, pieces, steps) == ends


def test_two_pieces_change_places_by_a_detour() -> None:
    """On full leaves of two nodes two pieces trade places by way of a third leaf; the smaller makes the detour."""
    # Without room elsewhere there is no order; a move that waits for another goes after it.
    a, b, spare = LeafLoad(2, 0, (2,)), LeafLoad(2, 0, (2,)), LeafLoad(2, 0, ())
    pieces = [(0, 2), (1, 2)]
    steps = in_order((a, b, spare), pieces, {0: 1, 1: 0})
    assert steps is not None and len(steps) == 3
    assert played((a, b, spare), pieces, steps) == [1, 0]
    assert in_order((a, b), pieces, {0: 1, 1: 0}) is None
    assert in_order((a, b, LeafLoad(3, 2, ())), pieces, {0: 1, 1: 0}) is None
    assert in_order((a, b, spare), pieces, {0: 1, 1: 2}) == [(1, 2), (0, 1)]
    small = LeafLoad(3, 0, (1, 2)), LeafLoad(3, 0, (3,)), LeafLoad(3, 2, ())
    assert in_order(small, [(0, 1), (0, 2), (1, 3)], {0: 2}) == [(0, 2)]


Preempting = tuple[list[LeafBlock], tuple[Kind, ...], int, tuple[int, ...], int]  # as `minimize_stop_cost` takes them


def fits(q: Preempting, stopped: tuple[int, ...]) -> bool:
    """Say whether all groups fit, no more of them split than may be, by trying every leaf for every group."""
    (blocks, kinds, segment, _, splits), room = q, Counter[int]()  # whole segments of each block, by leaf
    for b in blocks:
        room[b.leaf] += (b.free + sum(b.owned.get(r, 0) for r in stopped)) // segment
    sizes = [k.size for k in kinds for _ in range(k.count)]

    @cache
    def most_whole(at: int, free: tuple[int, ...]) -> int:
        if at == len(sizes):
            return 0
        best = most_whole(at + 1, free)
        for i, n in enumerate(free):
            if n >= sizes[at]:
                best = max(best, 1 + most_whole(at + 1, (*free[:i], n - sizes[at], *free[i + 1 :])))
        return best

    whole = most_whole(0, tuple(room.values()))
    return sum(room.values()) >= sum(sizes) and len(sizes) - whole <= splits


def random_problem(seed: int) -> Preempting:
    """Return up to five blocks of three leaves, jobs on some of them, and one or two kinds of groups."""
    r = random.Random(seed)
    jobs = r.randint(1, 4)
    blocks = []
    for _ in range(r.randint(1, 5)):
        leaf, free = r.randint(0, 2), r.randint(0, 4)
        blocks.append(LeafBlock(leaf, free, {j: r.randint(1, 4) for j in r.sample(range(jobs), r.randint(0, jobs))}))
    kinds = tuple(Kind(n, r.randint(1, 2)) for n in r.sample(range(1, 6), r.randint(1, 2)))
    costs, segment = tuple(r.choice([0, 0, 1, 5, 9]) for _ in range(jobs)), r.choice([1, 1, 2])
    return blocks, kinds, segment, costs, r.randint(0, 2)


@pytest.mark.parametrize("seed", range(80))
def test_stops_agree_with_brute_force(seed: int) -> None:
    q = random_problem(seed)
    costs = q[3]
    sets = itertools.chain.from_iterable(itertools.combinations(range(len(costs)), n) for n in range(len(costs) + 1))
    best = min(((sum(costs[r] for r in s), len(s)) for s in sets if fits(q, s)), default=None)
    outcome = minimize_stop_cost(*q, Options())
    assert outcome.proved and outcome.infeasible == (best is None)
    assert (outcome.solution is None) == (best is None)
    if outcome.solution is not None:
        assert fits(q, outcome.solution)
        assert outcome.objective == outcome.bound == sum(costs[r] for r in outcome.solution) == best[0]
        assert len(outcome.solution) == best[1]


def short_case(seed: int) -> tuple[tuple[Leaf, ...], tuple[IncompleteGroup, ...]]:
    """Return a few leaves and groups that miss a few units."""
    r = random.Random(seed)
    leaves = tuple(Leaf((r.randint(0, 1),), r.randint(0, 3), 6) for _ in range(r.randint(2, 4)))
    groups = tuple(
        IncompleteGroup(frozenset(r.sample(range(len(leaves)), r.randint(0, 2))), r.randint(1, 3))
        for _ in range(r.randint(1, 3))
    )
    return leaves, groups


def best_fill(leaves: tuple[Leaf, ...], groups: tuple[IncompleteGroup, ...]) -> tuple[int, int, int] | None:
    """Return the least cost over all ways to serve the groups."""
    best = None
    for each in itertools.product(*(list(ways(tuple(leaf.free for leaf in leaves), g.missing)) for g in groups)):
        if all(sum(way[i] for way in each) <= leaf.free for i, leaf in enumerate(leaves)):
            on = [set(g.stays) | {i for i, n in enumerate(way) if n} for g, way in zip(groups, each, strict=True)]
            pods = [{leaves[i].path for i in own} for own in on]
            found = (sum(len(x) > 1 for x in on), sum(len(x) - 1 for x in on), sum(len(p) > 1 for p in pods))
            best = found if best is None else min(best, found)
    return best


@pytest.mark.parametrize("seed", range(120))
def test_missing_units_agree_with_brute_force(seed: int) -> None:
    leaves, groups = short_case(seed)
    f, best = repair(leaves, groups, Options()), best_fill(leaves, groups)
    assert (f is None) == (best is None)
    if f is not None:
        assert f.values == f.bounds == best == cost(leaves, groups, f.packing)
        assert all(sum(n for (g, _), n in f.packing.items() if g == h) == groups[h].missing for h in range(len(groups)))


def test_a_first_repair_looks_near_before_it_looks_wide() -> None:
    """A group takes from its own leaf, then its pod, then the freer leaf of pod 1; one of no leaf from the freest."""
    leaves = (Leaf((0,), 1, 6), Leaf((0,), 2, 6), Leaf((1,), 5, 6))
    for stays, missing, taken in (
        ({0}, 3, {(0, 0): 1, (0, 1): 2}), ({0}, 4, {(0, 0): 1, (0, 1): 2, (0, 2): 1}), (set(), 4, {(0, 2): 4}),
    ):  # fmt: skip
        found = repair(leaves, [IncompleteGroup(frozenset(stays), missing)], Options(time_limit=0.0))
        assert found is not None and found.packing == taken


def test_a_leaf_of_a_groups_own_is_searched_behind_all_others(monkeypatch) -> None:
    """Of leaves alike that no group has, one is searched for each missing unit, and in addition the group's own."""
    monkeypatch.setattr(placement_changes, "_nearest", lambda *_: {(0, 0): 1})
    solution = repair((Leaf((0,), 1, 6),) * 4, [IncompleteGroup(frozenset({3}), 1)], Options())
    assert solution.packing == {(0, 3): 1}
    assert solution.variables == 5  # split, across; units of leaf 0, whether it is a new piece; units of leaf 3
