"""What one solve leaves to the next of like instances: what layout searches proved, and what plans cost."""

import math
from dataclasses import dataclass, field

from planner.models.layout.solution_cache import SolutionCache


@dataclass(slots=True)
class Learned:
    """Kept by whoever solves many instances one after another; it saves time and changes no answer."""

    layouts: SolutionCache = field(default_factory=SolutionCache)
    bills: list[tuple[int, float]] = field(
        default_factory=list
    )  # racks and dollars of the last two plans that a budget bound
    shared: bool = True  # with solves to come

    def racks_for(self, budget: float) -> int | None:
        """Guess the racks that a budget buys with all that joins them, on the line through the last two plans; None where nothing is known."""
        if not self.bills or budget == math.inf:
            return None
        racks, cost = self.bills[-1]
        before = self.bills[0]
        slope = (cost - before[1]) / (racks - before[0]) if racks != before[0] else 0.0
        return racks + math.floor((budget - cost) / (slope if slope > 0 else cost / racks))

    def keep(self, racks: int, usd: float) -> None:
        """Remember what a plan cost."""
        self.bills = [*self.bills[-1:], (racks, usd)]
