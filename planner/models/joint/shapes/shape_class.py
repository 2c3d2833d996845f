"""Floors of a class of shapes of a column at once: over a number of sites, whose largest part is within a range."""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from planner.models.joint.joint_question import World
from planner.models.joint.joint_solution import CENTS, EPS, Target
from planner.models.joint.shapes.blocks_by_site import Shape, largest_parts
from planner.models.joint.shapes.fastest_plan import FastestSearch, NetworkCandidate, SlowdownLevel
from planner.models.joint.shapes.shape_problem import ShapeProblem
from planner.models.joint.shapes.site_prices import Prices
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import Floats

MOST_TABLES = 128  # of fabrics, by blocks of a site: classes of parts of more sizes are halved before they are timed
REFUSALS = 12  # of a class, each by some questions to the sites; the bound after them holds as well


@dataclass(kw_only=True)
class ShapeClass(ShapeProblem):
    """The class of a column's shapes over as many sites, with as many blocks at the largest as `shape`, up to `high`.

    `shape` is the most even of them, with as many replicas at its smallest site as any has: it takes the least time.
    Its racks are those at work, as less even shapes may need fewer spares.
    """

    high: int

    @classmethod
    def of(cls, world: World, column: Column, sites: int, largest: range | None = None) -> "ShapeClass":
        """Return the class of all shapes of a column over some sites, or of those whose largest part is in a range."""
        largest = largest_parts(column, sites) if largest is None else largest
        left = column.block.blocks(column.d) - largest[0]
        rest = [left // (sites - 1) + (i < left % (sites - 1)) for i in range(sites - 1)] if sites > 1 else []
        shape = Shape((largest[0], *rest), (column.d - 1) // sites + 1)
        return cls(world=world, column=column, shape=shape, high=largest[-1])

    @cached_property
    def racks(self) -> int:
        """Racks at work of all blocks of a class of shapes."""
        return sum(self.traffic.work_racks(g) for g in self.shape.blocks)

    @cached_property
    def floor_usd(self) -> float:
        """Least capital in USD of the racks of a class of shapes, without fabrics and fibre."""
        sites = self.world.sites
        return super().floor_usd if sites is None else sites.floor_usd(self.racks, len(self.shape.blocks))

    has_all_sizes: ClassVar[bool] = False

    @property
    def sizes(self) -> list[int]:
        """The numbers of blocks that a site may have in a class of shapes."""
        total, sites = sum(self.shape.blocks), len(self.shape.blocks)
        return list(range(max(1, total - (sites - 1) * self.high), self.high + 1))

    @cached_property
    def min_stretch(self) -> float:
        """Least stretch of steps by failures in any shape of the class."""
        return self.free_stretch

    def on_clock(self, seconds: Any) -> Any:
        """Bound from below the clock seconds a sequence of a class of shapes from its seconds of steps."""
        return seconds * self.free_stretch

    def seconds_over_fibre(self, free: float) -> float:
        """Bound the clock seconds a sequence of a class of shapes, given the least on a free network."""
        # Over the widest fibre that the money may pay with as many racks. It is infinite where the money pays no sites.
        c, bounds = self.column, self.world.site_bounds
        if bounds is None:
            return free
        key = self.world.budget, self.point(0.0), self.traffic.rails
        if key not in bounds.fibres:
            bounds.fibres[key] = self.may_be_housed, self.best_fibre
        housed, fibre = bounds.fibres[key]
        if not housed or fibre is None:
            return free if housed else math.inf
        layers = c.strategy.problem.layers
        every = np.arange(-(-layers // c.p), layers - (c.p - 1) * c.v + 1)
        spared = max(0.0, -c.strategy.between.first_excess_seconds)  # by a first stage with faster layers
        stage = self.on_clock(c.m * (every * c.strategy.layer - spared) / c.sequences)
        return float(self.min_over_fibre(np.maximum(free, stage), every, fibre)[0])

    def lower_bounds(self, cutoff: float, *, fabrics: bool, capital: bool) -> tuple[float, float]:
        """Bound the seconds a sequence and capital of a class of shapes; both infinite if the budget pays none."""
        # `fabrics`: those that may be built are priced, not only links and leaf ports of the GPUs. `capital`: it is
        # asked for too.
        if fabrics and (len(self.sizes) > MOST_TABLES or self.world.templates is None):
            return 0.0, 0.0
        search = (_WithFabrics if fabrics else _WithEndpoints)(shape_problem=self, cutoff=cutoff)
        target = Target(cutoff / (1 + EPS), math.inf, self.world.budget)
        found = search.next(target)
        for _ in range(REFUSALS if fabrics else 0):
            if found is not None and search.refuses(found):
                found = search.next(target)
        if found is None:
            return math.inf, math.inf
        return found.seconds * (1 - EPS), search.least_usd() if capital else 0.0

    def least_sum(self, of: Mapping[int, Floats]) -> Floats:
        """Return the least sum over the sites of any shape in the class of values by a site's blocks, or infinity."""
        # By a dynamic programme over the sites, the one with the most blocks last.
        sizes, sites = self.sizes, len(self.shape.blocks)
        values = np.stack([of[g] for g in sizes])
        over = sum(self.shape.blocks) - sites * sizes[0]  # blocks over the fewest at each site
        least = np.full((over + 1, values.shape[1]), np.inf)
        least[0] = 0.0
        for site in range(sites):
            first = self.shape.blocks[0] - sizes[0] if site == sites - 1 else 0
            more = np.full_like(least, np.inf)
            for k in range(first, min(len(sizes), over + 1)):
                more[k:] = np.minimum(more[k:], least[: over + 1 - k] + values[k])
            least = more
        return np.asarray(least[over])


@dataclass(kw_only=True)
class _WithEndpoints(FastestSearch):
    """The fastest candidate of a class of shapes with links and leaf ports of the GPUs as fabrics that slow nothing."""

    shape_problem: ShapeClass

    @cached_property
    def levels(self) -> list[SlowdownLevel]:
        q = self.shape_problem
        phi = q.world.problem.transport_slowdown
        return [SlowdownLevel(phi, phi, q.min_fabrics_usd)]

    @cached_property
    def _power_usd(self) -> float:
        return self.shape_problem.min_power_usd

    @property
    def _prices(self) -> Prices | None:
        return self._extent_prices

    def _fewest_wavelengths(self, c: NetworkCandidate) -> NetworkCandidate:
        """Return the network candidate as it is: of a class of shapes its time alone counts."""
        return c

    def refuses(self, c: NetworkCandidate) -> bool:
        """Return whether a class's candidate is unpaid at any sites; then learn the wavelengths from which none is."""
        q, waves = self.shape_problem, self._wavelengths[self._wavelengths <= c.wavelengths].tolist()
        bounds, sites, left = q.world.site_bounds, q.world.sites, q.world.budget - c.level.usd
        if bounds is None or sites is None or sites.designed:
            return False

        def unpaid(n: int) -> bool:
            return bounds.exceeds(replace(q.point(c.rtt_ms), wavelengths=n), left - self._power_usd)

        if not unpaid(waves[-1]):
            return False
        at = waves[bisect_left(waves, True, key=unpaid)], c.rtt_ms
        self.lower_bounds[at] = max(left + 2 * CENTS, self.lower_bounds.get(at, 0.0))
        self.floor_tables.clear()
        return True

    def least_usd(self) -> float:
        """Bound the capital in USD of a class's shapes that meet the cutoff; sharpen the least until it holds."""
        q, prices = self.shape_problem, self._prices
        rtt, choices, sharp = q.rtts_ms[-1], dict(self.fewest_waves()), set[SlowdownLevel]()
        while choices:
            capital = self._lower_bounds(rtt)
            usd, level = min(((float(capital[n]) + x.usd, x) for x, n in choices.items()), key=lambda x: x[0])
            known = level in sharp and (prices is None or prices.is_known(choices[level], rtt))
            if known or usd > q.world.budget + CENTS:
                return usd
            if level not in sharp:
                sharp.add(level)
                fewest = self.waves_by_best_split(level, choices.pop(level))
                choices |= {} if fewest is None else {level: fewest}
            elif prices is not None:
                prices.ask(choices[level], rtt)
        return math.inf


@dataclass(kw_only=True)
class _WithFabrics(_WithEndpoints):
    """The fastest candidate of a class of shapes with the fabrics that may be built in any of its shapes."""

    levels, _power_usd = FastestSearch.levels, FastestSearch._power_usd  # of slowdowns that may be worth their price
