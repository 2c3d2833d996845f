"""What a page is made of: figures that name their value's path in the plan, tables and blocks."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.plan.plan import Plan

PALETTE = 8  # colours of the style sheet, c0 to c7


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the plan as text, with its path and exact value, which let a reader check it against the plan."""

    text: str
    path: str
    value: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Swatch:
    """A name with the colour that it has in the picture beside it."""

    text: str
    colour: str


Cell = str | Figure | Swatch
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
    """One part of a plan: pictures, the same in tables, notes, and longer texts by name."""

    title: str
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    texts: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One plan."""

    name: str
    anchor: str
    status: str
    good: bool
    headline: str
    cards: tuple[Figure, ...]
    conflict: tuple[str, tuple[str, ...]] | None = None
    blocks: tuple[Block, ...] = ()


def value_at(plan: Plan, path: str) -> Any:
    """Return the value at a dotted path, None where a part is missing; `[*]` sums over entries."""
    return _value_at(plan, path.replace("[*]", ".*").split("."))


def _value_at(value: Any, parts: list[str]) -> Any:
    for n, part in enumerate(parts):
        if value is None:
            return None
        if part == "*":
            entries = value.values() if isinstance(value, dict) else value
            terms = [v for x in entries if (v := _value_at(x, parts[n + 1 :])) is not None]
            return sum(terms) if terms else None
        if isinstance(value, tuple):
            value = value[int(part)]
        else:
            value = value.get(part) if isinstance(value, dict) else getattr(value, part)
    return value


def figure(path: str, value: Any, text: str, label: str = "") -> Figure:
    """Return a figure that carries its exact value."""
    return Figure(text=text, path=path, value=json.dumps(value), label=label)


def figures_of(path: str, source: Any) -> Callable[..., Cell]:
    """Return a function that makes a figure of a field of the object or dict at a path, "-" where it is None."""

    def cell(name: str, show: Callable[[Any], str] = "{:,}".format) -> Cell:
        value = source[name] if isinstance(source, Mapping) else getattr(source, name)
        return "-" if value is None else figure(f"{path}.{name}", value, show(value))

    return cell


def colour(place: int) -> str:
    """Return the class of the n-th colour; after the palette all are grey."""
    return f"c{place}" if place < PALETTE else "rest"
