"""The models of a level: which are written down, by which runs they are proven, and boundaries by hand."""

from collections import Counter
from typing import Any

import pytest
from each_case import each
from ortools.sat.python import cp_model

from planner.models import Options
from planner.models.placement import placement_levels
from planner.models.placement.place_job import greedy
from planner.models.placement.placement_problem import (
    Kind,
    Leaf,
    Packing,
    PlacementProblem,
    Solution,
    boundaries,
    measure,
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


@each(
    ("usual", "solver", "runs", "bound"),
    [
        ("highs", None, [True, False], 2),
        ("highs", "cpsat", [True], 3),
        ("cpsat", None, [True], 3),
        ("cpsat", "highs", [True, False], 2),
    ],
)
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


@each(
    ("line", "within", "across", "count"),
    [
        (2, {0: 1, 1: 1}, 2, 2),  # one line on two pods, one of two groups that cross
        (2, {0: 2, 1: 2}, 0, 0),
        (2, {0: 3, 1: 1}, 0, 1),
        (3, {0: 1, 1: 1}, 4, 4),  # pod 0 | pod 1 | across, and a line of three that cross
        (6, {0: 2, 1: 3}, 1, 2),  # one line: two pods and a group across are three runs
    ],
)
def test_boundaries_by_hand(line: int, within: dict[int, int], across: int, count: int) -> None:
    """Neighbours on a line that are not in one pod; a group across pods is in none."""
    groups = sum(within.values()) + across
    q = PlacementProblem(leaves=(Leaf((0,), 9, 9), Leaf((1,), 9, 9)), kinds=(Kind(1, groups),), line=line)
    assert boundaries(q, Counter(within), across) == count
