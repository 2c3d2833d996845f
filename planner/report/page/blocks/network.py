"""Fabric and placement of a plan, as blocks."""

from collections.abc import Iterator, Sequence

from planner.instance.network import FabricFamily
from planner.plan.fabric import SiteFabric
from planner.plan.placement import SitePlacement
from planner.plan.plan import Plan
from planner.report.page.drawings.leaf_domains import MOST_KINDS, Kind, by_pieces, kinds_of
from planner.report.page.drawings.pipeline import leaves, tiers
from planner.report.page.parts import Block, Cell, Picture, Table, figure
from planner.report.plots.labels import usd

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
    rows: list[tuple[Cell, ...]] = []
    for n, t in enumerate(f.tiers):
        count = figure(f"fabric.sites.{site}.tiers.{n}.switches", t.switches, f"{t.switches:,}")
        above = ("-", "-") if t.bundle == 0 else (f"{t.oversubscription:.3g} : 1", f"{t.bundle}")
        rows.append((t.name, count, f"{t.down_ports}", f"{t.up_ports}", *above))
    return Table(f"{f.planes} plane{'s' if f.planes > 1 else ''} of {f.switch}", head, tuple(rows))


def _takes(site: str, f: SiteFabric) -> Table:
    at = f"fabric.sites.{site}"
    rows: tuple[tuple[Cell, ...], ...] = (
        ("family", figure(f"{at}.family", f.family, FAMILIES[f.family])),
        ("networks that a NIC is split over", figure(f"{at}.lanes", f.lanes, f"{f.lanes}")),
        ("GPU links that share a port", figure(f"{at}.split", f.split, f"{f.split}")),
        ("switches", figure(f"{at}.switches", f.switches, f"{f.switches:,}")),
        ("links between switches", figure(f"{at}.switch_links", f.switch_links, f"{f.switch_links:,}")),
        ("links to GPUs", figure(f"{at}.endpoint_links", f.endpoint_links, f"{f.endpoint_links:,}")),
        ("cost", figure(f"{at}.cost_usd", f.cost_usd, usd(f.cost_usd))),
        ("power", figure(f"{at}.power_mw", f.power_mw, f"{f.power_mw:,.3g} MW")),
    )
    return Table("What it takes", ("figure", "value"), (*rows, *_border(at, f)))


def _traffic(site: str, f: SiteFabric) -> Table:
    at = f"fabric.sites.{site}"
    pods = "groups" if f.group_links else "pods"
    rows: list[tuple[Cell, ...]] = [
        (pods, f"{f.pods} of {f.rails_per_pod} rails over {f.leaf_domains_per_pod} leaf domains")
    ]
    if f.zones:
        rows.append(("zones", f"{f.zones} of {f.rails_per_zone} rails over {f.leaf_domains_per_zone} leaf domains"))
    if f.group_links:
        rows.append(("links between each two groups", figure(f"{at}.group_links", f.group_links, f"{f.group_links:,}")))
    rows += [
        ("pipeline flows that leave the leaf", f"{100 * f.share_leaving_leaf:.0f} %"),
        (f"pipeline flows that leave the {pods.removesuffix('s')}", f"{100 * f.share_leaving_pod:.0f} %"),
        *((("pipeline flows that leave the zone", f"{100 * f.share_leaving_zone:.0f} %"),) if f.zones else ()),
        ("one pipeline exchange", f"{f.p2p_seconds * 1e3:,.3g} ms, {f.pipeline_send_slowdown:.2f} x ideal"),
    ]
    return Table("Traffic", ("figure", "value"), tuple(rows))


def _border(at: str, f: SiteFabric) -> tuple[tuple[Cell, ...], ...]:
    """Show what takes the wide area, where the fabric has a WAN gateway."""
    if f.wan_gateway is None:
        return ()
    return (
        (
            "WAN gateway switches",
            figure(f"{at}.wan_gateway.switches", f.wan_gateway.switches, f"{f.wan_gateway.switches:,}"),
        ),
        (
            "ports to the wide area",
            figure(f"{at}.wan_gateway.wan_ports", f.wan_gateway.wan_ports, f"{f.wan_gateway.wan_ports:,}"),
        ),
    )


def placement(plan: Plan) -> Iterator[Block]:
    """Show what the leaf domains of each site hold, by kind."""
    p = plan.placement
    if p is None:
        return
    totals: tuple[tuple[Cell, ...], ...] = tuple(
        (told, figure(f"placement.{k}", getattr(p, k), f"{getattr(p, k):,}")) for k, told in GROUPS.items()
    )
    pictures, tables = [], [Table("Groups", ("groups", "count"), totals)]
    for site, held in sorted(p.sites.items()):
        pieces: tuple[tuple[Cell, ...], ...] = tuple(
            (f"{n} piece{'' if n == 1 else 's'}", f"{c:,}") for n, c in by_pieces(held.assignment).items()
        )
        tables.append(Table(f"Groups of {site} by pieces", ("lies in", "groups"), pieces))
        kinds = _kinds(plan, site, held)
        if kinds:
            shown = _merged(kinds)
            drawn = [
                (k.name if n < MOST_KINDS else _others(k), k.domains, k.whole_racks, k.piece_racks, k.idle_racks)
                for n, k in enumerate(shown)
            ]
            pictures.append(
                Picture(
                    leaves(site, drawn), f"Leaf domains of {site}: racks of whole groups, of split groups, and idle."
                )
            )
            tables.append(_kinds_table(site, shown))
    yield Block("Placement by leaf domain", tuple(pictures), tuple(tables))


def _kinds(plan: Plan, site: str, held: SitePlacement) -> list[Kind]:
    f = plan.fabric.sites.get(site) if plan.fabric else None
    racks = (
        next((s.racks for s in plan.sites.sites if s.id == site), None) if plan.sites else plan.instance.hardware.racks
    )
    return (
        []
        if f is None or racks is None
        else kinds_of(held.assignment, racks=racks, leaf_domain_racks=f.leaf_domain_racks)
    )


def _merged(kinds: Sequence[Kind]) -> list[Kind]:
    """Keep the most frequent kinds; the rest become one, with what a domain of them holds on average."""
    if len(kinds) <= MOST_KINDS + 1:
        return list(kinds)
    rest = kinds[MOST_KINDS:]
    n = sum(k.domains for k in rest)
    whole, pieces = (sum(getattr(k, name) * k.domains for k in rest) for name in ("whole", "pieces"))
    racks = [
        sum(getattr(k, name) * k.domains for k in rest) / n for name in ("whole_racks", "piece_racks", "idle_racks")
    ]
    return [*kinds[:MOST_KINDS], Kind(n, whole, racks[0], pieces, racks[1], racks[2])]


def _others(k: Kind) -> str:
    return (
        k.name
        if k.domains == 1
        else f"{k.domains:,} others together: {k.whole} whole, {k.pieces} pieces (bar: their mean)"
    )


def _kinds_table(site: str, kinds: Sequence[Kind]) -> Table:
    head = ("domains", "whole groups", "racks", "pieces", "racks of pieces", "idle racks")
    rows: list[tuple[Cell, ...]] = [
        (
            f"{k.domains:,}",
            f"{k.whole}",
            f"{k.whole_racks:,.4g}",
            f"{k.pieces}",
            f"{k.piece_racks:,.4g}",
            f"{k.idle_racks:,.4g}",
        )
        for k in kinds
    ]
    return Table(f"Leaf domains of {site}, each as the line says", head, tuple(rows))
