"""How the checker compares: one tolerance, one way to say both sides."""

from collections.abc import Iterable, Iterator, Mapping

from planner.plan import Violation

TOLERANCE = 1e-6  # relative; recomputed figures differ by rounding only


def number(x: float) -> str:
    """Write a figure as people read it."""
    return f"{x:,.10g}"


def same(rule: str, held: float | None, right: float | None, what: str) -> Iterator[Violation]:
    """Require a recomputed figure to be the one that the plan states."""
    if held is None and right is None:
        return
    if held is None or right is None or abs(held - right) > TOLERANCE * max(abs(held), abs(right), 1e-9):
        a, b = ("null" if x is None else number(x) for x in (held, right))
        yield Violation(rule=rule, message=f"{what}: the plan says {a}, it is {b}")


def equal(rule: str, held: object, right: object, what: str) -> Iterator[Violation]:
    """Require two values to be equal."""
    if held != right:
        yield Violation(rule=rule, message=f"{what}: the plan says {held}, it is {right}")


def at_most(rule: str, held: float, limit: float, what: str, unit: str = "") -> Iterator[Violation]:
    """Require a figure to stay within a limit."""
    if held > limit + TOLERANCE * max(abs(limit), 1e-3):
        yield Violation(rule=rule, message=f"{what}: {number(held)}{unit} > {number(limit)}{unit}")


def at_least(rule: str, held: float, limit: float, what: str, unit: str = "") -> Iterator[Violation]:
    """Require a figure to reach a limit."""
    if held < limit - TOLERANCE * max(abs(limit), 1e-3):
        yield Violation(rule=rule, message=f"{what}: {number(held)}{unit} < {number(limit)}{unit}")


def same_parts(rule: str, held: Mapping[str, float], right: Mapping[str, float], what: str) -> Iterator[Violation]:
    """Require the same parts with the same figures."""
    for part in sorted({*held, *right}):
        yield from same(f"{rule}[{part}]", held.get(part), right.get(part), f"{what}, {part}")


def pinned(pins: Mapping[str, object], prefix: str, held: Mapping[str, object]) -> Iterator[Violation]:
    """Require what the instance pins."""
    for name in sorted(held):
        path = f"{prefix}.{name}"
        if path in pins and pins[path] != held[name]:
            yield Violation(rule=f"pins.{path}", message=f"the instance pins {pins[path]}, the plan has {held[name]}")


def unique(rule: str, values: Iterable[str], what: str) -> Iterator[Violation]:
    """Require each value once."""
    seen: set[str] = set()
    for v in values:
        if v in seen:
            yield Violation(rule=rule, message=f"{what} {v} stands twice")
        seen.add(v)
