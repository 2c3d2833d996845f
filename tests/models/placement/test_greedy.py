"""Chains gathered in pods: leaves exchange what they hold, and nothing is lost or made."""

import random
from collections import Counter

from planner.models.placement.place_job import best_fit, greedy
from planner.models.placement.placement_levels import Exchange
from planner.models.placement.placement_problem import Kind, Leaf, Packing, PlacementProblem


def used(q: PlacementProblem, packing: Packing, i: int) -> int:
    return sum(n * q.kinds[k].size for (leaf, k), n in packing.whole.items() if leaf == i)


def test_holes_of_two_pods_meet_in_one() -> None:
    """Two holes of 2 in leaves of different pods come together by one exchange of leaves that have equal room."""
    q = PlacementProblem(leaves=tuple(Leaf((i // 2,), 6, 6) for i in range(4)), kinds=(Kind(4, 3), Kind(6, 2)), line=5)
    packing = Packing(whole=Counter({(0, 0): 1, (1, 1): 1, (2, 0): 1, (3, 1): 1}))
    pieces = Exchange(q, packing, {2: [0, 2], 0: [1, 3]}).gather(Counter({2: 2}))
    assert pieces is not None
    assert len({q.leaves[i].pod for i, _ in pieces}) == 1
    assert all(q.leaves[i].free - used(q, packing, i) == 2 for i, _ in pieces)
    assert Counter(k for (_, k), n in packing.whole.items() for _ in range(n)) == {0: 2, 1: 2}


def test_a_pod_too_small_holds_no_chain() -> None:
    q = PlacementProblem(leaves=tuple(Leaf((i // 2,), 6, 6) for i in range(4)), kinds=(Kind(4, 5),), line=5)
    packing = Packing(whole=Counter({(i, 0): 1 for i in range(4)}))
    assert Exchange(q, packing, {2: [0, 1, 2, 3]}).gather(Counter({2: 3})) is None


def test_nothing_is_lost_or_made() -> None:
    """On random clusters every hole that is given is there, each leaf is given once, and the rest keeps its holes."""
    for seed in range(60):
        r = random.Random(seed)
        q = PlacementProblem(
            leaves=tuple(Leaf((i // 4,), r.randint(4, 6), 6) for i in range(16)),
            kinds=(Kind(2, 40), Kind(1, 1)),
            line=41,
        )
        whole = Counter({(i, 0): r.randint(0, leaf.free // 2) for i, leaf in enumerate(q.leaves)})
        packing, before = Packing(whole=whole), whole.total()
        holes: dict[int, list[int]] = {}
        for i, leaf in enumerate(q.leaves):
            holes.setdefault(leaf.free - 2 * whole[i, 0], []).append(i)
        exchange = Exchange(q, packing, {c: list(leaves) for c, leaves in holes.items() if c})
        sizes = [c for c, leaves in holes.items() for _ in leaves if c]
        chains = (
            [Counter(r.sample(sizes, 2)) for _ in range(3)]
            if len(sizes) > 5 and len(set(sizes)) == 1
            else [Counter(sizes[:2])]
        )
        given = [piece for wanted in chains for piece in exchange.gather(wanted) or []]
        rest = [(i, c) for c, leaves in exchange.rest().items() for i in leaves]
        assert len({i for i, _ in given + rest}) == len(given) + len(rest) == len(sizes)
        assert all(q.leaves[i].free - used(q, packing, i) == c for i, c in given + rest)
        assert packing.whole.total() == before


def test_part_used_leaves_are_filled_before_free_ones() -> None:
    """A group of four and one of two: of leaves with as much room a part-used one, and the smallest that is enough."""
    # The group of two goes into the part-used leaf of three, not into the free one, and none of two is left.
    leaves = (Leaf((0,), 4, 4), Leaf((0,), 4, 9), Leaf((0,), 3, 3), Leaf((0,), 3, 9), Leaf((0,), 5, 9))
    q = PlacementProblem(leaves=leaves, kinds=(Kind(2, 1), Kind(4, 1)), line=2)
    placed, left = best_fit(q, range(5), [1, 1])
    assert (dict(placed), left) == ({(1, 1): 1, (3, 0): 1}, [0, 0])
    placed, left = best_fit(q, range(5), [0, 4])
    assert (dict(placed), left) == ({(1, 1): 1, (0, 1): 1, (4, 1): 1}, [0, 1])


def test_the_rest_goes_to_the_fullest_pod_that_holds_it() -> None:
    """Pods of six, four and nine units: groups of six in one pod alone; of thirteen units the roomiest fills first."""
    # Then the four units that are left go to the pod of four.
    leaves = (Leaf((0,), 6, 6), Leaf((1,), 4, 4), Leaf((2,), 9, 9))
    one = greedy(PlacementProblem(leaves=leaves, kinds=(Kind(2, 2), Kind(1, 2)), line=4))
    assert {q for q, _ in one.whole} == {0} and not one.split
    two = greedy(PlacementProblem(leaves=leaves, kinds=(Kind(3, 3), Kind(2, 2)), line=5))
    assert dict(two.whole) == {(2, 0): 3, (1, 1): 2} and not two.split
