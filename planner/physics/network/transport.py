"""How the fabric slows what crosses it, over the NIC's ideal; the transport itself adds its own slowdown.

A link slows flows as many times as more of them cross it, over their rates, than it carries: its load. Pipeline sends
and rings of all-reduces are each timed by their own load, and by the sum of both where the schedule lets them meet.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from planner.physics.network.topology import Design
from planner.physics.network.wan_gateway import FreeUplinks
from planner.physics.num import Num

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
    loads = send_loads(d, (share_leaving_leaf, share_leaving_pod, share_leaving_zone), free)
    return transport_slowdown * max(1.0, *loads.values())


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
    loads = ring_loads(d, (allreduces_leaving_leaf, allreduces_leaving_pod, allreduces_leaving_zone), free)
    return transport_slowdown * max(1.0, *loads.values())


def send_loads(d: Design, shares: Sequence[float], free: FreeUplinks = ALL_FREE) -> dict[str, float]:
    """Return the load of pipeline sends on the free uplinks of leaf, pod and zone, by the shares that go up."""
    leaf = d.leaf_oversubscription
    pod = leaf * d.spine_oversubscription
    loads = shares[0] * leaf, shares[1] * pod, shares[2] * pod * d.core_oversubscription
    return _over_free(loads, free)


def ring_loads(d: Design, groups: Sequence[int], free: FreeUplinks = ALL_FREE) -> dict[str, float]:
    """Return the load of rings on the free uplinks of leaf, pod and zone, by the groups that leave each."""
    loads = (
        groups[0] / d.allreduce_uplinks if d.leaf_up else 0.0,
        groups[1] / d.allreduce_pod_uplinks if d.spine_up else 0.0,
        groups[2] / d.allreduce_zone_uplinks if d.tiers > 3 else 0.0,
    )
    return _over_free(loads, free)


def _over_free(loads: Sequence[float], free: FreeUplinks) -> dict[str, float]:
    """Return loads over the free share of the uplinks of leaf, pod and zone, which may be nothing."""
    names = "leaf", "pod", "zone"
    shares = {name: getattr(free, name) for name in names}
    return {
        name: 0.0 if load == 0 else load / shares[name] if shares[name] > 0 else math.inf
        for name, load in zip(names, loads, strict=True)
    }


def shared_links(
    transport_slowdown: float, sends: Mapping[str, float], rings: Mapping[str, float]
) -> dict[str, tuple[float, float, float]]:
    """Return the slowdowns of a GPU's NIC and of uplinks with any load: of sends alone, of rings alone, and together.

    Flows share a link evenly whatever they carry (max-min fairness: Bertsekas and Gallager 1992, Data Networks, section
    6.5.2), so that their loads add. On its NIC a GPU has one flow of each.
    """
    loads = {"nic": (1.0, 1.0)} | {name: (sends[name], rings[name]) for name in sends if sends[name] + rings[name]}
    return {
        name: (
            transport_slowdown * max(1.0, send),
            transport_slowdown * max(1.0, ring),
            transport_slowdown * max(1.0, send + ring),
        )
        for name, (send, ring) in loads.items()
    }


def wait_for_others(own_seconds: Num, slowdown: Num, other_seconds: Num) -> Num:
    """Compute by how many seconds a flow is later for another kind of traffic that is there when it starts.

    `own_seconds` at the NIC's ideal rate; the others take `other_seconds` alone, at their `slowdown`. On a link that
    both share evenly (`shared_links`) the flow waits for as much of the others as it brings itself, in the time that
    they take for it, or for all of them. Exact where one link is the narrowest of both, such as the NIC in a fabric
    that slows neither; elsewhere an upper bound, since max(1, a + b) <= max(1, a) + max(1, b).
    """
    return np.minimum(own_seconds * np.asarray(slowdown), other_seconds)
