"""The models of a solve as files: each, read again and solved, has the answer that the index states."""

import json
from pathlib import Path
from typing import Any

import highspy
import pytest
from joint_brute_force import toy
from ortools.sat.python import cp_model
from typer.testing import CliRunner

import planner
from planner.cli.main import app
from planner.solvers.progress import INDEX, _unique


def index(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (folder / INDEX).read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the models of a solve of two sites."""
    path = tmp_path_factory.mktemp("models") / "of" / "a-solve"
    question = toy(5, sites=2, forced=True)
    plan = planner.solve(question, models=path)
    assert plan.objective == planner.solve(question).objective
    return path


@pytest.mark.parametrize("suffix", ["mps", "lp"])
def test_a_file_solved_again_has_the_answer_of_the_index(suffix: str, folder: Path) -> None:
    lines = [x for x in index(folder) if f"{x['model']}.{suffix}" in x["files"]]
    assert len(lines) >= 3 and any(x["status"] == "optimal" for x in lines)
    for line in lines:
        h = highspy.Highs()
        h.setOptionValue("output_flag", False)
        assert h.readModel(str(folder / f"{line['model']}.{suffix}")) == highspy.HighsStatus.kOk
        h.run()
        infeasible = h.getModelStatus() == highspy.HighsModelStatus.kInfeasible
        assert infeasible == (line["status"] == "infeasible")
        if not infeasible:
            value = line["objective"] or 0.0  # a question without a goal has none, and a file has 0
            assert h.getInfo().objective_function_value == pytest.approx(value, abs=1e-6)


def test_rows_and_columns_have_the_names_of_the_model(folder: Path) -> None:
    text = (folder / "0002.lp").read_text()
    assert "headroom(" in text and "modules(E1)" in text


def test_each_has_a_log_and_cpsat_models_their_text(folder: Path) -> None:
    """Every model has the log of its solver; those of CP-SAT stand as text that reads back and solves alike."""
    lines = index(folder)
    assert [x["model"] for x in lines] == [f"{i:04d}" for i in range(1, len(lines) + 1)]
    assert all((folder / f"{x['model']}.log").stat().st_size > 0 for x in lines)
    theirs = [x for x in lines if x["solver"].startswith("CP-SAT")]
    assert theirs and all(f"{x['model']}.pbtxt" in x["files"] for x in theirs)
    for line in theirs:
        model = cp_model.CpModel()
        text = (folder / f"{line['model']}.pbtxt").read_text()
        assert model.proto.parse_text_format(text)
        status = cp_model.CpSolver().solve(model)
        assert (status == cp_model.INFEASIBLE) == (line["status"] == "infeasible")


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    """Models are not mixed with other files: the folder must be empty or new, and one that can be made."""
    (tmp_path / "x").write_text("")
    question = toy(5, sites=2, forced=True)
    with pytest.raises(planner.PlannerError, match="must be an empty folder"):
        planner.solve(question, models=tmp_path)
    with pytest.raises(planner.PlannerError, match="cannot be written"):
        planner.solve(question, models=tmp_path / "x" / "y")


def test_the_command_writes_them(tmp_path: Path) -> None:
    instance = tmp_path / "i.json"
    instance.write_text(toy(5, sites=2, forced=True).model_dump_json(exclude_none=True))
    done = CliRunner().invoke(app, ["solve", str(instance), "--models", str(tmp_path / "m")])
    assert done.exit_code == 0 and len(index(tmp_path / "m")) >= 3


def test_names_are_fit_for_files() -> None:
    """Brackets, spaces and repetition are made into names that MPS and LP can hold, each once."""
    given = ["modules[palo verde]", "modules[palo verde]", "e1", "9x", "power flow[a,b]"]
    assert _unique(given) == ["modules(palo_verde)", "modules(palo_verde)#2", "x_e1", "x_9x", "power_flow(a,b)"]
