"""Statements on the purchase and the sites: racks, links, fibre, grid works."""

from collections.abc import Iterator

from planner.plan.plan import Plan
from planner.plan.sites import SitesPlan
from planner.plan.wan import WanDemand, WanPlan
from planner.report.statements.statement import Statement
from planner.units import amount, counted, money

NAMED_SITES, NAMED_LINKS = 4, 2  # on the first screen
SURVIVES = {"off": "nothing out", "margin": "nothing out", "node": "a site's largest circuit out"}


def racks_of(plan: Plan) -> int | None:
    """Return the racks that a plan buys or owns."""
    return sum(s.racks for s in plan.sites.sites) if plan.sites else plan.instance.hardware.racks


def purchase(plan: Plan) -> Iterator[Statement]:
    """State the purchase: racks with their GPUs, sites, price and budget."""
    racks, h = racks_of(plan), plan.instance.hardware
    if plan.cost is None or (racks is None and not h.pools):
        return
    if h.pools:
        bought = " and ".join(f"{counted(p.racks, 'rack')} of {p.name}" for p in h.pools)
    else:
        gpu = h.accelerator if isinstance(h.accelerator, str) else h.accelerator.name
        gpus = f" ({plan.layout.gpus_used + plan.layout.gpus_idle:,} {gpu})" if plan.layout else ""
        bought = f"{counted(racks or 0, 'rack')}{gpus}"
    ids = [s.id for s in plan.sites.sites] if plan.sites else []
    at = f" at {ids[0] if len(ids) == 1 else counted(len(ids), 'site')}" if ids else ""
    budget = plan.instance.limits.budget_usd
    of = f" (budget {money(budget)})" if budget else ""
    text = f"Buys {bought}{at} for {money(plan.cost.total_usd)}{of}."
    yield Statement("choice", "verdict", text, True, path="cost.total_usd")


def sites(plan: Plan) -> Iterator[Statement]:
    """State each open site with its load, the links between sites, and the lines and interconnects built."""
    s, grid = plan.sites, plan.instance.grid
    if s is None:
        return
    shown = len(s.sites) if len(s.sites) <= NAMED_SITES else NAMED_SITES - 1
    for n, site in enumerate(s.sites):
        authority = f"{site.balancing_authority}, {site.interconnection}"
        text = f"{site.id} ({authority}): {counted(site.racks, 'rack')}, {site.facility_mw:,.0f} MW"
        yield Statement("choice", "sites", text, n < shown, path=f"sites.sites.{n}")
    if rest := s.sites[shown:]:
        racks, mw = sum(x.racks for x in rest), sum(x.facility_mw for x in rest)
        text = f"{len(rest)} more sites ({', '.join(x.id for x in rest)}): {racks:,} racks, {mw:,.0f} MW"
        yield Statement("choice", "sites", text, True)
    open_sites = {x.id for x in s.sites}
    if grid and (unused := [n.id for n in grid.nodes if n.site and n.id not in open_sites]):
        few = len(unused) <= NAMED_LINKS
        text = f"Not used: {', '.join(unused)}" if few else f"Not used: {len(unused)} other candidates"
        yield Statement("choice", "sites", text, few)
    for n, k in enumerate(() if plan.wan else s.links):  # a designed wide area says more than this estimate
        far = f"{k.a} to {k.b}: {k.route_km:,.0f} km, {k.rtt_ms:.1f} ms"
        text = f"{far}; {k.required_gbps / 1e3:,.1f} Tbps, {counted(k.fibre_pairs, 'fibre pair')}"
        yield Statement("figure", "sites", text, n < NAMED_LINKS, path=f"sites.links.{n}")
        lit = f"{k.a} to {k.b}: {counted(k.wavelengths, 'wavelength')}, {money(k.usd_per_year)} a year"
        yield Statement("figure", "sites", lit, path=f"sites.links.{n}.wavelengths")
    yield from _works(s)
    if grid is not None and grid.rules.grid_model == "dc":
        load = sum(n.load_mw for n in grid.nodes)
        other = f"with {load:,.0f} MW of other load" if load else "of the sites alone: no node states a load_mw"
        survives = SURVIVES.get(grid.rules.n1, "any one circuit or unit out")
        yield Statement("proof", "sites", f"sites: power flow by reactances, {other}; {survives}")


def _works(s: SitesPlan) -> Iterator[Statement]:
    """State lines and interconnects that are bought, soft rules that are broken, and years that may come."""
    for built in s.new_lines:
        yield Statement("choice", "sites", f"Builds {counted(built.circuits, 'circuit')} in {built.line}.", True)
    for bought in s.upgrades:
        text = f"Buys {counted(bought.steps, 'step')} of interconnect at {bought.node}."
        yield Statement("choice", "sites", text, True)
    for x in s.excess:
        weighs = f"{money(x.usd_per_year)} a year in the choice, not billed"
        text = f"Soft rule {x.rule} is exceeded by {x.amount:,.6g} {x.unit}; that weighs {weighs}."
        yield Statement("warning", "sites", text, True)
    for name, run in s.scenarios.items():
        power = sum(run.running_mw.values())
        text = f"In {name}: {power:,.0f} MW run, energy {money(run.energy_usd_per_year)} a year."
        yield Statement("figure", "sites", text, path=f"sites.scenarios.{name}")


def wan(plan: Plan) -> Iterator[Statement]:
    """State the routes between sites, the lit fibre, the cuts that it survives, and other traffic."""
    x = plan.wan
    if x is None:
        return
    for d in [d for d in x.demands if d.priority == 0]:
        r, backup = d.routes[0], ""
        if r.backup_rtt_ms is not None:
            backup = f"; while cut {r.backup_rtt_ms:.1f} ms and {(r.backup_gbps or 0) / 1e3:,.1f} Tbps"
        path = f"{counted(len(r.edges), 'span')}, {r.route_km:,.0f} km, {r.rtt_ms:.1f} ms, {r.gbps / 1e3:,.1f} Tbps"
        yield Statement("choice", "wan", f"{d.a} to {d.b}: {path}{backup}", True)
    waves, pairs = sum(e.wavelengths for e in x.edges), sum(e.fibre_pairs for e in x.edges)
    form = f"; exchange by {x.exchange}" if x.exchange else ""
    lit = f"{counted(waves, 'wavelength')} in {counted(pairs, 'fibre pair')} on {counted(len(x.edges), 'span')}"
    yield Statement("choice", "wan", f"{lit}, {money(x.capex_usd)}{form}; survives {_survives(x)}", True)
    others = [d for d in x.demands if d.priority]
    for name in dict.fromkeys(d.name for d in others):
        yield _carried([d for d in others if d.name == name])


def _survives(x: WanPlan) -> str:
    at = ", ".join(f"{link} at {', '.join(nodes)}" for link, nodes in sorted(x.shared_nodes.items()))
    but = f", but not the loss of a node that a route and its backup share: {at}" if at else ""
    return f"{'any one span cut' if x.protection == 'one_cut' else 'no cut'}{but}"


def _carried(demands: list[WanDemand]) -> Statement:
    asked, missing = sum(d.requested_gbps for d in demands), sum(d.missing_gbps for d in demands)
    name = f"{demands[0].name} (priority {demands[0].priority})"
    carried = f"{name}: {amount(asked - missing)} of {amount(asked)} Gbps carried"
    if missing <= 1e-6 * asked:
        return Statement("figure", "wan", carried)
    full = ", ".join(sorted({e for d in demands for e in d.saturated_edges}))
    return Statement("warning", "wan", f"{carried}; {f'full: {full}' if full else 'there is no route'}", True)
