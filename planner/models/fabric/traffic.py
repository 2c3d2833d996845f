"""What traffic asks of the fabric's uplinks at the worst placement: links out of a leaf, a pod or a zone."""

import math

import numpy as np

from planner.models.fabric.data import TOLERANCE, Ints, Mode, Problem, exchange_flows, rings
from planner.physics.network.links import Metres


def least_leaf_up(p: Problem, m: Mode, domain: int, domains: int) -> int:
    """Hide what leaves a leaf of w GPUs a rack: u1 >= D·w/ratio for the hop, rings·w/ratio for the all-reduce, and the all-to-all as it is.

    One where one domain holds all. The exchange between sites takes its ports' worth beside these, the more of a stage the domain holds.
    """
    gone = m.exchange_ports(p.request) * min(1.0, domain / p.request.group_racks)
    if domains == 1:
        return max(1, math.ceil(gone))
    hop, ring = domain * m.rail_gpus / p.ratios.hop, rings(p.request, domain) * m.rail_gpus / p.ratios.allreduce
    exchange = exchange_flows(p.request, domain) * m.rail_gpus
    return max(1, *(math.ceil(flows / m.split + gone) for flows in (hop, ring, exchange)))


def least_block_up(p: Problem, m: Mode, domain: Ints, domains: Ints, rails: Ints, width: Ints, blocks: Ints) -> Ints:
    """Hide what leaves a block, a pod or zone of x rails of y domains: links >= D·w·x·y/ratio for the hop and rings·w·x/ratio for the all-reduce.

    Nothing where a block holds every domain, but for the exchange between sites, which takes its ports' worth anyway. Where there are several
    blocks, the floor between them besides: a share of D·w·x·y.
    """
    ends = domain * m.rail_gpus * rails * width
    shared = np.minimum(-(-width * domain // p.request.group_racks) + 1, p.request.groups) * (p.request.group_racks > 1)
    around = np.maximum(shared / p.ratios.allreduce, block_exchange(p, domain * width)) * m.rail_gpus * rails
    crossing = np.where(width < domains, np.maximum(ends / p.ratios.hop, around) / m.split, 0.0)
    gone = (
        m.exchange_ports(p.request)
        * np.minimum(1.0, width * domain / p.request.group_racks)
        * np.minimum(rails, m.rails)
    )
    hidden = np.ceil(crossing + gone)
    floor = np.where(blocks > 1, np.ceil(ends * p.network.min_core_share / m.split * (1 - TOLERANCE)), 0.0)
    need: Ints = np.maximum(hidden, floor).astype(np.int64)
    return need


def block_exchange(p: Problem, racks: Ints) -> Metres:
    """Most all-to-all flows of one GPU index that leave each block of so many racks."""
    if p.request.exchange_racks < 2:
        return np.zeros(len(racks))
    each, which = np.unique(racks, return_inverse=True)
    flows: Metres = np.array([exchange_flows(p.request, n) for n in each.tolist()])[which.ravel()]
    return flows
