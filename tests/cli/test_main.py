"""The command line: exit codes, what goes where, and nothing half-written."""

import json
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import run_apart, run_here
from joint_brute_force import toy

from planner.plan.plan import Plan

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "instances" / "one-rack.json"


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CompletedProcess[str]]:
    """Return the file of a small plan, and how the command that wrote it ended."""
    plan = tmp_path_factory.mktemp("solved") / "plan.json"
    return plan, run_apart("solve", SMALL, "-o", plan)


def test_solve_check_show_compare(solved: tuple[Path, CompletedProcess[str]]) -> None:
    """A small instance is solved, checked, shown and compared; checking a good plan prints nothing."""
    plan, out = solved
    assert (out.returncode, out.stderr) == (0, "")
    assert "LAYOUT" in out.stdout
    checked = run_here("check", plan)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert run_here("show", plan).stdout == out.stdout
    assert "step_seconds" in run_here("compare", plan, plan).stdout
    assert json.loads(run_here("compare", plan, plan, "--json").stdout)["status"] == ["optimal", "optimal"]


def test_same_plan_byte_for_byte(tmp_path: Path) -> None:
    """The same instance, seed and threads give the same plan but for seconds; --json prints it and nothing else."""

    def without_seconds(text: str) -> str:
        return "\n".join(line for line in text.splitlines() if '"seconds"' not in line)

    name = tmp_path / "instance.json"
    name.write_text(toy(5, sites=2, forced=True).model_dump_json(exclude_none=True))
    one, two = (run_here("solve", name, "--json").stdout for _ in range(2))
    assert Plan.model_validate_json(one).status == "optimal"
    assert without_seconds(one) == without_seconds(two)


def test_edited_plan_is_named(solved: tuple[Path, CompletedProcess[str]], tmp_path: Path) -> None:
    data = json.loads(solved[0].read_text())
    data["layout"]["metrics"]["step_seconds"] *= 0.99
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(data))
    out = run_here("check", edited)
    assert out.returncode == 1
    assert "step_seconds" in out.stdout


@pytest.mark.parametrize(("args", "told"), [
    (["solve", "no-such.json"], "no-such.json: no such file; check the path\n"),
    (["solve", SMALL, "--pin", "layout.tensor_parallel"], "--pin"),
    (["solve", SMALL, "--pin", "layout.tensor_parallel=7"], "pins['layout.tensor_parallel']: 7"),
    (["solve", SMALL, "--pin", "layout.colour=3"], "layout.colour"),
    (["solve", SMALL, "--time-limit", "-1"], "--time-limit: must be"),
    (["solve", SMALL, "-o", "/no/such/folder/plan.json"], "its folder does not exist"),
    (["check", SMALL], "is an instance, where a plan is due"),
    (["schema", "moon"], "must be one of instance, job, placement, plan"),
    (["compare", SMALL], "is an instance"),
    (["frobnicate"], "No such command 'frobnicate'"),
])  # fmt: skip
def test_mistakes_end_in_a_message(args: list[str | Path], told: str) -> None:
    """A user's mistake ends in exit code 2 and a message, never in a traceback."""
    out = run_here(*args)
    assert (out.returncode, out.stdout) == (2, "")
    assert told in out.stderr and "Traceback" not in out.stderr
    assert "=7" not in str(args[-1]) or "1, 2, 4, 8" in out.stderr  # the values that there are


def test_a_reader_that_leaves_early() -> None:
    """Where stdout is closed before all of it is read, as head does, a command ends well and says nothing."""
    command = [sys.executable, "-m", "planner", "schema", "plan"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as ended:
        assert ended.stdout is not None and ended.stderr is not None
        ended.stdout.readline()
        ended.stdout.close()
        assert (ended.stderr.read(), ended.wait()) == ("", 0)


PINNED = ("layout.tensor_parallel=1", "layout.pipeline_parallel=1", "layout.zero_stage=0")
HEADROOM = [f"--set=grid.balancing_authorities[{area}].headroom_mw=0.1" for area in ("PJM", "SRP", "NEVP", "BPAT")]
DEADLINE = ("Rule in conflict (layout): limits.deadline_days.", "Proven over the declared space")


@pytest.mark.parametrize(("args", "told"), [
    ([SMALL, *(f"--pin={pin}" for pin in PINNED)], [f"pins.{pin.partition('=')[0]}" for pin in PINNED]),
    ([SMALL, "--set", "limits.deadline_days=0.01"], DEADLINE),
    ([ROOT / "instances" / "two-sites-405b.json", "--set", "limits.budget_usd=1e6"], ["budget"]),
    ([ROOT / "instances" / "5gw.json", *HEADROOM], ["headroom"]),
])  # fmt: skip
def test_what_no_plan_meets_is_named(args: list[str | Path], told: list[str], tmp_path: Path) -> None:
    """Pins, a deadline, a budget or power that allow no plan end in exit code 3 and their names; the plan says so."""
    plan = tmp_path / "plan.json"
    out = run_here("solve", *args, "-o", plan)
    assert (out.returncode, out.stderr) == (3, "")
    assert all(text in out.stdout for text in told) and "TP over racks" not in out.stdout
    assert json.loads(plan.read_text())["status"] == "infeasible"
    assert run_here("check", plan).returncode == 0


def test_time_limit_still_gives_a_plan(tmp_path: Path) -> None:
    """A limit shorter than the search for a first plan gives that plan with its gap, and says how long it took."""
    plan = tmp_path / "plan.json"
    out = run_here("solve", ROOT / "instances" / "cluster-1k.json", "--time-limit", "0.001", "-o", plan)
    data = json.loads(plan.read_text())
    assert (out.returncode, data["status"], data["stopped"]) == (4, "feasible", "limit"), out.stderr
    assert 0 < data["objective"]["gap"] < 1 and " s instead of 0.001" in out.stdout
    assert run_here("check", plan).returncode == 0


def test_a_plan_that_cannot_be_written_is_not_lost() -> None:
    """Where the disk is full after the solve, the message names the file that has the plan."""
    out = run_here("solve", SMALL, "-o", "/dev/full")
    assert out.returncode == 2
    fallback = Path(out.stderr.strip().rpartition(" ")[2])
    assert Plan.model_validate_json(fallback.read_text()).status == "optimal"
    fallback.unlink()
