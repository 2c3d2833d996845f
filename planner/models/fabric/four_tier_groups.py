"""One spine group of four tiers: the cheapest cores and super-spines for every number of spine uplinks.

Of u2 uplinks in bundles of b2 each zone has c = u2/b2 cores of z·b2 ports down for its z pods and u3 up, and each of
these c positions has e = u3/b3 super-spines over the Z zones. So the group costs P spines, Z·c cores and c·e
super-spines, its links besides, under z·b2 + u3 <= ports, Z·b3 <= ports and c·u3 >= what leaves a zone. For a c the
largest b3 that divides u3 takes fewest switches, and the best u3 up to any number is a running minimum over u3, so
every c, b2 and u3 is weighed.
"""

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from planner.models.fabric.bundles import Ints, core_bundles

INFINITE_COST = 10**15  # above the price of any fabric, and its sums still fit 64 bits
NEVER = 1 << 62  # above all that switch prices times ports squared come to


class GroupRequest(NamedTuple):
    """What fixes the ways to build a group: prices of switch and links, counts, pins on a core's ports (0: none)."""

    ports: int
    switch: int
    pods: int
    spine_link: int
    wan_gateway: int
    zones: int
    zone_pods: int
    zone_link: int
    zone_up: int
    core_down: int
    core_up: int


@dataclass(frozen=True, slots=True)
class GroupCosts:
    """By spine uplinks: the lowest cost, its fewest switches of one network, and the cores of a zone that they take.

    `INFINITE_COST` where there is no way to build the group.
    """

    cost: Ints
    switches: Ints
    cores: Ints


@lru_cache(maxsize=2048)
def group_costs(a: GroupRequest) -> GroupCosts:
    """Return the cheapest way to build a group for every number of spine uplinks."""
    worth, fewest = _tops(a)
    best = np.minimum.accumulate(np.where(np.arange(a.ports + 1) >= fewest[:, None], worth, NEVER), axis=1)
    cores, bundle = core_pairs(a.ports, a.zone_pods, a.core_down)
    top = best[cores - 1, a.ports - a.zone_pods * bundle]
    keep = top < NEVER
    cores, up, top = cores[keep], (cores * bundle)[keep], top[keep]
    switches = a.pods + cores * (a.zones + top % (a.ports + 1))
    cost = a.switch * (a.pods + a.zones * cores) + a.spine_link * up + cores * (top // (a.ports + 1))
    order = np.lexsort((switches, cost, up))
    uplinks, first = np.unique(up[order], return_index=True)
    columns = [np.full(a.ports + 1, INFINITE_COST, dtype=np.int64) for _ in range(3)]
    for column, values in zip(columns, (cost, switches, cores), strict=True):
        column[uplinks] = values[order][first]
    return GroupCosts(*columns)


def group_design(a: GroupRequest, spine_up: int) -> dict[str, int]:
    """Return bundles and core uplinks of the way that `group_costs` chose for some spine uplinks."""
    cores = int(group_costs(a).cores[spine_up])
    bundle = spine_up // cores
    worth, fewest = _tops(a)
    up = int(fewest[cores - 1] + worth[cores - 1, fewest[cores - 1] : a.ports - a.zone_pods * bundle + 1].argmin())
    return {
        "spine_bundle": bundle,
        "core_up": up,
        "core_bundle": int(core_bundles(a.ports, a.zones, -(-a.wan_gateway // cores))[up]),
    }


def _tops(a: GroupRequest) -> tuple[Ints, Ints]:
    """Return the cost of a core position's uplinks and super-spines, by cores (rows) and uplinks, and the fewest.

    The switches, fewer than `ports` + 1, are the last digits, so that of equal costs the fewest switches come first.
    """
    cores, up = np.arange(1, a.ports, dtype=np.int64), np.arange(a.ports + 1, dtype=np.int64)
    wan_gateway = -(-a.wan_gateway // cores)
    each, which = np.unique(wan_gateway, return_inverse=True)
    switches = np.stack([up // core_bundles(a.ports, a.zones, b) for b in each.tolist()])
    worth: Ints = (a.switch * switches + a.zone_link * up) * (a.ports + 1) + switches
    if a.core_up:
        worth[:, up != a.core_up] = NEVER
    fewest = np.maximum(1, -(-a.zone_up // cores))
    if a.wan_gateway:
        free = a.ports - a.zones
        fewest = np.maximum(fewest, -(-wan_gateway // free) if free > 0 else a.ports + 1)
    return worth[which.ravel()], np.minimum(fewest, a.ports)


@cache
def core_pairs(ports: int, zone_pods: int, core_down: int) -> tuple[Ints, Ints]:
    """Return every number of cores of a group with every bundle that a core has ports for, and a port up besides."""
    bundles = np.arange(1, (ports - 1) // zone_pods + 1, dtype=np.int64)
    if core_down:
        bundles = bundles[bundles * zone_pods == core_down]
    cores = np.arange(1, ports, dtype=np.int64)
    at, which = np.nonzero(cores[:, None] * bundles < ports)
    return cores[at], bundles[which]
