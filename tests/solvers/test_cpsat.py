"""The CP-SAT backend: a total status table, and no solution where there is none."""

from ortools.sat.python import cp_model

from planner.solvers import cpsat
from planner.solvers.outcome import Stop, relative_gap


def test_status_table_is_total() -> None:
    """Every native status has its meaning."""
    assert set(cpsat.STOP_BY_STATUS) == {cp_model.OPTIMAL, cp_model.INFEASIBLE, cp_model.FEASIBLE, cp_model.UNKNOWN, cp_model.MODEL_INVALID}


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
