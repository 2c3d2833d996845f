"""A Pyomo model restated for CP-SAT has the optimum of all points, tried one by one."""

import itertools
import random

import pyomo.environ as pyo
import pytest

from planner.solvers import cpsat_from_pyomo

MOST = 3  # of each variable


def model(seed: int) -> pyo.ConcreteModel:
    """Draw rows with a lower side, an upper side or both, each with a number beside its variables, and an objective."""
    r = random.Random(seed)
    m = pyo.ConcreteModel()
    m.x = pyo.Var(range(3), bounds=(0, MOST), domain=pyo.NonNegativeIntegers)

    def term() -> object:
        weights = [r.randint(-3, 3) for _ in range(3)]
        return sum(w * m.x[i] for i, w in enumerate(weights)) + m.x[r.randrange(3)] + r.randint(-9, 9)

    m.rows = pyo.ConstraintList()
    for kind in r.choices(("low", "high", "both"), k=3):
        low = r.randint(-9, 3)
        m.rows.add((None if kind == "high" else low, term(), None if kind == "low" else low + r.randint(2, 9)))
    m.goal = pyo.Objective(expr=term(), sense=r.choice((pyo.minimize, pyo.maximize)))
    return m


def best(m: pyo.ConcreteModel) -> float | None:
    """Return the best value of all points, None where none keeps the rows."""
    found = []
    for point in itertools.product(range(MOST + 1), repeat=3):
        for i, n in enumerate(point):
            m.x[i].set_value(n)
        if all(row.lslack() >= 0 and row.uslack() >= 0 for row in m.rows.values()):
            found.append(pyo.value(m.goal))
    return (min if m.goal.sense == pyo.minimize else max)(found, default=None)


@pytest.mark.parametrize("seed", range(40))
def test_the_optimum_is_that_of_all_points(seed: int) -> None:
    """Sides of rows, numbers beside variables and the sense of the objective are kept."""
    m = model(seed)
    expected = best(m)
    outcome = cpsat_from_pyomo.run(m, threads=1)
    assert (outcome.infeasible, outcome.objective) == (expected is None, expected)
    assert outcome.proved and outcome.bound == expected
