"""How the fabric slows what crosses it; phi is the slowdown of the transport itself over the fluid ideal."""

import math

from planner.physics.network.topology import Design
from planner.physics.network.wan_gateway import Left

WHOLE = Left()


def pipeline_send_slowdown(
    transport_slowdown: float,
    d: Design,
    share_leaving_leaf: float,
    share_leaving_pod: float,
    share_leaving_zone: float = 0.0,
    *,
    left: Left = WHOLE,
) -> float:
    """Pipeline exchange over the NIC's ideal: phi·max(1, f_leaf·o1, f_pod·o1·o2, f_zone·o1·o2·o3), the last three over what is left of the uplinks.

    The shares are of a leaf's, a pod's and a zone's flows that go up, o the oversubscription of their uplinks.
    """
    leaf = share_leaving_leaf * d.leaf_oversubscription
    pod = share_leaving_pod * d.leaf_oversubscription * d.spine_oversubscription
    zone = share_leaving_zone * d.leaf_oversubscription * d.spine_oversubscription * d.core_oversubscription
    return transport_slowdown * max(1.0, _over(leaf, left.leaf), _over(pod, left.pod), _over(zone, left.zone))


def allreduce_slowdown(
    transport_slowdown: float,
    d: Design,
    rings_leaving_leaf: int,
    rings_leaving_pod: int,
    rings_leaving_zone: int = 0,
    *,
    left: Left = WHOLE,
) -> float:
    """Ring between racks over the NIC's ideal: a group over several leaves, ringed leaf by leaf, puts one flow on the uplinks of each.

    `rings_leaving_leaf` groups share what is left of a leaf's u1 uplinks; the flows of x rails of `rings_leaving_pod` groups share a pod's s·u2,
    and those of all its rails of `rings_leaving_zone` groups a zone's s·c·u3.
    """
    leaf = rings_leaving_leaf / d.ring_uplinks if d.leaf_up else 0.0
    pod = rings_leaving_pod / d.ring_pod_uplinks if d.spine_up else 0.0
    zone = rings_leaving_zone / d.ring_zone_uplinks if d.tiers > 3 else 0.0
    return transport_slowdown * max(1.0, _over(leaf, left.leaf), _over(pod, left.pod), _over(zone, left.zone))


def _over(load: float, left: float) -> float:
    """Share a load out over what is left, which may be nothing."""
    if load == 0:
        return 0.0
    return load / left if left > 0 else math.inf
