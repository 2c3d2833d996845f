"""Floors of many shapes of a column at once: over a number of sites, whose largest part is within a range."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from operator import ge
from typing import Any

from planner.models.fabric.design_table import DesignTable
from planner.models.joint.places.capital_bounds import SlowdownLevel
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

    def floors(self, cutoff: float, *, fabrics: bool, capital: bool) -> tuple[float, float]:
        """Bound seconds a sequence and capital of every shape that the money may pay; both infinite where none is.

        `fabrics`: those that may be built are priced, not only links and leaf ports of the GPUs. `capital`: it is asked
        for too.
        """
        if fabrics and (len(self.sizes) > MOST_TABLES or self.world.templates is None):
            return 0.0, 0.0
        search = (_WithFabrics if fabrics else _WithEndpoints)(shape_problem=self, cutoff=cutoff)
        found = search.next(Target(cutoff / (1 + EPS), math.inf, self.world.budget))
        if found is None:
            return math.inf, math.inf
        return found.seconds * (1 - EPS), search.least_usd() if capital else 0.0

    def options(self, cutoff: float, *, shallow: bool = False) -> dict[int, DesignTable]:
        """Return, under the key of one block, the fabrics of sites of every size, with a block's share of each.

        A table within some limits serves other classes whose limits are no wider.
        """
        templates, known = self.world.templates, self.world.cache.shares
        if templates is None:
            return {}
        limits, parts = (self._most_fabric_usd(self.high), self.max_slowdowns(cutoff)), list[DesignTable]()
        for g in self.sizes:
            own, x = known.get((self.traffic, g), ((0.0, (0.0, 0.0)), None))
            if x is None or own[0] < limits[0] or not all(map(ge, own[1], limits[1])):
                x = templates.options(self.traffic, g, limits[0], max_slowdowns=limits[1])
                x = replace(x, usd=x.usd / g, mw=x.mw / g)
                known[self.traffic, g] = limits, x
            parts.append(x)
        return {1: DesignTable.joined(parts).within((math.inf, limits[1]))}


class _WithEndpoints(FastestSearch):
    """The least time of a class with fabrics that slow nothing, at the price of links and leaf ports of the GPUs."""

    @cached_property
    def levels(self) -> list[SlowdownLevel]:
        """List the one level."""
        q = self.shape_problem
        phi = q.world.problem.transport_slowdown
        return [SlowdownLevel(phi, phi, q.min_fabrics_usd)]

    @property
    def _least_mw(self) -> float:
        """The least power that all fabrics draw."""
        q = self.shape_problem
        return 0.0 if q.world.sites is None else q.racks * q.world.sites.min_fabric_mw(q.traffic.rails)

    def _fewest_wavelengths(self, c: NetworkCandidate) -> NetworkCandidate:
        """Return the candidate: of a class its time alone counts."""
        return c

    def least_usd(self) -> float:
        """Bound the capital of the shapes that meet the cutoff."""
        floors = self._lower_bounds(self.shape_problem.rtts_ms[-1])
        return min((float(floors[n]) + level.usd for level, n in self.fewest_waves()), default=math.inf)


class _WithFabrics(_WithEndpoints):
    """The least time of a class with fabrics at the least price of a block of sites of any number of blocks."""

    @cached_property
    def levels(self) -> list[SlowdownLevel]:
        """List the slowdowns that may be worth their price."""
        return self._levels()

    @property
    def _lists_all(self) -> bool:
        """Whether slowdowns are listed that others beat in price: never, as no fabric is chosen."""
        return False

    @property
    def _parts(self) -> list[DesignTable]:
        """The fabrics of a block."""
        return list(self.options.values())

    def _least_usd(self, sends: Floats, allreduce: float) -> Floats:
        """Bound the price of all fabrics and of their power by slowdown of sends."""
        return super()._least_usd(sends, allreduce) * sum(self.shape_problem.shape.blocks)

    @property
    def _least_mw(self) -> float:
        """The least power that all fabrics draw."""
        each = min((float(x.mw.min()) for x in self._parts if len(x)), default=0.0)
        return each * sum(self.shape_problem.shape.blocks)
