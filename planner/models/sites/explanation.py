"""What an explanation says of the sites: the largest load of each node, what would do, prices, and other splits."""

from pydantic import Field

from planner.instance.base import Frozen


class NodeLoad(Frozen):
    """The largest load that one node could carry alone under the rules of the grid."""

    node: str
    racks: int
    mw: float
    stopped_by: tuple[str, ...] = Field(
        description="Rules that exclude one module more, each of them without the rest."
    )
    missing_mw: float | None = Field(None, description="What it lacks of the load asked for, if any is.")


class Rejected(NodeLoad):
    """A candidate that the plan does not open, and why: what it could carry of the load, and what opening it costs."""

    dearer_usd_per_year: float | None = Field(
        None, description="Of the cheapest split of the same racks that opens it; null: none, or the time ended before."
    )
    no_split: bool = Field(False, description="It is proven that no split of the same racks opens it.")
    ready_months: float | None = Field(
        None, description="From the decision, where the day of the plan's end is minimized and it starts before that."
    )


class Relaxation(Frozen):
    """A rule that, moved alone by the smallest amount, lets a split exist."""

    rule: str
    amount: float
    unit: str
    rows: dict[str, float] = Field(description="By how much each of its rows moves.")
    proved: bool


class LimitPrice(Frozen):
    """What one more unit of a limit saves per year, for small changes, open sites and lines as they are."""

    rule: str
    unit: str
    usd_per_year: float


class Near(Frozen):
    """Another set of sites that is nearly as good."""

    racks_by_site: dict[str, int]
    usd_per_year: float


class SitesExplanation(Frozen):
    """What each node could carry, what would do, what limits are worth, and near-best splits."""

    asked_mw: float | None = Field(None, description="Load asked for; null where it is free.")
    nodes: tuple[NodeLoad, ...] = ()
    relaxations: tuple[Relaxation, ...] = Field((), description="For an infeasible split.")
    prices: tuple[LimitPrice, ...] = Field((), description="For a plan.")
    rejected: tuple[Rejected, ...] = Field((), description="Candidates that the plan leaves closed, and why.")
    near: tuple[Near, ...] = Field((), description="The best splits over different sets of sites, the plan's first.")
