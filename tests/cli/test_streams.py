"""Closed streams, other locales, names that no disk takes, and little memory: a message, never a traceback."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run_here
from each_case import each
from worked_plan import small

from planner.cli import main
from planner.cli.console import print_or_write
from planner.errors import InputError, needed
from planner.files import json_or_text, write_atomically

PLANNER = [sys.executable, "-m", "planner"]
LONG = "a" * 300


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Write a plan whose name is in no ASCII."""
    path = tmp_path / "plän.json"
    data = small()
    path.write_text(
        data.model_copy(update={"instance": data.instance.model_copy(update={"name": "北京"})}).model_dump_json()
    )
    return path


def test_closed_streams(plan: Path) -> None:
    """What is written to a closed stdout goes nowhere, and no traceback comes of it."""
    shell = (
        f'{sys.executable} -m planner show "{plan}" >&-; echo $? >&2; {sys.executable} -m planner show none >&- 2>&-'
    )
    done = subprocess.run(["sh", "-c", shell], check=False, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "0\n")


@pytest.mark.parametrize(
    "more",
    [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"}],
)
def test_a_name_that_is_not_ascii_under_any_locale(plan: Path, more: dict[str, str]) -> None:
    environment = {**os.environ, **more}
    done = subprocess.run([*PLANNER, "show", plan], check=False, capture_output=True, env=environment)
    assert done.returncode == 0 and done.stdout.decode().startswith("北京")


def test_names_of_any_bytes(tmp_path: Path) -> None:
    """A word of the command line is written as the bytes it came in, where these are text; else it is refused."""
    write_atomically(tmp_path / "a", os.fsdecode("é".encode()))
    write_atomically(tmp_path / "b", "é".encode().decode("ascii", "surrogateescape"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == "é".encode()
    with pytest.raises(InputError, match=r"cannot hold \\xe9, which is no text in UTF-8; "):
        write_atomically(tmp_path / "c", "name: \udce9")
    with pytest.raises(InputError, match=r"stdout: cannot hold \\xe9"):
        print_or_write("name: \udce9", None)
    with pytest.raises(InputError, match="half of a character; "):
        json_or_text("\udce9", "--set name")


@each(
    "words",
    [
        *(
            ["solve", f"{LONG}.json"],
            ["solve", LONG],
            ["show", LONG],
            ["compare", f"{LONG}#1"],
            ["report", LONG, "-o", "x.html"],
        ),
        *(["solve", "one-rack", "-o", LONG], ["solve", "one-rack", "--log", LONG],
         ["solve", "one-rack", "--models", LONG]),
        *(["sweep", "one-rack", "--vary", "hardware.racks=1,2", "-o", "x.jsonl", "--plans", LONG],
         ["init", "-o", LONG]),
        ["evaluate", "one-rack", "--from-flags", LONG],
    ],
)  # fmt: skip
def test_a_name_that_no_disk_takes(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_here(*words)
    assert done.returncode == 2 and LONG in done.stderr and "stdout" not in done.stderr and ";" in done.stderr
    assert list(tmp_path.iterdir()) == []


@each("output", ["/", ".", "..", "none/x", ""])
def test_an_output_that_is_a_folder(output: str) -> None:
    done = run_here("init", "-o", output)
    assert done.returncode == 2 and ("is a folder; " in done.stderr or "does not exist; " in done.stderr)


def test_what_the_system_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for raised, said in (
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE), "x.json"), "x.json: cannot be used (Too many open files); "),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "stdout: cannot be written (No space left on device); "),
        (MemoryError(), "the memory is not enough; "),
    ):

        def fails(raised: BaseException = raised) -> None:
            raise raised

        monkeypatch.setattr(main, "app", fails)
        monkeypatch.setattr(main, "_drop_stdout", lambda: None)
        done = run_here("show")
        assert done.returncode == 2 and done.stderr.startswith(said)


def test_a_package_that_refuses_its_environment_is_named_and_loads_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that a package cannot use ends in a message with what it says of it; nothing stays half loaded."""
    complaint = "Key backend: 'none' is not a valid value for backend; supported values are ['agg']"
    for name in ("half", "half.part"):
        monkeypatch.setitem(sys.modules, name, sys)
    said = r"^plot: half does not load \(Key backend: .*\); correct the"
    with pytest.raises(InputError, match=said), needed("plot", "half", "plot"):
        raise ValueError(complaint)
    assert not {"half", "half.part"} & set(sys.modules)
