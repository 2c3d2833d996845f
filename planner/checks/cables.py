"""Rules of the cables one by one, of the WAN gateway, and of the links that pipeline sends and rings share.

Ports for the wavelengths that end at a site, the exchange between sites through them and the uplinks that lead up to
them. What sends and rings load, counted here a second time: sends from the order of passes, links from the cables,
flows from the racks placed.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.checks import sites
from planner.checks.rule import Rule, at_most, broken, must_equal
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.links import Ints
from planner.physics.network.price import WAN_GATEWAY, StageCables, lay, wan_gateway_bill
from planner.physics.network.price import stages as cable_stages
from planner.physics.network.topology import Design
from planner.physics.network.transport import FreeUplinks, free_share, uplink_loads, wan_gbps, wan_ports
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import wan as wide_area
from planner.physics.site.wan import assumed_window_seconds
from planner.physics.training import step
from planner.plan.certificate import Violation
from planner.plan.plan_sections import LayoutPlan, SiteFabric, WanGateway

MAX_TICKED = 10**8  # cables, or ports of a tier, that are ticked off one by one: a byte each


@dataclass
class Count:
    """The counts of a stream of cables.

    Attributes
    ----------
    cables
        Cables by stage.
    used
        Ports in use by tier and switch.
    ticked
        Ports in use by tier.
    twice, absent
        Ports with more than one cable, and ports that are not there.
    """

    cables: dict[tuple[str, str], int] = field(default_factory=dict)
    used: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    ticked: dict[str, int] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def count(stream: Iterable[StageCables], tiers: dict[str, tuple[int, int]]) -> Count:
    """Tick off both ends of every cable; `tiers`: how many switches a tier has and how many ports each of them."""
    total = Count(used={tier: np.zeros(shape, dtype=np.bool_) for tier, shape in tiers.items()})
    for c in stream:
        stage = c.low_tier, c.high_tier
        total.cables[stage] = total.cables.get(stage, 0) + len(c.low)
        for tier, switch, port in ((c.low_tier, c.low, c.low_port), (c.high_tier, c.high, c.high_port)):
            _tick(total, tier, switch, port)
    return total


def _tick(total: Count, tier: str, switch: Ints, port: Ints) -> None:
    """Mark ports as used, and name the first that is used already or not there."""
    n, ports = total.used[tier].shape
    there = (switch >= 0) & (switch < n) & (port >= 0) & (port < ports)
    if not there.all():
        i = int(np.argmin(there))
        total.absent.append(f"{tier} {switch[i]:,} port {port[i]:,}: beyond {n:,} switches of {ports:,} ports")
    flat, at = total.used[tier].reshape(-1), (switch * ports + port)[there]
    taken = at[flat[at]]
    flat[at] = True
    ticked = total.ticked.get(tier, 0) + len(at)
    total.ticked[tier] = int(np.count_nonzero(flat))
    if total.ticked[tier] < ticked:
        seen, times = np.unique(at, return_counts=True)
        first = int(np.concatenate([taken, seen[times > 1]]).min())
        total.twice.append(f"{tier} {first // ports:,} port {first % ports:,} has more than 1 cable")


def laid(c: PlanPhysics) -> Iterator[tuple[str, SiteFabric, Design]]:
    """Yield the fabrics whose cables can be laid and are few enough to be ticked off."""
    fabrics = c.plan.fabric.sites if c.plan.fabric else {}
    for s, d in sorted(c.wired.items()):
        f = fabrics[s]
        ports = [t.switches * d.tier_ports[t.name] for t in f.tiers]
        ports += [f.wan_gateway.switches * d.ports] if f.wan_gateway else []
        if max(d.endpoint_links, d.switch_links, d.wan_gateway_links, max(ports) * d.split) <= MAX_TICKED:
            yield s, f, d


def cables(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the cables use no port twice, reach every GPU once, and are as many as the plan counts."""
    for s, f, d in laid(c):
        rule, shapes = f"cables[{s}]", {"gpu": (d.racks * d.gpus_per_rack, d.lanes)}
        shapes |= {t.name: (t.switches, d.tier_ports[t.name] * d.split) for t in f.tiers}
        shapes |= {WAN_GATEWAY: (f.wan_gateway.switches, d.ports * d.split)} if f.wan_gateway else {}
        total = count(in_parts(lay(d), d.split), shapes)
        yield from (broken(rule, text) for text in (*total.twice, *total.absent))
        gateway_stages = [stage for stage in total.cables if stage[0] == WAN_GATEWAY]
        joined = sum(total.cables.pop(stage) for stage in gateway_stages) // d.split
        yield from _wan_gateway(rule, f, total, d, joined)
        yield from _totals(rule, f, total, d)


def in_parts(stream: Iterable[StageCables], split: int) -> Iterator[StageCables]:
    """Yield cables by the parts of ports that they take: one at a GPU's end of a leaf, all of both between switches."""
    part = np.arange(split, dtype=np.int64)
    for c in stream:
        if split == 1 or c.low_tier == "gpu":
            yield c
        else:
            low, high = (np.repeat(switch, split) for switch in (c.low, c.high))
            ports = [(port[:, None] * split + part).reshape(-1) for port in (c.low_port, c.high_port)]
            yield StageCables(c.low_tier, c.high_tier, low, ports[0], high, ports[1])


def _wan_gateway(rule: str, f: SiteFabric, total: Count, d: Design, joined: int) -> Iterator[Violation]:
    """Check that a WAN gateway has the links laid, each of its switches a port to the wide area for every link up."""
    if f.wan_gateway is None:
        return
    yield from must_equal(rule, "WAN gateway's uplinks", f.wan_gateway.uplinks, joined)
    up = total.used[WAN_GATEWAY].sum(axis=1) // d.split
    matched = int(np.minimum(up, d.ports - up).sum())
    yield from must_equal(rule, "ports to the wide area, as many as links up", f.wan_gateway.wan_ports, matched)
    yield from must_equal(rule, "WAN gateway switches without a cable", 0, int((up == 0).sum()))


def _totals(rule: str, f: SiteFabric, total: Count, d: Design) -> Iterator[Violation]:
    split = d.split
    ends = sum(n for (low, _), n in total.cables.items() if low == "gpu")
    yield from must_equal(rule, "endpoint_links", f.endpoint_links, ends)
    yield from must_equal(rule, "switch_links", f.switch_links, (sum(total.cables.values()) - ends) // split)
    yield from must_equal(rule, "NIC ports with a cable", f.endpoint_links, int(total.used["gpu"].sum()))
    for t in f.tiers:
        unused = int((~total.used[t.name].any(axis=1)).sum())
        yield from must_equal(rule, f"{t.name} switches without a cable", 0, unused)
        # Down ports of a switch at the edge may stay free; no switch uses more than stated.
        used = int(total.used[t.name].sum(axis=1).max(initial=0))
        parts = t.down_ports * (1 if t.name == "leaf" else split) + t.up_ports * split
        parts += d.top_wan_links * split * (t is f.tiers[-1])
        if used > parts:
            stated = f"{parts:,}, {t.down_ports:,} down + {t.up_ports:,} up"
            yield broken(rule, f"{t.name}: {used:,} ports of a switch in use > {stated}")


CABLE_RULES: tuple[Rule, ...] = (cables,)


def _fabrics(c: PlanPhysics) -> list[tuple[str, SiteFabric]]:
    return sorted(c.plan.fabric.sites.items()) if c.plan.fabric else []


def _wired_gateways(c: PlanPhysics) -> Iterator[tuple[str, SiteFabric, WanGateway, Design]]:
    for s, f in _fabrics(c):
        if s in c.wired and f.wan_gateway is not None:
            yield s, f, f.wan_gateway, c.wired[s]


def _gbps(c: PlanPhysics, site: str) -> float:
    """Recompute the rate of the wavelengths that a WAN gateway must take."""
    network, split = c.instance.network, c.plan.sites
    if network is None or not network.wan_gateway or c.instance.wan is None or split is None:
        return 0.0
    return wan_gbps(c.wan, split.links, c.plan.wan, site)


def wan_gateway(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a site has a WAN gateway just where wavelengths end and the instance asks for it."""
    for s, f in _fabrics(c):
        stated, expected = int(f.wan_gateway is not None), int(_gbps(c, s) > 0)
        if stated != expected:
            yield broken(f"wan_gateway[{s}]", f"{stated} WAN gateways stated, {expected} expected")


def wan_gateway_counts(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a WAN gateway's ports, switches, links and price follow from its rate, shared by all networks."""
    for s, f, b, d in _wired_gateways(c):
        if c.instance.network is None:
            continue
        rule, switch, gbps = f"wan_gateway_counts[{s}]", c.switches[f.switch], _gbps(c, s)
        price = wan_gateway_bill(c.instance.network, switch, d)
        ports = d.networks * wan_ports(gbps, d.networks, switch.port_gbps)
        yield from must_equal(rule, "wan_gbps", b.wan_gbps, gbps, " Gbps")
        yield from must_equal(rule, "wan_ports", b.wan_ports, ports)
        yield from must_equal(rule, "uplinks", b.uplinks, d.wan_gateway_links)
        yield from must_equal(rule, "switches", b.switches, d.wan_gateways)
        yield from must_equal(rule, "cost_usd", b.cost_usd, price.usd, " USD")
        yield from must_equal(rule, "power_mw", b.power_mw, price.mw, " MW")
        yield from must_equal(rule, "exchange_gbps", b.exchange_gbps, exchange_gbps(c, s), " Gbps")


def wan_gateway_rate(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a WAN gateway's ports carry the gradients of all links at once: 8·bytes/t_wan <= ports · rate."""
    for s, f in _fabrics(c):
        if f.wan_gateway is not None and f.switch in c.switches:
            rule, carried = f"wan_gateway_rate[{s}]", f.wan_gateway.wan_ports * c.switches[f.switch].port_gbps
            ports = "Gbps of the WAN gateway's ports"
            yield from at_most(rule, exchange_gbps(c, s), carried, "Gbps of gradients", ports)


def exchange_gbps(c: PlanPhysics, site: str) -> float:
    """Recompute the rate of a site's gradients over all links in the time that the step assumes, without headroom."""
    m, q = c.metrics, sites.requirements(c)
    if m is None or c.plan.sites is None or c.plan.layout is None or site not in c.replicas:
        return 0.0
    if q is not None:
        sync = [d for d in q.demands.values() if d.priority == 0 and site in (d.a, d.b)]
        return math.fsum(d.gbps(q.rtt_ms(d.a, d.b)) / d.factor for d in sync)
    a, total = c.plan.layout.assumptions, m.gradient_bytes_per_stage
    window = assumed_window_seconds(c.wan, total, len(c.replicas), m.wan_window_seconds, a.wan_gbps, a.wan_rtt_ms)
    size = wide_area.exchange_bytes(total, len(c.replicas))
    links = [k for k in c.plan.sites.links if site in (k.a, k.b) and {k.a, k.b} <= set(c.replicas)]
    return math.fsum(wide_area.exchange_need_gbps(c.wan, size, window, k.rtt_ms) for k in links)


def _loads(c: PlanPhysics, site: str, d: Design, port_gbps: float) -> dict[str, tuple[float, float]]:
    """Recompute the load of the exchange on the uplinks of the leaf, pod and zone with the largest share of a stage."""
    return uplink_loads(d, exchange_gbps(c, site), port_gbps, *c.crossings[site].stage_in)


def free_by_exchange(c: PlanPhysics, site: str, d: Design) -> FreeUplinks:
    """Recompute the share of a site's uplinks that the exchange leaves free; all of them without a WAN gateway."""
    f = c.plan.fabric.sites[site] if c.plan.fabric else None
    if f is None or f.wan_gateway is None or site not in c.crossings:
        return FreeUplinks()
    return free_share(_loads(c, site, d, c.switches[f.switch].port_gbps))


def wan_gateway_uplinks(c: PlanPhysics) -> Iterator[Violation]:
    """Check that gradients fit the uplinks to the WAN gateway, from one stage at a time as the placement spreads it."""
    for s, f, b, d in _wired_gateways(c):
        if s not in c.crossings:
            continue
        rule, rate = f"wan_gateway_uplinks[{s}]", c.switches[f.switch].port_gbps
        loads = _loads(c, s, d, rate)
        for level, (load, links) in loads.items():
            gradients, uplinks = f"Gbps of gradients at a {level}", "Gbps of its uplinks"
            yield from at_most(rule, load * rate, links * rate, gradients, uplinks)
        free = free_share(loads)
        yield from must_equal(rule, "leaf_uplink_share", b.leaf_uplink_share, 1 - free.leaf)
        yield from must_equal(rule, "pod_uplink_share", b.pod_uplink_share, 1 - free.pod)
        yield from must_equal(rule, "zone_uplink_share", b.zone_uplink_share, 1 - free.zone)


FIGURES = ("pipeline_send_slowdown", "allreduce_slowdown", "together_slowdown")


def sends_that_meet(c: PlanPhysics, layout: LayoutPlan) -> float:
    """Count the sends that leave a stage while its own rings run: of racks apart, several of them to a stage.

    With gradients reduced once a step, the rings of a chunk begin within its last backward pass, and the chunk sends
    once more behind it, if any stage comes before. With gradients or weights sharded (ZeRO-2 and 3) rings run in every
    pass, and each send that no pass hides meets them.
    """
    software, v, places = step.machine_of(c.instance).software, layout.virtual_stages, layout.pipeline_parallel
    apart = layout.stages_per_rack < places and max(layout.racks_per_stage_by_site.values(), default=0) > 1
    if places < 2 or not apart:
        return 0.0
    sends_back = sum(1 for chunk in range(v) for stage in range(places) if (chunk, stage) != (0, 0))
    if layout.zero_stage < 2:
        begins_early = layout.schedule == "1f1b" and software.hides("gradients")
        return float(sends_back if begins_early else 0)
    shown = v if v == 1 else v * (not software.hides("sends"))
    return 2 * sends_back + 2 * layout.microbatches_per_step * shown


def _links_out(d: Design) -> dict[str, tuple[int, float]]:
    """Count the racks of a leaf domain, pod and zone, and the links that leave each for one GPU of each rack in it.

    A tree's are its cables over the blocks that they leave; a dragonfly's are those that flows are assured of.
    """
    cables = {stage.low: stage.count for stage in cable_stages(d) if stage.low != WAN_GATEWAY}
    leaf, pod = d.domain_racks, d.domain_racks * d.domains_per_pod
    if isinstance(d, Dragonfly):
        found = {"leaf": (leaf, d.leaf_exit / d.rail_gpus)}
        if d.pods > 1:
            found["pod"] = pod, d.pod_exit / (d.rails_per_pod * d.rail_gpus)
    else:
        found = {}
        if d.tiers > 1:
            found["leaf"] = leaf, cables["leaf"] / d.leaves / d.rail_gpus
        if d.tiers > 2:
            found["pod"] = pod, cables["spine"] / (d.networks * d.pods) / (d.rails_per_pod * d.rail_gpus)
        if d.tiers > 3:
            zone = leaf * d.domains_per_zone
            found["zone"] = zone, cables["core"] / (d.networks * d.zones) / (d.rails_per_zone * d.rail_gpus)
    return {level: (racks, links * d.split) for level, (racks, links) in found.items()}


def _most_flows(stages: list[list[int]], block: int, *, wrap: bool) -> tuple[int, int]:
    """Count the sends that leave or enter, and the rings that cross the edge of, the block of racks with the most."""
    pairs = [*pairwise(stages), *([(stages[-1], stages[0])] if wrap and len(stages) > 1 else [])]
    hops = [(a // block, b // block) for one, other in pairs for a, b in zip(one, other, strict=False)]
    out, into = (Counter(hop[end] for hop in hops if hop[0] != hop[1]) for end in (0, 1))
    blocks = [{rack // block for rack in stage} for stage in stages]
    rings = Counter(k for own in blocks if len(own) > 1 for k in own)
    return max([*out.values(), *into.values(), 0]), max(rings.values(), default=0)


def _over(flows: int, links: float) -> float:
    return 0.0 if not flows else flows / links if links else math.inf


def shared_links(c: PlanPhysics) -> Iterator[Violation]:
    """Check the slowdowns of the links that sends and rings cross at once: alone, and with the flows of both added."""
    layout = c.plan.layout
    if layout is None or c.faults:
        return
    met, phi = sends_that_meet(c, layout), c.transport_slowdown
    yield from must_equal("sends_beside_rings", "sends_beside_rings", layout.metrics.sends_beside_rings, met)
    for s, f in _fabrics(c):
        if s not in c.wired or s not in c.stages:
            continue
        rule, d, expected = f"shared_links[{s}]", c.wired[s], {}
        if met and max(map(len, c.stages[s]), default=0) > 1:
            free, expected["nic"] = free_by_exchange(c, s, d), (1.0, 1.0)
            for level, (racks, links) in _links_out(d).items():
                flows = _most_flows(c.stages[s], racks, wrap=layout.virtual_stages > 1)
                left = links * max(0.0, getattr(free, level))
                if any(flows):
                    expected[level] = _over(flows[0], left), _over(flows[1], left)
        stated = {x.link: x for x in f.shared_links}
        for level in sorted(set(stated) ^ set(expected)):
            yield broken(rule, f"{level}: {int(level in stated)} stated, {int(level in expected)} expected")
        for level in sorted(set(stated) & set(expected)):
            loads = (*expected[level], sum(expected[level]))
            for name, load in zip(FIGURES, loads, strict=True):
                figure = phi * max(1.0, load)
                yield from must_equal(rule, f"{name} on the {level}", getattr(stated[level], name), figure)


WAN_GATEWAY_RULES: tuple[Rule, ...] = (
    wan_gateway,
    wan_gateway_counts,
    wan_gateway_rate,
    wan_gateway_uplinks,
    shared_links,
)
