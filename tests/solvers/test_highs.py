"""HiGHS through Pyomo: statuses, limits and tolerances."""

import highspy
import pyomo.environ as pyo
import pytest

from planner.solvers import cpsat, highs
from planner.solvers.cpsat_from_pyomo import restate
from planner.solvers.outcome import Stop
from planner.solvers.statuses import STOP_BY_STATUS


def small(at_least: float = 4.5) -> pyo.ConcreteModel:
    """Return min 2x + 3z with z whole: releases of HiGHS have got it wrong."""
    m = pyo.ConcreteModel()
    m.x = pyo.Var(bounds=(0, 10))
    m.z = pyo.Var(bounds=(0, 10), domain=pyo.NonNegativeIntegers)
    m.cover = pyo.Constraint(expr=m.x + m.z >= at_least)
    m.goal = pyo.Objective(expr=2 * m.x + 3 * m.z)
    return m


STATUSES = highspy.HighsModelStatus.__members__
PROOFS = {"kOptimal", "kInfeasible"}
LIMITS = {"kTimeLimit", "kIterationLimit", "kSolutionLimit", "kMemoryLimit", "kObjectiveBound", "kObjectiveTarget"}
INTERRUPTS = {"kInterrupt", "kHighsInterrupt"}


@pytest.mark.parametrize("name", STATUSES)
def test_every_native_status_has_a_stop(name: str) -> None:
    """Proofs, limits and interrupts are named; whatever else HiGHS says, now or in a later release, is a failure."""
    stop = STOP_BY_STATUS[STATUSES[name]]
    assert (stop is Stop.PROVED) == (name in PROOFS)
    assert (stop is Stop.LIMIT) == (name in LIMITS)
    assert (stop is Stop.INTERRUPTED) == (name in INTERRUPTS)


@pytest.mark.parametrize("name", STATUSES)
def test_only_infeasible_is_infeasible(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda _: STATUSES[name])
    outcome = highs.run(small(4.5 if name == "kOptimal" else 20.5))
    assert outcome.infeasible == (name == "kInfeasible")
    assert (outcome.status == "infeasible") == (name == "kInfeasible")


def test_optimum_is_proven_with_its_bound() -> None:
    """The optimum is 9, and proven."""
    outcome = highs.run(small())
    assert (outcome.stop, outcome.infeasible) == (Stop.PROVED, False)
    assert outcome.objective == pytest.approx(9) and outcome.bound == pytest.approx(9)
    assert (outcome.variables, outcome.constraints) == (2, 1)


@pytest.mark.parametrize("presolve", [True, False])
def test_infeasible_is_a_proof_without_a_solution(presolve: bool) -> None:
    outcome = highs.run(small(at_least=20.5), presolve=presolve)
    assert (outcome.stop, outcome.infeasible, outcome.solution, outcome.objective) == (Stop.PROVED, True, None, None)


def test_unbounded_is_a_failure_not_an_answer() -> None:
    m = pyo.ConcreteModel()
    m.x = pyo.Var(domain=pyo.NonNegativeIntegers)
    m.row = pyo.Constraint(expr=m.x >= 1)
    m.goal = pyo.Objective(expr=m.x, sense=pyo.maximize)
    outcome = highs.run(m)
    assert (outcome.stop, outcome.infeasible) == (Stop.FAILED, False)


def test_a_model_without_objective_is_solved() -> None:
    m = small()
    m.del_component(m.goal)
    outcome = highs.run(m)
    assert outcome.stop == Stop.PROVED
    assert outcome.objective is None
    assert outcome.solution.of(m.x) + outcome.solution.of(m.z) >= 4.5 - 1e-9


def test_no_time_is_a_limit_or_an_answer_never_an_error() -> None:
    m = pyo.ConcreteModel()
    m.x = pyo.Var(range(40), domain=pyo.Binary)
    m.row = pyo.Constraint(
        range(20), rule=lambda m, r: sum((7 * r * j + j * j) % 23 * m.x[j] for j in range(40)) <= 171
    )
    m.goal = pyo.Objective(expr=sum((j * 13) % 17 * m.x[j] for j in range(40)), sense=pyo.maximize)
    assert highs.run(m, time_limit=0.0).stop in (Stop.LIMIT, Stop.PROVED)


def test_values_of_unmentioned_variables_are_zero() -> None:
    m = small()
    m.idle = pyo.Var(bounds=(0, 1))
    solution = highs.run(m).solution
    assert solution.of(m.idle) == 0.0


@pytest.mark.parametrize("limit", [0.5, 4.5, 12.0, 20.0, 20.5])
def test_cpsat_agrees_on_the_restated_model(limit: float) -> None:
    first, second = highs.run(small(limit)), cpsat.run(restate(small(limit), relax=False))
    assert first.infeasible == second.infeasible
    if first.objective is not None:
        assert second.objective is not None and second.objective / 1e6 == pytest.approx(first.objective)


def test_restatement_needs_bounds() -> None:
    m = pyo.ConcreteModel()
    m.x = pyo.Var()
    m.row = pyo.Constraint(expr=m.x >= 1)
    with pytest.raises(ValueError, match="bounds"):
        restate(m)
