"""What traffic asks of the fabric's uplinks at the worst placement: links out of a leaf, a pod or a zone."""

import math

import numpy as np

from planner.instance.network import Network
from planner.models.fabric.data import TOLERANCE, Ints, Mode, Problem, crossing_groups, exchange_flows
from planner.physics.network.links import Metres


def leaf_share(network: Network, gpus: int, split: int) -> int:
    """Return the fewest uplinks of a leaf of so many GPUs that keep the core share: share·GPUs/split ports.

    And survive the loss that the network asks for.
    """
    least = max(network.asked_core_share, 1 / network.tier_ratios[0])
    share = math.ceil(gpus * least / split * (1 - TOLERANCE))
    return share if network.survives is None else max(share, network.asked_leaf_uplinks)


def least_leaf_up(p: Problem, m: Mode, domain: int, domains: int) -> int:
    """Return the uplinks that hide what leaves a leaf: D·w/ratio for sends, groups·w/ratio for all-reduces.

    No fewer than the core share asks for, and one where one domain has all racks. The exchange between sites takes its
    ports' worth beside what is hidden, the more of a stage it has.
    """
    gone = m.exchange_ports(p.request) * min(1.0, domain / p.request.group_racks)
    floor = max(1, leaf_share(p.network, domain * m.rail_gpus, m.split))
    if domains == 1:
        return max(floor, math.ceil(gone))
    sends = domain * m.rail_gpus / p.ratios.send
    allreduces = crossing_groups(p.request, domain) * m.rail_gpus / p.ratios.allreduce
    exchange = exchange_flows(p.request, domain) * m.rail_gpus
    return max(floor, *(math.ceil(flows / m.split + gone) for flows in (sends, allreduces, exchange)))


def least_block_up(p: Problem, m: Mode, domain: Ints, domains: Ints, rails: Ints, width: Ints, blocks: Ints) -> Ints:
    """Return the links that hide what leaves a pod or zone: D·w·x·y/ratio for sends, groups·w·x/ratio for all-reduces.

    Nothing where a block holds every domain, but for the exchange between sites, which takes its ports' worth anyway.
    Where there are several blocks, the floor between them besides: a share of D·w·x·y.
    """
    ends = domain * m.rail_gpus * rails * width
    shared = np.minimum(-(-width * domain // p.request.group_racks) + 1, p.request.groups) * (p.request.group_racks > 1)
    around = np.maximum(shared / p.ratios.allreduce, block_exchange(p, domain * width)) * m.rail_gpus * rails
    crossing = np.where(width < domains, np.maximum(ends / p.ratios.send, around) / m.split, 0.0)
    gone = (
        m.exchange_ports(p.request)
        * np.minimum(1.0, width * domain / p.request.group_racks)
        * np.minimum(rails, m.rails)
    )
    hidden = np.ceil(crossing + gone)
    floor = np.where(blocks > 1, np.ceil(ends * p.network.asked_core_share / m.split * (1 - TOLERANCE)), 0.0)
    need: Ints = np.maximum(hidden, floor).astype(np.int64)
    return need


def block_exchange(p: Problem, racks: Ints) -> Metres:
    """Most all-to-all flows of one GPU index that leave each block of so many racks."""
    if p.request.exchange_racks < 2:
        return np.zeros(len(racks))
    each, which = np.unique(racks, return_inverse=True)
    flows: Metres = np.array([exchange_flows(p.request, n) for n in each.tolist()])[which.ravel()]
    return flows
