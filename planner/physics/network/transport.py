"""Traffic across leaf domains, pods and zones, its slowdown by the fabric, and the WAN gateway between sites.

Rack k of a site belongs to leaf domain k // D, domain l to pod l // y, and to zone l // Y where there are zones. A
stage is the ordered racks of its replica group: rank q of stage i sends to rank q of stage i + 1, and the racks of one
stage all-reduce its gradients around a ring. A link slows flows as many times as more of them cross it, over their
rates, than it carries: its load. Sends and rings are each timed by their own, and by the sum where they may meet.

Every network of the fabric has a WAN gateway, which takes an equal part of the rate: GPUs of one index or lane reach no
other. Its switches have as many ports up, to the top tier, as to the wide area, both ways at once, and slow nothing.
The gradients that sites exchange come to it from the racks of one stage at a time, every GPU of them alike, and go back
the same way: so long they load the uplinks below it, of which sends and rings share the rest.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from operator import mul

import numpy as np
from numpy.typing import NDArray

from planner.instance.network import Wan
from planner.physics import Num
from planner.physics.network.clos_fabric import BLOCKS, Design
from planner.physics.site.wan import need_gbps, wavelengths
from planner.plan.plan_sections import Link, WanPlan

Racks = NDArray[np.int64]
Stages = Sequence[Sequence[int]]  # the racks of each stage in rank order


@dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """Traffic out of the worst leaf domain, pod and zone of a site's placement, in this order; 0 without zones."""

    share_leaving: tuple[float, ...]  # flows that leave, over the racks of the block
    allreduces_leaving: tuple[int, ...]
    stage_in: tuple[float, ...] = (0.0, 0.0, 0.0)  # largest share of a stage's racks in one block
    groups_split: int = 0
    extra_pieces: int = 0
    groups_cross_pod: int = 0


def locality(stages: Stages, block_racks: Sequence[int], *, wrap: bool) -> Locality:
    """Compute the traffic of one site's placement out of leaf domains, pods and, if there are any, zones.

    `block_racks`: the racks of one of each, as `Design.block_racks` has them; `wrap`: the last stage sends to the
    first. `groups_split` and `extra_pieces`: the groups in several leaf domains, and the pieces beyond one a group.
    """
    none, ranks = np.empty(0, np.int64), [np.asarray(stage, dtype=np.int64) for stage in stages]
    pairs = [*pairwise(ranks), *([(ranks[-1], ranks[0])] if wrap and len(ranks) > 1 else [])]
    source = np.concatenate([none, *(one[: len(other)] for one, other in pairs)])
    target = np.concatenate([none, *(other[: len(one)] for one, other in pairs)])
    sizes, own = np.array([len(stage) for stage in ranks], np.int64), np.concatenate([none, *ranks])
    found = list[tuple[float, int, float, int, int]]()
    for block in block_racks:
        # Of the worst block: the flows out of it or into it over its size, the groups that have racks in it and
        # elsewhere too, the largest share of a group's racks in it. Of all: the groups in several, the extra pieces.
        crossing = source // block != target // block
        flows = max(_most_common(ends[crossing] // block) for ends in (source, target)) / block
        blocks = own // block
        span = int(blocks.max(initial=0)) + 1
        pieces, racks = np.unique(np.repeat(np.arange(len(ranks)), sizes) * span + blocks, return_counts=True)
        group, at = pieces // span, pieces % span
        each = np.bincount(group, minlength=1)
        share = float((racks / sizes[group]).max(initial=0.0))
        extra = len(pieces) - int(np.count_nonzero(each))
        found.append((flows, _most_common(at[each[group] > 1]), share, int((each > 1).sum()), extra))
    no_zone = [(0, 0, 0, 0, 0)] * (3 - len(found))
    sends, rings, shares, (split, across_pods, _), (extra, *_) = zip(*found, *no_zone, strict=True)
    return Locality(
        share_leaving=sends,
        allreduces_leaving=rings,
        stage_in=shares,
        groups_split=split,
        extra_pieces=extra,
        groups_cross_pod=across_pods,
    )


def exchange_leaving(stages: Stages, block: int, group: int) -> float:
    """Return the most all-to-all traffic, in flows of a rack, that leaves one block of racks, over the block's size."""
    # Every `group` racks of a stage exchange. A rack sends as much to each other rack of its group, so i of n racks in
    # the block send i·(n - i)/(n - 1) out of it.
    if group < 2 or not any(len(stage) for stage in stages):
        return 0.0
    ranks = [np.asarray(stage, dtype=np.int64) for stage in stages]
    sizes = [np.minimum(group, len(stage) - np.arange(len(stage)) // group * group) for stage in ranks]
    apart = max(map(len, ranks)) + 1
    labels = np.concatenate([i * apart + np.arange(len(stage)) // group for i, stage in enumerate(ranks)])
    blocks, n = np.concatenate(ranks) // block, np.concatenate(sizes)
    span = int(blocks.max()) + 1
    pairs, at, inside = np.unique(labels * span + blocks, return_index=True, return_counts=True)
    out = inside * (n[at] - inside) / np.maximum(1, n[at] - 1)
    return float(np.bincount(pairs % span, weights=out).max()) / block


def exchange_bound(fragments: Num, racks: Num, group: int) -> Num:
    """Bound the all-to-all traffic out of a block of `racks` racks that holds `fragments` runs of a stage's ranks."""
    # Only the groups at the two ends of a fragment lie partly outside; one that the block's edge halves sends most.
    return np.minimum(racks, 2 * fragments * (group**2 // 4) / (group - 1)) if group > 1 else 0.0


def lower_bound_split(free: Sequence[int], groups: int, group_racks: int) -> int:
    """Bound how many of equal all-reduce groups split over leaves in any placement: S - sum of floor(f_l / G)."""
    return max(0, groups - sum(racks // group_racks for racks in free))


def domain_racks(racks: int, leaf_domain_racks: int) -> list[int]:
    """List the racks of each leaf domain that traffic crosses: all full but perhaps the last."""
    full, rest = divmod(racks, leaf_domain_racks)
    return [leaf_domain_racks] * full + [rest] * (rest > 0)


def _most_common(values: Racks) -> int:
    return int(np.unique(values, return_counts=True)[1].max(initial=0))


Crossing = tuple[int, int]  # (pipeline flows that leave or enter the worst block, all-reduces that leave it)


def min_crossings(
    stages: int, replicas: int, *, max_free: int, blocks: int, wrap: bool, split: bool = False
) -> list[Crossing]:
    """Bound the traffic of any placement out of its worst block: at least one of these pairs in both numbers.

    The block with the most of them has n nodes of the mesh or more, n = ceil(stages x replicas / blocks), and not all.
    Let f of its all-reduces (rows) and c of its pipelines (columns) be complete in it. A row that is there in part
    leaves it; of every column that is there in part a flow leaves or enters it, both with `wrap`. With f and c above 0
    it has a node of every row and column; with f = 0 all rows that it touches are partial, and a rows by b columns have
    n nodes only if a b >= n. `max_free`: free nodes of the block with the most, of `blocks` with any; `wrap`: the last
    stage sends to the first; `split`: some all-reduce is known to be in several blocks.
    """
    if stages * replicas <= max_free:
        return [(0, int(split))]
    n = -(-stages * replicas // max(blocks, 1))
    crossings: list[Crossing] = []
    if max_free >= replicas:
        crossings.append((replicas, 0))
    if max_free >= stages:
        crossings.append((0, stages))
    for f in range(1, min(stages, max_free // replicas + 1)):
        c = min(replicas - 1, (max_free - f * replicas) // (stages - f))
        if c > 0:
            crossings.append((replicas - c, stages - f))
    for a in range(1, stages + 1):
        if a * replicas >= n:
            crossings.append((-(-n // a), a))
    kept: list[Crossing] = []
    for b, a in sorted({(b if wrap else -(-b // 2), max(a, int(split))) for b, a in crossings}):
        if not kept or a < kept[-1][1]:
            kept.append((b, a))
    return kept


@dataclass(frozen=True, slots=True)
class FreeUplinks:
    """Shares of a leaf's, pod's and zone's uplinks that traffic between sites leaves free; below 0 it does not fit."""

    leaf: float = 1.0
    pod: float = 1.0
    zone: float = 1.0


def wan_gbps(wan: Wan, links: Iterable[Link], design: WanPlan | None, site: str) -> float:
    """Compute the Gb/s, each way, of the wavelengths at a site's WAN gateway: as designed, else by its links."""
    # By the design the sum over routes that end there, each at the larger of its rate and its backup's, in whole
    # wavelengths; traffic that only passes by is not counted.
    if design is None:
        return math.fsum(link.capacity_gbps for link in links if site in (link.a, link.b))
    ending = (demand for demand in design.demands if site in (demand.a, demand.b))
    rates = (max(route.gbps, route.backup_gbps or 0.0) for demand in ending for route in demand.routes)
    return wavelengths(wan, math.fsum(rates)) * wan.wavelength_gbps


def wan_ports(gbps: float, networks: int, port_gbps: float) -> int:
    """Count the WAN gateway ports of each of `networks` networks for a site's traffic: ceil(its rate / a port's)."""
    return math.ceil(gbps / networks / port_gbps * (1 - 1e-12))


def exchange_gbps(
    wan: Wan,
    links: Iterable[Link],
    design: WanPlan | None,
    site: str,
    training: Collection[str],
    exchange: tuple[float, float],
) -> float:
    """Return the Gb/s, each way, of a site's gradients at its gateway: as designed, else of bytes and seconds."""
    if site not in training:
        return 0.0
    if design is not None:
        sync = (need.requested_gbps for need in design.demands if need.priority == 0 and site in (need.a, need.b))
        return math.fsum(sync) / wan.headroom_factor
    own = (link for link in links if site in (link.a, link.b) and {link.a, link.b} <= set(training))
    return math.fsum(need_gbps(*exchange, wan.round_trips * link.rtt_ms / 1e3) for link in own)


def free_uplinks(design: Design, gbps: float, *stage_shares: float) -> FreeUplinks:
    """Return the share of the uplinks below the WAN gateway that the exchange between sites leaves free."""
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
    """Return the slowdowns of pipeline sends and all-reduces: the transport's times the largest of their loads or 1."""
    send, ring = (transport_slowdown * max(1.0, *(load[kind] for load in loads.values())) for kind in (0, 1))
    return send, ring


def shared_links(
    transport_slowdown: float, loads: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float, float]]:
    """Return transport slowdowns of a GPU's NIC and of uplinks with any load: of sends, of rings, and of both together.

    Flows share a link evenly whatever they carry (max-min fairness: Bertsekas and Gallager 1992, Data Networks,
    section 6.5.2), so that their loads add. On its NIC a GPU has one flow of each.
    """
    loaded = {"nic": (1.0, 1.0)} | {name: both for name, both in loads.items() if sum(both)}
    slow = {name: [transport_slowdown * max(1.0, x) for x in (*both, sum(both))] for name, both in loaded.items()}
    return {name: (send, ring, both) for name, (send, ring, both) in slow.items()}


def wait_for_others(own_seconds: Num, slowdown: Num, other_seconds: Num) -> Num:
    """Compute the seconds by which a flow ends later because other traffic is on its links when it starts.

    `own_seconds` at the NIC's ideal rate; the others take `other_seconds` alone, at their `slowdown`. On a link that
    both share evenly (`shared_links`) the flow waits for as much of the others as it brings itself, in the time that
    they take for it, or for all of them. Exact where one link is the narrowest of both; elsewhere an upper bound, since
    max(1, a + b) <= max(1, a) + max(1, b).
    """
    return np.minimum(own_seconds * np.asarray(slowdown), other_seconds)
