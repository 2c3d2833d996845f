"""A solver that fails proves nothing: the plan is unknown, says what failed, and is never called infeasible."""

import dataclasses
import json
from pathlib import Path

import pytest
from ortools.sat.python import cp_model
from typer.testing import CliRunner
from worked_plan import instance_with

import planner
from planner.cli.main import app
from planner.models import batch_shares
from planner.models.layout import solve as layout
from planner.models.plan_placement import solve as plan_placement
from planner.models.sites import solve as sites
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop

ROOT = Path(__file__).parents[2]
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


def test_an_invalid_cpsat_model_is_no_proof_that_no_fabric_exists(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT's MODEL_INVALID leaves the fabric unknown."""
    invalid, solve = cp_model.CpModel(), cp_model.CpSolver.solve
    x = invalid.new_int_var(-(2**62), 2**62, "x")
    invalid.add(2**40 * x <= 1)
    monkeypatch.setattr(cp_model.CpSolver, "solve", lambda self, _: solve(self, invalid))
    _refuse(file, "fabric", "failed", "MODEL_INVALID")


def test_a_highs_error_is_no_proof_that_no_split_exists(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error inside HiGHS leaves the split over sites unknown."""
    monkeypatch.setattr(highs, "run", lambda *_, **__: Outcome(stop=Stop.FAILED, detail="SolveError"))
    _refuse(file, "split", "SolveError")


@pytest.mark.parametrize(("module", "decision"), [(sites, "sites"), (layout, "layout"), (plan_placement, "placement")])
def test_a_failed_decision_is_unknown(module, decision, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision whose back end failed is named with what the back end reported."""
    monkeypatch.setattr(module, "solve", lambda *_, **__: Outcome(stop=Stop.FAILED, detail="MODEL_INVALID"))
    _refuse(file, "MODEL_INVALID", "split" if decision == "sites" else decision)


def test_a_limit_before_the_first_layout_is_unknown(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No layout within the limit is no proof that none fits."""
    monkeypatch.setattr(layout, "solve", lambda *_, **__: Outcome(stop=Stop.LIMIT, detail="no layout fits"))
    _refuse(file, "layout", "limit")


def test_a_model_whose_layouts_cannot_be_judged_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the layout search fails for every model, none is called out of reach."""
    monkeypatch.setattr(layout, "solve", lambda *_, **__: Outcome(stop=Stop.FAILED, detail="MODEL_INVALID"))
    data = json.loads((ROOT / "instances" / "one-rack.json").read_text(encoding="utf-8"))
    data |= {"objective": {"minimize": "loss"}, "limits": {"deadline_days": 30.0, "max_batch_tokens": 4e6}}
    data["workload"]["choose"] = {"tolerance": 0.05}
    path = tmp_path / "model.json"
    path.write_text(json.dumps(data))
    _refuse(path, "layout", "MODEL_INVALID")


def test_pools_without_a_layout_in_time_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the time ends before any pool has a layout, the pools are not called infeasible."""
    search = batch_shares.search

    def none_in_time(*asked, **options):
        found = search(*asked, **options)
        return dataclasses.replace(found, best=None, bound=1e-3, stop=Stop.LIMIT)

    monkeypatch.setattr(batch_shares, "search", none_in_time)
    data = json.loads((ROOT / "instances" / "two-pools.json").read_text(encoding="utf-8"))
    data["limits"] = {"max_batch_tokens": 2 * data["workload"]["sequence_length"]}
    plan = planner.solve(data)
    assert (plan.status, plan.stopped, plan.conflict.rules) == ("unknown", "limit", ())


def test_a_failure_on_the_way_leaves_the_plan_unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the layouts of more racks could not be judged, the plan of fewer racks is feasible, not optimal."""
    instance, solve = instance_with(), layout.solve
    best = planner.solve(instance)
    racks = sum(s.racks for s in best.sites.sites)
    assert best.status == "optimal"

    def failing(asked, request, *rest, **options):
        if sum(request.racks_by_site.values()) >= racks:
            return Outcome(stop=Stop.FAILED, detail="MODEL_INVALID")
        return solve(asked, request, *rest, **options)

    monkeypatch.setattr(layout, "solve", failing)
    plan = planner.solve(instance)
    assert (plan.status, plan.stopped) == ("feasible", "limit")
    assert sum(s.racks for s in plan.sites.sites) < racks


def test_a_layout_that_is_proven_impossible_is_still_infeasible() -> None:
    """A pin that no layout meets is a proven conflict, with its rule."""
    plan = planner.solve(instance_with(pins={"layout.tensor_parallel": 7}))
    assert plan.status == "infeasible" and plan.conflict.rules
