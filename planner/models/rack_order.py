"""The order of a site's racks in stripes, and what crosses leaf domains, pods and zones on it: counted, not estimated.

A unit is the c racks of one rack stage of one block, side by side. Runs of whole units are counted by units, runs that
cut units rack by rack.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.cluster import hostlist
from planner.physics.network.topology import Design
from planner.plan.placement import Assignment

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
MOST_ENTRIES = 1 << 21  # of an array of places, counted at a time


def stripe_sizes(stages: int, stripes: int) -> tuple[int, ...]:
    """Divide the rack stages into stripes as equal as can be, the larger first."""
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


@dataclass(frozen=True, slots=True)
class Leaving:
    """What leaves runs of racks of several sizes, one entry a size.

    The most pipeline flows that leave or enter one, the most allreduces that leave one, the largest share of a stage's
    racks in one, and the most all-to-all flows of experts that leave one.
    """

    flows: Ints
    allreduces: Ints
    stage_shares: Floats
    exchanges: Floats


def leaving(
    stages: int,
    blocks: int,
    stripes: int,
    unit_racks: int,
    sizes: tuple[int, ...],
    *,
    wrap: bool,
    exchange_racks: int = 1,
    shares: bool = True,
) -> Leaving:
    """Count what leaves runs of so many racks, from the first rack on, on the order of racks in stripes.

    Every `exchange_racks` ranks of a stage, one after another, exchange tokens with experts (1: none do).
    `shares`: count the largest share of a stage.
    """
    size = np.asarray(sizes, dtype=np.int64)
    whole = (size % unit_racks == 0) & (unit_racks % exchange_racks == 0)
    found = Leaving(
        np.zeros(len(size), np.int64), np.zeros(len(size), np.int64), np.zeros(len(size)), np.zeros(len(size))
    )
    at = units(stages, blocks, stripes)
    for part in _parts(np.flatnonzero(whole), at.size):
        _count(found, part, at, size[part] // unit_racks, unit_racks, wrap=wrap, shares=shares)
    racks = (at[:, :, None] * unit_racks + np.arange(unit_racks)).reshape(stages, -1)
    for part in _parts(np.flatnonzero(~whole), racks.size):
        _count(found, part, racks, size[part], 1, wrap=wrap, shares=shares)
        if exchange_racks > 1:
            found.exchanges[part] = _exchanges(racks[None, :, :] // size[part, None, None], exchange_racks)
    return found


def first_run(stages: int, blocks: int, stripes: Ints, sizes: Ints, *, wrap: bool) -> tuple[Ints, Ints]:
    """Count the flows that leave or enter the first run of so many units, fewer than all, and the allreduces that do.

    In closed form, by stripes (rows) and sizes (columns): no more than the most of any run. The first run holds k whole
    stripes, and of the next q whole parts of blocks and r stages of one more.
    """
    n, size = np.asarray(stripes, dtype=np.int64)[:, None], np.asarray(sizes, dtype=np.int64)[None, :]
    small, larger = stages // n, stages % n
    at = size // blocks
    in_larger = at < larger * (small + 1)
    k = np.where(in_larger, at // (small + 1), larger + (at - larger * (small + 1)) // small)
    width = np.where(in_larger, small + 1, small)
    q, r = np.divmod(size - (k * small + np.minimum(k, larger)) * blocks, width)
    begun = q + (r > 0)
    leaves = np.where(k > 0, blocks - begun, 0) + (r > 0) + np.where(k + 1 < n, q, 0)
    enters = np.where(k + 1 < n, np.where(k > 0, blocks, begun), 0) if wrap else np.zeros_like(leaves)
    around = np.where(q == 0, r, np.where(q == blocks - 1, width - r, width))
    return np.maximum(leaves, enters), around if blocks > 1 else np.zeros_like(around)


def _parts(which: Ints, entries: int) -> list[Ints]:
    """Cut sizes into parts that are counted at a time."""
    step = max(1, MOST_ENTRIES // max(1, entries * 2))
    return [which[i : i + step] for i in range(0, len(which), step)]


def _count(found: Leaving, part: Ints, at: Ints, size: Ints, unit: int, *, wrap: bool, shares: bool) -> None:
    """Count flows, allreduces and shares of some sizes, in units of so many racks, on the places of units."""
    places = at[None, :, :] // size[:, None, None]
    found.flows[part] = _flows(places, wrap=wrap) * unit
    found.allreduces[part] = _rings(places)
    if shares:
        found.stage_shares[part] = _together(places) / at.shape[1]


def _together(places: Ints) -> Ints:
    """Count the most units of one stage in one run."""
    kinds, stages, ranks = places.shape
    span = int(places.max()) + 1
    keys = np.arange(kinds * stages)[:, None] * span + places.reshape(-1, ranks)
    found = np.bincount(keys.ravel(), minlength=kinds * stages * span).reshape(kinds, -1)
    return np.asarray(found.max(axis=1), dtype=np.int64)


def _exchanges(places: Ints, group: int) -> Floats:
    """Count the most all-to-all flows that leave one run: i of n in it send i·(n - i)/(n - 1) out of it."""
    kinds, stages, ranks = places.shape
    span, groups = int(places.max()) + 1, -(-ranks // group)
    label = np.arange(stages)[:, None] * groups + np.arange(ranks)[None, :] // group
    n = np.minimum(group, ranks - np.arange(groups) * group)
    found = np.zeros(kinds)
    for k in range(kinds):
        pairs, inside = np.unique(label * span + places[k], return_counts=True)
        of = n[pairs // span % groups]
        out = inside * (of - inside) / np.maximum(1, of - 1)
        found[k] = np.bincount(pairs % span, weights=out).max()
    return found


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


def assignment(order: list[list[int]], d: Design) -> tuple[Assignment, ...]:
    """Return the pieces of every stage by leaf domain, racks in rank order; a piece ends where the domain changes."""
    pieces: list[Assignment] = []
    size = d.domain_racks
    for stage, racks in enumerate(order):
        first = 0
        for k in range(1, len(racks) + 1):
            if k == len(racks) or racks[k] // size != racks[first] // size:
                pieces.append(
                    Assignment(
                        stage=stage,
                        leaf_domain=racks[first] // size,
                        racks=hostlist.fold(racks[first:k], hostlist.width(d.racks)),
                    )
                )
                first = k
    return tuple(pieces)
