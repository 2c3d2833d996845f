"""Ranks by node name: as few members, groups and pieces cut as by any choice of nodes; segments of blocks."""

import itertools
import random
from collections.abc import Sequence

import pytest

from planner.models.placement.place_job import Order, _within_blocks, fewest_cuts
from planner.solvers.signals import Deadline

Cost = tuple[int, int, int]


def counted(order: Order, leaf_of_rank: Sequence[int]) -> Cost:
    """Count members on several leaves, groups on several, and pieces beyond one a group."""
    members = groups = extra = first = 0
    for size in order.groups:
        on = leaf_of_rank[first : first + size]
        groups += len(set(on)) > 1
        extra += len(set(on)) - 1
        members += sum(len(set(on[i : i + order.member])) > 1 for i in range(0, size, order.member))
        first += size
    return members, groups, extra


def brute_force(free: Sequence[int], order: Order) -> Cost:
    """Try every number of nodes of every leaf."""
    return min(
        counted(order, [leaf for leaf, t in enumerate(taken) for _ in range(t)])
        for taken in itertools.product(*(range(f + 1) for f in free))
        if sum(taken) == sum(order.groups)
    )


def random_case(seed: int, leaves: int, most: int) -> tuple[list[int], Order]:
    r = random.Random(seed)
    free = [r.randint(0, most) for _ in range(leaves)]
    member = r.choice([1, 1, 2, 3])
    groups, left = list[int](), r.randint(1, max(1, sum(free)))
    equal = r.choice([None, r.randint(1, most)])
    while left >= member:
        size = min(equal or r.randint(1, most), left // member) * member
        if not 0 < size <= left:
            break
        groups.append(size)
        left -= size
    return free, Order(groups=tuple(groups) or (1,), member=member if groups else 1)


@pytest.mark.parametrize("seed", range(300))
def test_agrees_with_brute_force(seed: int) -> None:
    free, order = random_case(seed, 4 + seed % 2, 5)
    chosen = fewest_cuts(free, order)
    if sum(free) < sum(order.groups):
        assert chosen is None
        return
    assert chosen is not None and all(t <= f for t, f in zip(chosen.taken, free, strict=True))
    on = [leaf for leaf, t in enumerate(chosen.taken) for _ in range(t)]
    assert chosen.values == counted(order, on) == brute_force(free, order)
    hasty = fewest_cuts(free, order, Deadline(0.0))
    assert hasty is not None and not hasty.proved
    assert hasty.values == counted(order, [leaf for leaf, t in enumerate(hasty.taken) for _ in range(t)])


def test_pieces_take_the_first_free_segments_of_one_block_in_order() -> None:
    """Two pieces of two on blocks of three and two: each in a block of its own, its segments ascending."""
    numbers = [7, 8, 7, 8, 7]
    chosen = _within_blocks([(0, 2), (0, 2)], lambda _: numbers)
    taken = sorted(chosen[0, 2])
    assert taken == [[0, 2], [1, 3]]


def test_a_leaf_of_one_block_leaves_the_choice_to_the_order() -> None:
    assert _within_blocks([(0, 2)], lambda _: [4, 4, 4]) == {}
