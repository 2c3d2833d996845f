"""Ctrl-C and SIGTERM: end a search with the best so far, and never in the middle of what must not be cut in two."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

_asked = threading.Event()
_finishing: ContextVar[bool] = ContextVar("finishing", default=False)


def interrupted() -> bool:
    """Return whether a signal asked all searches of the process to end."""
    return _asked.is_set() and not _finishing.get()


@contextmanager
def finishing() -> Iterator[None]:
    """Answer what the plan in hand cannot be written without, though a signal asked for the end; a second raises."""
    token = _finishing.set(True)
    try:
        yield
    finally:
        _finishing.reset(token)


@contextmanager
def ending_searches() -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end searches as a limit does, and a second one raise KeyboardInterrupt.

    Outside the main thread, where no signal arrives, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if _asked.is_set():
            signal.default_int_handler(number, frame)
        _asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _asked.clear()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end, where it is raised: a compiled module whose import it cuts short fails to load."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
