"""Explain a split over sites, or why there is none: the largest load of each node, relaxations, prices, near-ties."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from planner.instance.base import Frozen
from planner.instance.instance import Instance
from planner.models import GradientExchange, Options, SitesRequest
from planner.physics.site import cost
from planner.plan.certificate import Conflict
from planner.plan.plan import Plan
from planner.planning.finish_date import FINISH_DATE, start_months
from planner.solvers.signals import Deadline
from planner.units import money

if TYPE_CHECKING:
    from planner.models.sites.solve import Forced

CENT = 0.01  # dollars: less is rounding


class NodeLoad(Frozen):
    """The largest load that one node could carry alone under the rules of the grid."""

    node: str
    racks: int
    mw: float
    stopped_by: tuple[str, ...] = Field(description="Rules that exclude one module more.")
    missing_mw: float | None = Field(None, description="What it lacks of the load asked for, if any is.")


class Rejected(Frozen):
    """A candidate that the plan does not open, and why: what it could carry of the load, and what opening it costs."""

    node: str
    mw: float = Field(description="The largest load that it could carry alone.")
    missing_mw: float = Field(description="What it lacks of the load of the whole plan.")
    stopped_by: tuple[str, ...] = Field(description="Rules that exclude one module more there.")
    dearer_usd_per_year: float | None = Field(
        None,
        description="Of the cheapest split of the same racks that opens it; null: none, or the time ended before.",
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


def explained_infeasible(instance: Instance, conflict: Conflict, options: Options) -> SitesExplanation:
    """Explain why there is no split. OutOfTimeError: a signal ends it."""
    from planner.models.sites import solve as sites_explain

    request = SitesRequest()
    moved = sites_explain.relaxations(instance, request, conflict.rules, options)
    return SitesExplanation(
        asked_mw=_asked_mw(instance, request),
        nodes=_nodes(instance, request, options),
        relaxations=tuple(Relaxation.model_validate(x, from_attributes=True) for x in moved),
    )


def explained_plan(
    plan: Plan, options: Options, *, near: int, within: float, deadline: Deadline
) -> SitesExplanation | None:
    """Explain the split of a plan; None without one. What a rejected site would cost is asked while there is time."""
    split, layout = plan.sites, plan.layout
    if split is None or layout is None:
        return None
    from planner.models.sites import solve as sites_explain

    m, exchange = layout.metrics, None
    if len(split.sites) > 1 and plan.instance.wan is not None:
        exchange = GradientExchange(stage_bytes=m.gradient_bytes_per_stage, window_seconds=m.wan_window_seconds)
    request = SitesRequest(racks=sum(s.racks for s in split.sites), exchange=exchange)
    prices = sites_explain.shadow_prices(plan.instance, request, split)
    # A budget already spent on fabric cannot be asked again of the split alone: the total is given, so it is left out.
    free = plan.instance.model_copy(update={"limits": plan.instance.limits.model_copy(update={"budget_usd": None})})
    others = sites_explain.near_best(free, request, options, count=near, within=within) if near else []
    nodes = _nodes(plan.instance, request, options)
    asked = sum(s.facility_mw for s in split.sites)
    closed = [x for x in nodes if x.node not in {s.id for s in split.sites}]
    known = {
        x.node: x for x in sites_explain.forced_open(free, request, options, [x.node for x in closed if x.mw], deadline)
    }
    late = _ready_after_the_start(plan)
    return SitesExplanation(
        nodes=nodes,
        rejected=tuple(_rejected(x, asked, known.get(x.node), late.get(x.node)) for x in closed),
        prices=tuple(LimitPrice.model_validate(p, from_attributes=True) for p in prices),
        near=tuple(
            Near(racks_by_site={s.id: s.racks for s in x.sites}, usd_per_year=x.certificate.objective or 0.0)
            for x in others
        ),
    )


def _ready_after_the_start(plan: Plan) -> dict[str, float]:
    """Return the months after which sites are ready that come after the start of a plan of the soonest end."""
    grid, goal = plan.instance.grid, plan.instance.objective.minimize
    if grid is None or goal != FINISH_DATE:
        return {}
    start = start_months(plan.instance, plan.sites)
    return {node.id: node.ready_months for node in grid.nodes if node.site and node.ready_months > start}


def _rejected(x: NodeLoad, asked_mw: float, forced: "Forced | None", ready_months: float | None) -> Rejected:
    """Return why a candidate is closed."""
    return Rejected(
        node=x.node,
        mw=x.mw,
        missing_mw=max(asked_mw - x.mw, 0.0),
        stopped_by=x.stopped_by,
        dearer_usd_per_year=None if forced is None else forced.dearer_usd_per_year,
        no_split=forced is not None and forced.dearer_usd_per_year is None,
        ready_months=ready_months,
    )


def _asked_mw(instance: Instance, request: SitesRequest) -> float | None:
    """Return the load of the racks asked for; None where their number is free."""
    racks = request.racks or instance.pins.get("sites.racks")
    return None if racks is None else cost.facility_mw(instance.hardware, racks)


def _nodes(instance: Instance, request: SitesRequest, options: Options) -> tuple[NodeLoad, ...]:
    """Return the largest load that each node could carry alone."""
    from planner.models.sites import solve as sites_explain

    asked = _asked_mw(instance, request)
    return tuple(
        NodeLoad(
            node=x.node,
            racks=x.racks,
            mw=x.mw,
            stopped_by=x.stopped_by,
            missing_mw=None if asked is None else max(asked - x.mw, 0.0),
        )
        for x in sites_explain.largest_loads(instance, request, options)
    )


def summary(e: SitesExplanation, rows: int = 12) -> Iterator[str]:
    """Return the lines of the explanation, the `rows` best nodes of it."""
    if e.asked_mw is not None and e.nodes:
        best = e.nodes[0]
        short = f"is closest with {best.mw:,.6g} MW, {best.missing_mw or 0.0:,.6g} MW short"
        carries = short if best.missing_mw else "carries it"
        limited = f"; limited by {', '.join(best.stopped_by)}" if best.stopped_by else ""
        yield f"ONE SITE   {e.asked_mw:,.6g} MW needed: {best.node} {carries}{limited}"
    for moved in e.relaxations:
        others = ", ".join(f"{name} {amount:+,.6g}" for name, amount in moved.rows.items() if name != moved.rule)
        unproven = "" if moved.proved else ", not proven the smallest"
        yield f"WOULD DO   {moved.rule}: {moved.amount:,.6g} {moved.unit}{f' ({others})' if others else ''}{unproven}"
    if e.nodes:
        yield "NODES      the largest load that each candidate could carry alone, and what limits it"
        yield from (f"  {x.node:24}{x.mw:12,.1f} MW  {', '.join(x.stopped_by) or 'nothing'}" for x in e.nodes[:rows])
        if len(e.nodes) > rows:
            yield f"  … {len(e.nodes) - rows} more with less"
    if e.rejected:
        yield "REJECTED   candidates that the plan does not use, and why"
        yield from (f"  {x.node:24}{_why_closed(x)}" for x in e.rejected[:rows])
        if len(e.rejected) > rows:
            yield f"  … {len(e.rejected) - rows} more that carry less"
    if e.prices:
        yield "WORTH      one more unit of each limit, sites and lines as they are"
        for p in e.prices[:rows]:
            limit = f" of {meaning(p.rule)}" if meaning(p.rule) else ""
            yield f"  {p.rule:34}{p.usd_per_year:14,.2f} USD a year per {p.unit}{limit}"
    if len(e.near) > 1:
        yield "NEAR-TIES  the best splits over other sets of sites"
        best_usd = e.near[0].usd_per_year
        for x in e.near:
            racks = ", ".join(f"{s} {n:,}" for s, n in x.racks_by_site.items())
            yield f"  {racks:60} {x.usd_per_year / 1e6:10,.2f} M$ a year ({x.usd_per_year / best_usd - 1:+.2%})"


def _why_closed(x: Rejected) -> str:
    """Return why a site is closed in a sentence: when it is ready, MW and rule, then what a split with it costs."""
    rules = ", ".join(x.stopped_by) or "nothing"
    late = "" if x.ready_months is None else f"ready in month {x.ready_months:g}, after the plan starts; "
    if not x.mw:
        return f"{late}carries no module: {rules}"
    all_of_it = f"{late}carries all of the load alone" if not x.missing_mw else ""
    carries = all_of_it or f"{late}carries {x.mw:,.1f} MW alone, {x.missing_mw:,.1f} MW short: {rules}"
    if x.no_split:
        return f"{carries}; no split of these racks opens it"
    if x.dearer_usd_per_year is None:
        return carries
    if x.dearer_usd_per_year < CENT:
        return f"{carries}; a split with it costs no more"
    return f"{carries}; a split with it costs {money(x.dearer_usd_per_year)} a year more"


def meaning(rule: str) -> str:
    """Describe the limit of a row of the power flow in the user's terms; empty for names that need no description."""
    name, _, year = rule.partition("] in ")
    family, _, rest = name.removesuffix("]").partition("[")
    when = f", in {year}" if year else ""
    what, _, lost = rest.partition(",")
    if family == "rating":
        return f"the rating of {what}{when}"
    if family != "security":
        return ""
    unit = lost.startswith("unit ")
    out = f"after the loss of {'the largest unit' if unit else 'a circuit'} of {lost.removeprefix('unit ')}{when}"
    if not lost or what.startswith("reserve of "):
        return f"what {what.removeprefix('reserve of ')} can spare above its reserve{when}"
    if what.startswith("fed by "):
        return f"what {what.removeprefix('fed by ')} can spare {out}"
    return f"plants in the part that is left dark {out}" if what == "dark" else f"the rating of {what} {out}"
