"""Slowdowns of traffic by the uplinks of a fabric that it shares, with the exchange between sites too.

A link slows flows as many times as more of them cross it, over their rates, than it carries: its load. Sends and rings
are each timed by their own, and by the sum where they may meet.

Every network of the fabric has a WAN gateway, which takes an equal part of the rate: GPUs of one index or lane reach no
other. Its switches have as many ports up, to the top tier, as to the wide area, both ways at once, and slow nothing.
The gradients that sites exchange come to it from the racks of one stage at a time, every GPU of them alike, and go back
the same way: so long they load the uplinks below it, of which sends and rings share the rest.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from operator import mul

import numpy as np

from planner.physics import Num
from planner.physics.network.clos_fabric import BLOCKS, Design


@dataclass(frozen=True, slots=True)
class FreeUplinks:
    """Shares of the uplinks of leaf, pod and zone, slowed by the WAN exchange, that are free; below 0: no room."""

    leaf: float = 1.0
    pod: float = 1.0
    zone: float = 1.0


def free_uplinks(design: Design, gbps: float, *stage_shares: float) -> FreeUplinks:
    """Compute the share of each level's uplinks that the WAN exchange leaves free, by which other flows are slowed."""
    loads = design.exchange_loads(gbps, *stage_shares)
    return FreeUplinks(**{level: 1 - load / links for level, (load, links) in loads.items()})


ALL_FREE = FreeUplinks()


def uplink_loads(
    design: Design, shares: Sequence[float], groups: Sequence[int] = (), free: FreeUplinks = ALL_FREE
) -> dict[str, tuple[float, float]]:
    """Return the loads of pipeline sends and of rings on the free uplinks of leaf, pod and zone, which may be none.

    Sends: f_leaf·o1, f_pod·o1·o2 and f_zone·o1·o2·o3, each over the share of the uplinks that is free. The `shares` f
    are of a leaf's, a pod's and a zone's flows that go up, o the oversubscription of their uplinks. Rings: an
    all-reduce over several leaves sends one flow up from each. The first of `groups`, that leave a leaf, share the free
    ones of its u1 uplinks; the flows of x rails of the second share a pod's s·u2, and those of all its rails of the
    third a zone's s·c·u3. A link carries several NICs.
    """
    exits, found, left = design.exits, dict[str, tuple[float, float]](), (free.leaf, free.pod, free.zone)
    rails, over = (1, design.rails_per_pod, design.rails_per_zone), accumulate(design.oversubscription.values(), mul)
    each = zip_longest(BLOCKS, over, rails, left, shares, groups, fillvalue=0)
    for block, down, own, part, share, count in each:
        # Of every group each GPU of a rack that meets at a leaf, pod or zone has a flow.
        ring = count / (exits[block] * design.link_nics / (own * design.rail_gpus)) if count and block in exits else 0.0
        send, ring = (0.0 if not load else load / part if part > 0 else math.inf for load in (share * down, ring))
        found[block] = send, ring
    return found


def slowdowns(transport_slowdown: float, loads: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Return the slowdowns of sends and all-reduces by uplinks: the transport's times the largest load, or 1."""
    send, ring = (transport_slowdown * max(1.0, *(load[kind] for load in loads.values())) for kind in (0, 1))
    return send, ring


def shared_links(
    transport_slowdown: float, loads: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float, float]]:
    """Return the slowdowns of a GPU's NIC and of loaded uplinks: of sends, of rings, and of both together.

    Flows share a link evenly whatever they carry (max-min fairness: Bertsekas and Gallager 1992, Data Networks,
    section 6.5.2), so that their loads add. On its NIC a GPU has one flow of each.
    """
    loaded = {"nic": (1.0, 1.0)} | {name: both for name, both in loads.items() if sum(both)}
    slow = {name: [transport_slowdown * max(1.0, x) for x in (*both, sum(both))] for name, both in loaded.items()}
    return {name: (send, ring, both) for name, (send, ring, both) in slow.items()}


def wait_for_others(own_seconds: Num, slowdown: Num, other_seconds: Num) -> Num:
    """Compute the seconds by which other traffic on its uplinks slows a flow down when it starts.

    `own_seconds` at the NIC's ideal rate; the others take `other_seconds` alone, at their `slowdown`. On a link that
    both share evenly (`shared_links`) the flow waits for as much of the others as it brings itself, in the time that
    they take for it, or for all of them. Exact where one link is the narrowest of both; elsewhere an upper bound, since
    max(1, a + b) <= max(1, a) + max(1, b).
    """
    return np.minimum(own_seconds * np.asarray(slowdown), other_seconds)
