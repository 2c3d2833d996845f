"""Ranks by node name: as few members, groups and pieces cut as by any choice of nodes, by two other ways to find it."""

import itertools
import random
from collections.abc import Sequence

import pytest
from ortools.sat.python import cp_model

from planner.models.placement.rank_order import Order, fewest_cuts
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
        if sum(taken) == order.nodes
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
    """Every level is that of the best choice of nodes, and the nodes that are named make it."""
    free, order = random_case(seed, 4 + seed % 2, 5)
    chosen = fewest_cuts(free, order)
    if sum(free) < order.nodes:
        assert chosen is None
        return
    assert chosen is not None and all(t <= f for t, f in zip(chosen.taken, free, strict=True))
    on = [leaf for leaf, t in enumerate(chosen.taken) for _ in range(t)]
    assert chosen.values == counted(order, on) == brute_force(free, order)
    hasty = fewest_cuts(free, order, Deadline(0.0))
    assert hasty is not None and not hasty.proved
    assert hasty.values == counted(order, [leaf for leaf, t in enumerate(hasty.taken) for _ in range(t)])


@pytest.mark.parametrize("member", [1, 2, 4])
def test_a_group_that_every_leaf_cuts(member: int) -> None:
    """One node a leaf: as many pieces as leaves, and every member of more than one node is cut."""
    order = Order(groups=(4,), member=member)
    chosen = fewest_cuts((1, 1, 1, 1), order)
    assert chosen is not None
    assert chosen.values == (4 // member if member > 1 else 0, 1, 3)


def by_cpsat(free: Sequence[int], size: int, nodes: int) -> tuple[int, int]:
    """Minimize split groups, then pieces, of equal groups by CP-SAT: prefix sums, remainders, and first cuts."""
    model, leaves = cp_model.CpModel(), range(len(free))
    take = [model.new_int_var(0, f, f"take{i}") for i, f in enumerate(free)]
    model.add(sum(take) == nodes)
    cuts, firsts = [], []
    last_group: cp_model.LinearExprT = -1
    for i in leaves:
        before = model.new_int_var(0, nodes, f"before{i}")
        model.add(before == sum(take[:i]))
        rest, group = model.new_int_var(0, size - 1, f"rest{i}"), model.new_int_var(0, nodes, f"group{i}")
        model.add(before == size * group + rest)
        used, inside, cut = (model.new_bool_var(f"{name}{i}") for name in ("used", "inside", "cut"))
        model.add(take[i] > 0).only_enforce_if(used)
        model.add(take[i] == 0).only_enforce_if(used.negated())
        model.add(rest > 0).only_enforce_if(inside)
        model.add(rest == 0).only_enforce_if(inside.negated())
        model.add_bool_and(used, inside).only_enforce_if(cut)
        model.add_bool_or(used.negated(), inside.negated()).only_enforce_if(cut.negated())
        first = model.new_bool_var(f"first{i}")
        model.add(group != last_group).only_enforce_if(first)
        same = model.new_bool_var(f"same{i}")
        model.add(group == last_group).only_enforce_if(same)
        model.add_bool_or(cut.negated(), first, same)
        following = model.new_int_var(-1, nodes, f"last{i}")
        model.add(following == group).only_enforce_if(cut)
        model.add(following == last_group).only_enforce_if(cut.negated())
        last_group = following
        cuts.append(cut)
        counts = model.new_bool_var(f"counts{i}")
        model.add_bool_or(cut.negated(), same, counts)
        firsts.append(counts)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    model.minimize((len(free) + 1) * sum(firsts) + sum(cuts))
    assert solver.solve(model) == cp_model.OPTIMAL
    return divmod(round(solver.objective_value), len(free) + 1)


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_another_solver(seed: int) -> None:
    """A dozen leaves of up to sixteen nodes: CP-SAT on a formulation of its own proves the same minimum."""
    r = random.Random(seed)
    free = [r.randint(4, 16) for _ in range(10)]
    size = r.choice([3, 5, 7, 13])
    nodes = int(sum(free) * r.choice([0.7, 0.9, 1.0])) // size * size
    chosen = fewest_cuts(free, Order(groups=(size,) * (nodes // size)))
    assert chosen is not None and chosen.values[1:] == by_cpsat(free, size, nodes)


def test_more_leaves_never_cut_more() -> None:
    """A leaf more, wherever it stands by name, leaves the minimum no worse."""
    for seed in range(60):
        free, order = random_case(seed, 6, 6)
        chosen = fewest_cuts(free, order)
        if chosen is not None:
            r = random.Random(seed)
            free.insert(r.randint(0, 6), r.randint(1, 6))
            more = fewest_cuts(free, order)
            assert more is not None and more.values <= chosen.values
