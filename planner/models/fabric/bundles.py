"""Bundles of links that divide uplinks and fit the switches above, and the sizes that parts of a whole can have."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


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
