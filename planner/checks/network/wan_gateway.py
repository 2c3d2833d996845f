"""Rules of the WAN gateway: ports for the wavelengths that end at a site, and the exchange between sites through them.

The exchange passes the gateway's ports and the uplinks that lead up to them.
"""

import math
from collections.abc import Iterator

from planner.checks.rule import Rule, at_most, broken, must_equal
from planner.checks.site import wan
from planner.physics.network.price import wan_gateway_bill
from planner.physics.network.topology import Design
from planner.physics.network.wan_gateway import FreeUplinks, free_share, uplink_loads, wan_gbps, wan_ports
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import wan as wide_area
from planner.physics.site.gradient_exchange import assumed_window_seconds
from planner.plan.certificate import Violation
from planner.plan.fabric import SiteFabric, WanGateway


def _fabrics(c: PlanPhysics) -> list[tuple[str, SiteFabric]]:
    """Return the fabrics of the plan by site."""
    return sorted(c.plan.fabric.sites.items()) if c.plan.fabric else []


def _wired_gateways(c: PlanPhysics) -> Iterator[tuple[str, SiteFabric, WanGateway, Design]]:
    """Yield the fabrics that can be wired and have a WAN gateway."""
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
    """Check that gradients pass the WAN gateway in time: 8·bytes/t_wan <= ports times rate, all links at once."""
    for s, f in _fabrics(c):
        if f.wan_gateway is not None and f.switch in c.switches:
            rule, carried = f"wan_gateway_rate[{s}]", f.wan_gateway.wan_ports * c.switches[f.switch].port_gbps
            ports = "Gbps of the WAN gateway's ports"
            yield from at_most(rule, exchange_gbps(c, s), carried, "Gbps of gradients", ports)


def exchange_gbps(c: PlanPhysics, site: str) -> float:
    """Recompute the rate of a site's gradients over all links in the time that the step assumes, without headroom."""
    m, q = c.metrics, wan.requirements(c)
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
    x = c.crossings[site]
    shares = x.stage_in_leaf, x.stage_in_pod, x.stage_in_zone
    return uplink_loads(d, exchange_gbps(c, site), port_gbps, *shares)


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


RULES: tuple[Rule, ...] = (wan_gateway, wan_gateway_counts, wan_gateway_rate, wan_gateway_uplinks)
