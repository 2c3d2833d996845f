"""The joint question that all columns of a search share: problem, sites, fabrics, budget and deadline."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.instance.instance import ONE_SITE, Instance
from planner.models import Options, SitesRequest
from planner.models.fabric.fabric_templates import Templates
from planner.models.fabric.template_table import Ints
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_solution import EPS, Unproven
from planner.models.joint.shapes.blocks_by_site import largest_parts
from planner.models.joint.shapes.site_prices import SiteBounds
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import JointProblem, Strategy, problem_of, strategies_of, strategy, ways_to_cut
from planner.physics.network.fabric_cost import min_fabric
from planner.physics.network.fabric_designs import joined_modules
from planner.physics.recovery import lanes_to_choose
from planner.physics.site import site_power
from planner.physics.training.layer_time import LayerTimes
from planner.physics.training.operations import LayerShape
from planner.physics.training.parallel_strategy import SHAPE_FIELDS
from planner.physics.training.step_prediction import days_of
from planner.solvers.search_deadline import Deadline

if TYPE_CHECKING:
    from planner.models.joint.shapes.site_choice import Sites


@dataclass(kw_only=True)
class World:
    """The joint question that all columns of a search share: problem, sites, fabrics, cache, certificate's counts."""

    problem: JointProblem
    sites: "Sites | None"
    templates: Templates | None
    counts: dict[str, int] = field(default_factory=dict)
    cache: JointCache = field(default_factory=JointCache)
    deadline: Deadline = field(default_factory=Deadline)  # of the search; sites, fibre and fabrics have the same
    unproven: Unproven = field(default_factory=Unproven)  # a copy shares it: its budget alone differs

    @property
    def site_bounds(self) -> SiteBounds | None:
        """Site bounds on capital of a joint question, which its cache keeps; None without sites to choose from."""
        if self.cache.site_bounds is None and self.sites is not None:
            self.cache.site_bounds = SiteBounds(sites=self.sites)
        return self.cache.site_bounds

    @property
    def budget(self) -> float:
        """Most USD that a plan of the joint question may cost."""
        # Without a budget more than any plan costs, and less than what cannot be had at all.
        return self.problem.instance.limits.budget_usd or 1e30

    def with_budget(self, usd: float) -> "World":
        """Return the joint question with another budget in USD."""
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
        """Most sites that may hold blocks in a plan of the joint question."""
        return 1 if self.sites is None else self.sites.max_open

    def count(self, name: str, number: int = 1) -> None:
        """Count something that a joint question takes, for the certificate of its plan."""
        self.counts[name] = self.counts.get(name, 0) + number

    def allows(self, name: str, values: Any) -> Any:
        """Return whether a joint question allows its plans a value of a layout's choice, or each of an array."""
        return values != self.cache.without.get(f"layout.{name}")

    def zero_stages(self, s: Strategy) -> list[int]:
        """Return the ZeRO stages that a joint question allows a strategy."""
        return [zero for zero in s.problem.zero_stages if self.allows("zero_stage", zero)]

    def has(self, s: Strategy, p: int, v: int, zero: int) -> bool:
        """Return whether a strategy has pipelines under a ZeRO stage that a joint question allows."""
        known = np.any((s.pipelines.p == p) & (s.pipelines.v == v))
        allowed = self.allows("pipeline_parallel", p) and self.allows("virtual_stages", v)
        return bool(known and allowed and zero in self.zero_stages(s))

    def strategies(self, count: int | None = None) -> list[Strategy]:
        """List the strategies (ways to cut a layer) a joint question allows, each made once; raise at the deadline.

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

    @cached_property
    def most_racks(self) -> Ints:
        """Most racks known of the joint question at its budget, by cabled GPUs of a rack; -1: not known yet."""
        return np.full(self.problem.gpus + 1, -1, dtype=np.int64)

    def max_racks(self, rails: int) -> int:
        """Bound the racks that any plan of a joint question can have with `rails` GPUs of each cabled."""
        if self.most_racks[rails] < 0:
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
            else:  # what the racks leave of money and power is enough for the least fabric of each GPU
                each, mw = min_fabric(instance.network), math.inf if self.templates is None else self.templates.max_mw
                left = (self.budget - self.owned_usd, rails * each.usd), (mw, rails * each.mw)
                enough = (spare / least * (1 + EPS) for spare, least in left if least)
                most = int(min(owned, joined, *enough)) if self.owned_usd <= self.budget else 0
            self.most_racks[rails] = most
        return int(self.most_racks[rails])

    @property
    def cables_all(self) -> bool:
        """Whether each cluster that a joint question met could cable all racks that a fabric joins, money or not."""
        racks, known = self.problem.instance.hardware.racks or 0, np.flatnonzero(self.most_racks >= 0).tolist()
        met = ((self.most_racks[rails], self.problem.joined_racks(rails)) for rails in known)
        return self.sites is not None or all(most >= min(racks, joined) for most, joined in met)

    @cached_property
    def owned_usd(self) -> float:
        """Price in USD of a cluster's racks in a joint question without a grid: all are billed."""
        hardware = self.problem.instance.hardware
        return (hardware.racks or 0) * hardware.rack.price_usd


def open_sites(world: World, column: Column) -> range:
    """Return the numbers of sites over which a joint question may divide the blocks of a column."""
    first = 1 if world.sites is None else world.sites.min_open
    last = min(world.max_open, column.block.blocks(column.d))
    return range(next((k for k in range(first, last + 1) if largest_parts(column, k)), last + 1), last + 1)


def spared(world: World, column: Column) -> list[Column]:
    """List a column with each choice of spares, and of lanes where links fail, that a joint question leaves it."""
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
    every = product(targets, wires, lanes_to_choose(world.problem.instance) if r.counts_links else [0])
    return [replace(column, spare_target=t, spares_wired=wired, lanes=n) for t, wired, n in every]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solving:
    """What all searches of a joint question share: options, deadline, progress, cache and facts known beforehand."""

    options: Options = field(default_factory=Options)
    deadline: Deadline = field(default_factory=Deadline)  # it ends the search, not the time limit of the options
    progress: Callable[[str], None] = lambda _: None
    cache: JointCache = field(default_factory=JointCache)
    first: Callable[[World], Column | None] | None = None  # names a column to price before any other
    first_replicas: tuple[int, ...] = ()  # of that column by site, if known
    near: Column | None = None  # of a plan that the question leaves out: least capital is first sought near to it
    floor: float = 0.0  # days or dollars that no plan is below, as a question with all of its plans says

    @property
    def left(self) -> Options:
        """The options of a joint question's searches with the time that is left."""
        return replace(self.options, time_limit=self.deadline.limit)

    def world(self, instance: Instance, without: dict[str, Any] | None = None) -> World:
        """Gather a joint question's problem, sites and fabric templates, from the cache where it has them."""
        cache, seed, threads, without = self.cache, self.options.seed, self.options.threads, without or {}
        cache.serve(instance, without, seed, threads)
        problem = problem_of(instance)
        if instance.grid is not None and cache.sites is None:
            from planner.models.joint.shapes.site_choice import (
                Sites,  # where needed: a cluster has no use for Pyomo and HiGHS
            )

            racks, refused = "sites.racks.", frozenset(without.get("sites", ()))  # sets of open sites
            opened = frozenset(x.removeprefix(racks) for x in without if x.startswith(racks))  # not with 0 racks
            request = SitesRequest(opened=opened, refused=refused)
            cache.sites = Sites(instance=instance, request=request, seed=seed, threads=threads)
        if cache.sites is not None:
            cache.sites.solved, cache.sites.deadline = 0, self.deadline
            cache.sites.fibre.deadline = self.deadline
        max_mw, h, limit = math.inf, instance.hardware, instance.limits.facility_power_mw
        if cache.sites is None and limit is not None and not h.overhead_includes_fabric:
            # What a cluster's racks leave to its fabric.
            max_mw = limit * (1 + EPS) / h.facility_overhead_factor - site_power.it_mw(h, h.racks or 0)
        if instance.network is not None and cache.templates is None:
            cache.templates = Templates(
                instance=instance,
                transport_slowdown=problem.transport_slowdown,
                power_counts=math.isfinite(max_mw) or (cache.sites is not None and cache.sites.data.counts_power),
                max_mw=max_mw,
                without_stripes=without.get("placement.stripes"),
            )
            cache.templates.refuse_switches(problem.gpus, ONE_SITE if instance.grid is None else None)
        if cache.templates is not None:
            cache.templates.deadline = self.deadline
        return World(problem=problem, sites=cache.sites, templates=cache.templates, cache=cache, deadline=self.deadline)
