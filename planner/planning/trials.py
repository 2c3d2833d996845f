"""Trials on the way to a plan: all decisions for a number of racks, or why there are none."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from planner.models.layout.solution_cache import SolutionCache
from planner.plan.certificate import Conflict
from planner.plan.fabric import FabricPlan
from planner.plan.layout import LayoutPlan
from planner.plan.placement import PlacementPlan
from planner.plan.plan import Cost
from planner.plan.sites import SitesPlan
from planner.plan.wan import WanPlan

Decision = Literal["sites", "wan", "layout", "fabric", "placement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """All decisions for one number of racks, and the bill."""

    racks_by_site: dict[str, int]
    sites: SitesPlan | None
    wan: WanPlan | None
    layout: LayoutPlan
    fabric: FabricPlan | None
    placement: PlacementPlan | None
    cost: Cost
    proved: bool

    @property
    def racks(self) -> int:
        """Racks over all sites."""
        return sum(self.racks_by_site.values())


@dataclass(frozen=True, slots=True)
class Refusal:
    """A decision that cannot be taken for some racks; the reason is computed on demand, since that takes time."""

    decision: Decision
    explain: Callable[[], Conflict]


@dataclass(slots=True)
class Learned:
    """Kept by whoever solves many instances one after another; it saves time and changes no answer."""

    layouts: SolutionCache = field(default_factory=SolutionCache)
    bills: list[tuple[int, float]] = field(
        default_factory=list
    )  # racks and dollars of the last two plans that a budget bound
    shared: bool = True  # with solves to come

    def racks_for(self, budget: float) -> int | None:
        """Guess the racks that a budget buys, on the line through the last two bills; None without any."""
        if not self.bills or budget == math.inf:
            return None
        racks, cost = self.bills[-1]
        before = self.bills[0]
        slope = (cost - before[1]) / (racks - before[0]) if racks != before[0] else 0.0
        return racks + math.floor((budget - cost) / (slope if slope > 0 else cost / racks))

    def keep(self, racks: int, usd: float) -> None:
        """Remember what a plan cost."""
        self.bills = [*self.bills[-1:], (racks, usd)]
