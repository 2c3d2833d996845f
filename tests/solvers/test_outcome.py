"""What a solve leaves, and its clock: statuses, certificates and deadlines."""

import math

import pytest

from planner.solvers.outcome import Outcome, Stop
from planner.solvers.signals import Deadline


@pytest.mark.parametrize("stop", Stop)
@pytest.mark.parametrize("solution", [None, "x"])
@pytest.mark.parametrize("infeasible", [False, True])
def test_only_a_proof_is_called_optimal_or_infeasible(stop: Stop, solution: str | None, infeasible: bool) -> None:
    """A solution without a proof, or of what is called infeasible, is feasible; without both it is unknown."""
    status = Outcome(stop=stop, solution=solution, infeasible=infeasible).status
    if solution is not None:
        assert status == ("optimal" if stop is Stop.PROVED and not infeasible else "feasible")
    else:
        assert status == ("infeasible" if stop is Stop.PROVED and infeasible else "unknown")


@pytest.mark.parametrize(
    ("value", "bound", "distance", "status"),
    [
        (10.0, 10.0, 0.0, "optimal"),
        (10.0, 10.0 - 1e-6, 0.0, "optimal"),
        (10.0, 1.0, 0.0, "feasible"),
        (10.0, None, 0.0, "feasible"),
        (10.0, 9.1, 1.0, "optimal"),
        (None, None, 0.0, "optimal"),
    ],
)
def test_only_a_bound_that_meets_the_value_makes_it_optimal(
    value: float | None, bound: float | None, distance: float, status: str
) -> None:
    """A proof whose bound is away from the value, or absent, is none; without an objective no bound is needed."""
    assert Outcome(stop=Stop.PROVED, solution=1, objective=value, bound=bound, distance=distance).status == status


def test_a_solution_read_into_other_terms_keeps_its_proof() -> None:
    """The rest of the outcome stays, and the first outcome is unchanged."""
    first = Outcome(stop=Stop.LIMIT, solution=[1], objective=3.0, bound=2.0, solver="s", seconds=4.0)
    second = first.with_solution("one")
    assert (second.solution, second.stop, second.objective, second.bound) == ("one", Stop.LIMIT, 3.0, 2.0)
    assert (second.solver, second.seconds, first.solution) == ("s", 4.0, [1])
    assert first.with_solution(None).status == "unknown"


def test_a_certificate_states_the_outcome() -> None:
    """Status, figures and sizes are the solver's, the rest is the decision's; without a bound there is no gap."""
    outcome = Outcome(
        stop=Stop.LIMIT, solution=1, objective=10.0, bound=9.0, solver="s", variables=2, constraints=3, seconds=0.5
    )
    c = outcome.certificate(
        formulation="f", minimizes="days", seed=7, given="g", space={"cells": 4}, binding=("power",)
    )
    assert (c.status, c.objective, c.bound, c.gap) == ("feasible", 10.0, 9.0, 0.1)
    assert (c.solver, c.variables, c.constraints, c.seconds, c.seed) == ("s", 2, 3, 0.5, 7)
    assert (c.formulation, c.minimizes, c.given, c.space, c.binding) == ("f", "days", "g", {"cells": 4}, ("power",))
    empty = Outcome(stop=Stop.PROVED, infeasible=True).certificate(formulation="f", minimizes="m", seed=0)
    assert (empty.status, empty.objective, empty.bound, empty.gap) == ("infeasible", None, None, None)


def test_a_deadline_counts_down_to_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds left fall with the clock and never below 0; from then on the deadline has passed."""
    monkeypatch.setattr("time.perf_counter", lambda: 104.0)
    deadline = Deadline(10.0, started=100.0)
    assert (deadline.elapsed, deadline.left, deadline.limit, deadline.passed) == (4.0, 6.0, 6.0, False)
    monkeypatch.setattr("time.perf_counter", lambda: 110.0)
    assert (deadline.left, deadline.limit, deadline.passed) == (0.0, 0.0, True)
    monkeypatch.setattr("time.perf_counter", lambda: 150.0)
    assert (deadline.elapsed, deadline.left, deadline.passed) == (50.0, 0.0, True)


def test_without_a_limit_there_is_always_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit is infinity to arithmetic and None to solvers."""
    monkeypatch.setattr("time.perf_counter", lambda: 1e9)
    deadline = Deadline(started=0.0)
    assert (deadline.left, deadline.limit, deadline.passed) == (math.inf, None, False)


def test_a_part_of_a_search_ends_no_later_than_the_whole() -> None:
    """A capped deadline has the seconds asked for, or those left if fewer."""
    assert Deadline(10.0).capped(2.0).seconds == 2.0
    assert Deadline(0.0).capped(2.0).seconds == 0.0
    assert Deadline().capped(2.0).seconds == 2.0
    part = Deadline(5.0).capped(60.0).seconds
    assert part is not None and 4.0 < part <= 5.0


def test_the_clock_starts_when_the_deadline_is_made() -> None:
    """A deadline that was just made has nearly all its time."""
    before = Deadline(60.0)
    assert 0.0 <= before.elapsed < 60.0
    assert before.left > 0.0
