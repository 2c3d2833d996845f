"""Floors of many shapes of a column at once: over a number of sites, whose largest part is within a range."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from planner.models.fabric.design_table import DesignTable, least_at
from planner.models.joint.places.fastest import FastestSearch, NetworkCandidate
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.space import Floats
from planner.models.joint.split import Column
from planner.models.joint.world import EPS, Shape, Target, World

MOST_TABLES = 48  # of fabrics, by blocks of a site: classes of parts of more sizes are halved before they are timed


@dataclass(kw_only=True)
class ShapeClass(ShapeProblem):
    """The shapes of a column over a number of sites with as many blocks at the largest as `shape`, and up to `high`.

    `shape` is the most even of them, with as many replicas at its smallest site as any has: it takes the least time.
    Its racks are those at work, as less even shapes may need fewer spares.
    """

    high: int

    @classmethod
    def of(cls, world: World, column: Column, sites: int, largest: range) -> "ShapeClass":
        """Return the class of the shapes with a number of blocks in a range at the largest of some sites."""
        block = column.strategy.block(column.p)
        left = 0 if block is None else block.blocks(column.d) - largest[0]
        rest = [left // (sites - 1) + (i < left % (sites - 1)) for i in range(sites - 1)] if sites > 1 else []
        shape = Shape((largest[0], *rest), (column.d - 1) // sites + 1)
        return cls(world=world, column=column, shape=shape, high=largest[-1])

    @cached_property
    def racks(self) -> int:
        """Racks at work of all blocks."""
        return sum(self.traffic.work_racks(g) for g in self.shape.blocks)

    @cached_property
    def floor_usd(self) -> float:
        """The least capital of all racks at the sites, without fabrics and fibre."""
        sites = self.world.sites
        return super().floor_usd if sites is None else sites.floor_usd(self.racks, len(self.shape.blocks))

    @property
    def sizes(self) -> list[int]:
        """The numbers of blocks that a site may have."""
        total, sites = sum(self.shape.blocks), len(self.shape.blocks)
        return list(range(max(1, total - (sites - 1) * self.high), self.high + 1))

    @cached_property
    def min_stretch(self) -> float:
        """The least stretch of steps by failures in any shape of the column."""
        return self.free_stretch

    def on_clock(self, seconds: Any) -> Any:
        """Bound the clock seconds a sequence from below."""
        return seconds * self.free_stretch

    def least_seconds(self, cutoff: float) -> float:
        """Bound the seconds a sequence of every shape that the money may pay; infinite where none meets the cutoff."""
        if len(self.sizes) > MOST_TABLES and self.world.templates is not None:
            return 0.0
        search = _ClassSearch(shape_problem=self, cutoff=cutoff)
        found = search.next(Target(cutoff / (1 + EPS), math.inf, self.world.budget))
        return math.inf if found is None else found.seconds * (1 - EPS)


class _ClassSearch(FastestSearch):
    """The least time of a class, with fabrics at the least price a block of any number of blocks of a site."""

    @property
    def _lists_all(self) -> bool:
        """Whether slowdowns are listed that others beat in price: never, as no fabric is chosen."""
        return False

    @property
    def _parts(self) -> list[DesignTable]:
        """The fabrics of each number of blocks that has any."""
        return [x for x in self.options.values() if len(x)]

    def _least_usd(self, sends: Floats, allreduce: float) -> Floats:
        """Bound the price of all fabrics by slowdown of sends."""
        q = self.shape_problem
        each = [least_at(self._with_power(x), sends, allreduce) / g for g, x in self.options.items() if len(x)]
        return np.asarray(np.min(each, axis=0) * sum(q.shape.blocks))

    @property
    def _least_mw(self) -> float:
        """The least power that all fabrics draw."""
        each = (float(x.mw.min()) / g for g, x in self.options.items() if len(x))
        return min(each, default=0.0) * sum(self.shape_problem.shape.blocks)

    def _fewest_wavelengths(self, c: NetworkCandidate) -> NetworkCandidate:
        """Return the candidate: of a class its time alone counts."""
        return c
