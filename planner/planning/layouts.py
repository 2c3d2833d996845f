"""The kinds of layout that are nearly as fast as the fastest: the best plan of each, with the days that it takes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.instance.instance import Instance
from planner.models.joint.cache import JointCache
from planner.models.joint.search.days import days
from planner.models.joint.search.kinds import FastestOfEachKind, kind_of
from planner.models.joint.search.loop import Loop
from planner.models.joint.solve import solve_joint, world_of
from planner.models.requests import Options
from planner.physics.num import ticking
from planner.plan.plan import Plan
from planner.planning.frontier import checked_plan, in_days_of_training
from planner.solvers.progress import start, turn
from planner.solvers.signals import Deadline

MOST_SHAPES = 400  # that are priced; the others remain unproven


@dataclass(frozen=True, slots=True)
class NearLayouts:
    """The fastest plan of each kind of layout within a share of the fewest days, the fastest first.

    A kind is tensor, context, expert and pipeline parallelism. `proven`: no other kind has
    a plan within the share, and none of these a faster one; `within`: the share; `fewest_days`: of the first.
    """

    plans: tuple[Plan, ...]
    within: float
    fewest_days: float | None
    proven: bool


def near_layouts(
    instance: Instance, options: Options, progress: Callable[[str], None], *, within: float = 0.02
) -> NearLayouts:
    """Return the kinds of layout within a share of the fewest days, each by its fastest plan.

    At the time limit the kinds so far are returned, unproven.
    """
    instance = in_days_of_training(instance)
    deadline, cache = Deadline(options.time_limit), JointCache()
    with turn(deadline) as mine, ticking(deadline.check):
        if not mine:
            return NearLayouts((), within, None, proven=False)
        best = solve_joint(instance, options, progress, cache=cache)
        if best.plan is None:
            return NearLayouts((), within, None, proven=best.stopped == "proved")
        start(progress, "other layouts")
        world = world_of(instance, replace(options, time_limit=deadline.limit), deadline, cache)
        goal = FastestOfEachKind(world=world, rival=best.plan.seconds * (1 + within), most_shapes=MOST_SHAPES)
        goal.kinds[kind_of(best.plan.column)] = best.plan
        goal.incumbent = best.plan
        stopped = Loop(goal=goal).run()
    ranked = sorted(goal.kinds.values(), key=lambda plan: (plan.seconds, plan.capital_usd, kind_of(plan.column)))
    plans = tuple(checked_plan(instance, plan, days(world.problem, plan.seconds), options) for plan in ranked)
    proven = best.stopped == stopped == "proved" and not goal.ended
    return NearLayouts(plans, within, best.days, proven=proven)
