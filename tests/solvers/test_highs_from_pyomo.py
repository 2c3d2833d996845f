"""A model handed to HiGHS in one piece is the model that Pyomo's own interface hands over."""

import random

import pyomo.environ as pyo
import pytest
from pyomo.contrib.solver.solvers.highs import Highs

from planner.solvers import highs
from planner.solvers.highs_model import highs_model


def random_model(seed: int) -> pyo.ConcreteModel:
    """Return a small model with rows of every kind, a fixed variable, and one that nothing mentions."""
    r, m = random.Random(seed), pyo.ConcreteModel()
    kinds = [pyo.Reals, pyo.Integers, pyo.Binary, pyo.NonNegativeReals, pyo.NonNegativeIntegers]
    m.x = pyo.Var(range(6), bounds=lambda *_: (-r.randint(0, 3), r.randint(1, 9)))
    for v in m.x.values():
        v.domain = r.choice(kinds)
    m.alone = pyo.Var(bounds=(0, 1))
    m.x[5].fix(1)
    sums = [sum(r.randint(-40, 60) / 7 * v for v in m.x.values()) + r.random() for _ in range(5)]
    m.low = pyo.Constraint(expr=sums[0] >= -r.randint(0, 9))
    m.high = pyo.Constraint(expr=sums[1] <= r.randint(3, 20))
    m.both = pyo.Constraint(expr=pyo.inequality(-r.randint(5, 20), sums[2], r.randint(5, 20)))
    if r.random() < 0.5:
        m.free = pyo.Var()
        m.equal = pyo.Constraint(expr=sums[3] + m.free == r.randint(0, 3))
    m.goal = pyo.Objective(expr=sums[4], sense=r.choice([pyo.minimize, pyo.maximize]))
    return m


@pytest.mark.parametrize("seed", range(60))
def test_both_ways_to_highs_have_one_optimum(seed: int) -> None:
    """The objective, or that there is none, is the same to 1e-7."""
    m = random_model(seed)
    ours = highs.run(m)
    theirs = Highs().solve(m, load_solutions=False, raise_exception_on_nonoptimal_result=False, rel_gap=0, abs_gap=1e-6)
    assert ours.infeasible == (theirs.incumbent_objective is None)
    if not ours.infeasible:
        assert ours.objective == pytest.approx(theirs.incumbent_objective, abs=1e-5)
        assert ours.bound == pytest.approx(theirs.objective_bound, abs=1e-5)
        assert (ours.solution.of(m.x[5]), ours.solution.of(m.alone)) == (1.0, 0.0)


def test_a_row_of_constants_that_cannot_hold_is_infeasible() -> None:
    """Pyomo's standard form refuses such a row; the model has no solution, whatever else it has."""
    m = random_model(1)
    m.never = pyo.Constraint(expr=0 * m.x[0] + m.x[5] >= 2)
    assert highs.run(m).infeasible
    m.alike = pyo.Constraint(expr=(None, 3.0 + 0 * m.x[5], 2.0))
    assert highs.run(m).infeasible


def test_duals_of_a_row_with_two_sides_are_those_of_the_side_that_presses() -> None:
    """Of `1 <= x <= 4` at most profit 3 the upper side is worth 3, at most cost 3 the lower one."""
    for sense in (pyo.maximize, pyo.minimize):
        m = pyo.ConcreteModel()
        m.x = pyo.Var(bounds=(-10, 10))
        m.both = pyo.Constraint(expr=pyo.inequality(1, m.x, 4))
        m.goal = pyo.Objective(expr=3 * m.x, sense=sense)
        found = highs.duals(m)
        assert found.stated[m.both] == pytest.approx(3.0)


def test_ctrl_c_is_taken_by_the_main_thread_alone() -> None:
    assert highs_model(random_model(0)).h.HandleKeyboardInterrupt
