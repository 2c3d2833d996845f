"""What a solve reports while it runs: typed events, and the same as lines of text."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

Unit = Literal["days", "usd"]
Lines = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a solve reports while it runs; its kinds are PhaseStarted, IncumbentFound, BoundRaised, Note and Finished.

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
        """Write phase, incumbent, bound and gap in a line."""
        return _line(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStarted(Event):
    """A part of the work begins."""

    kind: ClassVar[str] = "phase_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncumbentFound(Event):
    """A better plan was found; `text` names its choices."""

    kind: ClassVar[str] = "incumbent_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRaised(Event):
    """It was proven that no plan is below a higher bound than before."""

    kind: ClassVar[str] = "bound_raised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(Event):
    """A step of the work was done that is neither a plan nor a bound; `text` names it."""

    kind: ClassVar[str] = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    """The solve ended; the plan comes back next."""

    kind: ClassVar[str] = "finished"
    status: str
    stopped: str


def _line(e: Event) -> str:
    unit = {"days": "{:,.2f} days", "usd": "${:,.0f}"}[e.unit]
    parts = [e.phase]
    if e.incumbent is not None:
        parts.append(unit.format(e.incumbent))
    if e.bound is not None:
        parts.append("bound " + unit.format(e.bound))
    if e.gap is not None:
        parts.append(f"gap {100 * e.gap:.2f} %")
    if isinstance(e, Finished):
        parts.append(e.status if e.stopped == "proved" else f"{e.status}, ended by {e.stopped}")
    return ", ".join(parts) + (f": {e.text}" if e.text else "")


@dataclass(slots=True, kw_only=True)
class Reporter:
    """Passes on what a search reports: lines to one callback, events to another.

    A callback that raises is logged and called no more: the search goes on, since its plan is worth more. Only what is
    no Exception, such as KeyboardInterrupt, passes through it.
    """

    on_line: Lines | None = None
    on_event: Callable[[Event], Any] | None = None
    unit: Unit = "days"
    phase: str = "reading"
    incumbent: float | None = None
    bound: float | None = None
    started: float = field(default_factory=time.perf_counter)

    def __call__(self, text: str) -> None:
        """Report a line of text without figures of its own."""
        self._write(text)
        self._emit(Note, text=text)

    def start(self, phase: str, *, anew: bool = False) -> None:
        """Report that a part of the work begins; `anew`: one that asks another question, without figures yet."""
        self.phase = phase
        if anew:
            self.incumbent = self.bound = None
        self._emit(PhaseStarted)

    def figures(self, text: str, incumbent: float | None, bound: float | None, choices: str = "") -> None:
        """Report where a search stands, in the reporter's unit; `text`: as a line; `choices`: those of a new plan."""
        self._write(text)
        self.stands(incumbent, bound, choices)

    def stands(self, incumbent: float | None, bound: float | None, choices: str = "") -> None:
        """Report incumbent and bound without a line of text."""
        better = incumbent is not None and incumbent != self.incumbent
        raised = bound is not None and (self.bound is None or bound > self.bound)
        self.incumbent = self.incumbent if incumbent is None else incumbent
        self.bound = bound if raised else self.bound
        if better:
            self._emit(IncumbentFound, text=choices)
        elif raised:
            self._emit(BoundRaised)

    def finish(self, status: str, stopped: str, incumbent: float | None, bound: float | None) -> None:
        """Report the end with the figures of the plan."""
        self.phase, self.incumbent, self.bound = "done", incumbent, bound
        self._emit(Finished, status=status, stopped=stopped)

    @property
    def gap(self) -> float | None:
        """Distance of bound and incumbent over the incumbent."""
        if self.incumbent is None or self.bound is None or not self.incumbent:
            return None
        return max(0.0, self.incumbent - self.bound) / abs(self.incumbent)

    def _write(self, text: str) -> None:
        if self.on_line is None:
            return
        try:
            self.on_line(text)
        except Exception:
            self.on_line = None
            _log("progress")

    def _emit(self, kind: type[Event], **more: Any) -> None:
        if self.on_event is None:
            return
        event = kind(
            elapsed_seconds=time.perf_counter() - self.started,
            phase=self.phase,
            unit=self.unit,
            incumbent=self.incumbent,
            bound=self.bound,
            gap=self.gap,
            **more,
        )
        try:
            self.on_event(event)
        except Exception:
            self.on_event = None
            _log("on_progress")


def _log(name: str) -> None:
    """Log what a callback raised."""
    text = "the callback %s raised and is called no more; the solve goes on"
    logging.getLogger("planner").warning(text, name, exc_info=True)


def report(progress: Lines, text: str, incumbent: float | None, bound: float | None, choices: str = "") -> None:
    """Report where a search stands: figures to a reporter, a line of text to any other callback."""
    if isinstance(progress, Reporter):
        progress.figures(text, incumbent, bound, choices)
    else:
        progress(text)


def notes(progress: Lines) -> Lines:
    """Return the callback for lines alone, of a search whose figures are in another unit."""
    return progress.__call__ if isinstance(progress, Reporter) else progress


def stands(progress: Lines, incumbent: float | None, bound: float | None) -> None:
    """Report what a part of the work ended with, where events are asked for; no line of text."""
    if isinstance(progress, Reporter):
        progress.stands(incumbent, bound)


def start(progress: Lines, phase: str, *, anew: bool = False) -> None:
    """Report that a part of the work begins, where that is asked for."""
    if isinstance(progress, Reporter):
        progress.start(phase, anew=anew)
