"""One row a point: what was asked, what came back, and why where nothing did."""

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, field_validator

from planner.instance.base import Frozen
from planner.plan.flatten import Figure, digest
from planner.plan.plan import Plan
from planner.version import __version__

MOST = 1e300  # of a figure
FAILED: Literal["failed"] = "failed"


class RowObjective(Frozen):
    """The figure of merit of a point and what is proven of it."""

    name: str
    value: float | None = None
    bound: float | None = None
    gap: float | None = None
    joint_bound: float | None = None
    joint_gap: float | None = None
    fabric_free_bound: float | None = None


class Row(Frozen):
    """The answer at one point of a sweep."""

    schema_version: Literal[1] = 1
    index: int = Field(description="Place of the point in the sweep, from 0.")
    key: str = Field(
        description="SHA-256 of the instance as solved, the planner's version and the options of the solve."
    )
    point: dict[str, Any] = Field(description="Value by path; a pin's path begins with pins.")
    status: Literal["optimal", "feasible", "infeasible", "unknown", "failed"]
    stopped: Literal["proved", "gap", "limit", "interrupted"] | None = None
    verified: bool | None = Field(None, description="Whether the checker agrees with the plan; null: not checked.")
    objective: RowObjective | None = None
    reason: str | None = Field(None, description="Why there is no plan.")
    rules: tuple[str, ...] = Field((), description="Rules in conflict, where the point is infeasible.")
    plan: dict[str, Figure] = Field(default_factory=dict, description="Figures of the plan by their own dotted names.")
    planner_version: str = __version__
    base: dict[str, str] = Field(
        default_factory=dict, description="SHA-256 (its first 12 digits) of each part of the sweep's instance by key."
    )
    seconds: float = Field(description="Wall time of the solve.")

    @field_validator("point", "plan", "objective", mode="before")
    @classmethod
    def _as_floats(cls, figures: Any) -> Any:
        """Refuse whole numbers that no float holds: figures are compared and drawn as floats."""
        for name, x in figures.items() if isinstance(figures, dict) else ():
            if isinstance(x, int) and abs(x) > MOST:
                raise ValueError(f"{name[:40]} is beyond {MOST:g}")
        return figures

    def flat(self) -> dict[str, Any]:
        """Return the row as one level of columns: the point's paths and the plan's names beside the row's own."""
        own = self.model_dump(mode="json", exclude={"point", "plan", "objective", "schema_version", "base"})
        own["rules"] = "; ".join(self.rules) or None
        objective = {f"objective.{k}": v for k, v in (self.objective or RowObjective(name="")).model_dump().items()}
        front = {k: own.pop(k) for k in ("index", "key")}
        return {**front, **self.point, **own, **objective, **self.plan}


def row_of_plan(index: int, key: str, point: dict[str, Any], plan: Plan, seconds: float) -> Row:
    """Sum up a plan in a row."""
    return Row(
        index=index,
        key=key,
        point=point,
        status=plan.status,
        stopped=plan.stopped,
        verified=plan.verified,
        objective=RowObjective.model_validate(plan.objective.model_dump(include=set(RowObjective.model_fields))),
        reason=plan.conflict.reason if plan.conflict else None,
        rules=plan.conflict.rules if plan.conflict else (),
        plan=digest(plan),
        seconds=seconds,
    )


def latest(rows: Iterable[Row]) -> list[Row]:
    """Return one row a key, the latest, in the order of their first: a failed point that was solved later is solved."""
    return list({r.key: r for r in rows}.values())


def failed_row(index: int, key: str, point: dict[str, Any], reason: str, seconds: float) -> Row:
    """Say of a point that it could not be solved, and why."""
    return Row(index=index, key=key, point=point, status=FAILED, reason=reason, seconds=seconds)
