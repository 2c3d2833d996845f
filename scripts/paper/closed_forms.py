"""Closed forms of non-blocking and relaxed trees, against which the counts of a design are tested."""

import math


def fat_tree_endpoints(ports: int, tiers: int) -> int:
    """Return the most endpoints of a non-blocking tree: 2·(k/2)^T (Al-Fares 2008 for three tiers)."""
    return 2 * int((ports // 2) ** tiers)


def fat_tree_switches(endpoints: int, ports: int, tiers: int) -> float:
    """Return the switches of a non-blocking tree, not rounded: (2T - 1)·N/k, the top tier included."""
    return (2 * tiers - 1) * endpoints / ports


def fat_tree_links(endpoints: int, tiers: int) -> int:
    """Return the switch-to-switch links of a non-blocking tree: (T - 1)·N."""
    return (tiers - 1) * endpoints


def relaxed_tiers(endpoints: int, down_up: tuple[tuple[int, int], ...], top_ports: int) -> list[int]:
    """Bound the switches of each tier by ports: n1 = ceil(N/d1), n2 = ceil(n1·u1/d2), the top ceil(links/k).

    Bundles are ignored: the count that can be wired with equal ones is larger.
    """
    counts, links = [], endpoints
    for down, up in down_up:
        counts.append(math.ceil(links / down))
        links = counts[-1] * up
    return [*counts, math.ceil(links / top_ports)]


def tree_reach(down_ports: tuple[int, ...], top_ports: int) -> int:
    """Return the most endpoints of a tree: the product of the down-ports of its tiers, every port at the top."""
    return math.prod(down_ports) * top_ports
