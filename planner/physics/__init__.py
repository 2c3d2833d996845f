"""The formulas, each in one place with its source: functions of numbers or arrays, SI units, no solver, no file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

Num: TypeAlias = Any  # a float or an array of floats: mypy has no type under which both take the same arithmetic
Tick: TypeAlias = Callable[[], None]


def no_tick() -> None:
    """Do nothing between the steps of a long computation."""


_tick: ContextVar[Tick] = ContextVar("tick", default=no_tick)


def tick() -> None:
    """Let whoever asked for the computation end it."""
    _tick.get()()


@contextmanager
def ticking(call: Tick) -> Iterator[None]:
    """Call this between the steps of the computations within."""
    token = _tick.set(call)
    try:
        yield
    finally:
        _tick.reset(token)
