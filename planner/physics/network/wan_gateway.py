"""The WAN gateway of a site's fabric: what the wide area brings there, and the ports that take it.

Wavelengths end at WAN gateway switches, the boxes that the fabric is made of. A port sends and takes at once, so both directions
are one port. Every network of the fabric has a WAN gateway of its own, which takes an equal part of the rate: GPUs of one index
or lane reach no other. A WAN gateway switch has as many ports up, to the top tier, as to the wide area, so it slows nothing.

The gradients that sites exchange come to it from the racks of one stage at a time, every GPU of them alike, and go back the
same way: they load the uplinks of leaves, pods and zones below the WAN gateway for as long as the exchange lasts, and hops and rings,
which go on meanwhile, have what is left.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from planner.instance.wan import Wan
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.topology import Design
from planner.physics.site.wan import exchange_need_gbps, wavelengths
from planner.plan.sites import Link
from planner.plan.wan import WanPlan


@dataclass(frozen=True, slots=True)
class Left:
    """Share of a leaf's, a pod's and a zone's uplinks that the exchange between sites leaves to what else crosses them; below 0 it does not fit."""

    leaf: float = 1.0
    pod: float = 1.0
    zone: float = 1.0


def wan_gbps(wan: Wan, links: Iterable[Link], design: WanPlan | None, site: str) -> float:
    """Return the rate, each way, of the wavelengths that end at a site: those of the design where there is one, else of its links.

    Of a design what the site sends or takes itself, each route at the larger of its rate and that of its backup, in whole
    wavelengths; what only passes by is no matter of the site's.
    """
    if design is None:
        return math.fsum(k.capacity_gbps for k in links if site in (k.a, k.b))
    rates = (max(r.gbps, r.backup_gbps or 0.0) for d in design.demands if site in (d.a, d.b) for r in d.routes)
    return wavelengths(wan, math.fsum(rates)) * wan.wavelength_gbps


def wan_ports(gbps: float, networks: int, port_gbps: float) -> int:
    """Count the ports towards the wide area of one of so many networks: ceil(its part of the rate / rate of a port)."""
    return math.ceil(gbps / networks / port_gbps * (1 - 1e-12))


def exchange_gbps(
    wan: Wan,
    links: Iterable[Link],
    design: WanPlan | None,
    site: str,
    training: Collection[str],
    exchange: tuple[float, float],
) -> float:
    """Return the rate, each way, at which a site's gradients pass its WAN gateway in the time that the step counts on.

    `exchange`: bytes that each link carries, and the seconds that it has for them; of a design the rates that it was asked for.
    """
    if site not in training:
        return 0.0
    if design is not None:
        return (
            math.fsum(d.requested_gbps for d in design.demands if d.priority == 0 and site in (d.a, d.b))
            / wan.headroom_factor
        )
    own = (k for k in links if site in (k.a, k.b) and {k.a, k.b} <= set(training))
    return math.fsum(exchange_need_gbps(wan, *exchange, k.rtt_ms) for k in own)


def leaf_ports(gbps: float, leaves: int, port_gbps: float) -> float:
    """Ports' worth of uplinks that the exchange takes of each of the leaves that share a rate: those of one domain in all networks."""
    return gbps / leaves / port_gbps


def wan_left(
    d: Design, gbps: float, port_gbps: float, stage_in_leaf: float, stage_in_pod: float, stage_in_zone: float = 0.0
) -> Left:
    """Return what the exchange leaves of the uplinks below the border: 1 - share·R/(leaves of a domain·rate)/u1, as much of x rails at a pod or zone.

    The shares are the most of one stage's racks in one leaf domain, in one pod and in one zone. Whole pods may make a zone of more rails than
    there are; only those that are send.
    """
    one = leaf_ports(gbps, d.networks * d.rails, port_gbps)
    if isinstance(d, Dragonfly):
        return _left_in_groups(d, one, stage_in_leaf, stage_in_pod)
    leaf = one * stage_in_leaf / d.leaf_up if d.tiers > 1 else 0.0
    pod = one * stage_in_pod * d.rails_per_pod / d.pod_uplinks if d.tiers > 2 else 0.0
    zone = one * stage_in_zone * min(d.rails, d.rails_per_zone) / d.zone_uplinks if d.tiers > 3 else 0.0
    return Left(1 - leaf, 1 - pod, 1 - zone)


def _left_in_groups(d: Dragonfly, one: float, stage_in_leaf: float, stage_in_pod: float) -> Left:
    """Return what is left of the links that flows can count on in a dragonfly, where a leaf that holds a whole stage sends `one` port's worth.

    A router may hold racks of the stage and ports of the WAN gateway; a leaf of a dragonfly+ has no such ports. By way of other groups
    flows share all links of theirs. On shortest paths those between two groups carry what goes from the racks of the one to the
    ports of the other, and from the ports of the one to the racks of the other, and the WAN gateway's links are dealt out evenly.
    """
    if not d.wan_ports:
        return Left()
    group = math.ceil(d.wan_ports / d.pods) / d.wan_ports
    router = 0.0 if isinstance(d, DragonflyPlus) else max(d.border_links_at(a) for a in d.group_sizes) / d.wan_ports
    leaf = (one * stage_in_leaf + one * d.rails * router) / d.leaf_exit
    sent = one * stage_in_pod * d.rails_per_pod
    pod = (sent + one * d.rails * group if d.valiant else 2 * sent * group) / d.pod_exit if d.pods > 1 else 0.0
    return Left(1 - leaf, 1 - pod)
