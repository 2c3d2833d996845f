"""Bars: parts of a total by row, against a limit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from planner.report.page.drawings.svg import WIDTH, drawing, line, rect, text
from planner.report.page.parts import colour

BAR, STEP, TOP = 20.0, 44.0, 4.0


@dataclass(frozen=True, slots=True)
class Limit:
    """What a row must stay within, and its name."""

    value: float
    name: str


def colours(parts: Sequence[str]) -> dict[str, str]:
    """Return the colour of each part, in order."""
    return {name: colour(n) for n, name in enumerate(parts)}


def stacked(
    alt: str,
    rows: Sequence[tuple[str, Mapping[str, float], Limit | None]],
    shades: Mapping[str, str],
    show: Callable[[float], str],
) -> str:
    """Draw one bar a row, its parts side by side, all on one scale, and each limit as a dashed line.

    Parts below zero count in the sum alone.
    """
    lengths = [sum(v for v in parts.values() if v > 0) for _, parts, _ in rows]
    lengths += [limit.value for _, _, limit in rows if limit is not None]
    scale = (WIDTH - 2) / (max(lengths, default=0.0) or 1.0)
    drawn: list[str] = []
    for n, (name, parts, limit) in enumerate(rows):
        y = TOP + n * STEP
        total = show(sum(parts.values())) + (f" of {show(limit.value)} ({limit.name})" if limit else "")
        drawn += [text(0, y + 11, name, "strong"), text(WIDTH, y + 11, total, "", "end")]
        x = 0.0
        for part, value in parts.items():
            if value > 0:
                drawn.append(rect(x, y + 16, value * scale, BAR, shades[part], f"{part}: {show(value)}"))
                x += value * scale
        if limit:
            drawn.append(line(limit.value * scale, y + 13, limit.value * scale, y + 19 + BAR, "limit"))
    return drawing(TOP + len(rows) * STEP, alt, "".join(drawn))
