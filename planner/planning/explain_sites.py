"""Explain a split over sites, or why there is none: the largest load of each node, relaxations, prices, near-ties."""

from collections.abc import Iterator

from planner.instance.instance import Instance
from planner.models import GradientExchange, Options, SitesRequest
from planner.models.sites.explanation import Rejected, SitesExplanation
from planner.physics.site import cost
from planner.physics.site.wan import assumed_window_seconds
from planner.plan.certificate import Conflict
from planner.plan.plan import Plan
from planner.planning.finish_date import FINISH_DATE, start_months
from planner.solvers.signals import Deadline
from planner.units import money, power

CENT = 0.01  # dollars: less is rounding


def explained_infeasible(instance: Instance, conflict: Conflict, options: Options) -> SitesExplanation:
    """Explain why there is no split. OutOfTimeError: a signal ends it."""
    from planner.models.sites import solve as sites

    request, racks = SitesRequest(), instance.pins.get("sites.racks")
    return SitesExplanation(
        asked_mw=None if racks is None else cost.facility_mw(instance.hardware, racks),
        nodes=tuple(sites.largest_loads(instance, request, options)),
        relaxations=tuple(sites.relaxations(instance, request, conflict.rules, options)),
    )


def explained_plan(
    plan: Plan, options: Options, *, near: int, within: float, deadline: Deadline
) -> SitesExplanation | None:
    """Explain the split of a plan; None without one. What a rejected site would cost is asked while there is time."""
    split, layout = plan.sites, plan.layout
    if split is None or layout is None:
        return None
    from planner.models.sites import solve as sites

    m, assumed, links, exchange = layout.metrics, layout.assumptions, plan.instance.wan, None
    if len(split.sites) > 1 and links is not None:
        # As long as the plan's own exchange takes, hidden or not, so that its sites are one of the splits.
        size, fibre = m.gradient_bytes_per_stage, (assumed.wan_gbps, assumed.wan_rtt_ms)
        window = assumed_window_seconds(links, size, len(split.sites), m.wan_window_seconds, *fibre)
        exchange = GradientExchange(stage_bytes=size, window_seconds=window)
    request = SitesRequest(racks=sum(s.racks for s in split.sites), exchange=exchange)
    # A budget already spent on fabric cannot be asked again of the split alone: the total is given, so it is left out.
    free = plan.instance.replaced(limits__budget_usd=None)
    nodes = tuple(sites.largest_loads(plan.instance, request, options))
    closed = [x for x in nodes if x.node not in {s.id for s in split.sites}]
    asked, able = sum(s.facility_mw for s in split.sites), [x.node for x in closed if x.mw]
    dearer = dict(sites.forced_open(free, request, options, able, deadline))
    late, grid = dict[str, float](), plan.instance.grid  # months after which sites are ready that miss the start
    if grid is not None and plan.instance.objective.minimize == FINISH_DATE:
        start = start_months(plan.instance, plan.sites)
        late = {node.id: node.ready_months for node in grid.nodes if node.site and node.ready_months > start}
    return SitesExplanation(
        nodes=nodes,
        rejected=tuple(
            Rejected(
                **x.model_dump(exclude={"missing_mw"}),
                missing_mw=max(asked - x.mw, 0.0),
                dearer_usd_per_year=dearer.get(x.node),
                no_split=x.node in dearer and dearer[x.node] is None,
                ready_months=late.get(x.node),
            )
            for x in closed
        ),
        prices=tuple(sites.shadow_prices(plan.instance, request, split)),
        near=tuple(sites.near_best(free, request, options, count=near, within=within) if near else ()),
    )


def summary(e: SitesExplanation, rows: int = 12) -> Iterator[str]:
    """Return the lines of the explanation, the `rows` best nodes of it."""
    if e.asked_mw is not None and e.nodes:
        best = e.nodes[0]
        short = f"is closest with {power(best.mw)}, {power(best.missing_mw or 0.0)} short"
        carries = short if best.missing_mw else "carries it"
        limited = f"; limited by {', '.join(best.stopped_by)}" if best.stopped_by else ""
        yield f"ONE SITE   {power(e.asked_mw)} needed: {best.node} {carries}{limited}"
    for moved in e.relaxations:
        unit = moved.unit.removesuffix("s") if moved.amount == 1 else moved.unit
        others = ", ".join(f"{name} {amount:+,.6g}" for name, amount in moved.rows.items() if name != moved.rule)
        unproven = "" if moved.proved else ", not proven the smallest"
        amount = money(moved.amount) if unit == "USD" else f"{moved.amount:,.6g} {unit}"
        # Of a budget the split knows racks and sites: the fabric, and racks that the layout needs, may take more.
        more = "" if unit.endswith("fewer") else " more, for racks and sites alone" if unit == "USD" else " more"
        yield f"WOULD DO   {moved.rule}: {amount}{more}{f' ({others})' if others else ''}{unproven}"
    if e.nodes:
        yield "NODES      the largest load that each candidate could carry alone, and what limits it"
        yield from (f"  {x.node:24}{power(x.mw):>15}  {', '.join(x.stopped_by) or 'nothing'}" for x in e.nodes[:rows])
        if len(e.nodes) > rows:
            yield f"  … {len(e.nodes) - rows} more, none with more"
    if e.rejected:
        yield "REJECTED   candidates that the plan does not use, and why"
        yield from (f"  {x.node:24}{_why_closed(x)}" for x in e.rejected[:rows])
        if len(e.rejected) > rows:
            yield f"  … {len(e.rejected) - rows} more, none carries more"
    if e.prices:
        yield "WORTH      one more unit of each limit, sites and lines as they are"
        for p in e.prices[:rows]:
            limit = f" of {meaning(p.rule)}" if meaning(p.rule) else ""
            yield f"  {p.rule:34}{money(p.usd_per_year):>14} a year per {p.unit.removesuffix('s')}{limit}"
    if len(e.near) > 1:
        yield "NEAR-TIES  the best splits over other sets of sites"
        best_usd = e.near[0].usd_per_year
        for x in e.near:
            racks = ", ".join(f"{s} {n:,}" for s, n in x.racks_by_site.items())
            yield f"  {racks:60} {money(x.usd_per_year):>10} a year ({x.usd_per_year / best_usd - 1:+.2%})"


def _why_closed(x: Rejected) -> str:
    """Return why a site is closed in a sentence: when it is ready, MW and rule, then what a split with it costs."""
    rules = ", ".join(x.stopped_by) or "nothing"
    late = "" if x.ready_months is None else f"ready in month {x.ready_months:g}, after the plan starts; "
    if not x.mw:
        return f"{late}carries no module: {rules}"
    all_of_it = f"{late}carries all of the load alone" if not x.missing_mw else ""
    carries = all_of_it or f"{late}carries {power(x.mw)} alone, {power(x.missing_mw or 0.0)} short: {rules}"
    if x.no_split:
        return f"{carries}; no split of these racks opens it"
    if x.dearer_usd_per_year is None:
        return f"{carries}; the cost of a split with it was not found in time"
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
