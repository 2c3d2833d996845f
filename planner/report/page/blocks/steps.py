"""How a step runs: the pipeline's schedule to scale, and what each stage holds in memory."""

from collections.abc import Iterator

from planner.physics.plan_physics import layout_faults
from planner.physics.training.blocks import prediction
from planner.physics.training.parallel_strategy import read_strategy
from planner.plan.layout import LayoutPlan
from planner.plan.plan import Plan
from planner.report.page.drawings.schedule import BUBBLES, schedule
from planner.report.page.drawings.stages import StageMemory, stages
from planner.report.page.parts import Block, Picture
from planner.report.statements.statement import short_percent
from planner.report.statements.training import machine_of, recomputes
from planner.units import counted, memory

SCHEDULE = "One step to scale; light blue in a bar is exchange that compute does not hide, as large as its share."


def steps(plan: Plan) -> Iterator[Block]:
    """Show the schedule of the layout, or of each pool's, and the memory of its stages against HBM."""
    if plan.layout is not None:
        pictures = [_schedule("", plan.layout), *_memory(plan, plan.layout)]
        yield Block("How a step runs", pictures)
    elif plan.pools is not None:
        yield Block("How a step runs", [_schedule(f"{name}: ", x) for name, x in plan.pools.layouts.items()])


def _schedule(name: str, x: LayoutPlan) -> Picture:
    m = x.metrics
    bubble = sum(m.breakdown_seconds.get(k, 0.0) for k in BUBBLES) / m.step_seconds
    of = f"{counted(x.pipeline_parallel, 'stage')}, {counted(x.microbatches_per_step, 'micro-batch')} a replica"
    return Picture(schedule(name, x), f"{name}{of}: {short_percent(bubble)} of the step is bubble. {SCHEDULE}")


def _memory(plan: Plan, x: LayoutPlan) -> Iterator[Picture]:
    machine, m = machine_of(plan), x.metrics
    if machine is None or list(layout_faults(x)):
        return
    parts = {k: v.tolist() for k, v in prediction.stage_bytes(machine, read_strategy(x.model_dump())).items()}
    recomputed = x.recomputed_layers_per_stage or (x.layers_per_stage if x.recompute == "full" else ())
    found = []
    for n, layers in enumerate(x.layers_per_stage):
        own = {k: v[n] for k, v in parts.items() if v[n] > 0}
        found.append(StageMemory(layers=layers, repeated=recomputed[n] if recomputed else 0, parts=own))
    svg = stages(found, m.memory_limit_bytes)
    limit = f"dashed: {memory(m.memory_limit_bytes)}, HBM less its reserves"
    yield Picture(svg, f"Memory of a GPU of each stage; {limit}. The plan {recomputes(x)}.")
