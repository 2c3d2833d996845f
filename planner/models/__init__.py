"""One formulation per decision: data in, decision and certificate out; the requests that one makes of the next.

A request is explicit, typed, and all that the next decision knows of those before it.
"""

from dataclasses import dataclass

from pydantic import Field

from planner.instance.base_types import Frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How hard to search, and on which solver; None is the solver's default, and each formulation's usual solver."""

    time_limit: float | None = None
    gap: float | None = None
    seed: int = 0
    threads: int | None = None
    solver: str | None = None  # one of planner.solvers.registry.SOLVERS, for formulations that several can solve


@dataclass(frozen=True, slots=True, kw_only=True)
class SitesRequest:
    """What a question asks of the sites beyond the instance."""

    fabric_usd_per_rack: float = 0.0
    refused: frozenset[frozenset[str]] = frozenset()  # sets of sites that may not be open together and alone
    opened: frozenset[str] = frozenset()  # sites that must be open


@dataclass(frozen=True, slots=True, kw_only=True)
class WanRequest:
    """What the wide area must join: open sites, and those that train, with their exchange of gradients per step.

    One stage is exchanged at a time, each within the window that a step assumes: the backward pass of the next stage.
    """

    sites: tuple[str, ...]
    exchanging: tuple[str, ...]
    stage_bytes: float
    window_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricRequest:
    """What one site's fabric must carry so that the layout's traffic stays hidden.

    Ideal times are at the NIC's rate; a slowdown is allowed up to the window, and up to the transport's own slowdown
    where the ideal alone fills the window. Groups of `exchange_racks` racks exchange tokens with their experts all to
    all: nothing hides that, so the transport's own slowdown is all that it may suffer. Wavelengths of `wan_gbps` each
    way end at its WAN gateway, to which the racks of one stage at a time send gradients at `exchange_gbps`, and back.
    `rack_gpus` of each rack are cabled, where it is not all of them.
    """

    racks: int
    group_racks: int
    groups: int
    pipeline_send_seconds: float
    pipeline_send_window_seconds: float
    allreduce_seconds: float
    allreduce_window_seconds: float
    exchange_racks: int = 1
    wan_gbps: float = 0.0
    exchange_gbps: float = 0.0
    rack_gpus: int | None = None


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


# Axes in which fabrics are compared, all minimized, and the figure of merit of each.
FABRIC_AXES = {
    "cost": "cost_usd",
    "time": "pipeline_send_slowdown",
    "power": "power_mw",
    "leaf": "racks_outside_leaf",
    "splits": "unavoidable_splits",
}
