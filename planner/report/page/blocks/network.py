"""Fabric and placement of a plan, as blocks."""

from collections.abc import Iterator, Sequence

from planner.instance.network import FabricFamily
from planner.plan.fabric import SiteFabric
from planner.plan.placement import SitePlacement
from planner.plan.plan import Plan
from planner.report.page.drawings.leaf_domains import MAX_KINDS, Kind, by_pieces, kinds_of
from planner.report.page.drawings.pipeline import leaves, tiers
from planner.report.page.parts import Block, Picture, Row, Table, figure, figures_of
from planner.units import counted, money

FAMILIES: dict[FabricFamily, str] = {
    "rail": "rail: a leaf takes one GPU index of many racks",
    "rack": "rack: a leaf takes all GPUs of some racks",
    "rail-only": "rail-only: a network for each GPU index, nothing joins them",
    "dragonfly": "dragonfly: leaves as of rail, in groups of which every two are joined",
    "dragonfly+": "dragonfly+: groups of leaves below spines, every two of them joined",
}
GROUPS = {
    "groups": "all-reduce groups",
    "groups_leaf_local": "under one leaf domain",
    "groups_split": "split",
    "lower_bound_split": "split in any placement",
    "extra_pieces": "extra pieces",
    "groups_cross_pod": "across pods",
}


def fabric(plan: Plan) -> Iterator[Block]:
    """Show each site's tiers, what they take and how far traffic goes up."""
    if plan.fabric is not None:
        for site, f in sorted(plan.fabric.sites.items()):
            picture = Picture(tiers(site, f), "From the top tier down; between tiers the over-subscription.")
            yield Block(f"Fabric of {site}", (picture,), (_tiers_table(site, f), _takes(site, f), _traffic(site, f)))


def _tiers_table(site: str, f: SiteFabric) -> Table:
    head = ("tier", "switches", "down", "up", "over-subscription", "parallel links")
    rows: list[Row] = []
    for n, t in enumerate(f.tiers):
        switches = figures_of(f"fabric.sites.{site}.tiers.{n}", t)("switches")
        above = ("-", "-") if t.bundle == 0 else (f"{t.oversubscription:.3g} : 1", f"{t.bundle}")
        rows.append((t.name, switches, f"{t.down_ports}", f"{t.up_ports}", *above))
    return Table(f"{counted(f.planes, 'plane')} of {f.switch}", head, rows)


def _takes(site: str, f: SiteFabric) -> Table:
    at = f"fabric.sites.{site}"
    cell = figures_of(at, f)
    rows: list[Row] = [
        ("family", figure(f"{at}.family", f.family, FAMILIES[f.family])),
        ("networks that a NIC is split over", cell("lanes")),
        ("GPU links that share a port", cell("split")),
        ("switches", cell("switches")),
        ("links between switches", cell("switch_links")),
        ("links to GPUs", cell("endpoint_links")),
        ("cost", cell("cost_usd", money)),
        ("power", cell("power_mw", "{:,.3g} MW".format)),
    ]
    if f.wan_gateway is not None:
        gateway = figures_of(f"{at}.wan_gateway", f.wan_gateway)
        rows += [("WAN gateway switches", gateway("switches")), ("ports to the wide area", gateway("wan_ports"))]
    return Table("What it takes", ("figure", "value"), rows)


def _traffic(site: str, f: SiteFabric) -> Table:
    pod = "group" if f.group_links else "pod"
    rows: list[Row] = [(f"{pod}s", f"{f.pods} of {f.rails_per_pod} rails over {f.leaf_domains_per_pod} leaf domains")]
    if f.zones:
        rows.append(("zones", f"{f.zones} of {f.rails_per_zone} rails over {f.leaf_domains_per_zone} leaf domains"))
    if f.group_links:
        rows.append(("links between each two groups", figures_of(f"fabric.sites.{site}", f)("group_links")))
    leaving = {"leaf": f.share_leaving_leaf, pod: f.share_leaving_pod}
    leaving |= {"zone": f.share_leaving_zone} if f.zones else {}
    rows += [(f"pipeline flows that leave the {name}", f"{100 * share:.0f} %") for name, share in leaving.items()]
    exchange = f"{f.p2p_seconds * 1e3:,.3g} ms, {f.pipeline_send_slowdown:.2f} x ideal"
    rows.append(("one pipeline exchange", exchange))
    return Table("Traffic", ("figure", "value"), rows)


def placement(plan: Plan) -> Iterator[Block]:
    """Show what stands in the leaf domains of each site, by kind."""
    p = plan.placement
    if p is None:
        return
    total = figures_of("placement", p)
    pictures: list[Picture] = []
    tables = [Table("Groups", ("groups", "count"), [(name, total(k)) for k, name in GROUPS.items()])]
    for site, placed in sorted(p.sites.items()):
        pieces = [(counted(n, "piece"), f"{count:,}") for n, count in by_pieces(placed.assignment).items()]
        tables.append(Table(f"Groups of {site} by pieces", ("lies in", "groups"), pieces))
        kinds = _merged(_kinds(plan, site, placed))
        if kinds:
            bars = [
                (k.name if n < MAX_KINDS else _others(k), (k.whole_racks, k.piece_racks, k.idle_racks))
                for n, k in enumerate(kinds)
            ]
            caption = f"Leaf domains of {site}: racks of whole groups, of split groups, and idle."
            pictures.append(Picture(leaves(site, bars), caption))
            tables.append(_kinds_table(site, kinds))
    yield Block("Placement by leaf domain", pictures, tables)


def _kinds(plan: Plan, site: str, placed: SitePlacement) -> list[Kind]:
    f = plan.fabric.sites.get(site) if plan.fabric else None
    racks = plan.instance.hardware.racks
    if plan.sites:
        racks = next((s.racks for s in plan.sites.sites if s.id == site), None)
    if f is None or racks is None:
        return []
    return kinds_of(placed.assignment, racks=racks, leaf_domain_racks=f.leaf_domain_racks)


def _merged(kinds: Sequence[Kind]) -> list[Kind]:
    """Return the most frequent kinds and one for all others, with the racks of a domain of them on average."""
    if len(kinds) <= MAX_KINDS + 1:
        return list(kinds)
    rest = kinds[MAX_KINDS:]
    n = sum(k.domains for k in rest)
    whole, pieces = sum(k.whole * k.domains for k in rest), sum(k.pieces * k.domains for k in rest)
    names = ("whole_racks", "piece_racks", "idle_racks")
    means = {name: sum(getattr(k, name) * k.domains for k in rest) / n for name in names}
    return [*kinds[:MAX_KINDS], Kind(domains=n, whole=whole, pieces=pieces, **means)]


def _others(k: Kind) -> str:
    if k.domains == 1:
        return k.name
    return f"{k.domains:,} others together: {k.whole} whole, {k.pieces} pieces (bar: their mean)"


def _kinds_table(site: str, kinds: Sequence[Kind]) -> Table:
    head = ("domains", "whole groups", "racks", "pieces", "racks of pieces", "idle racks")
    counts = [(f"{k.domains:,}", f"{k.whole}", f"{k.pieces}") for k in kinds]
    racks = [[f"{x:,.4g}" for x in (k.whole_racks, k.piece_racks, k.idle_racks)] for k in kinds]
    rows = [(n, whole, r[0], pieces, r[1], r[2]) for (n, whole, pieces), r in zip(counts, racks, strict=True)]
    return Table(f"Leaf domains of {site}, each as the line says", head, rows)
