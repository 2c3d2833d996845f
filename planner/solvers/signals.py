"""The clock of a search, and Ctrl-C, SIGTERM and interrupters: end it with the best so far, and nothing by halves."""

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


class Interrupter:
    """Ends the solves that it was given to, from any thread, with the best plan so far, as Ctrl-C does.

    It stays set until `clear`: a solve that begins later with it ends at once.
    """

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked = threading.Event()

    def __repr__(self) -> str:
        return f"Interrupter(interrupted={self.interrupted})"

    @property
    def interrupted(self) -> bool:
        """Whether the end was asked for."""
        return self._asked.is_set()

    def interrupt(self) -> None:
        """Ask the solves for their end; return at once."""
        self._asked.set()

    def clear(self) -> None:
        """Make it serve again."""
        self._asked.clear()


_asked = threading.Event()
_watching = threading.Event()  # signals end searches for now
_finishing: ContextVar[bool] = ContextVar("finishing", default=False)
_at_once: ContextVar[bool] = ContextVar("at_once", default=False)
_interrupter: ContextVar[Interrupter | None] = ContextVar("interrupter", default=None)


def asked_to_end() -> Callable[[], bool]:
    """Return `interrupted` for a thread of a solver's own, which is not in this context."""
    if _finishing.get():
        return lambda: False
    given = _interrupter.get()
    return lambda: _asked.is_set() or (given is not None and given.interrupted)


def interrupted() -> bool:
    """Return whether a signal asked all searches of the process to end, or an interrupter those of this thread."""
    return asked_to_end()()


def interruptible() -> bool:
    """Return whether anything may ask for the end but for a limit."""
    return _watching.is_set() or _interrupter.get() is not None


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a variable of the context a value within."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def ended_by(interrupter: Interrupter | None) -> AbstractContextManager[None]:
    """Let an interrupter end the searches within; None leaves the one that is there."""
    return nullcontext() if interrupter is None else holding(_interrupter, interrupter)


def finishing() -> AbstractContextManager[None]:
    """Let work finish that the present plan needs to be written, though a signal asked to end; a second one raises."""
    return holding(_finishing, True)


def ending_at_once() -> AbstractContextManager[None]:
    """Let the first Ctrl-C or SIGTERM raise, as while a file is read, and one that came before it."""
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
    """Delay Ctrl-C until the end, where it is raised: a compiled module whose import it cuts short fails to load."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


ENDED = {  # why there is no plan, in words, by what ended the search; "proved": all was searched, some left open
    "limit": "the time limit came",
    "interrupted": "a signal or an interrupter ended the search",
    "proved": "the search ended, with some choices left without a proof,",
}


FIRST_PLAN_SECONDS = 20.0  # that a search may take for its first plan, though its limit is less


@dataclass(slots=True)
class FirstPlan:
    """The plan that a search is to find before its limit, at `ends` of the clock, strikes."""

    ends: float
    found: bool = False


_first_plan: ContextVar[FirstPlan | None] = ContextVar("first_plan", default=None)


class OutOfTimeError(Exception):
    """The limit of a search passed inside one of its questions, whose answer is therefore unknown."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """Seconds that a search may take from now on; None: as long as it needs. A signal that asks for its end passes it.

    One deadline is handed down through all that a search asks, and checked in every loop that may take long.
    """

    seconds: float | None = None
    started: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self.started

    @property
    def left(self) -> float:
        """Seconds left, never below 0; infinity without a limit."""
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
        """Seconds left as solvers take them: None without a limit."""
        left = self.left
        return None if math.isinf(left) else left

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left <= 0

    @property
    def cause(self) -> Cause:
        """Stop reason of a search that has no time left."""
        return "interrupted" if interrupted() else "limit"

    def check(self) -> None:
        """Raise OutOfTimeError if no time is left."""
        if self.passed:
            raise OutOfTimeError

    def capped(self, seconds: float) -> "Deadline":
        """Return the deadline of a part of the search that may take `seconds` seconds, or those left if fewer."""
        return Deadline(min(self.left, seconds))

    @contextmanager
    def leaving_a_first_plan(self) -> Iterator["Deadline"]:
        """Yield the deadline of a search that may take some seconds for its first plan; then this one strikes."""
        if self.seconds is None or self.seconds >= FIRST_PLAN_SECONDS:
            yield self
            return
        with holding(_first_plan, FirstPlan(self.started + self.seconds)):
            yield Deadline(FIRST_PLAN_SECONDS, self.started)


def first_plan_found() -> None:
    """Let the limit strike from now on that left the search its first plan."""
    first = _first_plan.get()
    if first is not None:
        first.found = True


def with_a_first_plan_of_its_own() -> AbstractContextManager[None]:
    """Let a search within find a plan that is none yet of the search around it."""
    first = _first_plan.get()
    return holding(_first_plan, None if first is None else replace(first))
