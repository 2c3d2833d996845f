"""What a solve leaves: why it stopped, its solution, and what is proven. The same for every back end."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

from planner.plan.certificate import Certificate, Status

T = TypeVar("T")
U = TypeVar("U")


class Stop(StrEnum):
    """Why a solver stopped."""

    PROVED = "proved"
    LIMIT = "limit"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class UnansweredError(RuntimeError):
    """A back end ended without an answer, for another reason than time: what hangs on it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """Why the solver stopped and what it leaves; no solution is None, never zeros."""

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

    @property
    def proved(self) -> bool:
        """Whether the search ended with a proof."""
        return self.stop is Stop.PROVED

    @property
    def status(self) -> Status:
        """What may be said of the answer: only a proof is called optimal or infeasible."""
        if self.solution is not None:
            return "optimal" if self.proved else "feasible"
        return "infeasible" if self.proved and self.infeasible else "unknown"

    def with_solution(self, solution: U | None) -> "Outcome[U]":
        """Return the outcome with its solution read into other terms."""
        return cast("Outcome[U]", replace(cast("Outcome[Any]", self), solution=solution))

    def certificate(
        self,
        *,
        formulation: str,
        minimizes: str,
        seed: int,
        given: str = "",
        space: Mapping[str, Any] | None = None,
        binding: tuple[str, ...] = (),
    ) -> Certificate:
        """Return the certificate of a decision: the solver's part from this outcome, the rest as given."""
        return Certificate(
            status=self.status,
            objective=self.objective,
            bound=self.bound,
            gap=relative_gap(self.objective, self.bound),
            solver=self.solver,
            formulation=formulation,
            variables=self.variables,
            constraints=self.constraints,
            seconds=self.seconds,
            seed=seed,
            minimizes=minimizes,
            given=given,
            space=dict(space or {}),
            binding=binding,
        )


def relative_gap(objective: float | None, bound: float | None) -> float | None:
    """Distance of bound and incumbent over the incumbent's size; None where either is missing."""
    if objective is None or bound is None:
        return None
    return abs(objective - bound) / max(abs(objective), 1e-12)
