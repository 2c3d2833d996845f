"""The clock that long computations look at between their steps: who asked for them may end them by an exception."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


def _go_on() -> None:
    """Do nothing."""


_tick: ContextVar[Callable[[], None]] = ContextVar("tick", default=_go_on)


def tick() -> None:
    """Let whoever asked for the computation end it."""
    _tick.get()()


@contextmanager
def ticking(call: Callable[[], None]) -> Iterator[None]:
    """Call this between the steps of the computations within."""
    token = _tick.set(call)
    try:
        yield
    finally:
        _tick.reset(token)
