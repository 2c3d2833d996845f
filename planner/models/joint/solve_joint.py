"""Solve the joint problem for the plan of fewest days over the declared space: its search, the plan and its bounds."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from planner.instance.instance import ONE_SITE, Instance
from planner.models import Options, SitesRequest
from planner.models.fabric.fabric_templates import Templates
from planner.models.joint.joint_world import EPS, JointSolution, World
from planner.models.joint.search.branch_and_bound import Loop
from planner.models.joint.search.fewest_days import FewestDays
from planner.models.joint.search_cache import JointCache
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import problem_of
from planner.physics.site import cost
from planner.physics.training.layer_time import days_of
from planner.plan.certificate import Status
from planner.solvers.signals import Deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Solving:
    """What the searches of one joint solve share: options, deadline, progress, cache and facts known beforehand."""

    options: Options = field(default_factory=Options)
    deadline: Deadline = field(default_factory=Deadline)  # it ends the search, not the time limit of the options
    progress: Callable[[str], None] = lambda _: None
    cache: JointCache = field(default_factory=JointCache)
    first: Callable[[World], Column | None] | None = None  # names a column to price before any other
    first_replicas: tuple[int, ...] = ()  # of that column by site, if known
    floor: float = 0.0  # days or dollars that no plan is below, as a question with all of its plans says

    @property
    def left(self) -> Options:
        """The options of a joint solve with the time that is left."""
        return replace(self.options, time_limit=self.deadline.limit)

    def world(self, instance: Instance, without: dict[str, Any] | None = None) -> World:
        """Gather the problem, sites and fabric templates of a joint solve, from the cache where it has them."""
        cache, seed, threads = self.cache, self.options.seed, self.options.threads
        cache.serve(instance, without or {}, seed, threads)
        problem = problem_of(instance, cache.without)
        if instance.grid is not None and cache.sites is None:
            from planner.models.joint.site_choice import Sites  # where needed: a cluster has no use for Pyomo and HiGHS

            racks, refused = "sites.racks.", frozenset(cache.without.get("sites", ()))  # sets of open sites
            opened = frozenset(x.removeprefix(racks) for x in cache.without if x.startswith(racks))  # not with 0 racks
            request = SitesRequest(opened=opened, refused=refused)
            cache.sites = Sites(instance=instance, request=request, seed=seed, threads=threads)
        if cache.sites is not None:
            cache.sites.solved, cache.sites.deadline = 0, self.deadline
            cache.sites.fibre.deadline = self.deadline
        max_mw, h, limit = math.inf, instance.hardware, instance.limits.facility_power_mw
        if cache.sites is None and limit is not None and not h.overhead_includes_fabric:
            # What a cluster's racks leave to its fabric.
            max_mw = limit * (1 + EPS) / h.facility_overhead_factor - cost.it_mw(h, h.racks or 0)
        if instance.network is not None and cache.templates is None:
            cache.templates = Templates(
                instance=instance,
                transport_slowdown=problem.transport_slowdown,
                power_counts=math.isfinite(max_mw) or (cache.sites is not None and cache.sites.counts_power),
                max_mw=max_mw,
                without_stripes=cache.without.get("placement.stripes"),
            )
            cache.templates.refuse_switches(problem.gpus, ONE_SITE if instance.grid is None else None)
        if cache.templates is not None:
            cache.templates.deadline = self.deadline
        return World(problem=problem, sites=cache.sites, templates=cache.templates, cache=cache, deadline=self.deadline)


def solve_joint(
    instance: Instance,
    solving: Solving,
    *,
    without: dict[str, Any] | None = None,
    rival: float = math.inf,
    within: float = 0.0,
) -> JointSolution:
    """Return the joint plan of fewest days over the declared space, of equal ones the cheapest, with its lower bound.

    With a gap the search ends where (value - bound) / value is within it; without one, at the proof. At the deadline,
    or when interrupted, it returns the best plan so far; interrupted before the first, it raises. What earlier searches
    left in the cache, and a column priced first, change only how long it takes. A plan of the floor ends the search.
    `without`: values of choices, by the paths of their pins, that no plan may have. `rival`: days above which no plan
    is of use. `within`: share of the fewest days by which slower plans are kept in `cache.search`, for a goal that goes
    on with the search.
    """
    cache, world = solving.cache, solving.world(instance, without)
    instance = world.problem.instance
    each = days_of(instance, 1.0)
    goal = FewestDays(
        world=world,
        progress=solving.progress,
        first=solving.first,
        first_replicas=solving.first_replicas,
        gap=solving.options.gap or 0.0,
        rival=rival / each,
        within=within,
        floor=solving.floor / each,
    )
    loop = Loop(goal=goal)
    stopped = loop.run()
    best, bound, unproven = goal.incumbent, goal.bound, world.unproven.seconds
    if best is not None:
        cache.plans[world.size] = best
    cache.search = loop if within and stopped == "proved" else None
    if world.sites is not None:
        world.counts["sites MILPs"] = world.sites.solved
    # Optimal where the bound meets the incumbent, up to rounding or the gap that was asked for.
    if best is not None and stopped == "proved" and goal.gap == 0:
        bound = min(best.seconds, unproven)
    known = math.isfinite(bound)
    status: Status = "optimal" if goal.distance <= max(EPS, goal.gap) else "feasible"
    if best is None:
        status = "infeasible" if stopped == "proved" and math.isinf(unproven) else "unknown"
    return JointSolution(
        status=status,
        days=None if best is None else days_of(instance, best.seconds),
        lower_bound=days_of(instance, bound) if known else None,
        fabric_free_bound=days_of(instance, min(goal.free, bound)) if known else None,
        plan=best,
        counts=dict(sorted(world.counts.items())),
        stopped="proved" if best is not None and goal.distance <= EPS else stopped,  # whatever ended it behind that
        failure=loop.failure,
        excluded=tuple((days_of(instance, key), c) for key, c in goal.columns if key < bound),
        max_racks=dict(world.sites.most) if world.sites is not None else {},
        joined_racks={gpus: int(racks) for gpus, racks in world.problem.joined.items() if math.isfinite(racks)},
    )


def refuse_unusable_pins(instance: Instance) -> None:
    """Refuse pins outside the declared space, or that leave no switch, before a joint solve loads a solver."""
    if instance.network is not None:  # whose transport, simulated, may take long
        instance = instance.replaced(network__transport__simulate=None)
    gpus = problem_of(instance).gpus
    if instance.network is not None:
        Templates(instance=instance, transport_slowdown=1.0, power_counts=False).refuse_switches(gpus, None)
