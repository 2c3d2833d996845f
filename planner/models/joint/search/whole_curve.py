"""The search goal of the whole curve: every plan in its box is within epsilon of a point in days and capital.

The gap of a node is the least relative excess by which an incumbent misses its floors. A node whose gap is at most
epsilon is closed: each of its plans has an incumbent that is at most by epsilon worse in both. The node of the largest
gap is opened first, so that at any moment the largest gap left is proven.
"""

import bisect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.models.joint.joint_question import World, open_sites, spared
from planner.models.joint.joint_solution import CENTS, EPS, JointPlan, racks_of
from planner.models.joint.search.block_ranges import NEVER
from planner.models.joint.search.branch_and_bound import Loop
from planner.models.joint.search.capital_floor import CapitalFloor, CapitalGoal
from planner.models.joint.search.goal import Key, KnownShape, Ranges, Stopped, all_ranges
from planner.models.joint.shapes.blocks_by_site import shapes
from planner.models.joint.shapes.fastest_plan import fastest
from planner.models.joint.shapes.shape_problem import ShapeProblem
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import Flags, Floats, Ints, Strategy
from planner.models.joint.strategy_tables import StrategyTable, free_seconds, min_seconds, pipelines_in_memory, table_of

HOT = 0.5  # of the largest gap of a batch, from which on its ranges are opened
SLOWEST = 20.0  # times the least floor of the table: slower plans are outside the box
NARROW = 1  # of its blocks, within which a range is not halved under any ZeRO stage
COLUMN_STEP = 0.5  # of capital: columns are priced once a step of half the gap
NEAR = 0.01  # above its floor, a capital at which a shape is priced first


@dataclass(kw_only=True)
class Front:
    """Incumbents of the whole curve of money against days, capital ascending and seconds a sequence descending.

    The gap of a pair of floors (t, c) is min over incumbents p of max(T(p)/t, C(p)/c) - 1: every plan with such floors
    is matched by an incumbent that is worse in both by at most the gap, which is -1 outside the box, where no plan
    matters.
    """

    slowest: float = math.inf  # seconds a sequence from which on no plan matters
    most_usd: float = math.inf  # capital above which none does
    usd: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    plans: list[JointPlan] = field(default_factory=list)
    # Their capital, their seconds, and capital over seconds, which ascends.
    _arrays: tuple[Floats, Floats, Floats] = (np.empty(0), np.empty(0), np.empty(0))
    _slopes: list[float] = field(default_factory=list)

    def add(self, seconds: float, usd: float, plan: JointPlan) -> bool:
        """Add a plan to the curve's front in place of those it beats or equals; return if none there does so to it."""
        at = bisect.bisect_right(self.usd, usd)
        if at and self.seconds[at - 1] <= seconds:
            return False
        end = at
        while end < len(self.usd) and self.seconds[end] >= seconds:
            end += 1
        first = at - 1 if at and self.usd[at - 1] == usd else at
        self.usd[first:end], self.seconds[first:end], self.plans[first:end] = [usd], [seconds], [plan]
        dollars, times = np.array(self.usd), np.array(self.seconds)
        self._arrays = dollars, times, dollars / times
        self._slopes = self._arrays[2].tolist()
        return True

    def gap(self, t: float, c: float) -> float:
        """Return the gap between the curve's front and one pair of floors of seconds and capital."""
        if not (t < self.slowest and c <= self.most_usd):
            return -1.0
        if not self.usd:
            return math.inf
        if t <= 0 or c <= 0:
            return float(self.gaps(t, c))
        usd, seconds = self.usd, self.seconds
        right = bisect.bisect_left(self._slopes, c / t)
        left = max(right - 1, 0)
        right = min(right, len(usd) - 1)
        return min(max(seconds[right] / t, usd[right] / c), max(seconds[left] / t, usd[left] / c)) - 1

    def gaps(self, t: Any, c: Any) -> Floats:
        """Return the gaps between the curve's front and pairs of floors; infinite without an incumbent."""
        # As capital grows T(p)/t falls and C(p)/c grows, so the least of their maxima is at one of the two incumbents
        # next to where they cross, which is where T(p)/C(p) crosses t/c.
        t, c = np.asarray(t, dtype=np.float64), np.asarray(c, dtype=np.float64)
        inside = (t < self.slowest) & (c <= self.most_usd)
        if not self.usd:
            return np.where(inside, math.inf, -1.0)
        usd, seconds, slope = self._arrays
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.searchsorted(slope, c / t)
            right, left = np.minimum(at, len(usd) - 1), np.maximum(at - 1, 0)
            found = np.minimum(
                np.maximum(seconds[right] / t, usd[right] / c), np.maximum(seconds[left] / t, usd[left] / c)
            )
        return np.where(inside, found - 1, -1.0)

    def cutoff(self, usd: Any, gap: float) -> Any:
        """Return the seconds a plan of at least a capital, or each, must be under for a larger gap to the curve."""
        if isinstance(usd, np.ndarray):
            late = np.array([self.slowest, *(min(self.slowest, x / (1 + gap)) for x in self.seconds)])
            return late[np.searchsorted(self._arrays[0], usd * (1 + gap), side="right")]
        at = bisect.bisect_right(self.usd, usd * (1 + gap)) - 1
        return self.slowest if at < 0 else min(self.slowest, self.seconds[at] / (1 + gap))

    def boxes(self, t: float, c: float, gap: float) -> Iterator[tuple[float, float]]:
        """Yield (seconds, capital) of boxes above floors where a plan has a larger gap to the curve, dearest first."""
        most = [x / (1 + gap) for x in self.usd] + [self.most_usd]
        late = [self.slowest] + [min(self.slowest, x / (1 + gap)) for x in self.seconds]
        for seconds, usd in zip(reversed(late), reversed(most), strict=True):
            if seconds > t and usd >= c:
                yield seconds, usd


@dataclass(kw_only=True)
class WholeCurve(CapitalGoal):
    """The search goal of the whole curve of money against days; nodes of the largest gaps first, down to epsilon."""

    epsilon: float
    progress: Callable[["WholeCurve"], None] = lambda _: None  # called where the proven gap has fallen
    front: Front = field(default_factory=Front)
    proven: float = math.inf  # gap that no plan of the box exceeds
    tried: set[tuple[float, int]] = field(default_factory=set)  # steps of capital at which a column was priced

    @property
    def has_plan(self) -> bool:
        """Whether the curve's front has a plan yet."""
        return bool(self.front.plans)

    @property
    def covered(self) -> float:
        """Gap within which the curve covers a plan: just below epsilon, lest rounding open a node forever."""
        return self.epsilon * (1 - 1e-9)

    @cached_property
    def floor(self) -> CapitalFloor:
        """Capital floors by racks of the curve's search."""
        return CapitalFloor.of(self.world)

    @cached_property
    def fitting(self) -> dict[Strategy, Ints]:
        """Pipelines of the curve's search: of every strategy those that may hold the model, by row in its table."""
        found = {}
        for s in self.world.strategies():
            self.world.deadline.check()
            if len(table_of(self.world, s)):
                found[s] = np.flatnonzero(pipelines_in_memory(self.world, s))
        return {s: at for s, at in found.items() if len(at)}

    def box(self) -> None:
        """Set the slowest plans of the curve's box before its search, by the deadline and the least floor of time."""
        tables = ((table_of(self.world, s), at) for s, at in self.fitting.items())
        least = [float(min_seconds(of.strategy, of.rows.part(at), of.each[at], of.once[at]).min()) for of, at in tables]
        self.front.slowest = min(self.world.latest * (1 + EPS), SLOWEST * min(least, default=math.inf))

    def run(self) -> Stopped:
        """Search the curve until every gap is within epsilon or a limit comes; return which came first."""
        stopped = Loop(goal=self).run()
        if stopped == "proved":
            self._note(self.epsilon)
        return stopped

    def keys(self, t: Floats, c: Floats) -> Floats:
        """Return the keys of the curve's search nodes: their gaps, the largest first."""
        gaps = self.front.gaps(t, c)
        return np.where(gaps > self.epsilon, -gaps, np.inf)

    def key(self, t: float, c: float) -> Key | None:
        """Return the gap of a node to the curve as its key; None where an incumbent is within epsilon."""
        gap = self.front.gap(t, c)
        return (-gap, 0.0) if gap > self.epsilon else None

    def cutoff(self, c: Any) -> Any:
        """Return the seconds from which a plan of such capital is within epsilon of the curve."""
        return self.front.cutoff(c, self.covered)

    def reached(self, t: float, c: float, what: Any) -> bool:
        """Lower the curve's proven gap to the largest one left among open nodes."""
        self._note(-self.loop.least_key)
        return False

    def _note(self, gap: float) -> None:
        self.proven = min(self.proven, max(gap, self.epsilon))
        self.progress(self)

    def most_blocks(self, x: Ranges) -> Ints:
        """Return all blocks of each range, as no one capital limits the plans of the curve."""
        return x.high

    def first_ranges(self, of: StrategyTable) -> Iterator[Ranges]:
        """Yield the curve's first ranges of blocks, (most/2, most], (most/4, most/2], ... where memory fits."""
        at = self.fitting.get(of.strategy, np.empty(0, dtype=np.int64))
        high = np.maximum(of.rows.blocks(), 1)[at]
        while len(at):
            low = high // 2
            yield all_ranges(of, low, high, at)
            at, high = at[low > 0], low[low > 0]

    def hot(self, x: Ranges, keys: Floats) -> Flags:
        """Return which ranges of blocks have the largest gaps to the curve."""
        return np.asarray(keys <= keys.min() * HOT)

    def wide(self, x: Ranges, key: float) -> Flags:
        """Return which ranges of blocks span more capital than part of their gap to the curve."""
        share = NARROW if x.zero is None else max(-key / 4, self.epsilon / 2)
        return np.asarray((x.high > x.low + 1) & (x.high > (x.low + 1) * (1 + share)))

    def slice(self, x: Ranges, key: float) -> tuple[Ints, Floats]:
        """Return all blocks of each range, and the seconds under which columns have much of the gap to the curve."""
        return x.high, self.front.cutoff(x.usd, max(self.covered, -HOT * key))

    def column_floor(self, column: Column, c: float) -> float:
        """Raise the curve's capital floor of columns of as many blocks, over sites and fabric; price the first."""
        usd = super().column_floor(column, c)
        self._price_once(column, usd, min(0.5, -self.loop.current))
        return usd

    def unhoused(self, q: ShapeProblem, *, ask: bool) -> bool:
        """Return False, as the curve has no one budget: some capital may pay the sites of any shape."""
        return False

    def opened(self, t: float, c: float, column: Column) -> None:
        """Price a column for the curve that is opened at its time on a free network."""
        self._price_once(column, c, self.front.gap(t, c))

    def _price_once(self, column: Column, usd: float, gap: float) -> None:
        """Price a column's first shape that a capital pays, fewest sites first, once a step of the curve's capital."""
        # Covered or not: it covers those like it.
        if not usd <= self.front.most_usd:
            return
        step = max(0.005, 2.0 ** math.floor(math.log2(min(max(gap, 1e-3), 0.5)))) * COLUMN_STEP
        bucket = step, math.floor(math.log(usd) / step)
        if bucket in self.tried:
            return
        self.tried.add(bucket)
        most = usd * (1 + step)
        late = self.front.cutoff(most, 0.0) * (1 - 2 * EPS)
        if not free_seconds(self.world, column, min(late, NEVER)) < late:
            return
        for choice in sorted(spared(self.world, column), key=lambda c: (c.spares_wired, -c.spare_target)):
            for sites in open_sites(self.world, choice):
                shape = next(shapes(choice, sites), None)
                if shape is None:
                    continue
                q = ShapeProblem(world=self.world, column=choice, shape=shape)
                plan = fastest(replace(q, world=self.capped(most, q.racks)), min(late, NEVER), likely=True)
                if plan is not None:
                    self.keep(plan)
                    return

    def capped(self, usd: float, racks: int) -> World:
        """Return the question with a budget for a plan of some racks, at most the capital of the curve's box."""
        usd = min(usd, self.front.most_usd)
        if math.isinf(usd):
            return self.world
        if self.world.sites is None:
            usd += self.world.owned_usd - racks * self.floor.module_usd
        return self.world.with_budget(max(usd, 1.0))

    def keep(self, plan: JointPlan) -> None:
        """Add a plan to the curve's front at its capital; in a cluster only the racks it uses are counted."""
        usd = plan.capital_usd
        if self.world.sites is None:
            usd = usd - self.world.owned_usd + racks_with_spares(plan) * self.floor.module_usd
        self.front.add(plan.seconds, usd, plan)

    def steps(self, x: KnownShape, t: float, c: float) -> Iterator[tuple[float, float]]:
        """Yield a higher floor of a shape's USD to the curve's search, by its fabrics; keep plans in open boxes."""
        q = ShapeProblem(world=self.world, column=x.column, shape=x.shape)
        fabrics = 0.0 if self.world.templates is None else sum(self.fabric_usd(q, g) for g in q.shape.blocks)
        c = max(c, self.floor.usd_over([q.traffic.racks(g) for g in q.shape.blocks]) + fabrics)
        yield t, c
        # First one near the floors, whether it is covered or not: it covers shapes like it.
        near = c * (1 + max(self.covered / 2, NEAR))
        late = self.front.cutoff(near, 0.0)
        box: tuple[float, float] | None = (late, near) if t < late * (1 - 2 * EPS) else None
        refused: list[tuple[float, float]] = []  # (seconds, capital): no plan within the capital takes less time
        while True:
            if box is None:
                left = (
                    (late, usd)
                    for late, usd in self.front.boxes(t, c, self.covered)
                    if not any(known >= late * (1 - 3 * EPS) and most >= usd for known, most in refused)
                )
                box = next(left, None)
            if box is None:
                return
            # The sites may overrun an amount by a cent, so that they are given a cent less: a refusal holds but for it.
            self.world.count("questions of the curve")
            late, usd, box = box[0] * (1 - 2 * EPS), box[1], None
            plan = fastest(replace(q, world=self.capped(usd - CENTS, q.racks)), min(late, NEVER))
            refused.append((late if plan is None else plan.seconds, usd))
            if plan is not None:
                self.keep(plan)


def racks_with_spares(plan: JointPlan) -> int:
    """Count the racks that the blocks of a plan on the curve fill, and its spare racks."""
    return racks_of(plan) + (sum(plan.upkeep.spare_racks.values()) if plan.upkeep else 0)
