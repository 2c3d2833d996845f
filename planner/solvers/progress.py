"""Report the progress of a solve, write the solvers' models to files, and let threads take turns."""

import json
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from planner.errors import InputError
from planner.solvers.outcome import Outcome
from planner.solvers.signals import Deadline, holding

WAKE_SECONDS = 0.05  # between looks at the limit and the interrupter while another thread has the turn
_lock = threading.RLock()
INDEX = "index.jsonl"
T = TypeVar("T")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.,()#-]+")
_stems: ContextVar[Iterator[Path] | None] = ContextVar("stems", default=None)  # of the files of models, without suffix


@contextmanager
def turn(deadline: Deadline) -> Iterator[bool]:
    """Wait for the process's one turn to solve; yield whether it came before the deadline. One thread may nest it."""
    lock = _lock
    while not (mine := lock.acquire(timeout=WAKE_SECONDS)) and not deadline.passed:
        pass
    try:
        yield mine
    finally:
        if mine:
            lock.release()


def _renew() -> None:
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)  # it has no thread that could give the turn back


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
    """Return whether the solvers' models are to be written to files."""
    return _stems.get() is not None


def begin_highs(highs: Any, columns: Sequence[str] = (), rows: Sequence[str] = ()) -> Path | None:
    """Send the log of a HiGHS to its file; name its columns and rows, where they have names, and write it.

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
    """Write the present model of a HiGHS instance as an MPS and an LP file, if a file stem is given."""
    if stem is not None:
        for suffix in (".mps", ".lp"):
            highs.writeModel(str(stem.with_suffix(suffix)))


def begin_cpsat(model: Any, solver: Any) -> Path | None:
    """Write a CP-SAT model as the text of its protocol buffer, and send the solver's log to its file."""
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
    """Write a solver's outcome of a model into the index and return it; a failure to write is logged only."""
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


Unit = Literal["days", "usd"]
WRITER = "writer"  # of an event's plan: no field, so that events are still compared, sent and written as data
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Progress event of a running solve; its kinds are PhaseStarted, IncumbentFound, BoundRaised, Note and Finished.

    `incumbent` and `bound` are in `unit`, days to train or dollars; `gap` is their distance over the incumbent. What is
    not known yet is None. A phase that asks another question starts without an incumbent.
    """

    kind: ClassVar[str] = "event"
    elapsed_seconds: float
    phase: str
    unit: Unit
    incumbent: float | None
    bound: float | None
    gap: float | None
    text: str = ""

    def line(self) -> str:
        """Write the phase, incumbent, bound and gap of a progress event in a line."""
        unit = {"days": "{:,.2f} days", "usd": "${:,.0f}"}[self.unit]
        parts = [self.phase]
        if self.incumbent is not None:
            parts.append(unit.format(self.incumbent))
        if self.bound is not None:
            parts.append("bound " + unit.format(self.bound))
        if self.gap is not None:
            parts.append(f"gap {100 * self.gap:.2f} %")
        if isinstance(self, Finished):
            parts.append(self.status if self.stopped == "proved" else f"{self.status}, ended by {self.stopped}")
        return ", ".join(parts) + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStarted(Event):
    """Progress event: a part of the solve begins."""

    kind: ClassVar[str] = "phase_started"


@dataclass(frozen=True, kw_only=True)
class IncumbentFound(Event):
    """Progress event: a better plan was found; `text` names its choices."""

    kind: ClassVar[str] = "incumbent_found"

    def plan(self) -> Any:
        """Write the plan of a progress event, checked and without a claim of a bound, which takes up to seconds.

        None where no whole plan is known yet: of pools, of a question inside another, of a fabric alone, and of an
        event that came from another process.
        """
        writer = vars(self).get(WRITER)
        return None if writer is None else writer()


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRaised(Event):
    """Progress event: it was proven that no plan is below a higher bound than before."""

    kind: ClassVar[str] = "bound_raised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(Event):
    """Progress event: a step of the solve was done that is neither a plan nor a bound; `text` names it."""

    kind: ClassVar[str] = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    """Progress event: the solve ended; the plan comes back next."""

    kind: ClassVar[str] = "finished"
    status: str
    stopped: str


@dataclass(slots=True, kw_only=True)
class Reporter:
    """Reports a solve's lines and events to callbacks; one that raises is logged and called no more."""

    on_line: Progress | None = None
    on_event: Callable[[Event], Any] | None = None
    unit: Unit = "days"
    writer: Callable[[Any], Any] | None = None  # of the plan of what a search found
    phase: str = "reading"
    incumbent: float | None = None
    bound: float | None = None
    waits: float = 0.0  # days until training starts, where the goal counts them
    started: float = field(default_factory=time.perf_counter)

    def __call__(self, text: str) -> None:
        """Report a line of text of the solve without figures of its own."""
        self.pass_on("on_line", text)
        self.emit(Note, text=text)

    def finish(self, status: str, stopped: str, incumbent: float | None, bound: float | None) -> None:
        """Report the end of the solve with the figures of the plan."""
        self.phase, self.incumbent, self.bound = "done", incumbent, bound
        self.emit(Finished, status=status, stopped=stopped)

    def emit(self, kind: type[Event], found: Any = None, **more: Any) -> None:
        """Report a progress event of some kind with the present figures."""
        if self.on_event is None:
            return
        gap = None  # of bound and incumbent over the incumbent
        if self.incumbent and self.bound is not None:
            gap = max(0.0, self.incumbent - self.bound) / abs(self.incumbent)
        more |= {"phase": self.phase, "unit": self.unit, "incumbent": self.incumbent, "bound": self.bound, "gap": gap}
        event = kind(elapsed_seconds=time.perf_counter() - self.started, **more)
        if self.writer is not None and found is not None:
            vars(event)[WRITER] = partial(self.writer, found)
        self.pass_on("on_event", event)

    def pass_on(self, callback: Literal["on_line", "on_event"], what: Any) -> None:
        """Call a callback for progress, which is logged and called no more where it raises."""
        call = getattr(self, callback)
        if call is None:
            return
        try:
            call(what)
        except Exception:
            setattr(self, callback, None)
            text = "the callback %s raised and is called no more; the solve goes on"
            name = {"on_line": "progress", "on_event": "on_progress"}[callback]
            logging.getLogger("planner").warning(text, name, exc_info=True)


def report(
    progress: Progress, text: str, incumbent: float | None, bound: float | None, choices: str = "", found: Any = None
) -> None:
    """Report a solve's incumbent and bound to a reporter, in its unit, and a line of text, if any, to any callback."""
    if not isinstance(progress, Reporter):
        if text:
            progress(text)
        return
    if text:
        progress.pass_on("on_line", text)
    incumbent = None if incumbent is None else incumbent + progress.waits
    bound = None if bound is None else bound + progress.waits
    better = incumbent is not None and incumbent != progress.incumbent
    raised = bound is not None and (progress.bound is None or bound > progress.bound)
    progress.incumbent = progress.incumbent if incumbent is None else incumbent
    progress.bound = bound if raised else progress.bound
    if better:
        progress.emit(IncumbentFound, found, text=choices)
    elif raised:
        progress.emit(BoundRaised)


def notes(progress: Progress) -> Progress:
    """Return the progress callback for lines alone, of a search whose figures are in another unit."""
    return progress.__call__ if isinstance(progress, Reporter) else progress


def start(progress: Progress, phase: str, *, anew: bool = False, waits: float = 0.0) -> None:
    """Report that a phase of a solve begins; `anew`: on another question, whose training `waits` days first."""
    # A question that is asked anew has no figures yet; the days of waiting count in all figures of its goal.
    if not isinstance(progress, Reporter):
        return
    progress.phase = phase
    if anew:
        progress.incumbent, progress.bound, progress.waits = None, None, waits
    progress.emit(PhaseStarted)
