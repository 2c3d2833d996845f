"""The nearest layout to a plan's that a training framework runs, and the step under the switches of a run of one."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, get_args

from planner.checks.layout import broken_rules
from planner.errors import InputError
from planner.exports.launch import CHOICES, RULES, LaunchRun, nearest_choices, zero_stages
from planner.instance.framework_rules import Overlap
from planner.instance.instance import Instance
from planner.physics.training import step_prediction
from planner.physics.training.parallel_strategy import even_layers, layout_values, strategy_of
from planner.physics.training.schedule import recomputed_alike
from planner.physics.training.step_prediction import free_conditions, machine_of
from planner.plan.plan import Plan
from planner.plan.plan_sections import STAGE_DEGREES, LayoutMetrics
from planner.simulation.simulated_slowdown import transport_slowdown_of

OTHER_DECISIONS = ("grid", "wan", "network", "reliability")  # that the plan of a layout alone is without


def layout_question(instance: Instance, gpus: int) -> Instance:
    """Return the question in which a framework's runnable layout is timed alone; racks not stated hold `gpus` GPUs."""
    pins = {path: value for path, value in instance.pins.items() if path.startswith("layout.")}
    if by_site := pins.pop("layout.data_parallel_by_site", None):  # of a grid, which is left out
        pins["layout.data_parallel"] = sum(by_site.values())
    racks = instance.hardware.racks or -(-gpus // instance.hardware.rack.gpus)
    return instance.replaced(hardware__racks=racks, pins=pins, **dict.fromkeys(OTHER_DECISIONS))


def with_switches(instance: Instance, switches: Mapping[str, Any], where: str, note: str | None) -> Instance:
    """Return the instance of a runnable layout: its software with the switches of a run; `note` adds unmodelled parts.

    `overlaps` may be a mapping of some of them, on or off: the others stay as they are.
    """
    work = instance.workload
    software = machine_of(instance).software
    stated = switches.get("overlaps")
    if isinstance(stated, Mapping):
        kept = {overlap for overlap in software.overlaps if stated.get(overlap, True)}
        kept |= {overlap for overlap, on in stated.items() if on}
        switches = {**switches, "overlaps": tuple(sorted(kept))}
    source = software.source if isinstance(software.source, dict) else {}
    update = {**switches, "source": source | dict.fromkeys(switches, where)} if switches else {}
    noted = work.note if note is None else "; ".join(text for text in (work.note, f"{where}: {note}") if text)
    return instance.replaced(workload__software=software.replaced(**update), workload__note=noted)


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
    InputError: none of them has the memory, or can be launched.
    """
    choices = nearest_choices(run, framework)
    if not choices:
        return None
    own = layout_values(strategy_of(run.layout))
    question = layout_question(plan.instance.replaced(pins={}), run.gpus)
    before, best = _predicted(question, own), None
    by_stage = framework in ("megatron", "nemo")
    # The layouts near it: other virtual and ZeRO stages, more expert parallelism, and even layers too.
    near, machine = own | choices, machine_of(question)
    stages, split, chunks = near["pipeline_parallel"], near["layers_per_stage"], [near["virtual_stages"]]
    interleaved = framework != "deepspeed" and "interleaved" in machine.software.parallelism
    if stages > 1 and not near["microbatches_per_step"] % stages and interleaved:
        chunks += [chunk for chunk in range(1, min(*split, 8) + 1) if chunk != chunks[0]]  # 8 are tried at most
    ranks, experts = near["data_parallel"] * math.prod(near[name] for name in STAGE_DEGREES), [near["expert_parallel"]]
    stated_by_key = "expert" in machine.software.parallelism and "expert_parallel" in CHOICES[framework]
    if machine.model.experts is not None and stated_by_key:
        count = machine.model.experts.count
        experts += [more for more in (2 * experts[0], 4 * experts[0]) if not ranks % more and not count % more]
    splits = sorted({tuple(even_layers(sum(split), stages))} | (set() if framework == "deepspeed" else {split}))
    least = near["zero_stage"] if near["zero_stage"] == own["zero_stage"] else 0  # any that fits, where it must differ
    stated = {zero for zero in machine.software.zero_stages_under(stages) if zero >= least}
    for virtual, layers, zero, expert in product(chunks, splits, sorted({near["zero_stage"], *stated}), experts):
        layout = near | {"virtual_stages": virtual, "layers_per_stage": layers, "zero_stage": zero}
        layout["expert_parallel"] = expert
        most, kept = -(-max(layers) // virtual), "none" if layout["recompute"] == "full" else layout["recompute"]
        low, high, found = 0, most if by_stage else 1, None
        while low <= high:  # the fewest recomputed layers with which it fits in memory
            each = (low + high) // 2
            counts = recomputed_alike(layers, virtual, each if by_stage else each * most).tolist() if each else ()
            values = layout | {"recompute": "full" if each else kept, "recomputed_layers_per_stage": tuple(counts)}
            tried = _predicted(question, values)
            if tried.fits_memory:
                found, high = (values, tried), each - 1
            else:
                low = each + 1
        if found is not None and (best is None or found[1].step_seconds < best[1].step_seconds):
            other = run.layout.replaced(**{key: value for key, value in found[0].items() if own[key] != value})
            broken = any(broken_rules(RULES[framework], other, run.model, run.sequence_length))
            best = best if broken or zero not in zero_stages(framework, other) else found
    if best is None:
        raise InputError(f"layout: no layout near it that {framework} can launch has the memory; plan with other pins")
    values, after = best
    changes = {key: (own[key], value) for key, value in values.items() if own[key] != value}
    changed = replace(run, layout=run.layout.replaced(**{key: value for key, (_, value) in changes.items()}))
    return RunnableLayout(changed, changes, after.step_seconds, after.step_seconds / before.step_seconds - 1)


def own_step(plan: Plan, run: LaunchRun, switches: Mapping[str, Any], where: str) -> list[str]:
    """Write for the export how a run file's own switches change the step of the runnable layout; [] if they do not."""
    question = plan.instance.replaced(pins={})
    layout = layout_values(strategy_of(run.layout))
    overlaps: tuple[Overlap, ...] = get_args(Overlap)
    ours = machine_of(question).software
    theirs = machine_of(with_switches(question, switches, where, None)).software
    pairs: dict[str, tuple[Any, Any]] = {name: (name in theirs.overlaps, name in ours.overlaps) for name in overlaps}
    pairs |= {name: (getattr(theirs, name), getattr(ours, name)) for name in switches if name != "overlaps"}
    # Recomputed modules are the layout's.
    pairs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and name != "recompute_modules"}

    def step_of(names: Collection[str]) -> tuple[float, float, float]:
        """Predict the step of a plan's layout with these switches as in the run file, the others as in the plan."""
        some = {name: pairs[name][0] for name in names}
        hidden = {name: some.pop(name) for name in overlaps if name in some}
        found = _predicted(with_switches(question, some | {"overlaps": hidden}, where, None), layout)
        return found.step_seconds, found.memory_bytes_per_gpu, found.memory_limit_bytes

    file, before = step_of(pairs), step_of(())
    if file == before:
        return []
    # A switch acts alone, or where all others are as in the file.
    acting = [name for name in pairs if step_of([name]) != before or step_of(pairs.keys() - {name}) != file] or [*pairs]
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


def _predicted(instance: Instance, values: dict[str, Any]) -> LayoutMetrics:
    strategy = strategy_of(values | {"data_parallel_by_site": {"cluster": values["data_parallel"]}})
    return step_prediction.metrics(instance, free_conditions(transport_slowdown_of(instance.network)), strategy)
