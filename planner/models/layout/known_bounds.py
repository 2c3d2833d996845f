"""Seconds per sequence that no layout is under: by way to cut a layer and stages of the pipeline, and of single rows besides."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

ROWS = 2000  # told apart at most, but for those under the rest of their pair
Key = tuple[int, int, int, int, bool]  # way to cut a layer, ZeRO stage, stages, virtual stages, filled


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows with floors under a target: all of some pairs of a way and stages but `less`, and `more` of the others."""

    pairs: NDArray[np.bool_]
    more: tuple[Key, ...]
    less: tuple[Key, ...]

    @property
    def ways(self) -> NDArray[np.int64]:
        """Ways to cut a layer with some wanted row."""
        return np.union1d(np.flatnonzero(self.pairs.any(axis=1)), [k[0] for k in self.more]).astype(np.int64)

    def rows(
        self, way: int, zero: int, p: NDArray[np.int64], v: NDArray[np.int64], filled: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Tell which of the pipelines of a way to cut a layer and a ZeRO stage are wanted."""
        found = np.asarray(self.pairs[way, p])
        for keys, own in ((self.more, True), (self.less, False)):
            for key in keys:
                if key[:2] == (way, zero):
                    found[(p == key[2]) & (v == key[3]) & (filled == key[4])] = own
        return found


@dataclass(frozen=True, slots=True)
class Floors:
    """Floors of pairs of a way and stages, for all their rows but those that are told apart."""

    pairs: NDArray[np.float64]
    rows: dict[Key, float] = field(default_factory=dict)

    def of(self, key: Key) -> float:
        """Return the floor of a row."""
        return self.rows.get(key, float(self.pairs[key[0], key[2]]))

    def mostly_under(self, target: float) -> bool:
        """Tell whether most pairs have a floor under a target; a pipeline has one stage at least."""
        real = self.pairs[:, 1:]
        return bool(2 * np.count_nonzero(real < target) > real.size)

    def wanted(self, target: float) -> Wanted:
        """Return the rows with floors under a target."""
        pairs = self.pairs < target
        pairs[:, 0] = False
        more = tuple(k for k, x in self.rows.items() if x < target and not pairs[k[0], k[2]])
        less = tuple(k for k, x in self.rows.items() if x >= target and pairs[k[0], k[2]])
        return Wanted(pairs, more, less)

    def where(self, held: NDArray[np.bool_]) -> "Floors":
        """Return the floors of the pairs that hold, and zero for the others."""
        return Floors(np.where(held, self.pairs, 0.0), {k: x for k, x in self.rows.items() if held[k[0], k[2]]})

    def updated(self, found: "Floors", wanted: Wanted) -> "Floors":
        """Return the floors that hold after a search of the wanted rows found others of these."""
        single = set(wanted.less)
        kept = {k: x for k, x in self.rows.items() if k in single or not wanted.pairs[k[0], k[2]]}
        return Floors(np.where(wanted.pairs, found.pairs, self.pairs), kept | found.rows)

    @classmethod
    def highest(cls, several: Sequence["Floors"]) -> "Floors":
        """Return the highest of several floors of each row."""
        pairs = np.maximum.reduce([f.pairs for f in several])
        rows = {k: max(f.of(k) for f in several) for k in {k for f in several for k in f.rows}}
        if len(rows) > ROWS:  # those above the rest of their pair may go: they have its floor then
            rows = {k: x for k, x in rows.items() if x < pairs[k[0], k[2]]}
        return cls(pairs, rows)
