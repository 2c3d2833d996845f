"""Tables of fabric templates: joined, limited in price, and reduced to those that no other template beats."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
COUNTS = (  # of a design, under its names
    "leaf_up", "leaf_bundle", "rails_per_pod", "domains_per_pod", "spine_up", "spine_bundle", "core_boxes",
    "rails_per_zone", "domains_per_zone", "core_up", "core_bundle", "super_spine_boxes", "group_links",
)  # fmt: skip
KEY = ("mode", "domain", *COUNTS, "spine_model", "core_model", "stripes")
Limits = tuple[float, tuple[float, float]]  # dollars, slowdowns of sends and allreduces
TOLERANCE = 1e-9  # relative, on slowdowns: 1.05 · 4 must count as within 4.2
AT_A_TIME = 256  # rows compared with one another
AT = {name: i for i, name in enumerate(KEY)}


class ArrayTable:
    """A table as arrays of equal length, one entry a row, as of templates; subclasses are slotted dataclasses."""

    __slots__: tuple[str, ...] = ()

    def part(self, which: Flags | Ints | slice) -> Self:
        """Return a table of the rows of this template table that an index, mask or slice selects."""
        return type(self)(*[getattr(self, name)[which] for name in self.__slots__])

    __getitem__ = part

    def __len__(self) -> int:
        return len(getattr(self, self.__slots__[0]))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Join template tables of one type into one, row after row; at least one table is given."""
        return cls(*(np.concatenate([getattr(x, name) for x in parts]) for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class DesignTable(ArrayTable):
    """The table of fabric templates of a number of blocks that no other beats in slowdowns, price and power."""

    send: Floats
    allreduce: Floats
    usd: Floats
    mw: Floats
    key: Ints  # columns `KEY`: zero where the template has no such tier

    def within(self, limits: Limits, max_mw: float = math.inf) -> Self:
        """Return the templates of a table within limits on price in USD and slowdowns, and a limit on power in MW."""
        max_usd, (send, allreduce) = limits
        fits = (self.usd <= max_usd) & (self.send <= send) & (self.allreduce <= allreduce) & (self.mw <= max_mw)
        return self if fits.all() else self.part(fits)


EMPTY: Floats = np.empty(0)
NO_OPTIONS = DesignTable(EMPTY, EMPTY, EMPTY, EMPTY, np.empty((0, len(KEY)), dtype=np.int64))  # without rows


def pareto_front(points: Floats) -> Ints:
    """Return the rows of a template table that none matches or beats in all columns, of equal ones the first."""
    order = np.lexsort(points.T[::-1])
    front = order[:0]
    for at in range(0, len(order), AT_A_TIME):
        some = order[at : at + AT_A_TIME]
        # An earlier row is no worse in the first column.
        some = some[~_no_worse(points[front, 1:], points[some, 1:]).any(axis=0)]
        beaten = np.triu(_no_worse(points[some, 1:], points[some, 1:]), 1).any(axis=0)
        front = np.concatenate([front, some[~beaten]])
    return front


def _no_worse(these: Floats, those: Floats) -> Flags:
    found = np.ones((len(these), len(those)), dtype=bool)
    for column in range(these.shape[1]):
        found &= these[:, column, None] <= those[:, column]
    return found


def undominated(parts: list[DesignTable], *, power_counts: bool) -> DesignTable:
    """Join template tables without those templates that another matches in slowdowns, price and, if wanted, power."""
    # The cheapest come first; where power does not count it still decides between entries of one price. Of entries that
    # are alike in all the one with the fewest stripes, then of fewer tiers, the first mode and the largest leaf domain
    # stays.
    x = DesignTable.joined(parts) if parts else NO_OPTIONS
    mode, domain, core_up, stripes = (x.key[:, AT[name]] for name in ("mode", "domain", "core_up", "stripes"))
    x = x.part(np.lexsort((-domain, mode, core_up > 0, stripes, x.allreduce, x.send, x.mw, x.usd)))
    dearer = np.cumsum((np.diff(x.usd, prepend=0.0) != 0) | (np.diff(x.mw, prepend=0.0) != 0))
    scarce = [x.usd, x.mw] if power_counts else [dearer]
    return x.part(np.sort(pareto_front(np.stack([*scarce, x.send, x.allreduce], axis=1))))


def members(sizes: Ints) -> tuple[Ints, Ints]:
    """Return for each row of a template table, by groups of some sizes, its group, and its place in the group."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    return group, np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


class DominanceTest:
    """A dominance test of a template table: whether a template is no slower for no more money, and power if asked."""

    def __init__(self, x: DesignTable, *, power_counts: bool) -> None:
        # Tables over all pairs of slowdowns of sends and allreduces hold the cheapest template with at most these, and
        # the one that draws least power; their last row and column have none, for slowdowns that no template keeps.
        self.x, self.power_counts = x, power_counts
        self.sends, send = np.unique(x.send, return_inverse=True)
        self.allreduces, allreduce = np.unique(x.allreduce, return_inverse=True)
        usd, mw = np.append(x.usd, np.inf), np.append(x.mw, np.inf)
        self.best = list[tuple[Floats, Floats]]()
        for score in [usd, mw][: 1 + power_counts]:
            grid = np.full((len(self.sends) + 1, len(self.allreduces) + 1), -1, dtype=np.int64)
            order = np.argsort(-score[:-1], kind="stable")
            grid[send[order], allreduce[order]] = order  # the last one written is the least
            for lines in (grid[:-1, :-1], grid[:-1, :-1].T):
                for i in range(1, len(lines)):
                    better = score[lines[i - 1]] < score[lines[i]]
                    lines[i][better] = lines[i - 1][better]
            self.best.append((usd[grid], mw[grid]))

    def keeping(self, send: Any, allreduce: Any) -> Iterator[tuple[Floats, Floats]]:
        """Yield the least price of a table's templates with at most such slowdowns, with power; then of least power."""
        i = np.searchsorted(self.sends, send, side="right") - 1
        j = np.searchsorted(self.allreduces, allreduce, side="right") - 1
        for usd, mw in self.best:
            yield usd[i, j], mw[i, j]

    def beats(self, send: Any, allreduce: Any, usd: Any, mw: Any) -> Flags:
        """Return which slowdowns a template of the table keeps for at most such a price, and power where it counts."""
        found: Any = False
        for own_usd, own_mw in self.keeping(send, allreduce):
            found = found | ((own_usd <= usd) & (own_mw <= mw) if self.power_counts else own_usd <= usd)
        return np.asarray(found)
