"""One formulation per decision: data in, decision and certificate out; options of all, and requests of the sites."""

from dataclasses import dataclass

from pydantic import Field

from planner.instance.base_types import Frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options that every formulation takes: limits, seed, threads and solver of its search; None: the usual ones."""

    time_limit: float | None = None
    gap: float | None = None
    seed: int = 0
    threads: int | None = None
    solver: str | None = None  # one of planner.solvers.registry.SOLVERS, for formulations that several can solve


@dataclass(frozen=True, slots=True, kw_only=True)
class SitesRequest:
    """A request to the models of the site split by the joint optimum or an explanation, in addition to the instance."""

    fabric_usd_per_rack: float = 0.0
    refused: frozenset[frozenset[str]] = frozenset()  # sets of sites that may not be open together and alone
    opened: frozenset[str] = frozenset()  # sites that must be open


class NodeLoad(Frozen):
    """The largest load that a site split gives one candidate alone under the rules of the grid, and what stops it."""

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
