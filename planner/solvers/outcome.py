"""What a solve leaves: why it stopped, its solution, and what is proven. The same for every back end."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

from planner.plan.certificate import Certificate, Status

T = TypeVar("T")
U = TypeVar("U")
MET = 1e-6  # relative distance of bound and value that is rounding, as the checks of plans have it


class Stop(StrEnum):
    """Why a solver stopped."""

    PROVED = "proved"
    LIMIT = "limit"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


# The one table from what a search leaves to what may be said: by why it stopped, whether there is a solution, and
# whether its end means that there is none. Where there is a value, `optimal` needs a bound that meets it besides.
STATUS_BY_ANSWER: dict[tuple[Stop, bool, bool], Status] = {
    (stop, solution, infeasible): "unknown" if not solution else "feasible"
    for stop in Stop
    for solution in (False, True)
    for infeasible in (False, True)
} | {(Stop.PROVED, True, False): "optimal", (Stop.PROVED, False, True): "infeasible"}


class UnansweredError(RuntimeError):
    """A back end ended without an answer, for another reason than time: what hangs on it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """Why the solver stopped and what it leaves; no solution is None, never zeros."""

    stop: Stop
    solution: T | None = None
    objective: float | None = None
    bound: float | None = None
    distance: float = 0.0  # of bound and value, in the objective's unit, that counts as none
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
        answer = STATUS_BY_ANSWER[self.stop, self.solution is not None, self.infeasible]
        return "feasible" if answer == "optimal" and not self.within(0.0) else answer

    def within(self, allowed: float) -> bool:
        """Return whether the bound is so near to the value, rounding apart; true of an answer without an objective."""
        if self.objective is None:
            return True
        if self.bound is None:
            return False
        return abs(self.objective - self.bound) <= max(allowed, self.distance, MET * abs(self.objective))

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
