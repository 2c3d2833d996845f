"""What each stage of a pipeline holds in memory, against the limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from planner.report.page.drawings.svg import WIDTH, drawing, legend, line, rect, text
from planner.report.page.parts import colours
from planner.report.plots.labels import plain
from planner.units import memory

TOP, HIGH, LEAST = 16.0, 120.0, 1.2  # units: above the bars, the limit's height, and the narrowest gap between bars
PARTS, OTHER = 5, "other"  # of memory that have a colour of their own


@dataclass(frozen=True, slots=True)
class StageMemory:
    """The layers of a stage, how many of them run again, and its bytes by part."""

    layers: int
    repeated: int
    parts: Mapping[str, float]


def stages(found: Sequence[StageMemory], limit: float) -> str:
    """Draw stages from first to last, equal neighbours as one bar, each part by its colour."""
    largest = {k: max(s.parts.get(k, 0.0) for s in found) for k in {k for s in found for k in s.parts}}
    names = sorted(largest, key=lambda k: (-largest[k], k))
    named = [*names[:PARTS], *([OTHER] if len(names) > PARTS else [])]
    shades = colours(named)
    scale = HIGH / max(limit, *(sum(s.parts.values()) for s in found))
    runs = [(s, len(list(g))) for s, g in groupby(found)]
    drawn, first, foot = [], 0, TOP + HIGH
    for s, count in runs:
        left, wide = first / len(found) * WIDTH, count / len(found) * WIDTH - (LEAST if len(runs) < WIDTH / 5 else 0.0)
        which = f"stage {first}" if count == 1 else f"stages {first} to {first + count - 1}"
        recomputed = f", {s.repeated} recomputed" if s.repeated else ""
        y, total = foot, sum(s.parts.values())
        shown = {k: s.parts.get(k, 0.0) for k in names[:PARTS]} | {
            OTHER: sum(s.parts.get(k, 0.0) for k in names[PARTS:])
        }
        for k, size in shown.items():
            if size > 0:
                y -= size * scale
                tip = f"{which}: {s.layers} layers{recomputed}; {plain(k)} {memory(size)} of {memory(total)}"
                drawn.append(rect(left, y, wide, size * scale, shades[k], tip))
        first += count
    fullest = max(sum(s.parts.values()) for s in found)
    drawn += [line(0, foot - limit * scale, WIDTH, foot - limit * scale, "limit"), text(0, 10, f"{memory(limit)}")]
    drawn.append(text(WIDTH, 10, f"fullest {memory(fullest)}", "", "end"))
    drawn.append(text(0, foot + 13, "stage 0"))
    if len(found) > 1:
        drawn.append(text(WIDTH, foot + 13, f"stage {len(found) - 1}", "", "end"))
    key, end = legend({plain(k): shades[k] for k in named}, foot + 20)
    return drawing(end, f"Memory by stage of {len(found)} stages, at most {memory(fullest)}", "".join(drawn) + key)
