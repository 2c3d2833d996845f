"""The placement of a training job on a cluster: its nodes in rank order, its groups, its figures and their proof."""

from typing import Literal

from pydantic import Field

from planner.instance.base_types import Frozen
from planner.plan.certificate import Certificate


class PlacedGroup(Frozen):
    """One all-reduce group of a placement on a cluster, with its nodes in ring order."""

    name: str = Field(description="Of the group.")
    nodes: tuple[str, ...] = Field(description="In rank order.")
    leaves: tuple[str, ...] = Field(description="Its leaf switches in ring order; it is split over several.")


class Figure(Frozen):
    """One figure of a placement on a cluster: a level of its objective, minimized after those before it."""

    name: str = Field(description="What is counted.")
    value: int = Field(description="Of this placement.")
    bound: int = Field(description="No placement that is as good in the levels before is better than this.")
    analytic_bound: int = Field(description="The same, without a solver.")


class Placement(Frozen):
    """The placement of a training job on a cluster: the nodes that its ranks run on."""

    job: str = Field(description="Its name.")
    nodes: tuple[str, ...] = Field(description="In rank order; empty where the job does not fit.")
    order: Literal["any", "name"] = Field(
        "any", description="Whether ranks may have any order of nodes, or follow the names as a launcher sorts them."
    )
    groups: tuple[PlacedGroup, ...] = Field(description="All-reduce groups in the job's order.")
    groups_split: int = Field(description="Groups over several leaves.")
    lower_bound_split: int = Field(description="No placement on these free nodes splits fewer groups.")
    extra_pieces: int = Field(description="Leaves of the groups beyond one each.")
    groups_cross_pod: int = Field(description="Groups over several pods.")
    figures: tuple[Figure, ...] = Field(description="The levels of the objective in their order.")
    gpus_per_node: int | None = Field(None, description="GPUs (ranks) of a node; null: not stated.")
    segment_nodes: int = Field(1, description="Consecutive nodes that stay in one block (or leaf).")
    step_seconds: float | None = Field(None, description="Predicted step, where that is the objective.")
    step_seconds_bound: float | None = Field(None, description="No placement's step is shorter.")
    stopped: str = Field("proved", description="Why the search ended: proved, limit or interrupted.")
    reason: str = Field("", description="Why the job does not fit, in numbers.")
    certificate: Certificate = Field(description="What is proven of it.")
