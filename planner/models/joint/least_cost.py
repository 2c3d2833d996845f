"""The least capital of any plan of the declared space that trains by a deadline, with its proof."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.cache import JointCache
from planner.models.joint.free_network import least_seconds
from planner.models.joint.search.capital import LeastCapital
from planner.models.joint.search.days import described
from planner.models.joint.search.goal import Stopped
from planner.models.joint.search.least_prices import floor_of
from planner.models.joint.search.loop import Loop
from planner.models.joint.solution import JointSolution, JointStatus
from planner.models.joint.solve import world_of
from planner.models.joint.space import JointProblem
from planner.models.joint.world import CENTS, EPS, JointPlan, World
from planner.physics.training.layer_time import days_of
from planner.plan.certificate import ALMOST_AS_FAST
from planner.solvers.progress import report
from planner.solvers.signals import Deadline


def seconds_of(problem: JointProblem, days: float) -> float:
    """Compute the seconds a sequence at which training takes `days` days."""
    return days / days_of(problem.instance, 1.0)


@dataclass(kw_only=True)
class CapitalSearch:
    """A search for the least capital by a deadline, which goals of plans that tie may take over."""

    world: World
    goal: LeastCapital
    loop: Loop
    goes_on: bool = False  # with the nodes of a search by days

    @classmethod
    def begun(
        cls,
        world: World,
        seconds: float,
        *,
        known: JointPlan | None = None,
        within: float = 0.0,
        gap: float = 0.0,
        time_limit: float | None = None,
        progress: Callable[[str], None] = lambda _: None,
        search: Loop | None = None,
    ) -> "CapitalSearch":
        """Begin a search of plans of no more seconds a sequence, from a plan that is known.

        Plans tie `within` a share of the least capital; at the `gap` it ends. `search`: one by days that kept them all.
        """
        problem = world.problem
        world.end_at(Deadline(time_limit))

        def kept(plan: JointPlan) -> None:
            usd, choices, value = plan.capital_usd, described(plan), days_of(problem.instance, plan.seconds)
            line = f"${usd / 1e9:,.3f}B, {value:,.2f} days: {choices}"
            report(progress, line, usd, goal.bound or None, choices, (problem.instance, plan, value))

        if known is not None and known.seconds > seconds * (1 + EPS):
            known = None
        goal = LeastCapital(
            world=world,
            floor=floor_of(world),
            limit=seconds,
            budget=world.budget,
            kept=kept,
            bounded=lambda usd: report(progress, f"no plan under ${usd / 1e9:,.3f}B", None, usd),
            incumbent=known,
            within=within,
            end_gap=gap,
        )
        loop = Loop(goal=goal) if search is None else search
        return cls(world=world, goal=goal, loop=loop, goes_on=search is not None)

    def run(self) -> JointSolution:
        """Return the cheapest plan, of equal ones the fastest."""
        stopped = self.loop.go_on(self.goal) if self.goes_on else self.loop.run()
        return _result(self.goal, stopped=stopped, failure=self.loop.failure)


def cheapest_by(
    world: World,
    deadline_seconds_per_sequence: float,
    *,
    known: JointPlan | None = None,
    gap: float = 0.0,
    time_limit: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> JointSolution:
    """Return the cheapest plan whose time a sequence is within a limit, of equal ones the fastest.

    The search starts from a `known` plan within the limit; `world` keeps its answers on sites and templates.
    """
    limit = deadline_seconds_per_sequence
    return CapitalSearch.begun(world, limit, known=known, gap=gap, time_limit=time_limit, progress=progress).run()


def _result(goal: LeastCapital, *, stopped: Stopped, failure: str) -> JointSolution:
    plan, problem, counts = goal.incumbent, goal.world.problem, dict(sorted(goal.world.counts.items()))
    if plan is None:
        proven = stopped == "proved" and math.isinf(goal.world.unproven.usd)
        status = JointStatus.INFEASIBLE if proven else JointStatus.UNKNOWN
        bound = goal.bound if stopped != "proved" else None
        least = None if stopped != "proved" else least_seconds(goal.world)
        days = None if least is None or not math.isfinite(least) else days_of(problem.instance, least)
        return JointSolution(status=status, lower_bound=bound, fabric_free_bound=days, stopped=stopped, counts=counts)
    open_usd = goal.bound if stopped != "proved" or goal.at_gap else math.inf
    bound = min(plan.capital_usd, goal.world.unproven.usd, open_usd)
    proven = bound >= min(plan.capital_usd - CENTS, plan.capital_usd * (1 - goal.end_gap))
    return JointSolution(
        status=JointStatus.OPTIMAL if proven else JointStatus.FEASIBLE,
        usd=plan.capital_usd,
        lower_bound=bound,
        days=days_of(problem.instance, plan.seconds),
        plan=plan,
        stopped=stopped,
        failure=failure,
        counts=counts,
    )


def solve_joint_cost(
    instance: Instance,
    options: Options,
    progress: Callable[[str], None],
    *,
    cache: JointCache | None = None,
    without: dict[str, Any] | None = None,
) -> JointSolution:
    """Return the least cost of a plan by the deadline of an instance; without one, of any plan at all.

    `cache` changes how long the search takes; `without`: values of choices, by the paths of pins, that none may have.
    """
    deadline, cache = Deadline(options.time_limit), JointCache() if cache is None else cache
    world = world_of(instance, options, deadline, cache, without)
    days = instance.limits.deadline_days
    limit = math.inf if days is None else seconds_of(world.problem, days)
    in_time = [x for x in cache.cheapest if x.seconds <= limit * (1 + EPS) and x.capital_usd <= world.budget]
    known = min(in_time, key=lambda x: (x.capital_usd, x.seconds), default=None)
    gap = options.gap or 0.0
    found = cheapest_by(world, limit, known=known, gap=gap, time_limit=deadline.limit, progress=progress)
    if found.plan is not None and found.plan is not known:
        cache.cheapest.append(found.plan)
    return found


def cheaper_within(
    world: World,
    best: JointPlan,
    share: float = ALMOST_AS_FAST,
    *,
    time_limit: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> JointSolution:
    """Return the cheapest plan within a share of the best days; at 0, of the plans as fast as the best."""
    if not 0 <= share < 1:
        raise InputError(f"objective.tolerance: {share!r} must be at least 0 and less than 1; give a share of the days")
    return cheapest_by(world, best.seconds * (1 + share), known=best, time_limit=time_limit, progress=progress)
