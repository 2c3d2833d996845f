"""Rules of a fabric's traffic: gradients through its WAN gateway, pipeline sends and rings that meet on its links."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from planner.checks import sites
from planner.checks.cables import fabrics, wired
from planner.checks.rule import Violations, at_most, broken, figures, must_be, must_equal, needs
from planner.physics.network.clos_fabric import BLOCKS, Design
from planner.physics.network.fabric_cables import WAN_GATEWAY
from planner.physics.network.fabric_cables import stages as cable_stages
from planner.physics.network.fabric_cost import wan_gateway_bill
from planner.physics.network.uplink_slowdowns import FreeUplinks, free_uplinks
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import wan as wide_area
from planner.physics.site import wan_exchange
from planner.physics.training.step_prediction import machine_of
from planner.plan.plan_sections import LayoutPlan

FIGURES = ("pipeline_send_slowdown", "allreduce_slowdown", "together_slowdown")


def wan_gateway(physics: PlanPhysics) -> Violations:
    """Check the WAN gateways of fabrics: only where asked for, their figures, gradient traffic within their links."""
    split = physics.plan.sites
    between = split.links if split is not None and physics.instance.wan is not None else None
    for site, fabric, network in fabrics(physics):
        gateway, switch = fabric.wan_gateway, physics.switches.get(fabric.switch)
        asked = network.wan_gateway and between is not None
        gbps = wide_area.wan_gbps(physics.wan, between or (), physics.plan.wan, site) if asked else 0.0
        if (gateway is not None) != (gbps > 0):
            stated = f"{int(gateway is not None)} WAN gateways stated, {int(gbps > 0)} expected"
            yield broken(f"wan_gateway[{site}]", stated)
        if gateway is None or switch is None:
            continue
        # The rate is enough for the gradients: 8·bytes/t_wan <= ports · rate.
        carried, sent = gateway.wan_ports * switch.port_gbps, exchange_gbps(physics, site)
        sides = "Gbps of gradients", "Gbps of the WAN gateway's ports"
        yield from at_most(f"wan_gateway_rate[{site}]", sent, carried, *sides)
        design = physics.wired.get(site)
        if design is None:
            continue
        price = wan_gateway_bill(network, switch, design)
        found = {"wan_gbps": gbps, "cost_usd": price.usd, "power_mw": price.mw, "exchange_gbps": sent}
        found |= {"uplinks": design.wan_gateway_links, "switches": design.wan_gateways}
        found["wan_ports"] = design.networks * wide_area.wan_ports(gbps, design.networks, switch.port_gbps)
        yield from figures(f"wan_gateway_counts[{site}]", gateway, found)
        if site in physics.crossings:
            rule, loads = f"wan_gateway_uplinks[{site}]", design.exchange_loads(sent, *physics.crossings[site].stage_in)
            for level, (load, links) in loads.items():
                sides = f"Gbps of gradients at a {level}", "Gbps of its uplinks"
                yield from at_most(rule, load * switch.port_gbps, links * switch.port_gbps, *sides)
            shares = {level: load / links for level, (load, links) in loads.items()}
            yield from figures(rule, gateway, {f"{level}_uplink_share": shares.get(level, 0.0) for level in BLOCKS})


def exchange_gbps(physics: PlanPhysics, site: str) -> float:
    """Recompute the rate of the gradient traffic through a fabric's WAN gateway in the time that the step assumes."""
    metrics, split, layout, training = physics.metrics, physics.plan.sites, physics.plan.layout, physics.replicas.keys()
    if metrics is None or split is None or layout is None or site not in training:
        return 0.0
    asked = sites.requirements(physics)
    if asked is not None:
        sync = [demand for demand in asked.demands.values() if demand.priority == 0 and site in (demand.a, demand.b)]
        return math.fsum(demand.gbps(asked.rtt_ms(demand.a, demand.b)) / demand.factor for demand in sync)
    size = wan_exchange.exchange_bytes(metrics.gradient_bytes_per_stage, len(training))
    exchange = size, sites.window_seconds(physics, layout, metrics)
    return wan_exchange.exchange_gbps(physics.wan, split.links, None, site, training, exchange)


def free_by_exchange(physics: PlanPhysics, site: str, design: Design) -> FreeUplinks:
    """Recompute what gradient traffic to a WAN gateway leaves free of a fabric's uplinks; all of them without one."""
    fabric = physics.plan.fabric.sites[site] if physics.plan.fabric else None
    if fabric is None or fabric.wan_gateway is None or site not in physics.crossings:
        return FreeUplinks()
    return free_uplinks(design, exchange_gbps(physics, site), *physics.crossings[site].stage_in)


def sends_that_meet(physics: PlanPhysics, layout: LayoutPlan) -> float:
    """Recompute how many pipeline sends meet all-reduce rings: those out of stages of several racks as these run.

    With gradients reduced once a step, the rings of a chunk begin within its last backward pass, behind which it sends
    once more if any stage comes before. Under ZeRO-2 and 3 rings run in every pass, and meet each send that is exposed.
    """
    software, virtual_stages = machine_of(physics.instance).software, layout.virtual_stages
    places = layout.pipeline_parallel
    apart = layout.stages_per_rack < places and max(layout.racks_per_stage_by_site.values(), default=0) > 1
    if places < 2 or not apart:
        return 0.0
    sends_back = sum(1 for chunk in range(virtual_stages) for stage in range(places) if (chunk, stage) != (0, 0))
    if layout.zero_stage < 2:
        return float(sends_back if layout.schedule == "1f1b" and "gradients" in software.overlaps else 0)
    shown = virtual_stages if virtual_stages == 1 else virtual_stages * ("sends" not in software.overlaps)
    return 2 * sends_back + 2 * layout.microbatches_per_step * shown


def links_and_flows(design: Design, stages: list[list[int]], *, wrap: bool) -> Iterator[tuple[str, float, int, int]]:
    """Recompute a leaf domain's, pod's, zone's fabric links out by a rack's GPU, in NICs, and most sends and rings."""
    domain, pairs = design.domain_racks, list(pairwise([*stages, *(stages[:1] if wrap and len(stages) > 1 else ())]))
    blocks = {  # its racks and rails, the tier of its uppermost switches, and how many of it there are
        "leaf": (domain, 1, "leaf", design.leaves),
        "pod": (domain * design.domains_per_pod, design.rails_per_pod, "spine", design.networks * design.pods),
        "zone": (domain * design.domains_per_zone, design.rails_per_zone, "core", design.networks * design.zones),
    }
    cables = {stage.low: stage.count for stage in cable_stages(design) if stage.low != WAN_GATEWAY}
    # Groups have leaf domains, and pods if there are several; a tree's tiers but the uppermost have links out.
    for level in BLOCKS[: min(design.pods, 2) if design.grouped else design.tiers - 1]:
        racks, rails, tier, number = blocks[level]
        # Of groups the links that flows are assured of; a tree's are its cables by block.
        links = design.exits[level] if design.grouped else cables[tier] / number
        hops = [(a // racks, b // racks) for one, two in pairs for a, b in zip(one, two, strict=False)]
        out, into = (Counter(hop[end] for hop in hops if hop[0] != hop[1]) for end in (0, 1))
        spread = [{rack // racks for rack in stage} for stage in stages]
        rings = Counter(block for own in spread if len(own) > 1 for block in own)
        sends = max([*out.values(), *into.values(), 0])
        yield level, links / (rails * design.rail_gpus) * design.link_nics, sends, max(rings.values(), default=0)


@needs("layout")
def shared_links(physics: PlanPhysics, layout: LayoutPlan) -> Violations:
    """Check the slowdowns of fabric traffic that a plan states: sends and rings on one link, alone and together."""
    met, phi = sends_that_meet(physics, layout), physics.transport_slowdown
    yield from figures("sends_beside_rings", layout.metrics, {"sends_beside_rings": met})
    for site, fabric, _, design in wired(physics):
        if site not in physics.stages:
            continue
        rule, stages, expected = f"shared_links[{site}]", physics.stages[site], dict[str, tuple[float, float]]()
        if met and max(map(len, stages), default=0) > 1:
            free, expected["nic"] = free_by_exchange(physics, site, design), (1.0, 1.0)
            for level, links, *flows in links_and_flows(design, stages, wrap=layout.virtual_stages > 1):
                left = links * max(0.0, getattr(free, level))
                if any(flows):
                    sends, rings = (number and (number / left if left else math.inf) for number in flows)
                    expected[level] = float(sends), float(rings)
        yield from must_be(rule, "links", sorted(link.link for link in fabric.shared_links), sorted(expected))
        for link in (link for link in fabric.shared_links if link.link in expected):
            sends, rings = expected[link.link]
            for name, load in zip(FIGURES, (sends, rings, sends + rings), strict=True):
                what, figure = f"{name} on the {link.link}", phi * max(1.0, load)
                yield from must_equal(rule, what, getattr(link, name), figure)


WAN_GATEWAY_RULES = (wan_gateway, shared_links)
