"""A fixed slice of the fuzzer over files, options, paths, environments and small solves: a message, or an answer."""

import random
import time
from collections import Counter
from pathlib import Path

import fuzz
import fuzz_cases
import fuzz_commands
import pytest
from commands import invoke
from fuzz_cases import SUBJECTS
from tiers import slow

from planner.errors import InputError


@pytest.mark.parametrize("cases", [range(30), *slow(range(30, 120))], ids=lambda x: f"to {x.stop}")
def test_no_changed_file_ends_in_a_traceback(cases: range) -> None:
    """Cases end with an answer or with a message that names the file; both happen, to every kind of file in the end."""
    found = list(fuzz.results(cases, seed=0))
    assert [(x.number, x.text) for x in found if x.outcome not in ("done", "refused")] == []
    counts = Counter(x.outcome for x in found)
    assert counts["done"] > len(cases) / 10 and counts["refused"] > len(cases) / 3
    assert len(cases) < 90 or {x.subject.group for x in found} == {s.group for s in fuzz_cases.SUBJECTS}


def test_every_file_is_sound_before_it_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command reads its file as it stands, so that what is refused later is refused for its change."""
    monkeypatch.chdir(tmp_path)
    running = fuzz.prepare(tmp_path)
    for s in dict.fromkeys(fuzz_cases.SUBJECTS):
        Path(s.file).write_text(s.text or running, encoding="utf-8")
        done = invoke(*[s.file if w == "@" else w for w in s.command])
        # evaluate: 3 where the layout does not fit; volcano takes no blocks; pools no grid.
        sound = done.exit_code in (0, 3) or (s.file, s.command[-1]) in (("b.conf", "volcano"), ("two-pools.json", "@"))
        assert sound, (s.command, done.exception, done.output)


def test_a_defect_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that fails, one that never ends, and a refused command that leaves a file are reported."""
    monkeypatch.chdir(tmp_path)
    running = fuzz.prepare(tmp_path)
    monkeypatch.setattr(fuzz, "SUBJECTS", [s for s in fuzz_cases.SUBJECTS if s.command[0] == "topology"])
    number = 0

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    def hangs(*_: object, **__: object) -> None:
        while True:
            pass

    def litters(*_: object, **__: object) -> None:
        Path("left").touch()
        raise InputError("refused")

    monkeypatch.setattr("planner.formats.cluster_files.read_topology", fails)
    found = fuzz.run(number, 0, running)
    assert found.outcome == "traceback" and found.place.startswith("ZeroDivisionError at cli/cluster_commands.py")
    monkeypatch.setattr("planner.formats.cluster_files.read_topology", hangs)
    assert fuzz.run(number, 0, running, seconds=0.2).outcome == "hang"
    monkeypatch.setattr("planner.formats.cluster_files.read_topology", litters)
    assert fuzz.run(number, 0, running).outcome == "litter"


@pytest.mark.parametrize(("kind", "cases"), [
    *(("options", range(25)), ("paths", range(25)), ("environment", range(4))),
    # scripts/verify/fuzz.py has more
    *slow(("options", range(25, 35)), ("paths", range(25, 35)), ("environment", range(4, 6)), ("solve", range(6))),
])  # fmt: skip
def test_no_command_ends_in_a_traceback(kind: str, cases: range) -> None:
    """Hostile options, paths, variables and keys are answered or refused, in time and memory."""
    found = list(fuzz.results(cases, seed=3, kind=kind))
    assert len(found) == len(cases)
    assert [(x.number, x.subject.command, x.text) for x in found if x.outcome not in ("done", "refused")] == []


def test_every_kind_is_drawn_and_differs() -> None:
    """Without a kind all of them come up, and each but that of files changes the words or what is around them."""
    r = random.Random(0)
    drawn = Counter(fuzz_commands.kind_of(r) for _ in range(2_000))
    assert set(drawn) == set(fuzz_commands.KINDS) and drawn["files"] > drawn["options"] > drawn["solve"] > 20
    for kind in ("options", "paths", "solve"):
        cases = [fuzz_commands.case(kind, SUBJECTS[n % len(SUBJECTS)], 0, n, random.Random(n)) for n in range(40)]
        assert len({x.words for x in cases} | {x.data for x in cases}) > 30
    assert all(x.seconds == fuzz_commands.SOLVE_SECONDS + 2 for x in cases)
    some = [fuzz_commands.case("environment", SUBJECTS[0], 0, n, random.Random(n)) for n in range(60)]
    assert all(x.environment for x in some) and {x.apart for x in some} == {True, False}


def test_a_late_answer_and_much_memory_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes longer of the processor than it may, or asks for more memory than there is, is reported."""

    def late(*_: object, **__: object) -> str:
        until = time.process_time() + 0.4
        while time.process_time() < until:
            pass
        return ""

    def large(*_: object, **__: object) -> str:
        raise MemoryError

    case = fuzz_commands.Case(SUBJECTS[0], b"{}", ("init",), seconds=0.3)
    monkeypatch.setattr(fuzz, "case", lambda *_: case)
    for outcome, call in (("late", late), ("memory", large)):
        monkeypatch.setattr("planner.imports.instance_file.first_instance", call)
        assert [x.outcome for x in fuzz.results(range(1), 0)] == [outcome]
