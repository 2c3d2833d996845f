"""Solve an instance: the joint optimum over all decisions that it asks for, or why there is no plan."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from planner.checks.registry import check
from planner.errors import InputError, InternalError
from planner.instance.instance import Instance
from planner.models.joint.cache import JointCache
from planner.models.joint.least_cost import cheaper_within, solve_joint_cost
from planner.models.joint.ownership import least_run_cost
from planner.models.joint.solution import JointSolution, JointStatus
from planner.models.joint.solve import solve_joint, world_of
from planner.models.joint.split import Column
from planner.models.joint.world import CENTS, World
from planner.models.requests import Options
from planner.physics.ticks import ticking
from planner.plan.certificate import ALMOST_AS_FAST, CheaperPlan, Conflict
from planner.plan.plan import Plan
from planner.planning import heterogeneous, model_size
from planner.planning.campus_end import limited_by
from planner.planning.conflict import conflict_of, over_budget, too_late
from planner.planning.joint.plan import plan_of
from planner.planning.joint.without import unanswered
from planner.planning.sessions.inspection import inspection
from planner.solvers.deadline import ENDED, Deadline, OutOfTimeError
from planner.solvers.outcome import UnansweredError
from planner.solvers.registry import solver_named
from planner.solvers.running.progress import notes, stands, start
from planner.solvers.running.turns import turn
from planner.solvers.signals import uninterrupted

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
        raise InternalError("the plan breaks its own rules: " + "; ".join(f"{v.rule}: {v.message}" for v in broken[:5]))
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
        alone = partial(_decided, options=options, deadline=deadline, progress=progress, beside=False)
        return model_size.solve(instance, alone, progress, deadline)
    return _decided(instance, options, deadline, progress, cache, first)


def _ended(plan: Plan, deadline: Deadline) -> Plan:
    """Say that the run ended by proof only of a plan whose status is proven."""
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
    beside: bool = True,
) -> Plan:
    """Take all decisions for the instance's model in the time that is left.

    `beside`: what a plan in days says beside its optimum is sought too: a cheaper plan, and what ends the campus.
    """
    if instance.grid is None and instance.hardware.racks is None:
        raise InputError("hardware.racks: is missing; give the racks of the cluster, or a grid to choose them")
    left, started = replace(options, time_limit=deadline.limit), deadline.elapsed
    start(progress, "search", anew=True)
    cheaper = None
    if instance.objective.minimize == "cost_usd":
        solution = solve_joint_cost(instance, left, progress, cache=cache).as_joint()
    elif instance.objective.minimize == "total_cost_of_ownership_usd":
        solution = least_run_cost(instance, left, progress).as_joint()
    else:
        known = JointCache() if cache is None else cache
        solution, cheaper = _in_days(instance, left, progress, deadline, known, first, beside=beside)
    refused = too_late(instance, solution, replace(options, time_limit=deadline.limit))
    start(progress, "writing the plan")
    written = _without(instance, solution, refused)
    plan = plan_of(instance, written, options, deadline.elapsed - started, cheaper=cheaper)
    if instance.objective.minimize == "total_cost_of_ownership_usd" and refused is None:
        refused = over_budget(instance, plan.objective.value, solution.lower_bound)
        plan = plan if refused is None else plan_of(instance, _without(instance, solution, refused), options, 0.0)
    if refused is not None:
        return plan.model_copy(update={"conflict": refused})
    if beside and plan.status == "optimal" and instance.objective.minimize == "days_to_train":
        end = limited_by(instance, solution, options, deadline)
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
    in_time = tuple(x for x in solution.excluded if x[0] < (instance.limits.deadline_days or 0.0))
    return replace(solution, plan=None, status=status, excluded=in_time)


def _in_days(
    instance: Instance,
    options: Options,
    progress: Progress,
    deadline: Deadline,
    cache: JointCache,
    first: First | None,
    *,
    beside: bool,
) -> tuple[JointSolution, CheaperPlan | None]:
    """Return the fastest plan, or within the asked tolerance the cheapest, and the cheapest that is almost as fast."""
    solution = solve_joint(instance, options, progress, cache=cache, first=first)
    tolerance = instance.objective.tolerance
    stands(progress, solution.days, solution.lower_bound)
    best = solution.plan
    if best is None or solution.stopped != "proved" or not _cheaper_asked(instance, beside=beside):
        return solution, None
    world = world_of(instance, options, deadline, cache)
    start(progress, "a cheaper plan")
    share, in_usd = tolerance or ALMOST_AS_FAST, notes(progress)
    found = cheaper_within(world, best, share, time_limit=deadline.limit, progress=in_usd)
    plan = found.plan
    if plan is None or found.capital_usd is None or found.capital_usd > best.capital_usd - CENTS:
        return replace(solution, stopped=found.stopped) if tolerance else solution, None
    if tolerance:
        return replace(solution, plan=plan, days=found.days, stopped=found.stopped), None
    racks = sum(plan.placed.racks.values()) if plan.placed else instance.hardware.racks or 0
    return solution, CheaperPlan(days_to_train=found.days or 0.0, capital_usd=found.capital_usd, racks=racks)


def _cheaper_asked(instance: Instance, *, beside: bool) -> bool:
    """Whether a cheaper plan is looked for: by default where another may cost less, and no gateways take minutes."""
    if instance.objective.tolerance:
        return True
    network = instance.network
    return (
        beside
        and (network is not None or instance.grid is not None)
        and not (network is not None and network.wan_gateway)
    )


def options_of(
    *, time_limit: float | None, gap: float | None, seed: int, threads: int | None, solver: str | None = None
) -> Options:
    """Return the options of a solve, with the solver that was named."""
    return Options(time_limit=time_limit, gap=gap, seed=seed, threads=threads, solver=solver_named(solver))
