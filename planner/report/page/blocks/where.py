"""Where the racks stand and what joins them, which places were left out and why, and years that may come."""

from collections.abc import Iterator, Mapping, Sequence

from planner.instance.grid import Grid, PowerNode
from planner.physics.site import power
from planner.physics.site.grid import usable_interconnect_mw
from planner.plan.plan import Plan
from planner.report.page.drawings.bars import Limit, stacked
from planner.report.page.drawings.site_map import outline_caption, plan_map
from planner.report.page.parts import Block, Picture, Table, colours
from planner.units import amount, counted

MOST = "what each place could hold at most with all lines built"
NAMED, LISTED = 8, 6  # rows of the table, and names of a row
SCENARIOS = (
    "Power that runs in each scenario; the dashed line is what the sites have. "
    "Energy includes curtailed load at its price."
)
# Why no further place is opened, by what ends the plan.
ENDS = {
    "budget": "not needed: the budget is spent at the open sites",
    "layout": "not needed: more racks would not train faster",
    "owned_racks": "not needed: the racks given stand at the open sites",
    "grid": "left out by the best split that was found",
}


def where(plan: Plan) -> Iterator[Block]:
    """Show open sites and other places on a map, what each place could hold, and why it is not open."""
    grid = plan.instance.grid
    if grid is None or not grid.nodes:
        return
    svg, in_us = plan_map(plan, grid)
    lines = ", spans of fibre, dashed where lit for cuts alone" if plan.wan else ", power lines" if grid.lines else ""
    links = ", links between sites (dashed)" if plan.sites and plan.sites.links and not plan.wan else ""
    caption = f"Sites (area by power), other places where one may stand (rings){lines}{links}. {outline_caption(in_us)}"
    alike: dict[tuple[str, str, str], list[str]] = {}
    for _, name, *rest in sorted(_candidates(plan, grid), key=lambda row: -row[0]):
        alike.setdefault((rest[0], rest[1], rest[2]), []).append(name)
    head = ("places", "MW at most", "limit", "why it is not open")
    width = 4 if plan.sites else 3
    rows = [(_listed(names), *rest)[:width] for rest, names in alike.items()]
    what = f"Places that are not open, and {MOST} with the sites as planned" if plan.sites else MOST.capitalize()
    what += f"; {len(rows) - NAMED} more rows are left out" if len(rows) > NAMED else ""
    table = [Table(what, head[:width], rows[:NAMED], head[2:width])] if rows else []
    yield Block("Where", (Picture(svg, caption),), table)


def _listed(names: Sequence[str]) -> str:
    """Write the names of places, the first of many."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _candidates(plan: Plan, grid: Grid) -> Iterator[tuple[float, str, str, str, str]]:
    """Yield the places without a site: the most MW it could hold, its name, these as text, the limit, and why."""
    drawn: dict[str, float] = {}
    for s in plan.sites.sites if plan.sites else ():
        drawn[s.balancing_authority] = drawn.get(s.balancing_authority, 0.0) + s.facility_mw
    taken = {s.id for s in plan.sites.sites} if plan.sites else set()
    for n in grid.nodes:
        if n.site and n.id not in taken:
            limits = dict(_limits(plan, grid, n, drawn))
            name = min(limits, key=lambda k: limits[k], default="")
            most = limits.get(name, float("inf"))
            yield most, n.id, amount(most) if limits else "not limited", name or "-", _why(plan, grid, n, most)


def _limits(plan: Plan, grid: Grid, n: PowerNode, drawn: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the MW that each hard rule lets a place hold with the plan's sites open and all its lines built."""
    rule, soft, h = grid.rules.interconnect, grid.rules.soft, plan.instance.hardware
    for area in grid.balancing_authorities if grid.rules.headroom and "headroom" not in soft else ():
        if area.id == n.balancing_authority:
            yield f"headroom of {area.id}", max(0.0, area.headroom_mw - drawn.get(area.id, 0.0))
    if rule.enabled and rule.share and rule.reading != "import_share" and "interconnect" not in soft:
        built = {x.id: x.max_circuits for x in grid.new_lines}
        usable = usable_interconnect_mw(grid, n, built, n.upgrade.max_steps if n.upgrade else 0)
        if usable is not None:
            yield "interconnect", usable / rule.share
    if n.area_m2 is not None and h.cooling_kw_per_m2 is not None and "area" not in soft:
        yield "land for cooling", n.area_m2 * h.cooling_kw_per_m2 / 1e3


def _why(plan: Plan, grid: Grid, n: PowerNode, most: float) -> str:
    """Say why a place has no site, as far as plan and question tell."""
    rules, h, within = grid.rules, plan.instance.hardware, grid.rules.ready_within_months
    if within is not None and n.ready_months > within:
        return f"ready in {n.ready_months:g} months, asked for within {within:g}"
    least = None if isinstance(h.rack, str) else power.facility_mw(h, rules.min_site_modules * h.racks_per_module)
    if least is not None and most < least * (1 - 1e-9):
        return f"too little: a site takes {amount(least)} MW or more"
    if rules.max_sites is not None and plan.sites and len(plan.sites.sites) >= rules.max_sites:
        return f"{counted(rules.max_sites, 'site')} at most"
    return ENDS.get(plan.objective.limited_by or "", ENDS["grid"])


def scenarios(plan: Plan) -> Iterator[Block]:
    """Show what each site runs in each year that may come."""
    s = plan.sites
    if s is None or not s.scenarios:
        return
    total, ids = sum(x.facility_mw for x in s.sites), [x.id for x in s.sites]
    bars = [
        (name, {x: r.running_mw.get(x, 0.0) for x in ids}, Limit(total, "capacity"))
        for name, r in sorted(s.scenarios.items())
    ]
    svg = stacked("Power that runs in each scenario, by site", bars, colours(ids), lambda v: f"{amount(v)} MW")
    yield Block("Years that may come", (Picture(svg, SCENARIOS),))
