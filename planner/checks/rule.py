"""Compare numbers of a plan with recomputed ones, and word the violations, for all rules."""

import math
from collections.abc import Callable, Iterator

from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Violation

TOLERANCE = 1e-6  # relative, on every figure that is recomputed in floating point
Rule = Callable[[PlanPhysics], Iterator[Violation]]
Number = float | int | None


def same(a: Number, b: Number) -> bool:
    """Return whether two figures agree within the tolerance; whole numbers and infinities must be equal."""
    if a is None or b is None:
        return a is b
    if (isinstance(a, int) and isinstance(b, int)) or not (math.isfinite(a) and math.isfinite(b)):
        return a == b
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b))


def exceeds(a: float, b: float) -> bool:
    """Return whether a exceeds b by more than the relative tolerance; whole numbers have none, NaN exceeds always."""
    if isinstance(a, int) and isinstance(b, int):
        return a > b
    if not (math.isfinite(a) and math.isfinite(b)):
        return not a <= b
    return a - b > TOLERANCE * max(abs(a), abs(b))


def show(value: object) -> str:
    """Write a figure with thousands marks and enough digits to see a difference."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "none" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def broken(rule: str, message: str, stated: object = None, recomputed: object = None) -> Violation:
    """Name a broken rule, with the value stated, or the limit, and the one recomputed where they are single."""
    return Violation(rule=rule, message=message, stated=_value(stated), recomputed=_value(recomputed))


def _value(value: object) -> float | int | str | None:
    """Return a side of a rule as JSON holds it: text where it is no finite number."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


def must_equal(rule: str, what: str, stated: Number, found: Number, unit: str = "") -> Iterator[Violation]:
    """Check that a stated figure is the recomputed one."""
    if not same(stated, found):
        yield broken(rule, f"{what}: {show(stated)}{unit} stated, {show(found)}{unit} recomputed", stated, found)


def must_be(rule: str, what: str, stated: object, wanted: object) -> Iterator[Violation]:
    """Check that a stated value is the only one that is right."""
    if stated != wanted:
        yield broken(rule, f"{what}: {show(stated)} stated, {show(wanted)} expected", stated, wanted)


def at_most(rule: str, left: float, right: float, left_is: str, right_is: str) -> Iterator[Violation]:
    """Check that the left side is within the right one; `left_is` and `right_is` are their units and meanings."""
    if exceeds(left, right):
        yield broken(rule, f"{show(left)} {left_is} > {show(right)} {right_is}", right, left)
