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
    """The joint optimum of an instance.

    Days to train with lower bounds, over the declared space, and the plan that takes them. `lower_bound` holds over
    the declared space; `fabric_free_bound` over every fabric, since it counts on the cheapest possible one and on a
    network that slows nothing above its transport. `excluded` has the columns whose least days on such a network are
    below the bound: sites and budget refuse each faster choice of them. `max_racks` are the most racks of any plan by
    the GPUs of each that are cabled.
    """

    status: JointStatus
    days: float | None = None
    lower_bound: float | None = None
    fabric_free_bound: float | None = None
    plan: JointPlan | None = None
    counts: dict[str, int] = field(default_factory=dict)
    stopped: Literal["proved", "limit", "interrupted"] = "proved"
    excluded: tuple[tuple[float, Column], ...] = ()
    max_racks: dict[int, int] = field(default_factory=dict)
    failure: str = ""
