"""Rules of the fabric: what can be wired, what it counts to, and what it must hide."""

import math
from collections.abc import Iterator

from planner.checks.network.wan_gateway import left_by_exchange
from planner.checks.rule import Rule, at_most, broken, must_be, must_equal, show
from planner.instance.hardware import Accelerator
from planner.instance.network import Network, Switch
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.links import media_of
from planner.physics.network.locality import Locality, exchange_leaving, expert_racks
from planner.physics.network.plan_design import design_fault
from planner.physics.network.price import bill
from planner.physics.network.topology import Design, unwirable
from planner.physics.network.transport import allreduce_slowdown, pipeline_send_slowdown
from planner.physics.network.wan_gateway import Left
from planner.physics.plan_physics import PlanPhysics, domain_racks
from planner.plan.certificate import Violation
from planner.plan.fabric import SiteFabric
from planner.simulation.reference_tree import factor


def _held(c: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Network]]:
    """Yield the fabrics of the plan's sites."""
    if c.plan.fabric is not None and c.instance.network is not None:
        for s, f in sorted(c.plan.fabric.sites.items()):
            if s in c.racks_by_site:
                yield s, f, c.instance.network


def _wired(c: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Network, Design]]:
    """Yield the fabrics that have counts."""
    for s, f, network in _held(c):
        if s in c.wired:
            yield s, f, network, c.wired[s]


def every_site(c: PlanPhysics) -> Iterator[Violation]:
    """Give every site a fabric, and nothing else one."""
    held = set(c.plan.fabric.sites) if c.plan.fabric else set()
    for s in sorted(held ^ set(c.racks_by_site)) if c.plan.fabric else ():
        yield broken(f"every_site[{s}]", f"{int(s in held)} fabrics, {int(s in c.racks_by_site)} expected")


def switch(c: PlanPhysics) -> Iterator[Violation]:
    """Build from a switch that the instance offers and whose ports carry a NIC."""
    gpu = c.instance.hardware.accelerator
    for s, f, network in _held(c):
        rule = f"switch[{s}]"
        if f.family not in network.families:
            yield broken(rule, f"family {f.family} is none of {', '.join(network.families)}")
        yield from at_most(rule, f.lanes, network.max_lanes, "lanes", "lanes allowed")
        if f.switch not in c.switches:
            yield broken(
                rule, f"{f.switch!r} is none of the instance's {len(c.switches)}: {', '.join(sorted(c.switches))}"
            )
            continue
        held = c.switches[f.switch]
        yield from must_equal(rule, "planes", f.planes, held.planes * f.lanes)
        yield from must_equal(rule, "ports_per_switch", f.ports_per_switch, held.ports)
        nic = gpu.nic_bytes_per_second * 8 / 1e9 if isinstance(gpu, Accelerator) else 0.0
        yield from at_most(rule, f.split, held.breakout, "parts of a port", "parts that it can be split into")
        yield from at_most(
            rule, nic * max(1, f.split), held.port_gbps * f.lanes, "Gbps of the NICs at a port", "Gbps of the ports"
        )


def wirable(c: PlanPhysics) -> Iterator[Violation]:
    """Fit every tier into its ports, with equal bundles, each endpoint reaching every other."""
    for s, f, network in _held(c):
        fault = design_fault(f, c.racks_by_site[s])
        if fault:
            yield broken(f"wirable[{s}]", fault)
        elif s in c.designs:
            yield from (broken(f"wirable[{s}]", reason) for reason in unwirable(c.designs[s], cross_rail=True))
        yield from at_most(f"wirable[{s}]", len(f.tiers), network.max_tiers, "tiers", "tiers allowed")


def _tiers(d: Design) -> dict[str, tuple[int, int, int, float, int]]:
    """Return switches, ports down, ports up, oversubscription and bundle of each tier that a design has."""
    down = d.endpoint_links // d.networks if d.single else d.leaf_down
    up = d.up_ports if isinstance(d, Dragonfly) else d.leaf_up
    found = {"leaf": (d.leaves, down, up, d.leaf_oversubscription, d.leaf_bundle)}
    if d.tiers > 1:
        found["spine"] = d.spines, d.spine_down, d.spine_up, d.spine_oversubscription, d.spine_bundle
    if d.tiers > 2:
        found["core"] = d.cores, d.core_down, d.core_up, d.core_oversubscription, d.core_bundle
    if d.tiers > 3:
        found["super-core"] = d.super_cores, d.zones * d.core_bundle, 0, 1.0, 0
    return found


def tiers(c: PlanPhysics) -> Iterator[Violation]:
    """Count the switches of each tier, their ports and oversubscription as the wiring makes them."""
    for s, f, _, d in _wired(c):
        found = _tiers(d)
        for t in f.tiers:
            rule, stated = f"tiers[{s}, {t.name}]", (t.switches, t.down_ports, t.up_ports, t.oversubscription, t.bundle)
            for what, a, b in zip(
                ("switches", "down_ports", "up_ports", "oversubscription", "bundle"), stated, found[t.name], strict=True
            ):
                yield from must_equal(rule, what, a, b)


def counts(c: PlanPhysics) -> Iterator[Violation]:
    """Count boxes, chips, cables, leaf domains, pods and zones as the wiring makes them."""
    for s, f, _, d in _wired(c):
        planes = c.switches[f.switch].planes
        found = {
            "switches": d.switches,
            "chips": d.switches * planes,
            "switch_links": d.switch_links,
            "endpoint_links": d.endpoint_links,
        }
        found |= {
            "leaf_domain_racks": domain_racks(d),
            "leaf_domains": d.domains,
            "pods": d.pods,
            "zones": d.zones,
            "leaf_spare_ports": d.leaf_spare,
        }
        found["group_links"] = d.group_links if isinstance(d, Dragonfly) else 0
        for name, value in found.items():
            yield from must_equal(f"counts[{s}]", name, getattr(f, name), value)


def core_share(c: PlanPhysics) -> Iterator[Violation]:
    """Let the least share of a full pod's rate leave it, and of a full zone's where there are several, that the instance asks for."""
    for s, _, network, d in _wired(c):
        pod = "pod", d.pods, d.rails_per_pod * d.domains_per_pod, d.pod_uplinks
        zone = "zone", d.zones, d.rails_per_zone * d.domains_per_zone, d.zone_uplinks
        for block, blocks, leaves, links in (pod, zone):
            ends, up = d.leaf_down * leaves, float(links * d.split)
            asked, held = f"of {ends:,} ports may leave a {block}", f"ports' worth of a {block}'s uplinks"
            yield from at_most(f"core_share[{s}]", network.min_core_share * ends, up, asked, held) if blocks > 1 else ()


def priced(network: Network, box: Switch, d: Design) -> float:
    """Price a design."""
    return bill(network, box, d).usd


def price_and_power(c: PlanPhysics) -> Iterator[Violation]:
    """State cost and power as boxes and cables add up to."""
    for s, f, network, d in _wired(c):
        found = bill(network, c.switches[f.switch], d)
        if found.usd == math.inf:
            reach = max(m.reach_m for m in media_of(network))
            yield broken(
                f"price_and_power[{s}]",
                f"cables longer than {show(reach)} m, the longest reach of {len(network.media)} media",
            )
            continue
        yield from must_equal(f"price_and_power[{s}]", "cost_usd", f.cost_usd, found.usd, " USD")
        yield from must_equal(f"price_and_power[{s}]", "power_mw", f.power_mw, found.mw, " MW")


def _hop(transport_slowdown: float, d: Design, x: Locality, left: Left) -> float:
    """Return the slowdown of the exchange that a placement causes on what is left of the uplinks."""
    return pipeline_send_slowdown(
        transport_slowdown, d, x.share_leaving_leaf, x.share_leaving_pod, x.share_leaving_zone, left=left
    )


def _ring(transport_slowdown: float, d: Design, x: Locality, left: Left) -> float:
    """Return the slowdown of the rings that a placement causes on what is left of the uplinks."""
    return allreduce_slowdown(
        transport_slowdown, d, x.rings_leaving_leaf, x.rings_leaving_pod, x.rings_leaving_zone, left=left
    )


def slowdowns(c: PlanPhysics) -> Iterator[Violation]:
    """State what the placement sends up, and how the uplinks slow it."""
    for s, f, _, d in _wired(c):
        if s not in c.crossings:
            continue
        x, left, rule = c.crossings[s], left_by_exchange(c, s, d), f"slowdowns[{s}]"
        yield from must_equal(rule, "share_leaving_leaf", f.share_leaving_leaf, x.share_leaving_leaf)
        yield from must_equal(rule, "share_leaving_pod", f.share_leaving_pod, x.share_leaving_pod)
        yield from must_equal(rule, "share_leaving_zone", f.share_leaving_zone, x.share_leaving_zone)
        yield from must_equal(
            rule, "pipeline_send_slowdown", f.pipeline_send_slowdown, _hop(c.transport_slowdown, d, x, left)
        )
        yield from must_equal(rule, "allreduce_slowdown", f.allreduce_slowdown, _ring(c.transport_slowdown, d, x, left))
        if c.metrics is not None:
            yield from must_equal(
                rule, "p2p_seconds", f.p2p_seconds, c.metrics.pipeline_send_nic_seconds * f.pipeline_send_slowdown, " s"
            )


def hidden_exchange(c: PlanPhysics) -> Iterator[Violation]:
    """Hide the pipeline exchange behind compute, or add nothing to it but the transport's own slowdown."""
    for s, _, _, d in _wired(c):
        if c.metrics is not None and s in c.crossings:
            m, left = c.metrics, left_by_exchange(c, s, d)
            took = m.pipeline_send_nic_seconds * _hop(c.transport_slowdown, d, c.crossings[s], left)
            allowed = max(m.pipeline_send_window_seconds, m.pipeline_send_nic_seconds * c.transport_slowdown)
            yield from at_most(f"hidden_exchange[{s}]", took, allowed, "s of pipeline exchange", "s that hide it")


def hidden_allreduce(c: PlanPhysics) -> Iterator[Violation]:
    """Hide the rings between racks behind the backward pass, or add nothing to them but the transport's own slowdown."""
    for s, _, _, d in _wired(c):
        if c.metrics is not None and s in c.crossings:
            m, left = c.metrics, left_by_exchange(c, s, d)
            took = m.allreduce_layer_seconds * _ring(c.transport_slowdown, d, c.crossings[s], left)
            allowed = max(m.allreduce_window_seconds, m.allreduce_layer_seconds * c.transport_slowdown)
            yield from at_most(f"hidden_allreduce[{s}]", took, allowed, "s of a layer's all-reduce", "s that hide it")


def transport_factor(c: PlanPhysics) -> Iterator[Violation]:
    """Record the transport's simulated slowdown as a replay of its runs finds it, and only where the instance asks for one."""
    stated, found = c.plan.transport, factor(c.instance.network)
    if stated is None or found is None:
        if stated is not found:
            yield broken(
                "transport_factor",
                f"{int(stated is not None)} factors held, {int(found is not None)} asked for by the instance",
            )
        return
    yield from must_equal("transport_factor", "slowdown", stated.slowdown, found.slowdown)
    for name in sorted(set(type(found).model_fields) - {"slowdown"}):
        yield from must_be("transport_factor", name, getattr(stated, name), getattr(found, name))


def hidden_alltoall(c: PlanPhysics) -> Iterator[Violation]:
    """Slow the all-to-all of experts on several racks, which nothing hides, by no more than the transport itself does."""
    held = c.plan.layout
    for s, _, _, d in _wired(c):
        if held is not None and s in c.crossings:
            group, domains = (
                expert_racks(held.expert_parallel, c.gpus_per_rack),
                (1, max(1, d.domains_per_pod), max(1, d.domains_per_zone)),
            )
            shares = [exchange_leaving(c.stages[s], domain_racks(d) * n, group) for n in domains]
            took = pipeline_send_slowdown(
                c.transport_slowdown,
                d,
                shares[0],
                shares[1],
                shares[2] if d.zones else 0.0,
                left=left_by_exchange(c, s, d),
            )
            yield from at_most(
                f"hidden_alltoall[{s}]",
                took,
                c.transport_slowdown,
                f"times the ideal all-to-all of {group} racks",
                "that the transport takes",
            )


def pins(c: PlanPhysics) -> Iterator[Violation]:
    """Keep what was fixed by hand."""
    fixed = {k: v for k, v in sorted(c.instance.pins.items()) if k.startswith("fabric.")}
    for s, f, _ in _held(c):
        leaf, spine, core = (f.tiers[n] if len(f.tiers) > n else None for n in range(3))
        held = {
            "fabric.planes": f.planes,
            "fabric.ports_per_switch": f.ports_per_switch,
            "fabric.tiers": len(f.tiers),
            "fabric.leaf_domain_racks": f.leaf_domain_racks,
            "fabric.leaf_down_ports": leaf.down_ports if leaf else 0,
            "fabric.leaf_up_ports": leaf.up_ports if leaf else 0,
            "fabric.spine_down_ports": spine.down_ports if spine else 0,
            "fabric.spine_up_ports": spine.up_ports if spine else 0,
            "fabric.core_down_ports": core.down_ports if core else 0,
            "fabric.core_up_ports": core.up_ports if core else 0,
        }
        for path, value in fixed.items():
            yield from must_be(f"pins[{path}]", f"{path} at {s}", held.get(path), value)


RULES: tuple[Rule, ...] = (
    every_site, switch, wirable, tiers, counts, core_share, price_and_power, transport_factor, slowdowns, hidden_exchange, hidden_allreduce,
    hidden_alltoall, pins,
)  # fmt: skip
