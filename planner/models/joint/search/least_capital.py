"""The search goal of least capital by a deadline, the fastest of equally cheap plans.

The capital of a node is that of the fewest racks that meet the deadline on a network which slows nothing, with the
least fabric, until its shapes are priced.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from planner.models.joint.joint_question import World, open_sites, spared
from planner.models.joint.joint_solution import CENTS, EPS, JointPlan, JointSolution
from planner.models.joint.search.branch_and_bound import Loop
from planner.models.joint.search.capital_floor import CapitalGoal
from planner.models.joint.search.fewest_days import FewestDays, FewestFreeDays, described
from planner.models.joint.search.first_plans import (
    CLIMBED,
    MANY_SAMPLED,
    cheap_columns,
    climb,
    grown,
    least_usd,
    nearest,
    rescaled,
    sampled,
)
from planner.models.joint.search.goal import Key, KnownShape, OpenShape, Ranges
from planner.models.joint.shapes.blocks_by_site import shapes
from planner.models.joint.shapes.cheapest_plan import CheapestSearch
from planner.models.joint.shapes.fastest_plan import fastest
from planner.models.joint.shapes.shape_problem import ShapeProblem
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import Flags, Floats, Ints, Strategy
from planner.models.joint.strategy_tables import strategy_racks
from planner.physics.training.step_prediction import days_of
from planner.solvers.progress import report

SLICE = 1.02  # factor on capital: columns are listed up to it at a time
LATE = 4 * CENTS  # by which nodes that can but tie come after those that may be cheaper, or as cheap and faster
FAR = 1.03  # times its bound, up to which the cheapest plan so far is left to the search
CHEAPER = 5  # questions for a cheaper plan than the first
ON_TIME = 0.8  # of the capital of a plan that takes all the time there is, for which the fastest is sought
CLOSE = 0.97  # of the capital of a plan, above which none is asked for
KNOWN = 1.5  # times the least capital of a batch: up to a cheapest plan no dearer its columns are listed at once


@dataclass(kw_only=True)
class LeastCapital(CapitalGoal):
    """The search goal of least capital by a deadline; nodes are opened by capital, up to the cheapest plan's."""

    seeks_cheap: ClassVar[bool] = True  # first plans, where none is known
    most_grown: ClassVar[int] = 100  # strategies and pipelines whose columns are grown until they meet the deadline

    limit: float  # the most seconds a sequence
    budget: float = math.inf  # the most capital, at most the world's
    progress: Callable[[str], None] = lambda _: None  # told of each better plan, and now and then of the bound
    grown: set[tuple[int, int, int]] = field(default_factory=set)  # kinds of which a late column was grown
    end_gap: float = 0.0  # share of the capital that the bound may be below it where the search ends
    ended_early: bool = False  # at that gap, or at the known floor
    seeks: bool = False  # whether no plan was known at first
    bound: float = 0.0  # on the capital of every plan
    known_floor: float = 0.0  # capital that no plan is below, as is known from elsewhere: the search ends at it
    first: Column | None = None  # of a plan at hand, priced before any other
    near: Column | None = None  # of a plan that the question leaves out: the best is likely a choice away

    def __post_init__(self) -> None:
        self.budget = min(self.budget, self.world.budget)

    @property
    def capital(self) -> float:
        """Most capital in USD at which a plan matters to the search for least capital."""
        return self._most_usd + CENTS

    @property
    def _most_usd(self) -> float:
        best = self.incumbent
        return self.budget if best is None else min(self.budget, best.capital_usd * (1 + self.within))

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
        if self.incumbent is not None or not self.seeks_cheap:
            return
        if self.near is None or not self._seek_among(nearest(self, self.near)):
            self.seeks = True
            self._seek_among([s for _, s in sampled(self, MANY_SAMPLED)])

    def _seek_among(self, strategies: list[Strategy]) -> bool:
        for usd, column in cheap_columns(self, strategies):
            self.tick()
            if self.incumbent is not None and usd >= self.incumbent.capital_usd:
                break
            self._try(usd, column)
        return self.has_plan

    def all_open(self) -> None:
        """Seek plans of less capital than the search's first: the fastest for less money, by the deadline."""
        # The cheapest columns by their floors miss it, or are far from the cheapest plan. A proof is as soon at those
        # of few strategies.
        refused = self.known_floor
        for _ in range(CHEAPER if self.seeks and len(self.world.strategies()) > CLIMBED else 0):
            best = self.incumbent
            if best is None:
                return
            share = best.seconds / self.limit
            share = share if share < CLOSE else ON_TIME
            usd = max(best.capital_usd * share, math.sqrt(refused * best.capital_usd))
            if not 0 < usd < CLOSE * best.capital_usd:
                return
            world, sites = self.capped(usd, 0), self.world.sites
            goal = FewestDays(world=world, rival=self.limit)
            if sites is not None:
                sites.pay(world.problem.instance)
            try:
                climb(goal, rescaled(best.column, usd / best.capital_usd))
            finally:  # a time limit that comes meanwhile leaves the best that was found
                if sites is not None:
                    sites.pay(self.world.problem.instance)
                found = goal.incumbent
                if found is not None and sites is None:  # its racks are paid as this search counts them
                    racks = [g * found.column.block.racks for g in found.shape.blocks]
                    fabrics = sum(t.usd for t in found.templates.values())
                    found = replace(found, capital_usd=self.floor.usd_over(racks) + fabrics)
                if found is not None:
                    self.keep(found)
            refused = usd if self.incumbent is best else refused

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
            for step in self._search(KnownShape(0.0, usd, choice, shape), usd):
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

    def most_blocks(self, x: Ranges) -> Ints:
        """Return the most blocks of each range that the cheapest plan's capital may pay."""
        found: Ints = self.floor.max_blocks(self.capital, x.of.rows.racks[x.at], x.of.rows.rails[x.at])
        return np.minimum(found, super().most_blocks(x))

    def slice(self, x: Ranges, key: float) -> tuple[Ints, Floats]:
        """Return, by range, the most blocks in the next slice of the least-capital search, and cutoffs in seconds."""
        most = self.floor.max_blocks(self._top(key), x.of.rows.racks[x.at], x.of.rows.rails[x.at])
        return np.minimum(x.high, np.maximum(most, x.low + 1)), np.full(len(x.at), self.cutoff(x.usd))

    def hot(self, x: Ranges, keys: Floats) -> Flags:
        """Return which ranges of blocks are within the next slice of the least-capital search."""
        return np.asarray(keys <= self._top(float(keys.min()))) if x.zero is not None else keys < np.inf

    def _top(self, usd: float) -> float:
        return self.capital if self.capital <= usd * KNOWN else max(usd * SLICE, usd + CENTS)

    @property
    def shapes_world(self) -> World:
        """The question whose budget is the least-capital search's most useful capital, if plans differ in capital."""
        return self.capped(math.inf, 0)

    def capped(self, usd: float, racks: int) -> World:
        """Return the question with a budget, at most the least-capital search's useful one, if capital differs."""
        usd, world = min(usd, self._most_usd), self.world
        alike = world.sites is None and world.templates is None
        return world if alike or not math.isfinite(usd) else world.with_budget(usd)

    def price(self, t: float, c: float, x: OpenShape) -> tuple[float, float] | None:
        """Advance the least-capital search of a shape to a bound or plan; one as dear as the best to its fastest."""
        best = self.incumbent
        if best is None or c < best.capital_usd - CENTS:
            return super().price(t, c, x)
        world, limit = self.capped(best.capital_usd, 0), min(self.cutoff(c), best.seconds * (1 - EPS))
        found = fastest(ShapeProblem(world=world, column=x.known.column, shape=x.known.shape), limit)
        if found is not None:
            self.keep(found)
        return None

    def steps(self, x: KnownShape, t: float, c: float) -> Iterator[tuple[float, float]]:
        """Yield floors of a shape's USD to the least-capital search, behind its plans the last plan's."""
        usd = math.inf  # of the plan that was found last; later bounds are of the others alone
        for step in self._search(x, c):
            if isinstance(step, JointPlan):
                self.keep(step)
                usd = step.capital_usd
                yield t, c
                continue
            if math.isinf(usd):
                x.usd = max(x.usd, step)
            yield t, step
        if math.isinf(usd):
            x.usd = math.inf
        yield t, usd

    def _search(self, x: KnownShape, usd: float) -> Iterator[float | JointPlan]:
        q = ShapeProblem(world=self.shapes_world, column=x.column, shape=x.shape)
        return CheapestSearch(shape_problem=q, cutoff=self.cutoff(usd), floor_usd=self.floor).steps()

    def keep(self, plan: JointPlan) -> None:
        """Make a plan the incumbent of least capital if it is cheaper, or as cheap and faster."""
        before = self.incumbent
        if plan.capital_usd > self.capital or plan.seconds > self.limit * (1 + EPS):
            return
        more = 0.0 if before is None else plan.capital_usd - before.capital_usd  # a dearer plan only ties
        if before is None or more < -CENTS or (more <= CENTS and plan.seconds < before.seconds * (1 - EPS)):
            self.incumbent = plan
            self.world.count("incumbents")
            instance, usd, choices = self.world.problem.instance, plan.capital_usd, described(plan)
            days = days_of(instance, plan.seconds)
            line = f"${usd / 1e9:,.3f}B, {days:,.2f} days: {choices}"
            report(self.progress, line, usd, self.bound or None, choices, (instance, plan, days))


def least_capital_plan(goal: LeastCapital, loop: Loop | None = None, *, days: bool = True) -> JointSolution:
    """Return the joint plan of a goal of least capital by its limit of time, of equal ones the fastest.

    `loop`: a search by days that kept all ties, to go on with. Where there is no plan the `days` of every plan are
    bounded, which takes about as long as the search.
    """
    loop = loop or Loop(goal=goal)
    stopped, world = loop.run(goal), goal.world
    plan, unproven, instance = goal.incumbent, world.unproven.usd, world.problem.instance
    ended: dict[str, Any] = {"stopped": stopped, "failure": loop.failure}
    ended["counts"] = dict(sorted(world.counts.items()))
    if plan is None:
        proven = stopped == "proved" and math.isinf(unproven)
        least = math.inf
        if days and stopped == "proved":
            fewest = FewestFreeDays(world=world)
            least = fewest.free if Loop(goal=fewest).run() == "proved" else math.inf
        return JointSolution(
            status="infeasible" if proven else "unknown",
            lower_bound=goal.bound if stopped != "proved" else None,
            fabric_free_bound=days_of(instance, least) if math.isfinite(least) and world.cables_all else None,
            **ended,
        )
    bound = min(plan.capital_usd, unproven, goal.bound if stopped != "proved" or goal.ended_early else math.inf)
    proven = bound >= min(plan.capital_usd - CENTS, plan.capital_usd * (1 - goal.end_gap))
    return JointSolution(
        status="optimal" if proven else "feasible",
        usd=plan.capital_usd,
        lower_bound=bound,
        days=days_of(instance, plan.seconds),
        plan=plan,
        **ended,
    )
