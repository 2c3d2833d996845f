"""Where racks and switches stand, and how long the cables between them are."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.instance import Floor

Ints = NDArray[np.int64]
Metres = NDArray[np.float64]


@dataclass(frozen=True)
class Places:
    """The floor of one site: rack k stands in row k // n at place k % n, n racks to a row."""

    floor: Floor
    racks: int

    @property
    def racks_per_row(self) -> int:
        """Racks of a row: as given, or so many that rows take as much width as depth."""
        square = math.sqrt(self.racks * self.floor.row_pitch_m / self.floor.rack_pitch_m)
        return self.floor.racks_per_row or max(1, round(square))

    @cached_property
    def _sums(self) -> Metres:
        """Sums of the coordinates of the first n racks, n from 0: the middle of any run of racks is a difference of two."""
        k = np.arange(self.racks)
        at = np.stack([k % self.racks_per_row * self.floor.rack_pitch_m, k // self.racks_per_row * self.floor.row_pitch_m], axis=1)
        return np.concatenate([np.zeros((1, 2)), np.cumsum(at, axis=0)])

    def middle(self, first: Ints, after: Ints) -> Metres:
        """Return the middle of the racks from `first` up to, not including, `after`, cut at the site's last; metres along and across the rows."""
        last = np.minimum(after, self.racks)
        middle: Metres = (self._sums[last] - self._sums[first]) / (last - first)[:, None]
        return middle

    def metres(self, a: Metres, b: Metres, *, spread: bool) -> Metres:
        """Return the length of cables between places: along the trays, which follow rows and cross them, and up and down at the ends.

        `spread`: both ends are switches, which stand in network racks around the middle and not all in one.
        """
        length: Metres = np.abs(a - b).sum(axis=1) + 2 * self.floor.rise_m + spread * self.floor.spread_m
        return length
