"""What a command shows while it runs, on a terminal, piped and logged; closed streams, locales and little memory."""

import errno
import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import invoke, refusal, run_here
from each_case import each
from joint_brute_force import toy
from worked_plan import small

from planner.cli import console as watches
from planner.cli import main
from planner.cli.console import ProgressOptions, Watch, print_or_write, watching
from planner.errors import InputError, needed
from planner.files import json_or_text, write_atomically
from planner.solvers.progress import IncumbentFound
from planner.sweeps import sweep_run

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ +\d+\.\d s  \S")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Return that it is."""
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal of 80 columns, and commands impatient; not in a fixture, behind which pytest sets both."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    for name, value in (("COLUMNS", "80"), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(watches, "PATIENCE", 0.0)
    monkeypatch.setattr(watches, "REFRESH", 0.01)
    return stream


def shown(stream: Terminal, text: str) -> bool:
    """Wait until a stream has a text; return whether it came."""
    end = time.monotonic() + 5
    while text not in stream.getvalue() and time.monotonic() < end:
        time.sleep(0.01)
    return text in stream.getvalue()


def incumbent(text: str = "") -> IncumbentFound:
    """Return an event with a gap of 20 %."""
    figures = {"elapsed_seconds": 1.0, "incumbent": 10.0, "bound": 8.0, "gap": 0.2}
    return IncumbentFound(phase="search", unit="days", text=text, **figures)


def test_a_terminal_sees_phase_time_incumbent_bound_and_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line has all of them, a bar, and fits the width however long the choices are; hours where there are some."""
    terminal = terminal_of(monkeypatch)
    with watching("solve") as w:
        for seconds, elapsed in ((0.0, "0:00"), (61.0, "1:01"), (3662.0, "1:02:03")):
            w.started -= seconds
            assert shown(terminal, f"{elapsed}  solve")
        w(incumbent("x" * 200))
        assert shown(terminal, "search, 10.00 days, bound 8.00 days, gap 20.00 %") or shown(terminal, "gap 20")
        assert shown(terminal, "━")
    drawn = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", x) for x in re.split(r"[\r\n]", terminal.getvalue())]
    assert max(map(len, drawn)) <= 80 and any("…" in x for x in drawn)


def test_what_a_command_prints_takes_the_line_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Printing the answer ends the line, a word on stderr interrupts it; the streams are the old ones in the end."""
    terminal = terminal_of(monkeypatch)
    out, err = sys.stdout, sys.stderr
    with watching("solve") as w:
        assert shown(terminal, "solve")
        print("a word", file=sys.stderr)
        before = len(terminal.getvalue())
        time.sleep(0.1)
        assert len(terminal.getvalue()) > before and w.shown
        print("the answer")
        before = len(terminal.getvalue())
        time.sleep(0.1)
        assert len(terminal.getvalue()) == before and not w.shown
    assert isinstance(out, io.StringIO) and out.getvalue() == "the answer\n"
    assert (sys.stdout, sys.stderr) == (out, err)


@each("how", ["quick", "quiet", "piped"])
def test_nothing_is_shown(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of less than two seconds, a quiet one and one whose stderr is no terminal show nothing."""
    terminal = terminal_of(monkeypatch)
    if how == "quick":
        monkeypatch.setattr(watches, "PATIENCE", 2.0)
    stream = terminal if how != "piped" else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with watching("solve"), ProgressOptions(quiet=how == "quiet").line() as w:
        w(incumbent())
        time.sleep(0.1)
    assert stream.getvalue() == ""


def test_the_log_has_a_line_an_event_and_a_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line has its timestamp; where nothing is reported the log says again where the command is."""
    monkeypatch.setattr(watches, "HEARTBEAT", 0.05)
    monkeypatch.setattr(watches, "REFRESH", 0.01)
    file = tmp_path / "run.log"
    file.write_text("an earlier run\n")
    with watching("sweep"), ProgressOptions(log=file).line() as report:
        report("3/9 points")
        time.sleep(0.2)
        report(incumbent("TP 8"))
    lines = file.read_text().splitlines()
    assert lines[0] == "an earlier run" and all(STAMP.match(x) for x in lines[1:])
    assert lines[1].endswith("sweep begins") and "sweep, 3/9 points" in file.read_text()
    assert lines[-1].endswith("search, 10.00 days, bound 8.00 days, gap 20.00 %: TP 8")


@pytest.mark.parametrize("command", ["solve", "explain"])
def test_commands_log_their_phases_and_print_nothing_more(command: str, tmp_path: Path) -> None:
    """With --log the file has phases and incumbents, and stderr stays empty; one that cannot be written is named."""
    instance, log = tmp_path / "i.json", tmp_path / "run.log"
    instance.write_text(toy(5, sites=2, forced=True).model_dump_json(exclude_none=True))
    done = invoke(command, instance, "--log", log)
    assert done.exit_code == 0 and done.stderr == ""
    lines = log.read_text().splitlines()
    assert all(STAMP.match(x) for x in lines) and any("search" in x and "days" in x for x in lines)
    last = "done, " if command == "solve" else " instead of "
    assert last in lines[-1]
    assert "its folder does not exist" in refusal(invoke(command, instance, "--log", tmp_path / "none" / "x.log"))


def test_sweeping_and_placing_log_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep says how many points are done, a placement when it began and how it ended."""
    monkeypatch.setattr(sweep_run, "at_home", lambda tasks, call, _: ((t, call(t)) for t in tasks))
    instance, rows, topology = tmp_path / "i.json", tmp_path / "rows.jsonl", tmp_path / "topology.conf"
    instance.write_text(toy(5, sites=2, forced=True).model_dump_json(exclude_none=True))
    topology.write_text("SwitchName=leaf1 Nodes=n[1-8]\n")
    sweep = ["sweep", instance, "--vary", "limits.budget_usd=5000,9000", "-o", rows, "--log", tmp_path / "sweep.log"]
    assert invoke(*sweep).exit_code == 0
    assert all(f"{done}/2 points" in (tmp_path / "sweep.log").read_text() for done in (0, 2))
    place = ["place", "--topology", topology, "--nodes", "4", "--mesh", "data=4", "--log", tmp_path / "place.log"]
    assert invoke(*place).exit_code == 0
    lines = (tmp_path / "place.log").read_text().splitlines()
    assert [line.split("  ")[-1] for line in lines][1:] == ["placing", "placed: optimal"]


def test_outside_a_command_lines_go_nowhere() -> None:
    with ProgressOptions().line() as w:
        assert isinstance(w, Watch)
        w("a line")
    assert watches._current is None


LONG = "a" * 300
ASCII = {"PYTHONIOENCODING": "ascii"}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Write a plan whose name is in no ASCII."""
    path = tmp_path / "plän.json"
    path.write_text(small().replaced(instance__name="北京").model_dump_json())
    return path


def test_closed_streams(plan: Path) -> None:
    """What is written to a closed stdout goes nowhere, and no traceback comes of it."""
    planner = f"{sys.executable} -m planner"
    shell = f'{planner} show "{plan}" >&-; echo $? >&2; {planner} show none >&- 2>&-'
    done = subprocess.run(["sh", "-c", shell], check=False, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "0\n")


@pytest.mark.parametrize("more", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, ASCII])
def test_a_name_that_is_not_ascii_under_any_locale(plan: Path, more: dict[str, str]) -> None:
    command = [sys.executable, "-m", "planner", "show", plan]
    done = subprocess.run(command, check=False, capture_output=True, env=os.environ | more)
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


@each("words", [
    ["solve", f"{LONG}.json"], ["solve", LONG], ["show", LONG], ["compare", f"{LONG}#1"], ["init", "-o", LONG],
    ["report", LONG, "-o", "x.html"], ["solve", "one-rack", "-o", LONG], ["solve", "one-rack", "--log", LONG],
    ["solve", "one-rack", "--models", LONG], ["evaluate", "one-rack", "--from-flags", LONG],
    ["sweep", "one-rack", "--vary", "hardware.racks=1,2", "-o", "x.jsonl", "--plans", LONG],
])  # fmt: skip
def test_a_name_that_no_disk_takes(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_here(*words)
    assert done.returncode == 2 and LONG in done.stderr and "stdout" not in done.stderr and ";" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_the_system_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for raised, said in (
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE), "x.json"), "x.json: cannot be used (Too many open files); "),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "stdout: cannot be written (No space left on device); "),
        (MemoryError(), "the memory is not enough; "),
    ):

        def fails(raised: BaseException = raised) -> None:
            raise raised

        monkeypatch.setattr(main, "app", fails)
        monkeypatch.setattr("os.dup2", lambda *_: None)
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
