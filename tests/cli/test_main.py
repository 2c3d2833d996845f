"""The command line: exit codes, what goes where, and nothing half-written."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.plan.plan import Plan

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "instances" / "one-rack.json"


def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "planner", *map(str, args)], capture_output=True, text=True, check=False, cwd=ROOT
    )


def main_instance(**limits: Any) -> dict[str, Any]:
    """Return the main instance with other limits."""
    d: dict[str, Any] = json.loads((ROOT / "instances" / "5gw.json").read_text())
    d["limits"].update(limits)
    return d


def written(tmp_path: Path, data: dict[str, Any]) -> Path:
    """Write an instance."""
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(data))
    return path


def test_solve_check_show_compare(tmp_path: Path) -> None:
    """A small instance is solved, checked, shown and compared; checking a good plan prints nothing."""
    plan = tmp_path / "plan.json"
    out = run("solve", SMALL, "-o", plan)
    assert (out.returncode, out.stderr) == (0, "")
    assert "LAYOUT" in out.stdout
    checked = run("check", plan)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert run("show", plan).stdout == out.stdout
    assert "step_seconds" in run("compare", plan, plan).stdout
    assert json.loads(run("compare", plan, plan, "--json").stdout)["status"] == ["optimal", "optimal"]


def test_json_is_the_plan_and_nothing_else() -> None:
    """--json prints a plan that validates."""
    Plan.model_validate_json(run("solve", SMALL, "--json").stdout)


def test_same_plan_byte_for_byte() -> None:
    """The same instance, seed and threads give the same plan but for seconds."""

    def without_seconds(text: str) -> str:
        return "\n".join(line for line in text.splitlines() if '"seconds"' not in line)

    name = ROOT / "instances" / "cluster-1k.json"
    assert without_seconds(run("solve", name, "--json").stdout) == without_seconds(run("solve", name, "--json").stdout)


def test_edited_plan_is_named(tmp_path: Path) -> None:
    """An edited plan is refused by check with exit code 1."""
    plan = tmp_path / "plan.json"
    run("solve", SMALL, "-o", plan)
    data = json.loads(plan.read_text())
    data["layout"]["metrics"]["step_seconds"] *= 0.99
    plan.write_text(json.dumps(data))
    out = run("check", plan)
    assert out.returncode == 1
    assert "step_seconds" in out.stdout


@pytest.mark.parametrize(
    "args",
    [
        ["solve", "no-such.json"],
        ["solve", SMALL, "--pin", "layout.tensor_parallel"],
        ["solve", SMALL, "--pin", "layout.colour=3"],
        ["solve", SMALL, "--time-limit", "-1"],
        ["solve", SMALL, "-o", "/no/such/folder/plan.json"],
        ["check", SMALL],
        ["schema", "moon"],
        ["compare", SMALL],
        ["frobnicate"],
    ],
)
def test_mistakes_end_in_a_message(args: list[str | Path]) -> None:
    """A user's mistake ends in exit code 2 and a message, never in a traceback."""
    out = run(*args)
    assert out.returncode == 2
    assert out.stderr
    assert "Traceback" not in out.stderr


def test_pin_that_no_layout_meets() -> None:
    """Pins of the space that no layout meets together end in exit code 3 and their names."""
    pinned = ("layout.tensor_parallel=1", "layout.pipeline_parallel=1", "layout.zero_stage=0")
    out = run("solve", SMALL, *(word for pin in pinned for word in ("--pin", pin)))
    assert out.returncode == 3, out.stderr
    assert all(f"pins.{pin.partition('=')[0]}" in out.stdout for pin in pinned)


def test_pin_outside_the_space() -> None:
    """A pinned value that the space does not have is bad input, named with the values that there are."""
    out = run("solve", SMALL, "--pin", "layout.tensor_parallel=7")
    assert out.returncode == 2
    assert "pins['layout.tensor_parallel']: 7" in out.stderr and "1, 2, 4, 8" in out.stderr


def test_less_than_a_megawatt_of_grid(tmp_path: Path) -> None:
    """A grid of under 1 MW ends in exit code 3 with the rules in conflict, and the plan file says so."""
    d = main_instance()
    for authority in d["grid"]["balancing_authorities"]:
        authority["headroom_mw"] = 0.1
    plan = tmp_path / "plan.json"
    out = run("solve", written(tmp_path, d), "-o", plan)
    assert out.returncode == 3, out.stderr
    assert "headroom" in out.stdout
    assert "Traceback" not in out.stderr
    assert json.loads(plan.read_text())["status"] == "infeasible"
    assert run("check", plan).returncode == 0


def test_budget_too_small_for_one_site(tmp_path: Path) -> None:
    """A budget that buys nothing ends in exit code 3 and names the budget."""
    out = run("solve", written(tmp_path, main_instance(budget_usd=1e6)))
    assert out.returncode == 3, out.stderr
    assert "budget" in out.stdout


def test_deadline_that_cannot_be_met(tmp_path: Path) -> None:
    """A deadline that no plan meets ends in exit code 3 and names the deadline."""
    out = run("solve", written(tmp_path, main_instance(deadline_days=10)))
    assert out.returncode == 3, out.stderr
    assert "deadline" in out.stdout


def test_time_limit_still_gives_a_plan(tmp_path: Path) -> None:
    """A limit that is reached still gives a valid plan with its gap; the exit code says that the limit ended it."""
    plan = tmp_path / "plan.json"
    out = run("solve", ROOT / "instances" / "5gw.json", "--time-limit", "0.5", "-o", plan)
    assert out.returncode in (0, 4), out.stderr
    assert run("check", plan).stdout == ""
    assert json.loads(plan.read_text())["objective"]["gap"] is not None


def test_a_plan_that_cannot_be_written_is_not_lost() -> None:
    """Where the disk is full after the solve, the message names the file that has the plan."""
    out = run("solve", SMALL, "-o", "/dev/full")
    assert out.returncode == 2
    fallback = Path(out.stderr.strip().rpartition(" ")[2])
    assert Plan.model_validate_json(fallback.read_text()).status == "optimal"
    fallback.unlink()


def test_cheapest_in_time(tmp_path: Path) -> None:
    """The cheapest plan for a deadline on a few layouts meets it, and costs less than all of the budget."""
    d = main_instance(deadline_days=8000)
    d["objective"] = {"minimize": "cost_usd"}
    d["pins"] = {
        "layout.tensor_parallel": 60,
        "layout.microbatch_sequences": 1,
        "layout.pipeline_parallel": 25,
        "layout.sequence_parallel": True,
    }
    plan = tmp_path / "plan.json"
    out = run("solve", written(tmp_path, d), "-o", plan)
    assert out.returncode == 0, out.stdout + out.stderr
    data = json.loads(plan.read_text())
    assert data["layout"]["metrics"]["days_to_train"] <= 8000
    assert data["cost"]["total_usd"] < 80e9
