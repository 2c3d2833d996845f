"""The deadline of a search, which all parts of it check; the extra time for a first plan; turns of threads to solve."""

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from planner.solvers.signals import Cause, holding, interrupted

FIRST_PLAN_SECONDS = 20.0  # that a search may take for its first plan, though its limit is less


@dataclass(slots=True)
class FirstPlan:
    """Extra time of a search until it finds its first plan; then its own deadline, at `ends` of the clock, holds."""

    ends: float
    found: bool = False


_first_plan: ContextVar[FirstPlan | None] = ContextVar("first_plan", default=None)


class OutOfTimeError(Exception):
    """The deadline of a search passed inside one of its subproblems, whose answer is therefore unknown."""


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
        """Seconds left until the deadline of the search, never below 0; infinity without a limit."""
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
        """Seconds left until the deadline of the search as solvers take them: None without a limit."""
        left = self.left
        return None if math.isinf(left) else left

    @property
    def passed(self) -> bool:
        """Whether the deadline of the search has passed."""
        return self.left <= 0

    @property
    def cause(self) -> Cause:
        """Stop reason of a search whose deadline has passed."""
        return "interrupted" if interrupted() else "limit"

    def check(self) -> None:
        """Raise OutOfTimeError if the deadline of the search has passed."""
        if self.passed:
            raise OutOfTimeError

    def capped(self, seconds: float) -> "Deadline":
        """Return the deadline of a part of the search: in `seconds` seconds, or those left if fewer."""
        return Deadline(min(self.left, seconds))

    @contextmanager
    def leaving_a_first_plan(self) -> Iterator["Deadline"]:
        """Yield a later deadline that leaves a search time for a first plan; after the body this one holds again."""
        if self.seconds is None or self.seconds >= FIRST_PLAN_SECONDS:
            yield self
            return
        with holding(_first_plan, FirstPlan(self.started + self.seconds)):
            yield Deadline(FIRST_PLAN_SECONDS, self.started)


def first_plan_found() -> None:
    """Apply the search's own deadline again, which left extra time for its first plan: it has one."""
    first = _first_plan.get()
    if first is not None:
        first.found = True


def with_a_first_plan_of_its_own() -> AbstractContextManager[None]:
    """Give a nested search extra time of its own for a first plan before the deadline, apart from the outer search."""
    first = _first_plan.get()
    return holding(_first_plan, None if first is None else replace(first))


WAKE_SECONDS = 0.05  # between looks at the limit and the interrupter while another thread has the turn
_lock = threading.RLock()


@contextmanager
def turn(deadline: Deadline) -> Iterator[bool]:
    """Wait until the deadline for the process's one turn to solve; yield whether it came. One thread may nest it."""
    lock = _lock
    while not (mine := lock.acquire(timeout=WAKE_SECONDS)) and not deadline.passed:
        pass
    try:
        yield mine
    finally:
        if mine:
            lock.release()


def _renew() -> None:
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)  # it has no thread that could give the turn back
