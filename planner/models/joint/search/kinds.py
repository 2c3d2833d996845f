"""The goal of the fastest plan of each kind of layout, among plans that are nearly as fast as the fastest of all."""

import math
from dataclasses import dataclass, field

import numpy as np

from planner.models.joint.places.fastest import FastestSearch
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.search.days import FewestDays, ShapeInTime
from planner.models.joint.search.goal import Key, OpenNodes
from planner.models.joint.space import Floats
from planner.models.joint.split import Column
from planner.models.joint.world import EPS, JointPlan

Kind = tuple[int, int, int, int]  # tensor, context, expert and pipeline parallelism


def kind_of(c: Column) -> Kind:
    """Return the kind of layout of a column."""
    s = c.strategy.shape
    return (*s.degrees, c.p)


@dataclass(kw_only=True)
class FastestOfEachKind(FewestDays):
    """The fastest plan known of each kind, no slower than the rival; nodes are opened by their seconds."""

    most_shapes: int  # that are priced; the search ends unproven at the next
    kinds: dict[Kind, JointPlan] = field(default_factory=dict)
    priced: int = 0
    at: float = 0.0  # seconds of the column that was opened last

    @property
    def most_seconds(self) -> float:
        """Those of the rival: an incumbent is of its kind alone."""
        return self.rival * (1 + EPS)

    @property
    def ended(self) -> bool:
        """Whether the search ended before its proof."""
        return self.priced >= self.most_shapes

    def key(self, t: float, c: float) -> Key | None:
        """Return the seconds; None above the limit, and where the kind has a plan as fast."""
        return super().key(t, c) if math.isfinite(c) else None

    def cutoffs(self, c: Floats) -> Floats:
        """Return the seconds of the rival."""
        return np.full(np.shape(c), self.most_seconds)

    def begin(self, loop: OpenNodes) -> None:
        """Seek no first plans: the fastest of all is known."""
        self.loop = loop

    def reached(self, t: float, c: float, what: object) -> bool:
        """End where as many shapes were priced as may be."""
        return self.ended

    def timed(self, column: Column, seconds: float) -> None:
        """Remember the least time of a column on a free network."""
        self.guess = min(self.guess, seconds)

    def opened(self, loop: OpenNodes, t: float, c: float, column: Column) -> None:
        """Remember the time of the column."""
        self.at = t

    def sites_floor(self, column: Column, sites: int, c: float) -> float:
        """Close a column whose kind has a plan as fast already."""
        known = self.kinds.get(kind_of(column))
        return math.inf if known is not None and known.seconds <= self.at * (1 + EPS) else c

    def begin_shape(self, q: ShapeProblem) -> ShapeInTime:
        """Begin the search of a shape by time, and count it; how fast its kind is known limits it."""
        self.priced += 1
        self.incumbent = self.kinds.get(kind_of(q.column))
        return ShapeInTime(FastestSearch(shape_problem=q, cutoff=self.target.cutoff))

    def price(self, t: float, c: float, shape: ShapeInTime) -> tuple[float, float] | None:
        """Take a shape a step on, under the fastest plan of its kind."""
        self.incumbent = self.kinds.get(kind_of(shape.search.shape_problem.column))
        if self.incumbent is not None and self.incumbent.seconds <= t * (1 + EPS):
            return None
        return super().price(t, c, shape)

    def keep(self, plan: JointPlan) -> None:
        """Make a plan that of its kind if it is faster, or as fast and cheaper."""
        kind = kind_of(plan.column)
        self.incumbent = self.kinds.get(kind)
        if self.incumbent is None or self.target.improved_by(plan.seconds, plan.capital_usd):
            self.kinds[kind] = plan
            self.world.count("incumbents")
