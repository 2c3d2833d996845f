"""The clock of a search: when it began, and when it must end."""

import math
import time
from dataclasses import dataclass, field
from typing import Literal

from planner.solvers import signals

ENDED = {  # why there is no plan, in words, by what ended the search; "proved": all was searched, some left open
    "limit": "the time limit came",
    "interrupted": "a signal or an interrupter ended the search",
    "proved": "the search ended, with some choices left without a proof,",
}


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
        if signals.interrupted():
            return 0.0
        return math.inf if self.seconds is None else max(0.0, self.seconds - self.elapsed)

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
    def cause(self) -> Literal["limit", "interrupted"]:
        """What ends a search that has no time left."""
        return "interrupted" if signals.interrupted() else "limit"

    def check(self) -> None:
        """Raise OutOfTimeError if no time is left."""
        if self.passed:
            raise OutOfTimeError

    def capped(self, seconds: float) -> "Deadline":
        """Return the deadline of a part of the search that may take so many of the seconds left."""
        return Deadline(min(self.left, seconds))
