"""Hostlists of racks, such as r[0001-0103,0205]: runs folded, order kept, numbers padded to one width."""

import re
from collections.abc import Iterable, Iterator

PREFIX = "r"
_LIST = re.compile(rf"{PREFIX}(?:(?P<one>\d+)|\[(?P<many>\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)\])", re.ASCII)


def width(racks: int) -> int:
    """Return the digits of a site's largest rack number, racks being numbered from 0."""
    return len(str(max(racks - 1, 0)))


def fold(numbers: Iterable[int], digits: int = 1) -> str:
    """Write rack numbers in their order, ascending runs as first-last; nothing for no racks."""
    parts = [f"{a:0{digits}d}" if a == b else f"{a:0{digits}d}-{b:0{digits}d}" for a, b in _runs(numbers)]
    if len(parts) == 1 and "-" not in parts[0]:
        return PREFIX + parts[0]
    return f"{PREFIX}[{','.join(parts)}]" if parts else ""


def parse(text: str) -> list[int]:
    """Read rack numbers back in their order.

    Raises
    ------
    ValueError
        If the text is not a hostlist of racks, or a range runs backwards.
    """
    if not text:
        return []
    found = _LIST.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a list of racks; write one as {PREFIX}[0001-0103,0205]")
    numbers: list[int] = []
    for part in (found["one"] or found["many"]).split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            raise ValueError(f"{part} in {text!r} runs backwards; write racks in rank order, one by one")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Cut numbers into ascending runs, in order."""
    first = last = None
    for n in numbers:
        if first is None or last is None:
            first = last = n
        elif n == last + 1:
            last = n
        else:
            yield first, last
            first = last = n
    if first is not None and last is not None:
        yield first, last
