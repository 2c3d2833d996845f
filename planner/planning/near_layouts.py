"""Layouts near a plan's: the fastest of each kind, and the fastest that a training framework runs."""

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from planner.errors import InputError
from planner.exports.launch import LaunchRun, nearest_choices, recomputed_under
from planner.instance.framework_rules import Overlap
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.search.branch_and_bound import Loop
from planner.models.joint.search.fewest_days import FastestOfEachKind, kind_of
from planner.models.joint.search_cache import JointCache
from planner.models.joint.solve_joint import Solving, solve_joint
from planner.physics import ticking
from planner.physics.training.layer_time import days_of
from planner.physics.training.parallel_strategy import even_layers, layout_values, strategy_of
from planner.physics.training.step_prediction import machine_of
from planner.plan.plan import Plan
from planner.plan.plan_sections import STAGE_DEGREES
from planner.planning.changed_instance import in_days_of_training
from planner.planning.evaluate import Evaluation, evaluated, layout_question, with_switches
from planner.planning.frontier import checked_plan
from planner.solvers.progress import start, turn
from planner.solvers.signals import Deadline

MOST_SHAPES = 400  # that are priced; the others remain unproven
MAX_CHUNKS = 8  # virtual stages that are tried


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
    """Return near layouts, the fastest of each kind within a share of the fewest days; at the limit those so far."""
    instance = in_days_of_training(instance)
    deadline = Deadline(options.time_limit)
    with turn(deadline) as mine, ticking(deadline.check):
        if not mine:
            return NearLayouts((), within, None, proven=False)
        solving = Solving(options=options, deadline=deadline, progress=progress, cache=JointCache())
        best = solve_joint(instance, solving)
        if best.plan is None:
            return NearLayouts((), within, None, proven=best.stopped == "proved")
        start(progress, "other layouts")
        goal = FastestOfEachKind(
            world=solving.world(instance), rival=best.plan.seconds * (1 + within), most_shapes=MOST_SHAPES
        )
        goal.kinds[kind_of(best.plan.column)] = best.plan
        goal.incumbent = best.plan
        stopped = Loop(goal=goal).run()
    ranked = sorted(goal.kinds.values(), key=lambda plan: (plan.seconds, plan.capital_usd, kind_of(plan.column)))
    plans = tuple(checked_plan(instance, plan, days_of(instance, plan.seconds), options) for plan in ranked)
    return NearLayouts(plans, within, best.days, proven=best.stopped == stopped == "proved" and not goal.ended)


@dataclass(frozen=True, slots=True)
class RunnableLayout:
    """A layout near a plan's that a training framework runs, the choices that differ, and its step time."""

    run: LaunchRun
    changes: dict[str, tuple[Any, Any]]  # before and after
    step_seconds: float
    longer: float  # share of the plan's step


def runnable_layout(plan: Plan, run: LaunchRun, framework: str) -> RunnableLayout | None:
    """Return the fastest near layout that fits and the framework runs; None where it runs the plan's own.

    Stages and batch stay; virtual stages, even layers, ZeRO, more expert parallelism and recomputation are varied.
    InputError: none of them has the memory.
    """
    choices = nearest_choices(run, framework)
    if not choices:
        return None
    own = layout_values(strategy_of(run.layout)) | {"data_parallel": run.layout.data_parallel}
    question = layout_question(plan.instance.replaced(pins={}), run.gpus)
    before, best = _evaluated(question, own), None
    by_stage = framework in ("megatron", "nemo")
    for layout in _near(question, framework, own | choices):
        shape = {key: layout[key] for key in ("virtual_stages", "layers_per_stage")}
        at = replace(run, layout=run.layout.replaced(**shape))
        most, kept = max(at.chunks), "none" if layout["recompute"] == "full" else layout["recompute"]
        low, high, found = 0, most if by_stage else 1, None
        while low <= high:  # the fewest recomputed layers with which it fits in memory
            each = (low + high) // 2
            values = layout | {"recompute": kept, "recomputed_layers_per_stage": ()}
            if each:
                counts = recomputed_under(at, each if by_stage else each * most)
                values = layout | {"recompute": "full", "recomputed_layers_per_stage": counts}
            tried = _evaluated(question, values)
            if tried.memory_bytes_per_gpu <= tried.memory_limit_bytes and math.isfinite(tried.step_seconds):
                found, high = (values, tried), each - 1
            else:
                low = each + 1
        if found is not None and (best is None or found[1].step_seconds < best[1].step_seconds):
            best = found
    if best is None:
        raise InputError(f"layout: no layout near it that {framework} runs has the memory; plan with other pins")
    values, after = best
    changes = {key: (own[key], value) for key, value in values.items() if own[key] != value}
    near = replace(run, layout=run.layout.replaced(**{key: value for key, (_, value) in changes.items()}))
    return RunnableLayout(near, changes, after.step_seconds, after.step_seconds / before.step_seconds - 1)


def own_step(plan: Plan, run: LaunchRun, switches: Mapping[str, Any], where: str) -> list[str]:
    """Write lines on a run file's switches that change the step of a plan's layout, and its seconds, if any do."""
    question = plan.instance.replaced(pins={})
    layout = layout_values(strategy_of(run.layout)) | {"data_parallel": run.layout.data_parallel}
    overlaps: tuple[Overlap, ...] = get_args(Overlap)
    ours = machine_of(question).software
    theirs = machine_of(with_switches(question, switches, where, None)).software
    pairs: dict[str, tuple[Any, Any]] = {name: (name in theirs.overlaps, name in ours.overlaps) for name in overlaps}
    pairs |= {name: (getattr(theirs, name), getattr(ours, name)) for name in switches if name != "overlaps"}
    # Recomputed modules are the layout's.
    pairs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and name != "recompute_modules"}

    def cost(names: Collection[str]) -> tuple[float, float, float]:
        """Predict the step of a plan's layout with these switches as in the run file, the others as in the plan."""
        some = {name: pairs[name][0] for name in names}
        hidden = {name: some.pop(name) for name in overlaps if name in some}
        found = _evaluated(with_switches(question, some | {"overlaps": hidden}, where, None), layout)
        return found.step_seconds, found.memory_bytes_per_gpu, found.memory_limit_bytes

    file, before = cost(pairs), cost(())
    if file == before:
        return []
    # A switch acts alone, or where all others are as in the file.
    acting = [name for name in pairs if cost([name]) != before or cost(pairs.keys() - {name}) != file] or [*pairs]
    words = {True: "on", False: "off", None: "not stated"}
    stated = []
    for name in acting:
        own, plans = (words.get(value, value) for value in pairs[name])
        stated.append(f"{f'overlap of {name}' if name in overlaps else name} {own} (plan: {plans})")
    seconds, used, limit = file
    more = f", and {used / 1e9:.1f} GB of memory, {before[1] / 1e9:.1f} with the plan's" if used > before[1] else ""
    over = f", and {used / 1e9:.1f} GB of memory where {limit / 1e9:.1f} GB are" if used > limit else more
    longer = f"{seconds / before[0] - 1:+.2%} on {before[0]:.4g} s with the plan's"
    return [
        f"its switches stay, and are not the plan's: {', '.join(stated)}",
        f"a step takes {seconds:.4g} s with them, {longer}{over}",
    ]


def _evaluated(question: Instance, values: dict[str, Any]) -> Evaluation:
    given = {f"layout.{name}": value for name, value in values.items() if value != ()}
    pins = {path: list(value) if isinstance(value, tuple) else value for path, value in given.items()}
    return evaluated(question.replaced(pins=pins))


def _near(question: Instance, framework: str, layout: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield layouts near a plan's: other virtual and ZeRO stages, more expert parallelism, and even layers too."""
    machine, stages, split = machine_of(question), layout["pipeline_parallel"], layout["layers_per_stage"]
    even, chunks = tuple(even_layers(sum(split), stages)), [1]
    interleaved = framework != "deepspeed" and "interleaved" in machine.software.parallelism
    if stages > 1 and not layout["microbatches_per_step"] % stages and interleaved:
        chunks = list(range(1, min(*split, MAX_CHUNKS) + 1))
    ranks = layout["data_parallel"] * math.prod(layout[name] for name in STAGE_DEGREES)
    experts = [layout["expert_parallel"]]
    if machine.model.experts is not None and "expert" in machine.software.parallelism:
        count = machine.model.experts.count
        experts += [more for more in (2 * experts[0], 4 * experts[0]) if not ranks % more and not count % more]
    splits = sorted({even} if framework == "deepspeed" else {even, split})
    zeros = [stage for stage in machine.software.zero_stages_under(stages) if stage >= layout["zero_stage"]]
    for virtual, layers, zero, expert in itertools.product(chunks, splits, zeros, experts):
        split_as = {"virtual_stages": virtual, "layers_per_stage": layers}
        yield layout | split_as | {"zero_stage": zero, "expert_parallel": expert}
