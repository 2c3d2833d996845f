"""A fixed slice of the fuzzer: no changed file ends in a traceback, a hang or a file left behind."""

from collections import Counter
from pathlib import Path

import fuzz
import fuzz_cases
import pytest
from tiers import slow
from typer.testing import CliRunner

from planner.cli.main import app
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
        done = CliRunner().invoke(app, [s.file if w == "@" else w for w in s.command])
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

    monkeypatch.setattr("planner.formats.topology_files.read_topology", fails)
    found = fuzz.run(number, 0, running)
    assert found.outcome == "traceback" and found.place.startswith("ZeroDivisionError at cli/cluster_commands.py")
    monkeypatch.setattr("planner.formats.topology_files.read_topology", hangs)
    assert fuzz.run(number, 0, running, seconds=0.2).outcome == "hang"
    monkeypatch.setattr("planner.formats.topology_files.read_topology", litters)
    assert fuzz.run(number, 0, running).outcome == "litter"
