"""What a page is made of: figures that say which value of the plan they are, tables and blocks."""

import json
from dataclasses import dataclass, field
from typing import Any

from planner.plan.plan import Plan

PALETTE = 8


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the plan: how it reads, and its path and exact value, which stand in the page for whoever holds it against the plan."""

    text: str
    path: str
    value: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Swatch:
    """A name with the colour that it has in the picture beside."""

    text: str
    colour: str


Cell = str | Figure | Swatch


@dataclass(frozen=True, slots=True)
class Table:
    """A table; columns named in `words` hold text and not figures."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing and what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Block:
    """One part of a plan's story: pictures, the same in tables, notes, and longer accounts by name."""

    title: str
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    accounts: tuple[tuple[str, str], ...] = ()


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
    blocks: tuple[Block, ...] = field(default=())


def resolved(plan: Plan, path: str) -> Any:
    """Return the value at a dotted path; `[*]` sums over the entries of a list or dict; None where a part is missing."""
    return _at(plan, path.replace("[*]", ".*").split("."))


def _at(held: Any, parts: list[str]) -> Any:
    for n, part in enumerate(parts):
        if held is None:
            return None
        if part == "*":
            entries = list(held.values()) if isinstance(held, dict) else list(held)
            found = [_at(x, parts[n + 1 :]) for x in entries]
            return sum(v for v in found if v is not None) if any(v is not None for v in found) else None
        held = (
            held[int(part)]
            if isinstance(held, tuple)
            else held.get(part)
            if isinstance(held, dict)
            else getattr(held, part)
        )
    return held


def figure(path: str, value: Any, text: str, label: str = "") -> Figure:
    """Return a figure that carries its exact value."""
    return Figure(text=text, path=path, value=json.dumps(value), label=label)


def colour(place: int) -> str:
    """Return the class of the n-th colour; beyond the palette all are grey."""
    return f"c{place}" if place < PALETTE else "rest"
