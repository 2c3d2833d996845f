"""Sites of a plan, and the grid that they stand on, as blocks."""

from collections.abc import Iterator

from planner.plan.plan import Plan
from planner.plan.sites import SitesPlan
from planner.report.page.drawings.bars import Limit, colours, stacked
from planner.report.page.drawings.site_map import outline_caption, site_map
from planner.report.page.parts import Block, Picture, Row, Swatch, Table, figures_of
from planner.units import amount, money

SCENARIOS = (
    "Power that runs in each scenario; the dashed line is what the sites have. "
    "Energy counts what is left undone at its price."
)


def sites(plan: Plan) -> Iterator[Block]:
    """Show where the racks stand, what joins them and what is built."""
    s = plan.sites
    if s is None or not s.sites:
        return
    # Where the wide area is designed, its routes say more than the links that the split assumed.
    links = () if plan.wan else s.links
    svg, in_us = site_map(s, plan.instance.grid, links)
    joined = ", and links between sites (dashed)" if links else ""
    caption = f"Sites (area by power), the grid's nodes and lines{joined}. {outline_caption(in_us)}"
    tables = [_sites_table(s)]
    if links:
        head = ("link", "km", "round trip ms", "Gb/s needed", "wavelengths", "fibre pairs")
        rows = []
        for k in links:
            lit = (f"{k.wavelengths:,}", f"{k.fibre_pairs:,}")
            rows.append((f"{k.a} - {k.b}", f"{k.route_km:,.0f}", f"{k.rtt_ms:.1f}", amount(k.required_gbps), *lit))
        tables.append(Table("Links", head, rows))
    yield Block("Sites", (Picture(svg, caption),), (*tables, *_built(plan, s), *_excess(s)))


def _sites_table(s: SitesPlan) -> Table:
    rows: list[Row] = []
    for n, x in enumerate(s.sites):
        cell = figures_of(f"sites.sites.{n}", x)
        authority = f"{x.balancing_authority} ({x.interconnection})"
        interconnect = "-" if x.interconnect_mw is None else amount(x.interconnect_mw)
        cooling = "-" if x.cooling_m2 is None else f"{x.cooling_m2:,.0f}"
        chosen = (cell("racks"), cell("gpus"), cell("facility_mw", amount))
        rows.append((x.id, authority, *chosen, interconnect, cooling))
    head = ("site", "authority", "racks", "GPUs", "facility MW", "inter\xadconnect MW", "cooling m²")
    return Table("Sites", head, rows, ("authority",))


def _built(plan: Plan, s: SitesPlan) -> Iterator[Table]:
    """Show circuits and steps of interconnect that are bought, with what each step adds."""
    if s.new_lines:
        rows = [(x.line, figures_of(f"sites.new_lines.{n}", x)("circuits")) for n, x in enumerate(s.new_lines)]
        yield Table("Circuits built", ("corridor", "circuits"), rows)
    offered = {x.id: x.upgrade for x in plan.instance.grid.nodes if x.upgrade} if plan.instance.grid else {}
    bought: list[Row] = []
    for n, x in enumerate(s.upgrades):
        step = offered.get(x.node)
        more = (amount(step.step_mw * x.steps), money(step.capex_usd * x.steps)) if step else ("-", "-")
        bought.append((x.node, figures_of(f"sites.upgrades.{n}", x)("steps"), *more))
    if bought:
        yield Table("Interconnect bought", ("node", "steps", "MW more", "USD"), bought)


def _excess(s: SitesPlan) -> Iterator[Table]:
    """Show how far soft rules are broken; what that weighs is not billed."""
    rows: list[Row] = []
    for n, x in enumerate(s.excess):
        cell = figures_of(f"sites.excess.{n}", x)
        rows.append((x.rule, cell("amount", amount), x.unit, cell("usd_per_year", money)))
    if rows:
        caption = "Soft rules broken: what each weighs in the choice, and is not billed"
        yield Table(caption, ("rule", "by", "unit", "USD a year"), rows)


def scenarios(plan: Plan) -> Iterator[Block]:
    """Show what each site runs in each year that may come, and what that year's energy costs."""
    s = plan.sites
    if s is None or not s.scenarios:
        return
    total = sum(x.facility_mw for x in s.sites)
    ids = [x.id for x in s.sites]
    shades = colours(ids)
    bars = []
    rows: list[Row] = []
    for name, r in sorted(s.scenarios.items()):
        bars.append((name, {x: r.running_mw.get(x, 0.0) for x in ids}, Limit(total, "capacity")))
        running = figures_of(f"sites.scenarios.{name}.running_mw", r.running_mw)
        runs = [running(x, amount) if x in r.running_mw else "-" for x in ids]
        year = figures_of(f"sites.scenarios.{name}", r)("energy_usd_per_year", money)
        rows.append((name, *runs, amount(total - sum(r.running_mw.values())), year))
    head = ("scenario", *ids, "MW left off", "energy, USD a year")
    capacity = [(Swatch(x.id, shades[x.id]), amount(x.facility_mw)) for x in s.sites]
    tables = (Table("MW run in each scenario", head, rows), Table("Sites", ("site", "MW of capacity"), capacity))
    svg = stacked("Power that runs in each scenario, by site", bars, shades, lambda v: f"{amount(v)} MW")
    yield Block("Years that may come", (Picture(svg, SCENARIOS),), tables)


def grid(plan: Plan) -> Iterator[Block]:
    """Show what the grid offers, where there is no split over sites."""
    g = plan.instance.grid
    if g is None or plan.sites is not None:
        return
    rows: list[Row] = []
    for n, area in enumerate(g.balancing_authorities):
        nodes = [x for x in g.nodes if x.balancing_authority == area.id]
        headroom = figures_of(f"instance.grid.balancing_authorities.{n}", area)("headroom_mw", amount)
        offered = amount(sum(x.generation_mw for x in nodes))
        rows.append((area.id, area.interconnection, headroom, offered, f"{sum(x.site for x in nodes)}"))
    head = ("authority", "interconnection", "headroom MW", "generation to spare MW", "nodes for sites")
    yield Block("What the grid offers", (), (Table("By balancing authority", head, rows),))
