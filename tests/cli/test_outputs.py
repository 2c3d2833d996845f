"""Outputs of the commands: what cannot be written is refused before the work, and a failed write loses nothing."""

import re
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.files import read_text, require_writable, write_atomically
from planner.formats.names import PLACEMENT_FORMATS, TOPOLOGY_FORMATS
from planner.formats.write import TOPOLOGY_WRITERS, WRITERS

TOO_LONG = f"{'x' * 300}.json"


def test_an_output_that_can_be_written_leaves_no_trace(tmp_path: Path) -> None:
    """A new file, an existing one, a link and a device pass, and nothing is written."""
    plan, link = tmp_path / "plan.json", tmp_path / "link.json"
    plan.write_text("old")
    link.symlink_to(plan)
    require_writable(None, plan, link, tmp_path / "new.json", Path("/dev/null"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "plan.json"]
    assert plan.read_text() == "old"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no/such/plan.json", "its folder does not exist"),
        (".", "is a folder"),
        (TOO_LONG, "cannot be written"),
        ("/proc/plan.json", "cannot be written"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    """A missing folder, a folder, a name that is too long and a read-only place are named."""
    with pytest.raises(InputError, match=problem):
        require_writable(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_names_the_file_that_has_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk fails after the work, the content is in a file that the message names."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InputError, match="/dev/full: cannot be written") as error:
        write_atomically(Path("/dev/full"), "the plan")
    fallback = re.search(r"its content is in (\S+)$", str(error.value))
    assert fallback is not None
    assert Path(fallback[1]).read_text() == "the plan"


def test_a_failed_write_without_a_fallback_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no other folder can be written either, the message says what failed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(InputError, match=r"cannot be written .*; choose another place"):
        write_atomically(Path("/dev/full"), "the plan")


def test_a_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    """A file of another encoding is refused with the remedy."""
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"a\.csv: cannot be read as UTF-8 text .*; give a table"):
        read_text(tmp_path / "a.csv", "give a table")


def test_the_formats_that_commands_name_are_those_that_are_written() -> None:
    """Help and error messages list every format that has a writer, and no other."""
    assert tuple(WRITERS) == PLACEMENT_FORMATS
    assert tuple(TOPOLOGY_WRITERS) == TOPOLOGY_FORMATS
