"""What one column asks of sites, fabrics and fibre: the fastest plan of it, shape by shape.

A shape says how many blocks stand at each site. With it go allreduces, shards and crossings, so that time depends on
the shape, on the slowdowns that fabrics are allowed, and on the fibre; all of them are tried in the order of their
time, and the first that the money pays is the fastest.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from planner.instance.pins import pinned_blocks
from planner.models.joint.bounds import Conditions
from planner.models.joint.places.site_bounds import Point, SiteBounds, first
from planner.models.joint.sites import Placed, Sites
from planner.models.joint.space import Flags, Floats, Problem, Strategy
from planner.models.joint.split import Column, Split, Stages
from planner.models.joint.template_tables import Options
from planner.models.joint.templates import Template, Templates, Traffic
from planner.models.joint.tree.cache import JointCache
from planner.physics.site import power
from planner.physics.training.blocks.block_step import Fibre
from planner.physics.training.blocks.rack_blocks import Block
from planner.solvers.deadline import Deadline

EPS = 1e-9  # relative: times that differ by less are the same
CENTS = 0.005
NO_BUDGET = 1e30  # dollars, where none is given: more than any plan costs, and less than what cannot be had at all


@dataclass(frozen=True, slots=True)
class Shape:
    """Blocks by site, the most first, and the fewest replicas of a site.

    The last block of the first site may lack some.
    """

    blocks: tuple[int, ...]
    min_replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan of a column: its time, capital, split, conditions, and what stands where."""

    seconds: float  # a sequence
    capital_usd: float
    column: Column
    split: Split
    conditions: Conditions
    shape: Shape
    templates: dict[str, Template]
    blocks_by_site: dict[str, int]
    replicas_by_site: dict[str, int]
    placed: Placed | None
    wavelengths: int


@dataclass(frozen=True, slots=True)
class Target:
    """The best plan so far: its seconds a sequence and capital; and the most that any plan may cost."""

    seconds: float = math.inf
    usd: float = math.inf
    budget: float = math.inf

    @property
    def cutoff(self) -> float:
        """Seconds a sequence above which no plan matters: plans as fast may be cheaper."""
        return self.seconds * (1 + EPS)

    def ties(self, seconds: float) -> bool:
        """Return whether a plan of such a time is not faster."""
        return seconds >= self.seconds * (1 - EPS)

    def max_usd(self, seconds: float) -> float:
        """Return the most that a plan of such a time may cost: the budget, or less than the best plan if as fast."""
        return min(self.budget, self.usd - CENTS) if self.ties(seconds) else self.budget

    def improved_by(self, seconds: float, usd: float) -> bool:
        """Return whether a plan is better: faster, or as fast and cheaper."""
        return seconds <= self.cutoff and usd <= self.max_usd(seconds) + CENTS / 2


CLUSTER = "cluster"  # the id of the one site of an instance without a grid


@dataclass(kw_only=True)
class World:
    """What all columns share: the problem, its sites and its templates, and counts for the certificate."""

    problem: Problem
    sites: Sites | None
    templates: Templates | None
    counts: dict[str, int] = field(default_factory=dict)
    rows: dict[Any, Any] = field(default_factory=dict)  # of a strategy, with their bounds
    holding: dict[Strategy, Flags] = field(default_factory=dict)  # pipelines that may hold the model
    in_memory: dict[tuple[Strategy, int], Floats] = field(default_factory=dict)  # of its slowest stages by ZeRO stage
    cache: JointCache = field(default_factory=JointCache)
    deadline: Deadline = field(default_factory=Deadline)  # of the search
    given_up: float = math.inf  # least seconds a sequence of a candidate that was left without a proof
    given_up_usd: float = math.inf  # least capital of a choice that was left without a proof

    def __post_init__(self) -> None:
        """Bound the capital of sites where there are several to choose from."""
        if self.sites is not None and (
            self.cache.site_bounds is None or self.cache.site_bounds.sites is not self.sites
        ):
            self.cache.site_bounds = SiteBounds(sites=self.sites)

    def end_at(self, deadline: Deadline) -> None:
        """Hand a search's deadline down to all that it asks."""
        self.deadline = deadline
        if self.sites is not None:
            self.sites.deadline = self.sites.fibre.deadline = deadline
        if self.templates is not None:
            self.templates.deadline = deadline

    @property
    def site_bounds(self) -> SiteBounds | None:
        """Lower bounds on the capital of sites."""
        return self.cache.site_bounds if self.sites is not None else None

    @property
    def budget(self) -> float:
        """Most that the plan may cost."""
        return self.problem.instance.limits.budget_usd or NO_BUDGET

    @property
    def max_open(self) -> int:
        """Most sites that may hold blocks."""
        return 1 if self.sites is None else self.sites.max_open

    def count(self, name: str, number: int = 1) -> None:
        """Count something for the certificate."""
        self.counts[name] = self.counts.get(name, 0) + number

    def strategies(self) -> list[Strategy]:
        """List the ways to cut a layer of the declared space."""
        return self.cache.strategies(self.problem, self.deadline)

    def max_racks(self, rails: int) -> int:
        """Bound the racks that any plan can have with so many GPUs of each cabled."""
        if self.sites is not None:
            return self.sites.max_racks(rails)
        hardware, limit = self.problem.instance.hardware, self.problem.instance.limits.facility_power_mw
        racks = hardware.racks or 0
        if limit is not None and power.facility_mw(hardware, racks) > limit * (1 + 1e-9):
            return 0
        return racks if self.owned_usd <= self.budget else 0

    @cached_property
    def owned_usd(self) -> float:
        """Price of the racks of a cluster without a grid: all are billed."""
        hardware = self.problem.instance.hardware
        return (hardware.racks or 0) * power.rack_of(hardware).price_usd


def open_sites(world: World, column: Column) -> range:
    """Return the numbers of sites over which the blocks of a column may be shared out."""
    block = column.strategy.block(column.p)
    total = 0 if block is None else block.blocks(column.d)
    return range(1 if world.sites is None else world.sites.min_open, min(world.max_open, total) + 1)


def shapes(column: Column, sites: int) -> Iterator[Shape]:
    """Yield every way to share a column's blocks out over so many sites, up to an exchange of sites.

    The most blocks ascending; pinned numbers of blocks are among those of the sites.
    """
    s = column.strategy
    block = s.block(column.p)
    if block is None:
        return
    total = block.blocks(column.d)
    missing = total * block.replicas - column.d
    pinned = Counter(n for n in pinned_blocks(s.problem.instance).values() if n)
    for blocks in _partitions(total, sites, total):
        if not pinned <= Counter(blocks):
            continue
        replicas = [n * block.replicas for n in blocks]
        replicas[0] -= missing
        if min(replicas) * s.shape.gpus >= s.shape.expert_parallel:
            yield Shape(blocks, min(replicas))


def _partitions(total: int, parts: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a total as so many positive parts, none larger than the one before."""
    if parts == 1:
        if total <= most:
            yield (total,)
        return
    for largest in range(-(-total // parts), min(most, total - parts + 1) + 1):
        for rest in _partitions(total - largest, parts - 1, largest):
            yield (largest, *rest)


@dataclass(kw_only=True)
class ShapeProblem:
    """The fastest plan of one column in one shape.

    Found by asking for the fastest slowdowns and fibre that the money may pay.
    """

    world: World
    column: Column
    shape: Shape

    @cached_property
    def traffic(self) -> Traffic:
        """What fabrics must know of the column."""
        block = self.block
        return Traffic(
            stages=block.rack_stages, unit_racks=block.stage_racks, wrap=self.column.v > 1, rails=block.rails
        )

    @cached_property
    def block(self) -> Block:
        """Racks of the column's replicas."""
        block = self.column.strategy.block(self.column.p)
        if block is None:
            raise ValueError("a column without a block")
        return block

    @property
    def several(self) -> bool:
        """Whether more than one site holds blocks."""
        return len(self.shape.blocks) > 1

    def conditions(self, send: Any, allreduce: Any, fibre: Fibre | None) -> Conditions:
        """Return what the column meets at some slowdowns and fibre."""
        racks = self.shape.blocks[0] * self.block.stage_racks
        return Conditions(racks=racks, shards=self.shape.min_replicas, send=send, allreduce=allreduce, fibre=fibre)

    def fibre(self, wavelengths: int, rtt_ms: float) -> Fibre | None:
        """Return what joins the sites at so many wavelengths; a share of them is kept free for other traffic."""
        if not self.several:
            return None
        wan = self.world.problem.wan
        gbps = wavelengths * wan.wavelength_gbps / wan.headroom_factor
        return Fibre(sites=len(self.shape.blocks), gbps=gbps, rtt_ms=rtt_ms, round_trips=wan.round_trips)

    def split(self, c: Conditions, cutoff: float) -> Split | None:
        """Return the fastest split of layers under some conditions, with its seconds a sequence.

        None where none is under the cutoff.
        """
        step = cutoff * self.column.sequences if math.isfinite(cutoff) else math.inf
        if self.column.v > 1 and Stages(column=self.column, conditions=c, cutoff=step, exact=False).least() is None:
            return None
        stages = Stages(column=self.column, conditions=c, cutoff=step, tick=self.world.deadline.check)
        limits = stages.least()
        if limits is None:
            return None
        found = stages.spread(limits)
        return Split(seconds=found.seconds / self.column.sequences, layers=found.layers, recomputed=found.recomputed)

    def seconds(self, send: float, allreduce: float, fibre: Fibre | None, cutoff: float) -> float:
        """Return the least seconds a sequence under some slowdowns and fibre.

        Infinite where they are not under the cutoff.
        """
        found = self.split(self.conditions(send, allreduce, fibre), cutoff)
        return math.inf if found is None else found.seconds

    def bound(self, send: float, allreduce: float, cutoff: float, fibre: Fibre | None = None) -> float:
        """Bound the seconds a sequence at some slowdowns and fibre, unequal chunks at their least."""
        step = cutoff * self.column.sequences if math.isfinite(cutoff) else math.inf
        conditions = self.conditions(send, allreduce, fibre)
        found = Stages(column=self.column, conditions=conditions, cutoff=step, exact=False).least()
        return math.inf if found is None else found.seconds / self.column.sequences

    @cached_property
    def racks(self) -> int:
        """Racks of all blocks."""
        return sum(self.traffic.racks(g) for g in self.shape.blocks)

    @property
    def min_fabrics_usd(self) -> float:
        """Price of the least fabrics of all racks."""
        return 0.0 if self.world.sites is None else self.racks * self.world.sites.min_fabric_usd(self.traffic.rails)

    def point(self, rtt_ms: float) -> Point:
        """Return what the sites are to hold, at a longest round trip."""
        return Point(len(self.shape.blocks), self.racks, self.traffic.racks(self.shape.blocks[0]), rtt_ms)

    @cached_property
    def rtts_ms(self) -> list[float]:
        """List the longest round trips that two sites may have; a single one where none counts."""
        if not self.several or self.world.sites is None:
            return [0.0]
        found = self.world.sites.rtts_ms()
        return found if self.world.problem.wan.round_trips > 0 else found[-1:]

    @cached_property
    def may_be_housed(self) -> bool:
        """Whether the money may pay any sites for all racks, with a part as large as the largest."""
        site_bounds, usd = self.world.site_bounds, self.world.budget - self.min_fabrics_usd
        if site_bounds is None:
            return True
        return bool(self.rtts_ms) and not site_bounds.exceeds(self.point(self.rtts_ms[-1]), usd)

    @property
    def near_rtts_ms(self) -> list[float]:
        """List the round trips from the shortest on at which the money may pay the sites, as far as is known."""
        if self.world.site_bounds is None or not self.several:
            return self.rtts_ms
        usd = self.world.budget - self.min_fabrics_usd
        return [r for r, least in zip(self.rtts_ms, self.site_bounds_by_rtt.tolist(), strict=True) if least <= usd]

    @property
    def site_bounds_by_rtt(self) -> Floats:
        """Bound the capital of the sites without fabrics at each longest round trip, as far as is known."""
        site_bounds = self.world.site_bounds
        return np.zeros(len(self.rtts_ms)) if site_bounds is None else site_bounds.by_rtt(self.point(0.0), self.rtts_ms)

    @property
    def best_fibre(self) -> Fibre | None:
        """The widest fibre between sites, as near as any that the money may pay as far as is known."""
        if not self.several:
            return None
        wan, near = self.world.problem.wan, self.near_rtts_ms or self.rtts_ms[-1:]
        return self.fibre(wan.max_wavelengths_per_pair * wan.max_fibre_pairs, near[0] if near else 0.0)

    @cached_property
    def payable_rtts_ms(self) -> list[float]:
        """List the round trips from the shortest on at which the money may pay the sites, once they were asked."""
        site_bounds, usd, near = self.world.site_bounds, self.world.budget - self.min_fabrics_usd, self.near_rtts_ms
        if site_bounds is None or not self.several or not near or not site_bounds.exceeds(self.point(near[0]), usd):
            return near
        at = first(len(near), lambda i: not site_bounds.exceeds(self.point(near[i]), usd))
        return [] if at is None else near[at:]

    @cached_property
    def options(self) -> dict[int, Options]:
        """Templates of each number of blocks."""
        templates = self.world.templates
        if templates is None:
            return {}
        table, most = self.world.cache.table, self._most_fabric_usd
        return {g: table(templates, self.traffic, g, most(g)) for g in sorted(set(self.shape.blocks))}

    def _most_fabric_usd(self, blocks: int) -> float:
        """Return the most that the fabric of a part may cost.

        What the racks of all leave, beside the least fabrics of the others.
        """
        world, traffic = self.world, self.traffic
        if world.sites is None:
            return world.budget - world.owned_usd
        others = (self.racks - traffic.racks(blocks)) * world.sites.min_fabric_usd(traffic.rails)
        floor = sum(world.sites.floor_usd(traffic.racks(g), 1) for g in self.shape.blocks)
        if world.site_bounds is not None:
            floor = max(floor, world.site_bounds.bound(self.point(self.rtts_ms[-1] if self.rtts_ms else 0.0)))
        return world.budget - floor - others
