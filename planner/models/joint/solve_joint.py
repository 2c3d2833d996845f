"""Solve the joint problem for a goal: fewest days over the declared space, or least capital by a deadline."""

import math
from dataclasses import replace
from typing import Any

from planner.instance.instance import Instance
from planner.models.fabric.fabric_templates import Templates
from planner.models.joint.joint_question import Solving
from planner.models.joint.joint_solution import EPS, JointSolution
from planner.models.joint.search.branch_and_bound import Loop
from planner.models.joint.search.fewest_days import ANY_PLAN, FewestDays
from planner.models.joint.search.least_capital import LeastCapital, least_capital_plan
from planner.models.joint.strategy_space import problem_of
from planner.physics.training.step_prediction import days_of
from planner.plan.certificate import Status


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
        seek_cheap=_seek_cheap,
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
        fabric_free_bound=days_of(instance, min(goal.free, bound)) if known and world.cables_all else None,
        plan=best,
        counts=dict(sorted(world.counts.items())),
        stopped="proved" if best is not None and goal.distance <= EPS else stopped,  # whatever ended it behind that
        failure=loop.failure,
        excluded=tuple((days_of(instance, key), c) for key, c in goal.columns if key < bound),
        max_racks=dict(world.sites.most) if world.sites is not None else {},
        joined_racks={gpus: int(racks) for gpus, racks in world.problem.joined.items() if math.isfinite(racks)},
    )


def _seek_cheap(days: FewestDays) -> None:
    """Give a search for the fewest days, where the money pays no fast layout, the first plan of least capital."""
    goal = LeastCapital(world=replace(days.world, counts={}), limit=days.rival, end_gap=ANY_PLAN)
    stopped = Loop(goal=goal).run()
    if goal.incumbent is not None:
        days.keep(goal.incumbent)
    if stopped == "interrupted":
        raise KeyboardInterrupt


def refuse_unusable_pins(instance: Instance) -> None:
    """Refuse pins that no joint solve keeps: outside the declared space, or leaving no switch. It loads no solver."""
    if instance.network is not None:  # whose transport, simulated, may take long
        instance = instance.replaced(network__transport__simulate=None)
    gpus = problem_of(instance).gpus
    if instance.network is not None:
        Templates(instance=instance, transport_slowdown=1.0, power_counts=False).refuse_switches(gpus, None)


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
