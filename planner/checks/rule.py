"""Compare the stated figures of a plan with recomputed ones, and word the violations, for all rules of the checker."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any

from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Violation

TOLERANCE = 1e-6  # relative, on every figure that is recomputed in floating point
Violations = Iterator[Violation]
Rule = Callable[[PlanPhysics], Violations]
UNITS = {
    "usd": " USD", "mw": " MW", "mwh": " MWh", "gbps": " Gbps", "km": " km", "ms": " ms", "seconds": " s",
    "m2": " m²", "tonnes": " t",
}  # fmt: skip


def needs(*names: str) -> Callable[[Callable[..., Violations]], Rule]:
    """Return a decorator that gives a rule its parts of a plan, or skips it if one, or a sound layout, is missing."""

    def of(rule: Callable[..., Violations]) -> Rule:
        @wraps(rule)
        def checked(physics: PlanPhysics) -> Violations:
            instance, workload = physics.instance, physics.instance.workload
            owners: dict[str, object] = {"network": instance, "metrics": physics, "choose": workload, "model": workload}
            owners |= {name: physics.plan.objective for name in names if name in ("cheaper", "simplest", "freed")}
            found = [getattr(owners.get(name, physics.plan), name, None) for name in names]
            if not any(part is None for part in found) and not ("layout" in names and physics.faults):
                yield from rule(physics, *found)

        return checked

    return of


def same(a: Any, b: Any) -> bool:
    """Return whether two figures of a check agree within the tolerance; whole numbers, infinities and texts exactly."""
    numbers = isinstance(a, (int, float)) and isinstance(b, (int, float))
    if not numbers or (isinstance(a, int) and isinstance(b, int)) or not (math.isfinite(a) and math.isfinite(b)):
        return bool(a == b)
    return bool(abs(a - b) <= TOLERANCE * max(abs(a), abs(b)))


def exceeds(a: float, b: float) -> bool:
    """Return whether a checked figure exceeds its limit by more than the tolerance, whole numbers by any; NaN does."""
    return not a <= b and not same(a, b)


def show(value: object) -> str:
    """Write a figure of a violation with thousands marks and enough digits to show a difference."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "none" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def broken(rule: str, message: str, stated: object = None, recomputed: object = None) -> Violation:
    """Return the violation of a rule, with the stated value, or the limit, and the recomputed one where single."""
    sides = [  # as JSON holds them: text where they are no finite number
        side if side is None or type(side) is int or (isinstance(side, float) and math.isfinite(side)) else str(side)
        for side in (stated, recomputed)
    ]
    return Violation(rule=rule, message=message, stated=sides[0], recomputed=sides[1])


def must_equal(rule: str, what: str, stated: Any, found: Any, unit: str = "") -> Violations:
    """Check that a figure that a plan states is the recomputed one."""
    if not same(stated, found):
        yield broken(rule, f"{what}: {show(stated)}{unit} stated, {show(found)}{unit} recomputed", stated, found)


def must_be(rule: str, what: str, stated: object, wanted: object) -> Violations:
    """Check that a value that a plan states is the only one that is right."""
    if stated != wanted:
        yield broken(rule, f"{what}: {show(stated)} stated, {show(wanted)} expected", stated, wanted)


def at_most(rule: str, left: float | None, right: float | None, left_is: str, right_is: str) -> Violations:
    """Check that a figure of a plan is within its limit, if both exist; `left_is`, `right_is`: units and meanings."""
    if left is not None and right is not None and exceeds(left, right):
        yield broken(rule, f"{show(left)} {left_is} > {show(right)} {right_is}", right, left)


def figures(rule: str, section: object, found: Mapping[str, Any]) -> Violations:
    """Check the figures of a plan's section, by the names of their fields, against the recomputed ones."""
    for name, value in found.items():
        unit = next((UNITS[word] for word in name.split("_") if word in UNITS), "")  # at the end, or before `per`
        yield from must_equal(rule, name, getattr(section, name), value, unit)


def parts(rule: str, stated: Mapping[str, Any], found: Mapping[str, Any], unit: str = "") -> Violations:
    """Check every part of a table of a plan by name against the recomputed one, those on one side only included."""
    for name in sorted(stated.keys() | found.keys()):
        yield from must_equal(f"{rule}[{name}]", name, stated.get(name), found.get(name), unit)


def once(rule: str, what: str, stated: Iterable[Any], wanted: Iterable[Any]) -> Violations:
    """Check that a plan states every name wanted once, and no other."""
    times, expected = Counter(iter(stated)), set(wanted)
    for name in sorted(times.keys() | expected):
        if times[name] != int(name in expected):
            label = name if isinstance(name, str) else ", ".join(name)
            yield broken(f"{rule}[{label}]", f"{times[name]} {what}, {int(name in expected)} expected")
