"""The models of a level, by which runs they are proven, and chains gathered in pods: nothing is lost or made."""

import random
from collections import Counter
from typing import Any

import pytest
from cluster_cases import on_one_line
from each_case import each
from ortools.sat.python import cp_model

from planner.models import Options
from planner.models.placement import placement_levels
from planner.models.placement.place_job import best_fit, greedy
from planner.models.placement.placement_levels import Exchange
from planner.models.placement.placement_problem import (
    Kind,
    Leaf,
    Packing,
    PlacementProblem,
    Solution,
    boundaries,
    measure,
    used,
)
from planner.solvers.outcome import Outcome, Stop, Values


def started(q: PlacementProblem) -> Solution[Packing]:
    """Return the state of a search that has the first packing and no bounds."""
    packing = greedy(q)
    values = measure(q, packing)
    return Solution(packing, values, (0,) * len(values), len(values))


@each(("most", "written"), [(16, True), (15, False)])
def test_a_model_is_written_down_where_its_variables_are_few(most, written, monkeypatch) -> None:
    """Six fill needs of up to 3 from holes of 1 and 2, six are arcs and rests of 4, 2 and 1, four close or join."""
    monkeypatch.setattr(placement_levels, "MAX_VARIABLES", most)
    q = PlacementProblem(leaves=(Leaf((0,), 4, 4), Leaf((0,), 2, 4)), kinds=(Kind(3, 2),), line=2)
    assert (placement_levels.level_model(q, started(q), 0) is not None) == written


@each(
    ("line", "level", "usual"),
    [(4, 3, "highs"), (4, 2, "highs"), (4, 1, "cpsat"), (2, 3, "cpsat"), (2, 2, "highs"), (1, 3, "cpsat")],
)
def test_flows_by_pod_are_proven_by_highs_where_their_relaxation_is_tight(line: int, level: int, usual: str) -> None:
    """By HiGHS by pod but for the boundaries of several lines, by exact CP-SAT elsewhere."""
    q = PlacementProblem(leaves=(Leaf((0,), 4, 4), Leaf((1,), 5, 5)), kinds=(Kind(2, 4),), line=line)
    model = placement_levels.level_model(q, started(q), level)
    assert model is not None and model.usual == usual


@each(("usual", "solver", "runs", "bound"), [
    ("highs", None, [True, False], 2), ("highs", "cpsat", [True], 3), ("cpsat", None, [True], 3),
    ("cpsat", "highs", [True, False], 2),
])  # fmt: skip
def test_what_highs_proves_is_believed_of_two_runs_alone(
    usual: Any, solver: Any, runs: list[bool], bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run with presolve proves 3, that without 2: of HiGHS 2 is believed, and of exact CP-SAT the first alone."""
    made = list[bool]()

    def runner(_: str | None, *, usual: str) -> Any:
        def run(model: cp_model.CpModel, *, presolve: bool = True, **_: Any) -> Outcome[Values]:
            assert model.proto.constraints
            made.append(presolve)
            return Outcome(stop=Stop.LIMIT, bound=3.0 if presolve else 2.0, solver=usual)

        return run

    monkeypatch.setattr(placement_levels, "linear_runner", runner)
    model = cp_model.CpModel()
    goal = model.new_int_var(0, 9, "goal")
    level = placement_levels.LevelModel(model=model, goals=[goal], read=lambda _: (None, (5,)), usual=usual)
    solution = Solution[None](None, (5,), (0,), 1)
    placement_levels.improve(solution, Options(solver=solver), lambda _: level)
    assert made == runs and solution.bounds == (bound,) and solution.values == (5,)


@each(("line", "within", "across", "count"), [
    (2, {0: 1, 1: 1}, 2, 2),  # one line on two pods, one of two groups that cross
    (2, {0: 2, 1: 2}, 0, 0), (2, {0: 3, 1: 1}, 0, 1),
    (3, {0: 1, 1: 1}, 4, 4),  # pod 0 | pod 1 | across, and a line of three that cross
    (6, {0: 2, 1: 3}, 1, 2),  # one line: two pods and a group across are three runs
])  # fmt: skip
def test_boundaries_by_hand(line: int, within: dict[int, int], across: int, count: int) -> None:
    """Neighbours on a line that are not in one pod; a group across pods is in none."""
    groups = sum(within.values()) + across
    q = PlacementProblem(leaves=(Leaf((0,), 9, 9), Leaf((1,), 9, 9)), kinds=(Kind(1, groups),), line=line)
    assert boundaries(q, Counter(within), across) == count


def test_holes_of_two_pods_meet_in_one() -> None:
    """Two holes of 2 in leaves of different pods come together by one exchange of leaves of equal room; three do not.

    No pod has three leaves.
    """
    q = on_one_line(tuple(Leaf((i // 2,), 6, 6) for i in range(4)), [Kind(4, 3), Kind(6, 2)])
    packing = Packing(whole=Counter({(0, 0): 1, (1, 1): 1, (2, 0): 1, (3, 1): 1}))
    exchange = Exchange(q, packing, {2: [0, 2], 0: [1, 3]})
    assert exchange.gather(Counter({2: 2, 0: 1})) is None
    pieces = exchange.gather(Counter({2: 2}))
    assert pieces is not None and {i // 2 for i, _ in pieces} in ({0}, {1})
    assert all(q.leaves[i].free - used(q, packing)[i] == 2 for i, _ in pieces)
    assert Counter(k for (_, k), n in packing.whole.items() for _ in range(n)) == {0: 2, 1: 2}


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_lost_or_made(seed: int) -> None:
    """On random clusters every hole that is given is there, each leaf is given once, and the rest keeps its holes."""
    r = random.Random(seed)
    q = on_one_line(tuple(Leaf((i // 4,), r.randint(4, 6), 6) for i in range(16)), [Kind(2, 40), Kind(1, 1)])
    whole = Counter({(i, 0): r.randint(0, leaf.free // 2) for i, leaf in enumerate(q.leaves)})
    packing, before = Packing(whole=whole), whole.total()
    holes: dict[int, list[int]] = {}
    for i, leaf in enumerate(q.leaves):
        if hole := leaf.free - 2 * whole[i, 0]:
            holes.setdefault(hole, []).append(i)
    sizes = [hole for hole, leaves in holes.items() for _ in leaves]
    exchange = Exchange(q, packing, holes)
    given = [piece for _ in range(3) for piece in exchange.gather(Counter(r.sample(sizes, 2))) or []]
    rest = list(exchange.hole.items())
    assert given and len({i for i, _ in given + rest}) == len(given) + len(rest) == len(sizes)
    assert all(q.leaves[i].free - used(q, packing)[i] == c for i, c in given + rest)
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
