"""Models of the solvers written to files (MPS, LP, protocol buffers), with their logs and an index of the outcomes."""

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from planner.errors import InputError
from planner.solvers.outcome import Outcome
from planner.solvers.signals import holding

INDEX = "index.jsonl"
T = TypeVar("T")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.,()#-]+")
_stems: ContextVar[Iterator[Path] | None] = ContextVar("stems", default=None)  # of the files of models, without suffix


@contextmanager
def recording(folder: Path | None) -> Iterator[None]:
    """Write the solvers' models and logs of the body into a folder, if any. InputError: unwritable, or not empty."""
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
    with holding(_stems, map(folder.joinpath, map("{:04d}".format, count(1)))):
        yield


def models_wanted() -> bool:
    """Return whether the solvers' models are written to files now."""
    return _stems.get() is not None


def begin_highs(highs: Any, columns: Sequence[str] = (), rows: Sequence[str] = ()) -> Path | None:
    """Write a HiGHS model to its files, columns and rows named where they have names, and send the log to another.

    Names are made fit for MPS and LP files: no spaces, no brackets, unique, no numbers.
    """
    stem = next(_stems.get() or iter(()), None)
    if stem is None:
        return None
    for give, names in ((highs.passColName, columns), (highs.passRowName, rows)):
        found = Counter[str]()
        for i, name in enumerate(names):
            plain = _NOT_IN_NAMES.sub("_", name.replace("[", "(").replace("]", ")"))
            if not plain[:1].isalpha() or plain[:1] in "eE":
                plain = f"x_{plain}"
            found[plain] += 1
            give(i, plain if found[plain] == 1 else f"{plain}#{found[plain]}")
    options = {"output_flag": True, "log_to_console": False, "log_file": str(stem.with_suffix(".log"))}
    for option, value in options.items():
        highs.setOptionValue(option, value)
    write_highs(stem, highs)
    return stem


def write_highs(stem: Path | None, highs: Any) -> None:
    """Write the present model of a HiGHS instance to its files, MPS and LP, if a file stem is given."""
    if stem is not None:
        for suffix in (".mps", ".lp"):
            highs.writeModel(str(stem.with_suffix(suffix)))


def begin_cpsat(model: Any, solver: Any) -> Path | None:
    """Write a CP-SAT model to its file, the text of its protocol buffer, and send the solver's log to another."""
    stem = next(_stems.get() or iter(()), None)
    if stem is None:
        return None
    model.export_to_file(str(stem.with_suffix(".pbtxt")))
    log = stem.with_suffix(".log")

    def write(line: str) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    solver.parameters.log_search_progress, solver.parameters.log_to_stdout = True, False
    solver.log_callback = write
    return stem


def end(stem: Path | None, outcome: Outcome[T]) -> Outcome[T]:
    """Write a solver's outcome into the index of the model files and return it; a failure to write is logged only."""
    if stem is None:
        return outcome
    folder = stem.parent
    figures = ("solver", "variables", "constraints", "status", "detail", "objective", "bound")
    line = {"model": stem.name, "files": sorted(file.name for file in folder.glob(f"{stem.name}.*"))}
    line |= {name: getattr(outcome, name) for name in figures} | {"seconds": round(outcome.seconds, 6)}
    try:
        with (folder / INDEX).open("a", encoding="utf-8") as index:
            index.write(json.dumps(line) + "\n")
    except OSError as error:
        logging.getLogger("planner").warning("%s: cannot be written (%s)", folder, error.strerror)
    return outcome
