"""The goal of a search: the order in which nodes are opened, those that stay closed, and the pricing of shapes."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from planner.models.joint.joint_question import World
from planner.models.joint.joint_solution import CENTS, JointPlan
from planner.models.joint.shapes.blocks_by_site import Shape
from planner.models.joint.shapes.shape_problem import ShapeProblem
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import Flags, Floats, Ints, Strategy, StrategyRows
from planner.models.joint.strategy_tables import StrategyTable, allowed, most_blocks

Key = tuple[float, float]
Node = tuple[Key, int, float, float, Any]  # its key, its place among equals, its seconds, its capital, and what it is
Stopped = Literal["proved", "limit", "interrupted"]
LINE_SECONDS = 2.0  # between lines on the progress


@dataclass(slots=True)  # not frozen, which takes three times as long to make
class Ranges:
    """Search node of a goal: pipelines of a strategy, under a ZeRO stage or any, with `low` + 1 to `high` blocks."""

    of: StrategyTable
    zero: int | None
    times: int  # how often columns of the batch were opened
    at: Ints  # their places in the table of the strategy; here and below by range
    low: Ints
    high: Ints
    seconds: Floats  # floors of seconds a sequence
    usd: Floats  # floors of capital
    each: Floats  # least seconds of a micro-batch, with the replicas of `high` blocks
    once: Floats  # the same once a step
    layer: Floats  # under a ZeRO stage the seconds of a layer of a micro-batch, nothing recomputed
    in_memory: Flags  # whether `each` counts what memory asks of the slowest stage
    done: Floats  # seconds under which their columns were opened before

    def part(self, which: Any) -> "Ranges":
        """Return a selection of the ranges of blocks of a goal's search node."""
        return Ranges(self.of, self.zero, self.times, *[getattr(self, name)[which] for name in self.__slots__[3:]])

    def where(self, which: Flags) -> "Ranges":
        """Return the ranges of a goal's search node that a mask selects; the same object where it selects all."""
        return self if which.all() else self.part(np.flatnonzero(which))

    @property
    def rows(self) -> StrategyRows:
        """The pipelines of a goal's search node of ranges, with as many replicas as `high` blocks hold."""
        rows = self.of.rows.part(self.at)
        return replace(rows, d=np.minimum(self.high * rows.block_replicas, rows.d))


def all_ranges(of: StrategyTable, low: Ints, high: Ints, at: Ints) -> Ranges:
    """Return a search node of ranges of blocks of pipelines, under any ZeRO stage, without a goal's floors yet."""
    none, known, each = np.zeros(len(at)), np.ones(len(at), dtype=bool), of.each_within(at, high)
    return Ranges(of, None, 0, at, low, high, none, none, each, of.once[at], none, known, none)


@dataclass(slots=True)
class KnownShape:
    """A shape that a goal's search opened, with floors of seconds a sequence and of capital, which pricing raises."""

    seconds: float
    usd: float
    column: Column
    shape: Shape


@dataclass(slots=True)
class OpenShape:
    """Search node: an opened shape, what later goals know of it, and the floors that pricing it yields."""

    known: KnownShape
    steps: Iterator[tuple[float, float]] | None = None


@dataclass(kw_only=True)
class OpenNodes:
    """The heap of a search's open nodes by the keys of its goal, the least first."""

    heap: list[Node] = field(default_factory=list)
    current: float = -math.inf  # key of the node that is being opened; none is known before the first

    @property
    def least_key(self) -> float:
        """The least key that the search's goal gives any open node."""
        return min(self.current, self.heap[0][0][0] if self.heap else math.inf)


@dataclass(kw_only=True)
class Goal(ABC):
    """A goal of the search. A node is a set of plans, none faster than t seconds a sequence or cheaper than c dollars.

    Floors are of a sequence on a clock, and of capital as the goal counts it; one that it does not count is 0.
    """

    counts_capital: ClassVar[bool] = True  # whether floors of capital put nodes in order

    world: World
    incumbent: JointPlan | None = None
    rival: float = math.inf  # seconds a sequence of a plan of another search: slower ones are of no use
    # Share by which plans worse than the best are of use to a goal that goes on: nodes that may hold such stay open.
    within: float = 0.0
    loop: OpenNodes = field(default_factory=OpenNodes)  # the search of the goal, once it has begun
    spoke: float = field(default_factory=time.perf_counter)  # when it said last where the search is

    @property
    def goes_on(self) -> bool:
        """Whether another goal continues the search, so that it keeps the nodes and answers that one may need."""
        return self.within > 0

    @property
    def has_plan(self) -> bool:
        """Whether the goal's search has found a plan yet."""
        return self.incumbent is not None

    @property
    def has_plan_in_time(self) -> bool:
        """Whether the goal's search has found a plan that meets the deadline of the instance."""
        return self.has_plan

    @abstractmethod
    def keys(self, t: Floats, c: Floats) -> Floats:
        """Return the goal's keys of search nodes by floors, least opened first; infinite: no useful plan."""

    @abstractmethod
    def key(self, t: float, c: float) -> Key | None:
        """Return the goal's key of one search node and the tie-breaker of equal keys; None: no useful plan."""

    def opens(self, t: float, c: float) -> bool:
        """Return whether a search node with floors of t seconds and c dollars may be useful to the goal."""
        return self.key(t, c) is not None

    @abstractmethod
    def cutoff(self, c: Any) -> Any:
        """Return the seconds from which plans of at least a capital, or each capital, are useless to the goal."""

    def begin(self) -> None:
        """Seek first plans of the goal, once a sample of strategies is open in its search."""

    def all_open(self) -> None:
        """Seek better first plans of the goal, once all strategies are open in its search."""

    def tick(self) -> None:
        """Stop the goal's search at its limit; report its progress every two seconds."""
        self.world.deadline.check()
        if time.perf_counter() - self.spoke >= LINE_SECONDS:
            self.speak()

    def speak(self) -> None:
        """Report the progress of the goal's search."""

    def reached(self, t: float, c: float, what: Any) -> bool:
        """Note the search node that is opened next; return whether the goal ends the search before it."""
        return False

    def first_ranges(self, of: StrategyTable) -> Iterator[Ranges]:
        """Yield the first search nodes of a goal for a strategy: the ranges of blocks of its pipelines."""
        at = np.flatnonzero(allowed(self.world, of.rows))
        most = np.minimum(np.maximum(of.rows.blocks(), 1), most_blocks(self.world, of.rows.rails, of.rows.racks))[at]
        yield all_ranges(of, np.zeros_like(most), most, at)

    def strategy_usd(self, s: Strategy) -> float:
        """Bound a strategy's capital in USD as the goal counts it, before its pipelines are known."""
        return 0.0

    def usd(self, racks: Any, rails: Any) -> Floats:
        """Bound the capital in USD of racks with a number of GPUs of each cabled, as the goal counts it."""
        return np.zeros(np.broadcast(racks, rails).shape)

    def most_blocks(self, x: Ranges) -> Ints:
        """Return the most blocks of each range that the capital of a plan useful to the goal may pay."""
        return np.minimum(x.high, most_blocks(self.world, x.of.rows.rails[x.at], x.of.rows.racks[x.at]))

    def hot(self, x: Ranges, keys: Floats) -> Flags:
        """Return which ranges of blocks of a search node the goal opens now."""
        return keys < np.inf

    def wide(self, x: Ranges, key: float) -> Flags:
        """Return which ranges of blocks the goal halves before their columns are listed."""
        return np.zeros(len(x.at), dtype=bool)

    @abstractmethod
    def slice(self, x: Ranges, key: float) -> tuple[Ints, Floats]:
        """Return the most blocks of each range, and the seconds, up to which the goal lists columns now."""

    def groups(self, entries: Ints, t: Floats, c: Floats) -> list[Ints]:
        """Sort listed columns into the goal's groups, where those behind a column have no lower keys."""
        # `entries` names the pipeline and the blocks of each.
        return [np.lexsort((t, c))]

    def column_floor(self, column: Column, c: float) -> float:
        """Raise the goal's capital floor of a pipeline's columns with as many blocks as one."""
        return c

    def timed(self, column: Column, seconds: float) -> None:
        """Let the goal note the time of a column on a free network."""

    def opened(self, t: float, c: float, column: Column) -> None:
        """Let the goal note a column that its search opens at its time on a free network."""

    def sites_floor(self, column: Column, sites: int, c: float) -> float:
        """Bound the capital in USD of a column at a number of sites, as the goal counts it."""
        return c

    def shape_floor(self, q: ShapeProblem, c: float) -> float:
        """Bound the capital in USD of a shape, as the goal counts it."""
        return c

    def refuses(self, column: Column, seconds: float) -> bool:
        """Return whether a column is of no use to the goal, before the search times it and again when it opens it."""
        return False

    def unhoused(self, q: ShapeProblem, *, ask: bool) -> bool:
        """Return whether the goal's budget pays no sites for a shape or less even ones; `ask` the sites if unknown."""
        if ask:
            return not q.may_be_housed
        site_bounds, rtts = q.world.site_bounds, q.rtts_ms  # as an earlier answer of the sites says
        return site_bounds is not None and bool(rtts) and site_bounds.bound(q.point(rtts[-1])) > q.sites_usd

    @property
    def shapes_world(self) -> World:
        """The joint question with the budget that the goal's search may spend on a shape."""
        return self.world

    def useful_shapes(self, column: Column, every: Iterable[Shape], c: float) -> Iterator[tuple[ShapeProblem, float]]:
        """Yield to a search's goal the shapes that may be useful and paid, most even first, with least seconds."""
        # Less even shapes take no less time; where the money pays no sites for one it pays none for those behind it,
        # unless these need fewer spare racks.
        for shape in every:
            self.tick()
            q, least = ShapeProblem(world=self.shapes_world, column=column, shape=shape), 0.0
            if math.isinf(q.min_stretch):  # it never runs; less even shapes may differ
                continue
            unhoused = self.unhoused(q, ask=False)  # before its time, which takes longer to bound
            if not unhoused:
                fewest = max(shape.min_replicas, (column.d - 1) // len(shape.blocks) + 1)
                even = replace(q, shape=replace(shape, min_replicas=fewest))
                least = even.bound(self.cutoff(c), q.best_fibre, stretch=q.free_stretch)
                if not self.opens(least, c):
                    return
                unhoused = self.unhoused(q, ask=True)
            if unhoused and not column.spare_target:
                return
            # Its racks at any sites, with the least fabrics, may be over the budget too.
            if not unhoused and (q.world.sites is None or q.floor_usd + q.min_fabrics_usd <= q.world.budget + CENTS):
                yield q, least

    def price(self, t: float, c: float, x: OpenShape) -> tuple[float, float] | None:
        """Advance the goal's search of a shape by a step, which may keep plans; return floors of the rest, if any."""
        x.steps = self.steps(x.known, t, c) if x.steps is None else x.steps
        return next(x.steps, None)

    @abstractmethod
    def steps(self, x: KnownShape, t: float, c: float) -> Iterator[tuple[float, float]]:
        """Yield rising floors of the seconds and capital of a shape's plans that are left; keep those of use."""

    @abstractmethod
    def keep(self, plan: JointPlan) -> None:
        """Keep a plan that the search found, if it is useful to the goal."""
