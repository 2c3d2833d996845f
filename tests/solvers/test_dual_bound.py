"""Bounds from duals in exact fractions: never above the optimum, whatever the duals, and on it where they are right."""

import random

import highspy
import pyomo.environ as pyo
import pytest

from planner.solvers import highs
from planner.solvers.highs_model import bound_of, highs_model, lower_bound


def random_milp(seed: int, *, whole: bool) -> pyo.ConcreteModel:
    """Return a small model that minimizes, with rows of both senses and an equality."""
    r, m = random.Random(seed), pyo.ConcreteModel()
    domain = pyo.Integers if whole else pyo.Reals
    m.x = pyo.Var(range(5), bounds=lambda *_: (-r.randint(0, 3), r.randint(1, 9)), domain=domain)
    sums = [sum(r.randint(-40, 60) / 7 * v for v in m.x.values()) for _ in range(4)]
    m.low = pyo.Constraint(expr=sums[0] >= -r.randint(0, 9))
    m.high = pyo.Constraint(expr=sums[1] <= r.randint(3, 20))
    m.both = pyo.Constraint(expr=pyo.inequality(-r.randint(5, 20), sums[2], r.randint(5, 20)))
    m.goal = pyo.Objective(expr=sums[3] + r.random())
    return m


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_no_bound_is_above_the_optimum(seed: int, whole: bool) -> None:
    """Of a linear program it is the optimum to 1e-6, of whole numbers the relaxation's, which is no higher."""
    m = random_milp(seed, whole=whole)
    best, bound = highs.run(m).objective, lower_bound(m)
    assert best is not None and bound is not None
    assert bound <= best + 1e-9 * max(1.0, abs(best))
    if not whole:
        assert bound == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_wrong_duals_give_a_weaker_bound(seed: int) -> None:
    m, r = random_milp(seed, whole=False), random.Random(seed)
    best, lp = highs.run(m).objective, highs_model(m).h.getLp()
    for _ in range(20):
        bound = bound_of(lp, [r.choice([0.0, r.uniform(-3, 3)]) for _ in range(lp.num_row_)])
        assert bound is None or bound <= best + 1e-9


def test_a_pressed_side_without_a_limit_gives_none() -> None:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = 1, 1
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = [1.0], [0.0], [highspy.kHighsInf]
    lp.row_lower_, lp.row_upper_ = [2.0], [highspy.kHighsInf]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = [0, 1], [0], [1.0]
    assert bound_of(lp, [1.0]) == 2.0
    assert bound_of(lp, [-0.5]) is None
    assert bound_of(lp, [1.5]) is None
