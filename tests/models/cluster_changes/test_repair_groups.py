"""Units that groups miss, served from free ones: agreement with all ways there are."""

import itertools
import random

import pytest
from cluster_cases import ways

from planner.models.placement.cluster_changes import IncompleteGroup, _nearest, cost, repair
from planner.models.placement.placement_problem import Leaf
from planner.models.requests import Options


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
    outcome, best = repair(leaves, groups, Options()), best_fill(leaves, groups)
    assert outcome.infeasible == (best is None)
    if outcome.solution is not None:
        f = outcome.solution
        assert f.values == f.bounds == best == cost(leaves, groups, f.taken)
        assert all(sum(n for (g, _), n in f.taken.items() if g == h) == groups[h].missing for h in range(len(groups)))


def test_a_first_repair_looks_near_before_it_looks_wide() -> None:
    """A group takes from its own leaf, then its pod, then the freer leaf of pod 1; one of no leaf from the freest."""
    leaves = (Leaf((0,), 1, 6), Leaf((0,), 2, 6), Leaf((1,), 5, 6))
    assert _nearest(leaves, [IncompleteGroup(frozenset({0}), 3)]) == {(0, 0): 1, (0, 1): 2}
    assert _nearest(leaves, [IncompleteGroup(frozenset({0}), 4)]) == {(0, 0): 1, (0, 1): 2, (0, 2): 1}
    assert _nearest(leaves, [IncompleteGroup(frozenset(), 4)]) == {(0, 2): 4}
