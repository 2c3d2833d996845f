"""Statements on the fabric of every site, its transport, and where all-reduce groups stand in it."""

from collections.abc import Iterator, Sequence

from planner.plan.fabric import SiteFabric, Tier
from planner.plan.plan import Plan
from planner.report.statements.statement import Statement, short_percent
from planner.units import counted, money

TIER_NAMES = {"leaf": "leaves", "spine": "spines", "core": "cores", "super-spine": "super-spines"}
NAMED_SITES = 2  # whose fabrics are on the first screen
AT_LINE_RATE = 0.005  # relative: of a slowdown


def fabric(plan: Plan) -> Iterator[Statement]:
    """State each site's switches by tier, what they cost, and how pipeline sends fare in them."""
    if plan.fabric is None:
        return
    by_site = sorted(plan.fabric.sites.items())
    for n, (site, f) in enumerate(by_site):
        family = "" if f.family == "rail" else f" ({f.family})"
        text = f"{site}{family}: {', '.join(tier_words(t, f) for t in f.tiers)}; {money(f.cost_usd)}"
        yield Statement("choice", "fabric", text, n < NAMED_SITES, path=f"fabric.sites.{site}.tiers")
    if rest := by_site[NAMED_SITES:]:
        usd = money(sum(f.cost_usd for _, f in rest))
        text = f"{counted(len(rest), 'more fabric')} ({', '.join(site for site, _ in rest)}): {usd}"
        yield Statement("choice", "fabric", text, True)
    yield Statement("figure", "fabric", _sends([f for _, f in by_site]), True, path="fabric.sites")
    for site, f in by_site:
        yield from _site_fabric(site, f)


def _site_fabric(site: str, f: SiteFabric) -> Iterator[Statement]:
    """State at length what a site's fabric takes, how traffic fares in it, and its gateway."""
    path = f"fabric.sites.{site}"
    takes = f"{counted(f.planes, 'plane')} of {f.boxes}; {f.switches:,} switches, {f.switch_links:,} links"
    wired = f"; {f.wired_gpus_per_rack} GPUs of a rack cabled" if f.wired_gpus_per_rack else ""
    racks = f"{counted(f.leaf_domain_racks, 'rack')} under a leaf{wired}"
    yield Statement("figure", "fabric", f"{site}: {takes}; {racks}", path=f"{path}.switches")
    rings = f"all-reduces {_over(f.allreduce_slowdown)}"
    yield Statement("figure", "fabric", f"{site}: {_sends([f]).lower()}; {rings}", path=f"{path}.p2p_seconds")
    if f.shared_links:
        worst = max(f.shared_links, key=lambda x: x.together_slowdown)
        link = {"nic": "NICs"}.get(worst.link, f"uplinks of a {worst.link}")
        text = f"{site}: where the schedule lets sends and rings meet, the {link} take {_over(worst.together_slowdown)}"
        yield Statement("figure", "fabric", text, path=f"{path}.shared_links")
    if (g := f.wan_gateway) is not None:
        ports = f"{counted(g.wan_ports, 'port')} to the wide area, {g.uplinks:,} up"
        text = f"{site}: WAN gateway of {g.wan_gbps:,.0f} Gbps: {counted(g.switches, 'switch')}, {ports}"
        yield Statement("choice", "fabric", f"{text}, {money(g.cost_usd)}", path=f"{path}.wan_gateway")


def _sends(fabrics: Sequence[SiteFabric]) -> str:
    """Write the longest pipeline send of some sites, and the largest shares that leave leaf, pod and zone."""
    slowest = max(fabrics, key=lambda f: f.p2p_seconds)
    send = f"Pipeline sends {slowest.p2p_seconds * 1e3:.3g} ms, {_over(slowest.pipeline_send_slowdown)}"
    f = max(fabrics, key=lambda f: (f.share_leaving_leaf, f.share_leaving_pod))
    if not f.share_leaving_leaf:
        return f"{send}; none cross leaves"
    others = [("groups" if f.group_links else "pods", f.share_leaving_pod)]
    others += [("zones", f.share_leaving_zone)] if f.zones else []
    more = [f"{short_percent(share) if share else 'none'} {name}" for name, share in others]
    return f"{send}; {', '.join([f'{short_percent(f.share_leaving_leaf)} cross leaves', *more])}"


def tier_words(t: Tier, f: SiteFabric) -> str:
    """Write a tier: its switches, their model where tiers differ, of leaves the ports, and ports down to ports up."""
    name = f"{t.switches:,} {t.name if t.switches == 1 else TIER_NAMES[t.name]}"
    name += f" of {t.switch}" if f.boxes != f.switch else ""
    ports = f"{t.down_ports} down, {t.up_ports} up, " if t.name == "leaf" else ""
    return f"{name} ({ports}{t.oversubscription:.3g}:1)" if t.up_ports else name


def _over(slowdown: float) -> str:
    if slowdown < 1 + AT_LINE_RATE:
        return "at line rate"
    slower = f"{100 * (slowdown - 1):.0f} % slower than line rate"
    return slower if slowdown < 2 else f"{slowdown:.2f} times its time at line rate"


def transport(plan: Plan) -> Iterator[Statement]:
    """State the slowdown of the transport that was simulated, and the constant that it replaces."""
    if (x := plan.transport) is not None:
        tree = f"{x.pattern} of {x.hosts:,} hosts, {x.tiers} tiers of {x.switch}"
        runs = f"percentile {x.percentile:g} of {x.seeds} seeds, {tree}"
        text = f"{x.transport}: {x.slowdown:.3f} times the fluid ideal ({runs}), in place of {x.configured_slowdown:g}"
        yield Statement("figure", "transport", text, source="simulated", path="transport.slowdown")


def placement(plan: Plan) -> Iterator[Statement]:
    """State how many all-reduce groups stay under one leaf, and the order of racks."""
    x = plan.placement
    if x is None:
        return
    text = groups(x.groups, x.groups_leaf_local, x.lower_bound_split, x.extra_pieces)
    yield Statement("figure", "placement", text, True, path="placement.groups_leaf_local")
    if x.groups_cross_pod:
        text = f"{x.groups_cross_pod:,} of {x.groups:,} all-reduce groups cross pods"
        yield Statement("figure", "placement", text, path="placement.groups_cross_pod")
    for site, stripes in sorted(x.stripes.items()):
        blocks = f"{x.blocks_by_site.get(site, 0):,} blocks of {counted(x.block_racks, 'rack')}"
        order = "whole pipelines side by side" if stripes == 1 else f"in {stripes} stripes of stages"
        yield Statement("choice", "placement", f"{site}: {blocks}, {order}", path=f"placement.stripes.{site}")


def groups(total: int, local: int, unavoidable: int, extra: int) -> str:
    """Write how many of all all-reduce groups stay under one leaf, and into how many fragments the others fall."""
    split, every = total - local, "The one all-reduce group" if total == 1 else f"All {total:,} all-reduce groups"
    verb = "s" if total == 1 else ""
    if not split:
        return f"{every} stay{verb} under one leaf"
    fragments = f"({f'{unavoidable:,}' if unavoidable else 'none'} unavoidable): {split + extra:,} fragments"
    if not local:
        return f"{every} span{verb} several leaves {fragments}"
    return f"{local:,} of {total:,} all-reduce groups stay under one leaf; {split:,} span several {fragments}"
