"""Ctrl-C and SIGTERM during `planner solve`: what was found is written, with its gap; else that nothing is known."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commands import ROOT, invoke
from each_case import each
from joint_brute_force import toy
from ortools.sat.python import cp_model
from typer.testing import Result

from planner.checks.check_plan import check
from planner.cli.console import ExitCode
from planner.models.joint.joint_solution import JointPlan
from planner.models.joint.search.fewest_days import FewestDays
from planner.models.joint.strategy_tables import strategy_bound
from planner.plan.certificate import ON_TRUST
from planner.plan.plan import Plan
from planner.planning import conflict
from planner.solvers import highs, search_deadline, signals
from planner.solvers.outcome import Outcome, Stop, Values

SIGNALS = [signal.SIGINT, signal.SIGTERM]


def solve(tmp_path: Path, **limits: float) -> tuple[Result, Plan | None]:
    """Run the command on a small instance of two sites, with other limits; return the plan too, if it is written."""
    instance, path = tmp_path / "instance.json", tmp_path / "plan.json"
    i = toy(5, sites=2, forced=True)
    instance.write_text(i.replaced(limits=i.limits.replaced(**limits)).model_dump_json(exclude_none=True))
    done = invoke("solve", instance, "-o", path, "-q")
    return done, Plan.model_validate_json(path.read_text()) if path.exists() else None


@each("number", SIGNALS)
def test_a_signal_behind_the_first_plan_leaves_it(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes as the first plan is kept: the plan is written with its gap and keeps every rule."""
    # HiGHS answers nothing in no time here, as on large models: what a plan is written from must be asked for longer.
    keep, answer = FewestDays.keep, highs.run

    def kept(goal: FewestDays, found: JointPlan) -> None:
        keep(goal, found)
        if not signals.interrupted():
            os.kill(os.getpid(), number)

    def slow(model: Any, *, time_limit: float | None = None, **how: Any) -> Outcome[Values]:
        if search_deadline.Deadline(time_limit).passed:
            return Outcome(stop=Stop.LIMIT, detail="TimeLimit")
        return answer(model, time_limit=time_limit, **how)

    monkeypatch.setattr(FewestDays, "keep", kept)
    monkeypatch.setattr(highs, "run", slow)
    done, plan = solve(tmp_path)
    assert (done.exit_code, plan.status, plan.stopped) == (ExitCode.INTERRUPTED, "feasible", "interrupted")
    assert plan.objective.gap is not None and plan.objective.bound is not None
    assert check(plan) == []
    assert not signals.interrupted()


@each("number", SIGNALS)
def test_a_signal_before_a_plan_leaves_unknown(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes before any plan is found: the plan says that nothing is known, and why."""

    def bounded(*args: object) -> float:
        if not signals.interrupted():
            os.kill(os.getpid(), number)
        return strategy_bound(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("planner.models.joint.search.branch_and_bound.strategy_bound", bounded)
    done, plan = solve(tmp_path)
    assert (done.exit_code, plan.status, plan.stopped) == (ExitCode.INTERRUPTED, "unknown", "interrupted")
    assert plan.conflict is not None and "signal" in plan.conflict.reason
    assert check(plan) == [] and plan.objective.value is None


def test_a_second_signal_ends_the_command_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C does not wait for the search to notice the first: no plan is written."""

    def twice(*_: object) -> float:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second signal raises KeyboardInterrupt")

    monkeypatch.setattr("planner.models.joint.search.branch_and_bound.strategy_bound", twice)
    before = signal.getsignal(signal.SIGTERM)
    done, plan = solve(tmp_path)
    assert done.exit_code == ExitCode.INTERRUPTED and plan is None
    assert done.stderr == "interrupted before there was an answer\n"
    assert signal.getsignal(signal.SIGTERM) is before and not signals.interrupted()


@each("number", SIGNALS)
@each("before", [False, True])
def test_a_signal_ends_the_reading_of_a_file(number, before, tmp_path, monkeypatch):
    """A signal while the instance is read, or just before, ends the command: nothing is searched."""
    searched = []

    def read(*_: object, **__: object) -> None:
        if not before:
            os.kill(os.getpid(), number)
        searched.append("read on")

    def opened(*_: object, **__: object) -> Any:
        os.kill(os.getpid(), number)
        return lambda _: None

    monkeypatch.setattr("planner.planning.solve.load_instance", read)
    if before:
        monkeypatch.setattr("planner.planning.solve.Reporter", opened)
    done, plan = solve(tmp_path)
    assert (done.exit_code, plan, searched) == (ExitCode.INTERRUPTED, None, [])
    assert not signals.interrupted()


@each("number", SIGNALS)
def test_a_signal_ends_the_search_for_a_conflict(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer stays infeasible, as it is proven; its rules are not determined, and none is said to be needed."""

    def asks(*_: Any) -> Any:
        os.kill(os.getpid(), number)
        return np.ones(1, dtype=bool)

    def priced(*asked: Any) -> Any:
        os.kill(os.getpid(), number)
        asked[-1].check()

    undetermined = "not determined (interrupted)"
    for name, call, limits, more in (
        ("pipelines_in_memory", asks, {"memory_reserve_fraction": 0.9999}, "; they are among"),
        ("_unjoined", priced, {"budget_usd": 1.0}, ""),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(conflict, name, call)
            done, plan = solve(tmp_path, **limits)
        assert (done.exit_code, plan.status, plan.conflict.rules) == (ExitCode.INFEASIBLE, "infeasible", ())
        assert undetermined + more in plan.conflict.reason and undetermined in done.stdout
        assert "without any one of them" not in done.stdout and check(plan) == []


@each("number", SIGNALS)
def test_a_signal_does_not_wait_for_a_solver_that_takes_none(number, tmp_path, monkeypatch):
    """The second proof of a conflict would take minutes: the conflict comes without its mark, at once."""
    ended = threading.Event()

    def slow(*_: Any) -> Any:
        os.kill(os.getpid(), number)
        ended.wait(60)
        return cp_model.UNKNOWN

    monkeypatch.setattr(cp_model.CpSolver, "solve", slow)
    monkeypatch.setattr(cp_model.CpSolver, "stop_search", lambda _: ended.set())
    monkeypatch.setattr(cp_model.CpSolver, "response_proto", SimpleNamespace(deterministic_time=0.0))
    monkeypatch.setattr(cp_model.CpSolver, "status_name", lambda *_: "UNKNOWN")
    started = time.perf_counter()
    done, plan = solve(tmp_path, budget_usd=1.0)
    assert time.perf_counter() - started < 30 and done.exit_code == ExitCode.INFEASIBLE and plan.conflict is not None
    assert "budget" in plan.conflict.rules and plan.conflict.checked == ON_TRUST and check(plan) == []


def test_ctrl_c_while_the_command_line_is_loaded_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    words, own = [sys.executable, "-m", "planner", "--version"], {"PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (ExitCode.INTERRUPTED, "", "")
