"""Chains gathered in pods: leaves exchange what they hold, and nothing is lost or made."""

import random
from collections import Counter

from planner.models.placement.first_packing import Exchange, best_fit
from planner.models.placement.placement_problem import Kind, Leaf, Packing, PlacementProblem


def used(q: PlacementProblem, packing: Packing, i: int) -> int:
    return sum(n * q.kinds[k].size for (leaf, k), n in packing.whole.items() if leaf == i)


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
        rest = [(i, c) for at in exchange.rest().values() for c, leaves in at.items() for i in leaves]
        assert len({i for i, _ in given + rest}) == len(given) + len(rest) == len(sizes)
        assert all(q.leaves[i].free - used(q, packing, i) == c for i, c in given + rest)
        assert packing.whole.total() == before


def test_part_used_leaves_are_filled_before_free_ones() -> None:
    """A group of four and one of two: of leaves with as much room a part-used one, and the smallest that is enough.

    The group of two goes into the part-used leaf of three, not into the free one, and none of two is left.
    """
    leaves = (Leaf((0,), 4, 4), Leaf((0,), 4, 9), Leaf((0,), 3, 3), Leaf((0,), 3, 9), Leaf((0,), 5, 9))
    q = PlacementProblem(leaves=leaves, kinds=(Kind(2, 1), Kind(4, 1)), line=2)
    placed, left = best_fit(q, range(5), [1, 1])
    assert (dict(placed), left) == ({(1, 1): 1, (3, 0): 1}, [0, 0])
    placed, left = best_fit(q, range(5), [0, 4])
    assert (dict(placed), left) == ({(1, 1): 1, (0, 1): 1, (4, 1): 1}, [0, 1])
