"""What an explanation says of the sites: the largest load of each candidate, and what would let a split exist."""

from pydantic import Field

from planner.instance.base import Frozen


class NodeLoad(Frozen):
    """The largest load that one candidate could carry alone under the rules of the grid, and what stops it there."""

    node: str
    racks: int
    mw: float
    stopped_by: tuple[str, ...] = Field(description="Rules that exclude one module more, each without the rest.")
    opened: bool = Field(False, description="Whether the plan uses it.")
    missing_mw: float | None = Field(None, description="Of the plan's load, or the pinned racks', what it lacks.")
    ready_months: float | None = Field(
        None, description="From the decision, where the day of the plan's end is minimized and it starts before that."
    )


class Relaxation(Frozen):
    """A rule that, moved alone by the smallest amount, lets a split exist."""

    rule: str
    amount: float
    unit: str
    rows: dict[str, float] = Field({}, description="By how much each of its rows moves.")
    proved: bool
