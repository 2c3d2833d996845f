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
from planner.physics.network.fabric_designs import Bill, bill, design_fault
from planner.physics.network.links import media_of
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


def _fabrics(physics: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Network]]:
    if physics.plan.fabric is not None and physics.instance.network is not None:
        for site, fabric in sorted(physics.plan.fabric.sites.items()):
            if site in physics.racks_by_site:
                yield site, fabric, physics.instance.network


def _wired(physics: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Network, Design]]:
    for site, fabric, network in _fabrics(physics):
        if site in physics.wired:
            yield site, fabric, network, physics.wired[site]


def _placed(physics: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Design, Locality, FreeUplinks]]:
    """Yield the fabrics with a placement: its traffic out of leaves, pods and zones, and the uplinks left free.

    The exchange between sites takes the other uplinks.
    """
    for site, fabric, _, design in _wired(physics):
        if site in physics.crossings:
            yield site, fabric, design, physics.crossings[site], free_by_exchange(physics, site, design)


def every_site(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that every site with replicas has a fabric, and nothing else has one."""
    stated = set(physics.plan.fabric.sites) if physics.plan.fabric else set()
    wanted = {site for site in physics.racks_by_site if site in physics.replicas}
    for site in sorted(stated ^ wanted) if physics.plan.fabric else ():
        yield broken(f"every_site[{site}]", f"{int(site in stated)} fabrics, {int(site in wanted)} expected")


def switch(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the fabric is built from a switch of the instance whose ports carry a NIC."""
    nic_gbps = physics.instance.hardware.gpu_nic_bytes_per_second * 8 / 1e9
    for site, fabric, network in _fabrics(physics):
        rule = f"switch[{site}]"
        if fabric.family not in network.families:
            yield broken(rule, f"family {fabric.family} is none of {', '.join(network.families)}")
        yield from at_most(rule, fabric.lanes, network.max_lanes, "lanes", "lanes allowed")
        unknown = {fabric.switch, *fabric.models} - set(physics.switches)
        if unknown:
            known = f"the instance's {len(physics.switches)}: {', '.join(sorted(physics.switches))}"
            yield from (broken(rule, f"{name!r} is none of {known}") for name in sorted(unknown))
            continue
        leaf = physics.switches[fabric.switch]
        for tier in fabric.tiers:
            model = physics.switches[tier.switch or fabric.switch]
            if tier.name == "leaf":
                yield from must_be(rule, "switch of the leaf tier", model.name, fabric.switch)
            for name in ("port_gbps", "planes", "link_factor"):
                yield from must_equal(
                    rule, f"{name} of a {tier.name} under those of a leaf", getattr(model, name), getattr(leaf, name)
                )
        offered = physics.switches[fabric.switch]
        yield from must_equal(rule, "planes", fabric.planes, offered.planes * fabric.lanes)
        yield from must_equal(rule, "ports_per_switch", fabric.ports_per_switch, offered.ports)
        yield from at_most(rule, fabric.split, offered.breakout, "parts of a port", "parts that it can be split into")
        need, rate = nic_gbps * max(1, fabric.split), offered.port_gbps * fabric.lanes
        yield from at_most(rule, need, rate, "Gbps of the NICs at a port", "Gbps of the ports")


def wirable(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that every tier fits its ports, with equal bundles, and each endpoint reaches every other."""
    for site, fabric, network in _fabrics(physics):
        fault = design_fault(fabric, physics.cabled_racks(site))
        if fault:
            yield broken(f"wirable[{site}]", fault)
        elif site in physics.designs:
            yield from (
                broken(f"wirable[{site}]", reason) for reason in unwirable(physics.designs[site], cross_rail=True)
            )
        yield from at_most(f"wirable[{site}]", len(fabric.tiers), network.max_tiers, "tiers", "tiers allowed")


def _tiers(design: Design) -> dict[str, tuple[int, int, int, float, int]]:
    down = design.endpoint_links // design.networks if design.single else design.leaf_down
    figures = {"leaf": (design.leaves, down, design.up_ports, design.leaf_oversubscription, design.leaf_bundle)}
    if design.tiers > 1:
        ports, ratio = (design.spine_down, design.spine_up), design.spine_oversubscription
        figures["spine"] = (design.spines, *ports, ratio, design.spine_bundle)
    if design.tiers > 2:
        ports, ratio = (design.core_down, design.core_up), design.core_oversubscription
        figures["core"] = (design.cores, *ports, ratio, design.core_bundle)
    if design.tiers > 3:
        figures["super-spine"] = design.super_spines, design.super_spine_down, 0, 1.0, 0
    return figures


def tiers(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the switches of each tier, their ports and oversubscription are as the wiring makes them."""
    for site, fabric, _, design in _wired(physics):
        figures = _tiers(design)
        for tier in fabric.tiers:
            for name, figure in zip(TIER_FIGURES, figures[tier.name], strict=True):
                yield from must_equal(f"tiers[{site}, {tier.name}]", name, getattr(tier, name), figure)


def counts(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that switches, chips, cables, leaf domains, pods and zones are counted as the wiring makes them."""
    for site, fabric, _, design in _wired(physics):
        figures = {
            "switches": design.switches,
            "chips": design.switches * physics.switches[fabric.switch].planes,
            "switch_links": design.switch_links,
            "endpoint_links": design.endpoint_links,
            "leaf_domain_racks": design.domain_racks,
            "leaf_domains": design.domains,
            "pods": design.pods,
            "zones": design.zones,
            "leaf_spare_ports": design.leaf_spare,
            "group_links": design.group_links,
        }
        for name, value in figures.items():
            yield from must_equal(f"counts[{site}]", name, getattr(fabric, name), value)


def core_share(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the share of its rate that the instance asks for can leave a full leaf, pod and zone.

    A switch that holds every endpoint has nothing above it that could be narrower.
    """
    for site, _, network, design in _wired(physics):
        yield from share_out(f"core_share[{site}]", network.min_core_share, design)


def share_out(rule: str, least: float, design: Design) -> Iterator[Violation]:
    """Check that the share `least` of a full leaf's, pod's and zone's rate can leave it where there are several."""
    if not design.single:
        what, room = f"of {design.leaf_down:,} ports may leave a leaf", "ports' worth of a leaf's uplinks"
        yield from at_most(rule, least * design.leaf_down, float(design.least_up_ports * design.split), what, room)
    pod = "pod", design.pods, design.rails_per_pod * design.domains_per_pod, design.pod_uplinks
    zone = "zone", design.zones, design.rails_per_zone * design.domains_per_zone, design.zone_uplinks
    for block, blocks, leaves, links in (pod, zone):
        ends, up = design.leaf_down * leaves, float(links * design.split)
        share, uplinks = f"of {ends:,} ports may leave a {block}", f"ports' worth of a {block}'s uplinks"
        if blocks > 1:
            yield from at_most(rule, least * ends, up, share, uplinks)


def priced(physics: PlanPhysics, network: Network, fabric: SiteFabric, design: Design) -> Bill:
    """Recompute the price and power of a fabric from its design and the model of each tier."""
    return bill(network, physics.switches[fabric.switch], design, physics.above(fabric))


def price_and_power(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that cost in USD and power in MW are the sums over switches and cables."""
    for site, fabric, network, design in _wired(physics):
        rule, price = f"price_and_power[{site}]", priced(physics, network, fabric, design)
        if price.usd == math.inf:
            reach = max(medium.reach_m for medium in media_of(network))
            media = f"the longest reach of {len(network.media)} media"
            yield broken(rule, f"cables longer than {show(reach)} m, {media}")
            continue
        yield from must_equal(rule, "cost_usd", fabric.cost_usd, price.usd, " USD")
        yield from must_equal(rule, "power_mw", fabric.power_mw, price.mw, " MW")


def slowdowns(physics: PlanPhysics) -> Iterator[Violation]:
    """Check the stated shares of traffic out of leaves, pods and zones, and the slowdowns by the uplinks."""
    for site, fabric, design, traffic, free in _placed(physics):
        figures = {
            "share_leaving_leaf": traffic.share_leaving[0],
            "share_leaving_pod": traffic.share_leaving[1],
            "share_leaving_zone": traffic.share_leaving[2],
            "pipeline_send_slowdown": pipeline_send_slowdown(
                physics.transport_slowdown, design, *traffic.share_leaving, free=free
            ),
            "allreduce_slowdown": allreduce_slowdown(
                physics.transport_slowdown, design, *traffic.allreduces_leaving, free=free
            ),
        }
        for name, value in figures.items():
            yield from must_equal(f"slowdowns[{site}]", name, getattr(fabric, name), value)
        if physics.metrics is not None:
            seconds = physics.metrics.pipeline_send_nic_seconds * fabric.pipeline_send_slowdown
            yield from must_equal(f"slowdowns[{site}]", "p2p_seconds", fabric.p2p_seconds, seconds, " s")


def cabled(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the racks that carry replicas are cabled, with the GPUs of each that work."""
    layout = physics.plan.layout
    if layout is None or physics.faults:
        return
    own = layout.stages_per_rack * layout.replicas_per_rack * strategy_of(layout).shape.gpus
    work = -(-own // layout.racks_per_replica)
    for site, _, _ in _fabrics(physics):
        rule, racks, gpus = f"cabled[{site}]", physics.cabled_racks(site), physics.wired_gpus_per_rack(site)
        yield from at_most(rule, physics.racks_in_use.get(site, 0), racks, "racks carry replicas", "racks are cabled")
        yield from at_most(rule, racks, physics.racks_by_site[site], "racks are cabled", "racks at the site")
        yield from at_most(rule, work, gpus, "GPUs of a rack work", "GPUs of a rack are cabled")
        yield from at_most(rule, gpus, physics.gpus_per_rack, "GPUs of a rack are cabled", "GPUs in a rack")


def unit_exchange(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that CP groups and experts on several racks, timed at the transport's own slowdown, meet no other.

    Racks of one unit exchange keys and values, or tokens, all with all; what of it leaves a leaf, a pod or a zone
    shares uplinks.
    """
    layout = physics.plan.layout
    if layout is None or physics.faults:
        return
    group = strategy_of(layout).unit_racks(physics.gpus_per_rack)
    for site, _, design, _, free in _placed(physics):
        domains = (1, max(1, design.domains_per_pod), *([design.domains_per_zone] if design.zones else []))
        shares = [exchange_leaving(physics.stages[site], design.domain_racks * count, group) for count in domains]
        took = pipeline_send_slowdown(physics.transport_slowdown, design, *shares, free=free)
        what = f"times the ideal exchange of {group} racks"
        yield from at_most(f"unit_exchange[{site}]", took, physics.transport_slowdown, what, "that the transport takes")


def transport_factor(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the transport's slowdown is that of a repeated simulation, and stated only where the instance asks."""
    stated, simulated = physics.plan.transport, factor(physics.instance.network)
    if stated is None or simulated is None:
        if stated is not simulated:
            counts = f"{int(stated is not None)} factors stated, {int(simulated is not None)} asked for by the instance"
            yield broken("transport_factor", counts)
        return
    yield from must_equal("transport_factor", "slowdown", stated.slowdown, simulated.slowdown)
    for name in sorted(set(type(simulated).model_fields) - {"slowdown"}):
        yield from must_be("transport_factor", name, getattr(stated, name), getattr(simulated, name))


def pins(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the fabrics have the pinned values."""
    pinned = {name: value for name, value in sorted(physics.instance.pins.items()) if name.startswith("fabric.")}
    for place, fabric, _ in _fabrics(physics):
        stated: dict[str, int | str] = {
            "fabric.planes": fabric.planes,
            "fabric.ports_per_switch": fabric.ports_per_switch,
            "fabric.tiers": len(fabric.tiers),
            "fabric.leaf_domain_racks": fabric.leaf_domain_racks,
        }
        for i, name in enumerate(("leaf", "spine", "core")):
            tier = fabric.tiers[i] if len(fabric.tiers) > i else None
            stated[f"fabric.{name}_down_ports"] = tier.down_ports if tier else 0
            stated[f"fabric.{name}_up_ports"] = tier.up_ports if tier else 0
            stated[f"fabric.{name}_bundle"] = tier.bundle if tier else 0
        stated |= {
            "fabric.rails_per_pod": fabric.rails_per_pod,
            "fabric.leaf_domains_per_pod": fabric.leaf_domains_per_pod,
        }
        stated |= {"fabric.switch": fabric.switch, "fabric.family": fabric.family}
        stated |= dict(zip(("fabric.spine_switch", "fabric.core_switch"), fabric.models[1:], strict=False))
        for path, value in pinned.items():
            site, _, name = path.removeprefix("fabric.").rpartition(".")
            if site in ("", place):
                yield from must_be(f"pins[{path}]", f"{path} at {place}", stated.get(f"fabric.{name}"), value)


def pods_of_one_switch(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that a fabric of one switch a leaf domain, without a tier above, has no pods and no zones."""
    names = ("rails_per_pod", "leaf_domains_per_pod", "pods", "rails_per_zone", "leaf_domains_per_zone", "zones")
    for site, fabric in sorted(physics.plan.fabric.sites.items()) if physics.plan.fabric else ():
        for name in names if len(fabric.tiers) == 1 and fabric.family == "rail" else ():
            yield from must_equal(f"pods_of_one_switch[{site}]", f"{name} of one tier", getattr(fabric, name), 0)


def oversubscription(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that no more ports of GPUs share a link out of a full leaf, pod or zone than the instance allows.

    For a list of ratios by tier, check that no more ports down of a leaf, and of a spine where there are several pods,
    share a port up.
    """
    network = physics.instance.network
    if network is None or network.max_oversubscription is None:
        return
    most = math.inf if isinstance(network.max_oversubscription, tuple) else network.max_oversubscription
    for site, fabric, _, design in _wired(physics):
        yield from tiers_over(f"oversubscription[{site}]", network.tier_ratios, design)
        for block, ends, links in _edges(fabric, design) if most < math.inf else ():
            if links:
                each, allowed = f"ports of GPUs to a link out of a {block}", "to one allowed"
                yield from at_most(f"oversubscription[{site}]", ends / links, most, each, allowed)
            else:
                yield broken(f"oversubscription[{site}]", f"{ends:,} ports of GPUs, and no link out of a {block}")


def tiers_over(rule: str, most: tuple[float, float], design: Design) -> Iterator[Violation]:
    """Check the ports down to a port up of a leaf, and of a spine where there are several pods."""
    down_up = (
        (design.leaf_down, design.leaf_up * design.split, not design.single),
        (design.spine_down, design.spine_up, design.pods > 1),
    )
    for tier, ratio, (down, up, several) in zip(("leaf", "spine"), most, down_up, strict=True):
        if several and ratio < math.inf:
            yield from at_most(rule, down / max(up, 1e-9), ratio, f"ports down to a port up of a {tier}", "allowed")


def _edges(fabric: SiteFabric, design: Design) -> Iterator[tuple[str, int, float]]:
    """Yield (name, GPU ports, uplinks) of a full leaf, pod and zone where there are several; uplinks in GPU ports."""
    if design.single:
        return
    yield "leaf", design.leaf_down, design.least_up_ports * fabric.split
    pod = design.leaf_down * fabric.rails_per_pod * fabric.leaf_domains_per_pod
    if fabric.pods > 1:
        yield "pod", pod, design.pod_uplinks * fabric.split
    if fabric.zones > 1:
        yield (
            "zone",
            design.leaf_down * fabric.rails_per_zone * fabric.leaf_domains_per_zone,
            design.zone_uplinks * fabric.split,
        )


def survival(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the loss which the instance asks to survive cuts no two leaves of a network."""
    asked = physics.instance.network.survives if physics.instance.network is not None else None
    for site, fabric, _, design in _wired(physics) if asked is not None else ():
        if design.grouped:
            yield broken(f"survival[{site}]", f"{asked} is of trees, and the fabric is a {fabric.family}")
        else:
            yield from lost_joints(f"survival[{site}]", asked, design)


def lost_joints(rule: str, asked: str | None, design: Design) -> Iterator[Violation]:
    """Check that a loss to survive cuts no two leaves of a tree."""
    up, spines = cut_by(design)
    if up and asked is not None:
        yield from at_most(rule, 2, up, "links of a leaf upwards needed", "there")
    if spines and asked == "one_spine":
        yield from at_most(rule, 2, spines, "ways up from a leaf that share no switch needed", "there")


def cut_by(design: Design) -> tuple[int, int]:
    """Return the links of a leaf upwards and the ways up that share no switch; (0, 0) where nothing is above a leaf.

    A tree of equal bundles stays joined as long as each leaf reaches one spine: every spine position of a pod has
    cores of its own, and every core position super-spines, that join all pods and zones. A lost link cuts leaves where
    it is the only one of its leaf, and a lost switch where it is the only spine of its pod: of two positions the other
    remains. Of cores that positions share two must be there to join several pods, and of super-spines two to join
    several zones; every one of them joins all.
    """
    if design.single:
        return 0, 0
    above = ((design.core_boxes, design.pods), (design.super_spine_boxes, design.zones))
    shared = [boxes for boxes, several in above if several > 1]
    return design.leaf_up, min([design.leaf_up // design.leaf_bundle, *(boxes for boxes in shared if boxes)])


def question(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the question is given in full and that its hash is that of the question."""
    network = physics.instance.network
    offered = (*network.switches, *network.media) if network else ()
    parts = [*offered, physics.instance.hardware.rack]
    named = [part for part in parts if isinstance(part, str)]
    if network is None or physics.instance.hardware.racks is None or named:
        yield broken("question", f"{len(named)} parts by their names alone, 0 expected, with a network and hosts")
    yield from must_be("question", "instance_sha256", physics.plan.instance_sha256, instance_sha256(physics.instance))


def one_fabric(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the plan has a fabric of the one cluster with every host cabled, or a reason why it has none."""
    plan, racks = physics.plan, physics.instance.hardware.racks or 0
    if (plan.fabric is None) != (plan.conflict is not None) or plan.layout is not None or plan.sites is not None:
        parts = (
            f"{int(plan.fabric is not None)} fabrics, {int(plan.conflict is not None)} conflicts, and no other section"
        )
        yield broken("one_fabric", f"{parts} expected to be one of both")
        return
    if plan.fabric is None:
        return
    if set(plan.fabric.sites) != {CLUSTER}:
        yield broken("one_fabric", f"fabrics of {', '.join(sorted(plan.fabric.sites))}; one of {CLUSTER} expected")
        return
    fabric = plan.fabric.sites[CLUSTER]
    yield from must_equal("one_fabric", "hosts cabled", fabric.cabled_racks, racks)
    yield from must_equal("one_fabric", "GPUs of a host cabled", fabric.wired_gpus_per_rack, physics.gpus_per_rack)


def cheapest(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that objective, bill and fabric state one price within the budget, and no kind listed has a lower one.

    Kinds that were passed over for another reason may be cheaper: of families that were not asked for, and one switch
    where a loss is to be survived.
    """
    plan, network = physics.plan, physics.instance.network
    if plan.fabric is None or network is None or CLUSTER not in plan.fabric.sites:
        return
    fabric, budget = plan.fabric.sites[CLUSTER], physics.instance.limits.budget_usd
    for name, usd in (("objective", plan.objective.value), ("bill", plan.cost.total_usd if plan.cost else None)):
        yield from must_equal("cheapest", f"{name} in dollars", usd if usd is not None else 0.0, fabric.cost_usd)
    if plan.status == "optimal":
        yield from must_equal("cheapest", "bound in dollars", plan.objective.bound or 0.0, fabric.cost_usd)
    if budget is not None and plan.status == "optimal":
        yield from at_most("cheapest", fabric.cost_usd, budget, "dollars", "of budget")
    for alternative in plan.fabric.alternatives:
        one_switch = (
            alternative.fabric is not None and len(alternative.fabric.tiers) == 1 and network.survives is not None
        )
        if alternative.fabric is not None and alternative.fabric.family in network.families and not one_switch:
            yield from at_most(
                "cheapest",
                fabric.cost_usd,
                alternative.fabric.cost_usd * (1 + 1e-9),
                "dollars",
                f"of {alternative.name}",
            )


RULES: tuple[Rule, ...] = (
    pods_of_one_switch,
    every_site, switch, wirable, tiers, counts, core_share, price_and_power, transport_factor, slowdowns,
    cabled, unit_exchange, pins, oversubscription, survival,
)  # fmt: skip
ALONE: tuple[Rule, ...] = (
    question, one_fabric, switch, wirable, tiers, counts, core_share, price_and_power, oversubscription, survival,
    *cables.CABLE_RULES, cheapest,
)  # fmt: skip
