"""The formulas of physics, each in one place with its source: of numbers or arrays, SI units, no solver, no file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Num: TypeAlias = Any  # a float or an array of floats: mypy has no type under which both take the same arithmetic
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Tick: TypeAlias = Callable[[], None]


def no_tick() -> None:
    """Do nothing between the steps of a long computation of physics: the default tick."""


_tick: ContextVar[Tick] = ContextVar("tick", default=no_tick)


def tick() -> None:
    """Call the current tick, by which the caller of a long computation of physics may end it."""
    _tick.get()()


@contextmanager
def ticking(call: Tick) -> Iterator[None]:
    """Set the tick that is called between the steps of the computations of physics within."""
    token = _tick.set(call)
    try:
        yield
    finally:
        _tick.reset(token)
