"""The models that the solvers are asked, and the solvers' logs, as numbered files of a folder with an index."""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from planner.errors import InputError
from planner.solvers.outcome import Outcome

INDEX = "index.jsonl"
T = TypeVar("T")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.,()#-]+")


@dataclass(slots=True)
class Recorder:
    """The folder that models are written into, and how many are there."""

    folder: Path
    count: int = 0

    def next(self) -> Path:
        """Return the next file without its suffix."""
        self.count += 1
        return self.folder / f"{self.count:04d}"

    def note(self, stem: Path, outcome: Outcome[Any]) -> None:
        """Write an answer into the index."""
        line = {
            "model": stem.name,
            "files": sorted(f.name for f in self.folder.glob(f"{stem.name}.*")),
            "solver": outcome.solver,
            "variables": outcome.variables,
            "constraints": outcome.constraints,
            "status": outcome.status,
            "detail": outcome.detail,
            "objective": outcome.objective,
            "bound": outcome.bound,
            "seconds": round(outcome.seconds, 6),
        }
        with (self.folder / INDEX).open("a", encoding="utf-8") as index:
            index.write(json.dumps(line) + "\n")


_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


@contextmanager
def recording(folder: Path | None) -> Iterator[None]:
    """Write every model that is solved within, and the solver's log, into a folder; None writes nothing.

    Raises
    ------
    InputError
        The folder cannot be made, or is not empty.
    """
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"{folder}: must be an empty folder or a new one; models are numbered from 0001")
        (folder / INDEX).touch()
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); give another folder") from None
    token = _recorder.set(Recorder(folder))
    try:
        yield
    finally:
        _recorder.reset(token)


def models_wanted() -> bool:
    """Return whether models are to be written."""
    return _recorder.get() is not None


def begin_highs(h: Any, columns: Sequence[str] = (), rows: Sequence[str] = ()) -> Path | None:
    """Send the log of a HiGHS to its file; name its columns and rows, where they have names, and write it."""
    recorder = _recorder.get()
    if recorder is None:
        return None
    stem = recorder.next()
    for give, names in ((h.passColName, columns), (h.passRowName, rows)):
        for i, name in enumerate(_unique(names)):
            give(i, name)
    log = str(stem.with_suffix(".log"))
    for option, value in (("output_flag", True), ("log_to_console", False), ("log_file", log)):
        h.setOptionValue(option, value)
    write_highs(stem, h)
    return stem


def write_highs(stem: Path | None, h: Any) -> None:
    """Write the model of a HiGHS as it stands."""
    if stem is not None:
        for suffix in (".mps", ".lp"):
            h.writeModel(str(stem.with_suffix(suffix)))


def begin_cpsat(model: Any, solver: Any) -> Path | None:
    """Write a CP-SAT model as the text of its protocol buffer, and send the solver's log to its file."""
    recorder = _recorder.get()
    if recorder is None:
        return None
    stem = recorder.next()
    model.export_to_file(str(stem.with_suffix(".pbtxt")))
    log = stem.with_suffix(".log")

    def write(line: str) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    solver.parameters.log_search_progress, solver.parameters.log_to_stdout = True, False
    solver.log_callback = write
    return stem


def end(stem: Path | None, outcome: Outcome[T]) -> Outcome[T]:
    """Write the answer of a model into the index; return it. What cannot be written costs no plan."""
    recorder = _recorder.get()
    if stem is not None and recorder is not None:
        try:
            recorder.note(stem, outcome)
        except OSError as error:
            logging.getLogger("planner").warning("%s: cannot be written (%s)", recorder.folder, error.strerror)
    return outcome


def _unique(names: Sequence[str]) -> list[str]:
    """Return names that MPS and LP files can hold: without spaces and brackets, each once, none like a number."""
    found: dict[str, int] = {}
    made = []
    for name in names:
        plain = _NOT_IN_NAMES.sub("_", name.replace("[", "(").replace("]", ")"))
        if not plain[:1].isalpha() or plain[:1] in "eE":
            plain = f"x_{plain}"
        found[plain] = found.get(plain, 0) + 1
        made.append(plain if found[plain] == 1 else f"{plain}#{found[plain]}")
    return made
