"""What a solve leaves: why it stopped, what is held, what is proven. The same for every backend."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Stop(StrEnum):
    """Why a solver stopped."""

    PROVED = "proved"
    LIMIT = "limit"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """Why the solver stopped and what it holds; no solution is None, never zeros."""

    stop: Stop
    solution: T | None = None
    objective: float | None = None
    bound: float | None = None
    infeasible: bool = False
    detail: str = ""
    solver: str = ""
    variables: int = 0
    constraints: int = 0
    effort: float = 0.0  # in the solver's own units of work, where it counts them
    seconds: float = 0.0


def holding(outcome: Outcome[T], solution: U | None) -> Outcome[U]:
    """Return the outcome with its solution read into other terms."""
    return Outcome(
        stop=outcome.stop,
        solution=solution,
        objective=outcome.objective,
        bound=outcome.bound,
        infeasible=outcome.infeasible,
        detail=outcome.detail,
        solver=outcome.solver,
        variables=outcome.variables,
        constraints=outcome.constraints,
        effort=outcome.effort,
        seconds=outcome.seconds,
    )


def relative_gap(objective: float | None, bound: float | None) -> float | None:
    """Distance of bound and incumbent over the incumbent's size; None where either is missing."""
    if objective is None or bound is None:
        return None
    return abs(objective - bound) / max(abs(objective), 1e-12)
