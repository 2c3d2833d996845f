"""What a placement under way has and what is proven of it."""

import time
from dataclasses import dataclass, field

from planner.models.placement.data import Packing
from planner.solvers.outcome import Stop

ANALYTIC = "best fit with analytic bounds"


@dataclass(slots=True)
class Progress:
    """What is held and proven so far, and what it took."""

    packing: Packing
    values: tuple[int, ...]
    bounds: list[int]
    variables: int = 0
    constraints: int = 0
    solver: str = ANALYTIC
    interrupted: bool = False
    started: float = field(default_factory=time.perf_counter)

    @property
    def stop(self) -> Stop:
        """Why the search ends where it is not proven."""
        return Stop.INTERRUPTED if self.interrupted else Stop.LIMIT

    def proven(self, level: int) -> bool:
        """Tell whether a level and all before it are at their bounds."""
        return all(v == b for v, b in zip(self.values[: level + 1], self.bounds, strict=False))
