"""CP-SAT, and Pyomo models restated for it: a total status table, and no solution where there is none."""

import itertools
import random
import signal
import threading

import pyomo.environ as pyo
import pytest
from each_case import each
from ortools.sat.python import cp_model

from planner.solvers import cpsat
from planner.solvers.outcome import Stop

STATUSES = cp_model.CpSolverStatus.__members__


def contradiction() -> cp_model.CpModel:
    m = cp_model.CpModel()
    x = m.new_bool_var("x")
    m.add(x >= 1)
    m.add(x <= 0)
    return m


@each("name", STATUSES)
def test_every_native_status_has_a_stop(name: str) -> None:
    stop = cpsat.STOP_BY_STATUS[STATUSES[name]]
    assert (stop is Stop.PROVED) == (name in ("OPTIMAL", "INFEASIBLE"))
    assert (stop is Stop.FAILED) == (name == "MODEL_INVALID")


@each("name", STATUSES)
def test_only_infeasible_is_infeasible(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp_model.CpSolver, "solve", lambda *_: STATUSES[name])
    monkeypatch.setattr(cp_model.CpSolver, "response_proto", type("Response", (), {"deterministic_time": 0.0})())
    monkeypatch.setattr(cp_model.CpSolver, "status_name", lambda *_: name)
    outcome = cpsat.run(contradiction())
    assert outcome.infeasible == (name == "INFEASIBLE")
    assert (outcome.status == "infeasible") == (name == "INFEASIBLE")


def test_an_invalid_model_is_a_failure() -> None:
    m = cp_model.CpModel()
    x = m.new_int_var(0, 2**62, "x")
    m.add(2**40 * x >= 1)
    outcome = cpsat.run(m)
    assert (outcome.stop, outcome.infeasible, outcome.solution) == (Stop.FAILED, False, None)
    assert (outcome.detail, outcome.status) == ("MODEL_INVALID", "unknown")


@each("far", [1e22, -1e22])
def test_a_side_beyond_whole_numbers_says_nothing(far: float) -> None:
    """A row that no column can reach: at most 1e22, or at least -1e22."""
    m = pyo.ConcreteModel()
    m.x = pyo.Var(domain=pyo.Integers, bounds=(0, 5))
    m.row = pyo.Constraint(expr=m.x <= far if far > 0 else m.x >= far)
    m.goal = pyo.Objective(expr=-m.x)
    found = cpsat.run_pyomo(m, time_limit=10.0, seed=0)
    assert found.objective == -5


def test_ctrl_c_stops_the_search_and_returns_the_incumbent() -> None:
    """A search that would run for minutes ends, says so, and gives its incumbent and bound."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the run began in the background
    model = cp_model.CpModel()
    r = random.Random(1)
    picks = [model.new_bool_var(f"{i}") for i in range(300)]
    for _ in range(30):
        model.add(sum(r.randint(1, 1000) * p for p in picks) <= 40_000)
    model.maximize(sum(r.randint(1, 1000) * p for p in picks))
    threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
    try:
        outcome = cpsat.run(model, time_limit=60, interruptible=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert outcome.stop is Stop.INTERRUPTED
    assert outcome.solution is not None
    assert outcome.objective is not None and outcome.bound is not None and 0 < outcome.objective < outcome.bound


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
    outcome = cpsat.run_pyomo(m, threads=1)
    assert (outcome.infeasible, outcome.objective) == (expected is None, expected)
    assert outcome.proved and outcome.bound == expected
