"""Signals that end a search with its best plan so far: Ctrl-C, SIGTERM, or an interrupter from any thread."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from types import FrameType
from typing import Literal, TypeVar

T = TypeVar("T")
Cause = Literal["limit", "interrupted"]  # of the end of a search before its proof
ENDED = {  # why there is no plan, in words, by what ended the search; "proved": all was searched, some left open
    "limit": "the time limit came",
    "interrupted": "a signal or an interrupter ended the search",
    "proved": "the search ended, with some choices left without a proof,",
}


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
