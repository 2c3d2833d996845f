"""Sweeps: a row a point whatever happens, from any executor; nothing twice and nothing lost."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import joint_toys
import pytest
from commands import run_here
from sweeping import ROOT, kills_workers, small, written

import planner
from planner.errors import InputError
from planner.plan.plan import Plan
from planner.plan.plan_figures import digest, runs
from planner.sweeps import sweep_run
from planner.sweeps.row_store import Store, read_flat_rows, read_rows, write_table
from planner.sweeps.sweep_run import PointAnswer, SweepOptions, Task, at_home, on_executor, solve_point, tasks_for

pytestmark = pytest.mark.slow

RACKS = "hardware.racks"
COMMAND = [sys.executable, "-m", "planner", "sweep"]


def tasks(*racks: int) -> list[Task]:
    return list(tasks_for(small(), [{RACKS: n} for n in racks], SweepOptions()))


def values(rows: list[Any]) -> dict[int, float]:
    return {r.point[RACKS]: r.objective.value for r in rows if r.objective is not None}


@pytest.fixture(scope="module")
def alone() -> dict[int, float]:
    """Objectives of separate solves."""
    best = {}
    for n in (1, 2, 3, 4):
        plan = planner.solve({**small(), "hardware": {**small()["hardware"], "racks": n}})
        best[n] = plan.objective.value or 0.0
    return best


def test_what_no_row_holds_is_sought_for_plans_alone() -> None:
    """At a tolerance of 0 the cheaper plan and the limit that is met are in the plan that is kept; rows are equal."""
    asked = json.loads(joint_toys.case(39).replaced(objective__tolerance=0.0).model_dump_json())
    (task,) = tasks_for(asked, [{}], SweepOptions())
    row, none = solve_point(task)
    same, text = solve_point(replace(task, with_plan=True))
    plan = Plan.model_validate_json(text or "")
    assert none is None and plan.objective.cheaper is not None and plan.objective.limited_by is not None
    assert row.replaced(seconds=0.0) == same.replaced(seconds=0.0)


def test_rows_are_what_separate_solves_find(alone: dict[int, float]) -> None:
    """On an executor of the caller's each row holds the value of a solve of its own, under the plan's own names."""
    with ThreadPoolExecutor(2) as pool:
        rows = list(planner.sweep(small(), {RACKS: [1, 2, 3, 4]}, executor=pool))
        assert pool.submit(int).result() == 0  # left open
    assert values(rows) == pytest.approx(alone, rel=1e-12)
    assert [r.status for r in rows] == ["optimal"] * 4
    for r in rows:
        assert r.objective is not None and r.plan["layout.metrics.days_to_train"] == r.objective.value
        assert r.plan["layout.tensor_parallel"] == 8 and r.plan["cost.total_usd"] == 3e6 * r.point[RACKS]


def test_rows_come_as_they_finish() -> None:
    class Slow(Executor):
        """Holds back every point but the first."""

        def __init__(self) -> None:
            self.waiting: list[tuple[Future[PointAnswer], Task]] = []

        def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
            future: Future[PointAnswer] = Future()
            if not self.waiting:
                future.set_result(fn(*args))
            self.waiting.append((future, args[0]))
            return future

    executor = Slow()
    rows = planner.sweep(small(), {RACKS: [3, 1, 2]}, executor=executor)
    assert next(rows).point == {RACKS: 3}
    for future, task in reversed(executor.waiting[1:]):
        future.set_result(solve_point(task))
        assert next(rows).point == task.point
    assert list(rows) == []


def test_failed_or_infeasible_point_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = sweep_run.solve_instance

    def fails_at_two(instance: Any, *args: Any, **how: Any) -> Plan:
        if instance.hardware.racks == 2:
            raise RuntimeError("no luck")
        return solve(instance, *args, **how)

    monkeypatch.setattr(sweep_run, "solve_instance", fails_at_two)
    with ThreadPoolExecutor(1) as pool:
        rows = list(planner.sweep(small(), {RACKS: [1, 2, 3]}, executor=pool))
        late, _ = planner.sweep(small(), {"limits.deadline_days": [0.001, 1000.0]}, executor=pool)
    assert [r.status for r in rows] == ["optimal", "failed", "optimal"]
    assert rows[1].reason == "RuntimeError: no luck" and "0.001, the deadline" in late.reason
    assert (late.status, late.rules, late.plan) == ("infeasible", ("limits.deadline_days",), {})


def test_executor_that_is_gone_fails_its_points() -> None:
    """An executor that takes nothing more costs rows, not the sweep."""
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    rows = [a for _, (a, _) in on_executor(tasks(1, 2), solve_point, pool)]
    assert [r.status for r in rows] == ["failed", "failed"] and "resume" in (rows[0].reason or "")


def test_points_behind_the_first_are_read_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million points have their first row at once; one behind the first that is no instance is a row that says so."""
    monkeypatch.setattr(sweep_run, "READ_FIRST", 2)
    made = tasks_for(small(), [{RACKS: n} for n in (1, 2, -3, *range(3, 100_000))], SweepOptions())
    first = [next(made) for _ in range(3)]
    assert [t.point[RACKS] for t in first] == [1, 2, -3]
    row, _ = solve_point(first[2])
    assert row.status == "failed" and RACKS in row.reason
    with pytest.raises(InputError, match="point 1"):
        tasks_for(small(), [{RACKS: 1}, {RACKS: -3}], SweepOptions())


def test_same_question_is_solved_once() -> None:
    """Two points that ask the same are one, and the options are part of the key."""
    made = list(tasks_for(small(), [{RACKS: 1}, {RACKS: 2}, {RACKS: 1}], SweepOptions()))
    assert [t.index for t in made] == [0, 1]
    assert {t.key for t in made}.isdisjoint(t.key for t in tasks_for(small(), [{RACKS: 1}], SweepOptions(seed=1)))


def test_worker_that_dies_twice_is_a_failed_row(tmp_path, monkeypatch, alone):
    """A point that kills its worker is tried once more, then reported as failed; no other point suffers."""
    monkeypatch.setenv("SWEEP_TEST_MARKER", str(tmp_path / "marker"))
    rows = [a for _, (a, _) in at_home(tasks(1, 2, 3), kills_workers, workers=1)]
    assert sorted((r.point[RACKS], r.status) for r in rows) == [(1, "optimal"), (2, "failed"), (3, "optimal")]
    assert "died at this point, 2 times" in next(r.reason or "" for r in rows if r.status == "failed")
    assert (tmp_path / "marker").exists() and values(rows) == pytest.approx({n: alone[n] for n in (1, 3)})


def started(args: list[str | Path], path: Path, rows: int) -> subprocess.Popen[str]:
    """Start a sweep and wait until it has written some rows."""
    piped: dict[str, Any] = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen([*COMMAND, *map(str, args)], cwd=ROOT, **piped)
    while (not path.exists() or path.read_bytes().count(b"\n") < rows) and child.poll() is None:
        time.sleep(0.02)
    return child


def test_killed_and_resumed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Killed at any moment, a sweep goes on where it was; meanwhile no second one may write its file."""
    path = tmp_path / "rows.jsonl"
    args = [written(tmp_path), "--vary", f"{RACKS}=1:8:1", "-o", path, "--workers", "1"]
    child = started(args, path, 2)
    refused = run_here("sweep", *args, "--resume")
    assert refused.returncode == 2 and f"another sweep is writing it (process {child.pid})" in refused.stderr
    child.kill()
    child.communicate()
    with path.open("ab") as file:
        file.write(b'{"schema_version":1,"index":')  # torn, as by a power cut
    before = read_rows(path)
    assert 2 <= len(before) < 8
    fresh = run_here("sweep", *args)
    assert fresh.returncode == 2 and "--resume" in fresh.stderr
    on = run_here("sweep", *args, "--resume", "--plans", tmp_path / "plans")
    lacking = ", ".join(str(r.index) for r in sorted(before, key=lambda r: r.index)[:5])
    assert on.returncode == 0 and f"plans: lacks the plans of points {lacking}" in on.stderr  # those that were resumed
    rows = read_rows(path)
    assert rows[: len(before)] == before
    assert sorted(r.point[RACKS] for r in rows) == list(range(1, 9)) and len({r.key for r in rows}) == 8
    plans = sorted((tmp_path / "plans").iterdir())
    assert len(plans) == 8 - len(before)
    last = Plan.model_validate_json(plans[-1].read_text())
    assert digest(last) == max(rows[len(before) :], key=lambda r: r.index).plan and planner.check(last) == []


def test_interrupted_keeps_what_is_done(tmp_path: Path) -> None:
    """Ctrl-C ends a sweep with status 130; its rows and its table stay, and no worker is left behind."""
    path = tmp_path / "rows.csv"
    args = [written(tmp_path), "--vary", f"{RACKS}=1:200:1", "-o", path, "--workers", "1"]
    child = started(args, tmp_path / "rows.csv.jsonl", 2)
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=30)
    assert child.returncode == 130 and "go on with --resume" in stderr
    with path.open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(read_rows(tmp_path / "rows.csv.jsonl")) >= 2


def test_tables_hold_the_rows(tmp_path: Path) -> None:
    """CSV and Parquet hold a line a point in the order of the sweep, whatever the order in which points finished."""
    parquet = pytest.importorskip("pyarrow.parquet")
    done = [a for _, (a, _) in on_executor(tasks(1, 2, 3), solve_point, ThreadPoolExecutor(1))]
    for name in ("rows.csv", "rows.parquet"):
        with Store(tmp_path / name, resume=False) as store:
            for row in reversed(done):
                store.append(row)
            store.tabulate()
    read = parquet.read_table(tmp_path / "rows.parquet").to_pydict()
    assert read[RACKS] == [1, 2, 3] and read["objective.value"] == [r.objective.value for r in done if r.objective]
    with (tmp_path / "rows.csv").open() as file:
        in_csv = list(csv.DictReader(file))
    assert [float(row["layout.metrics.days_to_train"]) for row in in_csv] == read["layout.metrics.days_to_train"]
    names = "rows.csv.jsonl", "rows.csv", "rows.parquet"
    plain, table, binary = (read_flat_rows(tmp_path / name) for name in names)
    for a, b, c in zip(sorted(plain, key=lambda r: r["index"]), table, binary, strict=True):
        figures = [k for k, v in a.items() if isinstance(v, (int, float)) and k in b]
        assert len(figures) > 20 and all(a[k] == b[k] == c[k] for k in figures)


def test_columns_of_mixed_kinds(tmp_path: Path) -> None:
    """A column of numbers and words becomes words, one of whole and other numbers floats."""
    points = {"x": 1, "y": "word"}, {"x": 2.5, "y": 3}
    done = on_executor(tasks(1, 2), solve_point, ThreadPoolExecutor(1))
    a, b = (a.replaced(point=point) for (_, (a, _)), point in zip(done, points, strict=True))
    parquet = pytest.importorskip("pyarrow.parquet")
    write_table(tmp_path / "rows.parquet", [a.flat(), b.flat()])
    columns = parquet.read_table(tmp_path / "rows.parquet").to_pydict()
    assert (columns["x"], columns["y"]) == ([1.0, 2.5], ["word", "3"])
    assert runs((2, 2, 2, 1)) == "3x2 1"


def test_shards_solve_their_part_alone(tmp_path: Path) -> None:
    """The rows of all shards are those of the whole sweep, index and key included."""
    whole = tasks(1, 2, 3)
    parts = [list(tasks_for(small(), [{RACKS: n} for n in (1, 2, 3)], SweepOptions(shard=(i, 2)))) for i in (1, 2)]
    assert [(t.index, t.key) for part in parts for t in part] == [(t.index, t.key) for t in whole]
    args = [written(tmp_path), "--vary", f"{RACKS}=1:3:1", "-o", tmp_path / "rows.jsonl", "--workers", "1"]
    assert run_here("sweep", *args, "--shard", "2/2").stdout.startswith("2 of 2 points (2 optimal)")
    assert {row.index for row in read_rows(tmp_path / "rows.jsonl")} == {1, 2}


def test_dask_cluster_loses_a_worker_and_no_point(alone: dict[int, float]) -> None:
    """On a local Dask scheduler with two worker processes, one killed in the middle, every point has its row."""
    pytest.importorskip("distributed")
    with sweep_run.dask_executor("local", workers=2) as executor:
        first, rows = min(executor._client.run(os.getpid).values()), []  # type: ignore[attr-defined]
        for row in planner.sweep(small(), {RACKS: list(range(1, 13))}, executor=executor):
            if not rows:
                os.kill(first, signal.SIGKILL)
            rows.append(row)
    assert sorted(r.point[RACKS] for r in rows) == list(range(1, 13)) and {r.status for r in rows} == {"optimal"}
    assert {n: values(rows)[n] for n in alone} == pytest.approx(alone, rel=1e-12)


def test_a_killed_dask_scheduler_ends_the_sweep_with_failures(tmp_path: Path) -> None:
    """With its scheduler killed in the middle the command ends, not with status 0; every point has its row."""
    pytest.importorskip("distributed")
    file, path, running = tmp_path / "scheduler.json", tmp_path / "rows.jsonl", []
    for part, *more in (("scheduler", "--port", "0"), ("worker", "--nworkers", "1", "--nthreads", "1")):
        command = [sys.executable, "-m", f"distributed.cli.dask_{part}", "--scheduler-file", file, "--no-dashboard"]
        running.append(subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        while not file.exists() or not file.stat().st_size:
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        args = [written(tmp_path), "--vary", f"{RACKS}=1:60:1", "-o", path, "--dask", address]
        child = started(args, path, 2)
        running[0].kill()
        out, err = child.communicate(timeout=120)
        assert child.returncode == 1 and " failed" in out and "--resume tries them again" in err, (out, err)
        assert len({row.key for row in read_rows(path)}) == 60
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_compare_rows_and_plans(tmp_path: Path) -> None:
    """Rows and plans stand side by side; --diff leaves what differs, and a row differs in nothing from its own plan."""
    plan, rows = tmp_path / "one.json", tmp_path / "rows.jsonl"
    plan.write_text(planner.solve(small()).model_dump_json())
    with Store(rows, resume=False) as store:
        for _, (row, _) in on_executor(tasks(1, 2), solve_point, ThreadPoolExecutor(1)):
            store.append(row)

    def compare(*args: str | Path) -> str:
        out = run_here("compare", *args)
        assert (out.returncode, out.stderr) == (0, "")
        return out.stdout

    compared = json.loads(compare(rows, "--json", "--diff"))
    assert compared["columns"] == ["hardware.racks=1", "hardware.racks=2"] and compared[RACKS] == [1, 2]
    assert "layout.tensor_parallel" not in compared and compared["cost.total_usd"] == [3e6, 6e6]
    same = json.loads(compare(plan, f"{rows}#0", "--json", "--diff"))
    assert set(same) == {"columns", RACKS}
    assert "slack.batch_tokens" in compare(rows) and "layout.certificate.status" in compare(rows)
