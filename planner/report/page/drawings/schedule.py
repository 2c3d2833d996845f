"""The schedule of a step to scale: a row a stage, with what it waits for and what once a step follows."""

from collections.abc import Iterator

from planner.plan.layout import LayoutPlan
from planner.report.page.drawings.curve import even_marks
from planner.report.page.drawings.svg import WIDTH, drawing, legend, line, rect, text

LEFT, BAR, STEP = 62.0, 22.0, 27.0  # units: room for names, the height of a bar, and from one to the next
ROWS = 6  # stages that are drawn: the first, the last and some between them
ALONE = 10  # passes of the drain that are drawn one by one; of more, that many wider ones
EXCHANGES = ("tensor_parallel", "context_parallel", "expert_parallel", "pipeline_send", "sharding")
BUBBLES = ("pipeline_bubble", "chunk_wait", "ring_wait")
GRADIENTS, ENDS = ("data_parallel", "between_sites"), ("optimizer", "cpu_overhead")
SHADES = {"compute": "c0", "exposed exchange": "c5", "bubble": "c4", "gradients": "c3", "optimiser, host": "c6"}


def schedule(name: str, x: LayoutPlan) -> str:
    """Draw some stages of a pipeline over one step; each bar is as long as its seconds."""
    m, stages = x.metrics, x.pipeline_parallel
    chosen = sorted({round(n * (stages - 1) / (ROWS - 1)) for n in range(ROWS)}) if stages > 1 else [0]
    scale = (WIDTH - LEFT) / m.step_seconds
    passes = sum(v for k, v in m.breakdown_seconds.items() if k not in (*GRADIENTS, *ENDS, *BUBBLES))
    # The share of the passes that is exchange which nothing hides.
    exposed = sum(m.breakdown_seconds.get(k, 0.0) for k in EXCHANGES) / passes if passes else 0.0
    used, drawn = set(), []
    for row, stage in enumerate(chosen):
        y, at = 2 + row * STEP, LEFT
        drawn.append(text(0, y + 15, f"stage {stage}"))
        for kind, seconds in pieces(x, stage):
            width, tip = seconds * scale, f"stage {stage}, {kind}: {seconds:.3g} s"
            if width > 0:
                used.add(kind)
                drawn.append(rect(at, y, width, BAR, SHADES[kind], tip))
            # The exchange that work does not hide is as large a part of its bar as of its time.
            if width > 0 and kind == "compute" and exposed:
                used.add("exposed exchange")
                shade = SHADES["exposed exchange"]
                drawn.append(rect(at, y + BAR * (1 - exposed), width, BAR * exposed, shade, tip))
            at += width
    y = 2 + len(chosen) * STEP
    for mark in [v for v in even_marks(0.0, m.step_seconds) if v <= m.step_seconds]:
        at = LEFT + mark * scale
        anchor = "end" if at > WIDTH - 16 else "middle"
        drawn += [line(at, y - 3, at, y + 2, "line"), text(at, y + 13, f"{mark:g} s", "small", anchor)]
    names, end = legend({k: v for k, v in SHADES.items() if k in used}, y + 20)
    alt = f"{name}Schedule of one step of {m.step_seconds:.3g} s, stages {', '.join(map(str, chosen))} of {stages}"
    return drawing(end, alt, "".join(drawn) + names)


def pieces(x: LayoutPlan, stage: int) -> Iterator[tuple[str, float]]:
    """Yield what a stage does in a step, one thing after the other; the seconds sum to the step.

    1F1B as in Narayanan et al. (2021): a stage begins when those before it have passed on their first micro-batch,
    waits for the first to come back, and in the drain for each of the last ones. Each stage waits as long as any
    other. What is a bubble in all is the plan's, of which each stage before or behind takes an equal part; how it
    divides into forward and backward passes is by the plan's backward pass of a layer. What unequal chunks and sends
    behind rings wait for is spread over the passes, and drawn as one.
    """
    parts, before, behind = x.metrics.breakdown_seconds, stage, x.pipeline_parallel - 1 - stage
    bubble, *waits = (parts.get(k, 0.0) for k in BUBBLES)
    wait = sum(waits)
    gradients, ends = (sum(parts.get(k, 0.0) for k in keys) for keys in (GRADIENTS, ENDS))
    work = x.metrics.step_seconds - bubble - wait - gradients - ends
    each = bubble / max(1, x.pipeline_parallel - 1)
    chunk = max(x.layers_per_stage, default=1) / x.virtual_stages
    backward = min(x.metrics.allreduce_window_seconds * chunk, 0.75 * each) or 2 / 3 * each
    forward = each - backward
    warm = min((behind + 1) * forward, work / 3)
    drained = min(behind * backward, work - warm)
    yield "bubble", before * forward
    yield "compute", warm
    yield "bubble", behind * backward
    yield "compute", work - warm - drained
    yield "bubble", wait
    times = min(behind, ALONE)
    for _ in range(times):
        yield "bubble", behind * forward / times
        yield "compute", drained / times
    yield "bubble", before * backward
    yield "gradients", gradients
    yield "optimiser, host", ends
