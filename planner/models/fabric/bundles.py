"""The sizes that parts of a whole can have."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@cache
def part_sizes(items: int, max_parts: int) -> Ints:
    """Return the sizes ceil(items / parts), once each: no smaller size makes as few parts."""
    parts = np.arange(1, min(items, max_parts) + 1, dtype=np.int64)
    return np.unique(-(-items // parts))
