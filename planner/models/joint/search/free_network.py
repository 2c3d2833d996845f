"""Searches on a free network, without grid, fabric or prices: the fastest layout on given racks, the fewest racks."""

import math
from dataclasses import dataclass

from planner.instance.instance import Instance
from planner.models.joint.joint_question import World
from planner.models.joint.joint_solution import CENTS, EPS, JointPlan, racks_of, strategy_of
from planner.models.joint.search.branch_and_bound import Loop
from planner.models.joint.search.capital_floor import RACKS_ALONE
from planner.models.joint.search.fewest_days import FewestDays
from planner.models.joint.search.least_capital import LeastCapital
from planner.models.joint.strategy_space import JointProblem, problem_of
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step_prediction import days_of
from planner.plan.certificate import Status
from planner.solvers.outcome import Stop
from planner.solvers.search_deadline import Deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """What a search for the fastest layout on a free network finds: seconds a sequence, infinite if none; a bound."""

    seconds: float
    bound: float
    plan: JointPlan | None
    stop: Stop

    @property
    def strategy(self) -> ParallelStrategy | None:
        """The fastest layout on a free network as a parallel strategy in full; None where none fits."""
        return None if self.plan is None else strategy_of(self.plan)


def fastest_of(problem: JointProblem, *, time_limit: float | None = None) -> Fastest:
    """Search the fastest layout of a joint problem on a free network and the racks of its cluster."""
    goal = FewestDays(world=World(problem=problem, sites=None, templates=None, deadline=Deadline(time_limit)))
    proved = Loop(goal=goal).run() == "proved"
    seconds = math.inf if goal.incumbent is None else goal.incumbent.seconds
    stop = Stop.PROVED if proved else Stop.LIMIT
    return Fastest(seconds=seconds, bound=seconds if proved else goal.bound, plan=goal.incumbent, stop=stop)


def problem_on(instance: Instance, racks: int) -> JointProblem:
    """Read the joint problem of `racks` racks on a free network, without grid, wide area, money, power and deadline."""
    limits = instance.limits.replaced(budget_usd=None, facility_power_mw=None, deadline_days=None)
    return problem_of(instance.replaced(limits=limits, hardware__racks=racks, grid=None, wan=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class FewestRacks:
    """What a search for the fewest racks in time on a free network finds, with the most that are proven too few."""

    status: Status
    racks: int | None
    too_few: int  # racks with which no layout is within the days, proven
    days: float | None
    plan: JointPlan | None


def fewest_racks(
    instance: Instance, days: float, *, tolerance: float = 0.0, time_limit: float | None = None
) -> FewestRacks:
    """Search the fewest racks that train within days on a free network, without a budget, and their fastest layout.

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
