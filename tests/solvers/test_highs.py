"""HiGHS through Pyomo and in one piece: statuses, limits, tolerances, and bounds from duals in exact fractions."""

import math
import random
from fractions import Fraction

import highspy
import pyomo.environ as pyo
import pytest
from each_case import each
from pyomo.contrib.solver.solvers.highs import Highs

from planner.solvers import highs
from planner.solvers.cpsat import restate
from planner.solvers.highs import STOP_BY_STATUS, bound_of, highs_model, loaded
from planner.solvers.outcome import Stop


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


@each("name", STATUSES)
def test_only_infeasible_is_infeasible(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proofs, limits and interrupts are named; whatever else HiGHS says, now or in a later release, is a failure."""
    stop = STOP_BY_STATUS[STATUSES[name]]
    assert (stop is Stop.PROVED, stop is Stop.LIMIT) == (name in PROOFS, name in LIMITS)
    assert (stop is Stop.INTERRUPTED) == (name in INTERRUPTS)
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda _: STATUSES[name])
    outcome = highs.run(small(4.5 if name == "kOptimal" else 20.5))
    assert outcome.infeasible == (name == "kInfeasible")
    assert (outcome.status == "infeasible") == (name == "kInfeasible")


def test_a_model_without_bounds_is_no_answer() -> None:
    m = pyo.ConcreteModel()
    m.x = pyo.Var(domain=pyo.NonNegativeIntegers)
    m.row = pyo.Constraint(expr=m.x >= 1)
    m.goal = pyo.Objective(expr=m.x, sense=pyo.maximize)
    outcome = highs.run(m)
    assert (outcome.stop, outcome.infeasible) == (Stop.FAILED, False)
    with pytest.raises(ValueError, match="bounds"):
        restate(m)


def test_a_model_without_objective_is_solved() -> None:
    m = small()
    m.del_component(m.goal)
    outcome = highs.run(m)
    assert outcome.stop == Stop.PROVED
    assert outcome.objective is None
    assert outcome.solution.of(m.x) + outcome.solution.of(m.z) >= 4.5 - 1e-9


KINDS = [pyo.Reals, pyo.Integers, pyo.Binary, pyo.NonNegativeReals, pyo.NonNegativeIntegers]


def drawn(r: random.Random, number: int, kinds: list[object]) -> tuple[pyo.ConcreteModel, list[object]]:
    """Draw variables of some kinds, rows of both senses over them, and two more sums of them with numbers beside."""
    m = pyo.ConcreteModel()
    m.x = pyo.Var(range(number), bounds=lambda *_: (-r.randint(0, 3), r.randint(1, 9)))
    for v in m.x.values():
        v.domain = r.choice(kinds)
    sums = [sum(r.randint(-40, 60) / 7 * v for v in m.x.values()) + r.random() for _ in range(5)]
    m.low = pyo.Constraint(expr=sums[0] >= -r.randint(0, 9))
    m.high = pyo.Constraint(expr=sums[1] <= r.randint(3, 20))
    m.both = pyo.Constraint(expr=pyo.inequality(-r.randint(5, 20), sums[2], r.randint(5, 20)))
    return m, sums[3:]


def random_model(seed: int) -> pyo.ConcreteModel:
    """Return a small model with rows of every kind, a fixed variable, and one that nothing mentions."""
    r = random.Random(seed)
    m, (one, other) = drawn(r, 6, KINDS)
    m.alone = pyo.Var(bounds=(0, 1))
    m.x[5].fix(1)
    if r.random() < 0.5:
        m.free = pyo.Var()
        m.equal = pyo.Constraint(expr=one + m.free == r.randint(0, 3))
    m.goal = pyo.Objective(expr=other, sense=r.choice([pyo.minimize, pyo.maximize]))
    return m


def random_milp(seed: int, *, whole: bool) -> pyo.ConcreteModel:
    m, (cost, _) = drawn(random.Random(seed), 5, [pyo.Integers if whole else pyo.Reals])
    m.goal = pyo.Objective(expr=cost)
    return m


@pytest.mark.parametrize("seed", range(60))
def test_both_ways_to_highs_have_one_optimum(seed: int) -> None:
    """The objective, or that there is none, is the same to 1e-7."""
    m = random_model(seed)
    ours = highs.run(m)
    assert loaded(highs_model(m).lp).HandleKeyboardInterrupt  # in the main thread
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


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_no_bound_is_above_the_optimum(seed: int, whole: bool) -> None:
    """Of a linear program it is the optimum to 1e-6, of whole numbers the relaxation's, which is no higher."""
    m = random_milp(seed, whole=whole)
    best, bound = highs.run(m).objective, highs.lower_bound(m)
    assert best is not None and bound is not None
    assert bound <= best + 1e-9 * max(1.0, abs(best))
    if not whole:
        assert bound == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_wrong_duals_give_a_weaker_bound(seed: int) -> None:
    m, r = random_milp(seed, whole=False), random.Random(seed)
    best, lp = highs.run(m).objective, highs_model(m).lp
    for _ in range(20):
        bound = bound_of(lp, [r.choice([0.0, r.uniform(-3, 3)]) for _ in range(lp.num_row_)])
        assert bound is None or bound <= best + 1e-9


def at_least(side: float, offset: float = 0.0) -> highspy.HighsLp:
    """Return min x + offset with x no less than 0 and a side."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_, lp.offset_ = 1, 1, offset
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = [1.0], [0.0], [highspy.kHighsInf]
    lp.row_lower_, lp.row_upper_ = [side], [highspy.kHighsInf]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = [0, 1], [0], [1.0]
    return lp


def test_a_bound_is_the_exact_sum_rounded_down() -> None:
    r = random.Random(0)
    assert [bound_of(at_least(2.0), [dual]) for dual in (1.0, -0.5, 1.5)] == [2.0, None, None]  # a side without a limit
    for _ in range(40):
        dual, side, offset = r.random(), r.random(), r.uniform(-1, 1)
        found = bound_of(at_least(side, offset), [dual])
        assert found <= Fraction(dual) * Fraction(side) + Fraction(offset) < math.nextafter(found, math.inf)


def test_a_model_without_variables_and_rows_is_solved() -> None:
    """Its one point is empty, at the constant of its objective: fibre that carries nothing is such a model."""
    m = pyo.ConcreteModel()
    m.goal = pyo.Objective(expr=7.0)
    found = highs.run(m)
    assert (found.proved, found.infeasible, found.objective, found.bound) == (True, False, 7.0, 7.0)
