"""The clock of a search: when it began, and when it must end."""

import math
import time
from dataclasses import dataclass, field


class OutOfTimeError(Exception):
    """The limit of a search passed inside one of its questions, whose answer is therefore unknown."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """Seconds that a search may take from now on; None: as long as it needs."""

    seconds: float | None = None
    started: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self.started

    @property
    def left(self) -> float:
        """Seconds left, never below 0; infinity without a limit."""
        return math.inf if self.seconds is None else max(0.0, self.seconds - self.elapsed)

    @property
    def limit(self) -> float | None:
        """Seconds left as solvers take them: None without a limit."""
        return None if self.seconds is None else self.left

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left <= 0

    def check(self) -> None:
        """Raise OutOfTimeError if no time is left."""
        if self.passed:
            raise OutOfTimeError

    def capped(self, seconds: float) -> "Deadline":
        """Return the deadline of a part of the search that may take so many of the seconds left."""
        return Deadline(min(self.left, seconds))
