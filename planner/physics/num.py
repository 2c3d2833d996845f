"""The number type of formulas that broadcast, and the clock that long computations look at between their steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

Num: TypeAlias = Any  # a float or an array of floats: mypy has no type under which both take the same arithmetic


_tick: ContextVar[Callable[[], None]] = ContextVar("tick", default=lambda: None)


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
