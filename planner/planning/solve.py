"""Solve an instance: the joint optimum over all decisions that it asks for, or why there is no plan."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from planner.checks.check_plan import check
from planner.errors import InputError, InternalError
from planner.instance.instance import TOLERANCE, Instance
from planner.models import Options
from planner.models.joint.cache import JointCache
from planner.models.joint.ends import End, Ends, ends_within, kinds_of, local_share, simplest_within
from planner.models.joint.least_cost import cheaper_within
from planner.models.joint.search.loop import Loop
from planner.models.joint.solution import JointSolution, JointStatus
from planner.models.joint.solve import world_of
from planner.models.joint.split import Column
from planner.models.joint.world import CENTS, EPS, JointPlan, World
from planner.physics import ticking
from planner.physics.training.layer_time import days_of
from planner.plan.certificate import (
    ALMOST_AS_FAST,
    SIMPLER_WITHIN,
    CheaperPlan,
    ChoiceEnd,
    Conflict,
    EndName,
    LimitedBy,
    SimplerPlan,
)
from planner.plan.plan import Plan
from planner.plan.plan_sections import in_short
from planner.planning import heterogeneous, model_size
from planner.planning.conflict import conflict_of, over_budget, too_late
from planner.planning.frontier import FRONTIER, checked_plan, plan_of_frontier
from planner.planning.hardware_choice import HardwareAnswer, HardwareChoice, best_choice, with_alternatives
from planner.planning.instance_parts import with_part
from planner.planning.joint_plan import plan_of
from planner.planning.joint_proof import Answered, inspection, unanswered
from planner.solvers.outcome import UnansweredError
from planner.solvers.progress import Reporter, notes, report, start, turn
from planner.solvers.registry import solver_named
from planner.solvers.signals import ENDED, Deadline, OutOfTimeError, uninterrupted

if TYPE_CHECKING:
    from planner.models.joint.sites import Sites

Progress = Callable[[str], None]
First = Callable[[World], Column | None]
UNVERIFIED = "PLANNER_UNVERIFIED"  # "error": a plan that the checker disagrees with is an error, as in the tests


def solve_instance(
    instance: Instance,
    options: Options,
    progress: Progress,
    *,
    cache: JointCache | None = None,
    first: First | None = None,
) -> Plan:
    """Take all decisions that a loaded instance asks for, the model's choice among them, and return the plan, checked.

    A limit, a signal or an interrupter ends the search with the best plan so far, or with none and the reason;
    KeyboardInterrupt without a plan is raised again. What is left of the time goes to the recomputation of the bound;
    every other rule is checked in any case. Threads take turns, and the wait counts. `cache` is what earlier solves
    left, and `first` names a column to price before any other: they save time and change no answer.
    """
    if instance.grid is not None:
        with uninterrupted():
            import planner.models.joint.sites  # noqa: F401  # Pyomo and HiGHS, before the clock of the solve starts
    if isinstance(progress, Reporter):
        progress.writer = lambda found: checked_plan(found[0], found[1], found[2], options)
    deadline = Deadline(options.time_limit)
    with turn(deadline) as mine:
        if not mine:
            plan = unanswered(instance, options, f"{ENDED[deadline.cause]} before this solve's turn")
            return _ended(plan.model_copy(update={"stopped": deadline.cause}), deadline)
        try:
            with ticking(deadline.check):
                plan = _solved(instance, options, deadline, progress, cache, first)
        except OutOfTimeError:  # before the search, which returns the best plan so far, could begin
            plan = unanswered(instance, options, f"{ENDED[deadline.cause]} before the search began")
        except UnansweredError as error:  # of a question that a plan cannot be written without
            plan = unanswered(instance, options, str(error))
        plan = _ended(plan, deadline)
        start(progress, "check")
        return _verified(plan, cache, deadline)


def _verified(plan: Plan, cache: JointCache | None, deadline: Deadline) -> Plan:
    """Return the plan with what the checker says of it: a disagreement is written into the plan and never costs it.

    Raises
    ------
    InternalError
        The checker disagrees, and the environment asks for an error.
    """
    asked = inspection(plan, cache)
    seen = cache is not None and asked is not None and asked in cache.inspected
    broken = check(plan, stop=lambda: seen or deadline.passed)
    if broken and os.environ.get(UNVERIFIED) == "error":
        raise InternalError(
            "the plan breaks its own rules: "
            + "; ".join(f"{violation.rule}: {violation.message}" for violation in broken[:5])
        )
    if cache is not None and asked is not None and not (seen or broken or deadline.passed):
        cache.inspected.append(asked)
    return plan.model_copy(update={"verified": not broken, "violations": tuple(broken)})


def _solved(
    instance: Instance,
    options: Options,
    deadline: Deadline,
    progress: Progress,
    cache: JointCache | None,
    first: First | None,
) -> Plan:
    """Take the decisions in the way that the instance asks for."""
    if instance.hardware.pools:
        start(progress, "shares of the pools")
        return heterogeneous.solve(instance, options, progress)
    if instance.objective.minimize == "loss":
        alone = partial(_decided, options=options, deadline=deadline, progress=progress, seek_others=False)
        return model_size.solve(instance, alone, progress, deadline)
    if instance.objective.minimize == FRONTIER:
        alone = partial(_decided, options=options, deadline=deadline, progress=progress, seek_others=False)
        return plan_of_frontier(instance, replace(options, time_limit=deadline.limit), progress, alone)
    return _decided(instance, options, deadline, progress, cache, first)


def _ended(plan: Plan, deadline: Deadline) -> Plan:
    """Return the plan with its stop reason: `proved` only for a status that is proven, else the limit that ended it."""
    if plan.stopped != "proved" or plan.status in ("optimal", "infeasible"):
        return plan
    ended = deadline.cause if deadline.passed else "gap" if plan.status == "feasible" else "limit"
    return plan.model_copy(update={"stopped": ended})


def _decided(
    instance: Instance,
    options: Options,
    deadline: Deadline,
    progress: Progress,
    cache: JointCache | None = None,
    first: First | None = None,
    *,
    seek_others: bool = True,
) -> Plan:
    """Take all decisions for the instance's model in the time that is left.

    `seek_others`: for a plan in days, also seek a cheaper plan and the limit that the campus reaches.
    """
    if instance.grid is None and instance.hardware.racks is None:
        raise InputError("hardware.racks: is missing; give the racks of the cluster, or a grid to choose them")
    left, started = replace(options, time_limit=deadline.limit), deadline.elapsed
    start(progress, "search", anew=True)
    known = JointCache() if cache is None else cache
    answered = Answered(instance, options, known, seek_others)
    known_answer = answered.known()
    if known_answer is None:
        # By which share of the fewest days other plans may be slower that the same search looks for.
        goal, within = instance.objective, 0.0
        if goal.minimize == "days_to_train" and _others_asked(instance, seek_others=seek_others):
            within = max(goal.tolerance, goal.indifference, SIMPLER_WITHIN if goal.tolerance else 0.0)
        chosen = best_choice(instance, left, deadline, progress, known, first, within)
        whole, instance, solution = instance, chosen.best.instance, chosen.best.solution
        more = dict[str, Any]()
        if instance.objective.minimize in ("days_to_train", "loss"):
            left, known = replace(options, time_limit=deadline.limit), known.of(instance)
            solution, more = _ended_by_choice(
                instance, solution, left, progress, deadline, known, seek_others=seek_others
            )
        answered.keep(solution, more)
    else:
        solution, more = known_answer
        whole, chosen = instance, HardwareChoice(best=HardwareAnswer(instance, solution), others=())
    refused = too_late(instance, solution, replace(options, time_limit=deadline.limit))
    start(progress, "writing the plan")
    written = _without(instance, solution, refused)
    plan = plan_of(instance, written, options, deadline.elapsed - started, more)
    if instance.objective.minimize == "total_cost_of_ownership_usd" and refused is None:
        refused = over_budget(instance, plan.objective.value, solution.lower_bound)
        plan = plan if refused is None else plan_of(instance, _without(instance, solution, refused), options, 0.0)
    plan = with_alternatives(plan, whole, chosen)
    if refused is not None:
        return plan.model_copy(update={"conflict": refused})
    if seek_others and plan.status == "optimal" and instance.objective.minimize == "days_to_train":
        end = limited_by(instance, solution, options, deadline)
        ends = plan.objective.ends
        if end == "layout" and ends and ends[0].value < ends[-1].days_to_train * (1 - EPS):
            end = "tolerance"
        plan = plan.model_copy(update={"objective": plan.objective.model_copy(update={"limited_by": end})})
    if solution.status is JointStatus.INFEASIBLE:
        start(progress, "why there is no plan")
        return plan.model_copy(update={"conflict": conflict_of(instance, replace(options, time_limit=deadline.limit))})
    return plan


def _without(instance: Instance, solution: JointSolution, refused: Conflict | None) -> JointSolution:
    """Return a solution, without its plan where that breaks a limit: infeasible where it is proven that all do."""
    if refused is None:
        return solution
    status = JointStatus.INFEASIBLE if refused.rules else JointStatus.UNKNOWN
    in_time = tuple(entry for entry in solution.excluded if entry[0] < (instance.limits.deadline_days or 0.0))
    return replace(solution, plan=None, status=status, excluded=in_time)


def _ended_by_choice(
    instance: Instance,
    solution: JointSolution,
    options: Options,
    progress: Progress,
    deadline: Deadline,
    cache: JointCache,
    *,
    seek_others: bool,
) -> tuple[JointSolution, dict[str, Any]]:
    """Return the plan that the ends of the choice leave of those as fast, and what the objective says of others.

    These are the ends and a simpler plan. At a tolerance of 0 the plan is the fastest, and a cheaper one that is almost
    as fast is named. None of them is faster than the fastest.
    """
    report(progress, "", solution.days, solution.lower_bound)
    best, most = solution.plan, _most_given_up(instance, solution, options.gap or 0.0)
    if (
        best is None
        or most is None
        or solution.stopped != "proved"
        or not _others_asked(instance, seek_others=seek_others)
    ):
        return solution, {}
    search, cache.search = cache.search, None
    if search is not None and search.goal.incumbent is not best:
        search = None
    world = world_of(instance, options, deadline, cache)
    while True:
        proven = solution.lower_bound is not None and solution.lower_bound >= (solution.days or 0.0) * (1 - EPS)
        kept = None if search is None or proven else search.left()
        choice = _choice(world, solution, best, most, progress, deadline, search, proven=proven)
        fastest = min(choice.seen, key=lambda plan: plan.seconds, default=best)
        if fastest.seconds >= best.seconds * (1 - EPS):
            return choice.solution, choice.more
        # Within a gap a plan of an end may be faster than the fastest so far: it is that, and the ends begin from it.
        best, solution = fastest, replace(solution, plan=fastest, days=days_of(world.problem.instance, fastest.seconds))
        most = _most_given_up(instance, solution, options.gap or 0.0) or 0.0
        report(progress, "", solution.days, solution.lower_bound)
        if search is not None:
            search = None if kept is None else Loop(goal=search.goal, heap=kept.nodes, opened=kept.shapes)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The plan that the ends of a choice leave, what the objective says of others, and every plan that an end left."""

    solution: JointSolution
    more: dict[str, Any]
    seen: tuple[JointPlan, ...] = ()


def _choice(
    world: World,
    solution: JointSolution,
    best: JointPlan,
    most: float,
    progress: Progress,
    deadline: Deadline,
    search: Loop | None,
    *,
    proven: bool,
) -> _Choice:
    """Return what the ends leave behind the fastest plan, slower than it by at most the share `most`."""
    instance = world.problem.instance
    goal = instance.objective
    indifferent = goal.indifference > goal.tolerance
    simpler = min(goal.indifference if indifferent else SIMPLER_WITHIN, most)
    if instance.network is None and instance.grid is None and goal.tolerance in (0.0, TOLERANCE) and not indifferent:
        if not goal.tolerance:
            return _Choice(solution, {})
        start(progress, "a simpler layout")  # every plan of a layout alone costs the same
        left = None if search is None else search.left()
        simplest = simplest_within(world, best, best.seconds * (1 + simpler), left)
        named = None if simplest.plan is best else _simpler(world, best, simplest)
        return _Choice(solution, {"simplest": named}, (simplest.plan,))
    start(progress, "a cheaper plan")
    reported = notes(progress)
    if goal.tolerance or indifferent:
        found = ends_within(
            world,
            best,
            min(goal.tolerance, most),
            simpler=simpler,
            indifferent=indifferent,
            time_limit=deadline.limit,
            progress=reported,
            search=search,
        )
        plan, ends = found.plan or best, _ends(world, best, found, proven=proven)
        chosen = replace(
            solution, plan=plan, days=days_of(world.problem.instance, plan.seconds), stopped=found.capital.stopped
        )
        return _Choice(chosen, {"ends": ends, "simplest": _simpler(world, best, found.simpler)}, found.plans)
    cheap = cheaper_within(world, best, ALMOST_AS_FAST, time_limit=deadline.limit, progress=reported)
    if cheap.plan is None or cheap.capital_usd is None or cheap.capital_usd > best.capital_usd - CENTS:
        return _Choice(solution, {})
    racks = sum(cheap.plan.placed.racks.values()) if cheap.plan.placed else instance.hardware.racks or 0
    cheaper = CheaperPlan(days_to_train=cheap.days or 0.0, capital_usd=cheap.capital_usd, racks=racks)
    return _Choice(solution, {"cheaper": cheaper}, (cheap.plan,))


def _simpler(world: World, best: JointPlan, found: End | None) -> SimplerPlan | None:
    """Return the section on the simpler plan, with its loss of time against the best; None where none was found."""
    if found is None:
        return None
    plan = found.plan
    column, shape = plan.column, plan.column.strategy.shape
    return SimplerPlan(
        days_to_train=days_of(world.problem.instance, plan.seconds),
        loss=plan.seconds / best.seconds - 1,
        capital_usd=plan.capital_usd,
        layout=in_short((*shape.degrees, column.p, column.d), column.v),
        layers_per_stage=plan.split.layers,
        recomputed_layers=sum(plan.split.recomputed),
        proven=found.proven,
    )


def _most_given_up(instance: Instance, solution: JointSolution, gap: float) -> float | None:
    """Return the largest share of the fewest days that the gap asked for and the deadline leave to be given up."""
    days = solution.days
    if days is None or not days:
        return None
    most = math.inf if instance.limits.deadline_days is None else instance.limits.deadline_days
    if gap and solution.lower_bound is not None:
        most = min(most, solution.lower_bound / (1 - gap))
    return max(0.0, most / days - 1)


def _ends(world: World, best: JointPlan, found: Ends, *, proven: bool) -> tuple[ChoiceEnd, ...]:
    """Return the plan that each end of the choice left; `proven`: no plan is faster than the fastest."""

    def of(name: EndName, other: JointPlan, value: float, *, proven: bool) -> ChoiceEnd:
        days = days_of(world.problem.instance, other.seconds)
        return ChoiceEnd(name=name, value=value, days_to_train=days, capital_usd=other.capital_usd, proven=proven)

    ends = [of("goal", best, days_of(world.problem.instance, best.seconds), proven=proven)]
    if found.capital.plan is not None:
        chosen = found.capital.plan
        ends.append(of("capital", chosen, chosen.capital_usd, proven=found.capital.status is JointStatus.OPTIMAL))
    if found.local is not None:
        ends.append(
            of("leaf_local", found.local.plan, local_share(found.plan or found.local.plan), proven=found.local.proven)
        )
    if found.simple is not None:
        kinds = kinds_of(found.simple.plan.column)
        ends.append(of("simplest", found.simple.plan, kinds, proven=found.simple.proven))
    return tuple(ends)


def _others_asked(instance: Instance, *, seek_others: bool) -> bool:
    """Whether others than the fastest are looked for: where no gateways take minutes.

    A tolerance or an indifference of the user's own asks for them in any case.
    """
    network, goal = instance.network, instance.objective
    own = goal.tolerance not in (0.0, TOLERANCE) or goal.indifference > goal.tolerance
    return own or (seek_others and not (network is not None and network.wan_gateway))


def options_of(
    *, time_limit: float | None, gap: float | None, seed: int, threads: int | None, solver: str | None = None
) -> Options:
    """Return the options of a solve, with the solver that was named."""
    return Options(time_limit=time_limit, gap=gap, seed=seed, threads=threads, solver=solver_named(solver))


def limited_by(instance: Instance, solution: JointSolution, options: Options, deadline: Deadline) -> LimitedBy | None:
    """Return the limit that one more block of racks would reach; None where the time ends first or nothing is proven.

    It is `grid` where power and sites have no room for the block at any price, `budget` where the rest of the budget
    does not buy it on the cheapest fabric, and else `layout`: no strategy is faster with the block. Without a grid it
    is `owned_racks` in place of the first two.
    """
    choice = solution.plan
    block = None if choice is None else choice.column.strategy.block(choice.column.p)
    if choice is None or block is None or solution.stopped != "proved":
        return None
    used = block.racks * sum(choice.blocks_by_site.values())
    more = used + block.racks
    if instance.grid is None:
        return "owned_racks" if more > (instance.hardware.racks or 0) else "layout"
    here, left = _sites_of(instance, options, deadline), (instance.limits.budget_usd or math.inf) - choice.capital_usd
    idle = sum(choice.placed.racks.values()) - used if choice.placed else 0
    least_usd = here.floor_usd(max(0, block.racks - idle), 0) + block.racks * here.min_fabric_usd(block.rails)
    try:
        rich = _sites_of(with_part(instance, "limits", budget_usd=None), options, deadline)
        if more > rich.max_racks(block.rails):
            return "grid"
        return "budget" if left < least_usd or more > here.max_racks(block.rails) else "layout"
    except (OutOfTimeError, UnansweredError):
        return None


def _sites_of(instance: Instance, options: Options, deadline: Deadline) -> "Sites":
    from planner.models.joint.sites import Sites

    sites = Sites(instance=instance, seed=options.seed, threads=options.threads)
    sites.deadline = deadline
    return sites
