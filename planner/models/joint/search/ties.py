"""The goal of a plan of least rank among those that tie, within a limit on seconds a sequence and one on capital.

A rank says how good a plan is in what neither days nor money say, the least the best.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.models.joint.columns import StrategyTable
from planner.models.joint.search.capital import LeastCapital, ShapeByCapital
from planner.models.joint.search.goal import OpenNodes
from planner.models.joint.search.ranges import Ranges
from planner.models.joint.space import Floats, Ints
from planner.models.joint.split import Column
from planner.models.joint.world import CENTS, EPS, JointPlan, World

Rank = tuple[float, ...]


@dataclass(kw_only=True)
class LeastRank(LeastCapital):
    """The plan of least rank known, within `limit` seconds a sequence and `budget` dollars."""

    rank: Callable[[JointPlan], Rank]
    least_rank: Callable[[Column], Rank]  # one that no plan of a column is below
    best: Rank  # that a plan must be below
    enough: Rank = ()  # at which the search ends
    most_shapes: int  # that are priced; the search ends unproven at the next
    most_nodes: int  # that are opened, likewise
    first: Column | None = None
    priced: int = 0
    nodes: int = 0

    @property
    def goes_on(self) -> bool:
        """Whether another goal may go on: always."""
        return True

    @property
    def capital(self) -> float:
        """Most capital that a plan may have to tie."""
        return self.budget + CENTS

    def cutoff(self, c: float) -> float:
        """Return the limit."""
        return self.limit * (1 + EPS)

    def cutoffs(self, c: Floats) -> Floats:
        """Return the limit."""
        return np.full(np.shape(c), self.limit * (1 + EPS))

    def begin(self, loop: OpenNodes) -> None:
        """Look at the column of a plan at hand first."""
        if self.first is not None:
            self._try(0.0, self.first)

    def timed(self, column: Column, seconds: float) -> None:
        """Seek no plans at a late column: one that ties is known."""

    @property
    def ended(self) -> bool:
        """Whether the search ended before its proof, as it had done as much as it may."""
        return (self.priced >= self.most_shapes or self.nodes >= self.most_nodes) and not self.best <= self.enough

    def reached(self, t: float, c: float, what: Any) -> bool:
        """End at a rank that is good enough, or where as much was done as may be."""
        self.nodes += 1
        return self.best <= self.enough or self.ended

    def refuses(self, column: Column, seconds: float) -> bool:
        """Return whether no plan of a column is of a lower rank, which is known before it is timed."""
        return not self.least_rank(column) < self.best

    def sites_floor(self, column: Column, sites: int, c: float) -> float:
        """Bound the capital of a column at a number of sites; infinite where no plan of it is of a lower rank."""
        return super().sites_floor(column, sites, c) if self.least_rank(column) < self.best else math.inf

    @property
    def shapes_world(self) -> World:
        """The world with the capital that ties as its budget."""
        return self.world_of(self.budget)

    def price(self, t: float, c: float, shape: ShapeByCapital) -> tuple[float, float] | None:
        """Take a shape one step on, to a sharper bound or to its cheapest plan, which is kept if its rank is lower."""
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
        """Make a plan the incumbent if it ties and its rank is lower."""
        if plan.capital_usd > self.capital or plan.seconds > self.limit * (1 + EPS):
            return
        rank = self.rank(plan)
        if rank < self.best:
            self.incumbent, self.best = plan, rank
            self.world.count("incumbents")
            self.kept(plan)


@dataclass(kw_only=True)
class Simplest(LeastRank):
    """The plan of least rank of all within the limits: only pipelines that may have a lower rank are searched."""

    # Of each pipeline of a strategy a number that orders ranks as `least_rank` does, and that of the best rank.
    pipeline_ranks: Callable[[StrategyTable, Rank], tuple[Ints, int]]

    def first_ranges(self, of: StrategyTable) -> Iterator[Ranges]:
        """Yield the ranges of blocks of the pipelines that may hold a plan of a lower rank."""
        for x in super().first_ranges(of):
            yield self.worthwhile(x)

    def worthwhile(self, x: Ranges) -> Ranges:
        """Return the ranges whose pipelines may hold a plan of a lower rank."""
        ranks, best = self.pipeline_ranks(x.of, self.best)
        return x.part(np.flatnonzero(ranks[x.at] <= best))
