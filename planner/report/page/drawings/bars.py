"""Bars: parts of a whole by row, against a limit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from planner.report.page.drawings.svg import WIDTH, drawing, line, rect, text
from planner.report.page.parts import colour

BAR, STEP, TOP = 20.0, 44.0, 4.0


@dataclass(frozen=True, slots=True)
class Limit:
    """What a row must stay within."""

    value: float
    told: str


def colours(parts: Sequence[str]) -> dict[str, str]:
    """Give each part its colour, in order."""
    return {name: colour(n) for n, name in enumerate(parts)}


def stacked(
    alt: str,
    rows: Sequence[tuple[str, Mapping[str, float], Limit | None]],
    shades: Mapping[str, str],
    show: Callable[[float], str],
) -> str:
    """Draw one bar a row, its parts side by side, all on one scale; a row's limit is a dashed line; parts below zero count in the sum alone."""
    most = (
        max(
            [
                *(sum(v for v in p.values() if v > 0) for _, p, _ in rows),
                *(x.value for _, _, x in rows if x is not None),
            ],
            default=0.0,
        )
        or 1.0
    )
    scale = (WIDTH - 2) / most
    drawn: list[str] = []
    for n, (name, parts, limit) in enumerate(rows):
        y = TOP + n * STEP
        told = show(sum(parts.values())) + (f" of {show(limit.value)} ({limit.told})" if limit else "")
        drawn += [text(0, y + 11, name, "strong"), text(WIDTH, y + 11, told, "", "end")]
        x = 0.0
        for part, value in parts.items():
            if value > 0:
                drawn.append(rect(x, y + 16, value * scale, BAR, shades[part], f"{part}: {show(value)}"))
                x += value * scale
        if limit:
            drawn.append(line(limit.value * scale, y + 13, limit.value * scale, y + 19 + BAR, "limit"))
    return drawing(TOP + len(rows) * STEP, alt, "".join(drawn))
