"""What an assignment of stages to racks sends across leaf domains, pods and zones.

Rack k of a site stands in leaf domain k // D, domain l in pod l // y, and in zone l // Y where there are zones. A stage
is the ordered racks of its replica group: rank q of stage i sends to rank q of stage i + 1, and the racks of one stage
all-reduce its gradients around a ring.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Racks = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """What crosses leaf domains, pods and zones at one site; nothing crosses a zone where there is none."""

    share_leaving_leaf: float
    share_leaving_pod: float
    allreduces_leaving_leaf: int
    allreduces_leaving_pod: int
    groups_split: int
    extra_pieces: int
    groups_cross_pod: int
    stage_in_leaf: float
    stage_in_pod: float
    share_leaving_zone: float = 0.0
    allreduces_leaving_zone: int = 0
    stage_in_zone: float = 0.0


def locality(
    stages: Sequence[Sequence[int]],
    *,
    leaf_domain_racks: int,
    domains_per_pod: int,
    wrap: bool,
    domains_per_zone: int = 0,
) -> Locality:
    """Compute what one site's placement sends across leaf domains, pods and zones; 0 domains a zone: no zones."""
    pod_racks, zone_racks = leaf_domain_racks * domains_per_pod, leaf_domain_racks * domains_per_zone
    return Locality(
        share_leaving_leaf=share_leaving(stages, leaf_domain_racks, wrap=wrap),
        share_leaving_pod=share_leaving(stages, pod_racks, wrap=wrap),
        allreduces_leaving_leaf=allreduces_leaving(stages, leaf_domain_racks),
        allreduces_leaving_pod=allreduces_leaving(stages, pod_racks),
        groups_split=groups_split(stages, leaf_domain_racks),
        extra_pieces=extra_fragments(stages, leaf_domain_racks),
        groups_cross_pod=groups_split(stages, pod_racks),
        stage_in_leaf=stage_share(stages, leaf_domain_racks),
        stage_in_pod=stage_share(stages, pod_racks),
        share_leaving_zone=share_leaving(stages, zone_racks, wrap=wrap) if zone_racks else 0.0,
        allreduces_leaving_zone=allreduces_leaving(stages, zone_racks) if zone_racks else 0,
        stage_in_zone=stage_share(stages, zone_racks) if zone_racks else 0.0,
    )


def share_leaving(stages: Sequence[Sequence[int]], block: int, *, wrap: bool) -> float:
    """Return the most pipeline flows that leave, or that enter, one block of racks, over the block's size.

    `wrap`: the last stage sends to the first, as virtual stages make it do.
    """
    source, target = _flows(stages, wrap=wrap)
    crossing = source // block != target // block
    if not crossing.any():
        return 0.0
    return max(_most_common(source[crossing] // block), _most_common(target[crossing] // block)) / block


def allreduces_leaving(stages: Sequence[Sequence[int]], block: int) -> int:
    """Return the most groups that have racks in one block and elsewhere too."""
    stage, blocks = _fragments(stages, block)
    shared = np.bincount(stage, minlength=1)[stage] > 1
    return _most_common(blocks[shared]) if shared.any() else 0


def stage_share(stages: Sequence[Sequence[int]], block: int) -> float:
    """Return the largest share of one stage's racks that stand in one block; 0 where nothing is placed."""
    return max((_most_common(np.asarray(s, dtype=np.int64) // block) / len(s) for s in stages if len(s)), default=0.0)


def exchange_leaving(stages: Sequence[Sequence[int]], block: int, group: int) -> float:
    """Return the largest number of all-to-all flows that leave one block, over the block's size.

    Every `group` racks of a stage exchange. A rack sends as much to each other rack of its group, so i of n racks in
    the block send i·(n - i)/(n - 1) out of it.
    """
    if group < 2 or not any(len(s) for s in stages):
        return 0.0
    ranks = [np.asarray(s, dtype=np.int64) for s in stages]
    sizes = [np.minimum(group, len(s) - np.arange(len(s)) // group * group) for s in ranks]
    labels = np.concatenate([i * (max(map(len, ranks)) + 1) + np.arange(len(s)) // group for i, s in enumerate(ranks)])
    blocks, n = np.concatenate(ranks) // block, np.concatenate(sizes)
    span = int(blocks.max()) + 1
    pairs, at, inside = np.unique(labels * span + blocks, return_index=True, return_counts=True)
    out = inside * (n[at] - inside) / np.maximum(1, n[at] - 1)
    return float(np.bincount(pairs % span, weights=out).max()) / block


def exchange_bound(fragments: int, racks: int, group: int) -> float:
    """Bound `exchange_leaving` of so many racks with fragments of so many stages, each fragment in rank order.

    Only the groups at the two ends of a fragment are cut, and one cut in the middle sends the most.
    """
    return min(float(racks), 2 * fragments * (group**2 // 4) / (group - 1)) if group > 1 else 0.0


def groups_split(stages: Sequence[Sequence[int]], block: int) -> int:
    """Return how many groups are spread over more than one block."""
    stage, _ = _fragments(stages, block)
    return int((np.bincount(stage, minlength=1) > 1).sum())


def extra_fragments(stages: Sequence[Sequence[int]], block: int) -> int:
    """Return the fragments beyond one per group; a fragment is a group's racks in one block."""
    stage, _ = _fragments(stages, block)
    return len(stage) - len(np.unique(stage))


def lower_bound_split(free: Sequence[int], groups: int, group_racks: int) -> int:
    """Bound how many of equal groups are split, whatever the placement: S - sum of floor(f_l / G)."""
    return max(0, groups - sum(f // group_racks for f in free))


def domain_racks(racks: int, leaf_domain_racks: int) -> list[int]:
    """Return the racks of each leaf domain: all full but perhaps the last."""
    full, rest = divmod(racks, leaf_domain_racks)
    return [leaf_domain_racks] * full + [rest] * (rest > 0)


def _most_common(values: Racks) -> int:
    """Return how often the most frequent value occurs."""
    return int(np.unique(values, return_counts=True)[1].max())


def _flows(stages: Sequence[Sequence[int]], *, wrap: bool) -> tuple[Racks, Racks]:
    """Return the racks that send along the pipeline and those that receive, flow by flow."""
    ranks = [np.asarray(s, dtype=np.int64) for s in stages]
    pairs = list(pairwise(ranks))
    if wrap and len(ranks) > 1:
        pairs.append((ranks[-1], ranks[0]))
    if not pairs:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    both = [(a[: min(len(a), len(b))], b[: min(len(a), len(b))]) for a, b in pairs]
    return np.concatenate([a for a, _ in both]), np.concatenate([b for _, b in both])


def _fragments(stages: Sequence[Sequence[int]], block: int) -> tuple[Racks, Racks]:
    """Return the distinct pairs of stage and block that the assignment uses."""
    if not any(len(s) for s in stages):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    stage = np.repeat(np.arange(len(stages)), [len(s) for s in stages])
    blocks = np.concatenate([np.asarray(s, dtype=np.int64) for s in stages]) // block
    span = int(blocks.max()) + 1
    pairs = np.unique(stage * span + blocks)
    return pairs // span, pairs % span


Crossing = tuple[int, int]  # (pipeline flows that leave or enter the worst block, all-reduces that leave it)


def min_crossings(
    stages: int, replicas: int, *, max_free: int, blocks: int, wrap: bool, split: bool = False
) -> list[Crossing]:
    """Bound what any placement sends out of its worst block: it is no better than one of these pairs in both numbers.

    The block with the most of them has n nodes of the mesh or more, n = ceil(stages x replicas / blocks), and not all.
    Let f of its all-reduces (rows) and c of its pipelines (columns) be complete in it. A row that is there in part
    leaves it; of every column that is there in part a flow leaves or enters it, both with `wrap`. With f and c above 0
    it has a node of every row and column; with f = 0 all rows that it touches are partial, and a rows by b columns have
    n nodes only if a b >= n.

    Parameters
    ----------
    max_free
        Free nodes of the block with the most.
    blocks
        Blocks with free nodes.
    wrap
        The last stage sends to the first.
    split
        Some all-reduce is known to be in several blocks.
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
    return _best({(b if wrap else -(-b // 2), max(a, int(split))) for b, a in crossings})


def _best(pairs: set[Crossing]) -> list[Crossing]:
    """Return the pairs that no other is as good as in both numbers."""
    kept: list[Crossing] = []
    for b, a in sorted(pairs):
        if not kept or a < kept[-1][1]:
            kept.append((b, a))
    return kept
