"""The solvers by name, imported when they run, and the choice of one for a formulation that two can solve."""

from collections.abc import Callable
from functools import partial
from typing import Any

from planner.plan.certificate import BOUNDED, CONFIRMED, ON_TRUST
from planner.solvers.outcome import TOLERANCE, Outcome, Values
from planner.solvers.search_deadline import Deadline
from planner.solvers.signals import uninterrupted

SOLVERS = ("highs", "cpsat")


def run_milp(model: Any, *, solver: str | None = None, **limits: Any) -> Outcome[Values]:
    """Solve a Pyomo MILP on the solver of that name; on HiGHS unless given, or where rows are lazy."""
    if solver == "cpsat" and getattr(model, "lazy", None) is None:
        from planner.solvers import cpsat

        return cpsat.run_pyomo(model, **limits)
    from planner.solvers import highs

    return highs.run(model, **limits)


def second_proof(
    claimed: float | None,
    relaxed: Callable[[], Any],
    exact: Callable[[], Any],
    *,
    unit: float,
    seconds: float | None,
    seed: int,
) -> str:
    """Return the mark of what reaches a MILP's claimed lower bound again in `seconds`: BOUNDED, CONFIRMED or ON_TRUST.

    BOUNDED: a dual bound of the `relaxed` MILP, recomputed in exact fractions, which takes milliseconds. CONFIRMED: the
    bound of CP-SAT, whose arithmetic is exact, on the `exact` one. `unit`: of their objectives, in the claim's.
    """
    from planner.solvers import highs

    if claimed is None:
        return ON_TRUST
    deadline = Deadline(seconds)
    ways: dict[str, Callable[[float | None], float | None]] = {
        BOUNDED: lambda limit: highs.lower_bound(relaxed(), time_limit=limit),  # lazy rows would only raise it
        CONFIRMED: lambda limit: run_milp(exact(), solver="cpsat", time_limit=limit, seed=seed).bound,
    }
    for mark, least in ways.items():
        bound = None if deadline.passed else least(deadline.limit)
        if bound is not None and bound * unit >= claimed * (1 - TOLERANCE):
            return mark
    return ON_TRUST


def linear_runner(solver: str | None = None, *, usual: str) -> Callable[..., Outcome[Values]]:
    """Return how a solver runs a linear CP-SAT model, once: runs with and without presolve must agree on a proof."""
    with uninterrupted():
        from planner.solvers import cpsat

    on_cpsat = (solver or usual) == "cpsat"
    return partial(cpsat.run, interruptible=True) if on_cpsat else partial(cpsat.run_on_highs, repeat=False)
