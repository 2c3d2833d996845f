"""The columns of the fabric's tables, and the sizes that parts of a whole can have."""

from functools import cache

import numpy as np

from planner.models.fabric.data import Ints, Problem

# Columns of the table of leaf domains and pod shapes, and those that its expansion by leaf uplinks adds.
SHAPE = (
    "mode", "tiers", "pods", "ports", "domain", "down_ports", "domains", "leaves", "leaf_cost", "splits",
    "rails", "domains_per_pod", "leaves_per_pod", "least_up", "most_up", "need_up", "up_cost", "core_cost", "bound",
    "grouped", "router_bundle", "group_links", "between_cost", "wan_ports",
    "zones", "zone_pods", "rails_per_zone", "domains_per_zone", "need_zone", "zone_cost",
)  # fmt: skip
COLUMNS = (
    *SHAPE,
    "leaf_up",
    "leaf_bundle",
    "groups",
    "spine_down",
    "least_spine_up",
    "most_spine_up",
    "wan_gateway",
    "zone_up",
)
CHUNK = 256  # pod shapes expanded at a time
COL = {name: i for i, name in enumerate(COLUMNS)}
KEYS = (
    "mode",
    "tiers",
    "pods",
    "core_cost",
    "wan_gateway",
    "zones",
    "zone_pods",
    "zone_cost",
    "zone_up",
)  # what fixes the rows of a spine group
KEY = [COL[name] for name in KEYS]


def pod_sizes(
    p: Problem, rails: int, domains: int, most_parts: int, pin: str = "spine_down_ports"
) -> tuple[Ints, Ints]:
    """Rails and domains per pod, or pods per zone: for each count of pods the fewest of each; every divisor where the ports down are pinned."""
    if pin in p.pins:
        down = p.pins[pin]
        divisors = np.array([v for v in range(1, max(down, 0) + 1) if down % v == 0], dtype=np.int64)
        return divisors[divisors <= rails], divisors[divisors <= domains]
    return fewest(rails, most_parts), fewest(domains, most_parts)


@cache
def fewest(items: int, most_parts: int) -> Ints:
    """Return the sizes ceil(items / parts), once each: no smaller size makes as few parts."""
    parts = np.arange(1, min(items, most_parts) + 1, dtype=np.int64)
    return np.unique(-(-items // parts))


@cache
def core_bundles(ports: int, pods: int, wan_gateway: int) -> Ints:
    """Largest bundle that divides every number of uplinks of `pods` boxes and fits those above, c·ports >= pods·u + `WAN gateway` over c; else 1."""
    if not wan_gateway:
        return largest_divisor(ports, ports // pods)
    best = np.ones(ports + 1, dtype=np.int64)
    for b in range(2, ports // pods + 1):
        up = np.arange(b, ports + 1, b, dtype=np.int64)
        best[up[up // b * ports >= pods * up + wan_gateway]] = b
    return best


@cache
def largest_divisor(upto: int, most: int) -> Ints:
    """Largest divisor, not above `most`, of every number up to `upto`."""
    best = np.ones(upto + 1, dtype=np.int64)
    for b in range(2, min(most, upto) + 1):
        best[b::b] = b
    return best
