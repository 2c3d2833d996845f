"""The registry of solvers: two that solve one formulation agree, and what one cannot do goes to the other."""

import random

import pyomo.environ as pyo
import pytest
from ortools.sat.python import cp_model

from planner.errors import InputError
from planner.solvers.outcome import Stop
from planner.solvers.registry import SOLVERS, linear_runner, run_milp, solver_named


def mixed(seed: int, *, continuous: bool) -> pyo.ConcreteModel:
    """Return a small MILP with data of two decimals, now and then infeasible."""
    r, m = random.Random(seed), pyo.ConcreteModel()
    m.x = pyo.Var(range(3), bounds=(0, 9), domain=pyo.NonNegativeIntegers)
    m.y = pyo.Var(range(2), bounds=(0, 9), domain=pyo.NonNegativeReals if continuous else pyo.NonNegativeIntegers)
    all_of = [*m.x.values(), *m.y.values()]

    def row(_: pyo.ConcreteModel, i: int) -> object:
        body = sum(r.randint(-3, 5) * v for v in all_of)
        return body >= r.randint(5, 40) / 4 if i % 2 else body <= r.randint(20, 60)

    m.rows = pyo.Constraint(range(4), rule=row)
    cost = sum(r.randint(1, 900) / 100 * v for v in all_of)
    m.goal = pyo.Objective(expr=cost + 3, sense=r.choice([pyo.minimize, pyo.maximize]))
    return m


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_both_solvers_agree_on_a_milp(seed: int, continuous: bool) -> None:
    """Optimum and infeasibility are the same; CP-SAT's bound excludes nothing, its solution keeps all rows."""
    m = mixed(seed, continuous=continuous)
    first, second = (run_milp(m, solver=s) for s in SOLVERS)
    assert first.infeasible == second.infeasible
    if first.objective is None:
        return
    assert second.objective is not None and second.bound is not None and second.solution is not None
    minimize = m.goal.sense == pyo.minimize
    assert (second.bound <= first.objective + 1e-6) if minimize else (second.bound >= first.objective - 1e-6)
    # Between multiples of a thousandth there may be a better value, by no more than the coefficients times that.
    assert second.objective == pytest.approx(first.objective, abs=0.02 if continuous else 1e-6)
    if not continuous:
        assert second.stop is Stop.PROVED and second.bound == pytest.approx(second.objective)
    for v in [*m.x.values(), *m.y.values()]:
        v.set_value(second.solution.of(v), skip_validation=True)
    for c in m.rows.values():
        low, high = pyo.value(c.lower), pyo.value(c.upper)
        assert (low is None or pyo.value(c.body) >= low - 1e-9) and (high is None or pyo.value(c.body) <= high + 1e-9)


def test_what_lies_between_multiples_is_neither_proven_nor_called_infeasible() -> None:
    """3x = 1 has no solution in thousandths, and the least 3x >= 1 is 0.334: CP-SAT's bound says less may be had."""

    def least(*, equal: bool) -> pyo.ConcreteModel:
        m = pyo.ConcreteModel()
        m.x = pyo.Var(bounds=(0, 1))
        m.row = pyo.Constraint(expr=3 * m.x == 1 if equal else 3 * m.x >= 1)
        m.goal = pyo.Objective(expr=m.x)
        return m

    outcome = run_milp(least(equal=True), solver="cpsat")
    assert (outcome.stop, outcome.infeasible, outcome.status) == (Stop.FAILED, False, "unknown")
    assert run_milp(least(equal=True)).objective == pytest.approx(1 / 3)
    outcome = run_milp(least(equal=False), solver="cpsat")
    assert outcome.objective == pytest.approx(0.334) and outcome.stop is Stop.LIMIT and outcome.bound <= 1 / 3


def test_lazy_rows_go_to_the_solver_that_adds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT adds no rows on the way, so that HiGHS is taken whatever was asked."""
    m = mixed(0, continuous=False)
    m.lazy = "rows"
    monkeypatch.setattr("planner.solvers.highs.run", lambda model, **_: model.lazy)
    assert not SOLVERS["cpsat"].lazy_rows
    assert run_milp(m, solver="cpsat") == "rows"


@pytest.mark.parametrize("name", [None, *SOLVERS])
def test_linear_rows_run_on_either(name: str | None) -> None:
    """The same optimum comes back from the usual solver and from the one that is asked for, with its name."""
    m = cp_model.CpModel()
    x, y = m.new_int_var(0, 9, "x"), m.new_int_var(0, 9, "y")
    m.add(2 * x + 3 * y >= 7)
    m.minimize(x + 2 * y)
    outcome = linear_runner(name, usual="highs")(m, time_limit=10.0, presolve=False)
    assert (outcome.objective, outcome.bound, outcome.stop) == (4, 4, Stop.PROVED)
    assert outcome.solver.startswith(SOLVERS[name or "highs"].title)
    assert SOLVERS[name or "highs"].version in outcome.solver


def test_unknown_names_are_refused() -> None:
    assert solver_named(None) is None and solver_named("highs") == "highs"
    with pytest.raises(InputError, match=r"must be one of highs, cpsat \(is 'scip'\)"):
        solver_named("scip")
