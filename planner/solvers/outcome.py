"""The outcome of a solve, for every back end: why it stopped, solution, bound, or the smallest conflict of rules."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt

from planner.plan.certificate import ON_TRUST, Certificate, Status
from planner.solvers.signals import Deadline

T = TypeVar("T")
U = TypeVar("U")
MET = 1e-6  # relative distance of bound and value that is rounding, as the checks of plans have it


class Stop(StrEnum):
    """Why a solver stopped."""

    PROVED = "proved"
    LIMIT = "limit"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


# The one table from the outcome of a search to its status: by stop reason, whether there is a solution, and whether
# its end means that there is none. Where there is a value, `optimal` also needs a bound that meets it.
STATUS_BY_ANSWER: dict[tuple[Stop, bool, bool], Status] = {
    (stop, solution, infeasible): "unknown" if not solution else "feasible"
    for stop in Stop
    for solution in (False, True)
    for infeasible in (False, True)
} | {(Stop.PROVED, True, False): "optimal", (Stop.PROVED, False, True): "infeasible"}


class UnansweredError(RuntimeError):
    """A back end ended without an answer, for another reason than time: all that depends on it is unknown."""


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
    effort: float = 0.0  # in the solver's own units of work, where it counts them
    seconds: float = 0.0

    @property
    def proved(self) -> bool:
        """Whether the search ended with a proof."""
        return self.stop is Stop.PROVED

    @property
    def status(self) -> Status:
        """Status of the answer: only a proof is called optimal or infeasible."""
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


TOLERANCE = 1e-6  # of what a row adds up, as the checks of plans have it; HiGHS works to 1e-9 of a scaled row
WHOLE = 1e-5  # from a whole number


def broken_by(lp: Any, point: npt.NDArray[np.float64]) -> str:
    """Return which row, bound or whole column of a model in HiGHS a point breaks; nothing where it keeps all."""
    lower, upper = np.asarray(lp.col_lower_), np.asarray(lp.col_upper_)
    if len(point) != len(lower) or not np.all(np.isfinite(point)):
        return f"{int(np.isfinite(point).sum())} values for {len(lower)} columns"
    room = TOLERANCE * np.maximum(1.0, np.abs(point))
    outside = np.maximum(lower - point, point - upper) - room
    whole = np.asarray([int(kind) == 1 for kind in lp.integrality_], dtype=bool)
    if len(whole):
        fraction = np.where(whole, np.abs(point - np.round(point)), 0.0)
        if fraction.max(initial=0.0) > WHOLE:
            return f"column {int(fraction.argmax())} is {float(point[fraction.argmax()]):g}, a whole number expected"
    if outside.max(initial=-1.0) > 0:
        i = int(outside.argmax())
        return f"column {i} is {float(point[i]):g}, not from {float(lower[i]):g} to {float(upper[i]):g}"
    total, size = _rows_at(lp, point)
    low, high = np.asarray(lp.row_lower_), np.asarray(lp.row_upper_)
    excess = np.maximum(low - total, total - high) - TOLERANCE * np.maximum(1.0, size)
    if excess.max(initial=-1.0) > 0:
        i = int(excess.argmax())
        return f"row {i} is {float(total[i]):g}, not from {float(low[i]):g} to {float(high[i]):g}"
    return ""


def _rows_at(lp: Any, point: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Compute the activity of each row at a point, and the sum of its absolute terms."""
    matrix = lp.a_matrix_
    start, index = np.asarray(matrix.start_, dtype=np.int64), np.asarray(matrix.index_, dtype=np.int64)
    owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
    by_column = str(matrix.format_).endswith("kColwise")
    rows, columns = (index, owner) if by_column else (owner, index)
    terms = np.asarray(matrix.value_) * point[columns]
    count = int(lp.num_row_)
    total = np.bincount(rows, terms, count).astype(np.float64)
    return total, np.bincount(rows, np.abs(terms), count).astype(np.float64)


def value_of(lp: Any, point: npt.NDArray[np.float64]) -> float:
    """Return the objective of a model in HiGHS at a point."""
    return float(np.asarray(lp.col_cost_) @ point + lp.offset_)


def broken_by_integers(proto: Any, point: Sequence[int]) -> str:
    """Return which constraint or domain of a CP-SAT model a point breaks; nothing where it keeps all.

    A constraint of a kind that no formulation here has is not judged.
    """
    if len(point) != len(proto.variables):
        return f"{len(point)} values for {len(proto.variables)} variables"
    for i, variable in enumerate(proto.variables):
        if not _in_domain(point[i], list(variable.domain)):
            return f"variable {variable.name or i} is {point[i]}, outside its domain"
    for i, constraint in enumerate(proto.constraints):
        if all(_true(point, literal) for literal in constraint.enforcement_literal) and not _kept(constraint, point):
            return f"constraint {constraint.name or i} does not hold"
    return ""


def integer_value(proto: Any, point: Sequence[int]) -> float:
    """Return the objective of a CP-SAT model at a point."""
    objective = proto.objective
    total = sum(int(factor) * point[column] for column, factor in zip(objective.vars, objective.coeffs, strict=True))
    return float((total + objective.offset) * (objective.scaling_factor or 1.0))


def _true(point: Sequence[int], literal: int) -> bool:
    return bool(point[literal]) if literal >= 0 else not point[-literal - 1]


def _in_domain(value: int, domain: Sequence[int]) -> bool:
    return any(low <= value <= high for low, high in zip(domain[::2], domain[1::2], strict=True))


def _at(point: Sequence[int], expression: Any) -> int:
    return int(expression.offset) + sum(
        int(factor) * int(point[column]) for column, factor in zip(expression.vars, expression.coeffs, strict=True)
    )


def _table(constraint: Any, solution: Sequence[int]) -> bool:
    wide, values = len(constraint.table.exprs), list(constraint.table.values)
    point = [_at(solution, part) for part in constraint.table.exprs]
    among = any(values[i : i + wide] == point for i in range(0, len(values), wide))
    return among != bool(constraint.table.negated)


_KINDS: dict[str, Callable[[Any, Sequence[int]], bool]] = {
    "linear": lambda constraint, point: _in_domain(
        sum(
            int(factor) * int(point[column])
            for column, factor in zip(constraint.linear.vars, constraint.linear.coeffs, strict=True)
        ),
        list(constraint.linear.domain),
    ),
    "bool_or": lambda constraint, point: any(_true(point, literal) for literal in constraint.bool_or.literals),
    "bool_and": lambda constraint, point: all(_true(point, literal) for literal in constraint.bool_and.literals),
    "exactly_one": lambda constraint, point: (
        sum(_true(point, literal) for literal in constraint.exactly_one.literals) == 1
    ),
    "at_most_one": lambda constraint, point: (
        sum(_true(point, literal) for literal in constraint.at_most_one.literals) <= 1
    ),
    "lin_max": lambda constraint, point: (
        max(_at(point, part) for part in constraint.lin_max.exprs) == _at(point, constraint.lin_max.target)
    ),
    "int_prod": lambda constraint, point: (
        math.prod(_at(point, part) for part in constraint.int_prod.exprs) == _at(point, constraint.int_prod.target)
    ),
    "element": lambda constraint, point: (
        0 <= (place := _at(point, constraint.element.linear_index)) < len(constraint.element.exprs)
        and _at(point, constraint.element.exprs[place]) == _at(point, constraint.element.linear_target)
    ),
    "table": _table,
}


def _kept(constraint: Any, point: Sequence[int]) -> bool:
    for kind, holds in _KINDS.items():
        if getattr(constraint, f"has_{kind}")():
            return holds(constraint, point)
    return True


def attempted(solve: Callable[[], Outcome[T]], solver: str) -> Outcome[T]:
    """Run a back end; an exception gives the outcome FAILED with its message, as the answer is not known."""
    try:
        return solve()
    except Exception as error:  # of compiled code, which may raise anything
        return Outcome(stop=Stop.FAILED, detail=f"{type(error).__name__}: {error}", solver=solver)


def believed(outcome: Outcome[T], *, broken: str = "", minimize: bool = True, allowed: float = 0.0) -> Outcome[T]:
    """Return as much of an answer as its own figures bear out.

    Parameters
    ----------
    broken
        The row that the solution breaks, if there is one: then nothing of the answer is believed.
    minimize
        On which side of the value the bound must be.
    allowed
        Distance of bound and value that was asked for: within it the search ended as it should, with or without proof.
    """
    if outcome.stop is not Stop.PROVED and not broken:
        return replace(outcome, infeasible=False)
    wrong = ""
    if broken:
        wrong = f"its solution breaks a row: {broken}"
    elif outcome.infeasible and outcome.solution is not None:
        wrong = "infeasible, with a solution"
    elif not outcome.infeasible and outcome.solution is None:
        wrong = f"{outcome.detail} without a solution"
    if wrong:
        return replace(
            outcome, stop=Stop.FAILED, solution=None, objective=None, bound=None, infeasible=False, detail=wrong
        )
    value, bound = outcome.objective, outcome.bound
    if value is None or outcome.within(0.0):
        return outcome
    if bound is not None and (bound > value) == minimize:
        why = f"the bound {bound:g} excludes the value {value:g}"
        return replace(outcome, stop=Stop.FAILED, bound=None, detail=why)
    if not outcome.within(allowed):
        return replace(outcome, stop=Stop.LIMIT, detail=f"called optimal at {value:g} with the bound {bound}")
    return outcome


def agreed(first: Outcome[T], second: Outcome[T]) -> Outcome[T]:
    """Return the joint outcome of two runs of a model of which the first reported infeasibility.

    A second run that has a solution is believed: it keeps the rows.
    """
    seconds = first.seconds + second.seconds
    if second.infeasible or second.solution is not None:
        return replace(second, seconds=seconds, effort=first.effort + second.effort)
    stop = Stop.FAILED if second.stop is Stop.PROVED else second.stop
    detail = f"infeasible in one run, {second.detail or second.stop} in another"
    return replace(second, stop=stop, infeasible=False, detail=detail, seconds=seconds)


BOUND_TOLERANCE = 1e-6  # relative, as the checks have it; above what counting in kilowatts and dollars costs
Way = tuple[str, Callable[[float | None], float | None]]  # its mark, and the bound that it finds within given seconds


def second_proof(claimed: float | None, ways: Iterable[Way], seconds: float | None) -> str:
    """Return the mark of the first way whose own bound reaches the claimed one; ON_TRUST where none does.

    All ways together have `seconds` seconds.
    """
    if claimed is None:
        return ON_TRUST
    deadline = Deadline(seconds)
    for mark, least in ways:
        bound = None if deadline.passed else least(deadline.limit)
        if bound is not None and bound >= claimed * (1 - BOUND_TOLERANCE):
            return mark
    return ON_TRUST


Conflicting = Callable[[frozenset[str]], bool]


def remembered(conflicting: Conflicting, rules: Sequence[str]) -> Conflicting:
    """Return a question about sets of rules that conflict together, each asked where no answer before settles it.

    More rules than some that conflict do so too, and fewer than some that do not, or are not known to, neither.
    """
    judged = {frozenset(rules): True}

    def asked(some: frozenset[str]) -> bool:
        known = next((yes for known, yes in judged.items() if (known <= some if yes else some <= known)), None)
        if known is None:
            known = judged[some] = conflicting(some)
        return known

    return asked


def smallest_conflict(conflicting: Conflicting, rules: Sequence[str]) -> list[str]:
    """Return a smallest set of rules that conflict together, the later ones before others (QuickXplain, Junker 2004).

    None of them can be left out, but for those of which the question does not know whether the others conflict. One
    is returned at least; whether nothing at all conflicts is not asked.
    """
    found = set(_smallest(conflicting, frozenset(), tuple(rules)[::-1], changed=False))
    return [rule for rule in rules if rule in found]


def _smallest(
    conflicting: Conflicting, given: frozenset[str], rules: Sequence[str], *, changed: bool
) -> tuple[str, ...]:
    """Return a smallest set of `rules` that conflicts together with the `given` ones, by halving the rules.

    `changed`: rules were added to `given`, so that they may conflict alone.
    """
    if changed and conflicting(given):
        return ()
    if len(rules) == 1:
        return tuple(rules)
    first, last = rules[: len(rules) // 2], rules[len(rules) // 2 :]
    of_last = _smallest(conflicting, given.union(first), last, changed=True)
    return (*_smallest(conflicting, given.union(of_last), first, changed=bool(of_last)), *of_last)
