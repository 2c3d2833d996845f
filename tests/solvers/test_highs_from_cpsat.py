"""Linear rows of a CP-SAT model on HiGHS: the same answers as CP-SAT, its statuses and its limits."""

import random
from concurrent.futures import ThreadPoolExecutor

import highspy
import pytest
from ortools.sat.python import cp_model

from planner.solvers import cpsat, highs_from_cpsat
from planner.solvers.outcome import Stop


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


STATUSES = highspy.HighsModelStatus.__members__


@pytest.mark.parametrize("name", STATUSES)
def test_only_a_proof_is_infeasible(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors, unknown statuses and limits never say that there is no solution; nothing here is unbounded."""
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda _: STATUSES[name])
    monkeypatch.setattr(highspy.Highs, "run", lambda _: None)
    outcome = highs_from_cpsat.run(random_model(1)[0])
    proofs = ("kInfeasible", "kUnboundedOrInfeasible")
    assert outcome.infeasible == (outcome.status == "infeasible") == (name in proofs)
    assert outcome.solution is None
    assert (outcome.stop is Stop.PROVED) == (name in proofs)


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_cpsat(seed: int) -> None:
    m, x = random_model(seed)
    a, b = highs_from_cpsat.run(m), cpsat.run(m)
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
    assert highs_from_cpsat.run(m).objective == 0
    m.add(False)
    assert highs_from_cpsat.run(m).infeasible


def test_other_rules_are_refused() -> None:
    m = cp_model.CpModel()
    a, b, c = (m.new_int_var(0, 3, n) for n in "abc")
    m.add_multiplication_equality(c, a, b)
    with pytest.raises(ValueError, match="not a linear row"):
        highs_from_cpsat.run(m)


def test_no_time_is_a_limit_without_an_answer() -> None:
    """There is no incumbent and no proof where no time was given."""
    m, _ = random_model(1)
    outcome = highs_from_cpsat.run(m, time_limit=0.0)
    assert outcome.stop is Stop.LIMIT and not outcome.infeasible


def test_threads_run_at_the_same_time() -> None:
    """Eight runs at once give what they give one after another."""
    alone = [highs_from_cpsat.run(random_model(seed)[0]).objective for seed in range(24)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda seed: highs_from_cpsat.run(random_model(seed)[0]).objective, range(24))) == alone
