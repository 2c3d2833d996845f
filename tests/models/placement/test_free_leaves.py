"""What a job leaves behind: as few leaves part-free as any placement that is as good before that, and proven so."""

import random

import pytest

from planner.models.placement.placement_problem import Kind, Leaf, PlacementProblem, names, part_free, used
from planner.models.placement.solve import solve
from planner.models.requests import Options
from planner.solvers.outcome import Stop


def half_free(seed: int, sizes: tuple[int, ...]) -> PlacementProblem:
    """Return 64 leaves of 16 nodes in eight pods, a fifth of them busy, and groups that take half of what is free."""
    r = random.Random(seed)
    leaves = tuple(Leaf((i // 8,), sum(r.random() > 0.2 for _ in range(16)), 16) for i in range(64))
    half = sum(leaf.free for leaf in leaves) // 2
    kinds = tuple(Kind(g, half // len(sizes) // g) for g in sizes)
    return PlacementProblem(leaves=leaves, kinds=kinds, line=sum(k.count for k in kinds))


@pytest.mark.parametrize("sizes", [(8,), (12, 5), (9, 4, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_fragmentation_is_proven(seed: int, sizes: tuple[int, ...]) -> None:
    """The last level meets its bound, is no worse than best fit's, and is what the leaves show."""
    q = half_free(seed, sizes)
    best_fit, searched = (solve(q, Options(time_limit=100.0), fragmentation=f).solution for f in (False, True))
    assert best_fit is not None and searched is not None
    assert names(q)[-1] == "leaves left part-free"
    assert searched.values == searched.bounds
    assert searched.values[:-1] == best_fit.values[:-1] and searched.values[-1] <= best_fit.values[-1]
    assert searched.values[-1] == part_free(q, used(q, searched.packing))


def test_a_bound_is_given_where_it_is_not_searched() -> None:
    """Best fit leaves more part-free than needed here; its bound is valid, and no proof is claimed of it."""
    q = half_free(0, (12, 5))
    best_fit, searched = (solve(q, Options(time_limit=100.0), fragmentation=f) for f in (False, True))
    assert best_fit.solution is not None and searched.solution is not None
    assert best_fit.stop is Stop.PROVED and best_fit.solution.searched == len(names(q)) - 1
    assert best_fit.solution.bounds[-1] <= searched.solution.values[-1] < best_fit.solution.values[-1]
