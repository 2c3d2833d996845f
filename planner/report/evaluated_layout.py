"""An evaluated layout as lines of text: its time and its memory by part, and the constants that each part rests on."""

from itertools import groupby

from planner.physics.training import step_errors
from planner.plan.plan_sections import LayoutMetrics
from planner.planning.evaluate import Evaluation
from planner.report.decisions import name_of_part
from planner.units import counted


def evaluation_text(result: Evaluation, *, why: bool = False) -> str:
    """Write an evaluated layout as one screen: time and memory by part; `why`: with the constants behind them."""
    layout = result.layout
    tensor, context, expert = layout.degrees
    batch = f"{counted(layout.microbatches_per_step, 'micro-batch')} of {layout.microbatch_sequences}"
    (low, high), (first, last), like = result.step_seconds_interval, result.days_to_train_interval, result.like_rows
    bias = f"predicted {abs(like.bias):.1%} {'above' if like.bias > 0 else 'below'} measured on average"
    support = f"{counted(like.sources, 'source')}, which differ by {like.between_sources:.1%}"
    lines = [
        f"{result.name}: your layout {'fits' if result.fits else 'does not run'}",
        f"LAYOUT     TP {tensor} x CP {context} x EP {expert} x PP {layout.pipeline_parallel} "
        f"(v {layout.virtual_stages}, {layout.schedule}) x DP {layout.data_parallel:,}; {batch}; "
        f"ZeRO-{layout.zero_stage}, recompute {layout.recompute}"
        f"{', sequence parallel' if layout.sequence_parallel else ''}",
        f"           {layout.gpus_used:,} GPUs; {result.tokens_per_step / 1e6:,.2f}M tokens a step; "
        f"{result.days_to_train:,.1f} days; MFU {100 * result.mfu:.1f} %",
        f"           {result.stack}",
        *(f"           left open: {text}" for text in result.filled.values()),
        *(f"           {problem}" for problem in result.problems),
        f"TIME       {result.step_seconds:.4g} s a step; measured in 4 of 5 like runs: {low:.4g} to {high:.4g} s",
        f"           {first:,.1f} to {last:,.1f} days; like runs: {like.rows} of {like.name}, {bias}",
        f"           of {support}; the fitted constants leave {result.constants_deviation:.1%}",
    ]
    for reason in result.extrapolated:
        names = ", ".join(path.rsplit(".", 1)[1] for path in reason.constants)
        behind = f": rests on {names}" if 0 < len(reason.constants) <= 12 else ""
        lines.append(f"           extrapolated: {reason.reason}{behind}")
    for part, line in time_lines(result).items():
        texts = []
        for constant in result.rests_on[part] if why else ():
            value, rows = constant.value, ""
            if isinstance(value, tuple):
                value = "+".join(value) or "none"
            elif isinstance(value, (int, float)):
                value = f"{value:.4g}"
            if constant.rows is not None and constant.rows < step_errors.FEW_ROWS:
                rows = f" ({counted(constant.rows, 'row')})" if constant.rows else " (no row)"
            texts.append(f"{constant.path.split('.', 1)[1]} {value}{rows}")
        lines.append(f"{line}   {', '.join(texts)}" if why else line)
    lines += memory_lines(result)
    # Stages in a row that have the same memory share a line, with its parts, the largest first.
    stages = []
    for of in result.memory_by_stage_bytes:
        sizes = sorted(((part, size) for part, size in of.items() if size > 0), key=lambda item: -item[1])
        parts = " + ".join(f"{size / 1e9:.1f} {name_of_part(part)}" for part, size in sizes)
        stages.append(f"{sum(of.values()) / 1e9:.1f} GB = {parts}")
    for text, group in groupby(range(len(stages)), key=lambda i: stages[i]):
        first_stage, *others = group
        name = f"stages {first_stage} to {others[-1]}" if others else f"stage {first_stage}"
        lines.append(f"  {name:28}{text}")
    return "\n".join(lines)


def time_lines(metrics: LayoutMetrics) -> dict[str, str]:
    """Write a line for each part of an evaluated step that does not round to 0, longest first: seconds, share."""
    seconds, lines = metrics.breakdown_seconds, dict[str, str]()
    for part in sorted(seconds, key=lambda part: -seconds[part]):
        if (share := seconds[part] / metrics.step_seconds) > 1e-9:  # rounding apart
            lines[part] = f"  {name_of_part(part):28}{seconds[part]:9.4g} s {100 * share:6.1f} %"
    return lines


def memory_lines(metrics: LayoutMetrics) -> list[str]:
    """Write the memory in GB of the fullest GPU of an evaluated layout, and a line for each part of it."""
    used, limit = metrics.memory_bytes_per_gpu / 1e9, metrics.memory_limit_bytes / 1e9
    head = f"MEMORY     {used:.1f} of {limit:.1f} GB on the fullest GPU"
    parts = sorted(metrics.memory_breakdown_bytes.items(), key=lambda item: -item[1])
    return [head, *(f"  {name_of_part(part):28}{size / 1e9:9.2f} GB" for part, size in parts if size)]
