"""Hostlists such as r[0001-0103,0205] or rack1node[01-02]: runs folded, order kept, numbers padded as they were.

The looks and the order are Slurm's: names fold on their last number alone, and brackets before the last turn faster the
further left they stand. What Slurm guesses at (a bracket left open, an empty item, a range without an end) is refused.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import product

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
    return fold_names(f"{PREFIX}{n:0{digits}d}" for n in numbers)


def parse(text: str) -> list[int]:
    """Read rack numbers back in their order.

    Raises
    ------
    ValueError
        If the text is not a hostlist of racks, or a range runs backwards.
    """
    if not text:
        return []
    if _RACKS.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a list of racks; write one as {PREFIX}[0001-0103,0205]")
    return [int(name.removeprefix(PREFIX)) for name in expand(text)]


def fold_names(names: Iterable[str]) -> str:
    """Write node names in their order; neighbours that differ in their last number alone share one bracket."""
    items: list[str] = []
    held, ranges = "", list[tuple[str, str]]()
    for name in names:
        found = _TAIL.fullmatch(name)
        prefix, digits = (found[1], found[2]) if found and len(found[2]) <= MAX_DIGITS else (name, "")
        if ranges and digits and prefix == held:
            first, last = ranges[-1]
            if digits == f"{int(last) + 1:0{len(first)}d}" and int(digits) - int(first) < MAX_RANGE:
                ranges[-1] = first, digits
            else:
                ranges.append((digits, digits))
            continue
        items += _bracketed(held, ranges)
        held, ranges = prefix, [(digits, digits)] if digits else []
        if not digits:
            items.append(name)
    return ",".join([*items, *_bracketed(held, ranges)])


def _bracketed(prefix: str, ranges: list[tuple[str, str]]) -> Iterator[str]:
    """Write one prefix with its ranges; nothing where there are none."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        yield prefix + ranges[0][0]
    elif ranges:
        yield f"{prefix}[{','.join(a if a == b else f'{a}-{b}' for a, b in ranges)}]"


def expand(text: str) -> list[str]:
    """Read node names in their order; an empty text is an empty list.

    Raises
    ------
    ValueError
        Names what cannot be read: a bracket that is not closed, an empty item, a range that runs backwards or has no end.
    """
    names: list[str] = []
    for item in _items(text):
        names += _expand_item(item, MAX_NAMES - len(names))
    return names


def _items(text: str) -> Iterator[str]:
    """Cut a list at the commas outside brackets."""
    if not text:
        return
    depth = start = 0
    for at, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if depth not in (0, 1):
            raise ValueError(f"{text[start : at + 1][-40:]!r}: brackets do not match; write n[1-4] with one pair a number")
        if c == "," and not depth:
            yield text[start:at]
            start = at + 1
    if depth:
        raise ValueError(f"{text[start:][:40]!r}: a bracket is not closed; write n[1-4]")
    yield text[start:]


def _expand_item(item: str, most: int) -> list[str]:
    """Expand one name with its brackets."""
    texts, brackets = [], []
    for i, part in enumerate(re.split(r"[\[\]]", item)):
        if i % 2:
            brackets.append(_numbers(part, item))
        elif part and not _PLAIN.fullmatch(part):
            raise ValueError(f"{item[:40]!r}: names hold no blanks; separate them by commas")
        else:
            texts.append(part)
    if not item:
        raise ValueError("an item is empty; remove the comma too many")
    size = 1
    for b in brackets:
        size *= len(b)
    if size > most:
        raise ValueError(f"{item[:40]!r}: stands for {size:,} names, more than {MAX_NAMES:,} in all; check the range")
    if not brackets:
        return [item]
    *before, last = brackets
    # Slurm turns the brackets before the last one fastest from the left.
    return ["".join(_woven(texts, (*reversed(outer), number))) for outer in product(*reversed(before)) for number in last]


def _woven(texts: list[str], numbers: tuple[str, ...]) -> Iterator[str]:
    """Put the numbers between the texts around them."""
    for text, number in zip(texts, numbers, strict=False):
        yield text
        yield number
    yield texts[-1]


def _numbers(inside: str, item: str) -> tuple[str, ...]:
    """Expand what stands inside one bracket, as digits."""
    digits: list[str] = []
    for part in inside.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise ValueError(f"{item[:40]!r}: {part!r} is neither a number nor a range; write n[1-4,7]")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first):
            raise ValueError(f"{item[:40]!r}: {part} runs backwards; write its names in rank order, one by one")
        if last.startswith("0") and len(last) != len(first):
            raise ValueError(f"{item[:40]!r}: the ends of {part} are padded differently; write both with as many digits")
        if int(last) - int(first) >= MAX_NAMES:
            raise ValueError(f"{item[:40]!r}: {part} is longer than any cluster ({MAX_NAMES:,}); check the range")
        digits += [f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)]
    return tuple(digits)
