"""The fibre between a plan's sites, as a block: routes, spans, what they carry and what they survive."""

from collections.abc import Iterator

from planner.plan.plan import Plan
from planner.plan.wan import WanDemand, WanPlan
from planner.report.page.drawings.bars import Limit, stacked
from planner.report.page.drawings.fibre_map import at_work, fibre_map, most_loaded
from planner.report.page.parts import Block, Cell, Picture, Table, figure
from planner.report.plots.labels import amount, usd

SURVIVES = {"one_cut": "any one span cut", "none": "no cut"}


def wan(plan: Plan) -> Iterator[Block]:
    """Show the fibre as it is lit: map, exchange, demands, routes and spans."""
    w, s = plan.wan, plan.sites
    if w is None or s is None or plan.instance.wan is None:
        return
    svg, in_us = fibre_map(w, s, plan.instance.wan)
    told = "Fibre between the sites: lit spans, as thick as their wavelengths; thin and grey: not lit. "
    told += (
        "Albers equal-area; outline: Natural Earth."
        if in_us
        else "Places only: they lie beyond the outline that this page has."
    )
    pictures = [Picture(svg, told)]
    # No rate makes a form with no seconds fit, so there is no bar to draw for it.
    timed = [
        (f.name + (" (taken)" if f.name == w.exchange else ""), f.seconds) for f in w.forms if f.seconds is not None
    ]
    if timed:
        window = Limit(w.window_seconds, "window")
        bars = [(name, {"exchange": seconds}, window) for name, seconds in timed]
        drawn = stacked("Time of the exchange by its form", bars, {"exchange": "c0"}, lambda v: f"{v:,.3g} s")
        pictures.append(
            Picture(
                drawn,
                "Exchange of a stage's gradients by each form, at the rate that the taken one needs; dashed: the window.",
            )
        )
    tables = (_totals(w), *_forms(w), _demands(w), _routes(w), _spans(w))
    yield Block("Fibre between the sites", tuple(pictures), tables, (), tuple(_ways(w)))


def _totals(w: WanPlan) -> Table:
    waves, pairs = (sum(getattr(e, k) for e in w.edges) for k in ("wavelengths", "fibre_pairs"))
    rows: list[tuple[Cell, ...]] = [
        ("survives", figure("wan.protection", w.protection, SURVIVES[w.protection])),
        ("exchange by", figure("wan.exchange", w.exchange, w.exchange or "none: one site trains")),
        ("window of the exchange", figure("wan.window_seconds", w.window_seconds, f"{w.window_seconds:,.4g} s")),
        ("spans lit", f"{len(w.edges):,}"),
        ("wavelengths", figure("wan.edges[*].wavelengths", waves, f"{waves:,}")),
        ("fibre pairs", figure("wan.edges[*].fibre_pairs", pairs, f"{pairs:,}")),
        ("capital", figure("wan.capex_usd", w.capex_usd, usd(w.capex_usd))),
    ]
    return Table("Fibre as it is lit", ("figure", "value"), tuple(rows))


def _forms(w: WanPlan) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = []
    for n, f in enumerate(w.forms):
        at = f"wan.forms.{n}"
        rate = "no rate does" if f.link_gbps is None else figure(f"{at}.link_gbps", f.link_gbps, amount(f.link_gbps))
        time = "-" if f.seconds is None else figure(f"{at}.seconds", f.seconds, f"{f.seconds:,.3g}")
        rows.append((f.name, rate, time, ", ".join(f.order)))
    if rows:
        yield Table("Forms of the exchange", ("form", "Gb/s a link needs", "seconds", "order"), tuple(rows), ("order",))


def _demands(w: WanPlan) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for n, d in enumerate(w.demands):
        asked, admitted, missing = (
            figure(f"wan.demands.{n}.{k}", getattr(d, k), amount(getattr(d, k)))
            for k in ("requested_gbps", "admitted_gbps", "missing_gbps")
        )
        rows.append((_name(w, n), f"{d.priority}", asked, admitted, missing, ", ".join(d.saturated_edges) or "-"))
    head: tuple[str, ...] = ("demand", "priority", "Gb/s asked", "carried", "missing", "full spans")
    # A column that is empty in most plans costs the width that the others need.
    if not any(d.saturated_edges for d in w.demands):
        head, rows = head[:-1], [r[:-1] for r in rows]
    return Table("What the sites send each other", head, tuple(rows), ("full spans",))


def _name(w: WanPlan, n: int) -> str:
    d = w.demands[n]
    return d.name if len({(x.a, x.b) for x in w.demands}) == 1 else f"{d.name}, {d.a} - {d.b}"


def _routes(w: WanPlan) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for n, d in enumerate(w.demands):
        for m, r in enumerate(d.routes):
            at = f"wan.demands.{n}.routes.{m}"
            shown = [(k, getattr(r, k)) for k in ("route_km", "rtt_ms", "gbps", "backup_rtt_ms", "backup_gbps")]
            cells = [
                "-" if v is None else figure(f"{at}.{k}", v, f"{v:.1f}" if k.endswith("_ms") else amount(v))
                for k, v in shown
            ]
            rows.append((_name(w, n) + (f" ({100 * r.share:.0f} %)" if len(d.routes) > 1 else ""), *cells))
    return Table("Routes", ("route of", "km", "round trip ms", "Gb/s", "ms while cut", "Gb/s while cut"), tuple(rows))


def _spans(w: WanPlan) -> Table:
    used, place = at_work(w), {e.id: n for n, e in enumerate(w.edges)}
    rows: list[tuple[Cell, ...]] = []
    for e in most_loaded(w):
        at = f"wan.edges.{place[e.id]}"
        waves = figure(f"{at}.wavelengths", e.wavelengths, f"{e.wavelengths:,}")
        pairs = figure(f"{at}.fibre_pairs", e.fibre_pairs, f"{e.fibre_pairs:,}")
        year = figure(f"{at}.usd_per_year", e.usd_per_year, usd(e.usd_per_year))
        full = f"{100 * e.peak_gbps / e.capacity_gbps:.0f} %" if e.capacity_gbps else "-"
        rows.append((e.id + ("" if e.id in used else " (for cuts)"), f"{e.route_km:,.0f}", waves, pairs, full, year))
    return Table(
        "Spans lit, those with the most traffic first",
        ("span", "km", "waves", "pairs", "in use at most", "USD a year"),
        tuple(rows),
    )


def _ways(w: WanPlan) -> Iterator[tuple[str, str]]:
    """Spell the spans of each route once for all demands that share it."""
    shared: dict[tuple[tuple[str, ...], tuple[str, ...] | None], list[WanDemand]] = {}
    for d in w.demands:
        for r in d.routes:
            shared.setdefault((r.edges, r.backup_edges), []).append(d)
    for (edges, backup), demands in shared.items():
        names = ", ".join(dict.fromkeys(d.name for d in demands))
        told = ", ".join(edges) + (f"; while one of these is cut: {', '.join(backup)}" if backup else "")
        yield f"{names}: {demands[0].a} - {demands[0].b}", told
