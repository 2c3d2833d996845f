"""How the fabric slows what crosses it, over the NIC's ideal; the transport itself adds its own slowdown."""

import math

from planner.physics.network.topology import Design
from planner.physics.network.wan_gateway import FreeUplinks

ALL_FREE = FreeUplinks()


def pipeline_send_slowdown(
    transport_slowdown: float,
    d: Design,
    share_leaving_leaf: float,
    share_leaving_pod: float,
    share_leaving_zone: float = 0.0,
    *,
    free: FreeUplinks = ALL_FREE,
) -> float:
    """Return the slowdown of pipeline sends: the transport's times max(1, f_leaf·o1, f_pod·o1·o2, f_zone·o1·o2·o3).

    The shares f are of a leaf's, a pod's and a zone's flows that go up, o the oversubscription of their uplinks; each
    product is over the share of the uplinks that is free.
    """
    leaf = share_leaving_leaf * d.leaf_oversubscription
    pod = share_leaving_pod * d.leaf_oversubscription * d.spine_oversubscription
    zone = share_leaving_zone * d.leaf_oversubscription * d.spine_oversubscription * d.core_oversubscription
    return transport_slowdown * max(1.0, _over(leaf, free.leaf), _over(pod, free.pod), _over(zone, free.zone))


def allreduce_slowdown(
    transport_slowdown: float,
    d: Design,
    allreduces_leaving_leaf: int,
    allreduces_leaving_pod: int,
    allreduces_leaving_zone: int = 0,
    *,
    free: FreeUplinks = ALL_FREE,
) -> float:
    """Return the slowdown of all-reduces between racks: a group over several leaves sends one flow up from each.

    `allreduces_leaving_leaf` groups share the free ones of a leaf's u1 uplinks; the flows of x rails of
    `allreduces_leaving_pod` groups share a pod's s·u2, and those of all its rails of `allreduces_leaving_zone` groups a
    zone's s·c·u3.
    """
    leaf = allreduces_leaving_leaf / d.allreduce_uplinks if d.leaf_up else 0.0
    pod = allreduces_leaving_pod / d.allreduce_pod_uplinks if d.spine_up else 0.0
    zone = allreduces_leaving_zone / d.allreduce_zone_uplinks if d.tiers > 3 else 0.0
    return transport_slowdown * max(1.0, _over(leaf, free.leaf), _over(pod, free.pod), _over(zone, free.zone))


def _over(load: float, free: float) -> float:
    """Return a load over the free share of the uplinks, which may be nothing."""
    if load == 0:
        return 0.0
    return load / free if free > 0 else math.inf
