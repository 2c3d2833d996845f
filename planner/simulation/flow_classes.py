"""Spraying around failed cables, with all positions that no failure touches as one.

Two positions of a tier below the same switch carry the same load where no cable to either, or to what stands above it,
has failed in any subtree: a flow that splits evenly over live next hops sends as much to each. So they and their cables
are one class with their joint rate. Apart stand only the positions that failures touch: as many as there are failures,
and the rest of their siblings, not one for each switch.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.simulation.live_cables import Alive, Flows, refuse_cut_off
from planner.simulation.rng import Floats, Ints


@dataclass(frozen=True, eq=False)
class Level:
    """Classes of the positions of one tier, those below one class of the tier under it side by side.

    Attributes
    ----------
    parent
        Class of the tier below.
    first
        The one position of a class that a failure touches, or the first of its positions.
    each
        Positions for each position of the parent.
    many
        Positions in all.
    apart
        A failure touches it.
    """

    parent: Ints
    first: Ints
    each: Ints
    many: Ints
    apart: np.ndarray

    @cached_property
    def starts(self) -> Ints:
        """First class below each class of the tier under it; every one has some."""
        return np.flatnonzero(np.diff(self.parent, prepend=-1))


class Classes:
    """The classes of a tree with failed cables, and how flows split over them."""

    def __init__(self, alive: Alive) -> None:
        self.tree, self.counts = alive.tree, alive.counts
        touched = self._touched()
        self.levels = [_level([(-1, 0, 1, 1, True)])]
        for t in range(self.tree.tiers):
            self.levels.append(_above(self.levels[-1], touched[t], self.tree.up[t]))

    def _touched(self) -> list[np.ndarray]:
        """Return the positions of each tier, leaves first, to which, or above which, a cable has failed anywhere."""
        tree, tiers = self.tree, []
        above = np.zeros(tree.widths[-1], bool)
        for t in reversed(range(tree.tiers)):
            touched = (self.counts[t] < tree.bundle[t]).any(axis=(0, 1)) | above
            tiers.append(touched)
            above = touched.reshape(tree.widths[t], tree.up[t]).any(axis=1)
        return tiers[::-1]

    @cached_property
    def offsets(self) -> list[int]:
        """Number of the first cable class below each tier of one plane and direction, and of all of them."""
        sizes = [self.tree.subtrees[t] * len(level.parent) for t, level in enumerate(self.levels[1:])]
        return [0, *np.cumsum(sizes).tolist()]

    def live(self, t: int, plane: int) -> Ints:
        """Return live cables from one switch below tier t + 1 to each class, by subtree."""
        level = self.levels[t + 1]
        return np.where(level.apart, self.counts[t][plane][:, level.first], level.each * self.tree.bundle[t])

    def capacity(self) -> Floats:
        """Return bytes per second of every class of cables in every direction of every plane."""
        rates = []
        for plane, share in enumerate(self.tree.planes):
            one = []
            for t, rate in enumerate(self.tree.rates):
                level = self.levels[t + 1]
                cables = np.where(level.apart, self.live(t, plane), level.many * self.tree.bundle[t])
                one.append((cables * rate).ravel())
            rates += [share * np.concatenate(one)] * 2
        return np.concatenate(rates)

    def link(self, t: int, subtree: Ints, *, down: bool, plane: int) -> Ints:
        """Return the number of the cable class from each subtree to every class of tier t + 1: subtree by class."""
        n = len(self.levels[t + 1].parent)
        return (2 * plane + down) * self.offsets[-1] + self.offsets[t] + subtree[:, None] * n + np.arange(n)

    def entries(self, tier: int) -> int:
        """Classes of cables that a flow which turns round at a tier loads in one plane."""
        return 2 * sum(len(level.parent) for level in self.levels[1 : tier + 1])

    def shared(self, flows: Flows, f: Ints, tier: int, plane: int) -> list[tuple[Ints, Floats]]:
        """Return the cable classes of every hop, with each flow's share when it splits evenly over live next hops."""
        ends = [[self.tree.subtree(end, t) for t in range(tier)] for end in (flows.source[f], flows.target[f])]
        ups = [self.live(t, plane)[ends[0][t]] for t in range(tier)]
        alive = self._reaching(ups, [self.live(t, plane)[ends[1][t]] for t in range(tier)])
        if not alive[0].all():
            refuse_cut_off(self.tree, flows, int(f[np.flatnonzero(~alive[0][:, 0])[0]]), plane)
        share, loads = np.ones((len(f), 1)), []
        for t in range(tier):
            level, here = self.levels[t + 1], ups[t] * alive[t + 1]
            total = np.add.reduceat(here, level.starts, axis=1)
            share = share[:, level.parent] * here / np.maximum(total, 1)[:, level.parent]
            loads += [(self.link(t, ends[down][t], down=bool(down), plane=plane), share) for down in (0, 1)]
        return loads

    def _reaching(self, ups: list[Ints], downs: list[Ints]) -> list[np.ndarray]:
        """Return for each flow, tier by tier, which classes lead to its target."""
        valid = [np.ones((len(ups[0]), 1), bool)]
        for t, (up, down) in enumerate(zip(ups, downs, strict=True)):
            valid.append(valid[-1][:, self.levels[t + 1].parent] & (up > 0) & (down > 0))
        for t in reversed(range(len(ups))):
            valid[t] &= np.logical_or.reduceat(valid[t + 1], self.levels[t + 1].starts, axis=1)
        return valid


def _above(below: Level, touched: np.ndarray, up: int) -> Level:
    """Return the classes above those of a tier: each position that a failure touches, and its other siblings as one."""
    columns: list[tuple[int, int, int, int, bool]] = []
    classes = zip(below.first.tolist(), below.many.tolist(), below.apart.tolist(), strict=True)
    for c, (first, many, apart) in enumerate(classes):
        own = np.flatnonzero(touched[first * up : (first + 1) * up]) if apart else np.empty(0, np.int64)
        columns += [(c, first * up + int(y), 1, 1, True) for y in own]
        rest = up - len(own)
        if rest:
            at = int(np.setdiff1d(np.arange(up), own)[0])
            columns.append((c, first * up + at, rest, many * rest, False))
    return _level(columns)


def _level(columns: list[tuple[int, int, int, int, bool]]) -> Level:
    parent, first, each, many, apart = (np.array(v) for v in zip(*columns, strict=True))
    return Level(parent=parent, first=first, each=each, many=many, apart=apart)
