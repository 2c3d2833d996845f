"""Slurm's hostlists of a cluster's nodes and racks: read into names, written from them, and the order of names.

Format and order of hostlists such as r[0001-0103,0205] are Slurm's: names fold on their last number alone, numbers stay
padded, and brackets before the last turn faster the further left they are. Forms that Slurm guesses at (a bracket left
open, an empty item, a range without an end) are refused.
"""

import math
import re
from collections.abc import Iterable
from itertools import product

from planner.errors import InputError

PREFIX = "r"
MAX_RANGE = 65_536  # Slurm refuses a longer range (MAX_RANGE of its hostlist.c), so longer runs are written as several.
MAX_NAMES = 4_000_000  # Beyond any cluster: a slip of a digit must not fill the memory.
MAX_DIGITS = 18  # Slurm keeps numbers in 64 bits; longer ones are written out.
_RANGE = re.compile(rf"(\d{{1,{MAX_DIGITS}}})(?:-(\d{{1,{MAX_DIGITS}}}))?", re.ASCII)
_RACKS = re.compile(rf"{PREFIX}(?:\d+|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])", re.ASCII)
_PLAIN = re.compile(r"[^\s,\[\]]*")


def width(racks: int) -> int:
    """Return the digits of a rack's number in a hostlist: those of the site's largest, racks being numbered from 0."""
    return len(str(max(racks - 1, 0)))


def fold(numbers: Iterable[int], digits: int = 1) -> str:
    """Write rack numbers as a Slurm hostlist in their order, ascending runs as first-last; nothing for no racks."""
    return fold_names(f"{PREFIX}{number:0{digits}d}" for number in numbers)


def parse(text: str) -> list[int]:
    """Read a Slurm hostlist of racks into their numbers, in its order. ValueError: it is none, or a range falls."""
    if text and _RACKS.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a list of racks; write one as {PREFIX}[0001-0103,0205]")
    return [int(name.removeprefix(PREFIX)) for name in expand(text)]


def fold_names(names: Iterable[str]) -> str:
    """Write node names as a Slurm hostlist in order; neighbours that differ in the last number share one bracket."""
    items: list[tuple[str, list[tuple[str, str]]]] = []  # a prefix with its ranges; a whole name where it has no number
    for name in names:
        prefix = name.rstrip("0123456789")
        digits = name[len(prefix) :]
        if not 0 < len(digits) <= MAX_DIGITS:
            items.append((name, []))
            continue
        if not items or items[-1][0] != prefix or not items[-1][1]:
            items.append((prefix, []))
        ranges = items[-1][1]
        first, last = ranges[-1] if ranges else ("", "")
        if last and digits == f"{int(last) + 1:0{len(first)}d}" and int(digits) - int(first) < MAX_RANGE:
            ranges[-1] = first, digits
        else:
            ranges.append((digits, digits))
    texts = []
    for prefix, ranges in items:
        inside = ",".join(first if first == last else f"{first}-{last}" for first, last in ranges)
        texts.append(f"{prefix}[{inside}]" if "," in inside or "-" in inside else prefix + inside)
    return ",".join(texts)


def expand(text: str) -> list[str]:
    """Read a Slurm hostlist into node names in its order, "" into none. ValueError: broken bracket, item or range."""
    parsed, depth, start = list[tuple[list[str], list[list[tuple[range, int]]]]](), 0, 0
    for at, letter in enumerate(f"{text}," if text else ""):  # commas outside brackets end the items
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"{text[start : at + 1][-40:]!r}: brackets do not match; write n[1-4], one pair a number")
        if letter == "," and not depth:
            parsed.append(_parsed(text[start:at]))
            start = at + 1
    if depth:
        raise ValueError(f"{text[start:][:40]!r}: a bracket is not closed; write n[1-4]")
    size = sum(math.prod(sum(len(run) for run, _ in runs) for runs in brackets) for _, brackets in parsed)
    if size > MAX_NAMES:
        raise ValueError(f"{text[:40]!r}: expands to {size:,} names, more than {MAX_NAMES:,}; check its ranges")
    names: list[str] = []
    for texts, brackets in parsed:
        *before, last = [[f"{n:0{digits}d}" for run, digits in runs for n in run] for runs in brackets] or [[""]]
        *heads, end = texts
        for turning in product(*reversed(before)):  # fastest from the left, as in Slurm
            head = "".join(map("".join, zip(heads, (*reversed(turning), ""), strict=False)))
            names += [head + number + end for number in last]
    return names


def _parsed(item: str) -> tuple[list[str], list[list[tuple[range, int]]]]:
    """Read one item of a hostlist: the texts around its brackets, and in each the runs of its numbers, with digits."""
    if not item:
        raise ValueError("an item is empty; remove the comma too many")
    parts = re.split(r"[\[\]]", item)
    if not all(map(_PLAIN.fullmatch, parts[::2])):
        raise ValueError(f"{item[:40]!r}: names have no blanks; separate them by commas")
    brackets = []
    for inside in parts[1::2]:
        runs = []
        for part in inside.split(","):
            match = _RANGE.fullmatch(part)
            if match is None:
                raise ValueError(f"{item[:40]!r}: {part[:40]!r} is neither a number nor a range; write n[1-4,7]")
            first, last = match[1], match[2] or match[1]
            if int(last) < int(first):
                raise ValueError(f"{item[:40]!r}: {part} runs backwards; write its names in rank order, one by one")
            if last.startswith("0") and len(last) != len(first):
                padded = f"the ends of {part} are padded differently; write both with as many digits"
                raise ValueError(f"{item[:40]!r}: {padded}")
            runs.append((range(int(first), int(last) + 1), len(first)))
        brackets.append(runs)
    return parts[::2], brackets


def read_hosts(given: Iterable[str] | str, what: str) -> list[str]:
    """Read a Slurm hostlist into node names, or list names; `what` names them in the InputError where it is neither."""
    try:
        names = expand(given) if isinstance(given, str) else list(given)
    except (ValueError, TypeError) as error:
        problem = error if isinstance(given, str) else f"must be names of nodes, or a hostlist (is {given!r:.40})"
        raise InputError(f"{what}: {problem}") from None
    for name in (name for name in names if not isinstance(name, str)):
        raise InputError(f"{what}: must be names of nodes, or a hostlist (one is {name!r:.40})")
    return names


def natural(name: str) -> list[tuple[int, str]]:
    """Return the key by which Slurm sorts a hostlist's nodes: r2 before r10, r02 apart from r2."""
    return [(int(part) if part.isdecimal() and part.isascii() else -1, part) for part in re.split(r"(\d+)", name)]
