"""The package: light to import, whole in the wheel, and at peace with both solvers in one process."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from planner.cli.schemas import SCHEMAS, schema_text

ROOT = Path(__file__).parents[2]
HEAVY = ("ortools", "highspy", "pyomo", "pandas", "networkx", "numpy", "pydantic")


def python(code: str) -> str:
    """Run code in a fresh process and return what it prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.mark.parametrize("module", ["planner", "planner.cli"])
def test_importing_is_light(module: str) -> None:
    """Importing the library or the command line loads nothing heavy."""
    assert python(f"import sys, {module}; print(*[m for m in {HEAVY!r} if m in sys.modules])").strip() == ""


def test_checker_loads_no_solver() -> None:
    """The checker, used, loads no solver and no formulation."""
    code = """
import sys, planner, planner.checks.registry
banned = ('ortools', 'highspy', 'pyomo', 'planner.models', 'planner.solvers')
print(*[m for m in sys.modules if m.startswith(banned)])
"""
    assert python(code).strip() == ""


@pytest.mark.slow
def test_solving_loads_no_statistics() -> None:
    """Pyomo, loaded behind SciPy or asked for it, loads all of it: a second that a solve does not need."""
    code = """
import sys
from planner.planning.load import load_instance
from planner.planning.solve import options_of, solve_instance
options = options_of(time_limit=None, gap=None, seed=0, threads=None)
solve_instance(load_instance("instances/one-rack.json", pins={"layout.tensor_parallel": 8}), options, lambda _: None)
print("scipy.stats" in sys.modules)
"""
    assert python(code).strip() == "False"


@pytest.mark.slow
@pytest.mark.parametrize("first", ["ortools.sat.python.cp_model", "highspy"])
def test_both_import_orders(first: str) -> None:
    """HiGHS and CP-SAT solve in one process, whichever is loaded first."""
    code = f"""
import {first}
from ortools.sat.python import cp_model
import highspy
m = cp_model.CpModel()
x = m.new_int_var(0, 9, "x")
m.maximize(x)
s = cp_model.CpSolver()
assert s.solve(m) == cp_model.OPTIMAL and s.value(x) == 9
h = highspy.Highs()
h.setOptionValue("output_flag", False)
a = h.addVariable(lb=0, ub=10, obj=2)
b = h.addVariable(lb=0, ub=10, obj=3, type=highspy.HighsVarType.kInteger)
h.addConstr(a + b >= 4.5)
h.minimize()
print(h.getInfo().objective_function_value)
"""
    assert float(python(code)) == pytest.approx(9.0)


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_schemas_are_current(name: str) -> None:
    """The committed JSON Schemas are those of the code; `planner schema NAME` prints them."""
    assert (ROOT / "instances" / "schema" / f"{name}.schema.json").read_text(encoding="utf-8") == schema_text(name)


@pytest.mark.slow
def test_wheel_is_whole(tmp_path: Path) -> None:
    """The wheel has one top-level package with every file of planner/, also when built from the source archive."""
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    top = {n.split("/")[0] for n in names if ".dist-info" not in n}
    files = {
        p.relative_to(ROOT).as_posix()
        for p in (ROOT / "planner").rglob("*")
        if p.suffix in (".py", ".json", ".typed", ".css", ".jinja") and "__pycache__" not in p.parts
    }
    assert top == {"planner"}
    assert files <= set(names)
    shipped = {f"planner/shipped/{p.name}" for p in (ROOT / "instances").glob("*.json")}
    assert len(shipped) >= 10 and shipped <= set(names)


def test_links_for_readers() -> None:
    """The top-level links lead to the packages and are never imported."""
    assert (ROOT / "models").resolve() == ROOT / "planner" / "models"
    assert (ROOT / "solvers").resolve() == ROOT / "planner" / "solvers"
