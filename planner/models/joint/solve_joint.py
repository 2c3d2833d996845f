"""Solve the joint problem for a goal: fewest days, least capital or cost of ownership, or on a free network.

The cost of ownership is that of buying a plan and running it until the model is trained. How long a plan runs is known
only when it is found, and at prices that hold Y years of upkeep and energy the least capital is the least cost of Y
years only. So the times are cut into spans. A plan of a span costs no less than at the prices of its shortest run, of
which the search by capital finds the least: a bound for the whole span. Where that plan takes longer, the span is cut
there; where it takes as long as that run, the bound is its cost, and the span is done.

On a free network, which slows sends and allreduces by its transport alone, there are no grid, fabric or prices: the
fastest layout on given racks, or the fewest racks.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from planner.instance.instance import ONE_SITE, Instance
from planner.models import Options, SitesRequest
from planner.models.fabric.fabric_templates import Templates
from planner.models.joint.joint_world import CENTS, EPS, JointCache, JointPlan, JointSolution, World
from planner.models.joint.search.branch_and_bound import Loop
from planner.models.joint.search.capital_floor import RACKS_ALONE
from planner.models.joint.search.fewest_days import FewestDays
from planner.models.joint.search.first_plans import SAMPLED, likely, sampled
from planner.models.joint.search.goal import Stopped
from planner.models.joint.search.least_capital import LeastCapital
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import JointProblem, problem_of
from planner.physics.site import site_power
from planner.physics.site.cost import alike_usd, at_run_prices, years_of
from planner.physics.training.layer_time import days_of
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.plan.certificate import Status
from planner.solvers.outcome import Stop
from planner.solvers.progress import report
from planner.solvers.search_deadline import Deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Solving:
    """What the searches of one joint solve share: options, deadline, progress, cache and facts known beforehand."""

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
        """The options of a joint solve with the time that is left."""
        return replace(self.options, time_limit=self.deadline.limit)

    def world(self, instance: Instance, without: dict[str, Any] | None = None) -> World:
        """Gather the problem, sites and fabric templates of a joint solve, from the cache where it has them."""
        cache, seed, threads, without = self.cache, self.options.seed, self.options.threads, without or {}
        cache.serve(instance, without, seed, threads)
        problem = problem_of(instance)
        if instance.grid is not None and cache.sites is None:
            from planner.models.joint.site_choice import Sites  # where needed: a cluster has no use for Pyomo and HiGHS

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """The fastest layout on a free network and given racks: seconds a sequence with a lower bound; infinite if none."""

    seconds: float
    bound: float
    plan: JointPlan | None
    stop: Stop

    @property
    def strategy(self) -> ParallelStrategy | None:
        """The fastest layout on a free network as a parallel strategy in full; None where none fits."""
        return None if self.plan is None else strategy_of(self.plan)


def fastest_of(problem: JointProblem, *, time_limit: float | None = None) -> Fastest:
    """Return the fastest layout of a joint problem on the racks of its cluster and a free network."""
    goal = FewestDays(world=World(problem=problem, sites=None, templates=None, deadline=Deadline(time_limit)))
    proved = Loop(goal=goal).run() == "proved"
    seconds = math.inf if goal.incumbent is None else goal.incumbent.seconds
    stop = Stop.PROVED if proved else Stop.LIMIT
    return Fastest(seconds=seconds, bound=seconds if proved else goal.bound, plan=goal.incumbent, stop=stop)


def problem_on(instance: Instance, racks: int) -> JointProblem:
    """Read the joint problem of `racks` racks on a free network, without grid, wide area, money, power and deadline."""
    limits = instance.limits.replaced(budget_usd=None, facility_power_mw=None, deadline_days=None)
    return problem_of(instance.replaced(limits=limits, hardware__racks=racks, grid=None, wan=None))


def racks_of(plan: JointPlan) -> int:
    """Return the racks that the blocks of a joint plan fill, without spares."""
    return sum(plan.shape.blocks) * plan.column.block.racks


def strategy_of(plan: JointPlan) -> ParallelStrategy:
    """Return the layout of a joint plan as a parallel strategy in full."""
    c, s, block, split = plan.column, plan.column.strategy, plan.column.block, plan.split
    recomputed = any(split.recomputed)
    return ParallelStrategy.of_shape(
        s.shape,
        pipeline_parallel=c.p,
        data_parallel_by_site=tuple(n for _, n in sorted(plan.replicas_by_site.items())),
        virtual_stages=c.v,
        micro_batches=c.m,
        recompute="full" if recomputed else s.shape.recompute,
        zero_stage=c.zero,
        layers_per_stage=split.layers,
        recomputed_layers_per_stage=split.recomputed if recomputed else (),
        replicas_per_rack=block.replicas_per_rack,
        stages_per_rack=block.stages_per_rack,
        schedule=s.order,
    )


@dataclass(kw_only=True)
class FewestFreeDays(FewestDays):
    """The search goal of fewest days on a free network and the most racks that the money may buy.

    The time `free` of the fastest column bounds every plan's, infinite where none fits; no column is priced.
    """

    most_early: ClassVar[int] = 0

    def begin(self) -> None:
        """Take the fastest column on a free network of a sample of strategies for the rival."""
        for bound, s in sampled(self, SAMPLED):
            self.tick()
            if bound >= self.rival:
                return
            for exact, _ in likely(self.world, s, self.rival):
                self.rival = min(self.rival, exact)

    def reached(self, t: float, c: float, what: Any) -> bool:
        """End the search at the first column, whose time on a free network no other is below."""
        if isinstance(what, Column):
            self.free = t
        return isinstance(what, Column)


@dataclass(frozen=True, slots=True, kw_only=True)
class FewestRacks:
    """The fewest racks with a layout within given days on a free network, and the most that are proven too few."""

    status: Status
    racks: int | None
    too_few: int  # racks with which no layout is within the days, proven
    days: float | None
    plan: JointPlan | None


def fewest_racks(
    instance: Instance, days: float, *, tolerance: float = 0.0, time_limit: float | None = None
) -> FewestRacks:
    """Return the fewest racks that train within days on a free network, without a budget, and their fastest layout.

    `tolerance`: relative distance from the racks proven too few at which the search may end.
    """
    deadline, limit = Deadline(time_limit), days / days_of(instance, 1.0)
    # No column has as many racks.
    world = World(problem=problem_on(instance, 10**9), sites=None, templates=None, deadline=deadline)
    # It ends where the bound is within the tolerance of the racks, or at them up to rounding, which is far below one
    # rack: of as many the fastest is sought next.
    goal = LeastCapital(world=world, limit=limit, end_gap=max(tolerance / (1 + tolerance), 1e-12))
    goal.floor = RACKS_ALONE
    stopped = Loop(goal=goal).run() != "proved"
    plan = goal.incumbent
    if plan is None:
        status: Status = "unknown" if stopped else "infeasible"
        return FewestRacks(status=status, racks=None, too_few=_below(goal.bound), days=None, plan=None)
    most = racks_of(plan)
    fastest = None if stopped else fastest_of(problem_on(instance, most), time_limit=deadline.limit).plan
    if fastest is not None and fastest.seconds <= plan.seconds * (1 + EPS):
        plan = fastest
    racks = racks_of(plan)
    too_few = min(racks - 1, _below(goal.bound) if stopped else math.floor(most / (1 + tolerance) - 2 * CENTS))
    return FewestRacks(
        status="feasible" if stopped and too_few < racks - 1 else "optimal",
        racks=racks,
        too_few=too_few,
        days=days_of(instance, plan.seconds),
        plan=plan,
    )


def _below(bound: float) -> int:
    return max(0, math.ceil(bound - 2 * CENTS) - 1)


def least_capital_plan(goal: LeastCapital, loop: Loop | None = None, *, days: bool = True) -> JointSolution:
    """Return the joint plan of a goal of least capital by its limit of time, of equal ones the fastest.

    `loop`: a search by days that kept all ties, to go on with. Where there is no plan the `days` of every plan are
    bounded, which takes about as long as the search.
    """
    loop = loop or Loop(goal=goal)
    stopped, world = loop.run(goal), goal.world
    plan, unproven, instance = goal.incumbent, world.unproven.usd, world.problem.instance
    ended: dict[str, Any] = {"stopped": stopped, "failure": loop.failure}
    ended["counts"] = dict(sorted(world.counts.items()))
    if plan is None:
        proven = stopped == "proved" and math.isinf(unproven)
        least = math.inf
        if days and stopped == "proved":
            fewest = FewestFreeDays(world=world)
            least = fewest.free if Loop(goal=fewest).run() == "proved" else math.inf
        return JointSolution(
            status="infeasible" if proven else "unknown",
            lower_bound=goal.bound if stopped != "proved" else None,
            fabric_free_bound=days_of(instance, least) if math.isfinite(least) else None,
            **ended,
        )
    open_usd = goal.bound if stopped != "proved" or goal.ended_early else math.inf
    bound = min(plan.capital_usd, unproven, open_usd)
    proven = bound >= min(plan.capital_usd - CENTS, plan.capital_usd * (1 - goal.end_gap))
    return JointSolution(
        status="optimal" if proven else "feasible",
        usd=plan.capital_usd,
        lower_bound=bound,
        days=days_of(instance, plan.seconds),
        plan=plan,
        **ended,
    )


def solve_joint_cost(
    instance: Instance, solving: Solving, *, without: dict[str, Any] | None = None, days: bool = True
) -> JointSolution:
    """Return the least capital of a joint plan by the deadline of an instance; without one, of any plan at all.

    `solving`, its floor in dollars, and `without` are as in `solve_joint`; `days`: as in `least_capital_plan`.
    """
    world = solving.world(instance, without)
    cheapest, limit = solving.cache.cheapest.setdefault(instance.hardware.racks, []), world.latest
    in_time = [x for x in cheapest if x.seconds <= limit * (1 + EPS) and x.capital_usd <= world.budget]
    known = min(in_time, key=lambda x: (x.capital_usd, x.seconds), default=None)
    goal = LeastCapital(
        world=world,
        limit=limit,
        incumbent=known,
        end_gap=solving.options.gap or 0.0,
        progress=solving.progress,
        first=None if solving.first is None else solving.first(world),
        near=solving.near,
        known_floor=solving.floor,
    )
    found = least_capital_plan(goal, days=days)
    if found.plan is not None and found.plan is not known:
        cheapest.append(found.plan)
    return found


class Span(NamedTuple):
    """A span of run lengths: plans of `start` to `end` seconds a sequence, with a lower bound `usd` on their cost."""

    usd: float
    order: int  # of equal ones the last is taken first, which soonest ends at a plan
    start: float
    end: float


@dataclass(kw_only=True)
class RunSearch:
    """The search for the least cost of ownership: open spans of run lengths by their bounds, and the cheapest plan."""

    instance: Instance
    solving: Solving  # its floor: dollars that no plan is below, as another question proved; the search ends at it
    without: dict[str, Any] = field(default_factory=dict)
    heap: list[Span] = field(default_factory=list)
    order: Iterator[int] = field(default_factory=itertools.count)
    best: JointSolution | None = None
    usd: float = math.inf  # of the best
    given_up: float = math.inf  # lower bound on the cost of plans of which a search proved nothing
    last: JointSolution | None = None  # the plan found last, where none is proven the least of its span
    free_bound: float | None = None  # in days of any plan, where none meets the deadline
    failure: str = ""  # what a back end said that ended the search

    def years(self, seconds: float) -> float:
        """Return the years of operation in a run's cost: the instance's, else of training at `seconds` a sequence."""
        given = self.instance.limits.operation_years
        return years_of(days_of(self.instance, seconds)) if given is None else given

    def push(self, usd: float, start: float, end: float) -> None:
        """Open a span of run lengths that may hold a plan of less cost of ownership."""
        if start <= end and usd < self.usd - CENTS:
            heapq.heappush(self.heap, Span(usd, -next(self.order), start, end))

    def run(self) -> JointSolution:
        """Take spans of run lengths by their bounds on cost until none could hold a cheaper plan; return the best."""
        stopped: Stopped = "proved"
        while self.heap and max(self.heap[0].usd, self.solving.floor) < self.usd - CENTS:
            span = heapq.heappop(self.heap)
            found = self._least(span)
            if found.stopped != "proved":
                self.heap.append(span._replace(usd=max(span.usd, found.lower_bound or 0.0)))
                stopped, self.failure = found.stopped, found.failure
                break
            if found.status in ("unknown", "feasible"):
                self.given_up = min(self.given_up, span.usd if found.plan is None else found.lower_bound or 0.0)
            if self.last is None:
                self.free_bound = found.fabric_free_bound
            if found.plan is None:
                continue
            usd, seconds = found.usd or 0.0, found.plan.seconds
            years, shortest = self.years(seconds), self.years(span.start)
            priced = [(at_run_prices(self.instance, x), alike_usd(self.instance, x)) for x in (years, shortest)]
            # The run costs no more than at the prices of the span's shortest run: it is of least cost in the span.
            if years <= shortest * (1 + EPS) or priced[0] == priced[1]:
                if usd < self.usd - CENTS or self.best is None:
                    self.best, self.usd = found, usd
                    line = f"${usd / 1e9:,.3f}B in {found.days:,.2f} days"
                    written_from = self.instance, found.plan, found.days
                    report(self.solving.progress, line, usd, self.bound, found=written_from)
                continue
            report(self.solving.progress, f"no plan under ${self.bound / 1e9:,.3f}B", None, usd)
            below = seconds * (1 - 3 * EPS)  # plans that are faster by more than rounding
            # A span longer than a twentieth of its end is cut in two before its plans are sought.
            middle = [(span.start + below) / 2] if below - span.start > 0.05 * below else []
            for start, end in itertools.pairwise([span.start, *middle, below]):
                self.push(usd, start, end)
            self.push(usd, seconds, max(seconds, span.end))  # a plan may meet the span's end but for rounding
        best = self.best or self.last
        if best is None:
            return JointSolution(
                status="infeasible" if stopped == "proved" and math.isinf(self.given_up) else "unknown",
                lower_bound=self.bound if stopped != "proved" else None,
                fabric_free_bound=self.free_bound,
                stopped=stopped,
                failure=self.failure,
            )
        proven = stopped == "proved" and self.best is not None and self.bound >= self.usd - CENTS
        return replace(
            best,
            failure=self.failure,
            status="optimal" if proven else "feasible",
            lower_bound=self.usd if proven else self.bound,
            stopped=stopped,
        )

    @property
    def bound(self) -> float:
        """Lower bound on the cost of ownership of any plan, in USD."""
        return max(self.solving.floor, min([self.usd, self.given_up, *(span.usd for span in self.heap)]))

    def _least(self, span: Span) -> JointSolution:
        """Return the plan of least capital within a span, at its shortest run's prices; none above the best."""
        years = self.years(span.start)
        alike, priced = alike_usd(self.instance, years), at_run_prices(self.instance, years)
        budget = None if self.best is None else max(self.usd - alike, CENTS)
        priced = priced.replaced(limits__budget_usd=budget)
        cache = JointCache(timed=self.solving.cache.timed)  # whatever the prices, a layer takes as long
        world = replace(self.solving, cache=cache).world(priced, self.without)
        found = least_capital_plan(LeastCapital(world=world, limit=span.end))
        known = [x and x + alike for x in (found.usd, found.lower_bound)]
        found = replace(found, usd=known[0], lower_bound=known[1])
        self.last = found if found.plan is not None else self.last
        return found


def least_run_cost(instance: Instance, solving: Solving, *, without: dict[str, Any] | None = None) -> JointSolution:
    """Return the joint plan of least total cost of ownership by the deadline of an instance, its cost as `usd`.

    The budget is ignored: where the least cost is above it, no plan is within it. `without`: values of choices, by
    the paths of their pins, that no plan may have.
    """
    search, days = RunSearch(instance=instance, solving=solving, without=without or {}), instance.limits.deadline_days
    search.push(0.0, 0.0, math.inf if days is None else days / days_of(instance, 1.0))
    return search.run()
