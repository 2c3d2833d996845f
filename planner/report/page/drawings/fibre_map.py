"""The map of the fibre between a plan's sites: what could be lit, what is, and what only stands in while another is cut."""

from html import escape

from planner.instance.wan import Wan
from planner.plan.sites import SitesPlan
from planner.plan.wan import WanEdge, WanPlan
from planner.report.page.drawings.site_map import chart, labels, sites_on
from planner.report.page.drawings.svg import WIDTH, drawing, el, text

MOST_NAMES = 24  # places: beyond, only sites are named
THIN, THICK = 1.4, 4.5  # units: of a span with the fewest and the most wavelengths


def fibre_map(w: WanPlan, s: SitesPlan, wan: Wan) -> tuple[str, bool]:
    """Draw spans, lit ones as thick as their wavelengths, dashed where no route uses them until a cut; say whether it is on the outline of the US."""
    nodes = {n.id: (n.latitude, n.longitude) for n in wan.fibre_nodes} if wan.fibre_edges else {}
    c = chart({**nodes, **{x.id: (x.latitude, x.longitude) for x in s.sites}})
    used = at_work(w)
    most = max((e.wavelengths for e in w.edges), default=1) or 1
    lit = {e.id for e in w.edges}
    drawn = [*c.land]
    for x in wan.fibre_edges:
        if x.name not in lit:
            drawn.append(_span(c.at[x.a], c.at[x.b], "line", f"{x.name}: not lit"))
    for e in sorted(w.edges, key=lambda e: e.id in used):
        told = f"{e.id}: {e.route_km:,.0f} km, {e.wavelengths:,} wavelengths" + (
            "" if e.id in used else ", while another span is cut"
        )
        drawn.append(
            _span(
                c.at[e.a],
                c.at[e.b],
                "lit" if e.id in used else "spare",
                told,
                THIN + (THICK - THIN) * e.wavelengths / most,
            )
        )
    met = sorted({p for e in w.edges for p in (e.a, e.b)} - {x.id for x in s.sites})
    drawn += [
        el("circle", el("title", escape(n)), cx=c.at[n][0], cy=c.at[n][1], r=2.4, cls="node")
        for n in sorted({*nodes, *met})
    ]
    marks, radius = sites_on(c, s)
    names = [(x.id, x.id, "strong") for x in s.sites] + (
        [(n, n, "small") for n in met] if len(met) <= MOST_NAMES else []
    )
    key = _span((8, c.height + 4), (34, c.height + 4), "lit", "", 3) + text(40, c.height + 8, "lit, on a route")
    key += _span((WIDTH / 2, c.height + 4), (WIDTH / 2 + 26, c.height + 4), "spare", "", 3) + text(
        WIDTH / 2 + 32, c.height + 8, "lit for cuts alone"
    )
    alt = f"Map of the fibre: {len(w.edges)} spans lit between {', '.join(x.id for x in s.sites)}; on a route: {', '.join(sorted(used)) or 'none'}"
    return drawing(c.height + 16, alt, "".join([*drawn, *marks, labels(names, c.at, radius), key])), c.in_us


def at_work(w: WanPlan) -> frozenset[str]:
    """Return the spans that routes use while nothing is cut."""
    return frozenset(e for d in w.demands for r in d.routes for e in r.edges)


def most_loaded(w: WanPlan) -> list[WanEdge]:
    """Return the lit spans, those with the most traffic first."""
    return sorted(w.edges, key=lambda e: (-e.peak_gbps, e.id))


def _span(a: tuple[float, float], b: tuple[float, float], cls: str, told: str, width: float = 0.0) -> str:
    thick = {"stroke_width": width} if width else {}
    return el("line", el("title", escape(told)) if told else "", x1=a[0], y1=a[1], x2=b[0], y2=b[1], cls=cls, **thick)
