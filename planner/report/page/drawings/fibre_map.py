"""The map of the fibre between a plan's sites: what could be lit, what is, and what is lit for cuts alone."""

from planner.instance.wan import Wan
from planner.plan.sites import SitesPlan
from planner.plan.wan import WanEdge, WanPlan
from planner.report.page.drawings.site_map import chart, dot, labels, sites_on
from planner.report.page.drawings.svg import WIDTH, drawing, line, text

MAX_NAMES = 24  # places; of more, only sites are named, since names would cover the map
THIN, THICK = 1.4, 4.5  # units: of a span with the fewest and the most wavelengths


def fibre_map(w: WanPlan, s: SitesPlan, wan: Wan) -> tuple[str, bool]:
    """Draw spans, lit ones as thick as their wavelengths, dashed where no route uses them until a cut.

    Return the drawing, and whether it is on the outline of the US.
    """
    nodes = {n.id: (n.latitude, n.longitude) for n in wan.fibre_nodes} if wan.fibre_edges else {}
    c = chart({**nodes, **{x.id: (x.latitude, x.longitude) for x in s.sites}})
    used, lit = at_work(w), {e.id for e in w.edges}
    drawn = list(c.land)
    for x in wan.fibre_edges:
        if x.name not in lit:
            drawn.append(line(*c.at[x.a], *c.at[x.b], "line", f"{x.name}: not lit"))
    max_wavelengths = max((e.wavelengths for e in w.edges), default=1) or 1
    for e in sorted(w.edges, key=lambda e: e.id in used):
        width = THIN + (THICK - THIN) * e.wavelengths / max_wavelengths
        tip = f"{e.id}: {e.route_km:,.0f} km, {e.wavelengths:,} wavelengths"
        cls, tip = ("lit", tip) if e.id in used else ("spare", f"{tip}, while another span is cut")
        drawn.append(line(*c.at[e.a], *c.at[e.b], cls, tip, width))
    joined = sorted({p for e in w.edges for p in (e.a, e.b)} - {x.id for x in s.sites})
    drawn += [dot(n, c.at[n], 2.4) for n in sorted({*nodes, *joined})]
    marks, radius = sites_on(c, s)
    names = [(x.id, x.id, "strong") for x in s.sites]
    names += [(n, n, "small") for n in joined] if len(joined) <= MAX_NAMES else []
    y, middle = c.height + 4, WIDTH / 2
    key = line(8, y, 34, y, "lit", width=3) + text(40, y + 4, "lit, on a route")
    key += line(middle, y, middle + 26, y, "spare", width=3) + text(middle + 32, y + 4, "lit for cuts alone")
    between = ", ".join(x.id for x in s.sites)
    alt = (
        f"Map of the fibre: {len(w.edges)} spans lit between {between}; on a route: {', '.join(sorted(used)) or 'none'}"
    )
    return drawing(c.height + 16, alt, "".join([*drawn, *marks, labels(names, c.at, radius), key])), c.in_us


def at_work(w: WanPlan) -> frozenset[str]:
    """Return the spans that routes use while nothing is cut."""
    return frozenset(e for d in w.demands for r in d.routes for e in r.edges)


def most_loaded(w: WanPlan) -> list[WanEdge]:
    """Return the lit spans, those with the most traffic first."""
    return sorted(w.edges, key=lambda e: (-e.peak_gbps, e.id))
