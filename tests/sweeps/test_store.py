"""The file of a sweep: one writer by whatever name, one instance, failed points tried again, no formulas."""

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import worked_plan
from commands import invoke, refusal
from curves import curve
from each_case import each
from sweeping import small, written

from planner.errors import InputError
from planner.report.comparison import sides_of_rows
from planner.sweeps import sweep_run
from planner.sweeps.row_store import Row, Store, read_flat_rows, read_rows, row_of_plan, write_rows
from planner.sweeps.sweep_run import PointAnswer, SweepOptions, Task, on_executor, tasks_for

RACKS = "hardware.racks"


def row(index: int, **figures: Any) -> Row:
    return Row(index=index, key=f"k{index}", point={RACKS: index}, seconds=1.0, **{"status": "optimal", **figures})


def command(path: Path, output: Path, *more: str) -> list[str]:
    """Return the command of a sweep over three numbers of racks."""
    return ["sweep", str(path), "--vary", f"{RACKS}=1:3:1", "-o", str(output), *more]


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Put a made-up answer in the place of every solve; points of `failing` fail, keys of `asked` were asked for."""
    state: dict[str, Any] = {"failing": set(), "asked": [], "status": "optimal"}

    def answers(tasks: Sequence[Task], *_: Any) -> Iterator[tuple[Task, PointAnswer]]:
        for task in tasks:
            racks = task.point[RACKS]
            state["asked"].append(racks)
            failed = {"status": "failed", "reason": "the executor cancelled it", "seconds": 0.0}
            result = failed if racks in state["failing"] else {"status": state["status"], "seconds": 0.1}
            own = {"index": task.index, "key": task.key, "point": task.point}
            yield task, (Row.model_validate(own | result), None)

    monkeypatch.setattr(sweep_run, "at_home", answers)
    return state


def test_workers_of_a_local_dask_cluster_solve_one_point_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three workers are three processes of one thread each; a point may take as many of them with it as it is tried."""
    asked: dict[str, Any] = {}

    def cluster(**settings: Any) -> Any:
        asked.update(settings)
        return nullcontext("cluster")

    client = SimpleNamespace(get_executor=lambda **_: "executor")
    dask = SimpleNamespace(config=SimpleNamespace(set=lambda settings: nullcontext(asked.update(settings))))
    monkeypatch.setitem(sys.modules, "dask", dask)
    distributed = SimpleNamespace(Client=lambda _: nullcontext(client), LocalCluster=cluster)
    monkeypatch.setitem(sys.modules, "distributed", distributed)
    with sweep_run.dask_executor("local", workers=3) as executor:
        assert executor == "executor"
    assert (asked["n_workers"], asked["threads_per_worker"], asked["processes"]) == (3, 1, True)
    assert asked["distributed.scheduler.allowed-failures"] + 1 == sweep_run.TRIES


@each(("name", "link", "of", "to"), [
    ("rows.jsonl", os.symlink, "rows.jsonl", "other.jsonl"),
    ("rows.jsonl", os.link, "rows.jsonl", "other.jsonl"),
    ("rows.csv", os.symlink, "rows.csv", "other.csv"),  # a journal of its own would overwrite the table
    ("rows.jsonl", os.symlink, ".", "folder/rows.jsonl"),
])  # fmt: skip
def test_rows_by_another_name_are_the_same_file(name, link, of, to, tmp_path):
    real, other = tmp_path / "a" / name, tmp_path / to
    real.parent.mkdir()
    real.touch()
    link(real.parent / of, other if of != "." else other.parent)
    problem = rf"another sweep is writing it \(process ({os.getpid()}|unknown)\)"
    with Store(real, resume=False), pytest.raises(InputError, match=problem):
        Store(other, resume=True)
    with Store(other, resume=False) as store:
        store.append(row(0))
    assert [r.key for r in read_rows(real if name.endswith("l") else tmp_path / "a" / "rows.csv.jsonl")] == ["k0"]


def test_a_table_of_parquet_is_refused_at_once_where_it_cannot_be_written(tmp_path, monkeypatch):
    """Without pyarrow a sweep into a .parquet file ends before its first point, and one into a .csv runs."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="needs the package pyarrow"):
        Store(tmp_path / "rows.parquet", resume=False)
    assert list(tmp_path.iterdir()) == []
    with Store(tmp_path / "rows.csv", resume=False) as store:
        store.append(row(0))
    assert [r.key for r in read_rows(tmp_path / "rows.csv.jsonl")] == ["k0"]


@each(("text", "problem"), [
    ('{"planner_version":"0.1.0"}', "its last line is no row"), ('{"a": 1}\n', "line 1: is no row"),
])  # fmt: skip
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: str, problem: str) -> None:
    """A line without an end is cut off only where it begins like a row; a file of another ending is none of rows."""
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=problem):
        Store(path, resume=True)
    assert path.read_text() == text
    path.write_bytes(b'{"schema_version":1,"ind')
    with Store(path, resume=True):
        pass
    assert path.read_bytes() == b""
    for name, refused in (("rows.xlsx", "must end in"), ("no/rows.jsonl", "folder does not exist")):
        with pytest.raises(InputError, match=refused):
            Store(tmp_path / name, resume=False)


def test_another_instance_is_refused(tmp_path: Path, solved: dict[str, Any]) -> None:
    """A sweep that was begun with one instance does not go on with another: the message names the changed part."""
    path, output = written(tmp_path), tmp_path / "rows.jsonl"
    assert invoke(*command(path, output)).exit_code == 0
    rows = output.read_bytes()
    path.write_text(json.dumps({**small(), "limits": {**small().get("limits", {}), "deadline_days": 1e6}}))
    refused = refusal(invoke(*command(path, output, "--resume")))
    assert "another instance, which differs in limits; go on with" in refused
    assert output.read_bytes() == rows and solved["asked"] == [3, 2, 1]
    path.write_text(json.dumps(small()))
    more = command(path, output, "--resume")
    more[3] = f"{RACKS}=1:5:1"
    assert invoke(*more).exit_code == 0
    assert solved["asked"] == [3, 2, 1, 5, 4]


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(row(0, planner_version="0.0.9").model_dump_json() + "\n")
    with pytest.raises(InputError, match=r"planner 0\.0\.9 wrote its rows, this is .*; go on with"):
        Store(path, resume=True)


@each(("status", "code"), [("unknown", 4), ("infeasible", 0), ("feasible", 0)])
def test_a_sweep_without_any_answer_is_not_done(tmp_path: Path, solved: dict[str, Any], status: str, code: int) -> None:
    """A sweep whose points all reached a limit without a plan ends with 4, as such a solve does."""
    solved["status"] = status
    assert invoke(*command(written(tmp_path), tmp_path / "rows.jsonl")).exit_code == code


def test_failed_points_are_tried_again_and_count(tmp_path: Path, solved: dict[str, Any]) -> None:
    """A sweep with failed points does not end with status 0, and --resume solves these and no others."""
    output = tmp_path / "rows.csv"
    solved["failing"] = {2}
    done = invoke(*command(written(tmp_path), output))
    assert done.exit_code == 1
    assert "3 of 3 points (1 failed, 2 optimal)" in done.output and "--resume tries them again" in done.output
    solved["failing"], solved["asked"] = set(), []
    done = invoke(*command(written(tmp_path), output, "--resume"))
    assert (done.exit_code, solved["asked"]) == (0, [2])
    assert "3 of 3 points (3 optimal)" in done.output
    journal = tmp_path / "rows.csv.jsonl"
    assert journal.read_bytes().count(b"\n") == 4
    found = [[row.status for row in read_rows(journal)]]
    found += [[row["status"] for row in read_flat_rows(file)] for file in (journal, output)]
    assert found == [["optimal"] * 3] * 3


def test_a_killed_scheduler_loses_no_point_silently() -> None:
    """Points that an executor cancels, as where its scheduler is gone, are failed rows, which --resume solves."""

    def submit(_: Any, task: Task) -> Future[Any]:
        future: Future[Any] = Future()
        if task.index:
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_result((row(0), None))
        return future

    tasks = tasks_for(small(), [{RACKS: n} for n in (1, 2, 3)], SweepOptions())
    answers = on_executor(tasks, sweep_run.solve_point, SimpleNamespace(submit=submit))  # type: ignore[arg-type]
    assert [answer.status for _, (answer, _) in answers] == ["optimal", "failed", "failed"]


TEXTS = ["=1+1", "+cmd|' /C calc'!A0", "@SUM(A1)", "-2+3", "\tx", "'=x", "plain", "-5", "a=b", "a\u2028\u2029\u0085b"]


def test_no_cell_of_a_table_is_a_formula(tmp_path: Path) -> None:
    """Texts that a spreadsheet would compute are escaped, numbers and line marks of Unicode are not; all are read."""
    rows = [row(i, reason=text, plan={"figure": -1.5 * i}) for i, text in enumerate(TEXTS)]
    path = tmp_path / "rows.csv"
    with Store(path, resume=False) as store:
        for made in rows:
            store.append(made)
        store.tabulate()
    with Store(path, resume=True) as store:
        assert store.rows == rows
    with path.open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert [c["reason"][:1] for c in cells] == ["'", "'", "'", "'", "'", "'", "p", "-", "a", "a"]
    assert [float(c["figure"]) for c in cells] == [-1.5 * i for i in range(len(TEXTS))]
    for file in (path, tmp_path / "rows.csv.jsonl"):
        assert [str(r["reason"]) for r in read_flat_rows(file)] == TEXTS
    assert [str(c.figures["reason"]) for c in sides_of_rows(path, None, several=False)] == TEXTS


@each(("args", "problem"), [
    (["--vary", "limits.budget=1"], "did you mean limits.budget_usd?"), ([], "nothing varies"),
    (["--vary", "hardware.racks=1,2", "-o", "rows.xls"], "must end in"),
    (["--vary", "hardware.racks=1,2", "-o", "no/rows.csv"], "does not exist"),
    (["--vary", "hardware.racks=1,2", "--workers", "0"], "--workers"),
    (["--vary", "hardware.racks=1,2", "--pairs", "no.csv"], "no such file"),
    (["--vary", "hardware.racks=0,2", "--plans", "plans"], "hardware.racks"),
])  # fmt: skip
def test_bad_usage_leaves_nothing_behind(tmp_path: Path, args: list[str], problem: str) -> None:
    """A user's mistake ends with a message, and no file or folder."""
    args = [str(tmp_path / a) if a.startswith(("rows", "no/", "no.", "plans")) else a for a in args]
    output = [] if "-o" in args else ["-o", str(tmp_path / "rows.jsonl")]
    assert problem in refusal(invoke("sweep", written(tmp_path), *args, *output))
    assert [p.name for p in tmp_path.iterdir()] == ["small.json"]


def test_a_row_that_cannot_be_appended_is_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk is full the row is in a file that the message names, and the sweep can be resumed."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        return write(descriptor, data[: len(data) // 2])

    with Store(tmp_path / "rows.jsonl", resume=False) as store:
        monkeypatch.setattr(os, "write", half)
        with pytest.raises(InputError, match=r"the disk is full; the last row is in .*; free space and go on") as error:
            store.append(row(0))
        monkeypatch.undo()
    kept = Path(str(error.value).partition("the last row is in ")[2].partition(";")[0])
    assert [r.key for r in read_rows(kept)] == ["k0"]
    with Store(tmp_path / "rows.jsonl", resume=True) as store:
        assert store.rows == []


def test_the_row_of_a_plan_with_a_curve_holds_the_curve(tmp_path: Path) -> None:
    """JSON lines hold every point and the proven share; a table has a column for each figure of the points."""
    plan = worked_plan.small().replaced(curve=curve())
    made = [row_of_plan(0, "k0", {RACKS: 1}, plan, 1.0), row(1)]
    write_rows(tmp_path / "rows.jsonl", made)
    whole, without = read_rows(tmp_path / "rows.jsonl")
    assert whole.curve == plan.curve and without.curve is None
    write_rows(tmp_path / "rows.csv", made)
    first, second = csv.DictReader((tmp_path / "rows.csv").read_text().splitlines())
    assert first["curve.epsilon"] == "0.0987" and first["curve.count"] == "4" and second["curve.epsilon"] == ""
    assert first["curve.points.days_to_train"] == "40; 16; 11.5; 10.9"
    assert first["curve.points.bound_days"] == "38; 15.4321; -; 10.9"
    side, _ = sides_of_rows(tmp_path / "rows.jsonl", None, several=False)
    assert side.numbers["curve.epsilon"] == 0.0987
    write_rows(tmp_path / "one.csv", [row(1)])
    assert "curve" not in (tmp_path / "one.csv").read_text()
    assert read_flat_rows(tmp_path / "rows.jsonl")[0]["curve.epsilon"] == 0.0987
