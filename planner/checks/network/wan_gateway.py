"""Rules of the border: as many ports as the wavelengths that end at a site ask for, and the exchange between sites through them and up to them."""

import math
from collections import Counter
from collections.abc import Iterator

from planner.checks.rule import Rule, at_most, broken, must_equal
from planner.checks.site import wan
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.price import border_bill
from planner.physics.network.topology import Design
from planner.physics.network.wan_gateway import Left, wan_gbps, wan_ports
from planner.physics.plan_physics import PlanPhysics, domain_racks
from planner.physics.site import wan as wide
from planner.physics.site.gradient_exchange import counted_window_seconds
from planner.plan.certificate import Violation


def _gbps(c: PlanPhysics, site: str) -> float:
    """Recompute the rate of the wavelengths that a WAN gateway must take."""
    network, held = c.instance.network, c.plan.sites
    if network is None or not network.wan_gateway or c.instance.wan is None or held is None:
        return 0.0
    return wan_gbps(c.wan, held.links, c.plan.wan, site)


def wan_gateway(c: PlanPhysics) -> Iterator[Violation]:
    """Give a WAN gateway to every site at which wavelengths end where the instance asks for it, and to no other."""
    for s, f in sorted(c.plan.fabric.sites.items()) if c.plan.fabric else ():
        wanted = _gbps(c, s) > 0
        if wanted != (f.wan_gateway is not None):
            yield broken(
                f"wan_gateway[{s}]", f"{int(f.wan_gateway is not None)} wan_gateways held, {int(wanted)} expected"
            )


def wan_gateway_counts(c: PlanPhysics) -> Iterator[Violation]:
    """Count ports, boxes and links of a WAN gateway as the rate makes them, an equal part for every network, and price them."""
    for s, d in sorted(c.wired.items()):
        f = c.plan.fabric.sites[s] if c.plan.fabric else None
        if f is None or f.wan_gateway is None or c.instance.network is None:
            continue
        rule, box, b = f"wan_gateway_counts[{s}]", c.switches[f.switch], f.wan_gateway
        gbps = _gbps(c, s)
        price = border_bill(c.instance.network, box, d)
        yield from must_equal(rule, "wan_gbps", b.wan_gbps, gbps, " Gbps")
        yield from must_equal(rule, "wan_ports", b.wan_ports, d.networks * wan_ports(gbps, d.networks, box.port_gbps))
        yield from must_equal(rule, "uplinks", b.uplinks, d.wan_gateway_links)
        yield from must_equal(rule, "switches", b.switches, d.wan_gateways)
        yield from must_equal(rule, "cost_usd", b.cost_usd, price.usd, " USD")
        yield from must_equal(rule, "power_mw", b.power_mw, price.mw, " MW")
        yield from must_equal(rule, "exchange_gbps", b.exchange_gbps, exchange_gbps(c, s), " Gbps")


def wan_gateway_rate(c: PlanPhysics) -> Iterator[Violation]:
    """Let a site's gradients through its WAN gateway in the time of the exchange: 8·bytes/t_wan <= ports times rate, on every link at once."""
    for s, f in sorted(c.plan.fabric.sites.items()) if c.plan.fabric else ():
        if f.wan_gateway is not None and f.switch in c.switches:
            carried = f.wan_gateway.wan_ports * c.switches[f.switch].port_gbps
            yield from at_most(
                f"wan_gateway_rate[{s}]",
                exchange_gbps(c, s),
                carried,
                "Gbps of gradients",
                "Gbps of the WAN gateway's ports",
            )


def exchange_gbps(c: PlanPhysics, site: str) -> float:
    """Rate of a site's gradients over all its links in the time that the step counts on, without headroom."""
    m, q = c.metrics, wan.asked(c)
    if m is None or c.plan.sites is None or c.plan.layout is None or site not in c.replicas:
        return 0.0
    if q is not None:
        sync = [d for d in q.demands.values() if d.priority == 0 and site in (d.a, d.b)]
        return math.fsum(d.gbps(q.rtt_ms(d.a, d.b)) / d.factor for d in sync)
    a, total = c.plan.layout.assumptions, m.gradient_bytes_per_stage
    window = counted_window_seconds(c.wan, total, len(c.replicas), m.wan_window_seconds, a.wan_gbps, a.wan_rtt_ms)
    size = wide.exchange_bytes(total, len(c.replicas))
    links = [k for k in c.plan.sites.links if site in (k.a, k.b) and {k.a, k.b} <= set(c.replicas)]
    return math.fsum(wide.exchange_need_gbps(c.wan, size, window, k.rtt_ms) for k in links)


def _uplinks_gbps(c: PlanPhysics, site: str, d: Design) -> Iterator[tuple[str, float, float]]:
    """Yield of the leaf, pod and zone with most of a stage's racks what they send to the WAN gateway, and what their uplinks carry, one network's."""
    rate, box = (
        exchange_gbps(c, site) / d.networks,
        c.switches[c.plan.fabric.sites[site].switch] if c.plan.fabric else None,
    )
    domain, pod = domain_racks(d), domain_racks(d) * d.domains_per_pod
    if box is not None and isinstance(d, Dragonfly):
        out, gone = (rate * _most_together(c.stages[site], n) / d.rails for n in (domain, pod))
        yield from _between_groups_gbps(d, rate / d.wan_ports, out, gone * d.rails_per_pod, box.port_gbps)
        return
    if box is None or d.tiers < 2:
        return
    yield "leaf", rate * _most_together(c.stages[site], domain) / d.rails, d.leaf_up * box.port_gbps
    if d.tiers > 2:
        yield (
            "pod",
            rate * _most_together(c.stages[site], pod) * d.rails_per_pod / d.rails,
            d.pod_uplinks * box.port_gbps,
        )
    if d.tiers > 3:
        gone = rate * _most_together(c.stages[site], domain * d.domains_per_zone) * min(1.0, d.rails_per_zone / d.rails)
        yield "zone", gone, d.zone_uplinks * box.port_gbps


def _between_groups_gbps(
    d: Dragonfly, port: float, out: float, gone: float, port_gbps: float
) -> Iterator[tuple[str, float, float]]:
    """Yield the same of a dragonfly: `out` of a leaf, `gone` of a group, and `port` at each of the WAN gateway's ports, dealt out to groups in turn."""
    group = -(-d.wan_ports // d.pods)
    router = 0 if d.tiers > 1 else -(-group // min(d.group_sizes))
    yield "leaf", out + router * port, d.leaf_exit * port_gbps
    if d.pods > 1:
        yield "pod", gone + group * port if d.valiant else 2 * gone * group / d.wan_ports, d.pod_exit * port_gbps


def _most_together(stages: list[list[int]], racks: int) -> float:
    """Return the largest share of one stage's racks that stand in one run of so many."""
    return max(
        (n / len(held) for held in stages if held for n in Counter(rack // racks for rack in held).values()),
        default=0.0,
    )


def left_by_exchange(c: PlanPhysics, site: str, d: Design) -> Left:
    """Return what the exchange leaves of the uplinks of a site that has a WAN gateway."""
    f = c.plan.fabric.sites[site] if c.plan.fabric else None
    if f is None or f.wan_gateway is None or site not in c.stages:
        return Left()
    return Left(**{tier: 1 - sent / carried for tier, sent, carried in _uplinks_gbps(c, site, d)})


def wan_gateway_uplinks(c: PlanPhysics) -> Iterator[Violation]:
    """Let gradients up to the WAN gateway from the racks of one stage at a time, as the placement spreads them over leaves, pods and zones."""
    for s, d in sorted(c.wired.items()):
        f = c.plan.fabric.sites[s] if c.plan.fabric else None
        if f is None or f.wan_gateway is None or s not in c.stages:
            continue
        rule, left = f"wan_gateway_uplinks[{s}]", left_by_exchange(c, s, d)
        for tier, sent, carried in _uplinks_gbps(c, s, d):
            yield from at_most(rule, sent, carried, f"Gbps of gradients at a {tier}", "Gbps of its uplinks")
        yield from must_equal(rule, "leaf_uplink_share", f.wan_gateway.leaf_uplink_share, 1 - left.leaf)
        yield from must_equal(rule, "pod_uplink_share", f.wan_gateway.pod_uplink_share, 1 - left.pod)
        yield from must_equal(rule, "zone_uplink_share", f.wan_gateway.zone_uplink_share, 1 - left.zone)


RULES: tuple[Rule, ...] = (wan_gateway, wan_gateway_counts, wan_gateway_rate, wan_gateway_uplinks)
