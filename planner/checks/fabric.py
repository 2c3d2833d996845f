"""Rules of the fabric: every port and cable counted again, and the layout's traffic hidden."""

from collections.abc import Iterator

from planner.checks.compare import at_most, equal, pinned, same
from planner.checks.layout import racks_by_site
from planner.checks.placement import ranks_of
from planner.handoff import resolved_switches
from planner.instance import Network, Switch
from planner.physics import cost, transport
from planner.physics.locality import Locality, locality
from planner.physics.power import rack_of
from planner.physics.wiring import Design, unwirable
from planner.plan import Plan, SiteFabric, Violation


def check_fabric(plan: Plan) -> Iterator[Violation]:
    """Check the fabric of every site."""
    network, held = plan.instance.network, plan.fabric
    if network is None or held is None:
        return
    racks = racks_by_site(plan)
    yield from equal("fabric_sites", sorted(held.sites), sorted(racks), "sites with a fabric")
    for site, f in sorted(held.sites.items()):
        if site in racks:
            yield from one_site(plan, network, site, racks[site], f)


def one_site(plan: Plan, network: Network, site: str, racks: int, f: SiteFabric) -> Iterator[Violation]:
    """Rebuild the design from its tiers and check each of its figures."""
    switch = next((s for s in resolved_switches(network.switches) if s.name == f.switch), None)
    if switch is None or not f.tiers or any(t.down_ports < 1 for t in f.tiers) or (len(f.tiers) > 1 and f.tiers[0].bundle < 1):
        yield Violation(rule=f"fabric[{site}]", message=f"{f.switch} with {len(f.tiers)} tiers is no design of the instance's switches")
        return
    design = design_of(f, switch, rack_of(plan.instance.hardware).gpus, racks)
    for problem in unwirable(design, cross_rail=True):
        yield Violation(rule=f"wiring[{site}]", message=problem)
    if f.leaf_domains_per_pod < 1 and len(f.tiers) > 1:
        return
    yield from at_most(f"tiers[{site}]", len(f.tiers), network.max_tiers, "tiers")
    yield from counts(network, switch, site, design, f)
    yield from fabric_pins(plan, f)
    yield from traffic(plan, network, site, design, f)


def design_of(f: SiteFabric, switch: Switch, rails: int, racks: int) -> Design:
    """Read the choices back from the tiers; the counts follow from them and not from the plan."""
    leaf = f.tiers[0]
    spine = f.tiers[1] if len(f.tiers) > 1 else None
    return Design(
        ports=switch.ports,
        rails=rails,
        racks=racks,
        leaf_down=f.leaf_domain_racks if spine else leaf.down_ports,
        leaf_up=leaf.up_ports,
        leaf_bundle=leaf.bundle,
        rails_per_pod=f.rails_per_pod,
        domains_per_pod=f.leaf_domains_per_pod,
        spine_up=spine.up_ports if spine else 0,
        spine_bundle=spine.bundle if spine else 0,
    )


def counts(network: Network, switch: Switch, site: str, d: Design, f: SiteFabric) -> Iterator[Violation]:
    """Count boxes, chips, cables, dollars and watts again."""
    rule = f"counts[{site}]"
    boxes = [d.leaves, d.spines, d.cores][: len(f.tiers)]
    for tier, n in zip(f.tiers, boxes, strict=False):
        yield from equal(f"counts[{site}.{tier.name}]", tier.switches, n, f"{tier.name} switches")
    yield from equal(rule, tuple(t.name for t in f.tiers), ("leaf", "spine", "core")[: d.tiers], "tiers")
    if d.tiers > 1:
        yield from equal(rule, f.tiers[0].down_ports, d.leaf_down, "leaf down ports")
        yield from equal(rule, f.tiers[1].down_ports, d.spine_down, "spine down ports")
        yield from same(rule, f.tiers[0].oversubscription, d.leaf_oversubscription, "oversubscription of the leaf")
        yield from same(rule, f.tiers[1].oversubscription, d.spine_oversubscription, "oversubscription of the spine")
        yield from equal(rule, f.leaf_domains, d.domains, "leaf domains")
        yield from equal(rule, f.pods, d.pods, "pods")
    yield from equal(rule, (f.planes, f.ports_per_switch), (switch.planes, switch.ports), "planes and ports")
    yield from equal(rule, f.switches, d.switches, "switches")
    yield from equal(rule, f.chips, d.switches * switch.planes, "chips")
    yield from equal(rule, f.switch_links, d.switch_links, "links between switches")
    yield from equal(rule, f.endpoint_links, d.endpoint_links, "links to GPUs")
    each = {"switches": d.switches, "switch_links": d.switch_links, "endpoint_links": d.endpoint_links}
    yield from same(f"fabric_cost[{site}]", f.cost_usd, cost.fabric_usd(network, switch, **each), "cost_usd")
    yield from same(f"fabric_power[{site}]", f.power_mw, cost.fabric_mw(network, switch, **each), "power_mw")


def crossings(plan: Plan, site: str, f: SiteFabric) -> Locality | None:
    """Measure what the placement sends across leaves and pods; None where it cannot be read."""
    if plan.placement is None or plan.layout is None or site not in plan.placement.sites:
        return None
    ranks = ranks_of(plan.placement.sites[site], plan.layout.pipeline_parallel)
    if ranks is None:
        return None
    size, per_pod = max(1, f.leaf_domain_racks), max(1, f.leaf_domains_per_pod)
    return locality(ranks, leaf_domain_racks=size, domains_per_pod=per_pod, wrap=plan.layout.virtual_stages > 1)


def traffic(plan: Plan, network: Network, site: str, d: Design, f: SiteFabric) -> Iterator[Violation]:
    """Recompute the slowdowns from the placement and require what the layout sends to stay hidden."""
    where = crossings(plan, site, f)
    if where is None or plan.layout is None:
        return
    rule, m, phi = f"traffic[{site}]", plan.layout.metrics, network.transport.slowdown
    podded = 0 < d.domains_per_pod < d.domains
    yield from same(rule, f.share_leaving_leaf, where.share_leaving_leaf, "share leaving the leaf")
    yield from same(rule, f.share_leaving_pod, where.share_leaving_pod, "share leaving the pod")
    hop = transport.hop_slowdown(network, d, where.share_leaving_leaf, where.share_leaving_pod if podded else 0.0)
    ring = transport.allreduce_slowdown(network, d, where.rings_leaving_leaf, where.rings_leaving_pod if podded else 0)
    yield from same(rule, f.hop_slowdown, hop, "hop_slowdown")
    yield from same(rule, f.allreduce_slowdown, ring, "allreduce_slowdown")
    yield from same(rule, f.p2p_seconds, m.hop_nic_seconds * hop, "p2p_seconds")
    yield from at_most(f"hidden_exchange[{site}]", f.p2p_seconds, max(m.hop_window_seconds, m.hop_nic_seconds * phi), "pipeline exchange", " s")
    layer = m.allreduce_layer_seconds
    yield from at_most(f"hidden_allreduce[{site}]", layer * f.allreduce_slowdown, max(m.allreduce_window_seconds, layer * phi), "ring of a layer", " s")


def fabric_pins(plan: Plan, f: SiteFabric) -> Iterator[Violation]:
    """Keep what is pinned."""
    spine = f.tiers[1] if len(f.tiers) > 1 else None
    held: dict[str, object] = {
        "planes": f.planes,
        "ports_per_switch": f.ports_per_switch,
        "tiers": len(f.tiers),
        "leaf_domain_racks": f.leaf_domain_racks,
        "leaf_down_ports": f.tiers[0].down_ports,
        "leaf_up_ports": f.tiers[0].up_ports,
        "spine_down_ports": spine.down_ports if spine else 0,
        "spine_up_ports": spine.up_ports if spine else 0,
    }
    yield from pinned(plan.instance.pins, "fabric", held)
