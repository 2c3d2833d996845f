"""The lengths of a fabric's cables over the floor of its site, between hosts and the middles of runs of racks."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.instance.network import Floor

PAIRS = 1 << 18  # cables between groups measured at a time: 2 MB an array, however many groups there are
Metres = NDArray[np.float64]


@dataclass(frozen=True)
class Places:
    """The floor of one site, for cable lengths: rack k's hosts in row k // n at place k % n, n racks a row."""

    floor: Floor
    racks: int

    @cached_property
    def _sums(self) -> Metres:
        """Sum the floor coordinates of the first n racks, from which middles of cable ends are computed."""
        floor, hosts = self.floor, np.arange(self.racks) // self.floor.hosts_per_rack
        # Unless the floor states the racks of a row, it is about as wide as it is deep.
        square = math.sqrt(-(-self.racks // floor.hosts_per_rack) * floor.row_pitch_m / floor.rack_pitch_m)
        row, place = np.divmod(hosts, floor.racks_per_row or max(1, round(square)))
        at = np.stack([place * floor.rack_pitch_m, row * floor.row_pitch_m], axis=1)
        return np.concatenate([np.zeros((1, 2)), np.cumsum(at, axis=0)])

    def runs(self, size: int) -> Metres:
        """Return the middles of consecutive runs of `size` racks on the floor, where their cables end, in metres."""
        first = np.arange(0, self.racks, size)
        last = np.minimum(first + size, self.racks)
        return np.asarray((self._sums.take(last, axis=0) - self._sums.take(first, axis=0)) / (last - first)[:, None])

    def metres(self, one: Metres, other: Metres, *, spread: bool) -> Metres:
        """Return the length in metres of cables between places: on trays along and across rows, and at the ends."""
        # `spread`: both ends are switches, which are in network racks around the middle and not all in one.
        along, across = np.abs(one - other).T
        return np.asarray(along + across + 2 * self.floor.rise_m + spread * self.floor.spread_m)

    def to_middle(self, size: int, around: int, *, spread: bool = True) -> Metres:
        """Return the cable length in metres from the middle of each run of `size` racks to that of `around` racks."""
        # Runs of either follow each other from the site's first rack; the last may be smaller.
        own = self.runs(size)
        return self.metres(own, self.runs(around).take(np.arange(len(own)) * size // around, axis=0), spread=spread)

    def adjacent_metres(self) -> Metres:
        """Return the length in metres of a cable between two switches placed at one middle of the floor."""
        middle = np.zeros((1, 2))
        return self.metres(middle, middle, spread=True)

    def group_metres(self, pod: int) -> Iterator[Metres]:
        """Yield the metres of links between each pair of groups of `pod` racks, in pieces of `PAIRS` or one group's."""
        middle = self.runs(pod)
        groups, step = np.arange(len(middle)), max(1, PAIRS // len(middle))
        for at in range(0, len(groups), step):
            low, high = np.nonzero(groups[at : at + step, None] < groups)
            if len(low):
                yield self.metres(middle[at + low], middle[high], spread=True)
