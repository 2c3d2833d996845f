"""The search goal of fewest days within a budget, the cheapest of equally fast plans; and the fastest of each kind."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from planner.models.fabric.site_traffic import SiteTraffic
from planner.models.joint.joint_question import World, open_sites, spared
from planner.models.joint.joint_solution import EPS, JointPlan, Target
from planner.models.joint.search import first_plans
from planner.models.joint.search.goal import Goal, Key, KnownShape, OpenShape, Ranges
from planner.models.joint.shapes.blocks_by_site import shapes
from planner.models.joint.shapes.fastest_plan import FastestSearch
from planner.models.joint.shapes.shape_problem import ShapeProblem
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import Flags, Floats, Ints
from planner.physics.training.step_prediction import days_of
from planner.solvers.progress import report

NEAR = 1.02  # above the least time on a free network: most optima lie below
STEP = 1.1  # from one bound to the next up to which columns are listed
FEW_REPLICAS = 1000  # of ranges, all columns of which are listed at once
SMALL_STEPS, STEPS = 8, 16  # how often; the later ones square the factor each time
FEW_SHAPES = 8  # of a column: with fewer it is asked before it is timed whether the money pays any of them
ANY_PLAN = 1 - 1e-12  # a gap within which every plan lies: the search ends with the first
CLIMBED_AFTER = 5000  # nodes, which a proof mostly takes less than
FAR = 2.0  # times the gap, above which a better first plan takes less time than raising the bound
CLOSE = 2e-3  # of an incumbent to its bound, within which fewer blocks are left to the search


@dataclass(kw_only=True)
class FewestDays(Goal):
    """The search goal of fewest days: nodes are opened by seconds a sequence, up to those of the fastest plan known."""

    counts_capital: ClassVar[bool] = False
    most_early: ClassVar[int] = 10  # columns that are priced as soon as they are timed, while no plan is known
    most_descents: ClassVar[int] = 6  # columns of least bound that are tried with fewer blocks

    progress: Callable[[str], None] = lambda _: None
    gap: float = 0.0
    first: Callable[[World], Column | None] | None = None  # names a column to price before any other
    seek_cheap: Callable[["FewestDays"], None] = lambda _: None  # gives it a plan of little money, whatever its days
    floor: float = 0.0  # seconds a sequence that no plan is below, as is known from elsewhere
    first_replicas: tuple[int, ...] = ()  # of that column by site, if known
    priced_first: bool = False  # whether that column was priced
    free: float = math.inf  # the least bound of a column, on a network that slows nothing, of all that were opened
    guess: float = math.inf  # the least time of a column on such a network that is known
    columns: list[tuple[float, Column]] = field(default_factory=list)  # those that were opened, with their bounds
    descended: set[tuple[int, int, int]] = field(default_factory=set)  # strategies and pipelines: fewer blocks tried
    early: set[tuple[int, int, int]] = field(default_factory=set)  # strategies and pipelines priced so
    # Whether shapes, by what their fabrics must know of them, leave no money for any fabric.
    unpaid: dict[tuple[SiteTraffic, tuple[int, ...]], bool] = field(default_factory=dict)
    nodes: int = 0  # that were opened

    @property
    def target(self) -> Target:
        """Seconds a sequence and capital that a plan must beat in the search for the fewest days."""
        best, budget = self.incumbent, self.world.budget
        if best is None:
            return Target(seconds=self.rival, budget=budget)
        return Target(best.seconds, best.capital_usd, budget)

    @property
    def most_seconds(self) -> float:
        """Seconds a sequence above which no plan matters to the fewest days: the incumbent's."""
        return (self.rival if self.incumbent is None else self.incumbent.seconds) * (1 + EPS)

    @property
    def bound(self) -> float:
        """Lower bound of the fewest-days search: seconds a sequence that no plan is below."""
        least = max(self.floor, min(self.loop.least_key, self.world.unproven.seconds))
        return least if self.incumbent is None else min(least, self.incumbent.seconds)

    @property
    def distance(self) -> float:
        """Gap of the fewest-days search: incumbent less bound, relative to the incumbent."""
        return math.inf if self.incumbent is None else 1 - self.bound / self.incumbent.seconds

    @property
    def at_floor(self) -> bool:
        """Whether the fastest plan is within the gap of a floor of days known from elsewhere."""
        return self.incumbent is not None and self.incumbent.seconds * (1 - max(EPS, self.gap)) <= self.floor

    @property
    def has_plan_in_time(self) -> bool:
        """Whether the plan of fewest days so far meets the deadline of the instance."""
        return self.incumbent is not None and self.incumbent.seconds <= self.world.latest * (1 + EPS)

    @property
    def too_late(self) -> bool:
        """Whether the bound of the fewest-days search is beyond the instance's deadline, which no plan then meets."""
        return self.bound > self.world.latest * (1 + EPS)

    def keys(self, t: Floats, c: Floats) -> Floats:
        """Return keys of search nodes for the fewest days: seconds a sequence; infinite where too slow to be useful."""
        return np.where(t <= self.cutoff(0.0), t, np.inf)

    def key(self, t: float, c: float) -> Key | None:
        """Return the key of a search node for the fewest days: seconds a sequence; None without a useful plan."""
        return (t, 0.0) if t <= self.cutoff(c) and math.isfinite(t + c) else None

    def cutoff(self, c: Any) -> float:
        """Return the seconds a sequence above which no plan serves the fewest days or a goal that follows."""
        return self.most_seconds * (1 + self.within)

    def begin(self) -> None:
        """Seek first plans for the fewest days: a known plan's, those of other budgets, then sampled strategies."""
        if self.too_late:
            return
        column = None if self.first is None else self.first(self.world)
        if column is not None and len(self.first_replicas) in open_sites(self.world, column):
            # Its replicas are divided over sites as in the known plan.
            blocks = tuple(sorted((column.block.blocks(n) for n in self.first_replicas), reverse=True))
            every = shapes(column, len(blocks), range(blocks[0], blocks[0] + 1))
            shape = next((shape for shape in every if shape.blocks == blocks), None)
            if shape is not None:
                first_plans.price_column(self, column, shape)
        if column is not None and not self.at_floor:
            self.priced_first = first_plans.descend(self, column)
        if self.at_floor:
            return
        first_plans.dive(self)
        if not self.has_plan and self.rival >= self.world.latest:
            self.seek_cheap(self)
        best = self.incumbent
        if best is not None and 0 < FAR * self.gap < self.distance and self.gap < ANY_PLAN:
            first_plans.improve(self, best, lambda: self.distance <= self.gap)

    def reached(self, t: float, c: float, what: Any) -> bool:
        """End the fewest-days search where no node is useful, within the gap or past the deadline; or climb."""
        self.nodes += 1
        best, gap = self.incumbent, self.gap
        if self.nodes == CLIMBED_AFTER and best is not None and self.distance > CLOSE and gap < ANY_PLAN:
            # A proof is as soon at those of few strategies, and the plans of other sizes are near enough.
            few = gap == 0 and len(self.world.strategies()) <= first_plans.CLIMBED
            if not few and not self.world.cache.plans and not self.priced_first:
                first_plans.climb(self, best.column)
        if t > self.most_seconds or self.at_floor:
            return True
        if self.incumbent is None:
            return self.too_late or (0 < self.gap < ANY_PLAN and self.bound >= self.rival * (1 - self.gap))
        return self.gap > 0 and self.distance <= self.gap

    def hot(self, x: Ranges, keys: Floats) -> Flags:
        """Return which ranges of blocks are within the seconds up to which the fewest-days search lists columns."""
        return np.asarray(keys < self._horizon(float(keys.min()), x.times))

    def slice(self, x: Ranges, key: float) -> tuple[Ints, Floats]:
        """Return all blocks of each range, and the seconds up to which the fewest-days search lists columns now."""
        few = int((x.rows.d - x.low * x.of.rows.block_replicas[x.at]).sum()) <= FEW_REPLICAS
        return x.high, np.full(len(x.at), self.most_seconds * (1 + EPS) if few else self._horizon(key, x.times))

    def _horizon(self, key: float, times: int) -> float:
        # A little above the seconds of a known column, else a step above the key; larger steps at last, then all.
        if math.isfinite(self.guess) and key < NEAR * self.guess:
            step = min(STEP * key, NEAR * self.guess)
        elif times < SMALL_STEPS:
            step = STEP * key
        else:
            step = key * STEP ** (2 ** (times - SMALL_STEPS)) if times < STEPS else math.inf
        return min(self.most_seconds * (1 + EPS), step)

    def timed(self, column: Column, seconds: float) -> None:
        """Note a column's least time on a free network; while no plan of fewest days is known price the first."""
        # Where memory is short a column takes far longer than its floor, and thousands of floors come before it.
        self.guess = min(self.guess, seconds)
        kind, first = (id(column.strategy), column.p, column.v), self.incumbent is None
        if first and math.isfinite(seconds) and len(self.early) < self.most_early and kind not in self.early:
            self.early.add(kind)
            first_plans.descend(self, column, first=True)

    def opened(self, t: float, c: float, column: Column) -> None:
        """Note an opened column and its bound for the fewest days; price the first ones with fewer blocks."""
        self.free = min(self.free, t)
        self.columns.append((t, column))
        kind = id(column.strategy), column.p, column.v
        if kind not in self.descended and len(self.descended) < self.most_descents and self.distance > CLOSE:
            self.descended.add(kind)
            first_plans.descend(self, column)

    def unhoused(self, q: ShapeProblem, *, ask: bool) -> bool:
        """Return whether the budget of the fewest days pays a shape no sites or, as is known, no fabrics."""
        found = super().unhoused(q, ask=ask)
        return found or (not ask and bool(self.unpaid) and self.unpaid.get((q.traffic, q.shape.blocks), False))

    def refuses(self, column: Column, seconds: float) -> bool:
        """Return whether earlier answers of the fewest-days search refuse a column's few shapes; keep its bound."""
        # Where little more than the sites can be paid, thousands of columns would be timed in vain.
        every = (
            ShapeProblem(world=self.world, column=choice, shape=shape)
            for choice in spared(self.world, column)
            for sites in open_sites(self.world, choice)
            for shape in shapes(choice, sites)
        )
        for number, q in enumerate(every, 1):
            if number >= FEW_SHAPES or not self.unhoused(q, ask=False):
                return False
        self.free = min(self.free, seconds)
        self.columns.append((seconds, column))
        return True

    def steps(self, x: KnownShape, t: float, c: float) -> Iterator[tuple[float, float]]:
        """Yield to the search for the fewest days the floors of a shape's seconds, by its fastest networks."""
        q = ShapeProblem(world=self.world, column=x.column, shape=x.shape)
        search, known = FastestSearch(shape_problem=q, cutoff=self.most_seconds), (q.traffic, q.shape.blocks)
        while (candidate := search.next(self.target)) is not None:
            # A plan far below the incumbent is asked for at once: it closes the nodes above it.
            if candidate.seconds > t * (1 + EPS) and candidate.seconds * (1 + CLOSE) >= self.most_seconds:
                yield candidate.seconds, c
            t = max(t, candidate.seconds)
            found = search.try_sites(candidate, self.target)
            if found is not None:
                self.keep(found)
            yield candidate.seconds, c
        # Where it leaves the budget nothing for a fabric, however slow; few blocks are asked anew without a cutoff.
        if math.isinf(search.cutoff):
            self.unpaid[known] = search.is_unpaid
        elif not q.several and q.shape.blocks[0] < FEW_SHAPES and known not in self.unpaid:
            self.unpaid[known] = FastestSearch(shape_problem=q, cutoff=math.inf).is_unpaid

    def keep(self, plan: JointPlan) -> None:
        """Make a plan the incumbent of fewest days if it is faster, or as fast and cheaper."""
        if plan.seconds > self.most_seconds:
            return
        if self.incumbent is None or self.target.improved_by(plan.seconds, plan.capital_usd):
            self.incumbent = plan
            self.world.count("incumbents")
            self.speak(plan)

    def speak(self, found: JointPlan | None = None) -> None:
        """Tell where the search for the fewest days is: days, bound, gap; of a new plan what it is written from too."""
        self.spoke = time.perf_counter()
        problem, best, bound = self.world.problem, self.incumbent, self.bound
        known = days_of(problem.instance, bound) if math.isfinite(bound) and bound > 0 else None
        limit = "no bound yet" if known is None else f"bound {known:,.1f}"
        if best is None:
            report(self.progress, f"no plan yet, {limit}", None, known)
            return
        value = days_of(problem.instance, best.seconds)
        line = f"{value:,.1f} days, {limit}, gap {100 * self.distance:.1f} %"
        if found is None:
            report(self.progress, line, value, known)
            return
        choices = described(found)
        line += f", ${found.capital_usd / 1e9:,.3f}B: {choices}"
        report(self.progress, line, value, known, choices, (problem.instance, found, value))


def described(plan: JointPlan) -> str:
    """Return a plan's layout and blocks by site in one line, for the progress of the fewest-days search."""
    c = plan.column
    tensor, context, _ = c.strategy.shape.degrees
    blocks = "+".join(map(str, plan.shape.blocks))
    return f"TP {tensor} x CP {context} x PP {c.p}, v {c.v}, {c.d} replicas, {c.m} micro-batches, blocks {blocks}"


Kind = tuple[int, int, int, int]  # tensor, context, expert and pipeline parallelism


def kind_of(c: Column) -> Kind:
    """Return a column's kind of layout, of each of which the fewest days are searched: TP, CP, EP and PP."""
    return (*c.strategy.shape.degrees, c.p)


@dataclass(kw_only=True)
class FastestOfEachKind(FewestDays):
    """The search goal of the fewest days of each kind of layout, none slower than the rival; nodes by seconds."""

    most_early: ClassVar[int] = 0
    most_descents: ClassVar[int] = 0

    most_shapes: int  # that are priced; the search ends unproven at the next
    kinds: dict[Kind, JointPlan] = field(default_factory=dict)
    priced: int = 0

    @property
    def has_plan(self) -> bool:
        """Whether the fewest-days search has a plan of any kind of layout; the incumbent is that of the last kind."""
        return bool(self.kinds)

    @property
    def most_seconds(self) -> float:
        """Seconds a sequence of the rival, from which no kind's plan of fewest days matters."""
        return self.rival * (1 + EPS)

    @property
    def ended(self) -> bool:
        """Whether the search for the fewest days of each kind of layout ended before its proof."""
        return self.priced >= self.most_shapes

    def begin(self) -> None:
        """Seek no first plans of any kind of layout: the plan of fewest days is known."""

    def reached(self, t: float, c: float, what: object) -> bool:
        """End the search for the fastest of each kind at the limit on priced shapes."""
        return self.ended

    def refuses(self, column: Column, seconds: float) -> bool:
        """Return whether the search for the fewest days already has a plan as fast of a column's kind of layout."""
        self.incumbent = self.kinds.get(kind_of(column))
        return self.incumbent is not None and self.incumbent.seconds <= seconds * (1 + EPS)

    def price(self, t: float, c: float, x: OpenShape) -> tuple[float, float] | None:
        """Advance the fewest-days search of a shape by a step, under the time of its kind's fastest plan."""
        if self.refuses(x.known.column, t):
            return None
        self.priced += x.steps is None
        return super().price(t, c, x)

    def keep(self, plan: JointPlan) -> None:
        """Keep a plan as that of fewest days of its kind of layout if it is faster, or as fast and cheaper."""
        kind = kind_of(plan.column)
        self.incumbent = self.kinds.get(kind)
        super().keep(plan)
        if self.incumbent is plan:
            self.kinds[kind] = plan


@dataclass(kw_only=True)
class FewestFreeDays(FewestDays):
    """The search goal of fewest days on a free network and the most racks that the money may buy.

    The time `free` of the fastest column bounds every plan's, infinite where none fits; no column is priced.
    """

    most_early: ClassVar[int] = 0

    def begin(self) -> None:
        """Seek the fewest days on a free network of a sample of strategies, as the rival that others must beat."""
        for bound, s in first_plans.sampled(self, first_plans.SAMPLED):
            self.tick()
            if bound >= self.rival:
                return
            for exact, _ in first_plans.likely(self.world, s, self.rival):
                self.rival = min(self.rival, exact)

    def reached(self, t: float, c: float, what: Any) -> bool:
        """End the search for the fewest days on a free network at the first column: no other takes less."""
        if isinstance(what, Column):
            self.free = t
        return isinstance(what, Column)
