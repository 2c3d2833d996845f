"""The ends of the choice among plans that are nearly as fast: less capital, groups under one leaf, simplicity."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from planner.instance.instance import TOLERANCE, Instance
from planner.models.joint.joint_world import CENTS, EPS, JointPlan, JointSolution, World
from planner.models.joint.search.branch_and_bound import Loop
from planner.models.joint.search.least_capital import LeastCapital
from planner.models.joint.solve_joint import Solving, least_capital_plan
from planner.models.joint.tied_plans import End, ends_within, local_share, simplest_within, simplicity
from planner.physics.training.layer_time import days_of
from planner.plan.certificate import ALMOST_AS_FAST, SIMPLER_WITHIN, CheaperPlan, ChoiceEnd, EndName, SimplerPlan
from planner.plan.plan_sections import in_short
from planner.solvers.progress import notes, report, start

Progress = Callable[[str], None]


def ended_by_choice(
    instance: Instance, solution: JointSolution, solving: Solving, *, seek_others: bool = True
) -> tuple[JointSolution, dict[str, Any]]:
    """Return the plan that the ends of the choice leave of nearly as fast ones, and what the objective says of others.

    These are the ends and a simpler plan. At a tolerance of 0 the plan is the fastest, and a cheaper one that is almost
    as fast is named. None of them is faster than the fastest.
    """
    progress, cache, gap = solving.progress, solving.cache, solving.options.gap or 0.0
    report(progress, "", solution.days, solution.lower_bound)
    best = solution.plan
    if best is None or solution.stopped != "proved" or not _others_asked(instance, seek_others=seek_others):
        return solution, {}
    search, cache.search = cache.search, None
    if search is not None and search.goal.incumbent is not best:
        search = None
    world = solving.world(instance)
    while True:
        days, bound, latest = solution.days or math.inf, solution.lower_bound, instance.limits.deadline_days or math.inf
        proven = bound is not None and bound >= days * (1 - EPS)
        if gap and bound is not None:
            latest = min(latest, bound / (1 - gap))
        most = max(0.0, latest / days - 1)  # share of the fewest days that gap and deadline leave to be given up
        kept = None if search is None or proven else search.copy()
        chosen, more, seen = _choice(world, best, most, solving, search, proven=proven)
        fastest = min(seen, key=lambda plan: plan.seconds, default=best)
        if fastest.seconds >= best.seconds * (1 - EPS):
            return replace(solution, plan=chosen, days=days_of(world.problem.instance, chosen.seconds)), more
        # Within a gap a plan of an end may be faster than the fastest so far: it is that, and the ends begin from it.
        best, solution = fastest, replace(solution, plan=fastest, days=days_of(world.problem.instance, fastest.seconds))
        report(progress, "", solution.days, solution.lower_bound)
        search = kept


def _choice(
    world: World, best: JointPlan, most: float, solving: Solving, search: Loop | None, *, proven: bool
) -> tuple[JointPlan, dict[str, Any], tuple[JointPlan, ...]]:
    """Return the plan that the choice's ends leave, slower by at most `most`, the objective's fields, all plans."""
    instance, progress = world.problem.instance, solving.progress
    goal, indifferent = instance.objective, instance.objective.indifference > instance.objective.tolerance
    simpler = min(goal.indifference if indifferent else SIMPLER_WITHIN, most)
    alone = instance.network is None and instance.grid is None and goal.tolerance in (0.0, TOLERANCE)
    alone = alone and not indifferent  # a layout, of which every plan costs the same
    if alone and not goal.tolerance:
        return best, {}, ()
    start(progress, "a simpler layout" if alone else "a cheaper plan")
    chosen, more = best, dict[str, Any]()
    plans: tuple[JointPlan, ...]
    if alone:
        left = None if search is None else search.copy()
        simplest = simplest_within(world, best, best.seconds * (1 + simpler), left)
        plans, other = (simplest.plan,), None if simplest.plan is best else simplest
    elif goal.tolerance or indifferent:
        within = min(goal.tolerance, most)
        found = ends_within(
            world, best, within, simpler=simpler, indifferent=indifferent, search=search, progress=notes(progress)
        )
        by_name: dict[EndName, End] = {"goal": End(plan=best, proven=proven), **found.by_name}
        ends, local = list[ChoiceEnd](), local_share(found.plan)
        for name, end in by_name.items():
            days, usd = days_of(instance, end.plan.seconds), end.plan.capital_usd
            values = {"goal": days, "capital": usd, "leaf_local": local, "simplest": simplicity(end.plan)[1]}
            ends.append(
                ChoiceEnd(name=name, value=values[name], days_to_train=days, capital_usd=usd, proven=end.proven)
            )
        chosen, plans, other, more["ends"] = found.plan, found.plans, found.simpler, tuple(ends)
    else:
        almost = best.seconds * (1 + ALMOST_AS_FAST)
        cheap = least_capital_plan(LeastCapital(world=world, limit=almost, incumbent=best, progress=notes(progress)))
        if cheap.plan is None or cheap.usd is None or cheap.usd > best.capital_usd - CENTS:
            return best, {}, ()
        racks = sum(cheap.plan.placed.racks.values()) if cheap.plan.placed else instance.hardware.racks or 0
        more["cheaper"] = CheaperPlan(days_to_train=cheap.days or 0.0, capital_usd=cheap.usd, racks=racks)
        plans, other = (cheap.plan,), None
    if other is not None:
        plan, column = other.plan, other.plan.column
        more["simplest"] = SimplerPlan(
            days_to_train=days_of(instance, plan.seconds),
            loss=plan.seconds / best.seconds - 1,
            capital_usd=plan.capital_usd,
            layout=in_short((*column.strategy.shape.degrees, column.p, column.d), column.v),
            layers_per_stage=plan.split.layers,
            recomputed_layers=sum(plan.split.recomputed),
            proven=other.proven,
        )
    return chosen, more, plans


def kept_within(instance: Instance, *, seek_others: bool = True) -> float:
    """Return the share of the fewest days by which plans may be slower that the search keeps for the choice's ends."""
    goal = instance.objective
    if goal.minimize != "days_to_train" or not _others_asked(instance, seek_others=seek_others):
        return 0.0
    return max(goal.tolerance, goal.indifference, SIMPLER_WITHIN if goal.tolerance else 0.0)


def _others_asked(instance: Instance, *, seek_others: bool) -> bool:
    """Return whether plans other than the fastest are sought: at the user's tolerance, or without a WAN gateway."""
    network, goal = instance.network, instance.objective
    own = goal.tolerance not in (0.0, TOLERANCE) or goal.indifference > goal.tolerance
    return own or (seek_others and not (network is not None and network.wan_gateway))
