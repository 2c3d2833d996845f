"""CP-SAT, its linear rows on HiGHS, and Pyomo models restated for it: two solvers agree, and on smallest conflicts."""

import random
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from unittest.mock import Mock

import highspy
import pyomo.environ as pyo
import pytest
from each_case import each
from ortools.sat.python import cp_model

import planner
from planner.errors import InputError
from planner.solvers import cpsat
from planner.solvers.outcome import Stop, remembered, smallest_conflict
from planner.solvers.registry import SOLVERS, linear_runner, run_milp

STATUSES = cp_model.CpSolverStatus.__members__


@each("name", STATUSES)
def test_only_infeasible_is_infeasible(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every native status has a stop; a coefficient beyond whole numbers makes a model invalid, which is a failure."""
    stop = cpsat.STOP_BY_STATUS[STATUSES[name]]
    assert (stop is Stop.PROVED) == (name in ("OPTIMAL", "INFEASIBLE"))
    assert (stop is Stop.FAILED) == (name == "MODEL_INVALID")
    if name == "MODEL_INVALID":
        m = cp_model.CpModel()
        m.add(2**40 * m.new_int_var(0, 2**62, "x") >= 1)
        outcome = cpsat.run(m)
        assert (outcome.stop, outcome.infeasible, outcome.solution) == (Stop.FAILED, False, None)
        assert (outcome.detail, outcome.status) == ("MODEL_INVALID", "unknown")
    monkeypatch.setattr(cp_model.CpSolver, "solve", lambda *_: STATUSES[name])
    monkeypatch.setattr(cp_model.CpSolver, "response_proto", type("Response", (), {"deterministic_time": 0.0})())
    monkeypatch.setattr(cp_model.CpSolver, "status_name", lambda *_: name)
    outcome = cpsat.run(cp_model.CpModel())
    assert outcome.infeasible == (name == "INFEASIBLE")
    assert (outcome.status == "infeasible") == (name == "INFEASIBLE")


@each("far", [1e22, -1e22])
def test_a_side_beyond_whole_numbers_says_nothing(far: float) -> None:
    """A row that no column can reach: at most 1e22, or at least -1e22."""
    m = pyo.ConcreteModel()
    m.x = pyo.Var(domain=pyo.Integers, bounds=(0, 5))
    m.row = pyo.Constraint(expr=m.x <= far if far > 0 else m.x >= far)
    m.goal = pyo.Objective(expr=-m.x)
    assert cpsat.run_pyomo(m, time_limit=10.0, seed=0).objective == -5


def random_model(seed: int) -> tuple[cp_model.CpModel, list[cp_model.IntVar]]:
    """Return a few whole variables, rows of both senses, and an objective to minimize."""
    r, m = random.Random(seed), cp_model.CpModel()
    x = [m.new_int_var(r.randint(-3, 0), r.randint(1, 6), f"x[{i}]") for i in range(5)]
    for _ in range(4):
        a = [r.randint(-3, 3) for _ in x]
        # The same variable twice in a row, as sums over classes have it.
        m.add_linear_constraint(sum(c * v for c, v in zip(a, x, strict=True)) + x[0], r.randint(-9, 2), r.randint(3, 9))
    m.minimize(sum(r.randint(-4, 4) * v for v in x) + 7)
    return m, x


HIGHS_STATUSES = highspy.HighsModelStatus.__members__


@each("name", HIGHS_STATUSES)
def test_only_a_proof_is_infeasible(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors, unknown statuses and limits never say that there is no solution; nothing here is unbounded."""
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda _: HIGHS_STATUSES[name])
    monkeypatch.setattr(highspy.Highs, "run", lambda _: None)
    outcome = cpsat.run_on_highs(random_model(1)[0])
    proofs = ("kInfeasible", "kUnboundedOrInfeasible")
    assert outcome.infeasible == (outcome.status == "infeasible") == (name in proofs)
    assert outcome.solution is None
    assert (outcome.stop is Stop.PROVED) == (name in proofs)


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_cpsat(seed: int) -> None:
    m, x = random_model(seed)
    a, b = cpsat.run_on_highs(m), cpsat.run(m)
    assert (a.stop, a.infeasible, a.objective) == (b.stop, b.infeasible, b.objective)
    if a.solution is not None:
        assert a.bound == pytest.approx(b.bound)
        for v in x:
            m.add(v == a.solution.of(v))
        assert cpsat.run(m).objective == a.objective


def test_rows_without_variables_and_clauses_are_rows() -> None:
    """A row that is always true changes nothing, one that never is makes all infeasible; of two literals one holds."""
    m = cp_model.CpModel()
    a, b = m.new_bool_var("a"), m.new_bool_var("b")
    m.add_bool_or(a, b.negated())
    m.add(a == 0)
    m.minimize(-1 * b)
    m.add(True)
    assert cpsat.run_on_highs(m).objective == 0
    no_time = cpsat.run_on_highs(m, time_limit=0.0)
    assert no_time.stop is Stop.LIMIT and not no_time.infeasible
    m.add(False)
    assert cpsat.run_on_highs(m).infeasible
    a, b, c = (m.new_int_var(0, 3, n) for n in "abc")
    m.add_multiplication_equality(c, a, b)
    with pytest.raises(ValueError, match="not a linear row"):
        cpsat.run_on_highs(m)


def test_threads_run_at_the_same_time() -> None:
    """Eight runs at once give what they give one after another."""
    alone = [cpsat.run_on_highs(random_model(seed)[0]).objective for seed in range(12)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda seed: cpsat.run_on_highs(random_model(seed)[0]).objective, range(12))) == alone


def mixed(seed: int, *, continuous: bool) -> pyo.ConcreteModel:
    """Return a small MILP of rows with a lower side, an upper side or both, now and then infeasible."""
    r, m = random.Random(seed), pyo.ConcreteModel()
    m.x = pyo.Var(range(3), bounds=(0, 9), domain=pyo.NonNegativeIntegers)
    m.y = pyo.Var(range(2), bounds=(0, 9), domain=pyo.NonNegativeReals if continuous else pyo.NonNegativeIntegers)
    all_of = [*m.x.values(), *m.y.values()]

    def row(_: pyo.ConcreteModel, i: int) -> object:
        body = sum(r.randint(-3, 5) * v for v in all_of) + m.x[r.randrange(3)] + r.randint(-9, 9)
        low = r.randint(5, 40) / 4
        return (low, body, low + r.randint(0, 9)) if i == 3 else body >= low if i % 2 else body <= r.randint(20, 60)

    m.rows = pyo.Constraint(range(4), rule=row)
    cost = sum(r.randint(1, 900) / 100 * v for v in all_of)
    m.goal = pyo.Objective(expr=cost + 3, sense=r.choice([pyo.minimize, pyo.maximize]))
    return m


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_both_solvers_agree_on_a_milp(seed: int, continuous: bool) -> None:
    """Optimum and infeasibility are the same; CP-SAT's bound excludes nothing, its solution keeps all rows.

    Sides of rows, numbers beside variables and the sense of the objective are kept.
    """
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
    assert run_milp(m, solver="cpsat") == "rows"


@each("name", [None, *SOLVERS])
def test_linear_rows_run_on_either(name: str | None) -> None:
    """The same optimum comes back from the usual solver and from the one that is asked for, with its name."""
    m = cp_model.CpModel()
    x, y = m.new_int_var(0, 9, "x"), m.new_int_var(0, 9, "y")
    m.add(2 * x + 3 * y >= 7)
    m.minimize(x + 2 * y)
    outcome = linear_runner(name, usual="highs")(m, time_limit=10.0, presolve=False)
    assert (outcome.objective, outcome.bound, outcome.stop) == (4, 4, Stop.PROVED)
    title, package = {"highs": ("HiGHS", "highspy"), "cpsat": ("CP-SAT", "ortools")}[name or "highs"]
    assert outcome.solver.startswith(title) and version(package) in outcome.solver
    with pytest.raises(InputError, match=r"must be one of highs, cpsat \(is 'scip'\)"):
        planner.solve("one-rack", solver="scip")


@pytest.mark.parametrize("seed", range(4))
def test_it_is_that_of_leaving_out_each_in_turn(seed: int) -> None:
    """Each rule is left out, the first ones first, for good where the rest still conflict."""
    r = random.Random(seed)
    for _ in range(100):
        rules = [f"r{k}" for k in range(r.randint(1, 9))]
        cores = [frozenset(r.sample(rules, r.randint(1, min(4, len(rules))))) for _ in range(r.randint(1, 4))]
        conflicting, kept = Mock(side_effect=lambda some, of=cores: any(core <= some for core in of)), rules
        found = smallest_conflict(remembered(conflicting, rules), rules)
        asked = [call.args[0] for call in conflicting.call_args_list]
        for rule in rules:
            without = [x for x in kept if x != rule]
            kept = without if any(core <= frozenset(without) for core in cores) else kept
        assert found == kept
        assert len(asked) == len(set(asked)) and frozenset(rules) not in asked


def test_one_rule_of_many_is_found_by_few_questions() -> None:
    rules, conflicting = [f"r{k}" for k in range(64)], Mock(side_effect=lambda some: "r40" in some)
    assert smallest_conflict(remembered(conflicting, rules), rules) == ["r40"] and conflicting.call_count <= 2 * 6
    assert smallest_conflict(remembered(lambda _: False, rules), rules) == rules  # what is not known stays
