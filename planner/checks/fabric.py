"""Rules of the fabric: it can be wired, its counts are right, it meets the instance's limits, and it hides traffic.

A fabric requested alone is built of the offered parts, cables every host, and is the cheapest of its kinds (`ALONE`).
"""

import math
from collections.abc import Iterator

from planner.checks import cables
from planner.checks.cables import free_by_exchange
from planner.checks.rule import Rule, at_most, broken, must_be, must_equal, show
from planner.instance.instance import instance_sha256
from planner.instance.network import Network
from planner.physics.network.families import design_fault
from planner.physics.network.links import media_of
from planner.physics.network.price import Bill, bill
from planner.physics.network.topology import Design, unwirable
from planner.physics.network.transport import (
    FreeUplinks,
    Locality,
    allreduce_slowdown,
    exchange_leaving,
    pipeline_send_slowdown,
)
from planner.physics.plan_physics import CLUSTER, PlanPhysics
from planner.physics.training.parallel_strategy import strategy_of
from planner.plan.certificate import Violation
from planner.plan.plan_sections import SiteFabric
from planner.simulation.flow_times import factor

TIER_FIGURES = ("switches", "down_ports", "up_ports", "oversubscription", "bundle")


def _fabrics(c: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Network]]:
    if c.plan.fabric is not None and c.instance.network is not None:
        for s, f in sorted(c.plan.fabric.sites.items()):
            if s in c.racks_by_site:
                yield s, f, c.instance.network


def _wired(c: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Network, Design]]:
    for s, f, network in _fabrics(c):
        if s in c.wired:
            yield s, f, network, c.wired[s]


def _placed(c: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Design, Locality, FreeUplinks]]:
    """Yield the fabrics with a placement: its traffic out of leaves, pods and zones, and the uplinks left free.

    The exchange between sites takes the other uplinks.
    """
    for s, f, _, d in _wired(c):
        if s in c.crossings:
            yield s, f, d, c.crossings[s], free_by_exchange(c, s, d)


def every_site(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every site with replicas has a fabric, and nothing else has one."""
    stated = set(c.plan.fabric.sites) if c.plan.fabric else set()
    wanted = {s for s in c.racks_by_site if s in c.replicas}
    for s in sorted(stated ^ wanted) if c.plan.fabric else ():
        yield broken(f"every_site[{s}]", f"{int(s in stated)} fabrics, {int(s in wanted)} expected")


def switch(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the fabric is built from a switch of the instance whose ports carry a NIC."""
    nic_gbps = c.instance.hardware.gpu_nic_bytes_per_second * 8 / 1e9
    for s, f, network in _fabrics(c):
        rule = f"switch[{s}]"
        if f.family not in network.families:
            yield broken(rule, f"family {f.family} is none of {', '.join(network.families)}")
        yield from at_most(rule, f.lanes, network.max_lanes, "lanes", "lanes allowed")
        unknown = {f.switch, *f.models} - set(c.switches)
        if unknown:
            known = f"the instance's {len(c.switches)}: {', '.join(sorted(c.switches))}"
            yield from (broken(rule, f"{name!r} is none of {known}") for name in sorted(unknown))
            continue
        leaf = c.switches[f.switch]
        for t in f.tiers:
            model = c.switches[t.switch or f.switch]
            if t.name == "leaf":
                yield from must_be(rule, "switch of the leaf tier", model.name, f.switch)
            for name in ("port_gbps", "planes", "link_factor"):
                yield from must_equal(
                    rule, f"{name} of a {t.name} under those of a leaf", getattr(model, name), getattr(leaf, name)
                )
        offered = c.switches[f.switch]
        yield from must_equal(rule, "planes", f.planes, offered.planes * f.lanes)
        yield from must_equal(rule, "ports_per_switch", f.ports_per_switch, offered.ports)
        yield from at_most(rule, f.split, offered.breakout, "parts of a port", "parts that it can be split into")
        need, rate = nic_gbps * max(1, f.split), offered.port_gbps * f.lanes
        yield from at_most(rule, need, rate, "Gbps of the NICs at a port", "Gbps of the ports")


def wirable(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every tier fits its ports, with equal bundles, and each endpoint reaches every other."""
    for s, f, network in _fabrics(c):
        fault = design_fault(f, c.cabled_racks(s))
        if fault:
            yield broken(f"wirable[{s}]", fault)
        elif s in c.designs:
            yield from (broken(f"wirable[{s}]", reason) for reason in unwirable(c.designs[s], cross_rail=True))
        yield from at_most(f"wirable[{s}]", len(f.tiers), network.max_tiers, "tiers", "tiers allowed")


def _tiers(d: Design) -> dict[str, tuple[int, int, int, float, int]]:
    down = d.endpoint_links // d.networks if d.single else d.leaf_down
    figures = {"leaf": (d.leaves, down, d.up_ports, d.leaf_oversubscription, d.leaf_bundle)}
    if d.tiers > 1:
        figures["spine"] = d.spines, d.spine_down, d.spine_up, d.spine_oversubscription, d.spine_bundle
    if d.tiers > 2:
        figures["core"] = d.cores, d.core_down, d.core_up, d.core_oversubscription, d.core_bundle
    if d.tiers > 3:
        figures["super-spine"] = d.super_spines, d.super_spine_down, 0, 1.0, 0
    return figures


def tiers(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the switches of each tier, their ports and oversubscription are as the wiring makes them."""
    for s, f, _, d in _wired(c):
        figures = _tiers(d)
        for t in f.tiers:
            for name, figure in zip(TIER_FIGURES, figures[t.name], strict=True):
                yield from must_equal(f"tiers[{s}, {t.name}]", name, getattr(t, name), figure)


def counts(c: PlanPhysics) -> Iterator[Violation]:
    """Check that switches, chips, cables, leaf domains, pods and zones are counted as the wiring makes them."""
    for s, f, _, d in _wired(c):
        figures = {
            "switches": d.switches,
            "chips": d.switches * c.switches[f.switch].planes,
            "switch_links": d.switch_links,
            "endpoint_links": d.endpoint_links,
            "leaf_domain_racks": d.domain_racks,
            "leaf_domains": d.domains,
            "pods": d.pods,
            "zones": d.zones,
            "leaf_spare_ports": d.leaf_spare,
            "group_links": d.group_links,
        }
        for name, value in figures.items():
            yield from must_equal(f"counts[{s}]", name, getattr(f, name), value)


def core_share(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the share of its rate that the instance asks for can leave a full leaf, pod and zone.

    A switch that holds every endpoint has nothing above it that could be narrower.
    """
    for s, _, network, d in _wired(c):
        yield from share_out(f"core_share[{s}]", network.min_core_share, d)


def share_out(rule: str, least: float, d: Design) -> Iterator[Violation]:
    """Check that the share `least` of a full leaf's, pod's and zone's rate can leave it where there are several."""
    if not d.single:
        what, room = f"of {d.leaf_down:,} ports may leave a leaf", "ports' worth of a leaf's uplinks"
        yield from at_most(rule, least * d.leaf_down, float(d.least_up_ports * d.split), what, room)
    pod = "pod", d.pods, d.rails_per_pod * d.domains_per_pod, d.pod_uplinks
    zone = "zone", d.zones, d.rails_per_zone * d.domains_per_zone, d.zone_uplinks
    for block, blocks, leaves, links in (pod, zone):
        ends, up = d.leaf_down * leaves, float(links * d.split)
        share, uplinks = f"of {ends:,} ports may leave a {block}", f"ports' worth of a {block}'s uplinks"
        if blocks > 1:
            yield from at_most(rule, least * ends, up, share, uplinks)


def priced(c: PlanPhysics, network: Network, f: SiteFabric, d: Design) -> Bill:
    """Recompute the price and power of a fabric from its design and the model of each tier."""
    return bill(network, c.switches[f.switch], d, c.above(f))


def price_and_power(c: PlanPhysics) -> Iterator[Violation]:
    """Check that cost in USD and power in MW are the sums over switches and cables."""
    for s, f, network, d in _wired(c):
        rule, price = f"price_and_power[{s}]", priced(c, network, f, d)
        if price.usd == math.inf:
            reach = max(m.reach_m for m in media_of(network))
            media = f"the longest reach of {len(network.media)} media"
            yield broken(rule, f"cables longer than {show(reach)} m, {media}")
            continue
        yield from must_equal(rule, "cost_usd", f.cost_usd, price.usd, " USD")
        yield from must_equal(rule, "power_mw", f.power_mw, price.mw, " MW")


def slowdowns(c: PlanPhysics) -> Iterator[Violation]:
    """Check the stated shares of traffic out of leaves, pods and zones, and the slowdowns by the uplinks."""
    for s, f, d, x, free in _placed(c):
        figures = {
            "share_leaving_leaf": x.share_leaving[0],
            "share_leaving_pod": x.share_leaving[1],
            "share_leaving_zone": x.share_leaving[2],
            "pipeline_send_slowdown": pipeline_send_slowdown(c.transport_slowdown, d, *x.share_leaving, free=free),
            "allreduce_slowdown": allreduce_slowdown(c.transport_slowdown, d, *x.allreduces_leaving, free=free),
        }
        for name, value in figures.items():
            yield from must_equal(f"slowdowns[{s}]", name, getattr(f, name), value)
        if c.metrics is not None:
            seconds = c.metrics.pipeline_send_nic_seconds * f.pipeline_send_slowdown
            yield from must_equal(f"slowdowns[{s}]", "p2p_seconds", f.p2p_seconds, seconds, " s")


def cabled(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the racks that carry replicas are cabled, with the GPUs of each that work."""
    layout = c.plan.layout
    if layout is None or c.faults:
        return
    own = layout.stages_per_rack * layout.replicas_per_rack * strategy_of(layout).shape.gpus
    work = -(-own // layout.racks_per_replica)
    for s, _, _ in _fabrics(c):
        rule, racks, gpus = f"cabled[{s}]", c.cabled_racks(s), c.wired_gpus_per_rack(s)
        yield from at_most(rule, c.racks_in_use.get(s, 0), racks, "racks carry replicas", "racks are cabled")
        yield from at_most(rule, racks, c.racks_by_site[s], "racks are cabled", "racks at the site")
        yield from at_most(rule, work, gpus, "GPUs of a rack work", "GPUs of a rack are cabled")
        yield from at_most(rule, gpus, c.gpus_per_rack, "GPUs of a rack are cabled", "GPUs in a rack")


def unit_exchange(c: PlanPhysics) -> Iterator[Violation]:
    """Check that CP groups and experts on several racks, timed at the transport's own slowdown, meet no other.

    Racks of one unit exchange keys and values, or tokens, all with all; what of it leaves a leaf, a pod or a zone
    shares uplinks.
    """
    layout = c.plan.layout
    if layout is None or c.faults:
        return
    group = strategy_of(layout).unit_racks(c.gpus_per_rack)
    for s, _, d, _, free in _placed(c):
        domains = (1, max(1, d.domains_per_pod), *([d.domains_per_zone] if d.zones else []))
        shares = [exchange_leaving(c.stages[s], d.domain_racks * n, group) for n in domains]
        took = pipeline_send_slowdown(c.transport_slowdown, d, *shares, free=free)
        what = f"times the ideal exchange of {group} racks"
        yield from at_most(f"unit_exchange[{s}]", took, c.transport_slowdown, what, "that the transport takes")


def transport_factor(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the transport's slowdown is that of a repeated simulation, and stated only where the instance asks."""
    stated, simulated = c.plan.transport, factor(c.instance.network)
    if stated is None or simulated is None:
        if stated is not simulated:
            counts = f"{int(stated is not None)} factors stated, {int(simulated is not None)} asked for by the instance"
            yield broken("transport_factor", counts)
        return
    yield from must_equal("transport_factor", "slowdown", stated.slowdown, simulated.slowdown)
    for name in sorted(set(type(simulated).model_fields) - {"slowdown"}):
        yield from must_be("transport_factor", name, getattr(stated, name), getattr(simulated, name))


def pins(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the fabrics have the pinned values."""
    pinned = {k: v for k, v in sorted(c.instance.pins.items()) if k.startswith("fabric.")}
    for s, f, _ in _fabrics(c):
        stated: dict[str, int | str] = {
            "fabric.planes": f.planes,
            "fabric.ports_per_switch": f.ports_per_switch,
            "fabric.tiers": len(f.tiers),
            "fabric.leaf_domain_racks": f.leaf_domain_racks,
        }
        for i, name in enumerate(("leaf", "spine", "core")):
            tier = f.tiers[i] if len(f.tiers) > i else None
            stated[f"fabric.{name}_down_ports"] = tier.down_ports if tier else 0
            stated[f"fabric.{name}_up_ports"] = tier.up_ports if tier else 0
            stated[f"fabric.{name}_bundle"] = tier.bundle if tier else 0
        stated |= {"fabric.rails_per_pod": f.rails_per_pod, "fabric.leaf_domains_per_pod": f.leaf_domains_per_pod}
        stated |= {"fabric.switch": f.switch, "fabric.family": f.family}
        stated |= dict(zip(("fabric.spine_switch", "fabric.core_switch"), f.models[1:], strict=False))
        for path, value in pinned.items():
            site, _, name = path.removeprefix("fabric.").rpartition(".")
            if site in ("", s):
                yield from must_be(f"pins[{path}]", f"{path} at {s}", stated.get(f"fabric.{name}"), value)


def pods_of_one_switch(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a fabric of one switch a leaf domain, without a tier above, has no pods and no zones."""
    names = ("rails_per_pod", "leaf_domains_per_pod", "pods", "rails_per_zone", "leaf_domains_per_zone", "zones")
    for s, f in sorted(c.plan.fabric.sites.items()) if c.plan.fabric else ():
        for name in names if len(f.tiers) == 1 and f.family == "rail" else ():
            yield from must_equal(f"pods_of_one_switch[{s}]", f"{name} of one tier", getattr(f, name), 0)


def oversubscription(c: PlanPhysics) -> Iterator[Violation]:
    """Check that no more ports of GPUs share a link out of a full leaf, pod or zone than the instance allows.

    For a list of ratios by tier, check that no more ports down of a leaf, and of a spine where there are several pods,
    share a port up.
    """
    network = c.instance.network
    if network is None or network.max_oversubscription is None:
        return
    most = math.inf if isinstance(network.max_oversubscription, tuple) else network.max_oversubscription
    for s, f, _, d in _wired(c):
        yield from tiers_over(f"oversubscription[{s}]", network.tier_ratios, d)
        for block, ends, links in _edges(f, d) if most < math.inf else ():
            if links:
                each, allowed = f"ports of GPUs to a link out of a {block}", "to one allowed"
                yield from at_most(f"oversubscription[{s}]", ends / links, most, each, allowed)
            else:
                yield broken(f"oversubscription[{s}]", f"{ends:,} ports of GPUs, and no link out of a {block}")


def tiers_over(rule: str, most: tuple[float, float], d: Design) -> Iterator[Violation]:
    """Check the ports down to a port up of a leaf, and of a spine where there are several pods."""
    down_up = (d.leaf_down, d.leaf_up * d.split, not d.single), (d.spine_down, d.spine_up, d.pods > 1)
    for tier, ratio, (down, up, several) in zip(("leaf", "spine"), most, down_up, strict=True):
        if several and ratio < math.inf:
            yield from at_most(rule, down / max(up, 1e-9), ratio, f"ports down to a port up of a {tier}", "allowed")


def _edges(f: SiteFabric, d: Design) -> Iterator[tuple[str, int, float]]:
    """Yield (name, GPU ports, uplinks) of a full leaf, pod and zone where there are several; uplinks in GPU ports."""
    if d.single:
        return
    yield "leaf", d.leaf_down, d.least_up_ports * f.split
    pod = d.leaf_down * f.rails_per_pod * f.leaf_domains_per_pod
    if f.pods > 1:
        yield "pod", pod, d.pod_uplinks * f.split
    if f.zones > 1:
        yield "zone", d.leaf_down * f.rails_per_zone * f.leaf_domains_per_zone, d.zone_uplinks * f.split


def survival(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the loss which the instance asks to survive cuts no two leaves of a network."""
    asked = c.instance.network.survives if c.instance.network is not None else None
    for s, f, _, d in _wired(c) if asked is not None else ():
        if d.grouped:
            yield broken(f"survival[{s}]", f"{asked} is of trees, and the fabric is a {f.family}")
        else:
            yield from lost_joints(f"survival[{s}]", asked, d)


def lost_joints(rule: str, asked: str | None, d: Design) -> Iterator[Violation]:
    """Check that a loss to survive cuts no two leaves of a tree."""
    up, spines = cut_by(d)
    if up and asked is not None:
        yield from at_most(rule, 2, up, "links of a leaf upwards needed", "there")
    if spines and asked == "one_spine":
        yield from at_most(rule, 2, spines, "ways up from a leaf that share no switch needed", "there")


def cut_by(d: Design) -> tuple[int, int]:
    """Return the links of a leaf upwards and the ways up that share no switch; (0, 0) where nothing is above a leaf.

    A tree of equal bundles stays joined as long as each leaf reaches one spine: every spine position of a pod has
    cores of its own, and every core position super-spines, that join all pods and zones. A lost link cuts leaves where
    it is the only one of its leaf, and a lost switch where it is the only spine of its pod: of two positions the other
    remains. Of cores that positions share two must be there to join several pods, and of super-spines two to join
    several zones; every one of them joins all.
    """
    if d.single:
        return 0, 0
    shared = [boxes for boxes, several in ((d.core_boxes, d.pods), (d.super_spine_boxes, d.zones)) if several > 1]
    return d.leaf_up, min([d.leaf_up // d.leaf_bundle, *(boxes for boxes in shared if boxes)])


def question(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the question is given in full and that its hash is that of the question."""
    network = c.instance.network
    parts = [*(network.switches if network else ()), *(network.media if network else ()), c.instance.hardware.rack]
    named = [x for x in parts if isinstance(x, str)]
    if network is None or c.instance.hardware.racks is None or named:
        yield broken("question", f"{len(named)} parts by their names alone, 0 expected, with a network and hosts")
    yield from must_be("question", "instance_sha256", c.plan.instance_sha256, instance_sha256(c.instance))


def one_fabric(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the plan has a fabric of the one cluster with every host cabled, or a reason why it has none."""
    p, racks = c.plan, c.instance.hardware.racks or 0
    if (p.fabric is None) != (p.conflict is not None) or p.layout is not None or p.sites is not None:
        parts = f"{int(p.fabric is not None)} fabrics, {int(p.conflict is not None)} conflicts, and no other section"
        yield broken("one_fabric", f"{parts} expected to be one of both")
        return
    if p.fabric is None:
        return
    if set(p.fabric.sites) != {CLUSTER}:
        yield broken("one_fabric", f"fabrics of {', '.join(sorted(p.fabric.sites))}; one of {CLUSTER} expected")
        return
    f = p.fabric.sites[CLUSTER]
    yield from must_equal("one_fabric", "hosts cabled", f.cabled_racks, racks)
    yield from must_equal("one_fabric", "GPUs of a host cabled", f.wired_gpus_per_rack, c.gpus_per_rack)


def cheapest(c: PlanPhysics) -> Iterator[Violation]:
    """Check that objective, bill and fabric state one price within the budget, and no kind listed has a lower one.

    Kinds that were passed over for another reason may be cheaper: of families that were not asked for, and one switch
    where a loss is to be survived.
    """
    p, network = c.plan, c.instance.network
    if p.fabric is None or network is None or CLUSTER not in p.fabric.sites:
        return
    f, budget = p.fabric.sites[CLUSTER], c.instance.limits.budget_usd
    for name, usd in (("objective", p.objective.value), ("bill", p.cost.total_usd if p.cost else None)):
        yield from must_equal("cheapest", f"{name} in dollars", usd if usd is not None else 0.0, f.cost_usd)
    if p.status == "optimal":
        yield from must_equal("cheapest", "bound in dollars", p.objective.bound or 0.0, f.cost_usd)
    if budget is not None and p.status == "optimal":
        yield from at_most("cheapest", f.cost_usd, budget, "dollars", "of budget")
    for x in p.fabric.alternatives:
        one_switch = x.fabric is not None and len(x.fabric.tiers) == 1 and network.survives is not None
        if x.fabric is not None and x.fabric.family in network.families and not one_switch:
            yield from at_most("cheapest", f.cost_usd, x.fabric.cost_usd * (1 + 1e-9), "dollars", f"of {x.name}")


RULES: tuple[Rule, ...] = (
    pods_of_one_switch,
    every_site, switch, wirable, tiers, counts, core_share, price_and_power, transport_factor, slowdowns,
    cabled, unit_exchange, pins, oversubscription, survival,
)  # fmt: skip
ALONE: tuple[Rule, ...] = (
    question, one_fabric, switch, wirable, tiers, counts, core_share, price_and_power, oversubscription, survival,
    *cables.CABLE_RULES, cheapest,
)  # fmt: skip
