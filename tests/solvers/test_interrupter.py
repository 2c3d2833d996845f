"""An interrupter ends a solve from another thread: models in HiGHS and CP-SAT at once, plans with the best so far."""

import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyomo.environ as pyo
import pytest
from joint_brute_force import toy
from ortools.sat.python import cp_model
from stored_plans import stored

import planner
from planner.solvers import cpsat, highs, search_deadline
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.signals import Interrupter, asked_to_end, ended_by, finishing, interrupted


def weights() -> list[list[int]]:
    """Return the rows and values of a knapsack that takes a solver minutes."""
    r = random.Random(1)
    return [[r.randint(1, 1000) for _ in range(300)] for _ in range(31)]


def knapsack() -> cp_model.CpModel:
    model, (*rows, values) = cp_model.CpModel(), weights()
    picks = [model.new_bool_var(f"{i}") for i in range(300)]
    for row in rows:
        model.add(cp_model.LinearExpr.weighted_sum(picks, row) <= 40_000)
    model.maximize(cp_model.LinearExpr.weighted_sum(picks, values))
    return model


def pyomo_knapsack() -> pyo.ConcreteModel:
    m, (*rows, values) = pyo.ConcreteModel(), weights()
    m.x = pyo.Var(range(300), domain=pyo.Binary)
    m.rows = pyo.ConstraintList()
    for row in rows:
        m.rows.add(pyo.sum_product(dict(enumerate(row)), m.x) <= 40_000)
    m.goal = pyo.Objective(expr=pyo.sum_product(dict(enumerate(values)), m.x), sense=pyo.maximize)
    return m


LONG = 60.0  # seconds that the models here take at least
WORK = 0.5  # processor seconds of a run before its end is asked for: an incumbent and a bound are there
SOON = 5.0  # processor seconds within which it ends then, however busy the machine is; measured: 0.1


RUNS: dict[str, tuple[Callable[[], Any], Callable[..., Outcome[Any]]]] = {
    "HiGHS": (pyomo_knapsack, highs.run),
    "CP-SAT": (knapsack, cpsat.run),
    "HiGHS of a CP-SAT model": (knapsack, cpsat.run_on_highs),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("thread", ["main", "other"])
def test_a_long_run_of_a_solver_ends(name: str, thread: str) -> None:
    """A model that takes minutes ends soon after the call, with its incumbent and bound, in any thread."""
    stop, asked, (stated, run) = Interrupter(), [0.0], RUNS[name]
    model, begun = stated(), time.process_time()

    def ask() -> None:
        while time.process_time() < begun + WORK:
            time.sleep(0.01)
        asked[0] = time.process_time()
        stop.interrupt()

    def solve() -> Any:
        with ended_by(stop):
            return run(model, time_limit=LONG), time.process_time()

    threading.Thread(target=ask).start()
    if thread == "main":
        outcome, ended = solve()
    else:
        with ThreadPoolExecutor(1) as pool:
            outcome, ended = pool.submit(solve).result()
    assert outcome.stop is Stop.INTERRUPTED and ended - asked[0] < SOON
    assert outcome.solution is not None and outcome.objective is not None and outcome.bound is not None
    assert 0 < outcome.objective < outcome.bound


def test_ctrl_c_stops_the_search_and_returns_the_incumbent() -> None:
    threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
    outcome = cpsat.run(knapsack(), time_limit=LONG, interruptible=True)
    assert outcome.stop is Stop.INTERRUPTED and outcome.solution is not None
    assert 0 < (outcome.objective or 0.0) < (outcome.bound or 0.0)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_begins_after_the_call_is_no_run_at_its_limit(name: str) -> None:
    """A run that has no time left because its end was asked for says so; without a limit of its own too."""
    stop, (stated, run) = Interrupter(), RUNS[name]
    stop.interrupt()
    with ended_by(stop):
        for limit in (LONG, None):
            assert run(stated(), time_limit=limit).stop is Stop.INTERRUPTED
    assert run(stated(), time_limit=0.0).stop is Stop.LIMIT


def test_only_the_solves_that_have_it_end() -> None:
    """An interrupter ends what was given to it, not what a plan in hand still needs, and serves again once cleared."""
    stop = Interrupter()
    assert repr(stop) == "Interrupter(interrupted=False)" and not interrupted()
    stop.interrupt()
    assert not interrupted()
    with ended_by(stop):
        assert interrupted() and asked_to_end()()
        with finishing():
            assert not interrupted() and not asked_to_end()()
        stop.clear()
        assert not interrupted() and not asked_to_end()()


def test_a_callback_may_end_the_solve_with_its_first_plan() -> None:
    stop, seen = Interrupter(), list[float]()

    def first(event: planner.Event) -> None:
        if isinstance(event, planner.IncumbentFound) and event.incumbent is not None:
            seen.append(event.incumbent)
            stop.interrupt()

    plan = planner.solve(toy(5, sites=2, forced=True), on_progress=first, interrupt=stop)
    assert len(seen) == 1 and (plan.status, plan.stopped) == ("feasible", "interrupted")
    assert plan.objective.value == pytest.approx(seen[0]) and plan.objective.bound is not None
    assert planner.check(plan) == []


def test_solves_in_threads_give_the_plans_of_one_after_another() -> None:
    """Four solves begun at once, on two questions, have the very plans of solves alone."""
    questions = [toy(5, sites=2, forced=True), toy(7, sites=2, forced=True)]
    alone = [stored(q) for q in questions] * 2
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(planner.solve, questions * 2))
    for a, b in zip(alone, together, strict=True):
        assert a.status == "optimal" and (b.objective, b.cost, b.instance) == (a.objective, a.cost, a.instance)


@pytest.mark.parametrize("asked", ["limit", "interrupted"])
def test_the_wait_for_another_thread_ends_too(asked: str) -> None:
    stop, taken, done = Interrupter(), threading.Event(), threading.Event()

    def other() -> None:
        with search_deadline._lock:
            taken.set()
            done.wait(LONG)

    thread = threading.Thread(target=other)
    thread.start()
    taken.wait()
    if asked == "interrupted":
        threading.Timer(0.3, stop.interrupt).start()
    try:
        limit = 0.3 if asked == "limit" else None
        plan = planner.solve(toy(5, sites=2, forced=True), time_limit=limit, interrupt=stop)
    finally:
        done.set()
        thread.join()
    assert (plan.status, plan.stopped) == ("unknown", asked)
    assert "before this solve's turn" in plan.conflict.reason
    if asked == "interrupted":  # it is set still, and ends a solve at once
        plan = planner.solve(toy(5, sites=2, forced=True), interrupt=stop)
        assert (plan.status, plan.stopped) == ("unknown", "interrupted") and planner.check(plan) == []
        assert "signal or an interrupter" in plan.conflict.reason
