"""A session of solves: what one solve learned serves the next, and a given plan is where a solve starts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.checks.check_plan import check
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.joint_world import World
from planner.models.joint.search_cache import JointCache
from planner.models.joint.stage_split import Column
from planner.physics.training.parallel_strategy import shape_values
from planner.plan.plan import Plan
from planner.plan.plan_sections import LayoutPlan
from planner.planning.changed_instance import as_asked
from planner.planning.frontier import POINTS, Frontier, curve_around
from planner.planning.load import load_instance
from planner.planning.plausible_ranges import warn
from planner.planning.solve import options_of, solve_instance
from planner.solvers.outcome import relative_gap
from planner.solvers.progress import Event, Reporter, recording, turn
from planner.solvers.signals import Deadline, Interrupter, ended_by, ending_at_once
from planner.units import bounded

if TYPE_CHECKING:
    from planner.calibration.constants import MeasuredConstants


def column_of(layout: LayoutPlan, world: World) -> Column | None:
    """Return the column of a plan's layout in an instance's declared space, as a session's start; None if not in it."""
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
        pipelines, zeros = strategy.pipelines, strategy.problem.zero_stages
        if ((pipelines.p == stages) & (pipelines.v == virtual)).any() and layout.zero_stage in zeros:
            replicas, filling = layout.data_parallel, layout.microbatches_per_step
            return Column(strategy=strategy, zero=layout.zero_stage, p=stages, v=virtual, d=replicas, m=filling)
    return None


def column_like(column: Column, world: World) -> Column | None:
    """Return another question's column in an instance's declared space, as a session's start; None if not in it."""
    of = column.strategy
    for s in world.strategies():
        if (s.shape, s.order, s.packed, s.recomputes) == (of.shape, of.order, of.packed, of.recomputes):
            known = ((s.pipelines.p == column.p) & (s.pipelines.v == column.v)).any()
            return replace(column, strategy=s) if known and column.zero in s.problem.zero_stages else None
    return None


def carried(plan: Plan, instance: Instance) -> Plan | None:
    """Return a session's plan as one of another instance, without a bound; None where it breaks a rule of it.

    Nothing is assumed: every figure and limit is checked anew under that instance.
    """
    if plan.layout is None or plan.objective.name != instance.objective.minimize:
        return None
    unproven = {"status": "feasible", "bound": None, "gap": None, "checked": "", "seconds": 0.0}
    changed = {
        name: section.replaced(certificate=section.certificate.replaced(**unproven))
        for name in ("sites", "wan", "layout", "fabric", "placement")
        if (section := getattr(plan, name))
    }
    none = dict.fromkeys(("bound", "gap", "joint_bound", "joint_gap", "fabric_free_bound", "limited_by", "cheaper"))
    changed |= {"objective": plan.objective.replaced(**none, ends=()), "proof": None, "curve": None}
    ended = {"status": "feasible", "stopped": "limit", "verified": True, "violations": ()}
    found = plan.replaced(**as_asked(instance) | ended | changed)
    return None if check(found) else found


def better_of(found: Plan, start: Plan | None) -> Plan:
    """Return the session's start plan in place of what a search that was cut short has, where the start is better."""
    cut_short = found.stopped in ("limit", "interrupted") and found.status in ("unknown", "feasible")
    value, own = None if start is None else start.objective.value, found.objective.value
    if start is None or value is None or not cut_short or (own is not None and own <= value):
        return found
    bound, objective = found.objective.bound, start.objective
    if bound is not None and own is not None:
        gap = relative_gap(value, bound)
        objective = objective.replaced(bound=bound, gap=gap, joint_bound=bound, joint_gap=gap)
    kept = ("stopped", "threads", "seed", "time_limit_seconds", "planner_version")
    return start.replaced(objective=objective, **{name: getattr(found, name) for name in kept})


def read_question(
    instance: Instance | Mapping[str, Any] | str | Path,
    pins: Mapping[str, Any] | None,
    constants: "MeasuredConstants | Mapping[str, Any] | str | Path | None",
    accepted: Callable[[Instance], Instance] = lambda loaded: loaded,
) -> Instance:
    """Return the instance that a session is to solve, loaded and `accepted`; warn of its implausible figures."""
    with ending_at_once():
        loaded = accepted(load_instance(instance, pins=pins, constants=constants))
    warn(loaded)
    return loaded


def solve_once(
    loaded: Instance,
    options: Options,
    reporter: Reporter,
    *,
    start: Plan | None = None,
    interrupt: Interrupter | None = None,
    models: str | Path | None = None,
    cache: JointCache | None = None,
    curve: bool = False,
) -> Plan:
    """Solve a loaded instance once, in a session or without; the options are those of `planner.solve`."""
    reporter.unit = "usd" if loaded.objective.in_dollars else "days"
    with ended_by(interrupt), recording(None if models is None else Path(models)):
        layout = None if start is None else start.layout
        first = None if layout is None else lambda world: column_of(layout, world)
        known = None if start is None else carried(start, loaded)
        cache = JointCache() if cache is None else cache
        deadline = Deadline(options.time_limit)
        plan = better_of(solve_instance(loaded, options, reporter, cache=cache, first=first), known)
        if curve and plan.curve is None:
            drawn = curve_around(plan, replace(options, time_limit=deadline.limit), reporter, cache=cache).curve
            plan = plan.replaced(curve=drawn) if drawn.points else plan
    reporter.finish(plan.status, plan.stopped, plan.objective.value, plan.objective.bound)
    return plan


class Session:
    """Solves that keep what they learn: the next one, of the same instance with another budget, takes far less time.

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
        on_progress: Callable[[Event], Any] | None = None,
        time_limit: float | None = None,
        gap: float | None = None,
        seed: int = 0,
        threads: int | None = None,
        solver: str | None = None,
        pins: Mapping[str, Any] | None = None,
        constants: "MeasuredConstants | Mapping[str, Any] | str | Path | None" = None,
        models: str | Path | None = None,
    ) -> Plan:
        """Take every decision that the instance asks for, as `planner.solve` does.

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
        time_limit, gap, seed, threads, solver, pins, constants, models
            As in `planner.solve`.

        Raises
        ------
        PlannerError
            The input cannot be used. An infeasible instance is a plan, not an error.
        """
        reporter = Reporter(on_event=on_progress)
        options = options_of(time_limit=time_limit, gap=gap, seed=seed, threads=threads, solver=solver)
        question = read_question(instance, pins, constants)
        how: dict[str, Any] = {"start": start, "interrupt": interrupt, "models": models, "cache": self._cache}
        return solve_once(question, options, reporter, **how)

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
        """Return a curve from a session's plan to less and less capital, each point proven within a tenth.

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
        options = options_of(time_limit=deadline.limit, gap=None, seed=seed, threads=threads)
        with ended_by(interrupt):
            return curve_around(plan, options, Reporter(on_event=on_progress), cache=self._cache, points=points)

    def forget(self) -> None:
        """Free what the session kept of earlier solves."""
        with turn(Deadline()):
            self._cache = JointCache()
