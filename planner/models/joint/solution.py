"""What the joint optimum returns: the plan's choices, its value and bounds, and the counts of its proof."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from planner.models.joint.space import MICRO_BATCHES, MOST_CONTEXT_RACKS
from planner.models.joint.split import Column
from planner.models.joint.templates.declared import TEMPLATE_OUTSIDE, TEMPLATE_SPACE
from planner.models.joint.world import Plan


class JointStatus(StrEnum):
    """What is known of a joint optimum."""

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
    days: float | None
    lower_bound: float | None
    fabric_free_bound: float | None
    plan: Plan | None
    counts: dict[str, int] = field(default_factory=dict)
    space: str = ""
    outside: str = ""
    stopped: Literal["proved", "limit", "interrupted"] = "proved"
    excluded: tuple[tuple[float, Column], ...] = ()
    max_racks: dict[int, int] = field(default_factory=dict)
    failure: str = ""


SPACE = (
    "TP inside a rack; CP of any degree inside a rack, and whole racks of TP groups over up to "
    f"{MOST_CONTEXT_RACKS} racks (micro-batches of one sequence); experts shared evenly; "
    "every pipeline, interleaved in chunks as equal as can be; "
    f"micro-batches of 1 to {MICRO_BATCHES[-1]} sequences; ZeRO 0 to 3; stages packed in racks; "
    "every count of replicas and micro-batches; any layers and recomputed layers by stage; "
    "whole blocks of racks at any sites; every number of stripes; "
    f"{TEMPLATE_SPACE}; "
    "one width of fibre between every two sites, its routes and protection designed where the instance asks for it"
)
OUTSIDE = (
    "failures and spare racks; NIC sharing beyond CP and pipeline sends; TP over racks; blocks that share racks; "
    f"several columns at once; {TEMPLATE_OUTSIDE}"
)
