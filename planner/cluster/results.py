"""Results of changes on a cluster: moves of ranks, jobs to stop, jobs that wait."""

from pydantic import Field

from planner.cluster.placement import Placement
from planner.instance.base import Frozen
from planner.plan.certificate import Certificate


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
