"""What is proven: certificates, the objective with its bound, conflicts and violations."""

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from planner.instance.base import Frozen

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


class Certificate(Frozen):
    """What was proven of one decision, and by whom."""

    status: Status = Field(description="What was proven.")
    objective: float | None = Field(description="Value of the decision.")
    bound: float | None = Field(description="No decision in the declared space is better than this.")
    gap: float | None = Field(description="|objective - bound| / max(|objective|, 1e-12).")
    solver: str = Field(description="Backends and versions.")
    formulation: str = Field(description="What was decided, over which space, and how the proof was made.")
    variables: int = Field(description="Of the solvers' models.")
    constraints: int = Field(description="Of the solvers' models.")
    seconds: float = Field(description="Of the search.")
    seed: int = Field(description="Of the solvers.")
    minimizes: str = Field(description="What the objective measures, with its unit.")
    given: str = Field("", description="What earlier decisions fixed: the proof holds for these.")
    space: dict[str, int | float | str | list[int] | list[str]] = Field(
        default_factory=dict, description="The declared space and how much of it each argument excluded."
    )
    checked: str = Field(
        "",
        description="What stands behind the bound: `recomputed` by planner check, in whole or but for what the sites "
        "answered; `confirmed by CP-SAT`, or by a dual bound in exact arithmetic; `on trust`: the solver's word alone.",
    )
    binding: tuple[str, ...] = Field((), description="Rules that hold with equality, or stop the next better decision.")


LimitedBy = Literal["grid", "budget", "owned_racks", "layout"]
ALMOST_AS_FAST = 0.005  # of the days, within which the cheapest plan is named beside the fastest


class CheaperPlan(Frozen):
    """A plan that is almost as fast for less money."""

    days_to_train: float = Field(description="Its days.")
    capital_usd: float = Field(description="Its bill, in dollars.")
    racks: int = Field(description="Racks that it buys.")


class ObjectiveValue(Frozen):
    """The plan's figure of merit and what is proven of it."""

    name: str = Field(description="What is minimized, as the instance names it.")
    value: float | None = Field(description="Of the plan; null: there is none.")
    bound: float | None = Field(description="No plan of the declared space is better.")
    gap: float | None = Field(description="|value - bound| / |value|; null without a bound.")
    joint_bound: float | None = Field(None, description="The same bound, for older readers.")
    joint_gap: float | None = Field(None, description="The same gap, for older readers.")
    fabric_free_bound: float | None = Field(None, description="No plan is better with any fabric whatever.")
    space: str = Field("", description="The declared space.")
    outside: str = Field("", description="What is not in it.")
    limited_by: LimitedBy | None = Field(
        None,
        description="What one more block of racks meets: power and sites, the budget, or the racks owned; `layout` "
        "where all allow it and no plan is faster with it. Null: not determined.",
    )
    cheaper: CheaperPlan | None = Field(
        None,
        description="The cheapest plan within 0.5 % of the days, where cheaper; not looked for with WAN gateways.",
    )


class Conflict(Frozen):
    """Why there is no plan: a smallest set of rules that cannot be met together; no rules: nothing is proven."""

    decision: Literal["sites", "wan", "layout", "fabric", "placement", "budget"] = Field(
        description="The decision that has no answer."
    )
    rules: tuple[str, ...] = Field(description="Drop any one and the rest can be met.")
    reason: str = Field(description="The same in a sentence.")
    checked: str = Field(
        "",
        description="Of rules of the sites: `confirmed by a formulation of its own`, or `on trust` where that cannot "
        "state them; of others empty, as `planner check` counts columns and limits itself.",
    )


LISTED = 5  # violations in a summary


class Violation(Frozen):
    """A rule that a plan breaks, with both of its sides in numbers."""

    rule: str = Field(description="Its name; `checker`: the check itself failed.")
    message: str = Field(description="Both sides in words.")
    stated: float | int | str | None = Field(
        None, description="What the plan states, or the limit that it breaks; null where the message alone says it."
    )
    recomputed: float | int | str | None = Field(None, description="What the checker finds in its place.")


def disagreement(violations: Sequence[Violation]) -> Iterator[str]:
    """Say that the checker disagrees with a plan, and on which rules; nothing where it agrees."""
    if violations:
        yield "NOT VERIFIED: the checker disagrees with this plan; please report it with the instance"
    yield from (f"  {v.rule}: {v.message}" for v in violations[:LISTED])
    if len(violations) > LISTED:
        yield f"  and {len(violations) - LISTED} more, in the plan's violations"
