"""What a page is made of: figures that name their value's path in the plan, tables, pictures and blocks."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PALETTE = 8  # colours of the style sheet, c0 to c7


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the plan as text, with its path and exact value, which let a reader check it against the plan."""

    text: str
    path: str
    value: str


Cell = str | Figure
Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `text_columns` have text in them and not figures."""

    caption: str
    head: tuple[str, ...]
    rows: Sequence[Row]
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
    tables: Sequence[Table] = ()


@dataclass(frozen=True, slots=True)
class Headline:
    """A figure of the first screen: its likely range in words, and as shares of the bar that it is drawn in."""

    label: str
    figure: Figure
    range: str
    low: float
    high: float
    at: float


def figure(path: str, value: Any, text: str) -> Figure:
    """Return a figure that carries its exact value."""
    return Figure(text=text, path=path, value=json.dumps(value))


def colours(parts: Sequence[str]) -> dict[str, str]:
    """Return the class of each part's colour, in order; after the palette all are grey."""
    return {name: f"c{n}" if n < PALETTE else "rest" for n, name in enumerate(parts)}
