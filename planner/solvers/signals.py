"""Deadlines and signals of a search: a limit, Ctrl-C, SIGTERM or an interrupter ends it with the best plan so far."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Literal, TypeVar

T = TypeVar("T")
Cause = Literal["limit", "interrupted"]  # of the end of a search before its proof
ENDED = {  # why there is no plan, in words, by what ended the search; "proved": all was searched, some left open
    "limit": "the time limit came",
    "interrupted": "a signal or an interrupter ended the search",
    "proved": "the search ended, with some choices left without a proof,",
}
FIRST_PLAN_SECONDS = 20.0  # that a search may take for its first plan, though its limit is less


class Interrupter:
    """An interrupter that ends the solves it was given to, from any thread, with the best plan so far, as Ctrl-C does.

    It stays set until `clear`: a solve that begins later with it ends at once.
    """

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked = threading.Event()

    def __repr__(self) -> str:
        return f"Interrupter(interrupted={self.interrupted})"

    @property
    def interrupted(self) -> bool:
        """Whether the interrupter was told to end its solves."""
        return self._asked.is_set()

    def interrupt(self) -> None:
        """Tell the interrupter's solves to end; return at once."""
        self._asked.set()

    def clear(self) -> None:
        """Reset the interrupter, so that solves given it run again."""
        self._asked.clear()


_asked = threading.Event()
_watching = threading.Event()  # signals end searches for now
_finishing: ContextVar[bool] = ContextVar("finishing", default=False)
_at_once: ContextVar[bool] = ContextVar("at_once", default=False)
_interrupter: ContextVar[Interrupter | None] = ContextVar("interrupter", default=None)


def asked_to_end() -> Callable[[], bool]:
    """Return `interrupted` for a solver's own thread, which has not this context of signals."""
    if _finishing.get():
        return lambda: False
    given = _interrupter.get()
    return lambda: _asked.is_set() or (given is not None and given.interrupted)


def interrupted() -> bool:
    """Return whether a signal told all searches of the process to end, or an interrupter those of this thread."""
    return asked_to_end()()


def interruptible() -> bool:
    """Return whether a signal or an interrupter may end the search, apart from its limit."""
    return _watching.is_set() or _interrupter.get() is not None


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a context variable, such as a search's interrupter, for the body of a `with` statement."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def ended_by(interrupter: Interrupter | None) -> AbstractContextManager[None]:
    """Let an interrupter end the searches in the `with` body; None keeps the present one."""
    return nullcontext() if interrupter is None else holding(_interrupter, interrupter)


def finishing() -> AbstractContextManager[None]:
    """Let a search finish work that writing its plan needs, after a signal to end; a second signal raises."""
    return holding(_finishing, True)


def ending_at_once() -> AbstractContextManager[None]:
    """Let the first Ctrl-C or SIGTERM raise, as while a file is read; raise now if a signal came before."""
    if _asked.is_set():
        raise KeyboardInterrupt
    return holding(_at_once, True)


@contextmanager
def ending_searches() -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end searches as a limit does (in the main thread), a second one interrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if _asked.is_set() or _at_once.get():
            signal.default_int_handler(number, frame)
        _asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    _watching.set()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _watching.clear()
        _asked.clear()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C to the end of the `with` body, where it is raised: compiled modules cut short fail to load."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(slots=True)
class FirstPlan:
    """The first plan that a search is to find before its time limit, at `ends` of the clock, ends it."""

    ends: float
    found: bool = False


_first_plan: ContextVar[FirstPlan | None] = ContextVar("first_plan", default=None)


class OutOfTimeError(Exception):
    """The time limit of a search passed inside one of its subproblems, whose answer is therefore unknown."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The deadline of a search in seconds from now; None: no limit. A signal that tells it to end passes it.

    One deadline is handed down through all that a search asks, and checked in every loop that may take long.
    """

    seconds: float | None = None
    started: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds since the search of this deadline began."""
        return time.perf_counter() - self.started

    @property
    def left(self) -> float:
        """Seconds left of the search, never below 0; infinity without a limit."""
        if interrupted():
            return 0.0
        if self.seconds is None:
            return math.inf
        ends, first = self.started + self.seconds, _first_plan.get()
        if first is not None and first.found:
            ends = min(ends, first.ends)
        return max(0.0, ends - time.perf_counter())

    @property
    def limit(self) -> float | None:
        """Seconds left of the search as solvers take them: None without a limit."""
        left = self.left
        return None if math.isinf(left) else left

    @property
    def passed(self) -> bool:
        """Whether the search has no time left."""
        return self.left <= 0

    @property
    def cause(self) -> Cause:
        """Stop reason of a search that has no time left."""
        return "interrupted" if interrupted() else "limit"

    def check(self) -> None:
        """Raise OutOfTimeError if the search has no time left."""
        if self.passed:
            raise OutOfTimeError

    def capped(self, seconds: float) -> "Deadline":
        """Return the deadline of a part of the search that may take `seconds` seconds, or those left if fewer."""
        return Deadline(min(self.left, seconds))

    @contextmanager
    def leaving_a_first_plan(self) -> Iterator["Deadline"]:
        """Yield a deadline that leaves a search some seconds for a first plan; then this deadline applies again."""
        if self.seconds is None or self.seconds >= FIRST_PLAN_SECONDS:
            yield self
            return
        with holding(_first_plan, FirstPlan(self.started + self.seconds)):
            yield Deadline(FIRST_PLAN_SECONDS, self.started)


def first_plan_found() -> None:
    """Apply the time limit again that gave the search extra seconds for its first plan: it has one."""
    first = _first_plan.get()
    if first is not None:
        first.found = True


def with_a_first_plan_of_its_own() -> AbstractContextManager[None]:
    """Give a nested search its own clock for a first plan, which is no first plan of the outer search."""
    first = _first_plan.get()
    return holding(_first_plan, None if first is None else replace(first))
