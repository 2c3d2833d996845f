"""What is believed of the answer of a back end: points that keep their rows, bounds that meet values, proofs twice."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from planner.solvers.outcome import Outcome, Stop

T = TypeVar("T")


def attempted(solve: Callable[[], Outcome[T]], solver: str) -> Outcome[T]:
    """Run a back end; one that raises leaves a failure with what it said, as its answer is not known."""
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
    wrong = _contradiction(outcome, broken)
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


def _contradiction(outcome: Outcome[T], broken: str) -> str:
    """Return what makes an answer none: a row that its solution breaks, or a proof without what it is of."""
    if broken:
        return f"its solution breaks a row: {broken}"
    if outcome.infeasible:
        return "infeasible, with a solution" if outcome.solution is not None else ""
    return "" if outcome.solution is not None else f"{outcome.detail} without a solution"


def agreed(first: Outcome[T], second: Outcome[T]) -> Outcome[T]:
    """Return what two runs of a model prove together, of which the first said that it is infeasible.

    A second run that has a solution is believed: it keeps the rows.
    """
    seconds = first.seconds + second.seconds
    if second.infeasible or second.solution is not None:
        return replace(second, seconds=seconds, effort=first.effort + second.effort)
    stop = Stop.FAILED if second.stop is Stop.PROVED else second.stop
    detail = f"infeasible in one run, {second.detail or second.stop} in another"
    return replace(second, stop=stop, infeasible=False, detail=detail, seconds=seconds)
