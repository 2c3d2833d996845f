"""Types of the joint optimum's result: the plan's choices, its value and bounds, and the counts of its proof."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from planner.models.joint.split import Column
from planner.models.joint.world import JointPlan


class JointStatus(StrEnum):
    """Status of a joint optimum."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSolution:
    """The joint optimum of an instance: the goal's value with lower bounds over the declared space, and the plan."""

    status: JointStatus
    days: float | None = None
    usd: float | None = None  # of a goal in dollars: the capital, or what it costs to buy and to run
    lower_bound: float | None = None  # in days, or in dollars where those are the goal
    # In days, over every fabric: at the cheapest, on a network slowed by transport alone.
    fabric_free_bound: float | None = None
    plan: JointPlan | None = None
    counts: dict[str, int] = field(default_factory=dict)
    stopped: Literal["proved", "limit", "interrupted"] = "proved"
    excluded: tuple[tuple[float, Column], ...] = ()  # with days below the bound there: sites and budget refuse them
    max_racks: dict[int, int] = field(default_factory=dict)  # of any plan, by the GPUs of each that are cabled
    failure: str = ""
