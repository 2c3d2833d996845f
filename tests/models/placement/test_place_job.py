"""Jobs on one tree and on several, and ranks by node name: agreement with all ways there are, with bounds over all."""

import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from cluster_cases import best, cost, crowded_problem, on_one_line, placements, random_problem, replayed
from each_case import each
from ortools.sat.python import cp_model
from tiers import more

from planner.checks.placement import check_placement
from planner.cluster.job import Job, Slot
from planner.cluster.topology import Topology, TopologySwitch
from planner.models import Options
from planner.models.placement import place_job, placement_levels
from planner.models.placement.place_job import rank, solve, solve_in_one_tree
from planner.models.placement.placement_levels import LevelModel, improve
from planner.models.placement.placement_problem import (
    Kind,
    Leaf,
    Packing,
    PlacementProblem,
    Solution,
    names,
    part_free,
    used,
)
from planner.scheduling.warm_cluster import Cluster
from planner.solvers.outcome import Outcome, Stop


def found(q: PlacementProblem, options: Options | None = None) -> Solution[Packing]:
    solution = solve(q, options or Options())
    assert solution is not None
    return solution


CASES = [
    *((random_problem, seed, 1) for seed in range(150)),
    *((crowded_problem, seed, tiers) for tiers in (3, 2) for seed in range(16)),
    *((random_problem, seed, 2) for seed in range(150)),
    *((crowded_problem, seed, 1) for seed in range(16)),
]
MORE = [(crowded_problem, seed, tiers) for tiers in (1, 2, 3) for seed in range(16, 40)]


@pytest.mark.parametrize(("drawn", "seed", "tiers"), [*CASES, *more(*MORE)])
def test_agrees_with_brute_force(drawn: Any, seed: int, tiers: int) -> None:
    q = drawn(seed, tiers=tiers)
    f = found(q, Options(solver=(None, "highs", "cpsat")[seed % 3]))
    assert f.values == replayed(q, f) == best(q)
    assert f.bounds == f.values


@pytest.mark.parametrize(("sizes", "seed"), [((8, 6), 0), ((16, 12, 8), 1), ((13,), 2)])
def test_a_full_cluster_is_proven_pod_by_pod(sizes: tuple[int, ...], seed: int) -> None:
    """64 leaves in four pods, all nodes taken: more groups cross pods than the closed form has, and no fewer could."""
    r = random.Random(seed)
    leaves = tuple(Leaf((i // 16,), sum(r.random() > 0.15 for _ in range(16)), 16) for i in range(64))
    need = sum(leaf.free for leaf in leaves)
    counts = [need // len(sizes) // g for g in sizes[:-1]]
    counts.append((need - sum(n * g for n, g in zip(counts, sizes, strict=False))) // sizes[-1])
    q = replace(on_one_line(leaves, map(Kind, sizes, counts)), follows=False)
    f = solve(q, Options(time_limit=100.0), fragmentation=False)
    assert f is not None and f.outcome().proved
    assert f.values[:3] == f.bounds[:3] and f.values[2] > f.analytic[2]


@pytest.mark.parametrize("seed", range(400, 440))
def test_no_time_still_places(seed: int) -> None:
    q = random_problem(seed, tiers=1 + seed % 2)
    f = found(q, Options(time_limit=0.0))
    assert f.values == replayed(q, f)
    assert all(b <= v for b, v in zip(f.bounds, best(q), strict=True))
    assert f.outcome().proved == (f.values == f.bounds)


@pytest.mark.parametrize("seed", range(3))
def test_chains_prove_the_pieces_of_a_full_cluster(seed: int) -> None:
    """With 99 % taken by groups of several sizes no closed form bounds the pieces; the flow of chains proves them."""
    r = random.Random(seed)
    leaves = tuple(Leaf((), r.randint(18, 29), 32) for _ in range(64))
    free = sum(leaf.free for leaf in leaves)
    kinds = tuple(Kind(n, int(0.99 * free / 4 / n)) for n in (16, 13, 8, 4))
    f = found(PlacementProblem(leaves=leaves, kinds=kinds, line=1), Options(time_limit=20))
    assert f.values[:2] == f.bounds[:2]
    assert f.values[1] > f.analytic[1]


# Most of these were called proven at one boundary too many: the model of the level excluded the best numbering.
@each(("free", "line", "lines", "least"), [
    ((5, 5), 2, 3, 0), ((3, 6, 5), 4, 3, 1), ((5, 4, 4), 2, 4, 0), ((5, 5, 5, 2), 3, 4, 1), ((3, 6, 3, 6), 4, 4, 2),
    ((4, 4), 3, 2, 0),
])  # fmt: skip
def test_no_bound_along_lines_is_false(free: tuple[int, ...], line: int, lines: int, least: int) -> None:
    """Over pods of known free nodes lines of one-node groups have no solver's bound above the best numbering."""
    leaves = tuple(Leaf((pod,), n, n) for pod, n in enumerate(free))
    q = PlacementProblem(leaves=leaves, kinds=(Kind(1, line * lines),), line=line)
    for solver in (None, "highs", "cpsat"):
        f = found(q, Options(solver=solver))
        assert f.bounds[3] <= least <= f.values[3]


def least_boundaries(q: PlacementProblem) -> int:
    """Return the fewest boundaries of every numbering of every placement that is best in the levels before."""
    ways = [(cost(q, placed), placed) for placed in placements(q)]
    first = min(c[: 2 + q.tiers] for c, _ in ways)
    least = q.groups
    for c, placed in ways:
        if c[: 2 + q.tiers] != first:
            continue
        pods = [frozenset(q.leaves[i].path[0] for i, n in enumerate(way) if n) for _, way in placed]
        for order in set(itertools.permutations(pods)):
            pairs = (order[i - 1] | order[i] for i in range(1, len(order)) if i % q.line)
            least = min(least, sum(len(p) > 1 for p in pairs))
    return least


@pytest.mark.parametrize("seed", [*range(40), *more(*range(40, 80))])
def test_no_bound_along_lines_of_larger_groups_is_false(seed: int) -> None:
    """Groups of several nodes on several leaves of a pod, some split, some across pods: bounds are below every way."""
    r = random.Random(seed)
    while True:
        leaves = tuple(Leaf((r.randrange(3),), r.randint(1, 4), 4) for _ in range(r.randint(2, 4)))
        q = PlacementProblem(leaves=leaves, kinds=(Kind(r.randint(1, 4), 4),), line=2)
        if q.need <= q.free:
            break
    least = least_boundaries(q)
    for solver in (None, "highs", "cpsat"):
        f = found(q, Options(solver=solver))
        assert f.values[:3] == f.bounds[:3] == best(q)[:3]
        assert f.bounds[3] <= least <= f.values[3]


@each(("solver", "outcome", "bound"), [
    ("cpsat", Outcome(stop=Stop.FAILED, bound=9.0), 0), ("highs", Outcome(stop=Stop.FAILED, infeasible=True), 0),
    ("cpsat", Outcome(stop=Stop.PROVED, infeasible=True), 0), ("highs", Outcome(stop=Stop.PROVED, infeasible=True), 4),
    ("cpsat", Outcome(stop=Stop.LIMIT), 0), ("cpsat", Outcome(stop=Stop.LIMIT, bound=2.1), 3),
    ("highs", Outcome(stop=Stop.LIMIT, bound=7.0), 4),
])  # fmt: skip
def test_a_run_proves_only_what_it_searched(solver, outcome, bound, monkeypatch) -> None:
    """A failure proves nothing, a contradiction no more than what was excluded (by HiGHS 4), and so does a bound."""
    model = cp_model.CpModel()
    level = LevelModel(model=model, goals=[model.new_int_var(0, 9, "x")], read=lambda _: (None, (4,)), usual="cpsat")
    monkeypatch.setattr(placement_levels, "linear_runner", lambda *_, **__: lambda _, **__: outcome)
    solution = Solution(None, (4,), (0,), 1)
    improve(solution, Options(solver=solver), lambda _: level)
    assert solution.bounds == (bound,)


def half_free(seed: int, sizes: tuple[int, ...]) -> PlacementProblem:
    """Return 64 leaves of 16 nodes in eight pods, a fifth of them busy, and groups that take half of what is free."""
    r = random.Random(seed)
    leaves = tuple(Leaf((i // 8,), sum(r.random() > 0.2 for _ in range(16)), 16) for i in range(64))
    half = sum(leaf.free for leaf in leaves) // 2
    return on_one_line(leaves, (Kind(g, half // len(sizes) // g) for g in sizes))


@pytest.mark.parametrize("sizes", [(8,), (12, 5), (9, 4, 2)])
@pytest.mark.parametrize("seed", [0, *more(1, 2)])
def test_fragmentation_is_proven(seed: int, sizes: tuple[int, ...]) -> None:
    q = half_free(seed, sizes)
    best_fit, searched = (solve(q, Options(time_limit=100.0), fragmentation=f) for f in (False, True))
    assert names(q)[-1] == "leaves left part-free"
    assert searched.values == searched.bounds
    assert searched.values[:-1] == best_fit.values[:-1]
    assert searched.values[-1] == part_free(q, used(q, searched.packing))
    assert best_fit.outcome().proved and best_fit.searched == len(names(q)) - 1  # the bound beyond is no proof
    assert best_fit.bounds[-1] <= searched.values[-1] <= best_fit.values[-1] - ((sizes, seed) == ((12, 5), 0))


@pytest.mark.parametrize(
    ("domain", "least"), [(128, (43, 171, 9)), (200, (108, 108, 0)), (208, (1, 47, 1)), (210, (4, 76, 3))]
)
def test_groups_of_racks_on_a_site(domain: int, least: tuple[int, int, int]) -> None:
    """224 groups of 103 racks on 23,200 racks: the domain's size fixes how many must split, and all is proven."""
    free = [min(domain, 23_200 - at) for at in range(0, 23_200, domain)]
    leaves = tuple(Leaf((i // 16,), units, domain) for i, units in enumerate(free))
    f = solve(on_one_line(leaves, [Kind(103, 224)]), Options(time_limit=100.0), fragmentation=False)
    assert f is not None and f.outcome().proved and f.values[:3] == f.bounds[:3] == least


def forest(seed: int) -> list[PlacementProblem]:
    """Return a small problem seen by each of two or three trees: the leaves of the others have nothing free."""
    r, kinds, parts = random.Random(seed), None, list[tuple[Leaf, ...]]()
    for i in range(r.randint(2, 3)):
        q = random_problem(1_000 * i + seed)
        kinds = kinds or q.kinds
        parts.append(tuple(replace(leaf, path=(leaf.path[0] + 10 * i,)) for leaf in q.leaves))
    seen = (
        tuple(leaf if t == own else replace(leaf, free=0) for t, part in enumerate(parts) for leaf in part)
        for own in range(len(parts))
    )
    return [on_one_line(leaves, kinds or ()) for leaves in seen]


@pytest.mark.parametrize("seed", range(60))
def test_the_best_tree_is_that_of_brute_force(seed: int) -> None:
    """Every level but the last, to which the other trees add what they have, is that of the best placement in any."""
    trees = forest(seed)
    at, f = solve_in_one_tree(trees, Options(), fragmentation=True)
    fits = [best(q)[:-1] for q in trees if q.need <= q.free]
    assert f is not None and f.outcome().proved and f.values[-1] == f.bounds[-1]
    assert f.values[:-1] == f.bounds[:-1] == min(fits) == best(trees[at])[:-1]


@each(("found", "least"), [
    ([((1, 5), (1, 4)), ((2, 0), (2, 0))], (1, 4)),  # the other tree cannot tie at the first level
    ([((1, 5), (1, 5)), ((2, 0), (1, 0))], (1, 0)),  # it may, as far as is known
    ([((1, 5), (1, 5)), ((2, 0), (0, 0))], (0, 0)),
    ([((1, 5), (1, 5)), ((1, 6), (1, 3))], (1, 3)),
])  # fmt: skip
def test_bounds_hold_over_all_trees(found, least, monkeypatch) -> None:
    """A tree that may still be better, or as good, keeps its say."""
    solutions = iter([Solution(Packing(), values, lower, 2, lower) for values, lower in found])
    monkeypatch.setattr(place_job, "solve", lambda *_, **__: next(solutions))
    trees = [PlacementProblem(leaves=(), kinds=(), line=1)] * len(found)
    at, f = solve_in_one_tree(trees, Options(), fragmentation=True)
    assert (at, f.values, f.bounds) == (0, (1, 5), least)


def test_a_job_that_leaves_its_tree_is_found() -> None:
    switches = (TopologySwitch(name="a", nodes=("n1", "n2")), TopologySwitch(name="b", nodes=("n3", "n4", "n5")))
    topology, job = Topology(switches=switches), Job(name="j", mesh={"data": 3})
    placed = Cluster(topology).place(job)
    assert placed.nodes == ("n3", "n4", "n5") and check_placement(topology, job, placed) == []
    busy = ["n5"]
    assert Cluster(topology).place(job, busy=busy).reason == "job 'j' needs 3 nodes > 2 free in the freest of 2 trees"
    joined = Topology(switches=(TopologySwitch(name="r"), *(s.replaced(parent="r") for s in switches)))
    across = Cluster(joined).place(job, busy=busy)
    assert "one_tree" in {v.rule for v in check_placement(topology, job, across, busy=busy)}


def test_pieces_take_the_first_free_segments_of_one_block_in_order() -> None:
    """Pieces of two and one on a leaf of blocks of three and two keep to a block of their own, segments ascending."""
    # The block of two is the tightest for two; of the three the first is free, and one leaf has a single block.
    blocks = [[7, 8, 7, 8, 7], [4, 4, 4]]
    units = [[(f"{i}.{at}",) for at in range(len(own))] for i, own in enumerate(blocks)]
    packing = Packing(whole=Counter({(0, 0): 2, (1, 0): 1}))
    q = on_one_line((Leaf((0,), 5, 5), Leaf((0,), 3, 3)), [Kind(2, 3)])
    slots = [Slot(name=f"{at}", kind=0, ranks=(2 * at, 2 * at + 1)) for at in range(3)]
    nodes = rank(q, packing, slots, units, blocks.__getitem__)
    pairs = sorted(zip(nodes[::2], nodes[1::2], strict=True))
    assert pairs == [("0.0", "0.2"), ("0.1", "0.3"), ("1.0", "1.1")]
