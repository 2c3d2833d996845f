"""A solver that fails proves nothing: the plan is unknown, says what failed, and is never called infeasible."""

import json
from pathlib import Path

import pytest
from stored_plans import stored
from typer.testing import CliRunner
from worked_plan import instance_with

import planner
from planner.cli.main import app
from planner.models.joint.sites import Sites
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop, UnansweredError

LIMIT = 4  # exit status where a plan is neither proven nor excluded


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "asked.json"
    path.write_text(instance_with().model_dump_json(exclude_none=True))
    return path


def _refuse(file: Path, *words: str) -> None:
    """Solve on the command line: exit status 4, status unknown, and the reason with its words."""
    ran = CliRunner().invoke(app, ["solve", str(file), "--json", "-q"])
    plan = json.loads(ran.stdout)
    assert (ran.exit_code, plan["status"], plan["conflict"]["rules"]) == (LIMIT, "unknown", [])
    assert all(word in plan["conflict"]["reason"] for word in words)
    assert "infeasible" not in CliRunner().invoke(app, ["solve", str(file), "-q"]).stdout


def test_a_highs_error_is_no_proof_that_no_sites_exist(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highs, "run", lambda *_, **__: Outcome(stop=Stop.FAILED, detail="SolveError"))
    _refuse(file, "sites", "SolveError")


def test_a_failure_on_the_way_leaves_the_plan_unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a later question to the sites fails, the plan known by then is feasible, not optimal."""
    exact = instance_with(objective__tolerance=0.0)
    best, asked = stored(exact), Sites.cheapest
    assert best.status == "optimal"
    answers = []

    def failing(self, parts, circuit):
        if answers:
            raise UnansweredError("joint sites: MODEL_INVALID")
        found = asked(self, parts, circuit)
        answers.extend([found] if found is not None and found.capital_usd <= exact.limits.budget_usd else [])
        return found

    monkeypatch.setattr(Sites, "cheapest", failing)
    plan = planner.solve(exact)
    assert (plan.status, plan.stopped) == ("feasible", "limit")
    assert plan.objective.bound <= best.objective.value <= plan.objective.value


def test_a_layout_that_is_proven_impossible_is_still_infeasible() -> None:
    """Heads that the pinned degree does not divide are refused as input; a batch of no step is a proven conflict."""
    with pytest.raises(planner.PlannerError, match="tensor_parallel"):
        planner.solve(instance_with(pins={"layout.tensor_parallel": 7}))
    plan = planner.solve(instance_with(pins={"layout.data_parallel": 10_000}))
    assert plan.status == "infeasible" and plan.conflict.rules == ("pins.layout.data_parallel",)
