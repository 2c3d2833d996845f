"""The columns of the fabric's tables, and the sizes that parts of a whole can have."""

from functools import cache

import numpy as np

from planner.models.fabric.data import Ints, Problem, unavoidable_splits

# Columns of the table of leaf domains and pod shapes, and those that its expansion by leaf uplinks adds.
SHAPE = (
    "mode", "tiers", "pods", "ports", "domain", "down_ports", "domains", "leaves", "leaf_cost", "splits",
    "rails", "domains_per_pod", "leaves_per_pod", "min_up", "max_up", "need_up", "up_cost", "core_cost", "bound",
    "grouped", "router_bundle", "group_links", "between_cost", "wan_ports",
    "zones", "zone_pods", "rails_per_zone", "domains_per_zone", "need_zone", "zone_cost",
)  # fmt: skip
COLUMNS = (
    *SHAPE, "leaf_up", "leaf_bundle", "groups", "spine_down", "min_spine_up", "max_spine_up", "wan_gateway", "zone_up",
)  # fmt: skip
CHUNK = 256  # pod shapes expanded at a time: each has up to some thousand wirings, which bounds the memory
COL = {name: i for i, name in enumerate(COLUMNS)}
# What fixes the rows of a spine group.
KEYS = ("mode", "tiers", "pods", "core_cost", "wan_gateway", "zones", "zone_pods", "zone_cost", "zone_up")
KEY = [COL[name] for name in KEYS]


def pod_sizes(p: Problem, rails: int, domains: int, max_parts: int, pin: str = "spine_down_ports") -> tuple[Ints, Ints]:
    """Return rails and domains per pod, or pods per zone: for each count of pods the fewest of each.

    Every divisor where the ports down are pinned.
    """
    if pin in p.pins:
        down = p.pins[pin]
        divisors = np.array([v for v in range(1, max(down, 0) + 1) if down % v == 0], dtype=np.int64)
        return divisors[divisors <= rails], divisors[divisors <= domains]
    return part_sizes(rails, max_parts), part_sizes(domains, max_parts)


def domain_columns(p: Problem, mode: int, domain: int) -> dict[str, int]:
    """Return the columns that all shapes over leaf domains of one size share."""
    m, domains = p.modes[mode], -(-p.request.racks // domain)
    return {
        "mode": mode,
        "ports": m.switch.ports,
        "domain": domain,
        "down_ports": domain * m.rail_gpus,
        "domains": domains,
        "leaves": m.networks * m.rails * domains,
        "splits": unavoidable_splits(p.request, domain),
        "wan_ports": m.wan_ports(p.request),
    }


@cache
def part_sizes(items: int, max_parts: int) -> Ints:
    """Return the sizes ceil(items / parts), once each: no smaller size makes as few parts."""
    parts = np.arange(1, min(items, max_parts) + 1, dtype=np.int64)
    return np.unique(-(-items // parts))


@cache
def core_bundles(ports: int, pods: int, wan_gateway: int, core_ports: int = 0) -> Ints:
    """Return the largest bundle for every number u of uplinks of `pods` switches: a divisor of u that fits those above.

    The c = u / bundle switches above, of as many ports unless `core_ports` says otherwise, have
    c·ports >= pods·u + `wan_gateway`; 1 where no bundle fits.
    """
    core_ports = core_ports or ports
    if not wan_gateway:
        return largest_divisor(ports, core_ports // pods)
    best = np.ones(ports + 1, dtype=np.int64)
    for b in range(2, core_ports // pods + 1):
        up = np.arange(b, ports + 1, b, dtype=np.int64)
        best[up[up // b * core_ports >= pods * up + wan_gateway]] = b
    return best


@cache
def largest_divisor(upto: int, largest: int) -> Ints:
    """Return the largest divisor, not above `largest`, of every number up to `upto`."""
    best = np.ones(upto + 1, dtype=np.int64)
    for b in range(2, min(largest, upto) + 1):
        best[b::b] = b
    return best
