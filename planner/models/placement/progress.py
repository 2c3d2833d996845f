"""The state of a placement's search: its incumbent, and what is proven of it."""

from dataclasses import dataclass, field

from planner.models.placement.data import Packing
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Stop

ANALYTIC = "best fit with analytic bounds"


@dataclass(slots=True)
class Progress:
    """The incumbent, the bounds of its levels, and what the search took so far."""

    packing: Packing
    values: tuple[int, ...]
    bounds: list[int]
    deadline: Deadline = field(default_factory=Deadline)
    variables: int = 0
    constraints: int = 0
    solver: str = ANALYTIC
    interrupted: bool = False

    @property
    def stop(self) -> Stop:
        """Why the search ends where it is not proven."""
        return Stop.INTERRUPTED if self.interrupted else Stop.LIMIT

    def proven(self, level: int) -> bool:
        """Return whether a level and all before it are at their bounds."""
        return all(v == b for v, b in zip(self.values[: level + 1], self.bounds, strict=False))

    def improve(self, packing: Packing, values: tuple[int, ...]) -> None:
        """Take a packing as the incumbent where it is better."""
        if values < self.values:
            self.packing, self.values = packing, values
