"""HiGHS through Pyomo: statuses, limits and tolerances."""

import highspy
import pyomo.environ as pyo
import pytest

from planner.solvers import cpsat, highs
from planner.solvers.cpsat_from_pyomo import restate
from planner.solvers.outcome import Stop


def small(least: float = 4.5) -> pyo.ConcreteModel:
    """Return min 2x + 3z with z whole: releases of HiGHS have got it wrong."""
    m = pyo.ConcreteModel()
    m.x = pyo.Var(bounds=(0, 10))
    m.z = pyo.Var(bounds=(0, 10), domain=pyo.NonNegativeIntegers)
    m.cover = pyo.Constraint(expr=m.x + m.z >= least)
    m.goal = pyo.Objective(expr=2 * m.x + 3 * m.z)
    return m


def test_every_native_status_has_a_stop() -> None:
    """A status that the table does not know would be a KeyError in front of a user."""
    assert set(highs.STOP_BY_STATUS) == set(highspy.HighsModelStatus.__members__.values())


def test_optimum_is_proven_with_its_bound() -> None:
    """The optimum is 9, held and proven."""
    outcome = highs.run(small())
    assert (outcome.stop, outcome.infeasible) == (Stop.PROVED, False)
    assert outcome.objective == pytest.approx(9) and outcome.bound == pytest.approx(9)
    assert (outcome.variables, outcome.constraints) == (2, 1)


@pytest.mark.parametrize("presolve", [True, False])
def test_infeasible_is_a_proof_without_a_solution(presolve: bool) -> None:
    """Nothing is held where nothing is feasible."""
    outcome = highs.run(small(least=20.5), presolve=presolve)
    assert (outcome.stop, outcome.infeasible, outcome.solution, outcome.objective) == (Stop.PROVED, True, None, None)


def test_unbounded_is_a_failure_not_an_answer() -> None:
    """A formulation without a bound is a defect of planner."""
    m = pyo.ConcreteModel()
    m.x = pyo.Var(domain=pyo.NonNegativeIntegers)
    m.row = pyo.Constraint(expr=m.x >= 1)
    m.goal = pyo.Objective(expr=m.x, sense=pyo.maximize)
    outcome = highs.run(m)
    assert (outcome.stop, outcome.infeasible) == (Stop.FAILED, False)


def test_a_question_without_objective_is_answered() -> None:
    """Feasibility alone holds a solution and no objective."""
    m = small()
    m.del_component(m.goal)
    outcome = highs.run(m)
    assert outcome.stop == Stop.PROVED
    assert outcome.objective is None
    assert outcome.solution is not None
    assert outcome.solution.of(m.x) + outcome.solution.of(m.z) >= 4.5 - 1e-9


def test_no_time_is_a_limit_or_an_answer_never_an_error() -> None:
    """A limit of zero seconds stops cleanly."""
    m = pyo.ConcreteModel()
    m.x = pyo.Var(range(40), domain=pyo.Binary)
    m.row = pyo.Constraint(
        range(20), rule=lambda m, r: sum((7 * r * j + j * j) % 23 * m.x[j] for j in range(40)) <= 171
    )
    m.goal = pyo.Objective(expr=sum((j * 13) % 17 * m.x[j] for j in range(40)), sense=pyo.maximize)
    assert highs.run(m, time_limit=0.0).stop in (Stop.LIMIT, Stop.PROVED)


def test_values_of_unmentioned_variables_are_zero() -> None:
    """A variable in no row is not passed to the solver."""
    m = small()
    m.idle = pyo.Var(bounds=(0, 1))
    solution = highs.run(m).solution
    assert solution is not None and solution.of(m.idle) == 0.0


@pytest.mark.parametrize("least", [0.5, 4.5, 12.0, 20.0, 20.5])
def test_cpsat_agrees_on_the_restated_model(least: float) -> None:
    """The restatement in CP-SAT has the same optimum, and the same infeasibility."""
    first, second = highs.run(small(least)), cpsat.run(restate(small(least), relax=False))
    assert first.infeasible == second.infeasible
    if first.objective is not None:
        assert second.objective is not None and second.objective / 1e6 == pytest.approx(first.objective)


def test_restatement_needs_bounds() -> None:
    """CP-SAT counts in bounded integers."""
    m = pyo.ConcreteModel()
    m.x = pyo.Var()
    m.row = pyo.Constraint(expr=m.x >= 1)
    with pytest.raises(ValueError, match="bounds"):
        restate(m)
