"""The joint question of one column to sites, fabrics and fibre, and its answer: its fastest plan, shape by shape.

A shape is the number of blocks at each site. All-reduces, shards and crossings follow from it, so that time depends on
the shape, on the slowdowns that fabrics are allowed, and on the fibre; all of them are tried in the order of their
time, and the first that the money pays is the fastest.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from planner.instance.instance import Instance, Limits, Objective, hardware_kind, pinned_blocks
from planner.models.fabric.fabric_templates import Template, Templates
from planner.models.joint.shapes.site_prices import SiteBounds
from planner.models.joint.shapes.site_question import PlacedParts
from planner.models.joint.stage_split import Column, LayerSplit
from planner.models.joint.strategy_space import Floats, JointProblem, Strategy, strategies_of, strategy, ways_to_cut
from planner.models.joint.time_bounds import RowConditions
from planner.physics.network.fabric_designs import joined_modules
from planner.physics.recovery import Upkeep, lanes_to_choose
from planner.physics.site import site_power
from planner.physics.training.layer_time import LayerTimes, days_of
from planner.physics.training.operations import LayerShape
from planner.physics.training.parallel_strategy import SHAPE_FIELDS
from planner.plan.certificate import Status
from planner.solvers.signals import Deadline

if TYPE_CHECKING:
    from planner.models.joint.site_choice import Sites


EPS = 1e-9  # relative: times that differ by less are the same
CENTS = 0.005


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a joint plan: blocks by site, most first (its last may lack replicas), a site's fewest replicas."""

    blocks: tuple[int, ...]
    min_replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JointPlan:
    """A joint plan of a column: its time, capital, split, conditions, and the fabrics, blocks and replicas by site."""

    seconds: float  # a sequence, on a clock
    capital_usd: float
    column: Column
    split: LayerSplit
    conditions: RowConditions
    shape: Shape
    templates: dict[str, Template]
    blocks_by_site: dict[str, int]
    replicas_by_site: dict[str, int]
    placed: PlacedParts | None
    wavelengths: int
    upkeep: Upkeep | None = None  # where failures count


@dataclass(frozen=True, slots=True)
class Target:
    """The best joint plan so far, for others to beat: its seconds a sequence and capital; and the most any may cost."""

    seconds: float = math.inf
    usd: float = math.inf
    budget: float = math.inf

    @property
    def cutoff(self) -> float:
        """Seconds a sequence above which no joint plan matters: plans as fast may be cheaper."""
        return self.seconds * (1 + EPS)

    def ties(self, seconds: float) -> bool:
        """Return whether a joint plan of such seconds a sequence is no faster than the best so far."""
        return seconds >= self.seconds * (1 - EPS)

    def max_usd(self, seconds: float) -> float:
        """Return the most USD that a joint plan may cost: the budget, or less than the best plan's if as fast."""
        return min(self.budget, self.usd - CENTS) if self.ties(seconds) else self.budget

    def improved_by(self, seconds: float, usd: float) -> bool:
        """Return whether a joint plan is better than the best so far: faster, or as fast and cheaper."""
        return seconds <= self.cutoff and usd <= self.max_usd(seconds) + CENTS / 2


@dataclass(slots=True)
class Unproven:
    """Lower bounds on seconds a sequence and on capital of the joint plans that a search left without a proof."""

    seconds: float = math.inf
    usd: float = math.inf


@dataclass(kw_only=True)
class JointCache:
    """The joint search's cache: strategies, bounds, times on a free network, fabric tables, site answers and plans.

    It serves instances that differ in budget, racks of a cluster, deadline, tokens, objective and name alone; for any
    other it starts anew, but for what that question has in common with the one before.
    """

    question: Any = None  # an instance, what no plan may have, then seed and threads
    without: dict[str, Any] = field(default_factory=dict)  # values that no plan may have, by the paths of their pins
    listed: list[Strategy] | None = None
    degrees: list[tuple[LayerShape, str]] | None = None  # by which layers may be cut
    cut: dict[tuple[LayerShape, str], list[Strategy]] = field(default_factory=dict)  # strategies by their degrees
    timed: dict[LayerShape, Strategy] = field(default_factory=dict)  # one of each shape, of any question
    terms: dict[Strategy, tuple[Floats, Floats]] = field(default_factory=dict)
    tables: dict[Strategy, Any] = field(default_factory=dict)  # of the pipelines of each
    bounds: dict[Strategy, tuple[tuple[float, float], float]] = field(default_factory=dict)  # behind what is paid
    free: dict[Column, float] = field(default_factory=dict)  # seconds a sequence on a free network
    slower: dict[Column, float] = field(default_factory=dict)  # lower bounds on those that are over a cutoff
    templates: Templates | None = None
    sites: "Sites | None" = None
    site_bounds: SiteBounds | None = None
    plans: dict[float, Any] = field(default_factory=dict)  # by size
    search: Any = None  # the last search by days, where another goal may go on with it
    # The plans of searches by cost, by the racks of a cluster, which all are in their cost.
    cheapest: dict[int | None, list[Any]] = field(default_factory=dict)
    by_hardware: dict[Any, "JointCache"] = field(default_factory=dict)  # of its alternatives
    inspected: list[Any] = field(default_factory=list)  # proofs that were enumerated again and hold
    answers: list[Any] = field(default_factory=list)  # proven, each behind its question

    def serves(self, instance: Instance) -> bool:
        """Return whether the search cache is an instance's, whatever its budget, racks, deadline, tokens and goal."""
        return self.question is not None and bool(self.question[0] == _question(instance))

    def of(self, instance: Instance) -> "JointCache":
        """Return the search cache of an instance whose hardware may differ: this one, or its own hardware's."""
        if self.question is None or self.serves(instance):
            return self
        return self.by_hardware.setdefault(hardware_kind(instance.hardware), JointCache())

    def serve(self, instance: Instance, without: dict[str, Any], *how: Any) -> None:
        """Make the search cache that of an instance: start anew where more than its size differs."""
        question = _question(instance), without, how
        if question != self.question:
            fresh, kept = JointCache(question=question), {"by_hardware", "timed", "answers"}
            if self.question is not None:
                own, other = _needs(self.question), _needs(question)
                strategies, sites, fabrics = (a == b for a, b in zip(own, other, strict=True))
                for same, names in (
                    (strategies, ("degrees", "cut", "terms")),
                    (strategies and sites, ("tables", "bounds", "free", "slower")),
                    (sites, ("sites", "site_bounds")),
                    (fabrics, ("templates",)),
                ):
                    kept.update(names if same else ())
            for name in self.__dataclass_fields__.keys() - kept:
                setattr(self, name, getattr(fresh, name))
            self.without = without
        if self.sites is not None and self.sites.instance.limits.budget_usd != instance.limits.budget_usd:
            self.sites.pay(instance)


@dataclass(kw_only=True)
class World:
    """The context of a joint question that all columns share: problem, sites, fabrics, and the certificate's counts."""

    problem: JointProblem
    sites: "Sites | None"
    templates: Templates | None
    counts: dict[str, int] = field(default_factory=dict)
    # At the budget, by GPUs of a rack cabled; a copy has its own.
    most_racks: dict[int, int] = field(init=False, default_factory=dict)
    cache: JointCache = field(default_factory=JointCache)
    deadline: Deadline = field(default_factory=Deadline)  # of the search; sites, fibre and fabrics have the same
    unproven: Unproven = field(default_factory=Unproven)  # a copy shares it: its budget alone differs

    @property
    def site_bounds(self) -> SiteBounds | None:
        """Site bounds on capital that all joint questions share, where there are several sites to choose from."""
        if self.cache.site_bounds is None and self.sites is not None:
            self.cache.site_bounds = SiteBounds(sites=self.sites)
        return self.cache.site_bounds

    @property
    def budget(self) -> float:
        """Most USD that a joint plan may cost."""
        # Without a budget more than any plan costs, and less than what cannot be had at all.
        return self.problem.instance.limits.budget_usd or 1e30

    def with_budget(self, usd: float) -> "World":
        """Return the world of a joint question with another budget in USD."""
        instance = self.problem.instance
        return replace(self, problem=replace(self.problem, instance=instance.replaced(limits__budget_usd=usd)))

    @property
    def latest(self) -> float:
        """Seconds a sequence at the deadline of a joint question; infinite without one."""
        instance = self.problem.instance
        late = instance.limits.deadline_days
        return math.inf if late is None else late / days_of(instance, 1.0)

    @property
    def size(self) -> float:
        """Size of a joint question: USD that a campus may cost, or the racks of a cluster."""
        return self.budget if self.sites is not None else float(self.problem.instance.hardware.racks or 0)

    @property
    def max_open(self) -> int:
        """Most sites that may hold blocks of a joint plan."""
        return 1 if self.sites is None else self.sites.max_open

    def count(self, name: str, number: int = 1) -> None:
        """Count something for the certificate of a joint plan."""
        self.counts[name] = self.counts.get(name, 0) + number

    def allows(self, name: str, values: Any) -> Any:
        """Return whether plans of the joint question may have a value of a layout's choice, or each of an array."""
        return values != self.cache.without.get(f"layout.{name}")

    def zero_stages(self, s: Strategy) -> list[int]:
        """Return the ZeRO stages of a strategy that plans of the joint question may have."""
        return [zero for zero in s.problem.zero_stages if self.allows("zero_stage", zero)]

    def has(self, s: Strategy, p: int, v: int, zero: int) -> bool:
        """Return whether plans of the joint question may have pipelines of a strategy under a ZeRO stage."""
        known = np.any((s.pipelines.p == p) & (s.pipelines.v == v))
        allowed = self.allows("pipeline_parallel", p) and self.allows("virtual_stages", v)
        return bool(known and allowed and zero in self.zero_stages(s))

    def strategies(self, count: int | None = None) -> list[Strategy]:
        """List all strategies (ways to cut a layer) of the joint question, each made once; raise at the deadline.

        `count`: those of about this number of evenly drawn degrees; none where fewer than twice that number exist.
        """
        cache, problem = self.cache, self.problem
        if count is None and cache.listed is not None:
            return cache.listed
        cache.degrees = cache.degrees or list(ways_to_cut(problem))
        step = 1 if count is None else len(cache.degrees) // count
        if count is not None and step <= 1:
            return []
        # Its times, which the machine but for the size of its memory, the model and the transport's slowdown decide,
        # are kept for other questions too.
        known = next((x.problem for x in cache.timed.values()), problem)
        own, other = (
            (replace(x.machine, gpu=x.machine.gpu.replaced(hbm_bytes=1.0)), x.transport_slowdown)
            for x in (known, problem)
        )
        if own != other:
            cache.timed.clear()  # in place: the spans of a run share them
        found, fronts = [], dict[LayerShape, LayerTimes]()
        for degrees in cache.degrees[::step]:
            self.deadline.check()
            if degrees not in cache.cut:
                shape, recomputes = degrees
                one = cache.timed.get(shape) or strategy(problem, shape, recomputes, fronts)
                cache.timed[shape] = one
                cache.cut[degrees] = strategies_of(replace(one, problem=problem, recomputes=recomputes))
            found += cache.cut[degrees]
        for path in cache.without:
            name = path.removeprefix("layout.")
            if name == "schedule" or name in SHAPE_FIELDS:
                of = attrgetter("order" if name == "schedule" else f"shape.{SHAPE_FIELDS[name]}")
                found = [s for s in found if self.allows(name, of(s))]
        cache.listed = found if count is None else cache.listed
        return found

    def max_racks(self, rails: int) -> int:
        """Bound the racks that any joint plan can have with `rails` GPUs of each cabled."""
        if rails not in self.most_racks:
            instance, joined = self.problem.instance, self.problem.joined_racks(rails)
            hardware, limit = instance.hardware, instance.limits.facility_power_mw
            owned = hardware.racks or 0
            if self.sites is not None:
                # The sites are asked with `rails` rounded down to a sixth of a rack's GPUs, which saves questions.
                step = max(1, self.problem.gpus // 6)
                fewer = max(1, rails // step * step)
                most = self.sites.max_racks(fewer) if self.problem.joined_racks(fewer) else 0
                most = int(min(most, self.max_open * hardware.racks_per_module * joined_modules(instance, joined)))
            elif limit is not None and site_power.facility_mw(hardware, owned) > limit * (1 + 1e-9):
                most = 0
            else:
                most = int(min(owned, joined)) if self.owned_usd <= self.budget else 0
            self.most_racks[rails] = most
        return self.most_racks[rails]

    @cached_property
    def owned_usd(self) -> float:
        """Price in USD of a cluster's racks in a joint question without a grid: all are billed."""
        hardware = self.problem.instance.hardware
        return (hardware.racks or 0) * hardware.rack.price_usd


def open_sites(world: World, column: Column) -> range:
    """Return the numbers of sites over which a joint question may divide the blocks of a column."""
    first = 1 if world.sites is None else world.sites.min_open
    last = min(world.max_open, column.block.blocks(column.d))
    fewest = (k for k in range(first, last + 1) if largest_parts(column, k))
    return range(next(fewest, last + 1), last + 1)


def spared(world: World, column: Column) -> list[Column]:
    """Return a column with each choice of spares, and of lanes where links fail; itself alone without failures."""
    calendar = world.problem.calendar
    if calendar is None:
        return [column]
    r = calendar.r
    repaired, targets = any(p.repair_hours for p in r.parts.values()), sorted(set(r.spare_targets))
    if not repaired:  # of spares the fewest do
        targets = targets[: 2 if 0.0 in targets else 1]
    # GPUs that the layout leaves idle, with a fabric to join them, may be spares too.
    idle = column.block.rails < world.problem.gpus and world.templates is not None
    wires = (False, True) if idle and r.spare_gpus and repaired else (False,)
    lanes = lanes_to_choose(world.problem.instance) if r.counts_links else [0]
    every = product(targets, wires, lanes)
    return [replace(column, spare_target=t, spares_wired=wired, lanes=n) for t, wired, n in every]


def largest_parts(column: Column, sites: int) -> range:
    """Return how many of a column's blocks the largest of some sites may have in a joint plan: a fabric joins them."""
    block, total = column.block, column.block.blocks(column.d)
    joined = column.strategy.problem.joined_racks(block.rails) / block.racks
    return range(-(-total // sites), int(min(total - sites + 1, joined)) + 1)


def shapes(column: Column, sites: int, largest: range | None = None) -> Iterator[Shape]:
    """Yield every shape of a column's joint plans: blocks divided over `sites` sites, up to an exchange of sites.

    Shapes are in ascending order of their largest part, and contain the pinned numbers of blocks. `largest`: only those
    whose largest part is within it.
    """
    s, block, total = column.strategy, column.block, column.block.blocks(column.d)
    missing = total * block.replicas - column.d
    pinned = Counter(n for n in pinned_blocks(s.problem.instance).values() if n)
    for blocks in _partitions(total, sites, largest_parts(column, sites) if largest is None else largest):
        if not pinned <= Counter(blocks):
            continue
        replicas = [n * block.replicas for n in blocks]
        replicas[0] -= missing
        if min(replicas) * s.shape.gpus >= s.shape.expert_parallel:
            yield Shape(blocks, min(replicas))


def _partitions(total: int, parts: int, largest: range) -> Iterator[tuple[int, ...]]:
    """Yield joint plans' blocks by site: positive parts of a total, none above the one before, the first in a range."""
    for most in largest:
        left = total - most
        if parts == 1 and not left:
            yield (most,)
        elif parts > 1 and left >= parts - 1:
            for rest in _partitions(left, parts - 1, range(-(-left // (parts - 1)), min(most, left - parts + 2) + 1)):
                yield (most, *rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSolution:
    """The joint optimum of an instance: the goal's value with lower bounds over the declared space, and the plan."""

    status: Status
    days: float | None = None
    usd: float | None = None  # of a goal in dollars: the capital, or what it costs to buy and to run
    lower_bound: float | None = None  # in days, or in dollars where those are the goal
    # In days, over every fabric: at the cheapest, on a network slowed by transport alone.
    fabric_free_bound: float | None = None
    plan: JointPlan | None = None
    counts: dict[str, int] = field(default_factory=dict)
    stopped: Literal["proved", "limit", "interrupted"] = "proved"
    excluded: tuple[tuple[float, Column], ...] = ()  # with days below the bound there: sites and budget refuse them
    max_racks: dict[int, int] = field(default_factory=dict)  # of any plan, by the GPUs of each that are cabled
    joined_racks: dict[int, int] = field(default_factory=dict)  # at most by a fabric, where ports bound them
    failure: str = ""


def most_paid(instance: Instance) -> tuple[float, float]:
    """Return the budget in USD and racks that cached tables hold for; none where it does not pay a cluster's racks."""
    money, racks = instance.limits.budget_usd or math.inf, instance.hardware.racks
    if instance.grid is not None or racks is None:
        return money, math.inf
    return (money, racks) if racks * instance.hardware.rack.price_usd <= money else (0.0, 0.0)


def _needs(question: Any) -> tuple[Any, Any, Any]:
    """Return what a question's cached strategies, site answers and fabric tables each depend on."""
    # Strategies and tables of pipelines depend on neither money nor values that no plan may have, which the search
    # leaves out; sites and fabrics on neither model, batch, memory nor layouts.
    instance, without, how = question
    limits = instance.limits
    own = Limits(max_batch_tokens=limits.max_batch_tokens, memory_reserve_fraction=limits.memory_reserve_fraction)
    alone = instance.replaced(grid=None, limits=own, pins=_but(("sites.", "wan."), instance.pins))
    others = limits.replaced(max_batch_tokens=None, memory_reserve_fraction=0.0)
    alike = {"limits": others, "hardware__accelerator__hbm_bytes": 1.0, "pins": _but(("layout.",), instance.pins)}
    campus = instance.replaced(**alike).model_copy(update={"workload": None})
    return (
        (alone, instance.grid is None),
        (campus, _but(("layout.", "placement.stripes"), without), how),
        (campus, _but(("layout.", "sites"), without)),
    )


def _but(prefixes: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in values.items() if not path.startswith(prefixes)}


def _question(instance: Instance) -> Instance:
    """Return the search cache's key: an instance without budget, deadline, tokens, objective, name, cluster racks."""
    # The racks of a cluster are its size, but under a limit on power, where they take it from the fabric.
    limits = instance.limits.replaced(budget_usd=None, deadline_days=None)
    work = instance.workload.replaced(tokens=1.0)  # days are counted from seconds a sequence
    changed = {"limits": limits, "workload": work, "objective": Objective(), "name": ""}
    if instance.grid is None and limits.facility_power_mw is None and instance.hardware.racks is not None:
        changed["hardware"] = instance.hardware.replaced(racks=1)
    return instance.replaced(**changed)
