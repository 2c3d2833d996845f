"""The library's `check`: a plan against the instance inside it, without any solver or formulation."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.plan import Plan, Violation


def check(plan: "Plan") -> "list[Violation]":
    """Return each violated rule by name with both of its sides in numbers; nothing where all hold."""
    from planner.checks.rules import check as verify

    return verify(plan)
