"""The largest bundles that divide the uplinks of a box and fit the boxes above."""

from functools import cache

import numpy as np

from planner.models.fabric_question import Ints


@cache
def core_bundles(ports: int, pods: int, border: int) -> Ints:
    """Largest bundle that divides every number of uplinks of `pods` boxes and fits those above, c·ports >= pods·u + `border` over c; else 1."""
    if not border:
        return largest_divisor(ports, ports // pods)
    best = np.ones(ports + 1, dtype=np.int64)
    for b in range(2, ports // pods + 1):
        up = np.arange(b, ports + 1, b, dtype=np.int64)
        best[up[up // b * ports >= pods * up + border]] = b
    return best


@cache
def largest_divisor(upto: int, most: int) -> Ints:
    """Largest divisor, not above `most`, of every number up to `upto`."""
    best = np.ones(upto + 1, dtype=np.int64)
    for b in range(2, min(most, upto) + 1):
        best[b::b] = b
    return best
