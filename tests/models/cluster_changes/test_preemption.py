"""Which jobs to stop: as cheap as the best of all sets of them, by plain loops."""

import itertools
import random
from functools import cache

import pytest

from planner.models.placement.cluster_changes import LeafBlock, PreemptionProblem, minimize_stop_cost
from planner.models.placement.placement_problem import Kind
from planner.models.requests import Options


def room_without(q: PreemptionProblem, stopped: tuple[int, ...]) -> dict[int, int]:
    """Return the units of each leaf once some jobs have stopped: whole segments of each block."""
    units = {b.leaf: 0 for b in q.blocks}
    for b in q.blocks:
        units[b.leaf] += (b.free + sum(b.owned.get(r, 0) for r in stopped)) // q.segment
    return units


def fits(q: PreemptionProblem, stopped: tuple[int, ...]) -> bool:
    """Say whether all groups fit, no more of them split than may be, by trying every leaf for every group."""
    room = room_without(q, stopped)
    sizes = [k.size for k in q.kinds for _ in range(k.count)]

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
    return sum(room.values()) >= sum(sizes) and len(sizes) - whole <= q.max_split


def cheapest(q: PreemptionProblem) -> int | None:
    """Return the least cost of all sets of jobs that make room; None where not even all do."""
    jobs = range(len(q.costs))
    sets = itertools.chain.from_iterable(itertools.combinations(jobs, n) for n in range(len(q.costs) + 1))
    return min((sum(q.costs[r] for r in s) for s in sets if fits(q, s)), default=None)


def random_problem(seed: int) -> PreemptionProblem:
    """Return up to five blocks of three leaves, jobs on some of them, and one or two kinds of groups."""
    r = random.Random(seed)
    jobs = r.randint(1, 4)
    blocks = tuple(
        LeafBlock(
            leaf=r.randint(0, 2),
            free=r.randint(0, 4),
            owned={j: r.randint(1, 4) for j in r.sample(range(jobs), r.randint(0, jobs))},
        )
        for _ in range(r.randint(1, 5))
    )
    kinds = tuple(Kind(n, r.randint(1, 2)) for n in r.sample(range(1, 6), r.randint(1, 2)))
    costs = tuple(r.randint(1, 9) for _ in range(jobs))
    return PreemptionProblem(
        blocks=blocks, kinds=kinds, segment=r.choice([1, 1, 2]), costs=costs, max_split=r.randint(0, 2)
    )


@pytest.mark.parametrize("seed", range(80))
def test_stops_agree_with_brute_force(seed: int) -> None:
    """The jobs to stop make room at the least cost of all sets of jobs; there are none where no set makes room."""
    q = random_problem(seed)
    outcome, best = minimize_stop_cost(q, Options()), cheapest(q)
    assert outcome.proved and outcome.infeasible == (best is None)
    assert (outcome.solution is None) == (best is None)
    if outcome.solution is not None:
        assert fits(q, outcome.solution)
        assert outcome.objective == sum(q.costs[r] for r in outcome.solution) == best


@pytest.mark.parametrize(
    ("segment", "size", "max_split", "stopped"),
    [
        (1, 4, 1, ()),  # the four free nodes, in two pieces
        (1, 5, 1, (0,)),  # the cheap job's two nodes more
        (1, 5, 0, (1,)),  # three nodes more of the first leaf
        (2, 3, 1, (1,)),  # three units of the first leaf: 3 nodes are one unit, 6 are three
        (2, 4, 1, (0, 1)),  # and one of the second, whose one node becomes three
        (2, 4, 0, None),  # no leaf has eight nodes
    ],
)
def test_stops_by_hand(segment: int, size: int, max_split: int, stopped: tuple[int, ...] | None) -> None:
    """A group of so many units, where a cheap job holds two nodes of the second leaf and a dear one three of the first.

    Three nodes of the first leaf are free, and one of the second.
    """
    q = PreemptionProblem(
        blocks=(LeafBlock(0, 3, {1: 3}), LeafBlock(1, 1, {0: 2})),
        kinds=(Kind(size, 1),),
        segment=segment,
        costs=(1, 5),
        max_split=max_split,
    )
    assert minimize_stop_cost(q, Options()).solution == stopped
