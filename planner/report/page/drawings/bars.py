"""Bars: parts of a total by row, against a limit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from planner.report.page.drawings.svg import WIDTH, cut, drawing, legend, line, rect, text, width_of

BAR, STEP, TOP = 20.0, 44.0, 4.0
MOST_NAMES = 9  # of a legend


@dataclass(frozen=True, slots=True)
class Limit:
    """What a row must stay within, and its name."""

    value: float
    name: str

    @staticmethod
    def given(value: float | None, name: str) -> "Limit | None":
        """Return the limit where there is one."""
        return Limit(value, name) if value else None


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
    one = len(rows) == 1
    named = {f"{k} {show(v)}" if one else k: shades[k] for k, v in whole.items() if v > 0}
    names, end = legend(dict(list(named.items())[:MOST_NAMES]), TOP + len(rows) * STEP)
    return drawing(end, alt, "".join(drawn) + names)
