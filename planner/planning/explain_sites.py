"""Explain the sites of a plan, or why there are none: what each candidate carries alone, what lets a split exist."""

from collections.abc import Collection, Iterator, Sequence

from planner.instance.instance import Instance
from planner.models import Options
from planner.models.sites.explanation import NodeLoad, Relaxation
from planner.physics.site import cost
from planner.plan.plan_sections import SitesPlan
from planner.planning.finish_date import FINISH_DATE, start_months
from planner.units import money, power

ROWS = 12  # candidates that a table shows


def relaxations(instance: Instance, rules: Collection[str], options: Options) -> tuple[Relaxation, ...]:
    """Return what would let sites hold a plan that a conflict of their rules excludes."""
    from planner.models.sites import solve as sites

    return tuple(sites.relaxations(instance, rules, options))


def nodes_of(instance: Instance, split: SitesPlan | None, options: Options) -> tuple[NodeLoad, ...]:
    """Return what each candidate could carry alone of a plan's load, or of the pinned racks, the most first."""
    from planner.models.sites import solve as sites

    late, grid = dict[str, float](), instance.grid  # months after which sites are ready that miss the start
    racks, opened = instance.pins.get("sites.racks"), set[str]()
    asked = None if racks is None else cost.facility_mw(instance.hardware, racks)
    if split is not None and grid is not None:
        asked, opened = sum(site.facility_mw for site in split.sites), {site.id for site in split.sites}
        if instance.objective.minimize == FINISH_DATE:
            start = start_months(instance, split)
            late = {node.id: node.ready_months for node in grid.nodes if node.site and node.ready_months > start}
    return tuple(
        x.replaced(
            opened=x.node in opened,
            missing_mw=None if asked is None else max(asked - x.mw, 0.0),
            ready_months=late.get(x.node),
        )
        for x in sites.largest_loads(instance, options)
    )


def summary(nodes: Sequence[NodeLoad], moved: Sequence[Relaxation]) -> Iterator[str]:
    """Return the lines of what would let a split exist, and of the candidates: the best, and those of the plan."""
    for move in moved:
        unit = move.unit.removesuffix("s") if move.amount == 1 else move.unit
        others = ", ".join(f"{name} {amount:+,.6g}" for name, amount in move.rows.items() if name != move.rule)
        unproven = "" if move.proved else ", not proven the smallest"
        amount = money(move.amount) if unit == "USD" else f"{move.amount:,.6g} {unit}"
        # Of a budget the split knows racks and sites: the fabric, and racks that the layout needs, may take more.
        more = "" if unit.endswith("fewer") else " more, for racks and sites alone" if unit == "USD" else " more"
        yield f"WOULD DO   {move.rule}: {amount}{more}{f' ({others})' if others else ''}{unproven}"
    if nodes:
        yield "NODES      the largest load that each candidate could carry alone, and what stops it there"
    shown = [x for i, x in enumerate(nodes) if i < ROWS or x.opened]
    for x in shown:
        lacks = f"{power(x.missing_mw)} short" if x.missing_mw else "" if x.missing_mw is None else "all of the load"
        of = ", ".join(part for part in ("open" if x.opened else "", lacks) if part)
        late = "" if x.ready_months is None else f"; ready in month {x.ready_months:g}, after the plan starts"
        carried = power(x.mw) + (f" ({of})" if of else "")
        yield f"  {x.node:24}{carried:32}  {', '.join(x.stopped_by) or 'nothing'}{late}"
    if len(nodes) > len(shown):
        yield f"  … {len(nodes) - len(shown)} more, none with more"
