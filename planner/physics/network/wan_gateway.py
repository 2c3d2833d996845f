"""The WAN gateway of a site's fabric: what the wide area brings there, and the ports that take it.

Wavelengths end at WAN gateway switches, the same that the fabric is made of. A port sends and takes at once, so both
directions are one port. Every network of the fabric has a WAN gateway of its own, which takes an equal part of the
rate: GPUs of one index or lane reach no other. A WAN gateway switch has as many ports up, to the top tier, as to the
wide area, so it slows nothing.

The gradients that sites exchange come to it from the racks of one stage at a time, every GPU of them alike, and go back
the same way: they load the uplinks of leaves, pods and zones below the WAN gateway for as long as the exchange lasts.
Pipeline sends and all-reduces, which go on meanwhile, share the rest of the uplinks.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from planner.instance.wan import Wan
from planner.physics.network.topology import Design
from planner.physics.site.wan import exchange_need_gbps, wavelengths
from planner.plan.sites import Link
from planner.plan.wan import WanPlan


@dataclass(frozen=True, slots=True)
class FreeUplinks:
    """Share of a leaf's, pod's and zone's uplinks that the exchange of sites leaves free; below 0 it does not fit."""

    leaf: float = 1.0
    pod: float = 1.0
    zone: float = 1.0


def wan_gbps(wan: Wan, links: Iterable[Link], design: WanPlan | None, site: str) -> float:
    """Return the rate, each way, of the wavelengths that end at a site: those of the design, without one of its links.

    Of a design what the site sends or takes itself, each route at the larger of its rate and that of its backup, in
    whole wavelengths; what only passes by is no matter of the site's.
    """
    if design is None:
        return math.fsum(k.capacity_gbps for k in links if site in (k.a, k.b))
    rates = (max(r.gbps, r.backup_gbps or 0.0) for d in design.demands if site in (d.a, d.b) for r in d.routes)
    return wavelengths(wan, math.fsum(rates)) * wan.wavelength_gbps


def wan_ports(gbps: float, networks: int, port_gbps: float) -> int:
    """Return the ports to the wide area of one of so many networks: ceil(its part of the rate / rate of a port)."""
    return math.ceil(gbps / networks / port_gbps * (1 - 1e-12))


def exchange_gbps(
    wan: Wan,
    links: Iterable[Link],
    design: WanPlan | None,
    site: str,
    training: Collection[str],
    exchange: tuple[float, float],
) -> float:
    """Return the rate, each way, at which a site's gradients pass its WAN gateway in the time that the step assumes.

    `exchange`: bytes that each link carries, and the seconds that it has for them; of a design its demands' own rates.
    """
    if site not in training:
        return 0.0
    if design is not None:
        sync = (d.requested_gbps for d in design.demands if d.priority == 0 and site in (d.a, d.b))
        return math.fsum(sync) / wan.headroom_factor
    own = (k for k in links if site in (k.a, k.b) and {k.a, k.b} <= set(training))
    return math.fsum(exchange_need_gbps(wan, *exchange, k.rtt_ms) for k in own)


def leaf_ports(gbps: float, leaves: int, port_gbps: float) -> float:
    """Return the ports' worth of uplinks that the exchange takes of each of the leaves that share a rate."""
    return gbps / leaves / port_gbps


def uplink_loads(
    d: Design, gbps: float, port_gbps: float, stage_in_leaf: float, stage_in_pod: float, stage_in_zone: float = 0.0
) -> dict[str, tuple[float, float]]:
    """Return of leaf, pod and zone the uplinks' worth that the exchange loads below the WAN gateway, and the uplinks.

    The shares are the largest of one stage's racks in one leaf domain, in one pod and in one zone. The leaves of one
    domain in all networks share the rate.
    """
    one = leaf_ports(gbps, d.networks * d.rails, port_gbps)
    return d.exchange_loads(one, (stage_in_leaf, stage_in_pod, stage_in_zone))


def free_share(loads: dict[str, tuple[float, float]]) -> FreeUplinks:
    """Return the share of the uplinks of leaf, pod and zone that loads leave free."""
    return FreeUplinks(**{level: 1 - load / links for level, (load, links) in loads.items()})


def free_uplinks(d: Design, gbps: float, port_gbps: float, *stage_shares: float) -> FreeUplinks:
    """Return the share of the uplinks below the WAN gateway that the exchange between sites leaves free."""
    return free_share(uplink_loads(d, gbps, port_gbps, *stage_shares))
