"""Hostlists such as r[0001-0103,0205] or rack1node[01-02]: runs folded, order kept, numbers padded as they were.

Format and order are Slurm's: names fold on their last number alone, and brackets before the last turn faster the
further left they are. Forms that Slurm guesses at (a bracket left open, an empty item, a range without an end) are
refused.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from planner.errors import InputError

PREFIX = "r"
MAX_RANGE = 65_536  # Slurm refuses a longer range (MAX_RANGE of its hostlist.c), so longer runs are written as several.
MAX_NAMES = 4_000_000  # Beyond any cluster: a slip of a digit must not fill the memory.
MAX_DIGITS = 18  # Slurm keeps numbers in 64 bits; longer ones are written out.
_RANGE = re.compile(rf"(\d{{1,{MAX_DIGITS}}})(?:-(\d{{1,{MAX_DIGITS}}}))?", re.ASCII)
_RACKS = re.compile(rf"{PREFIX}(?:\d+|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])", re.ASCII)
_TAIL = re.compile(r"(.*?)(\d+)", re.ASCII | re.DOTALL)
_PLAIN = re.compile(r"[^\s,\[\]]+")


def width(racks: int) -> int:
    """Return the digits of a site's largest rack number, racks being numbered from 0."""
    return len(str(max(racks - 1, 0)))


def fold(numbers: Iterable[int], digits: int = 1) -> str:
    """Write rack numbers in their order, ascending runs as first-last; nothing for no racks."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1 and number - runs[-1][0] < MAX_RANGE:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "".join(_bracketed(PREFIX, [(f"{first:0{digits}d}", f"{last:0{digits}d}") for first, last in runs]))


def parse(text: str) -> list[int]:
    """Read rack numbers back in their order.

    ValueError if the text is not a hostlist of racks, or a range runs backwards.
    """
    if not text:
        return []
    if _RACKS.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a list of racks; write one as {PREFIX}[0001-0103,0205]")
    item = _parsed(text)
    if item.size > MAX_NAMES:
        expand(text)  # raises the error that names the size
    return (
        [number for first, last, _ in item.brackets[0] for number in range(first, last + 1)]
        if item.brackets
        else [int(text.removeprefix(PREFIX))]
    )


def fold_names(names: Iterable[str]) -> str:
    """Write node names in their order; neighbours that differ in their last number alone share one bracket."""
    items: list[str] = []
    open_prefix, ranges = "", list[tuple[str, str]]()
    for name in names:
        match = _TAIL.fullmatch(name)
        prefix, digits = (match[1], match[2]) if match and len(match[2]) <= MAX_DIGITS else (name, "")
        if ranges and digits and prefix == open_prefix:
            first, last = ranges[-1]
            if digits == f"{int(last) + 1:0{len(first)}d}" and int(digits) - int(first) < MAX_RANGE:
                ranges[-1] = first, digits
            else:
                ranges.append((digits, digits))
            continue
        items += _bracketed(open_prefix, ranges)
        open_prefix, ranges = prefix, [(digits, digits)] if digits else []
        if not digits:
            items.append(name)
    return ",".join([*items, *_bracketed(open_prefix, ranges)])


def _bracketed(prefix: str, ranges: list[tuple[str, str]]) -> Iterator[str]:
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        yield prefix + ranges[0][0]
    elif ranges:
        yield f"{prefix}[{','.join(first if first == last else f'{first}-{last}' for first, last in ranges)}]"


def expand(text: str) -> list[str]:
    """Read node names in their order; an empty text is an empty list.

    ValueError: the text has an open bracket, an empty item, or a range that runs backwards or has no end.
    """
    parsed = [_parsed(item) for item in _items(text)]
    size = sum(item.size for item in parsed)
    if size > MAX_NAMES:
        raise ValueError(f"{text[:40]!r}: expands to {size:,} names, more than {MAX_NAMES:,}; check its ranges")
    return [name for item in parsed for name in item.names()]


def _items(text: str) -> Iterator[str]:
    if not text:
        return
    depth = start = 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"{text[start : at + 1][-40:]!r}: brackets do not match; write n[1-4], one pair a number")
        if letter == "," and not depth:
            yield text[start:at]
            start = at + 1
    if depth:
        raise ValueError(f"{text[start:][:40]!r}: a bracket is not closed; write n[1-4]")
    yield text[start:]


@dataclass(frozen=True, slots=True)
class _Item:
    """One name with its brackets: texts around them, and inside each its ranges as (first, last, digits)."""

    texts: list[str]
    brackets: list[list[tuple[int, int, int]]]

    @property
    def size(self) -> int:
        """Number of names that the brackets expand to, computed without expanding them."""
        return math.prod(sum(last - first + 1 for first, last, _ in ranges) for ranges in self.brackets)

    def names(self) -> Iterator[str]:
        """Write the names out, the brackets before the last one turning fastest from the left, as Slurm does."""
        if not self.brackets:
            yield self.texts[0]
            return
        *before, last = [
            [f"{number:0{digits}d}" for first, last, digits in ranges for number in range(first, last + 1)]
            for ranges in self.brackets
        ]
        *texts, end = self.texts
        for outer in product(*reversed(before)):
            head = "".join(map("".join, zip(texts, reversed(outer), strict=False))) + texts[-1]
            yield from (head + number + end for number in last)


def _parsed(item: str) -> _Item:
    if not item:
        raise ValueError("an item is empty; remove the comma too many")
    parts = re.split(r"[\[\]]", item)
    for text in parts[::2]:
        if text and not _PLAIN.fullmatch(text):
            raise ValueError(f"{item[:40]!r}: names have no blanks; separate them by commas")
    return _Item(parts[::2], [[_range(part, item) for part in inside.split(",")] for inside in parts[1::2]])


def _range(part: str, item: str) -> tuple[int, int, int]:
    """Read a number or a range as (first, last, digits)."""
    match = _RANGE.fullmatch(part)
    if match is None:
        raise ValueError(f"{item[:40]!r}: {part[:40]!r} is neither a number nor a range; write n[1-4,7]")
    first, last = match[1], match[2] or match[1]
    if int(last) < int(first):
        raise ValueError(f"{item[:40]!r}: {part} runs backwards; write its names in rank order, one by one")
    if last.startswith("0") and len(last) != len(first):
        raise ValueError(f"{item[:40]!r}: the ends of {part} are padded differently; write both with as many digits")
    return int(first), int(last), len(first)


def read_hosts(text: str, what: str) -> list[str]:
    """Read a hostlist into names; `what` names it in the InputError where it cannot be read."""
    try:
        return expand(text)
    except ValueError as error:
        raise InputError(f"{what}: {error}") from None


def natural(name: str) -> list[tuple[int, str]]:
    """Return the key by which Slurm sorts nodes: r2 before r10; names that differ in padding alone stay apart."""
    return [(int(part) if part.isdecimal() and part.isascii() else -1, part) for part in re.split(r"(\d+)", name)]
