"""SVG elements and charts of pages: bars, waterfall, memory of stages, lines over an axis, schedule of a step."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from planner.plan.plan_sections import DEGREES, LayoutPlan
from planner.report.decisions import DaysPart, name_of_part
from planner.units import memory

Point = tuple[float, float]  # of a drawing, in units, or of a curve


def colours(parts: Sequence[str]) -> dict[str, str]:
    """Return the CSS class of each chart part's colour: c0 to c7 of the style sheet in order, then grey for all."""
    return {name: f"c{index}" if index < 8 else "rest" for index, name in enumerate(parts)}


WIDTH = 420.0  # of every drawing, in units: on a phone a letter of 11 units stays readable
LETTER = {"strong": 7.6, "small": 5.9}  # units of a letter of 11, and of 9.5; fonts differ, so these are wide ones
ROW = 15.0  # units: a row of a legend


def el(tag: str, content: str = "", tip: str = "", **attributes: str | float) -> str:
    """Return an SVG element of a chart; `tip` is its tooltip, `cls` its class, an underscore in a name is a dash."""
    named = {"class" if name == "cls" else name.replace("_", "-"): shown(x) for name, x in attributes.items()}
    text = "".join(f' {name}="{escape(value)}"' for name, value in named.items())
    content = (el("title", escape(tip)) if tip else "") + content
    return f"<{tag}{text}>{content}</{tag}>" if content else f"<{tag}{text}/>"


def shown(value: str | float) -> str:
    """Write an SVG coordinate of a chart to a tenth of a unit."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def rect(x: float, y: float, width: float, height: float, cls: str, tip: str = "") -> str:
    """Return the SVG box of a chart's bar or part."""
    return el("rect", tip=tip, x=x, y=y, width=max(width, 0.0), height=height, cls=cls)


def text(x: float, y: float, content: str, cls: str = "", anchor: str = "start") -> str:
    """Return an SVG line of text of a chart; `anchor` is start, middle or end."""
    return el("text", escape(content), x=x, y=y, **({"cls": cls} if cls else {}), text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, cls: str, tip: str = "", width: float = 0.0) -> str:
    """Return a straight SVG line of a chart, as wide as its class says unless a width is given."""
    style: dict[str, Any] = {"stroke_width": width} if width else {}
    return el("line", tip=tip, x1=x1, y1=y1, x2=x2, y2=y2, cls=cls, **style)


def path(points: list[Point], cls: str) -> str:
    """Return an SVG polyline through points of a chart."""
    return el("path", d="M" + "L".join(f"{shown(x)} {shown(y)}" for x, y in points), cls=cls)


def width_of(content: str, cls: str = "") -> float:
    """Bound the width that a text of a chart takes, in SVG units."""
    return len(content) * LETTER.get(cls.split(" ", 1)[0], 6.8)


def shortened(content: str, room: float, cls: str = "") -> str:
    """Return a text of a chart, shortened to an ellipsis where it is wider than `room` SVG units."""
    most = int(room / width_of("x", cls))
    return content if len(content) <= most else content[: max(1, most - 1)] + "…"


def drawing(height: float, alt: str, drawn: Sequence[str], shades: Mapping[str, str] | None = None) -> str:
    """Return a chart's SVG with its description, and a legend of names and colours below, as many a row as fit."""
    names, x, y = [], 0.0, height
    for name, shade in (shades or {}).items():
        wide = 17 + width_of(name) + 10
        if x and x + wide > WIDTH:
            x, y = 0.0, y + ROW
        names += [rect(x, y + 2, 12, 8, shade), text(x + 17, y + 10, shortened(name, WIDTH - 17))]
        x += wide
    box = f"0 0 {shown(WIDTH)} {shown(y + ROW if shades else height)}"
    return el("svg", "".join([*drawn, *names]), alt, viewBox=box, role="img", xmlns="http://www.w3.org/2000/svg")


CURVE_LEFT, CURVE_RIGHT, CURVE_TOP, CURVE_HEIGHT = 46.0, 12.0, 18.0, 170.0  # margins, and how high the lines may be
EDGE = 6.0  # units: margin left of the first point and right of the last
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)  # steps between marks of an axis, times a power of ten
MARKS = 5  # of an axis at most


class ChartLine(NamedTuple):
    """A line of a chart: its points by ascending x; `shade` is the number of its colour."""

    name: str
    points: Sequence[Point]
    shade: int


class ChartAxis(NamedTuple):
    """An axis of a chart: its name, how a value reads, and the marks to choose from; without marks round ones."""

    name: str
    show: Callable[[float], str]
    marks: Sequence[float] = ()
    log: bool = False


def marks_over(low: float, high: float, *, log: bool = False) -> list[float]:
    """Return round axis marks of a chart that span a range: in even steps, or 1, 2 and 5 times powers of ten."""
    if log:
        powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
        marks = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
        inside = [mark for mark in marks if low < mark < high]
        return [max(mark for mark in marks if mark <= low), *inside, min(mark for mark in marks if mark >= high)]
    width = high - low or abs(high) or 1.0
    scale = 10.0 ** math.floor(math.log10(width / MARKS))
    step = next((scale * nice for nice in NICE if width / (scale * nice) <= MARKS), scale * 10)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [count * step for count in range(first, max(last, first + 1) + 1)]


def curve(alt: str, lines: Sequence[ChartLine], chosen: Point, x_axis: ChartAxis, y_axis: ChartAxis) -> str:
    """Draw a chart of lines with the chosen point, marked axes and, where there are several, their names below."""
    xs = [x for line in lines for x, _ in line.points] + [chosen[0]]
    ys = [y for line in lines for _, y in line.points] + [chosen[1]]
    left, right = min(xs), max(xs)
    y_marks = marks_over(min(ys), max(ys), log=y_axis.log)
    x_marks = x_axis.marks or marks_over(left, right, log=x_axis.log)
    x_marks = [mark for mark in x_marks if left <= mark <= right]
    place, high = math.log if x_axis.log else float, math.log if y_axis.log else float

    def across(x: float) -> float:
        width = place(right) - place(left) or 1.0
        return CURVE_LEFT + EDGE + (place(x) - place(left)) / width * (WIDTH - CURVE_LEFT - CURVE_RIGHT - 2 * EDGE)

    def up(y: float) -> float:
        height = high(y_marks[-1]) - high(y_marks[0]) or 1.0
        return CURVE_TOP + (high(y_marks[-1]) - high(y)) / height * CURVE_HEIGHT

    bottom = CURVE_TOP + CURVE_HEIGHT
    drawn = [text(0, 9, y_axis.name, "quiet")]
    for y in y_marks:
        drawn.append(line(CURVE_LEFT, up(y), WIDTH - CURVE_RIGHT, up(y), "grid"))
        drawn.append(text(CURVE_LEFT - 5, up(y) + 4, y_axis.show(y), "", "end"))
    apart: list[float] = []  # marks whose names do not run into each other
    for x in x_marks:
        half = (width_of(x_axis.show(x)) + width_of(x_axis.show(apart[-1]))) / 2 if apart else 0.0
        if not apart or across(x) - across(apart[-1]) > half + 6:
            apart.append(x)
            anchor = "end" if across(x) > WIDTH - CURVE_RIGHT - 20 else "middle"
            drawn.append(line(across(x), bottom, across(x), bottom + 4, "line"))
            drawn.append(text(across(x), bottom + 16, x_axis.show(x), "", anchor))
    drawn.append(text(WIDTH - CURVE_RIGHT, bottom + 31, x_axis.name, "quiet", "end"))
    drawn += [path([(across(x), up(y)) for x, y in line.points], f"k{line.shade}") for line in lines]
    tip = f"chosen: {x_axis.show(chosen[0])}, {y_axis.show(chosen[1])}"
    drawn.append(el("circle", tip=tip, cx=across(chosen[0]), cy=up(chosen[1]), r=4.5, cls="chosen"))
    return drawing(bottom + 37, alt, drawn, {x.name: f"c{x.shade}" for x in lines} if len(lines) > 1 else None)


# Units: the height of a bar and from one to the next, of rows and of a waterfall; room above both.
BAR, STEP, FALL_BAR, FALL_STEP, TOP = 20.0, 44.0, 13.0, 20.0, 4.0
FALL_LEFT, FALL_RIGHT = 138.0, 66.0  # of a waterfall: room for names and for figures
STAGES_TOP, HIGH, LEAST = 16.0, 120.0, 1.2  # above bars of memory, the limit's height, the narrowest gap between bars
PARTS, OTHER = 5, "other"  # of memory that have a colour of their own
ChartRow = tuple[str, Mapping[str, float], tuple[float, str] | None]  # name, sizes by part, a limit and its name
StageMemory = tuple[int, int, Mapping[str, float]]  # layers, how many of them run again, bytes by part


def stacked(alt: str, rows: Sequence[ChartRow], shades: Mapping[str, str], show: Callable[[float], str]) -> str:
    """Draw a bar chart, the parts of each row in one bar (below zero in the sum only), limits dashed, with a legend."""
    lengths = [sum(value for value in parts.values() if value > 0) for _, parts, _ in rows]
    lengths += [limit[0] for _, _, limit in rows if limit is not None]
    scale = (WIDTH - 2) / (max(lengths, default=0.0) or 1.0)
    drawn: list[str] = []
    for row, (name, parts, limit) in enumerate(rows):
        y = TOP + row * STEP
        total = show(sum(parts.values())) + (f" of {show(limit[0])} ({limit[1]})" if limit else "")
        name_of_row = shortened(name, WIDTH - width_of(total) - 8, "strong")
        drawn += [text(0, y + 11, name_of_row, "strong"), text(WIDTH, y + 11, total, "", "end")]
        x = 0.0
        for part, value in parts.items():
            if value > 0:
                drawn.append(rect(x, y + 16, value * scale, BAR, shades[part], f"{part}: {show(value)}"))
                x += value * scale
        if limit:
            drawn.append(line(limit[0] * scale, y + 13, limit[0] * scale, y + 19 + BAR, "limit"))
    whole = {name: sum(parts.get(name, 0.0) for _, parts, _ in rows) for name in shades}
    named = {f"{key} {show(item)}" if len(rows) == 1 else key: shades[key] for key, item in whole.items() if item > 0}
    return drawing(TOP + len(rows) * STEP, alt, drawn, dict(list(named.items())[:9]))  # a legend holds no more


def waterfall(alt: str, bars: Sequence[tuple[DaysPart, str]], show: Callable[[float], str]) -> str:
    """Draw a waterfall chart, bars joined where they end: parts below zero go back, sums begin at 0."""
    spans: list[tuple[float, float]] = []
    for bar, _ in bars:
        start = 0.0 if bar.is_sum or not spans else spans[-1][1]
        spans.append((start, start + bar.days))
    scale = (WIDTH - FALL_LEFT - FALL_RIGHT) / (max((end for _, end in spans), default=0.0) or 1.0)
    drawn: list[str] = []
    for row, ((bar, shade), (start, end)) in enumerate(zip(bars, spans, strict=True)):
        y, low, high = TOP + row * FALL_STEP, FALL_LEFT + min(start, end) * scale, FALL_LEFT + max(start, end) * scale
        style = "strong" if bar.is_sum else ""
        drawn += [text(0, y + 11, bar.name, style), text(WIDTH, y + 11, show(bar.days), style, "end")]
        # What is thinner than a line still shows that it is there.
        drawn.append(rect(low, y + 1, max(high - low, 0.8), FALL_BAR, shade, f"{bar.name}: {show(bar.days)}"))
        if row + 1 < len(bars):
            x = FALL_LEFT + end * scale
            drawn.append(line(x, y + 1 + FALL_BAR, x, y + 1 + FALL_STEP, "line"))
    return drawing(TOP + len(bars) * FALL_STEP, alt, drawn)


def stages(in_memory: Sequence[StageMemory], limit: float) -> str:
    """Draw a chart of pipeline stages' memory against a limit, equal neighbours as one bar, parts by colour."""
    all_names = {name for _, _, parts in in_memory for name in parts}
    largest = {name: max(parts.get(name, 0.0) for _, _, parts in in_memory) for name in all_names}
    names = sorted(largest, key=lambda name: (-largest[name], name))
    named = [*names[:PARTS], *([OTHER] if len(names) > PARTS else [])]
    shades = colours(named)
    fullest = max(sum(parts.values()) for _, _, parts in in_memory)
    scale = HIGH / max(limit, fullest)
    runs = [(stage, len(list(group))) for stage, group in groupby(in_memory)]
    gap = LEAST if len(runs) < WIDTH / 5 else 0.0
    drawn, first, foot = [], 0, STAGES_TOP + HIGH
    for (layers, repeated, parts), count in runs:
        left, wide = first / len(in_memory) * WIDTH, count / len(in_memory) * WIDTH - gap
        which = f"stage {first}" if count == 1 else f"stages {first} to {first + count - 1}"
        recomputed = f", {repeated} recomputed" if repeated else ""
        y, total = foot, sum(parts.values())
        shown = {name: parts.get(name, 0.0) for name in names[:PARTS]}
        shown[OTHER] = sum(parts.get(name, 0.0) for name in names[PARTS:])
        for name, size in shown.items():
            if size > 0:
                y -= size * scale
                tip = f"{which}: {layers} layers{recomputed}; {name_of_part(name)} {memory(size)} of {memory(total)}"
                drawn.append(rect(left, y, wide, size * scale, shades[name], tip))
        first += count
    drawn += [line(0, foot - limit * scale, WIDTH, foot - limit * scale, "limit"), text(0, 10, memory(limit))]
    drawn += [text(WIDTH, 10, f"fullest {memory(fullest)}", "", "end"), text(0, foot + 13, "stage 0")]
    if len(in_memory) > 1:
        drawn.append(text(WIDTH, foot + 13, f"stage {len(in_memory) - 1}", "", "end"))
    alt = f"Memory by stage of {len(in_memory)} stages, at most {memory(fullest)}"
    return drawing(foot + 20, alt, drawn, {name_of_part(name): shades[name] for name in named})


# Units: room for names, the height of a bar, and from one to the next.
SCHEDULE_LEFT, STAGE_BAR, STAGE_STEP = 62.0, 22.0, 27.0
STAGE_ROWS = 6  # stages that are drawn: the first, the last and some between them
ALONE = 10  # passes of the drain that are drawn one by one; of more, that many wider ones
EXCHANGES = (*DEGREES[:3], "pipeline_send", "sharding")
BUBBLES = ("pipeline_bubble", "chunk_wait", "ring_wait")
GRADIENTS, ENDS = ("data_parallel", "between_sites"), ("optimizer", "cpu_overhead")
STAGE_SHADES = {"compute": "c0", "exposed exchange": "c5", "bubble": "c4", "gradients": "c3", "optimiser, host": "c6"}


def schedule(name: str, layout: LayoutPlan) -> str:
    """Draw a chart of some stages' pipeline schedule over one step; each bar is as long as its seconds."""
    metrics, stages = layout.metrics, layout.pipeline_parallel
    chosen = sorted({round(row * (stages - 1) / (STAGE_ROWS - 1)) for row in range(STAGE_ROWS)}) if stages > 1 else [0]
    scale = (WIDTH - SCHEDULE_LEFT) / metrics.step_seconds
    passes = sum(time for name, time in metrics.breakdown_seconds.items() if name not in (*GRADIENTS, *ENDS, *BUBBLES))
    # The share of the passes that is exchange which nothing hides.
    exposed = sum(metrics.breakdown_seconds.get(name, 0.0) for name in EXCHANGES) / passes if passes else 0.0
    used, drawn = set(), []
    for row, stage in enumerate(chosen):
        y, at = 2 + row * STAGE_STEP, SCHEDULE_LEFT
        drawn.append(text(0, y + 15, f"stage {stage}"))
        for kind, seconds in pieces(layout, stage):
            width, tip = seconds * scale, f"stage {stage}, {kind}: {seconds:.3g} s"
            # The exchange that work does not hide is as large a part of its bar as of its time.
            for name_of_bar, part in ((kind, 1.0), ("exposed exchange", exposed if kind == "compute" else 0.0)):
                if width > 0 and part:
                    used.add(name_of_bar)
                    foot = y + STAGE_BAR * (1 - part)
                    drawn.append(rect(at, foot, width, STAGE_BAR * part, STAGE_SHADES[name_of_bar], tip))
            at += width
    y = 2 + len(chosen) * STAGE_STEP
    for mark in (mark for mark in marks_over(0.0, metrics.step_seconds) if mark <= metrics.step_seconds):
        at = SCHEDULE_LEFT + mark * scale
        anchor = "end" if at > WIDTH - 16 else "middle"
        drawn += [line(at, y - 3, at, y + 2, "line"), text(at, y + 13, f"{mark:g} s", "small", anchor)]
    of = f"stages {', '.join(map(str, chosen))} of {stages}"
    alt = f"{name}Schedule of one step of {metrics.step_seconds:.3g} s, {of}"
    return drawing(y + 20, alt, drawn, {name: shade for name, shade in STAGE_SHADES.items() if name in used})


def pieces(layout: LayoutPlan, stage: int) -> Iterator[tuple[str, float]]:
    """Yield the bars of a stage in a chart of the pipeline's schedule, (kind, seconds) each; they sum to the step.

    1F1B as in Narayanan et al. (2021): a stage begins when those before it have passed on their first micro-batch,
    waits for the first to come back, and in the drain for each of the last ones. Each stage waits as long as any
    other. The bubble is the plan's, of which each stage before or behind takes an equal part; it is divided into
    forward and backward passes by the plan's backward pass of a layer. The waits of unequal chunks, and of sends for
    rings, are spread over the passes, and drawn as one.
    """
    parts, before, behind = layout.metrics.breakdown_seconds, stage, layout.pipeline_parallel - 1 - stage
    bubble, *waits = (parts.get(name, 0.0) for name in BUBBLES)
    wait = sum(waits)
    gradients, ends = (sum(parts.get(name, 0.0) for name in keys) for keys in (GRADIENTS, ENDS))
    work = layout.metrics.step_seconds - bubble - wait - gradients - ends
    each = bubble / max(1, layout.pipeline_parallel - 1)
    chunk = max(layout.layers_per_stage, default=1) / layout.virtual_stages
    backward = min(layout.metrics.allreduce_window_seconds * chunk, 0.75 * each) or 2 / 3 * each
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
