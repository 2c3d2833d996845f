"""What a page is made of: figures, tables, pictures and blocks, and the elements of a small SVG."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

PALETTE = 8  # colours of the style sheet, c0 to c7


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A figure of the plan as text, with its path and exact value, which let a reader check it against the plan."""

    text: str
    path: str
    value: str


PageCell = str | PageFigure
PageRow = tuple[PageCell, ...]


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table; `text_columns` have text in them and not figures."""

    caption: str
    head: tuple[str, ...]
    rows: Sequence[PageRow]
    text_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing and what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Block:
    """One part of the argument: its pictures, and the tables that explain them."""

    title: str
    pictures: Sequence[Picture] = ()
    tables: Sequence[PageTable] = ()


@dataclass(frozen=True, slots=True)
class Headline:
    """A figure of the first screen: its likely range in words, and as shares of the bar that it is drawn in."""

    label: str
    figure: PageFigure
    range: str
    low: float
    high: float
    at: float


def figure(path: str, value: Any, text: str) -> PageFigure:
    """Return a figure that carries its exact value."""
    return PageFigure(text=text, path=path, value=json.dumps(value))


def colours(parts: Sequence[str]) -> dict[str, str]:
    """Return the class of each part's colour, in order; after the palette all are grey."""
    return {name: f"c{n}" if n < PALETTE else "rest" for n, name in enumerate(parts)}


WIDTH = 420.0  # of every drawing, in units: on a phone a letter of 11 units stays readable
LETTER = {"strong": 7.6, "small": 5.9}  # units of a letter of 11, and of 9.5; fonts differ, so these are wide ones
ROW = 15.0  # units: a row of a legend


def el(tag: str, content: str = "", **attributes: str | float) -> str:
    """Return one element; `cls` is its class, an underscore in a name is a dash."""
    names = {"cls": "class"}
    text = "".join(f' {names.get(k, k.replace("_", "-"))}="{escape(shown(v))}"' for k, v in attributes.items())
    return f"<{tag}{text}>{content}</{tag}>" if content else f"<{tag}{text}/>"


def shown(value: str | float) -> str:
    """Write a coordinate in a tenth of a unit."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def title(text: str) -> str:
    """Return what a browser shows when an element is pointed at."""
    return el("title", escape(text)) if text else ""


def rect(x: float, y: float, width: float, height: float, cls: str, tip: str = "") -> str:
    """Return a box."""
    return el("rect", title(tip), x=x, y=y, width=max(width, 0.0), height=height, cls=cls)


def text(x: float, y: float, content: str, cls: str = "", anchor: str = "start") -> str:
    """Return a line of text; `anchor` is start, middle or end."""
    style = {"cls": cls} if cls else {}
    return el("text", escape(content), x=x, y=y, **style, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, cls: str, tip: str = "", width: float = 0.0) -> str:
    """Return a straight line, as wide as its class says unless a width is given."""
    style = {"stroke_width": width} if width else {}
    return el("line", title(tip), x1=x1, y1=y1, x2=x2, y2=y2, cls=cls, **style)


def path(points: list[tuple[float, float]], cls: str) -> str:
    """Return a polyline."""
    return el("path", d="M" + "L".join(f"{shown(x)} {shown(y)}" for x, y in points), cls=cls)


def drawing(height: float, alt: str, content: str) -> str:
    """Return the picture with its description."""
    box = f"0 0 {shown(WIDTH)} {shown(height)}"
    return el("svg", title(alt) + content, viewBox=box, role="img", xmlns="http://www.w3.org/2000/svg")


def width_of(content: str, cls: str = "") -> float:
    """Return the units that a text takes at most."""
    return len(content) * LETTER.get(cls.split(" ", 1)[0], 6.8)


def cut(content: str, room: float, cls: str = "") -> str:
    """Return a text, or so much of it as there is room for."""
    most = int(room / width_of("x", cls))
    return content if len(content) <= most else content[: max(1, most - 1)] + "…"


def legend(shades: Mapping[str, str], top: float) -> tuple[str, float]:
    """Write names behind their colours, as many a row as there is room for; return where the last row ends too."""
    drawn, x, y = [], 0.0, top
    for name, shade in shades.items():
        wide = 17 + width_of(name) + 10
        if x and x + wide > WIDTH:
            x, y = 0.0, y + ROW
        drawn += [rect(x, y + 2, 12, 8, shade), text(x + 17, y + 10, cut(name, WIDTH - 17))]
        x += wide
    return "".join(drawn), y + ROW if shades else top
