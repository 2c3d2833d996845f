"""Outputs of the commands: refused before the work where none can be written, whole, and no wider than the terminal."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from commands import invoke, refusal
from each_case import each
from failing_plan import failing
from page_cases import infeasible, rich
from worked_plan import LAYOUT, instance_with, small

from planner.errors import InputError
from planner.files import require_writable, write_atomically, write_streamed
from planner.planning.solve import Session
from planner.sweeps.row_store import read_flat_rows
from planner.sweeps.utilisation import LimitPoint

TOO_LONG = f"{'x' * 300}.json"


@each(("name", "problem"), [
    ("no/such/plan.json", "its folder does not exist"), (TOO_LONG, "cannot be written"),
    ("/proc/plan.json", "cannot be written"), *((name, "is a folder") for name in ("/", ".", "..", "")),
])  # fmt: skip
def test_an_output_that_cannot_be_written_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    """A missing folder, a folder, a name too long and a read-only place are named; what passes leaves no trace."""
    with pytest.raises(InputError, match=problem):
        require_writable(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    plan, link = tmp_path / "plan.json", tmp_path / "link.json"
    plan.write_text("old")
    link.symlink_to(plan)
    require_writable(None, plan, link, tmp_path / "new.json", Path("/dev/null"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "plan.json"]
    assert plan.read_text() == "old"


def test_a_write_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary file is synchronised before the rename, and behind it the folder, if it can be; devices are not."""
    calls: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        calls.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write_atomically(tmp_path / "plan.json", "the plan")
    assert calls == ["file", "rename", "folder"]
    calls.clear()
    write_streamed(tmp_path / "plan.json", lambda: ["the ", b"plan"])
    assert calls == ["file", "rename", "folder"]
    assert (tmp_path / "plan.json").read_text() == "the plan"

    def failing_folder(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", failing_folder)
    write_atomically(tmp_path / "plan.json", "another")
    assert (tmp_path / "plan.json").read_text() == "another"
    write_streamed(Path("/dev/null"), lambda: ["a"])


@each(("write", "output"), [
    (write_atomically, "gone/plan.csv"), (write_streamed, "gone/plan.csv"), (write_atomically, "/dev/full"),
])  # fmt: skip
def test_an_output_gone_or_full_after_the_solve_loses_nothing(tmp_path, monkeypatch, write, output):
    """A plan, and a list written piece by piece, go to a file that the message names, if there is room."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InputError, match=f"{output}: cannot be written") as error:
        write(tmp_path / output, "the plan" if write is write_atomically else lambda: iter(["the ", "plan"]))
    fallback = re.search(r"its content is in (\S+)$", str(error.value))
    assert fallback is not None and Path(fallback[1]).read_text() == "the plan"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(InputError, match=r"cannot be written .*; choose another place"):
        write_atomically(Path("/dev/full"), "the plan")


def test_a_disk_that_is_full_half_way_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of which a part was written begins anew in the fallback, and its temporary file is gone."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "full").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    sync = os.fsync

    def synced(descriptor: int) -> None:
        if "/full/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    with pytest.raises(InputError, match="No space left on device") as error:
        write_streamed(tmp_path / "full" / "cables.csv", lambda: iter(["a\n", "b\n"]))
    fallback = Path(str(error.value).rpartition(" ")[2])
    assert fallback.read_text() == "a\nb\n"
    assert list((tmp_path / "full").iterdir()) == []


SCHEMA = [sys.executable, "-m", "planner", "schema", "plan"]


def test_a_full_disk_behind_stdout_is_a_message() -> None:
    """What cannot be printed ends with status 2 and a sentence, not with a traceback."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(SCHEMA, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "stdout: cannot be written (No space left on device); write elsewhere, such as with -o\n"


@pytest.mark.slow
def test_a_reader_that_leaves_early() -> None:
    """Where stdout is closed before all of it is read, as head does, a command ends well and says nothing."""
    with subprocess.Popen(SCHEMA, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ended:
        ended.stdout.readline()
        ended.stdout.close()
        assert (ended.stderr.read(), ended.wait()) == ("", 0)


NOWHERE = "no/such/folder"
COMMANDS = [
    ["solve", "instance.json", "-o", f"{NOWHERE}/plan.json"],
    ["evaluate", "instance.json", "-o", f"{NOWHERE}/prediction.json"],
    ["fabric", "export", "plan.json", "--format", "csv", "-o", f"{NOWHERE}/cables.csv"],
    ["fabric", "pareto", "plan.json", "-o", f"{NOWHERE}/designs.jsonl"],
    ["frontier", "instance.json", "-o", f"{NOWHERE}/rows.csv"],
    ["frontier", "instance.json", "--plot", f"{NOWHERE}/curve.svg"],
    ["grid", "import", "case.m", "-o", f"{NOWHERE}/grid.json"],
    ["grid", "import", "case.m", "--geojson", f"{NOWHERE}/grid.geojson"],
    ["limits", "instance.json", "-o", f"{NOWHERE}/points.jsonl"],
    ["limits", "instance.json", "--plot", f"{NOWHERE}/limits.svg"],
    ["place", "--topology", "topology.conf", "--job", "job.json", "-o", f"{NOWHERE}/hosts"],
    ["plot", "rows.jsonl", "-x", "a", "-y", "b", "-o", f"{NOWHERE}/plot.svg"],
    ["report", "plan.json", "-o", f"{NOWHERE}/page.html"],
    ["sweep", "instance.json", "--vary", "hardware.racks=1,2", "-o", f"{NOWHERE}/rows.csv"],
    ["topology", "topology.conf", "--format", "yaml", "-o", f"{NOWHERE}/topology.yaml"],
]


@each("command", COMMANDS)
def test_the_output_is_tried_before_the_input_is_read(command: list[str]) -> None:
    """The output is refused although the input does not exist either, so no work comes before it."""
    assert "its folder does not exist" in refusal(invoke(*command))
    for name in ("limits.pdf", "limits"):
        assert "must end in .svg or .png" in refusal(invoke("limits", "instance.json", "--plot", name))
    assert "must end in .jsonl" in refusal(invoke("limits", "instance.json", "-o", "points.txt"))


def test_points_of_utilisation_are_written_as_the_ending_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table has a column for each figure of the lines, those of a layout by dotted names."""
    known = dict.fromkeys(("flop", "parameters", "tokens", "layers", "hidden", "batch_tokens", "loss"), 1)
    point = LimitPoint(**known, status="optimal", shares={"gemm": 0.5})
    monkeypatch.setattr("planner.limits", lambda *_, **__: [point])
    for name in ("points.csv", "points.jsonl"):
        assert invoke("limits", "limits-h100", "-q", "-o", tmp_path / name).exit_code == 0
        assert [row["shares.gemm"] for row in read_flat_rows(tmp_path / name)] == [0.5]
        assert "shares.gemm" in invoke("compare", tmp_path / name, tmp_path / name).stdout
    (tmp_path / "points.csv").write_text("flop,use\n1,2\n")
    assert "is no table of `planner sweep`" in refusal(invoke("compare", *[tmp_path / "points.csv"] * 2))


def printed(width: int | None, *args: str | Path, status: int = 0) -> str:
    """Return what a command prints at a width; None: into a pipe."""
    result = invoke(*args, env={"COLUMNS": "" if width is None else str(width)})
    assert result.exit_code == status, result.output
    assert width is None or max(map(len, result.stdout.splitlines())) <= width
    return str(result.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an instance, and plans with every section."""
    path = tmp_path_factory.mktemp("widths")
    asked = instance_with(pins=LAYOUT).model_dump(mode="json", exclude_none=True)
    (path / "asked.json").write_text(json.dumps(asked))
    plans = {"small": small(), "rich": rich(), "none": infeasible(), "failing": failing("restart", "elastic")}
    for name, plan in plans.items():
        (path / f"{name}.json").write_text(plan.model_dump_json())
    return path


@each("width", [80, 120, 200])
def test_solve_evaluate_and_compare(width: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a pipe lines stay whole; of four plans the best is named first. Explanations: tests/planning."""
    monkeypatch.setattr(Session, "solve", lambda *_, **__: small())
    assert len(printed(width, "solve", folder / "asked.json", "-q", status=4).splitlines()) > 10
    pins = ["--pin", "tp=8", "--pin", "pp=1", "--pin", "dp=9"]
    text, whole = (printed(columns, "evaluate", "one-rack", *pins) for columns in (width, None))
    assert len(text.splitlines()) > 10 and text.split() == whole.split()
    plans = [folder / f"{name}.json" for name in ("small", "rich", "failing", "none")]
    printed(width, "compare", *plans[:2])
    text = printed(width, "compare", *plans)
    assert text.startswith("fewest days: ") and "least money: " in text.replace("\n", " ")


@pytest.mark.parametrize("name", ["small", "rich", "none", "failing"])
def test_show(folder: Path, name: str) -> None:
    """Plans with every section; into a pipe their lines stay whole."""
    whole = printed(None, "show", folder / f"{name}.json")
    for width in (80, 120, 200):
        assert printed(width, "show", folder / f"{name}.json").split() == whole.split()
        printed(width, "show", folder / f"{name}.json", "--verbose")
