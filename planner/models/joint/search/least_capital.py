"""The search goals of least capital by a deadline, the fastest of equally cheap plans, and of least rank among ties.

The capital of a node is that of the fewest racks that meet the deadline on a network which slows nothing, with the
least fabric, until its shapes are priced. A rank says how good a plan is in what neither days nor money say.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from planner.models.joint.joint_world import CENTS, EPS, JointPlan, Shape, World, open_sites, shapes, spared
from planner.models.joint.search.block_ranges import by_blocks
from planner.models.joint.search.capital_floor import LeastFabrics, MinPrices
from planner.models.joint.search.fewest_days import FewestDays, described
from planner.models.joint.search.first_plans import CLIMBED, cheap_columns, climb, grown, least_usd, rescaled
from planner.models.joint.search.goal import Goal, Key, Ranges
from planner.models.joint.shapes.cheapest_plan import CheapestSearch
from planner.models.joint.shapes.fastest_plan import fastest
from planner.models.joint.shapes.shape_problem import ShapeProblem
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import Flags, Floats, Ints, Strategy
from planner.models.joint.strategy_tables import StrategyTable, strategy_racks
from planner.physics.training.layer_time import days_of
from planner.solvers.progress import report

SLICE = 1.02  # factor on capital: columns are listed up to it at a time
LATE = 4 * CENTS  # by which nodes that can but tie come after those that may be cheaper, or as cheap and faster
FAR = 1.03  # times its bound, up to which the cheapest plan so far is left to the search
CHEAPER = 5  # questions for a cheaper plan than the first
ON_TIME = 0.8  # of the capital of a plan that takes all the time there is, for which the fastest is sought
CLOSE = 0.97  # of the capital of a plan, above which none is asked for
KNOWN = 1.5  # times the least capital of a batch: up to a cheapest plan no dearer its columns are listed at once


@dataclass(slots=True)
class ShapeByCapital:
    """A shape in the search for least capital, with its bounds in USD and its plans."""

    problem: ShapeProblem
    steps: Iterator[float | JointPlan] | None = None  # its lower bounds and plans, once it was begun
    usd: float = math.inf  # capital of its plan that was found last, of which the fastest as cheap was not sought yet
    least_usd: float = 0.0  # capital that none of its plans is below
    found: bool = False  # whether a plan of it was found, so that later bounds are of the others alone


@dataclass(kw_only=True)
class LeastCapital(Goal):
    """The search goal of least capital by a deadline; nodes are opened by capital, up to the cheapest plan's."""

    most_grown: ClassVar[int] = 100  # strategies and pipelines whose columns are grown until they meet the deadline

    floor: MinPrices
    limit: float  # the most seconds a sequence
    budget: float  # the most capital
    progress: Callable[[str], None] = lambda _: None  # told of each better plan, and now and then of the bound
    ties: bool = True  # the fastest of the cheapest is sought; else a plan not cheaper by more than `gap` is of no use
    gap: float = 0.0
    grown: set[tuple[int, int, int]] = field(default_factory=set)  # kinds of which a late column was grown
    end_gap: float = 0.0  # share of the capital that the bound may be below it where the search ends
    ended_early: bool = False  # at that gap, or at the known floor
    seeks: bool = False  # whether no plan was known at first
    fabrics: LeastFabrics = field(default_factory=lambda: LeastFabrics(within=lambda q: q.world))
    bound: float = 0.0  # on the capital of every plan
    known_floor: float = 0.0  # capital that no plan is below, as is known from elsewhere: the search ends at it
    first: Column | None = None  # of a plan at hand, priced before any other

    @property
    def capital(self) -> float:
        """Most capital in USD at which a plan matters to the search for least capital."""
        if self.incumbent is None:
            return self.budget + CENTS
        usd = self.incumbent.capital_usd
        if not self.ties:
            return usd / (1 + self.gap) - 2 * CENTS
        return min(self.budget, usd * (1 + self.within)) + CENTS

    def keys(self, t: Floats, c: Floats) -> Floats:
        """Return capital as the keys of search nodes; infinite where no plan is cheaper, or as cheap and faster."""
        return np.where((c <= self.capital) & (t < self.cutoff(c)), c + self._late(t, c) * LATE, np.inf)

    def key(self, t: float, c: float) -> Key | None:
        """Return capital to the cent as a node's key, ties by time; None where it holds no better plan."""
        # To the cent, so that rounding does not set the order of equals.
        if c > self.capital or math.isinf(c) or t >= self.cutoff(c):
            return None
        return round(c, 2) + self._late(t, c) * LATE, t

    def _late(self, t: Any, c: Any) -> Any:
        """Return whether nodes can only tie with the plan of least capital, no faster: they wait."""
        best = self.incumbent
        if best is None or self.within == 0:
            return False
        return (c >= best.capital_usd - CENTS) & (t >= best.seconds * (1 - EPS))

    def cutoff(self, c: Any) -> Any:
        """Return the deadline in seconds a sequence; at the cheapest plan's capital, the seconds of that plan."""
        late, best = self.limit * (1 + EPS), self.incumbent
        if best is None or self.goes_on:
            return late
        cheaper, soon = c < best.capital_usd - CENTS, best.seconds * (1 - EPS)
        if isinstance(c, np.ndarray):
            return np.where(cheaper, late, soon)
        return late if cheaper else soon

    def begin(self) -> None:
        """Seek cheap first plans: price the columns of least floor, of sampled strategies, that meet the deadline."""
        if self.first is not None:
            self._try(0.0, self.first)
        if self.incumbent is not None:
            return
        self.seeks = True
        for usd, column in cheap_columns(self):
            self.tick()
            if self.incumbent is not None and usd >= self.incumbent.capital_usd:
                return
            self._try(usd, column)

    def all_open(self) -> None:
        """Seek plans of less capital than the first: the fastest for less money, while they meet the deadline."""
        # The cheapest columns by their floors miss it, or are far from the cheapest plan. A proof is as soon at those
        # of few strategies.
        refused = 0.0
        for _ in range(CHEAPER if self.seeks and len(self.world.strategies()) > CLIMBED else 0):
            best = self.incumbent
            if best is None:
                return
            share = best.seconds / self.limit
            share = share if share < CLOSE else ON_TIME
            usd = max(best.capital_usd * share, math.sqrt(refused * best.capital_usd))
            if not 0 < usd < CLOSE * best.capital_usd:
                return
            self._seek(best, usd)
            refused = usd if self.incumbent is best else refused

    def _seek(self, near: JointPlan, usd: float) -> None:
        """Keep a fast plan for an amount of capital, a few choices from another, if it meets the deadline."""
        # A time limit that comes meanwhile leaves the best that was found.
        world, sites = self.world_of(usd), self.world.sites
        goal = FewestDays(world=world, rival=self.limit)
        if sites is not None:
            sites.pay(world.problem.instance)
        try:
            climb(goal, rescaled(near.column, usd / near.capital_usd))
        finally:
            if sites is not None:
                sites.pay(self.world.problem.instance)
            if goal.incumbent is not None:
                self.keep(self._priced(goal.incumbent))

    def timed(self, column: Column, seconds: float) -> None:
        """Grow each kind's first late column to meet the deadline, while the least capital is far from its bound."""
        # Thousands of floors may meet the deadline at a capital at which no plan does.
        kind, best = (id(column.strategy), column.p, column.v), self.incumbent
        near = best is not None and (self.within > 0 or best.capital_usd <= self.bound * FAR)
        if math.isfinite(seconds) or near or kind in self.grown or len(self.grown) >= self.most_grown:
            return
        self.grown.add(kind)
        found = grown(self, column, self.world.problem.max_sequences)
        usd = math.inf if found is None else least_usd(self, found)
        if found is not None and usd <= self.capital and (best is None or usd < best.capital_usd):
            self._try(usd, found)

    def _try(self, usd: float, column: Column) -> None:
        """Keep the first plan of little capital of a column in its most even shape, with the likeliest spares."""
        for sites, choice in itertools.product(open_sites(self.world, column), spared(self.world, column)):
            shape = next(shapes(choice, sites), None)
            if shape is None:
                continue
            for step in self._search(ShapeProblem(world=self.shapes_world, column=choice, shape=shape), usd):
                if isinstance(step, JointPlan):
                    self.keep(step)
                    return
                if step > self.capital:
                    break

    def speak(self) -> None:
        """Report the lower bound on capital of the search."""
        if self.bound > 0:
            self.spoke = time.perf_counter()
            report(self.progress, f"no plan under ${self.bound / 1e9:,.3f}B", None, self.bound)

    def reached(self, t: float, c: float, what: Any) -> bool:
        """Raise the bound to the least capital of the open nodes; end the search where these can only tie."""
        self.bound = max(self.bound, c, self.known_floor)
        best = self.incumbent
        if best is None:
            return False
        at_gap = self.end_gap > 0 and self.bound >= best.capital_usd * (1 - self.end_gap)
        self.ended_early = at_gap or best.capital_usd <= self.known_floor + CENTS
        return self.ended_early or (self.within > 0 and (c > best.capital_usd + CENTS or self._late(t, c)))

    def strategy_usd(self, s: Strategy) -> float:
        """Bound the capital in USD of a strategy by the racks that do its layers' work by the deadline."""
        return float(self.floor.usd(*strategy_racks(s, self.limit * (1 + EPS))))

    def usd(self, racks: Any, rails: Any) -> Floats:
        """Bound the capital in USD of a number of racks by the goal's least prices."""
        return np.asarray(self.floor.usd(racks, rails), dtype=np.float64)

    def most_blocks(self, x: Ranges) -> Ints:
        """Return the most blocks of each range that the cheapest plan's capital may pay."""
        found: Ints = self.floor.max_blocks(self.capital, x.of.rows.racks[x.at], x.of.rows.rails[x.at])
        return np.minimum(found, super().most_blocks(x))

    def slice(self, x: Ranges, key: float) -> tuple[Ints, Floats]:
        """Return, by range, the most blocks within the next slice of capital, and the cutoffs in seconds."""
        most = self.floor.max_blocks(self._top(key), x.of.rows.racks[x.at], x.of.rows.rails[x.at])
        return np.minimum(x.high, np.maximum(most, x.low + 1)), np.full(len(x.at), self.cutoff(x.usd))

    def hot(self, x: Ranges, keys: Floats) -> Flags:
        """Return which ranges of blocks are within the next slice of capital."""
        return np.asarray(keys <= self._top(float(keys.min()))) if x.zero is not None else keys < np.inf

    def _top(self, usd: float) -> float:
        return self.capital if self.capital <= usd * KNOWN else max(usd * SLICE, usd + CENTS)

    def groups(self, entries: Ints, t: Floats, c: Floats) -> list[Ints]:
        """Group columns by pipeline and blocks where the floor of their capital is to be sharpened."""
        return by_blocks(entries, t) if self._builds_fabrics else super().groups(entries, t, c)

    @property
    def _builds_fabrics(self) -> bool:
        """Whether a column's racks determine the fabrics in its capital floor: with spares they do not."""
        return self.world.templates is not None and self.world.problem.calendar is None

    def column_floor(self, column: Column, c: float) -> float:
        """Raise the capital floor of columns of as many blocks, over numbers of sites; at one, by its fabric."""
        # Few GPUs share few switches: these cost far more than the ports that are used.
        if not self._builds_fabrics:
            return c
        bounds, block, blocks = list[float](), column.block, column.block.blocks(column.d)
        for sites in open_sites(self.world, column):
            if sites > 1:
                bounds.append(self.sites_floor(column, sites, c))
                continue
            q = ShapeProblem(world=self.shapes_world, column=column, shape=Shape((blocks,), column.d))
            alone = replace(self.floor, rail_usd=0.0).usd_at(1, blocks * block.racks, block.rails)
            bounds.append(alone + self.fabrics.usd(q, blocks))
        return max(c, min(bounds, default=c))

    def sites_floor(self, column: Column, sites: int, c: float) -> float:
        """Bound the capital in USD of a column at a number of sites by the goal's least prices."""
        block = column.block
        return max(c, self.floor.usd_at(sites, block.blocks(column.d) * block.racks, block.rails))

    def shape_floor(self, q: ShapeProblem, c: float) -> float:
        """Bound the capital in USD of a shape by the least prices of whole modules at each site."""
        return max(c, self.floor.usd_over([q.traffic.racks(g) for g in q.shape.blocks], q.traffic.rails))

    @property
    def shapes_world(self) -> World:
        """The world with the most capital of a useful plan as its budget, where plans differ in capital."""
        return self.world_of(self.budget if self.incumbent is None else self.incumbent.capital_usd * (1 + self.within))

    def world_of(self, usd: float) -> World:
        """Return the world of the search with another capital as budget, where plans differ in capital."""
        world = self.world
        alike = world.sites is None and world.templates is None
        return world if alike or not math.isfinite(usd) else world.with_budget(usd)

    def begin_shape(self, q: ShapeProblem) -> ShapeByCapital:
        """Begin the search of a shape by capital."""
        return ShapeByCapital(q)

    def price(self, t: float, c: float, shape: ShapeByCapital) -> tuple[float, float] | None:
        """Advance a shape's search by capital to a bound or plan; one as dear as the cheapest to its fastest."""
        best = self.incumbent
        if best is not None and c >= best.capital_usd - CENTS:
            limit = min(self.cutoff(c), best.seconds * (1 - EPS))
            found = fastest(replace(shape.problem, world=self.world_of(best.capital_usd)), limit)
            if found is not None:
                self.keep(self._priced(found))
            return None
        if shape.steps is None:
            shape.steps = self._search(replace(shape.problem, world=self.shapes_world), c)
        step = next(shape.steps, None)
        if step is None:
            usd, shape.usd = shape.usd, math.inf
            shape.least_usd = shape.least_usd if shape.found else math.inf
            return t, usd
        if not isinstance(step, JointPlan):
            shape.least_usd = shape.least_usd if shape.found else step
            return t, step
        self.keep(step)
        shape.usd, shape.found = step.capital_usd, True
        return t, c

    def least_usd(self, shape: ShapeByCapital) -> float:
        """Return the capital in USD below which a shape has no plan by the deadline."""
        return shape.least_usd

    def _search(self, q: ShapeProblem, usd: float) -> Iterator[float | JointPlan]:
        return CheapestSearch(shape_problem=q, cutoff=self.cutoff(usd), floor_usd=self.floor).steps()

    def keep(self, plan: JointPlan) -> None:
        """Make a plan the incumbent of least capital if it is cheaper, or as cheap and faster."""
        before = self.incumbent
        if plan.capital_usd > self.capital or plan.seconds > self.limit * (1 + EPS):
            return
        if before is None or plan.capital_usd < before.capital_usd - CENTS or plan.seconds < before.seconds * (1 - EPS):
            self.incumbent = plan
            self.world.count("incumbents")
            instance, usd, choices = self.world.problem.instance, plan.capital_usd, described(plan)
            days = days_of(instance, plan.seconds)
            line = f"${usd / 1e9:,.3f}B, {days:,.2f} days: {choices}"
            report(self.progress, line, usd, self.bound or None, choices, (instance, plan, days))

    def _priced(self, plan: JointPlan) -> JointPlan:
        """Return a plan with its racks at the prices of the least-capital search; with a grid it keeps its own."""
        if self.world.sites is not None:
            return plan
        racks = [g * plan.column.block.racks for g in plan.shape.blocks]
        fabrics = sum(t.usd for t in plan.templates.values())
        return replace(plan, capital_usd=replace(self.floor, rail_usd=0.0).usd_over(racks, 0) + fabrics)


Rank = tuple[float, ...]


@dataclass(kw_only=True)
class LeastRank(LeastCapital):
    """The search goal of least rank among plans that tie: within `limit` seconds a sequence and `budget` dollars."""

    most_grown: ClassVar[int] = 0  # a plan that ties is known

    rank: Callable[[JointPlan], Rank]
    least_rank: Callable[[Column], Rank]  # one that no plan of a column is below
    # Of each pipeline of a strategy a number that orders ranks as `least_rank` does, and that of the best rank.
    pipeline_ranks: Callable[[StrategyTable, Rank], tuple[Ints, int]] | None = None
    best: Rank  # that a plan must be below
    enough: Rank = ()  # at which the search ends
    most_shapes: int  # that are priced; the search ends unproven at the next
    most_nodes: int  # that are opened, likewise
    priced: int = 0
    nodes: int = 0

    @property
    def goes_on(self) -> bool:
        """Whether another goal may continue the search for the least rank: always."""
        return True

    @property
    def capital(self) -> float:
        """Most capital in USD at which a plan ties in the search for the least rank."""
        return self.budget + CENTS

    def begin(self) -> None:
        """Price the column of a known plan first in the search for the least rank."""
        if self.first is not None:
            self._try(0.0, self.first)

    @property
    def ended(self) -> bool:
        """Whether the search for the least rank ended unproven, at its limit of shapes or nodes."""
        return (self.priced >= self.most_shapes or self.nodes >= self.most_nodes) and not self.best <= self.enough

    def reached(self, t: float, c: float, what: Any) -> bool:
        """End the search for the least rank at one that is good enough, or at its limit of shapes or nodes."""
        self.nodes += 1
        return self.best <= self.enough or self.ended

    def refuses(self, column: Column, seconds: float) -> bool:
        """Return whether no plan of a column can have the least rank, which is known before it is timed."""
        return not self.least_rank(column) < self.best

    def sites_floor(self, column: Column, sites: int, c: float) -> float:
        """Bound the capital in USD of a column at a number of sites; infinite where it has no lower rank."""
        return super().sites_floor(column, sites, c) if self.least_rank(column) < self.best else math.inf

    @property
    def shapes_world(self) -> World:
        """The world with the most capital of a tied plan as its budget, to price shapes for the least rank."""
        return self.world_of(self.budget)

    def price(self, t: float, c: float, shape: ShapeByCapital) -> tuple[float, float] | None:
        """Advance a shape's search to a capital bound or to its cheapest plan, kept if its rank is lower."""
        if not self.least_rank(shape.problem.column) < self.best:
            return None
        if shape.steps is None:
            self.priced += 1
            shape.steps = self._search(replace(shape.problem, world=self.shapes_world), c)
        step = next(shape.steps, None)
        if step is None:
            return None
        if not isinstance(step, JointPlan):
            return t, step
        self.keep(step)
        return None

    def keep(self, plan: JointPlan) -> None:
        """Make a plan the incumbent of least rank if it ties and its rank is lower."""
        if plan.capital_usd > self.capital or plan.seconds > self.limit * (1 + EPS):
            return
        rank = self.rank(plan)
        if rank < self.best:
            self.incumbent, self.best = plan, rank
            self.world.count("incumbents")

    def worthwhile(self, x: Ranges) -> Ranges:
        """Return the ranges of blocks whose pipelines may hold a plan of the least rank, where these are ranked."""
        if self.pipeline_ranks is None:
            return x
        ranks, best = self.pipeline_ranks(x.of, self.best)
        return x.part(np.flatnonzero(ranks[x.at] <= best))
