"""Sites of a plan, and the grid that they stand on, as blocks."""

from collections.abc import Iterator

from planner.plan.plan import Plan
from planner.plan.sites import SitesPlan
from planner.report.page.drawings.bars import Limit, colours, stacked
from planner.report.page.drawings.site_map import site_map
from planner.report.page.parts import Block, Cell, Picture, Swatch, Table, figure
from planner.report.plots.labels import amount, usd


def sites(plan: Plan) -> Iterator[Block]:
    """Show where the racks stand, what joins them and what is built."""
    s = plan.sites
    if s is None or not s.sites:
        return
    # Where the wide area is designed, its routes say more than the links that the split reckoned with.
    links = () if plan.wan else s.links
    svg, in_us = site_map(s, plan.instance.grid, links)
    told = f"Sites (area by power), the grid's nodes and lines{', and links between sites (dashed)' if links else ''}. "
    told += (
        "Albers equal-area; outline: Natural Earth."
        if in_us
        else "Places only: they lie beyond the outline that this page has."
    )
    tables = [_sites_table(s)]
    if links:
        rows = tuple(
            (
                f"{k.a} - {k.b}",
                f"{k.route_km:,.0f}",
                f"{k.rtt_ms:.1f}",
                amount(k.required_gbps),
                f"{k.wavelengths:,}",
                f"{k.fibre_pairs:,}",
            )
            for k in links
        )
        tables.append(
            Table("Links", ("link", "km", "round trip ms", "Gb/s needed", "wavelengths", "fibre pairs"), rows)
        )
    yield Block("Sites", (Picture(svg, told),), (*tables, *_built(plan, s), *_excess(s)))


def _sites_table(s: SitesPlan) -> Table:
    rows = tuple(
        (
            x.id,
            f"{x.balancing_authority} ({x.interconnection})",
            figure(f"sites.sites.{n}.racks", x.racks, f"{x.racks:,}"),
            figure(f"sites.sites.{n}.gpus", x.gpus, f"{x.gpus:,}"),
            figure(f"sites.sites.{n}.facility_mw", x.facility_mw, amount(x.facility_mw)),
            "-" if x.interconnect_mw is None else amount(x.interconnect_mw),
            "-" if x.cooling_m2 is None else f"{x.cooling_m2:,.0f}",
        )
        for n, x in enumerate(s.sites)
    )
    head = ("site", "authority", "racks", "GPUs", "facility MW", "inter\xadconnect MW", "cooling m²")
    return Table("Sites", head, rows, ("authority",))


def _built(plan: Plan, s: SitesPlan) -> Iterator[Table]:
    """Show circuits and steps of interconnect that are bought, with what each step adds."""
    if s.new_lines:
        rows = tuple(
            (x.line, figure(f"sites.new_lines.{n}.circuits", x.circuits, f"{x.circuits:,}"))
            for n, x in enumerate(s.new_lines)
        )
        yield Table("Circuits built", ("corridor", "circuits"), rows)
    offered = {x.id: x.upgrade for x in plan.instance.grid.nodes if x.upgrade} if plan.instance.grid else {}
    bought: list[tuple[Cell, ...]] = []
    for n, x in enumerate(s.upgrades):
        step = offered.get(x.node)
        steps = figure(f"sites.upgrades.{n}.steps", x.steps, f"{x.steps:,}")
        bought.append(
            (
                x.node,
                steps,
                amount(step.step_mw * x.steps) if step else "-",
                usd(step.capex_usd * x.steps) if step else "-",
            )
        )
    if bought:
        yield Table("Interconnect bought", ("node", "steps", "MW more", "USD"), tuple(bought))


def _excess(s: SitesPlan) -> Iterator[Table]:
    """Show how far soft rules are broken; what that weighs is not billed."""
    rows: list[tuple[Cell, ...]] = []
    for n, x in enumerate(s.excess):
        at = f"sites.excess.{n}"
        by = figure(f"{at}.amount", x.amount, amount(x.amount))
        rows.append((x.rule, by, x.unit, figure(f"{at}.usd_per_year", x.usd_per_year, usd(x.usd_per_year))))
    if rows:
        yield Table(
            "Soft rules broken: what each weighs in the choice, and is not billed",
            ("rule", "by", "unit", "USD a year"),
            tuple(rows),
        )


def scenarios(plan: Plan) -> Iterator[Block]:
    """Show what each site runs in each year that may come, and what that year's energy costs."""
    s = plan.sites
    if s is None or not s.scenarios:
        return
    held = sum(x.facility_mw for x in s.sites)
    ids = [x.id for x in s.sites]
    bars = [
        (name, {x: r.running_mw.get(x, 0.0) for x in ids}, Limit(held, "held"))
        for name, r in sorted(s.scenarios.items())
    ]
    shades = colours(ids)
    rows: list[tuple[Cell, ...]] = []
    for name, r in sorted(s.scenarios.items()):
        at = f"sites.scenarios.{name}"
        runs = [
            figure(f"{at}.running_mw.{x}", r.running_mw[x], amount(r.running_mw[x])) if x in r.running_mw else "-"
            for x in ids
        ]
        year = figure(f"{at}.energy_usd_per_year", r.energy_usd_per_year, usd(r.energy_usd_per_year))
        rows.append((name, *runs, amount(held - sum(r.running_mw.values())), year))
    table = Table("MW run in each scenario", ("scenario", *ids, "MW left off", "energy, USD a year"), tuple(rows))
    key = Table(
        "Sites", ("site", "MW held"), tuple((Swatch(x.id, shades[x.id]), amount(x.facility_mw)) for x in s.sites)
    )
    svg = stacked("Power that runs in each scenario, by site", bars, shades, lambda v: f"{amount(v)} MW")
    told = "Power that runs in each scenario; the dashed line is what the sites hold. Energy counts what is left undone at its price."
    yield Block("Years that may come", (Picture(svg, told),), (table, key))


def grid(plan: Plan) -> Iterator[Block]:
    """Show what the grid offers, where no split was found."""
    g = plan.instance.grid
    if g is None or plan.sites is not None:
        return
    rows: list[tuple[Cell, ...]] = []
    for n, area in enumerate(g.balancing_authorities):
        nodes = [x for x in g.nodes if x.balancing_authority == area.id]
        headroom = figure(
            f"instance.grid.balancing_authorities.{n}.headroom_mw", area.headroom_mw, amount(area.headroom_mw)
        )
        offered = amount(sum(x.generation_mw for x in nodes))
        rows.append((area.id, area.interconnection, headroom, offered, f"{sum(x.site for x in nodes)}"))
    head = ("authority", "interconnection", "headroom MW", "generation to spare MW", "nodes for sites")
    yield Block("What the grid offers", (), (Table("By balancing authority", head, tuple(rows)),))
