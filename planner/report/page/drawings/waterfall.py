"""A waterfall: parts that add up to sums, each bar beginning where the one before it ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.report.page.drawings.svg import WIDTH, drawing, line, rect, text

LEFT, RIGHT = 138.0, 66.0  # for names and for figures
BAR, STEP, TOP = 13.0, 20.0, 4.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A part, or a sum, which begins at 0."""

    name: str
    value: float
    shade: str
    is_sum: bool = False


def waterfall(alt: str, bars: Sequence[Bar], show: Callable[[float], str]) -> str:
    """Draw a bar a line on one scale, joined where they end; parts below zero go back."""
    spans: list[tuple[float, float]] = []
    for b in bars:
        start = 0.0 if b.is_sum or not spans else spans[-1][1]
        spans.append((start, start + b.value))
    scale = (WIDTH - LEFT - RIGHT) / (max((end for _, end in spans), default=0.0) or 1.0)
    drawn: list[str] = []
    for n, (b, (start, end)) in enumerate(zip(bars, spans, strict=True)):
        y, low, high = TOP + n * STEP, LEFT + min(start, end) * scale, LEFT + max(start, end) * scale
        style = "strong" if b.is_sum else ""
        drawn += [text(0, y + 11, b.name, style), text(WIDTH, y + 11, show(b.value), style, "end")]
        # What is thinner than a line still shows that it is there.
        drawn.append(rect(low, y + 1, max(high - low, 0.8), BAR, b.shade, f"{b.name}: {show(b.value)}"))
        if n + 1 < len(bars):
            x = LEFT + end * scale
            drawn.append(line(x, y + 1 + BAR, x, y + 1 + STEP, "line"))
    return drawing(TOP + len(bars) * STEP, alt, "".join(drawn))
