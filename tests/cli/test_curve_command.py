"""`planner frontier` and the library's call: arguments of the search, text, files and exit statuses."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from commands import run_here
from curves import POINTS, answer_with, curve, made
from each_case import each
from worked_plan import small

import planner
from planner.checks.check_plan import check
from planner.cli.console import ExitCode as Exit
from planner.errors import InputError
from planner.plan.plan import Curve
from planner.plan.plan_files import read_plan
from planner.planning.frontier import Frontier
from planner.solvers.signals import interrupted

TABLE = """\
worked: 4 plans, of which none beats another in both capital and days
      capital  days  at least   MFU  racks  idle GPUs  layout, and what else changes
       $1.00B    40        38  40 %    100          8  TP 8 x PP 4 x DP 3
knee   $2.00B    16     15.43  40 %    260          8  TP 8 x PP 4 x DP 8
       $5.00B  11.5         -  40 %    400          8  TP 8 x PP 2 x DP 25
       $9.00B  10.9      10.9  40 %    500          8  TP 8 x PP 2 x DP 31; memory ZeRO-1, recompute selective becomes ZeRO-3, recompute selective
Knee: $2.00B, 16 days; twice the money divides the days by 2.50 up to it, by 1.19 behind it.
For every plan of at most $10.00B in less than 800 days a row is within 9.9 % in money and days (proven).
"""  # noqa: E501


def test_the_table_and_what_is_proven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A line a plan, the knee marked, and below it the proven share, the bounds and the knee; a plan is an instance."""
    answer_with(monkeypatch, made(curve()))
    done = run_here("frontier", "one-rack")
    assert (done.returncode, done.stdout, done.stderr) == (Exit.DONE, TABLE, "")
    assert Curve.model_validate_json(run_here("frontier", "one-rack", "--json").stdout) == curve()
    file = tmp_path / "plan.json"
    file.write_text(small().model_dump_json())
    done = run_here("frontier", file)
    told = f"{file}: is a plan; the curve is of its instance, and starts anew\n"
    assert (done.returncode, done.stdout, done.stderr) == (Exit.DONE, TABLE, told)


def test_options_reach_the_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The instance is changed as --set says, and every option arrives as it was given; lines of progress come back."""

    def search(progress: Any) -> Frontier:
        progress("34 % at 12 points")
        return made(curve())

    asked, lines = answer_with(monkeypatch, search), list[str]()
    command = ["--epsilon", "0.2", "--points", "5", "--time-limit", "9", "--seed", "3", "--threads", "2"]
    run_here("frontier", "one-rack", *command, "--set", "limits.max_batch_tokens=x2", "--log", tmp_path / "log")
    planner.frontier("one-rack", epsilon=0.2, points=5, time_limit=9, seed=3, threads=2, progress=lines.append)
    assert lines == ["34 % at 12 points"] and lines[0] in (tmp_path / "log").read_text()
    planner.frontier("one-rack", set={"limits.max_batch_tokens": "x2"})
    for call in asked[:2]:
        assert (call["epsilon"], call["points"]) == (0.2, 5)
        assert (call["options"].time_limit, call["options"].seed, call["options"].threads) == (9, 3, 2)
    assert [call["instance"].limits.max_batch_tokens for call in asked] == [8e6, 4e6, 8e6]
    assert (asked[2]["epsilon"], asked[2]["points"], asked[2]["options"].time_limit) == (0.03, None, None)


NONE: dict[str, Any] = {"points": (), "epsilon": None}


@each(("changes", "status", "text"), [
    ({}, Exit.DONE, "a row is within 9.9 %"),
    ({"epsilon": 0.03, "most_usd": None}, Exit.DONE, "For every plan in less than 800 days a row is within 3 %"),
    ({"epsilon": 0.34123, "stopped": "limit"}, Exit.LIMIT, "by its limit before 3 % was proven.\n"),
    ({"epsilon": 0.34123, "stopped": "limit"}, Exit.LIMIT, "within 35 % in money"),
    ({"epsilon": 0.02, "least_usd": 1e9, "stopped": "limit"}, Exit.LIMIT, "by its limit before 3 % was proven.\n"),
    ({"epsilon": 0.02, "least_usd": 1e9, "stopped": "limit", "points": POINTS[:1]}, Exit.LIMIT,
        "No plan within the limits trains in less than 38 days (proven); cheaper plans are left open.\nThe search"),
    ({"epsilon": None, "stopped": "limit"}, Exit.LIMIT, "Of other plans nothing is proven."),
    ({"epsilon": 0.5, "stopped": "interrupted"}, Exit.INTERRUPTED, "ended by an interrupt before"),
    (NONE, Exit.INFEASIBLE, "worked: infeasible\nNo plan of at most $10.00B in less than 800 days keeps all rules"),
    (NONE | {"stopped": "limit"}, Exit.LIMIT, "no plan so far: the search was ended by its limit"),
    (NONE | {"stopped": "interrupted"}, Exit.INTERRUPTED, "no plan so far: the search was ended by an interrupt"),
])  # fmt: skip
def test_exit_statuses(changes, status, text, monkeypatch, tmp_path):
    """0 where the share is proven, rounded up, 3 where no plan is, 4 at a limit, 130 at Ctrl-C; files are written."""
    answer_with(monkeypatch, made(curve(**changes)))
    done = run_here("frontier", "one-rack", "-o", tmp_path / "rows.jsonl", "--plot", tmp_path / "a.svg")
    assert done.returncode == status
    assert text in done.stdout and (tmp_path / "a.svg").exists()
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == len(changes.get("points", POINTS))
    so_far = bool(changes.get("points", POINTS)) and changes.get("stopped", "proved") != "proved"
    assert ("so far, of which none beats" in done.stdout) == so_far


def test_a_plan_that_the_checker_disagrees_with(monkeypatch: pytest.MonkeyPatch) -> None:
    front = made(curve())
    wrong = front.plans[1].replaced(verified=False)
    answer_with(monkeypatch, Frontier(front.instance, front.curve, (front.plans[0], wrong, *front.plans[2:])))
    done = run_here("frontier", "one-rack")
    assert done.returncode == Exit.UNVERIFIED
    assert "the checker disagrees with 1 plan, such as that of index 1" in done.stderr


def test_ctrl_c_keeps_what_is_proven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The signal asks the search for its end; the curve that it returns is written."""

    def search(_: Any) -> Frontier:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted()
        return made(curve(epsilon=0.5, stopped="interrupted"))

    answer_with(monkeypatch, search)
    assert run_here("frontier", "one-rack", "-o", tmp_path / "curve.json").returncode == Exit.INTERRUPTED
    assert Curve.model_validate_json((tmp_path / "curve.json").read_text()).epsilon == 0.5


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_plot_and_compare_read_the_rows(ending: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rows are those of a sweep: `planner plot` draws them, and `planner compare` sets them side by side."""
    answer_with(monkeypatch, made(curve()))
    rows = tmp_path / f"rows.{ending}"
    assert run_here("frontier", "one-rack", "-o", rows).returncode == Exit.DONE
    axes = ("-x", "frontier.capital_usd", "-y", "objective.value", "--log", "xy")
    drawn = run_here("plot", rows, *axes, "-o", tmp_path / "a.svg")
    assert (drawn.returncode, drawn.stderr) == (0, "")
    done = run_here("compare", rows, "--json")
    assert done.returncode == 0
    figures = json.loads(done.stdout)
    assert figures["objective.value"] == [days for _, days, _, _ in POINTS]
    assert figures["objective.bound"] == [bound for _, _, bound, _ in POINTS]
    assert figures["frontier.knee"] == [False, True, False, False]
    assert figures["layout.zero_stage"] == [1, 1, 1, 3]


def test_the_plan_of_each_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """--plans makes the folder and writes a file a point, by its row's index; bad input leaves no folder."""
    answer_with(monkeypatch, made(curve()))
    assert run_here("frontier", "no-such.json", "--plans", tmp_path / "plans").returncode == 2
    assert list(tmp_path.iterdir()) == []
    done = run_here("frontier", "one-rack", "--plans", tmp_path / "plans")
    files = sorted((tmp_path / "plans").iterdir())
    assert [f.name for f in files] == ["000.json", "001.json", "002.json", "003.json"] and done.stderr == ""
    assert check(read_plan(files[0])) == []
    assert "LAYOUT" in run_here("show", files[0]).stdout


def test_plans_of_a_longer_curve_before_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who reads all files of the folder takes them for this curve's; files by other names are the user's own."""
    for name in ("1.json", "002-mine.json", "2024.txt", "notes.json"):
        (tmp_path / name).touch()
    told = []
    for count in (4, 4, 3, 1):
        answer_with(monkeypatch, made(curve(POINTS[:count])))
        told.append(run_here("frontier", "one-rack", "--plans", tmp_path).stderr)
    names = "003.json", "001.json, 002.json, 003.json"
    lines = [f"{tmp_path}: not of this curve: {which}; remove what is of an earlier one\n" for which in names]
    assert told == ["", "", *lines]
    assert (tmp_path / "003.json").stat().st_size > 0  # none is removed


NOT_PROVEN = "No knee is named: the bounds of the curve's ends and of its bend are not all proven.\n"


@each(("points", "text"), [
    (((1e9, 40.0, None, 100), (2e9, 20.0, None, 205)), "No knee: racks x days is constant within 5 %.\n"),
    (((1e9, 40.0, None, 100), (2e9, 20.0, None, 300)), "No knee; racks x days lies between 4,000 and 6,000.\n"),
    *((tuple((*p[:2], None, p[3]) if n == at else p for n, p in enumerate(POINTS)), NOT_PROVEN) for at in (0, 1, 3)),
])  # fmt: skip
def test_no_knee(points: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Racks x days is constant, or it is said between which figures; none is named where an end or it is not proven."""
    answer_with(monkeypatch, made(curve(points)))
    told = run_here("frontier", "one-rack").stdout
    assert "\nknee " not in told and "Knee:" not in told and text in told


@each(("given", "problem"), [
    (["--epsilon", "0"], "--epsilon: must be a number above 0 up to 1 (is 0.0); 0.03 is three percent"),
    (["-o", "rows.txt"], "rows.txt: must end in .json, .jsonl, .ndjson, .csv, .parquet (is '.txt')"),
    (["--plot", "curve.pdf"], "curve.pdf: must end in .svg or .png"),
    (["--plans", "no/such/folder"], "no/such/folder: is no folder; make it"),
    (["--set", "objective.minimize=loss"], "objective.minimize"),
])  # fmt: skip
def test_mistakes_are_named(given: list[str], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad input ends with 2 before anything is asked of the search."""
    asked = answer_with(monkeypatch, made(curve()))
    done = run_here("frontier", "one-rack", *given)
    assert (done.returncode, done.stdout, asked) == (2, "", [])
    assert problem in done.stderr


@each(("instance", "problem"), [
    ("5gw-best-6-months", "objective.minimize: is loss"),
    ("two-pools", "hardware.pools: each pool has a layout of its own"),
    ({"network": {}, "hardware": {"accelerator": "any"}}, "is a question about a fabric alone"),
])  # fmt: skip
def test_instances_without_a_curve(instance: Any, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model chosen for the least loss, pools and a fabric alone have no curve, and are refused with what to do."""
    asked = answer_with(monkeypatch, made(curve()))
    with pytest.raises(InputError, match=problem):
        planner.frontier(instance)
    assert asked == []
