"""The order of a site's racks in stripes, and what crosses leaf domains on it: counted, not estimated.

A unit is the c racks of one rack stage of one block, side by side. Leaf domains are runs of d racks, d a multiple of
c, so no unit is cut and everything is counted by units.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def stripe_sizes(stages: int, stripes: int) -> tuple[int, ...]:
    """ParallelStrategy the rack stages into stripes as equal as can be, the larger first."""
    return tuple(stages // stripes + (k < stages % stripes) for k in range(stripes))


@lru_cache(maxsize=4096)
def units(stages: int, blocks: int, stripes: int) -> Ints:
    """Return the place of every unit in the order of racks; shape (stages, blocks).

    A stripe lays its part of each block side by side, stage by stage; then the next stripe follows. One stripe: whole
    pipelines side by side; as many as stages: whole all-reduce groups.
    """
    found, first = np.empty((stages, blocks), dtype=np.int64), 0
    for size in stripe_sizes(stages, stripes):
        inside = np.arange(size)[:, None] + size * np.arange(blocks)[None, :]
        found[first : first + size] = first * blocks + inside
        first += size
    found.flags.writeable = False
    return found


def rank_order(stages: int, blocks: int, stripes: int, unit_racks: int) -> list[list[int]]:
    """List the racks of each rack stage in the order of ranks: block by block, the racks of a unit side by side."""
    at = units(stages, blocks, stripes)[:, :, None] * unit_racks + np.arange(unit_racks)[None, None, :]
    return [[int(r) for r in row] for row in at.reshape(stages, -1)]


@lru_cache(maxsize=4096)
def crossings(stages: int, blocks: int, stripes: int, domains: tuple[int, ...], *, wrap: bool) -> tuple[Ints, Ints]:
    """Count for each size of a leaf domain, in units, the most flows that leave or enter one.

    And the most allreduces that leave one. A flow goes from a block's unit of a stage to its unit of the next, with
    `wrap` from the last stage to the first too; an all-reduce is a stage's. Flows are of units: each stands for as
    many racks as a unit has.
    """
    at, size = units(stages, blocks, stripes), np.asarray(domains, dtype=np.int64)[:, None, None]
    places = at[None, :, :] // size
    return _flows(places, wrap=wrap), _rings(places)


def _flows(places: Ints, *, wrap: bool) -> Ints:
    stages = places.shape[1]
    if stages == 1:
        return np.zeros(len(places), dtype=np.int64)
    after = np.roll(places, -1, axis=1)
    last = stages if wrap else stages - 1
    source, target = places[:, :last].reshape(len(places), -1), after[:, :last].reshape(len(places), -1)
    crossing = source != target
    return np.maximum(_most(source, crossing), _most(target, crossing))


def _rings(places: Ints) -> Ints:
    """Count the stages that are in the busiest domain and elsewhere too."""
    first, last = places.min(axis=2), places.max(axis=2)
    cut = first != last
    kinds, stages, _ = places.shape
    span = int(places.max()) + 1
    there = np.zeros(kinds * stages * span, dtype=bool)
    group = np.arange(kinds * stages).reshape(kinds, stages)
    there[(group[:, :, None] * span + places).ravel()] = True
    counted = there.reshape(kinds, stages, span) & cut[:, :, None]
    return np.asarray(counted.sum(axis=1).max(axis=1), dtype=np.int64)


def _most(places: Ints, which: NDArray[np.bool_]) -> Ints:
    """Return for each row how often the most frequent of the places occurs among those that count."""
    rows, span = len(places), int(places.max()) + 1
    keys = np.arange(rows)[:, None] * span + places
    return np.asarray(np.bincount(keys[which], minlength=rows * span).reshape(rows, span).max(axis=1), dtype=np.int64)
