"""Solve an instance, once or in a session: the joint optimum of all decisions asked for, or why there is none."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from planner.argument_ranges import bounded
from planner.calibration.constants import Given
from planner.checks.check_plan import check
from planner.errors import InputError
from planner.instance.hardware import hardware_kind
from planner.instance.instance import Instance
from planner.instance.plausible_ranges import warn
from planner.models import Options
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_question import Solving, World
from planner.models.joint.joint_solution import EPS, JointSolution
from planner.models.joint.search.branch_and_bound import Loop
from planner.models.joint.search.fewest_days import FastestOfEachKind, kind_of
from planner.models.joint.solve_joint import refuse_unusable_pins, solve_joint
from planner.models.joint.stage_split import Column
from planner.models.joint.tied_plans import ended_by_choice, kept_within
from planner.models.model_choice import of_one_model
from planner.physics import ticking
from planner.physics.network.fabric_designs import max_joined_racks
from planner.physics.training.parallel_strategy import shape_values
from planner.physics.training.step_prediction import days_of
from planner.plan.certificate import Conflict, LimitedBy, decision_of
from planner.plan.plan import Plan, as_asked
from planner.plan.plan_sections import LayoutPlan
from planner.planning import model_size
from planner.planning.changed_instance import in_days_of_training
from planner.planning.conflict import conflict_of, over_budget, too_late
from planner.planning.frontier import POINTS, Frontier, checked_plan, curve_around, marked, plan_of_frontier, with_curve
from planner.planning.hardware_choice import HardwareAnswer, best_choice, plan_of_pools, with_alternatives
from planner.planning.joint_plan import inspection, known_answer, plan_of, unanswered
from planner.planning.load import load_instance
from planner.solvers import search_deadline, signals
from planner.solvers.model_files import recording
from planner.solvers.outcome import UnansweredError, relative_gap
from planner.solvers.progress import Event, Progress, Reporter, start
from planner.solvers.registry import SOLVERS
from planner.solvers.search_deadline import Deadline, OutOfTimeError, turn
from planner.solvers.signals import ENDED, Interrupter, ended_by, ending_at_once


def solve_instance(
    instance: Instance,
    options: Options,
    progress: Progress,
    *,
    cache: JointCache | None = None,
    first: Callable[[World], Column | None] | None = None,
    others: bool = True,
) -> Plan:
    """Take all decisions that a loaded instance asks for, the model's choice among them, and return the plan, checked.

    A limit, a signal or an interrupter ends the search with the best plan so far, or with none and the reason;
    KeyboardInterrupt without a plan is raised again. What is left of the time goes to the recomputation of the bound;
    every other rule is checked in any case. Threads take turns, and the wait counts. `cache` is what earlier solves
    left, and `first` names a column to price before any other: they save time and change no answer. Without `others`
    the plan says nothing of other plans that its choice does not need: of cheaper ones, and of what limits the campus.
    """
    if instance.grid is not None:
        if instance.pins and instance.objective.minimize != "loss":
            refuse_unusable_pins(instance)
        with signals.uninterrupted():
            import planner.models.joint.shapes.site_choice  # noqa: F401  # Pyomo and HiGHS, before the solve's clock starts
    if isinstance(progress, Reporter):
        progress.writer = lambda found: checked_plan(found[0], found[1], found[2], options)
    deadline, cache = Deadline(options.time_limit), cache or JointCache()
    with turn(deadline) as mine:
        if not mine:
            return unanswered(instance, options, f"{ENDED[deadline.cause]} before this solve's turn", deadline.cause)
        try:
            with deadline.leaving_a_first_plan() as longer, ticking(longer.check):
                how = Solving(options=options, deadline=longer, progress=progress, cache=cache, first=first)
                plan = _solved(instance, how, others=others or instance.objective.tolerance > 0)
        except OutOfTimeError:  # before the search, which returns the best plan so far, could begin
            plan = unanswered(instance, options, f"{ENDED[deadline.cause]} before the search began", deadline.cause)
        except UnansweredError as error:  # of a question that a plan cannot be written without
            plan = unanswered(instance, options, str(error))
        if plan.stopped == "proved" and plan.status not in ("optimal", "infeasible"):
            ended = deadline.cause if deadline.passed else "gap" if plan.status == "feasible" else "limit"
            plan = plan.replaced(stopped=ended)
        start(progress, "check")
        asked = inspection(plan, cache)
        seen = asked is not None and asked in cache.inspected
        broken = check(plan, stop=lambda: seen or deadline.passed)
        if asked is not None and not (seen or broken or deadline.passed):
            cache.inspected.append(asked)
        return marked(plan, broken)


def _solved(instance: Instance, solving: Solving, *, others: bool) -> Plan:
    if instance.hardware.pools:
        start(solving.progress, "shares of the pools")
        return plan_of_pools(instance, solving)

    def alone(asked: Instance) -> Plan:
        with search_deadline.with_a_first_plan_of_its_own():
            return _decided(asked, replace(solving, cache=JointCache(), first=None), seek_others=False)

    if instance.objective.minimize == "loss":
        return model_size.solve(instance, alone, solving.progress, solving.deadline)
    if instance.objective.minimize == "frontier":
        return plan_of_frontier(instance, solving.left, solving.progress, alone)
    return _decided(instance, solving, seek_others=others)


def _decided(instance: Instance, solving: Solving, *, seek_others: bool) -> Plan:
    # `seek_others`: for a plan in days, also seek a cheaper plan and the limit that the campus reaches.
    options, deadline, progress = solving.options, solving.deadline, solving.progress
    started = deadline.elapsed
    key, known = known_answer(solving.cache, instance, options, seek_others=seek_others)
    if known is None:
        best, *others = best_choice(instance, solving, kept_within(instance, seek_others=seek_others))
        whole, instance, solution = instance, best.instance, best.solution
        more = dict[str, Any]()
        if instance.objective.minimize in ("days_to_train", "loss"):
            own = replace(solving, cache=solving.cache.of(instance))
            solution, more = ended_by_choice(instance, solution, own, seek_others=seek_others)
        proven = solution.plan is not None and solution.stopped == "proved"
        if key is not None and proven and not deadline.passed:  # else an end of the choice may have been cut short
            solving.cache.answers.append((key, instance.workload.tokens, solution, more))
    else:
        solution, more = known
        whole, best, others = instance, HardwareAnswer(instance, solution), []
    kinds = [own for own in (best, *others) if own.instance.grid == instance.grid]
    refused = too_late(instance, solution, solving)
    if refused is not None and refused.rules:
        refused = _of_each_gpu(refused, kinds, solving)
    start(progress, "writing the plan")
    plan = plan_of(instance, _without(instance, solution, refused), options, deadline.elapsed - started, more)
    if instance.objective.minimize == "total_cost_of_ownership_usd" and refused is None:
        refused = over_budget(instance, plan.objective.value, solution.lower_bound)
        plan = plan if refused is None else plan_of(instance, _without(instance, solution, refused), options, 0.0)
    plan = with_alternatives(plan, whole, best, others)
    if refused is not None:
        return plan.replaced(conflict=refused)
    if seek_others and plan.status == "optimal" and instance.objective.minimize == "days_to_train":
        end, ends = limited_by(instance, solution, solving), plan.objective.ends
        if end == "layout" and ends and ends[0].value < ends[-1].days_to_train * (1 - EPS):
            end = "tolerance"
        plan = plan.replaced(objective__limited_by=end)
    if solution.status == "infeasible":
        start(progress, "why there is no plan")
        return plan.replaced(conflict=_of_each_gpu(conflict_of(instance, solving.left), kinds, solving))
    return plan


def _of_each_gpu(first: Conflict, kinds: list[HardwareAnswer], solving: Solving) -> Conflict:
    """Return the conflict of the first GPU joined with those of the alternatives, each of which may differ."""
    if len(kinds) <= 1:
        return first
    each = [first]
    each += (too_late(x.instance, x.solution, solving) or conflict_of(x.instance, solving.left) for x in kinds[1:])
    on = (f"on {hardware_kind(own.instance.hardware)[0]} " for own in kinds)
    reason = "; ".join(gpu + why.reason for gpu, why in zip(on, each, strict=True))
    rules = tuple(dict.fromkeys(rule for why in each for rule in why.rules))
    joined = all((why.decision, why.checked) == (decision_of(rules), "") for why in each)
    return first.replaced(reason=reason, rules=rules if joined else first.rules)


def _without(instance: Instance, solution: JointSolution, refused: Conflict | None) -> JointSolution:
    """Return a solve's solution, without its plan if that breaks a limit: infeasible where it is proven that all do."""
    if refused is None:
        return solution
    in_time = tuple(entry for entry in solution.excluded if entry[0] < (instance.limits.deadline_days or 0.0))
    return replace(solution, plan=None, status="infeasible" if refused.rules else "unknown", excluded=in_time)


def limited_by(instance: Instance, solution: JointSolution, solving: Solving) -> LimitedBy | None:
    """Return the limit of a solved instance that one more block of racks would reach; None where unproven or late.

    It is `fabric` where a pinned leaf, one tier or two join no more at as many sites as may be open, `grid` where power
    and sites have no room for the block at any price, `budget` where the rest of the budget does not buy it on the
    cheapest fabric, and else `layout`: no strategy is faster with the block. `owned_racks` are those without a grid.
    """
    choice = solution.plan
    if choice is None or solution.stopped != "proved":
        return None
    block = choice.column.block
    blocks, joined = sum(choice.blocks_by_site.values()), max_joined_racks(instance, block.rails)
    used, more = block.racks * blocks, block.racks * (blocks + 1)
    if instance.grid is None:
        return "owned_racks" if more > (instance.hardware.racks or 0) else "fabric" if more > joined else "layout"
    from planner.models.joint.shapes.site_choice import Sites

    asked, own = (instance, instance.replaced(limits__budget_usd=None)), solving.options
    here, rich = (Sites(instance=each, seed=own.seed, threads=own.threads) for each in asked)
    here.deadline = rich.deadline = solving.deadline
    left = (instance.limits.budget_usd or math.inf) - choice.capital_usd
    idle = sum(choice.placed.racks.values()) - used if choice.placed else 0
    least_usd = here.floor_usd(max(0, block.racks - idle), 0) + block.racks * here.min_fabric_usd(block.rails)
    if block.racks * (blocks // here.max_open + 1) > joined:
        return "fabric"
    try:
        if more > rich.max_racks(block.rails):
            return "grid"
        return "budget" if left < least_usd or more > here.max_racks(block.rails) else "layout"
    except (OutOfTimeError, UnansweredError):
        return None


def column_of(layout: LayoutPlan, world: World) -> Column | None:
    """Return the column of a plan's layout, from which a session's next solve starts; None if not in its space."""
    stages, virtual = layout.pipeline_parallel, layout.virtual_stages
    for strategy in world.strategies():
        own = shape_values(strategy.shape) | {"schedule": strategy.order}
        kept = strategy.shape.recompute == layout.recompute and strategy.recomputes != "some"
        kept = strategy.recomputes != "none" if layout.recompute == "full" else kept
        if not kept or any(own[x] != getattr(layout, x) for x in own.keys() - {"recompute", "experts_overlap"}):
            continue
        block = strategy.block(stages)
        if block is None or block.stages_per_rack != layout.stages_per_rack:
            continue
        if world.has(strategy, stages, virtual, layout.zero_stage):
            replicas, filling = layout.data_parallel, layout.microbatches_per_step
            return Column(strategy=strategy, zero=layout.zero_stage, p=stages, v=virtual, d=replicas, m=filling)
    return None


def read_question(
    instance: Instance | Plan | Mapping[str, Any] | str | Path,
    pins: Mapping[str, Any] | None,
    constants: Given | None,
    accepted: Callable[[Instance], Instance] = lambda loaded: loaded,
) -> Instance:
    """Return the instance that is to be solved, loaded and `accepted`; warn of its implausible figures."""
    with ending_at_once():
        loaded = accepted(load_instance(instance, pins=pins, constants=constants))
    warn(loaded)
    return loaded


def _no_worse(plan: Plan, start: Plan, asked: Instance) -> Plan:
    """Return the plan of a solve, or its start, where the solve was cut short and the start is better and holds."""
    value, own, bound = start.objective.value, plan.objective.value, plan.objective.bound
    cut_short = plan.stopped in ("limit", "interrupted") and plan.status in ("unknown", "feasible")
    same = start.layout is not None and start.objective.name == asked.objective.minimize
    if value is None or not (cut_short and same) or (own is not None and own <= value):
        return plan
    # Nothing of the start is assumed, nor its bound: its figures are checked anew under these rules.
    unproven = {"status": "feasible", "bound": None, "gap": None, "checked": "", "seconds": 0.0}
    changed = {
        name: section.replaced(certificate=section.certificate.replaced(**unproven))
        for name in ("sites", "wan", "layout", "fabric", "placement")
        if (section := getattr(start, name))
    }
    none = ("bound", "gap", "joint_bound", "joint_gap", "fabric_free_bound", "limited_by", "cheaper")
    objective = start.objective.replaced(**dict.fromkeys(none), ends=())
    ended = {"status": "feasible", "stopped": "limit", "verified": True, "violations": (), "proof": None, "curve": None}
    carried = start.replaced(**as_asked(asked) | ended | changed, objective=objective)
    if check(carried):
        return plan
    if bound is not None and own is not None:
        gap = relative_gap(value, bound)
        objective = objective.replaced(bound=bound, gap=gap, joint_bound=bound, joint_gap=gap)
    kept = ("stopped", "threads", "seed", "time_limit_seconds", "planner_version")
    return carried.replaced(objective=objective, **{name: getattr(plan, name) for name in kept})


class Session:
    """A session of solves that keeps what they learn: the same instance with another budget takes far less time.

    What hardware, workload, software, network and grid decide is kept between solves: ways to cut the model, their
    times, tables of fabrics, answers of the sites, and the plans as starts. A change of budget, of a cluster's racks,
    of deadline, tokens, objective or name goes on from it; any other begins anew. The answer and its proof are those
    of `planner.solve`. Its solves may come from several threads: they take turns.
    """

    def __init__(self) -> None:
        self._cache = JointCache()

    @bounded
    def solve(
        self,
        instance: Instance | Mapping[str, Any] | str | Path,
        *,
        start: Plan | None = None,
        interrupt: Interrupter | None = None,
        progress: Callable[[str], None] | None = None,
        on_progress: Callable[[Event], Any] | None = None,
        time_limit: float | None = None,
        gap: float | None = None,
        seed: int = 0,
        threads: int | None = None,
        solver: str | None = None,
        pins: Mapping[str, Any] | None = None,
        constants: Given | None = None,
        models: str | Path | None = None,
        curve: bool = False,
    ) -> Plan:
        """Solve an instance in a session: take every decision that it asks for, as `planner.solve` does.

        Parameters
        ----------
        start
            A plan at hand, of this instance or one like it. Its layout is priced first; where it breaks no rule of this
            instance, which is checked, the plan that comes back is no worse, even of a solve that was cut short.
        interrupt
            Ends the solve from another thread with the best plan so far.
        on_progress
            Called with each Event, in the thread of the solve. If it raises, that is logged, it is called no more, and
            the solve goes on.
        progress, time_limit, gap, seed, threads, solver, pins, constants, models, curve
            As in `planner.solve`.

        Raises
        ------
        PlannerError
            The input cannot be used. An infeasible instance is a plan, not an error.
        """
        reporter = Reporter(on_line=progress, on_event=on_progress)
        if solver is not None and solver not in SOLVERS:
            raise InputError(f"solver: must be one of {', '.join(SOLVERS)} (is {solver!r})")
        options = Options(time_limit=time_limit, gap=gap, seed=seed, threads=threads, solver=solver)
        asked, deadline = read_question(instance, pins, constants), Deadline(time_limit)
        reporter.unit = "usd" if asked.objective.in_dollars else "days"
        with ended_by(interrupt), recording(None if models is None else Path(models)):
            first = partial(column_of, start.layout) if start is not None and start.layout is not None else None
            plan = solve_instance(asked, options, reporter, cache=self._cache, first=first)
            plan = plan if start is None else _no_worse(plan, start, asked)
            if curve and plan.curve is None:
                left = replace(options, time_limit=deadline.limit)
                drawn = curve_around(plan, left, reporter, cache=self._cache).curve
                plan = with_curve(plan, drawn) if drawn.points else plan
        reporter.finish(plan.status, plan.stopped, plan.objective.value, plan.objective.bound)
        return plan

    @bounded
    def curve(
        self,
        plan: Plan | Instance | Mapping[str, Any] | str | Path,
        *,
        points: int = POINTS,
        interrupt: Interrupter | None = None,
        on_progress: Callable[[Event], Any] | None = None,
        time_limit: float | None = None,
        seed: int = 0,
        threads: int | None = None,
    ) -> Frontier:
        """Return the frontier of a solved session's plan to less and less capital, each point proven within a tenth.

        Parameters
        ----------
        plan
            A plan of this session or of a file, with its bound; an instance is solved first.
        points
            Most points of the curve, the plan itself among them.
        interrupt, on_progress, time_limit, seed, threads
            As in `solve`; of what ends the search the curve keeps the points so far.

        Returns
        -------
        Frontier
            `curve.points` by rising capital; `plans`, one for each point in the same order; `curve.epsilon`, the share
            within which they cover all other plans between the first and the last, proven. Without points where no
            curve has a meaning: a goal in money, pools, a fabric alone, no plan; a warning in the log says why.

        Raises
        ------
        PlannerError
            The input cannot be used.
        """
        deadline = Deadline(time_limit)
        if not isinstance(plan, Plan):
            plan = self.solve(
                plan, interrupt=interrupt, on_progress=on_progress, time_limit=time_limit, seed=seed, threads=threads
            )
        options = Options(time_limit=deadline.limit, seed=seed, threads=threads)
        with ended_by(interrupt):
            return curve_around(plan, options, Reporter(on_event=on_progress), cache=self._cache, points=points)

    def forget(self) -> None:
        """Free what a session keeps of its earlier solves of instances."""
        with turn(Deadline()):
            self._cache = JointCache()


@dataclass(frozen=True, slots=True)
class NearLayouts:
    """A solve's layouts near the fastest: the best plan of each kind within a share of the fewest days, in order.

    A kind is tensor, context, expert and pipeline parallelism. `proven`: no other kind has a plan within the share, and
    none of these a faster one; `within`: the share; `fewest_days`: of the first; `conflict`: why there is no plan.
    """

    plans: tuple[Plan, ...]
    within: float
    fewest_days: float | None
    proven: bool
    conflict: Conflict | None = None


def near_layouts(instance: Instance, options: Options, progress: Progress, *, within: float = 0.02) -> NearLayouts:
    """Solve for layouts near the fastest: of each kind one within a share of the days; at the limit those so far."""
    instance = in_days_of_training(of_one_model(instance))
    if instance.workload.choose is not None:  # of a plan, whose model stays
        instance = instance.replaced(objective__minimize="days_to_train", workload__choose=None)
    deadline = Deadline(options.time_limit)
    with turn(deadline) as mine, ticking(deadline.check):
        if not mine:
            return NearLayouts((), within, None, proven=False)
        solving = Solving(options=options, deadline=deadline, progress=progress)
        best = solve_joint(instance, solving)
        why = too_late(instance, best, solving)
        if best.plan is None or why is not None:
            none = best.status == "infeasible" or (why is not None and bool(why.rules))
            why = conflict_of(instance, solving.left) if none and why is None else why
            return NearLayouts((), within, None, proven=none, conflict=why)
        start(progress, "other layouts")
        world, rival = solving.world(instance), best.plan.seconds * (1 + within)
        goal = FastestOfEachKind(world=world, rival=rival, most_shapes=400)  # the others remain unproven
        goal.kinds[kind_of(best.plan.column)] = goal.incumbent = best.plan
        stopped = Loop(goal=goal).run()
    ranked = sorted(goal.kinds.values(), key=lambda plan: (plan.seconds, plan.capital_usd, kind_of(plan.column)))
    plans = tuple(checked_plan(instance, plan, days_of(instance, plan.seconds), options) for plan in ranked)
    return NearLayouts(plans, within, best.days, proven=best.stopped == stopped == "proved" and not goal.ended)
