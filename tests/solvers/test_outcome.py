"""What a solve leaves, and its clock: statuses, certificates and deadlines."""

import math

import pytest

from planner.solvers.outcome import Outcome, Stop
from planner.solvers.signals import Deadline


@pytest.mark.parametrize("stop", Stop)
@pytest.mark.parametrize("solution", [None, "x"])
@pytest.mark.parametrize("infeasible", [False, True])
def test_only_a_proof_is_called_optimal_or_infeasible(stop: Stop, solution: str | None, infeasible: bool) -> None:
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
    assert Outcome(stop=Stop.PROVED, solution=1, objective=value, bound=bound, distance=distance).status == status


def test_a_solution_read_into_other_terms_keeps_its_proof() -> None:
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


@pytest.mark.parametrize(
    ("limit", "now", "elapsed", "left", "passed"),
    [(10.0, 4.0, 4.0, 6.0, False), (10.0, 10.0, 10.0, 0.0, True), (10.0, 50.0, 50.0, 0.0, True),
     (None, 1e9, 1e9, math.inf, False)],
)  # fmt: skip
def test_a_deadline_counts_down_to_zero(
    limit: float | None, now: float, elapsed: float, left: float, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds left fall with the clock and never below 0; no limit is infinity to arithmetic and None to solvers."""
    monkeypatch.setattr("time.perf_counter", lambda: 100.0 + now)
    deadline = Deadline(limit, started=100.0)
    found = deadline.elapsed, deadline.left, deadline.limit, deadline.passed
    assert found == (elapsed, left, None if limit is None else left, passed)


def test_a_part_of_a_search_ends_no_later_than_the_whole() -> None:
    assert [Deadline(whole).capped(2.0).seconds for whole in (10.0, 0.0, None)] == [2.0, 0.0, 2.0]
    assert 4.0 < Deadline(5.0).capped(60.0).seconds <= 5.0
