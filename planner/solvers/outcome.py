"""The outcome of a solve, for every back end: why it stopped, solution, bound, or the smallest conflict of rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt

from planner.plan.certificate import Certificate, Status

T = TypeVar("T")
U = TypeVar("U")
Floats = npt.NDArray[np.float64]
TOLERANCE = 1e-6  # relative: of bound and value, and of what a row adds up, as the checks of plans have it
UNDECIDED = "UnboundedOrInfeasible"  # of HiGHS
Conflicting = Callable[[frozenset[str]], bool]


class Stop(StrEnum):
    """Why a solver's run stopped."""

    PROVED = "proved"
    LIMIT = "limit"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a solver's solution, read by variable of the library that the model was built with."""

    of: Callable[[Any], Any]


class UnansweredError(RuntimeError):
    """A solver ended without an answer, for another reason than time: all that depends on it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """The stop reason, solution and bound of a solver's run; a missing solution is None, never zeros."""

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
    seconds: float = 0.0

    @property
    def proved(self) -> bool:
        """Whether the solver's run ended with a proof."""
        return self.stop is Stop.PROVED

    @property
    def status(self) -> Status:
        """The status of a solver's outcome: only a proof is optimal, with a bound equal to the value, or infeasible."""
        if self.solution is None:
            return "infeasible" if self.proved and self.infeasible else "unknown"
        return "optimal" if self.proved and not self.infeasible and self.within(0.0) else "feasible"

    def within(self, allowed: float) -> bool:
        """Return whether the outcome's bound is this near to its value, rounding apart; true without an objective."""
        if self.objective is None:
            return True
        if self.bound is None:
            return False
        return abs(self.objective - self.bound) <= max(allowed, self.distance, TOLERANCE * abs(self.objective))

    def with_solution(self, solution: U | None) -> "Outcome[U]":
        """Return a solver's outcome with its solution read into other terms."""
        return cast("Outcome[U]", replace(cast("Outcome[Any]", self), solution=solution))

    def certificate(self, **decision: Any) -> Certificate:
        """Turn a solver's outcome into a decision's certificate, whose other fields are given."""
        figures = ("status", "objective", "bound", "solver", "variables", "constraints", "seconds")
        gap = relative_gap(self.objective, self.bound)
        return Certificate(gap=gap, **{name: getattr(self, name) for name in figures}, **decision)


def relative_gap(objective: float | None, bound: float | None) -> float | None:
    """Relative gap: distance of bound and incumbent over the incumbent's size; None where either is missing."""
    return None if objective is None or bound is None else abs(objective - bound) / max(abs(objective), 1e-12)


def believed(outcome: Outcome[T], *, broken: str = "", minimize: bool = True, allowed: float = 0.0) -> Outcome[T]:
    """Return as much of a solver's outcome as its own figures bear out.

    `broken`: the row that the solution breaks, if any: then nothing is believed. `minimize`: on which side of the value
    the bound must be. `allowed`: distance of both that was asked for, within which the search ended as it should.
    """
    if outcome.stop is not Stop.PROVED and not broken:
        return replace(outcome, infeasible=False)
    if broken or outcome.infeasible == (outcome.solution is not None):
        wrong = "infeasible, with a solution" if outcome.infeasible else f"{outcome.detail} without a solution"
        detail = f"its solution breaks a row: {broken}" if broken else wrong
        failed = replace(outcome, stop=Stop.FAILED, infeasible=False, detail=detail)
        return replace(failed, solution=None, objective=None, bound=None)
    value, bound = outcome.objective, outcome.bound
    if value is None or outcome.within(0.0):
        return outcome
    if bound is not None and (bound > value) == minimize:
        why = f"the bound {bound:g} excludes the value {value:g}"
        return replace(outcome, stop=Stop.FAILED, bound=None, detail=why)
    if not outcome.within(allowed):
        return replace(outcome, stop=Stop.LIMIT, detail=f"called optimal at {value:g} with the bound {bound}")
    return outcome


def run_twice(
    solve: Callable[[bool], Outcome[T]], solver: str, *, presolve: bool = True, repeat: bool = True
) -> Outcome[T]:
    """Run a solver, and again with presolve switched if it says infeasible and `repeat` is set; believe a solution."""

    def attempt(presolve: bool) -> Outcome[T]:
        try:
            return solve(presolve)
        except Exception as error:  # of compiled code, which may raise anything
            return Outcome(stop=Stop.FAILED, detail=f"{type(error).__name__}: {error}", solver=solver)

    first = attempt(presolve)
    if not (first.infeasible and repeat):  # presolve alone cannot tell unbounded from infeasible; the simplex can
        return attempt(False) if first.detail == UNDECIDED and presolve and not first.infeasible else first
    second = attempt(not presolve)
    seconds = first.seconds + second.seconds
    if second.infeasible or second.solution is not None:
        return replace(second, seconds=seconds)
    stop = Stop.FAILED if second.stop is Stop.PROVED else second.stop
    detail = f"infeasible in one run, {second.detail or second.stop} in another"
    return replace(second, stop=stop, infeasible=False, detail=detail, seconds=seconds)


def remembered(conflicting: Conflicting, rules: Sequence[str]) -> Conflicting:
    """Return a test of rules for conflict that solves only where no outcome on fewer or more rules decides it."""
    judged = {frozenset(rules): True}

    def asked(some: frozenset[str]) -> bool:
        known = next((yes for known, yes in judged.items() if (known <= some if yes else some <= known)), None)
        if known is None:
            known = judged[some] = conflicting(some)
        return known

    return asked


def smallest_conflict(conflicting: Conflicting, rules: Sequence[str]) -> list[str]:
    """Reduce rules that no solution keeps to a smallest such set, later ones first (QuickXplain, Junker 2004)."""
    # None of them can be left out, but for those of which the question does not know whether the others conflict. One
    # is returned at least; whether nothing at all conflicts is not asked.

    def smallest(given: frozenset[str], rules: Sequence[str], *, changed: bool) -> tuple[str, ...]:
        """Return the rules in conflict with the `given` ones, by halves; `changed`: these may conflict alone."""
        if changed and conflicting(given):
            return ()
        if len(rules) == 1:
            return tuple(rules)
        first, last = rules[: len(rules) // 2], rules[len(rules) // 2 :]
        of_last = smallest(given.union(first), last, changed=True)
        return (*smallest(given.union(of_last), first, changed=bool(of_last)), *of_last)

    found = set(smallest(frozenset(), rules[::-1], changed=False))
    return [rule for rule in rules if rule in found]
