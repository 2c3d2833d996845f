"""What a solve leaves: statuses, certificates and deadlines; wrong answers planted in each back end are no proof."""

import math
import tomllib
from pathlib import Path

import highspy
import pyomo.environ as pyo
import pytest
from each_case import each
from ortools.sat.python import cp_model
from planted import ANSWERS, BACK_ENDS, Planted

from planner.errors import InputError
from planner.models import batch_shares
from planner.models.joint.strategy_space import MICRO_BATCHES, MOST_CONTEXT_RACKS
from planner.plan import certificate
from planner.solvers import cpsat, highs
from planner.solvers.cpsat import broken_by_integers
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.search_deadline import Deadline


@each("stop", Stop)
@each("infeasible", [False, True])
def test_only_a_proof_is_called_optimal_or_infeasible(stop: Stop, infeasible: bool) -> None:
    """A solution read into other terms keeps its proof."""
    none = Outcome(stop=stop, infeasible=infeasible, solver="s", seconds=4.0)
    some = none.with_solution("x")
    assert none.status == ("infeasible" if stop is Stop.PROVED and infeasible else "unknown")
    assert some.status == ("optimal" if stop is Stop.PROVED and not infeasible else "feasible")
    assert (some.solution, some.solver, some.seconds, none.solution) == ("x", "s", 4.0, None)


@each(("value", "bound", "distance", "status"), [
    (10.0, 10.0, 0.0, "optimal"), (10.0, 10.0 - 1e-6, 0.0, "optimal"), (10.0, 1.0, 0.0, "feasible"),
    (10.0, None, 0.0, "feasible"), (10.0, 9.1, 1.0, "optimal"), (None, None, 0.0, "optimal"),
])  # fmt: skip
def test_only_a_bound_that_meets_the_value_makes_it_optimal(value, bound, distance, status):
    assert Outcome(stop=Stop.PROVED, solution=1, objective=value, bound=bound, distance=distance).status == status


def test_a_certificate_states_the_outcome() -> None:
    """Status, figures and sizes are the solver's, the rest is the decision's; without a bound there is no gap."""
    own = {"objective": 10.0, "bound": 9.0, "solver": "s", "variables": 2, "constraints": 3, "seconds": 0.5}
    more = {"formulation": "f", "minimizes": "days", "seed": 7, "given": "g", "space": {"cells": 4}}
    found = Outcome(stop=Stop.LIMIT, solution=1, **own).certificate(**more, binding=("power",)).model_dump()
    assert found == own | more | {"status": "feasible", "gap": 0.1, "binding": ("power",), "checked": ""}
    empty = Outcome(stop=Stop.PROVED, infeasible=True).certificate(formulation="f", minimizes="m", seed=0)
    assert (empty.status, empty.objective, empty.bound, empty.gap) == ("infeasible", None, None, None)


@each(("limit", "now", "elapsed", "left", "passed"), [
    (10.0, 4.0, 4.0, 6.0, False), (10.0, 10.0, 10.0, 0.0, True), (10.0, 50.0, 50.0, 0.0, True),
    (None, 1e9, 1e9, math.inf, False),
])  # fmt: skip
def test_a_deadline_counts_down_to_zero(limit, now, elapsed, left, passed, monkeypatch):
    """Seconds left fall with the clock and never below 0; no limit is infinity to arithmetic and None to solvers."""
    monkeypatch.setattr("time.perf_counter", lambda: 100.0 + now)
    deadline = Deadline(limit, started=100.0)
    found = deadline.elapsed, deadline.left, deadline.limit, deadline.passed
    assert found == (elapsed, left, None if limit is None else left, passed)


TRUE = 18.0


def milp() -> pyo.ConcreteModel:
    """Return a model of whole numbers with 18 as its least, which all zeros break."""
    m = pyo.ConcreteModel()
    m.x, m.z = (pyo.Var(bounds=(0, 9), domain=pyo.NonNegativeIntegers) for _ in range(2))
    m.row = pyo.Constraint(expr=m.x + m.z >= 9)
    m.goal = pyo.Objective(expr=2 * m.x + 3 * m.z)
    return m


def linear() -> cp_model.CpModel:
    m = cp_model.CpModel()
    x, z = m.new_int_var(0, 9, "x"), m.new_int_var(0, 9, "z")
    m.add(x + z >= 9)
    m.minimize(2 * x + 3 * z)
    return m


RUNS = {
    "CP-SAT": ("cpsat", lambda: cpsat.run(linear())),
    "HiGHS from CP-SAT": ("highs", lambda: cpsat.run_on_highs(linear())),
    "CP-SAT from Pyomo": ("cpsat", lambda: cpsat.run_pyomo(milp())),
    "HiGHS through Pyomo": ("highs", lambda: highs.run(milp())),
}
EXPECTED = {"invalid": "unknown", "unknown": "unknown", "raises": "unknown", "zeros": "unknown", "gap": "feasible"}


@each("answer", [a for a in ANSWERS if a != "infeasible"])
@each("name", RUNS)
def test_a_wrong_answer_is_no_proof(name: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is invalid, unknown, raised or no solution is unknown; a gap of 90 % that is called optimal is feasible."""
    solver, run = RUNS[name]
    planted = Planted(answer)
    BACK_ENDS[solver](monkeypatch, planted)
    outcome = run()
    assert planted.falsified >= 1
    assert outcome.status == EXPECTED[answer], outcome
    assert not outcome.proved and not outcome.infeasible and outcome.detail
    assert answer != "raises" or "RuntimeError: planted" in outcome.detail
    assert (outcome.objective == TRUE) == (answer == "gap")


@each("name", RUNS)
def test_a_false_infeasible_of_presolve_is_found_by_the_second_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run without presolve has a solution that keeps the rows, which is believed; both runs were made."""
    solver, run = RUNS[name]
    sound = run()
    assert (sound.status, sound.objective, sound.bound) == ("optimal", TRUE, TRUE)
    assert (sound.variables, sound.constraints) == (2, 1)
    planted = Planted("infeasible")
    BACK_ENDS[solver](monkeypatch, planted)
    outcome = run()
    assert planted.presolved[:2] == [True, False]
    assert (outcome.status, outcome.infeasible, outcome.objective) == ("optimal", False, TRUE)


@each("name", RUNS)
def test_infeasible_in_one_run_and_no_answer_in_the_other_is_unknown(name, monkeypatch):
    solver, run = RUNS[name]

    class Once(Planted):
        """Infeasible with presolve, an unknown status without."""

        def hits(self, *, presolve: bool) -> bool:
            self.answer = "infeasible" if presolve else "unknown"
            return super().hits(presolve=presolve)

    BACK_ENDS[solver](monkeypatch, Once("infeasible"))
    outcome = run()
    assert (outcome.status, outcome.infeasible) == ("unknown", False)
    assert "infeasible in one run" in outcome.detail


def test_what_both_runs_find_infeasible_is() -> None:
    m, p = linear(), milp()
    m.add(m.get_int_var_from_proto_index(0) + m.get_int_var_from_proto_index(1) <= 8)
    p.more = pyo.Constraint(expr=p.x + p.z <= 8)
    for outcome in (cpsat.run(m), cpsat.run_on_highs(m), cpsat.run_pyomo(p), highs.run(p)):
        assert (outcome.status, outcome.objective) == ("infeasible", None)


def test_every_row_is_put_to_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solution keeps each row, and one without variables too; changed in one variable it breaks the one on it."""
    m = cp_model.CpModel()
    a, b = m.new_bool_var("a"), m.new_bool_var("b")
    x, y = m.new_int_var(-5, 20, "x"), m.new_int_var(-5, 20, "y")
    m.add_bool_or([a, b.negated()]).with_name("or")
    m.add(x == 3)
    m.add(x + 2 * y <= 21)
    m.add(y != 8)
    sound = [1, 1, 3, 9]
    assert broken_by_integers(m.proto, sound) == ""
    for place, wrong in ((0, 0), (2, 4), (3, 10), (3, 8), (3, 99)):
        assert broken_by_integers(m.proto, [*sound[:place], wrong, *sound[place + 1 :]])
    assert broken_by_integers(m.proto, sound[:-1])
    m.add(cp_model.LinearExpr.sum([]) >= 1)
    assert broken_by_integers(m.proto, sound) != ""
    # A bound on the wrong side is dropped.
    monkeypatch.setattr(cp_model.CpSolver, "best_objective_bound", property(lambda s: s.objective_value + 5))
    outcome = cpsat.run(linear())
    assert (outcome.status, outcome.bound) == ("feasible", None)


@each("installed", [(1, 12, 0), (1, 13, 0), (1, 14, 0), (1, 15, 1), (2, 13, 1)])
@each("run", [lambda: highs.run(milp()), lambda: cpsat.run_on_highs(linear())])
def test_another_highs_is_refused_at_the_first_solve(run, installed, monkeypatch):
    for name, number in zip(("MAJOR", "MINOR", "PATCH"), installed, strict=True):
        monkeypatch.setattr(highspy, f"HIGHS_VERSION_{name}", number)
    version = ".".join(map(str, installed))
    with pytest.raises(InputError, match=rf"highspy>=1.13.1,<1.14 \(is {version}\).*pip install"):
        run()


def test_the_series_of_highs_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    asked = next(x for x in project["project"]["dependencies"] if x.startswith("highspy"))
    series, patch = highs.SERIES, highs.FIRST_PATCH
    assert asked == f"highspy>={series[0]}.{series[1]}.{patch},<{series[0]}.{series[1] + 1}"
    highs.require_highs()


def test_the_declared_space_is_the_one_that_is_searched() -> None:
    assert MICRO_BATCHES[-1] == certificate.MAX_MICRO_BATCH and certificate.MAX_CONTEXT_RACKS == MOST_CONTEXT_RACKS
    assert certificate.SMALL_BATCH == batch_shares.SMALL_BATCH
