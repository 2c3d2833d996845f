"""The progress of a solve, reported as lines and as events: phases, incumbents, bounds, its end."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

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
        """Return the plan of a progress event, checked, without a claim of a bound; this takes up to seconds.

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
