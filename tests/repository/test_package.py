"""The package: light to import, whole in the wheel, and at peace with both solvers in one process."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from commands import ROOT
from each_case import each
from worked_plan import small

from planner.cli.plan_commands import kept_types, schema

HEAVY = "ortools", "highspy", "pyomo", "pyomo.environ", "scipy", "pandas", "networkx", "matplotlib", "numpy", "pydantic"
HEAVY += ("multiprocessing",)  # of Python itself, a tenth of the start of a command
LIGHT = {"numpy", "pydantic"}


def python(code: str) -> str:
    """Run code in a fresh process and return what it prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def loaded_by(*commands: list[str]) -> set[str]:
    """Run commands in one fresh process and return which heavy packages it has loaded at the end."""
    code = f"""
import sys
import planner.cli.main
planner.to_frame, planner.show_versions
light = [m for m in (*{HEAVY!r}, "planner.report") if m in sys.modules]
for words in {commands!r}:
    sys.argv = ["planner", *words]
    try:
        planner.cli.main.main()
    except SystemExit:
        pass
print(light, *[m for m in {HEAVY!r} if m in sys.modules], sep=";")
"""
    before, *after = python(code).splitlines()[-1].split(";")
    assert before == "[]"  # importing loads none of them
    return set(after)


def test_a_refused_file_and_a_look_at_a_plan_load_no_solver(tmp_path: Path) -> None:
    instance = json.loads((ROOT / "instances" / "two-sites-405b.json").read_text(encoding="utf-8"))
    file, plan = str(tmp_path / "refused.json"), str(tmp_path / "plan.json")
    Path(file).write_text(json.dumps(instance | {"surprise": 1}), encoding="utf-8")
    Path(plan).write_text(small().model_dump_json(), encoding="utf-8")
    pinned = (["solve", "two-sites-405b", "--pin", pin] for pin in ("tp=7", "fabric.switch=none"))
    assert loaded_by(["solve", file], *pinned, ["check", plan], ["show", plan]) <= LIGHT


@pytest.mark.slow
def test_a_cluster_needs_no_solver_and_a_grid_little_of_pyomo() -> None:
    """No plugins of other solvers come with Pyomo, nor SciPy, which behind it loads all of itself, statistics too."""
    own = ["instances/one-rack.json", *("--pin", "layout.tensor_parallel=8", "--pin", "layout.zero_stage=1"), "-q"]
    assert loaded_by(["solve", *own], ["explain", *own]) <= LIGHT
    grid = loaded_by(["solve", "instances/5gw.json", "--time-limit", "3", "--quiet"])
    assert "pyomo" in grid and not {"pyomo.environ", "scipy", "matplotlib"} & grid


@pytest.mark.slow
@pytest.mark.parametrize("first", ["ortools.sat.python.cp_model", "highspy"])
def test_both_import_orders(first: str) -> None:
    """HiGHS and CP-SAT solve in one process, whichever is loaded first."""
    code = f"""
import {first}, highspy
from ortools.sat.python import cp_model
m, s = cp_model.CpModel(), cp_model.CpSolver()
x = m.new_int_var(0, 9, "x")
m.maximize(x)
assert s.solve(m) == cp_model.OPTIMAL and s.value(x) == 9
h = highspy.Highs()
a, b = h.addVariable(ub=10, obj=2), h.addVariable(ub=10, obj=3, type=highspy.HighsVarType.kInteger)
h.addConstr(a + b >= 4.5)
h.minimize()
print(h.getInfo().objective_function_value)
"""
    assert float(python(code).splitlines()[-1]) == pytest.approx(9.0)


@each("name", sorted(kept_types()))
def test_schemas_are_current(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    schema(name)
    kept = (ROOT / "instances" / "schema" / f"{name}.schema.json").read_text(encoding="utf-8")
    assert kept == capsys.readouterr().out


@pytest.mark.slow
def test_the_simulation_of_failures_agrees_with_the_closed_forms() -> None:
    """One random job of each size under every way to go on is within a percent, and AIReSim's cases are met."""
    script = [sys.executable, "scripts/verify/failures.py", "--jobs", "1"]
    found = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout.splitlines()[-1]) == (0, "0 more than 1 % apart")


@pytest.mark.slow
def test_wheel_is_whole(tmp_path: Path) -> None:
    """The wheel has one top-level package with every file of planner/, also when built from the source archive."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {"planner"}
    whole = [p for p in (ROOT / "planner").rglob("*") if "__pycache__" not in p.parts]
    shipped = [p for p in whole if p.suffix in (".py", ".json", ".typed", ".css", ".jinja")]
    assert {p.relative_to(ROOT).as_posix() for p in shipped} <= set(names)
    shipped = {f"planner/shipped/{p.name}" for p in (ROOT / "instances").glob("*.json")}
    assert len(shipped) >= 10 and shipped <= set(names)


def test_links_for_readers() -> None:
    assert (ROOT / "models").resolve() == ROOT / "planner" / "models"
    assert (ROOT / "solvers").resolve() == ROOT / "planner" / "solvers"
