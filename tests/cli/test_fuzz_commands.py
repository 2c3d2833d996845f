"""A fixed slice of the fuzzer over options, paths, environments and small solves: a message or an answer in each."""

import random
import time
from collections import Counter

import fuzz
import fuzz_commands
import pytest
from fuzz_cases import SUBJECTS
from tiers import slow


@pytest.mark.parametrize(
    ("kind", "cases"),
    [
        *(("options", range(25)), ("paths", range(25)), ("environment", range(4))),
        # scripts/verify/fuzz.py has more
        *slow(("options", range(25, 35)), ("paths", range(25, 35)), ("environment", range(4, 6)), ("solve", range(6))),
    ],
)
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
