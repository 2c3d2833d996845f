"""The joint search: best-first branch and bound over columns, whatever its goal.

A node is a set of plans with floors of seconds a sequence and of capital: a strategy, ranges of blocks of its
pipelines, columns listed from them, one column, its shapes over a number of sites, or one shape. The goal puts nodes in
order and says which may hold a useful plan. No floor of a node is below that of the node that it comes from, and each
plan of a node is in one of those that it is opened to: when no open node may hold a useful plan, none is left.
"""

import heapq
import itertools
import math
from bisect import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from planner.models.joint.joint_question import open_sites, spared
from planner.models.joint.search.block_ranges import NEVER, Columns, bounded, in_memory, in_order, listed, under_stage
from planner.models.joint.search.goal import Goal, KnownShape, OpenNodes, OpenShape, Ranges, Stopped
from planner.models.joint.shapes.blocks_by_site import Shape, largest_parts, shapes
from planner.models.joint.shapes.shape_class import ShapeClass
from planner.models.joint.shapes.shape_problem import ShapeProblem
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import Strategy
from planner.models.joint.strategy_tables import (
    GATHERING,
    column_at,
    free_seconds,
    known_bound,
    pipelines_in_memory,
    rounds_of,
    strategy_bound,
    table_of,
)
from planner.solvers.outcome import UnansweredError
from planner.solvers.search_deadline import OutOfTimeError, first_plan_found

SAMPLED = 800  # degrees by which a layer is cut, among which first plans are sought before all of them are timed
MANY_SHARDS = 32  # replicas from which on fewer of them hardly ask more of memory: a half keeps the floors of the whole
FEW_RANGES = 64  # of a batch, which memory bounds in less time than a wait among the open nodes takes
BOUNDS = 2  # of the time of a class, before it is halved
STALE = 0.98  # of a key, above which one that has changed is taken as it is


@dataclass(frozen=True, slots=True)
class ShapesLeft:
    """Search node: shapes of a column over a number of sites not opened yet, the largest part in a range of blocks."""

    column: Column
    sites: int
    largest: range
    bounded: int = 0  # floors of their time and capital that are known, the second with fabrics that may be built
    rest: Iterator[Shape] | None = None  # once some of a range of one number were opened, the others


@dataclass(kw_only=True)
class Loop(OpenNodes):
    """The branch-and-bound loop over open search nodes, in the order of the goal's keys."""

    goal: Goal
    order: Iterator[int] = field(default_factory=itertools.count)
    failure: str = ""  # what a back end said that ended the search
    opened: list[KnownShape] = field(default_factory=list)  # by a goal after which another goes on

    def copy(self) -> "Loop":
        """Return a search of the same open nodes and shapes, so that one goal continues with it and one with this."""
        nodes = self.heap.copy()
        for place, (key, order, t, c, what) in enumerate(nodes):
            if isinstance(what, ShapesLeft) and what.rest is not None:
                own, other = itertools.tee(what.rest)
                self.heap[place] = key, order, t, c, replace(what, rest=own)
                nodes[place] = key, order, t, c, replace(what, rest=other)
        # Copies: pricing raises the floors of shapes, within the limits of the search here alone.
        return Loop(goal=self.goal, heap=nodes, opened=[replace(x) for x in self.opened])

    def run(self, goal: Goal | None = None) -> Stopped:
        """Run the branch and bound until no open node may hold a useful plan or a limit comes; return which.

        Another goal goes on with the nodes and shapes left before, which hold all of its plans.
        """
        if goal is None or goal is self.goal:
            return self._searched(self._begin)
        # Nodes are opened at the capital that this goal counts. The shapes are priced anew.
        nodes, self.heap, self.goal, self.current = self.heap, [], goal, -math.inf
        for _, _, t, c, what in nodes:
            known = isinstance(what, OpenShape) or (isinstance(what, ShapesLeft) and goal.refuses(what.column, t))
            if known or not goal.opens(t, c):
                continue
            if isinstance(what, Ranges):
                self.push_ranges(bounded(goal, what))
            elif isinstance(what, Columns):
                for columns in in_order(goal, what):
                    self._push_columns(columns)
            elif isinstance(what, ShapesLeft):
                self.push(t, goal.sites_floor(what.column, what.sites, c), replace(what, bounded=0))
            else:
                self.push(t, c, what)
        for x in self.opened:
            if goal.opens(x.seconds, x.usd) and not goal.refuses(x.column, x.seconds):
                q = ShapeProblem(world=goal.shapes_world, column=x.column, shape=x.shape)
                self.push(x.seconds, goal.shape_floor(q, x.usd), OpenShape(x))
        return self._searched(goal.begin)

    def _begin(self) -> None:
        """Open all strategies as search nodes and seek first plans; of many strategies a sample comes first."""
        goal, world = self.goal, self.goal.world
        some, opened = world.strategies(SAMPLED), set[int]()
        # First the sample, if there is one, then all others; first plans are sought once, behind what is opened first.
        for every in (False, True) if some else (True,):
            for s in world.strategies() if every else some:
                if id(s) in opened:
                    continue
                goal.tick()
                opened.add(id(s))
                world.count("strategies")
                known = known_bound(world, s)  # of more money: it is raised to that of less where it is next
                self.push(known[0] if known else strategy_bound(world, s), goal.strategy_usd(s), s)
            if every:
                self.current = math.inf
            if not every or not some:
                goal.begin()  # a limit that left the search time for one plan strikes once it has one
                if goal.has_plan_in_time:
                    first_plan_found()
        goal.all_open()
        if not goal.has_plan and not any(pipelines_in_memory(world, s).any() for s in world.strategies()):
            self.heap.clear()  # no pipeline may hold the model, so that no node has a plan

    def _searched(self, begin: Callable[[], None]) -> Stopped:
        """Begin the branch and bound, then open the least node until none may hold a useful plan or a limit comes."""
        goal = self.goal
        goal.loop = self
        try:
            begin()
            while self.heap:
                if goal.has_plan_in_time:
                    first_plan_found()
                goal.tick()
                self.current = self.heap[0][0][0]  # before it is taken: an interrupt must not lose its bound
                key, _, t, c, what = heapq.heappop(self.heap)
                if isinstance(what, Ranges):
                    what, t, c = self._still_open(what)
                now = goal.key(t, c)
                if now is None:
                    continue
                if now[0] > (key[0] * STALE if key[0] < 0 else key[0]):  # it has changed: the node waits anew
                    heapq.heappush(self.heap, (now, next(self.order), t, c, what))
                    continue
                self.current = now[0]
                if goal.reached(t, c, what):
                    heapq.heappush(self.heap, (now, next(self.order), t, c, what))
                    return "proved"
                name, expand = EXPAND[type(what)]
                goal.world.count(f"{name} nodes")
                expand(self, t, c, what)
            self.current = math.inf
        except OutOfTimeError:
            return goal.world.deadline.cause
        except UnansweredError as error:
            self.failure = str(error)
            return "limit"
        except KeyboardInterrupt:
            if not goal.has_plan:
                raise
            return "interrupted"
        return "proved"

    def push(self, t: float, c: float, what: Any) -> None:
        """Push a branch-and-bound node onto the heap of open nodes if it may hold a useful plan."""
        key = self.goal.key(t, c)
        if key is not None:
            heapq.heappush(self.heap, (key, next(self.order), t, c, what))

    def push_ranges(self, x: Ranges) -> None:
        """Push those ranges of blocks onto the heap of open branch-and-bound nodes that may hold useful plans."""
        x, t, c = self._still_open(x)
        self.push(t, c, x)

    def _still_open(self, x: Ranges) -> tuple[Ranges, float, float]:
        """Return the ranges of blocks of an opened node that may still hold useful plans, with bounds of the first."""
        keys = np.where(x.low < x.high, self.goal.keys(x.seconds, x.usd), np.inf)
        first = int(np.argmin(keys)) if len(keys) else -1
        if first < 0 or keys[first] == np.inf:
            return x, math.inf, math.inf
        return x.where(keys < np.inf), float(x.seconds[first]), float(x.usd[first])

    def _open_strategy(self, t: float, c: float, s: Strategy) -> None:
        known = known_bound(self.goal.world, s)
        if known is None or not known[1]:
            bound = strategy_bound(self.goal.world, s)
            if bound > t:
                self.push(bound, c, s)
                return
        of = table_of(self.goal.world, s)
        self.goal.world.count("pipelines", len(of))
        # While no plan is known memory may be why: what can never hold the model needs no terms of its steps.
        known_plan = self.goal.has_plan or math.isfinite(self.goal.rival)
        holding = None if known_plan else pipelines_in_memory(self.goal.world, s)
        for some in self.goal.first_ranges(of):
            x = some if holding is None else some.where(holding[some.at])
            self.push_ranges(bounded(self.goal, replace(x, seconds=np.maximum(x.seconds, t))))

    def _open_ranges(self, t: float, c: float, x: Ranges) -> None:
        """Open a node of ranges of blocks: halve the wide ones due now, and put the others under a ZeRO stage."""
        # Ranges that have one list as many columns as the goal asks for; the rest waits.
        goal, key = self.goal, self.current
        x = self._hot(x)
        if x.zero is not None and not x.in_memory.all():
            x = in_memory(goal, x)
            x, *bounds = self._still_open(x)
            now = goal.key(*bounds)
            if now is None or now[0] > key:
                self.push_ranges(x)
                return
            x = self._hot(x)
        is_wide = goal.wide(x, key)
        narrow, wide = x.where(~is_wide), x.where(is_wide)
        if len(wide.at):
            middle = (wide.low + wide.high) // 2
            self.push_ranges(bounded(goal, replace(wide, low=middle)))
            many = middle * wide.of.rows.block_replicas[wide.at] >= MANY_SHARDS
            known = many if wide.zero is not None else np.ones(len(middle), dtype=bool)
            self.push_ranges(bounded(goal, replace(wide, high=middle, in_memory=known)))
        if not len(narrow.at):
            return
        if narrow.zero is not None:
            # Columns are listed; larger or slower ones are left for later.
            high, cuts = goal.slice(narrow, key)
            more = np.flatnonzero(high < narrow.high)
            if len(more):
                self.push_ranges(bounded(goal, replace(narrow.part(more), low=high[more])))
            x = replace(narrow, high=high)
            columns, cuts = listed(goal, x, cuts)
            for some in columns:
                self._push_columns(some)
            seconds, done = (np.maximum(known, cuts) for known in (x.seconds, x.done))
            self.push_ranges(replace(x, seconds=seconds, done=done, times=x.times + 1))
            return
        found = []
        for zero in sorted(goal.world.zero_stages(narrow.of.strategy), reverse=True):
            staged = bounded(goal, under_stage(narrow, zero))
            if len(staged.at) <= FEW_RANGES:
                staged, terms = in_memory(goal, staged), narrow.of.under_zero.get(zero)
                if zero < GATHERING and terms is not None:  # what has no room has none under stages that divide less
                    full = (terms.high[narrow.at] == narrow.high) & np.isinf(terms.in_memory[narrow.at])
                    narrow = narrow.where(~full)
            found.append(staged)
        for staged in reversed(found):
            self.push_ranges(staged)

    def _push_columns(self, x: Columns) -> None:
        for place in range(x.place, len(x.seconds)):
            t, c = float(x.seconds[place]), float(x.usd[place])
            key = self.goal.key(t, c)
            if key is not None:
                heapq.heappush(self.heap, (key, next(self.order), t, c, replace(x, place=place)))
                return

    def _open_columns(self, t: float, c: float, x: Columns) -> None:
        """Branch off the next listed column as a node with its time on a free network; push the rest back."""
        goal, column = self.goal, column_at(x.strategy, x.zero, x.table, x.place)
        if not x.sharp:
            x = replace(x, usd=np.maximum(x.usd, goal.column_floor(column, c)), sharp=True)
            if x.usd[x.place] > c:
                self._push_columns(x)
                return
        rest, in_reach = replace(x, place=x.place + 1), True
        if not x.in_rounds and goal.world.sites is not None and goal.world.problem.calendar is None:
            # With the fibre between as many sites as hold it. The stretch of a longer step by failures is not known.
            world = goal.shapes_world
            some = (ShapeClass.of(world, column, sites) for sites in open_sites(world, column))
            in_reach = any(goal.opens(x.seconds_over_fibre(t), c) for x in some)
        if not in_reach:
            goal.opened(t, c, column)
        elif not goal.refuses(column, t):
            cutoff = min(goal.cutoff(c), NEVER)
            exact = max(t, free_seconds(goal.world, column, cutoff, waits=not x.in_rounds))
            if not x.in_rounds:
                self.push(exact, c, column)
                goal.timed(column, exact)
            elif goal.opens(exact, c):
                # The columns for which the next one speaks, whose seconds without waits may be of use.
                row = x.table.part(np.array([x.place]))
                for times, table in rounds_of(goal.world, x.strategy, x.zero, row, cutoff):
                    each = Columns(x.strategy, x.zero, table, np.maximum(times, exact), np.full(len(table), c))
                    for columns in in_order(goal, each):
                        self._push_columns(columns)
        self._push_columns(rest)

    def _open_column(self, t: float, c: float, column: Column) -> None:
        if self.goal.refuses(column, t):
            return
        self.goal.opened(t, c, column)
        free = free_seconds(self.goal.world, column, min(self.goal.cutoff(c), NEVER))
        for choice in spared(self.goal.world, column):
            for sites in open_sites(self.goal.world, choice):
                floor = self.goal.sites_floor(choice, sites, c)
                least = ShapeClass.of(self.goal.shapes_world, choice, sites).seconds_over_fibre(free)
                self.push(max(t, least), floor, ShapesLeft(choice, sites, largest_parts(choice, sites)))

    def _open_shapes(self, t: float, c: float, x: ShapesLeft) -> None:
        """Open a node of shapes: bound their time and capital within budget; halve their range or open the next."""
        goal = self.goal
        few = x.sites <= 2  # one of each largest part: they are opened without a bound of all
        if x.bounded < BOUNDS and not few:
            world = goal.shapes_world

            def unhoused(most: int) -> bool:
                return goal.unhoused(ShapeClass.of(world, x.column, x.sites, range(most, most + 1)), ask=True)

            # Of those alone that the sites may house: none above a largest part.
            housed = x.largest if x.bounded else x.largest[: bisect(x.largest, False, key=unhoused)]
            if housed:
                goal.world.count("classes of shapes")
                some = ShapeClass.of(world, x.column, x.sites, housed)
                least, usd = some.lower_bounds(goal.cutoff(c), fabrics=x.bounded > 0, capital=goal.counts_capital)
                if math.isfinite(least):
                    self.push(max(t, least), max(c, usd), replace(x, largest=housed, bounded=x.bounded + 1))
        elif len(x.largest) > 1 and not few:
            middle = len(x.largest) // 2
            for half in (x.largest[:middle], x.largest[middle:]):
                self.push(t, c, replace(x, largest=half, bounded=0))
        else:  # the next shape, and those behind it where they may still be of use
            rest = shapes(x.column, x.sites, x.largest) if x.rest is None else x.rest
            found = next(goal.useful_shapes(x.column, rest, c), None)
            if found is None:
                return
            goal.world.count("shapes")
            q, least = found
            own, floor = max(t, q.bound(goal.cutoff(c), q.best_fibre)), goal.shape_floor(q, c)
            known = KnownShape(own, floor, x.column, q.shape)
            self.push(own, floor, OpenShape(known))
            if goal.goes_on and goal.opens(own, floor):
                self.opened.append(known)
            self.push(max(t, least), c, replace(x, rest=rest))

    def _open_shape(self, t: float, c: float, x: OpenShape) -> None:
        bounds = self.goal.price(t, c, x)
        if bounds is not None:
            self.push(max(t, bounds[0]), max(c, bounds[1]), x)

    def _hot(self, x: Ranges) -> Ranges:
        if not len(x.at):
            return x
        hot = self.goal.hot(x, self.goal.keys(x.seconds, x.usd))
        self.push_ranges(x.where(~hot))
        return x.where(hot)


EXPAND: dict[type, tuple[str, Callable[[Loop, float, float, Any], None]]] = {
    Strategy: ("strategy", Loop._open_strategy),
    Ranges: ("ranges", Loop._open_ranges),
    Columns: ("columns", Loop._open_columns),
    Column: ("column", Loop._open_column),
    ShapesLeft: ("shapes", Loop._open_shapes),
    OpenShape: ("shape", Loop._open_shape),
}
