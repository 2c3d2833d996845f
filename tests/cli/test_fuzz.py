"""A fixed slice of the fuzzer over files, options, paths, environments and small solves: a message, or an answer."""

import time
from collections import Counter
from pathlib import Path

import fuzz
import fuzz_cases
import fuzz_commands
import pytest
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


def fails(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def hangs(*_: object, **__: object) -> None:
    while True:
        pass


def litters(*_: object, **__: object) -> None:
    Path("left").touch()
    raise InputError("refused")


def is_late(*_: object, **__: object) -> str:
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    return ""


def is_large(*_: object, **__: object) -> str:
    raise MemoryError


def test_a_defect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that fails, never ends, is refused and leaves a file, or takes too long or too much is reported."""
    readers = {"traceback": fails, "hang": hangs, "litter": litters, "late": is_late, "memory": is_large}
    left = iter(readers.values())

    def case(*_: object) -> fuzz_commands.Case:
        monkeypatch.setattr("planner.imports.instance_file.first_instance", next(left))
        return fuzz_commands.Case(SUBJECTS[0], b"{}", ("init",), seconds=0.1)

    monkeypatch.setattr(fuzz, "case", case)
    found = list(fuzz.results(range(len(readers)), 0))
    assert [x.outcome for x in found] == list(readers)
    assert found[0].place.startswith("ZeroDivisionError at cli/file_commands.py")


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
