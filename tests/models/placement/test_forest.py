"""A job on several trees: the best of them by brute force, with bounds over all."""

import random
from dataclasses import replace

import pytest
from cluster_cases import best, random_problem
from each_case import each

from planner.checks.placement import check_placement
from planner.cluster import Job, Topology, TopologySwitch
from planner.models import Options
from planner.models.placement.place_job import over_all, solve_in_one_tree
from planner.models.placement.placement_problem import Kind, Leaf, PlacementProblem
from planner.scheduling.cluster_session import Cluster
from planner.solvers.outcome import Stop


def forest(seed: int) -> list[PlacementProblem]:
    """Return a small problem seen by each of two or three trees: the leaves of the others have nothing free."""
    r, kinds, parts = random.Random(seed), None, list[tuple[Leaf, ...]]()
    for i in range(r.randint(2, 3)):
        q = random_problem(1_000 * i + seed)
        kinds = kinds or q.kinds
        parts.append(tuple(replace(leaf, path=(leaf.path[0] + 10 * i,)) for leaf in q.leaves))
    assert kinds is not None
    return [
        PlacementProblem(
            leaves=tuple(leaf if t == own else replace(leaf, free=0) for t, part in enumerate(parts) for leaf in part),
            kinds=kinds,
            line=sum(k.count for k in kinds),
        )
        for own in range(len(parts))
    ]


@pytest.mark.parametrize("seed", range(60))
def test_the_best_tree_is_that_of_brute_force(seed: int) -> None:
    """Every level but the last, to which the other trees add what they have, is that of the best placement in any."""
    trees = forest(seed)
    at, outcome = solve_in_one_tree(trees, Options(), fragmentation=True)
    fits = [best(q)[:-1] for q in trees if q.need <= q.free]
    assert outcome.solution is not None and outcome.stop is Stop.PROVED
    assert outcome.solution.values[:-1] == outcome.solution.bounds[:-1] == min(fits) == best(trees[at])[:-1]
    assert outcome.solution.values[-1] == outcome.solution.bounds[-1]


def test_no_tree_is_large_enough() -> None:
    leaves = tuple(Leaf((i,), 4, 4) for i in range(2))
    trees = [
        PlacementProblem(
            leaves=tuple(leaf if i == own else replace(leaf, free=0) for i, leaf in enumerate(leaves)),
            kinds=(Kind(5, 1),),
            line=1,
        )
        for own in range(2)
    ]
    assert solve_in_one_tree(trees, Options(), fragmentation=False)[1].infeasible


@each(
    ("best_values", "trees", "bounds"),
    [
        ((1, 5), [((1, 5), (1, 4)), ((2, 0), (2, 0))], (1, 4)),  # the other tree cannot tie at the first level
        ((1, 5), [((1, 5), (1, 5)), ((2, 0), (1, 0))], (1, 0)),  # it may, as far as is known
        ((1, 5), [((1, 5), (1, 5)), ((2, 0), (0, 0))], (0, 0)),
        ((1, 5), [((1, 5), (1, 5)), ((1, 6), (1, 3))], (1, 3)),
    ],
)
def test_bounds_hold_over_all_trees(best_values, trees, bounds) -> None:
    """A tree that may still be better, or as good, keeps its say."""
    assert over_all(best_values, trees) == bounds


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
