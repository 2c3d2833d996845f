"""The fibre between a plan's sites, as a block: routes, spans, what they carry and what they survive."""

from collections.abc import Iterator

from planner.plan.plan import Plan
from planner.plan.wan import WanDemand, WanPlan
from planner.report.page.drawings.bars import Limit, stacked
from planner.report.page.drawings.fibre_map import at_work, fibre_map, most_loaded
from planner.report.page.drawings.site_map import outline_caption
from planner.report.page.parts import Block, Picture, Row, Table, figure, figures_of
from planner.units import amount, money

SURVIVES = {"one_cut": "any one span cut", "none": "no cut"}
LIT = "Fibre between the sites: lit spans, as thick as their wavelengths; thin and grey: not lit."
FORMS = "Exchange of a stage's gradients by each form, at the rate that the chosen one needs; dashed: the window."


def wan(plan: Plan) -> Iterator[Block]:
    """Show the fibre as it is lit: map, exchange, demands, routes and spans."""
    w, s = plan.wan, plan.sites
    if w is None or s is None or plan.instance.wan is None:
        return
    svg, in_us = fibre_map(w, s, plan.instance.wan)
    pictures = [Picture(svg, f"{LIT} {outline_caption(in_us)}")]
    window = Limit(w.window_seconds, "window")
    # No rate makes a form with no seconds fit, so there is no bar to draw for it.
    bars = [
        (f.name + (" (chosen)" if f.name == w.exchange else ""), {"exchange": f.seconds}, window)
        for f in w.forms
        if f.seconds is not None
    ]
    if bars:
        svg = stacked("Time of the exchange by its form", bars, {"exchange": "c0"}, "{:,.3g} s".format)
        pictures.append(Picture(svg, FORMS))
    tables = (_totals(w), *_forms(w), _demands(w), _routes(w), _spans(w))
    yield Block("Fibre between the sites", pictures, tables, (), tuple(_spans_by_route(w)))


def _totals(w: WanPlan) -> Table:
    cell = figures_of("wan", w)
    waves, pairs = sum(e.wavelengths for e in w.edges), sum(e.fibre_pairs for e in w.edges)
    exchange = w.exchange or "none: one site trains"
    rows: list[Row] = [
        ("survives", cell("protection", SURVIVES.__getitem__)),
        *((f"nodes on a route and its backup, {k}", ", ".join(v)) for k, v in sorted(w.shared_nodes.items())),
        ("exchange by", figure("wan.exchange", w.exchange, exchange)),
        ("window of the exchange", cell("window_seconds", "{:,.4g} s".format)),
        ("spans lit", f"{len(w.edges):,}"),
        ("wavelengths", figure("wan.edges[*].wavelengths", waves, f"{waves:,}")),
        ("fibre pairs", figure("wan.edges[*].fibre_pairs", pairs, f"{pairs:,}")),
        ("capital", cell("capex_usd", money)),
    ]
    return Table("Fibre as it is lit", ("figure", "value"), rows)


def _forms(w: WanPlan) -> Iterator[Table]:
    rows: list[Row] = []
    for n, f in enumerate(w.forms):
        cell = figures_of(f"wan.forms.{n}", f)
        rate = "no rate does" if f.link_gbps is None else cell("link_gbps", amount)
        rows.append((f.name, rate, cell("seconds", "{:,.3g}".format), ", ".join(f.order)))
    if rows:
        yield Table("Forms of the exchange", ("form", "Gb/s a link needs", "seconds", "order"), rows, ("order",))


def _demands(w: WanPlan) -> Table:
    rows: list[Row] = []
    for n, d in enumerate(w.demands):
        cell = figures_of(f"wan.demands.{n}", d)
        rates = [cell(k, amount) for k in ("requested_gbps", "admitted_gbps", "missing_gbps")]
        rows.append((_name(w, n), f"{d.priority}", *rates, ", ".join(d.saturated_edges) or "-"))
    head: tuple[str, ...] = ("demand", "priority", "Gb/s asked", "carried", "missing", "full spans")
    # A column that is empty in most plans costs the width that the others need.
    if not any(d.saturated_edges for d in w.demands):
        head, rows = head[:-1], [r[:-1] for r in rows]
    return Table("What the sites send each other", head, rows, ("full spans",))


def _name(w: WanPlan, n: int) -> str:
    d = w.demands[n]
    return d.name if len({(x.a, x.b) for x in w.demands}) == 1 else f"{d.name}, {d.a} - {d.b}"


def _routes(w: WanPlan) -> Table:
    rows: list[Row] = []
    for n, d in enumerate(w.demands):
        for m, r in enumerate(d.routes):
            cell = figures_of(f"wan.demands.{n}.routes.{m}", r)
            share = f" ({100 * r.share:.0f} %)" if len(d.routes) > 1 else ""
            used = (cell("route_km", amount), cell("rtt_ms", "{:.1f}".format), cell("gbps", amount))
            backup = (cell("backup_rtt_ms", "{:.1f}".format), cell("backup_gbps", amount))
            rows.append((_name(w, n) + share, *used, *backup))
    return Table("Routes", ("route of", "km", "round trip ms", "Gb/s", "ms while cut", "Gb/s while cut"), rows)


def _spans(w: WanPlan) -> Table:
    used, place = at_work(w), {e.id: n for n, e in enumerate(w.edges)}
    rows: list[Row] = []
    for e in most_loaded(w):
        cell = figures_of(f"wan.edges.{place[e.id]}", e)
        name = e.id + ("" if e.id in used else " (for cuts)")
        load = f"{100 * e.peak_gbps / e.capacity_gbps:.0f} %" if e.capacity_gbps else "-"
        lit = (cell("wavelengths"), cell("fibre_pairs"))
        rows.append((name, f"{e.route_km:,.0f}", *lit, load, cell("usd_per_year", money)))
    head = ("span", "km", "waves", "pairs", "in use at most", "USD a year")
    return Table("Spans lit, those with the most traffic first", head, rows)


def _spans_by_route(w: WanPlan) -> Iterator[tuple[str, str]]:
    """Write the spans of each route once for all demands that share it."""
    shared: dict[tuple[tuple[str, ...], tuple[str, ...] | None], list[WanDemand]] = {}
    for d in w.demands:
        for r in d.routes:
            shared.setdefault((r.edges, r.backup_edges), []).append(d)
    for (edges, backup), demands in shared.items():
        names = ", ".join(dict.fromkeys(d.name for d in demands))
        cut = f"; while one of these is cut: {', '.join(backup)}" if backup else ""
        yield f"{names}: {demands[0].a} - {demands[0].b}", ", ".join(edges) + cut
