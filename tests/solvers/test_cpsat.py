"""The CP-SAT backend: a total status table, and no solution where there is none."""

import random
import signal
import threading

from ortools.sat.python import cp_model

from planner.solvers import cpsat
from planner.solvers.outcome import Stop, relative_gap


def test_status_table_is_total() -> None:
    """Every native status has its meaning."""
    assert set(cpsat.STOP_BY_STATUS) == {
        cp_model.OPTIMAL,
        cp_model.INFEASIBLE,
        cp_model.FEASIBLE,
        cp_model.UNKNOWN,
        cp_model.MODEL_INVALID,
    }


def test_infeasible_holds_nothing() -> None:
    """A contradiction is a proof without a solution."""
    m = cp_model.CpModel()
    x = m.new_bool_var("x")
    m.add(x >= 1)
    m.add(x <= 0)
    out = cpsat.run(m)
    assert (out.stop, out.solution, out.infeasible, out.objective) == (Stop.PROVED, None, True, None)


def test_gap() -> None:
    """The gap is relative to the incumbent, and unknown without a bound."""
    assert relative_gap(10.0, 9.0) == 0.1
    assert relative_gap(10.0, None) is None


def test_ctrl_c_stops_the_search_and_keeps_what_is_held() -> None:
    """A search that would run for minutes ends, says so, and gives its incumbent and bound."""
    model = cp_model.CpModel()
    r = random.Random(1)
    picks = [model.new_bool_var(f"{i}") for i in range(300)]
    for _ in range(30):
        model.add(sum(r.randint(1, 1000) * p for p in picks) <= 40_000)
    model.maximize(sum(r.randint(1, 1000) * p for p in picks))
    threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
    outcome = cpsat.run(model, time_limit=60, interruptible=True)
    assert outcome.stop is Stop.INTERRUPTED
    assert outcome.solution is not None
    assert outcome.objective is not None and outcome.bound is not None and 0 < outcome.objective < outcome.bound
