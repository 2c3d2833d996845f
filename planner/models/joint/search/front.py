"""The undominated plans in seconds and capital, and the gap by which they miss the floors of others."""

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.models.joint.space import Floats
from planner.models.joint.world import JointPlan


@dataclass(kw_only=True)
class Front:
    """Incumbents, capital ascending and seconds a sequence descending.

    The gap of a pair of floors (t, c) is min over incumbents p of max(T(p)/t, C(p)/c) - 1: every plan with such floors
    is matched by an incumbent that is worse in both by at most the gap, which is -1 outside the box, where no plan
    matters.
    """

    slowest: float = math.inf  # seconds a sequence from which on no plan matters
    most_usd: float = math.inf  # capital above which none does
    usd: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    plans: list[JointPlan] = field(default_factory=list)
    _arrays: tuple[Floats, Floats, Floats] | None = None
    _slopes: list[float] = field(default_factory=list)

    def add(self, seconds: float, usd: float, plan: JointPlan) -> bool:
        """Keep a plan, in place of those that it beats or equals; return whether none held beats or equals it."""
        at = bisect.bisect_right(self.usd, usd)
        if at and self.seconds[at - 1] <= seconds:
            return False
        end = at
        while end < len(self.usd) and self.seconds[end] >= seconds:
            end += 1
        first = at - 1 if at and self.usd[at - 1] == usd else at
        self.usd[first:end], self.seconds[first:end], self.plans[first:end] = [usd], [seconds], [plan]
        self._arrays = None
        return True

    def gap(self, t: float, c: float) -> float:
        """Return the gap of one pair of floors."""
        if not (t < self.slowest and c <= self.most_usd):
            return -1.0
        if not self.usd:
            return math.inf
        if t <= 0 or c <= 0:
            return float(self.gaps(t, c))
        if self._arrays is None:
            self._arrays = self._incumbents
        usd, seconds = self.usd, self.seconds
        right = bisect.bisect_left(self._slopes, c / t)
        left = max(right - 1, 0)
        right = min(right, len(usd) - 1)
        return min(max(seconds[right] / t, usd[right] / c), max(seconds[left] / t, usd[left] / c)) - 1

    @property
    def _incumbents(self) -> tuple[Floats, Floats, Floats]:
        """Capital of the incumbents, their seconds, and capital over seconds, which ascends."""
        if self._arrays is None:
            usd, seconds = np.array(self.usd), np.array(self.seconds)
            self._arrays = usd, seconds, usd / seconds
            self._slopes = self._arrays[2].tolist()
        return self._arrays

    def gaps(self, t: Any, c: Any) -> Floats:
        """Return the gaps of pairs of floors; infinite without an incumbent."""
        # As capital grows T(p)/t falls and C(p)/c grows, so the least of their maxima is at one of the two incumbents
        # next to where they cross, which is where T(p)/C(p) crosses t/c.
        t, c = np.broadcast_arrays(np.asarray(t, dtype=np.float64), np.asarray(c, dtype=np.float64))
        inside = (t < self.slowest) & (c <= self.most_usd)
        if not self.usd:
            return np.where(inside, math.inf, -1.0)
        usd, seconds, slope = self._incumbents
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.searchsorted(slope, c / t)
            right, left = np.minimum(at, len(usd) - 1), np.maximum(at - 1, 0)
            found = np.minimum(
                np.maximum(seconds[right] / t, usd[right] / c), np.maximum(seconds[left] / t, usd[left] / c)
            )
        return np.where(inside, found - 1, -1.0)

    def cutoff(self, usd: float, gap: float) -> float:
        """Return the seconds under which a plan of at least some capital must be to have a larger gap."""
        at = bisect.bisect_right(self.usd, usd * (1 + gap)) - 1
        return self.slowest if at < 0 else min(self.slowest, self.seconds[at] / (1 + gap))

    def cutoffs(self, usd: Any, gap: float) -> Floats:
        """Return, for each capital, the seconds under which a plan of at least it must be to have a larger gap."""
        at = np.searchsorted(np.array(self.usd), np.asarray(usd) * (1 + gap), side="right")
        late = np.array([self.slowest, *(min(self.slowest, x / (1 + gap)) for x in self.seconds)])
        return np.asarray(late[at], dtype=np.float64)

    def boxes(self, t: float, c: float, gap: float) -> Iterator[tuple[float, float]]:
        """Yield the (seconds, capital) of boxes above floors in which a plan would have a larger gap, dearest first."""
        most = [x / (1 + gap) for x in self.usd] + [self.most_usd]
        late = [self.slowest] + [min(self.slowest, x / (1 + gap)) for x in self.seconds]
        for seconds, usd in zip(reversed(late), reversed(most), strict=True):
            if seconds > t and usd >= c:
                yield seconds, usd
