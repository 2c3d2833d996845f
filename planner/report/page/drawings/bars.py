"""Bars: parts of a total by row against a limit, a waterfall of parts that add up, and the memory of stages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from planner.report.page.drawings.svg import WIDTH, cut, drawing, legend, line, rect, text, width_of
from planner.report.page.parts import colours
from planner.report.plots.labels import plain
from planner.units import memory

# Units: the height of a bar and from one to the next, of rows and of a waterfall; room above both.
BAR, STEP, FALL_BAR, FALL_STEP, TOP = 20.0, 44.0, 13.0, 20.0, 4.0
LEFT, RIGHT = 138.0, 66.0  # of a waterfall: room for names and for figures
STAGES_TOP, HIGH, LEAST = 16.0, 120.0, 1.2  # above bars of memory, the limit's height, the narrowest gap between bars
MOST_NAMES = 9  # of a legend
PARTS, OTHER = 5, "other"  # of memory that have a colour of their own


@dataclass(frozen=True, slots=True)
class Limit:
    """What a row must stay within, and its name."""

    value: float
    name: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a waterfall, or a sum, which begins at 0."""

    name: str
    value: float
    shade: str
    is_sum: bool = False


@dataclass(frozen=True, slots=True)
class StageMemory:
    """The layers of a stage, how many of them run again, and its bytes by part."""

    layers: int
    repeated: int
    parts: Mapping[str, float]


def stacked(
    alt: str,
    rows: Sequence[tuple[str, Mapping[str, float], Limit | None]],
    shades: Mapping[str, str],
    show: Callable[[float], str],
) -> str:
    """Draw one bar a row, its parts side by side, all on one scale, each limit as a dashed line, and a legend.

    Parts below zero count in the sum alone.
    """
    lengths = [sum(v for v in parts.values() if v > 0) for _, parts, _ in rows]
    lengths += [limit.value for _, _, limit in rows if limit is not None]
    scale = (WIDTH - 2) / (max(lengths, default=0.0) or 1.0)
    drawn: list[str] = []
    for n, (name, parts, limit) in enumerate(rows):
        y = TOP + n * STEP
        total = show(sum(parts.values())) + (f" of {show(limit.value)} ({limit.name})" if limit else "")
        name_of_row = cut(name, WIDTH - width_of(total) - 8, "strong")
        drawn += [text(0, y + 11, name_of_row, "strong"), text(WIDTH, y + 11, total, "", "end")]
        x = 0.0
        for part, value in parts.items():
            if value > 0:
                drawn.append(rect(x, y + 16, value * scale, BAR, shades[part], f"{part}: {show(value)}"))
                x += value * scale
        if limit:
            drawn.append(line(limit.value * scale, y + 13, limit.value * scale, y + 19 + BAR, "limit"))
    whole = {k: sum(parts.get(k, 0.0) for _, parts, _ in rows) for k in shades}
    named = {f"{k} {show(v)}" if len(rows) == 1 else k: shades[k] for k, v in whole.items() if v > 0}
    names, end = legend(dict(list(named.items())[:MOST_NAMES]), TOP + len(rows) * STEP)
    return drawing(end, alt, "".join(drawn) + names)


def waterfall(alt: str, bars: Sequence[Bar], show: Callable[[float], str]) -> str:
    """Draw a bar a line on one scale, joined where they end; parts below zero go back."""
    spans: list[tuple[float, float]] = []
    for b in bars:
        start = 0.0 if b.is_sum or not spans else spans[-1][1]
        spans.append((start, start + b.value))
    scale = (WIDTH - LEFT - RIGHT) / (max((end for _, end in spans), default=0.0) or 1.0)
    drawn: list[str] = []
    for n, (b, (start, end)) in enumerate(zip(bars, spans, strict=True)):
        y, low, high = TOP + n * FALL_STEP, LEFT + min(start, end) * scale, LEFT + max(start, end) * scale
        style = "strong" if b.is_sum else ""
        drawn += [text(0, y + 11, b.name, style), text(WIDTH, y + 11, show(b.value), style, "end")]
        # What is thinner than a line still shows that it is there.
        drawn.append(rect(low, y + 1, max(high - low, 0.8), FALL_BAR, b.shade, f"{b.name}: {show(b.value)}"))
        if n + 1 < len(bars):
            x = LEFT + end * scale
            drawn.append(line(x, y + 1 + FALL_BAR, x, y + 1 + FALL_STEP, "line"))
    return drawing(TOP + len(bars) * FALL_STEP, alt, "".join(drawn))


def stages(in_memory: Sequence[StageMemory], limit: float) -> str:
    """Draw the memory of stages from first to last against a limit, equal neighbours as one bar, parts by colour."""
    largest = {k: max(s.parts.get(k, 0.0) for s in in_memory) for k in {k for s in in_memory for k in s.parts}}
    names = sorted(largest, key=lambda k: (-largest[k], k))
    named = [*names[:PARTS], *([OTHER] if len(names) > PARTS else [])]
    shades = colours(named)
    fullest = max(sum(s.parts.values()) for s in in_memory)
    scale = HIGH / max(limit, fullest)
    runs = [(s, len(list(g))) for s, g in groupby(in_memory)]
    gap = LEAST if len(runs) < WIDTH / 5 else 0.0
    drawn, first, foot = [], 0, STAGES_TOP + HIGH
    for s, count in runs:
        left, wide = first / len(in_memory) * WIDTH, count / len(in_memory) * WIDTH - gap
        which = f"stage {first}" if count == 1 else f"stages {first} to {first + count - 1}"
        recomputed = f", {s.repeated} recomputed" if s.repeated else ""
        y, total = foot, sum(s.parts.values())
        shown = {k: s.parts.get(k, 0.0) for k in names[:PARTS]}
        shown[OTHER] = sum(s.parts.get(k, 0.0) for k in names[PARTS:])
        for k, size in shown.items():
            if size > 0:
                y -= size * scale
                tip = f"{which}: {s.layers} layers{recomputed}; {plain(k)} {memory(size)} of {memory(total)}"
                drawn.append(rect(left, y, wide, size * scale, shades[k], tip))
        first += count
    drawn += [line(0, foot - limit * scale, WIDTH, foot - limit * scale, "limit"), text(0, 10, memory(limit))]
    drawn.append(text(WIDTH, 10, f"fullest {memory(fullest)}", "", "end"))
    drawn.append(text(0, foot + 13, "stage 0"))
    if len(in_memory) > 1:
        drawn.append(text(WIDTH, foot + 13, f"stage {len(in_memory) - 1}", "", "end"))
    key, end = legend({plain(k): shades[k] for k in named}, foot + 20)
    return drawing(end, f"Memory by stage of {len(in_memory)} stages, at most {memory(fullest)}", "".join(drawn) + key)
