"""A cluster's network as schedulers describe it, a job's placement on it, and the results of changes."""

from typing import Literal

from pydantic import Field

from planner.instance.base import Frozen
from planner.plan.certificate import Certificate


class Switch(Frozen):
    """One switch of a tree; a leaf has nodes, any other has the switches whose parent it is."""

    name: str = Field(description="By which plans and pins name it.")
    parent: str | None = Field(None, description="The switch above; null for a root.")
    nodes: tuple[str, ...] = Field((), description="Nodes of a leaf, in the order of the file.")


class Block(Frozen):
    """Nodes that share a scale-up domain, or a base block of a scheduler that places by blocks."""

    name: str
    nodes: tuple[str, ...]


class Topology(Frozen):
    """Where every node stands; a node is under one leaf at most, and in one block at most."""

    kind: Literal["tree", "block"] = Field("tree", description="What the scheduler places by; trees may have blocks.")
    switches: tuple[Switch, ...] = ()
    blocks: tuple[Block, ...] = ()
    block_sizes: tuple[int, ...] = Field((), description="Sizes of aggregated blocks in nodes, the base block first.")


class PlacedGroup(Frozen):
    """One all-reduce group with its nodes in ring order."""

    name: str = Field(description="Of the group.")
    nodes: tuple[str, ...] = Field(description="In rank order.")
    leaves: tuple[str, ...] = Field(description="Its leaf switches in ring order; it is split over several.")


class Figure(Frozen):
    """One level of the objective, minimized after those before it."""

    name: str = Field(description="What is counted.")
    value: int = Field(description="Of this placement.")
    bound: int = Field(description="No placement that is as good in the levels before is better than this.")
    analytic_bound: int = Field(description="The same, without a solver.")


class Placement(Frozen):
    """Where a job's ranks run."""

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


class Move(Frozen):
    """One rank's node before and after; null where there is none."""

    job: str
    rank: int = Field(description="Node rank in the placement after the move, or before it where the rank is gone.")
    old: str | None
    new: str | None


class Mended(Frozen):
    """A running job after a change, and the moves that lead there."""

    placement: Placement
    moves: tuple[Move, ...] = Field(description="Ranks whose node changed, renumbered ones left out.")


class Running(Frozen):
    """A job that runs, and what stopping or moving it costs."""

    placement: Placement
    priority: int = Field(1, ge=0, description="Cost of stopping one node of it.")


class Preemption(Frozen):
    """Jobs to stop so that another fits, and where it then runs."""

    stop: tuple[str, ...]
    cost: int | None = Field(description="Sum of priority times nodes; null where not even stopping all is enough.")
    placement: Placement
    certificate: Certificate


class Defragmentation(Frozen):
    """Moves that free whole leaves, in an order in which each finds its node free."""

    leaves: tuple[str, ...]
    moves: tuple[Move, ...]
    certificate: Certificate


class Queued(Frozen):
    """Jobs placed together, and those that must wait."""

    placements: tuple[Placement, ...]
    waiting: tuple[str, ...]
    reasons: tuple[str, ...] = Field((), description="Why each of them waits, in numbers.")
    groups_split: int
    certificate: Certificate = Field(description="Of all jobs together, as if they were one.")
