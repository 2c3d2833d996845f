"""Locality of a placement: its traffic across leaf domains, pods and zones, and bounds on it.

Rack k of a site belongs to leaf domain k // D, domain l to pod l // y, and to zone l // Y where there are zones. A
stage is the ordered racks of its replica group: rank q of stage i sends to rank q of stage i + 1, and the racks of one
stage all-reduce its gradients around a ring.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from planner.physics import Ints, Num

Stages = Sequence[Sequence[int]]  # the racks of each stage in rank order


@dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """The locality of a site's placement: traffic out of the worst leaf domain, pod and zone; 0 without zones."""

    share_leaving: tuple[float, ...]  # flows that leave, over the racks of the block
    allreduces_leaving: tuple[int, ...]
    stage_in: tuple[float, ...] = (0.0, 0.0, 0.0)  # largest share of a stage's racks in one block
    groups_split: int = 0
    extra_pieces: int = 0
    groups_cross_pod: int = 0


def locality(stages: Stages, block_racks: Sequence[int], *, wrap: bool) -> Locality:
    """Compute the locality of one site's placement: traffic out of leaf domains, pods and, if there are any, zones.

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
    """Compute a placement's locality of experts: the most all-to-all flows of a rack out of a block, over its size."""
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
    """Bound the locality of experts: all-to-all traffic out of a block of racks with `fragments` runs of a stage."""
    # Only the groups at the two ends of a fragment lie partly outside; one that the block's edge halves sends most.
    return np.minimum(racks, 2 * fragments * (group**2 // 4) / (group - 1)) if group > 1 else 0.0


def lower_bound_split(free: Sequence[int], groups: int, group_racks: int) -> int:
    """Bound the locality of all-reduces: equal groups that split over leaves anywhere, S - sum of floor(f_l / G)."""
    return max(0, groups - sum(racks // group_racks for racks in free))


def domain_racks(racks: int, leaf_domain_racks: int) -> list[int]:
    """List the racks of each leaf domain by which locality is counted: all full but perhaps the last."""
    full, rest = divmod(racks, leaf_domain_racks)
    return [leaf_domain_racks] * full + [rest] * (rest > 0)


def _most_common(values: Ints) -> int:
    return int(np.unique(values, return_counts=True)[1].max(initial=0))


Crossing = tuple[int, int]  # (pipeline flows that leave or enter the worst block, all-reduces that leave it)


def min_crossings(
    stages: int, replicas: int, *, max_free: int, blocks: int, wrap: bool, split: bool = False
) -> list[Crossing]:
    """Bound the locality of any placement: its worst block's traffic is at least one of these pairs in both numbers.

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
