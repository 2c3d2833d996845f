"""Lines over an axis, with the chosen point on one of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.report.page.drawings.svg import WIDTH, drawing, el, legend, line, path, text, title, width_of

LEFT, RIGHT, TOP, HEIGHT = 46.0, 12.0, 18.0, 170.0  # margins, and how high the lines may be
EDGE = 6.0  # beside the first and the last point
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)  # steps between marks of an axis, times a power of ten
MARKS = 5  # of an axis at most


@dataclass(frozen=True, slots=True)
class Line:
    """Points of a line by ascending x; `shade` is the number of its colour."""

    name: str
    points: Sequence[tuple[float, float]]
    shade: int


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its name, how a value reads, and the marks to choose from; without marks they are even."""

    name: str
    show: Callable[[float], str]
    marks: Sequence[float] = ()
    log: bool = False


def even_marks(low: float, high: float) -> list[float]:
    """Return round values with even steps that span a range."""
    width = high - low or abs(high) or 1.0
    scale = 10.0 ** math.floor(math.log10(width / MARKS))
    step = next((scale * x for x in NICE if width / (scale * x) <= MARKS), scale * 10)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, max(last, first + 1) + 1)]


def curve(alt: str, lines: Sequence[Line], chosen: tuple[float, float], x_axis: Axis, y_axis: Axis) -> str:
    """Draw lines with the chosen point, marked axes and, where there are several, their names below."""
    xs = [x for n in lines for x, _ in n.points] + [chosen[0]]
    ys = [y for n in lines for _, y in n.points] + [chosen[1]]
    left, right = min(xs), max(xs)
    y_marks = even_marks(min(ys), max(ys))
    x_marks = [x for x in x_axis.marks or even_marks(left, right) if left <= x <= right]
    place = math.log if x_axis.log else float

    def across(x: float) -> float:
        width = place(right) - place(left) or 1.0
        return LEFT + EDGE + (place(x) - place(left)) / width * (WIDTH - LEFT - RIGHT - 2 * EDGE)

    def up(y: float) -> float:
        return TOP + (y_marks[-1] - y) / (y_marks[-1] - y_marks[0]) * HEIGHT

    bottom = TOP + HEIGHT
    drawn = [text(0, 9, y_axis.name, "quiet")]
    for y in y_marks:
        drawn += [line(LEFT, up(y), WIDTH - RIGHT, up(y), "grid"), text(LEFT - 5, up(y) + 4, y_axis.show(y), "", "end")]
    for x in _apart(x_marks, across, x_axis.show):
        anchor = "end" if across(x) > WIDTH - RIGHT - 20 else "middle"
        drawn.append(line(across(x), bottom, across(x), bottom + 4, "line"))
        drawn.append(text(across(x), bottom + 16, x_axis.show(x), "", anchor))
    drawn.append(text(WIDTH - RIGHT, bottom + 31, x_axis.name, "quiet", "end"))
    drawn += [path([(across(x), up(y)) for x, y in n.points], f"k{n.shade}") for n in lines]
    tip = title(f"chosen: {x_axis.show(chosen[0])}, {y_axis.show(chosen[1])}")
    drawn.append(el("circle", tip, cx=across(chosen[0]), cy=up(chosen[1]), r=4.5, cls="chosen"))
    names, end = legend({x.name: f"c{x.shade}" for x in lines} if len(lines) > 1 else {}, bottom + 37)
    return drawing(end, alt, "".join(drawn) + names)


def _apart(marks: Sequence[float], across: Callable[[float], float], show: Callable[[float], str]) -> list[float]:
    """Return the marks whose names do not run into each other."""
    found: list[float] = []
    for x in marks:
        if not found or across(x) - across(found[-1]) > (width_of(show(x)) + width_of(show(found[-1]))) / 2 + 6:
            found.append(x)
    return found
