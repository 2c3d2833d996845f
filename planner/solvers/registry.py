"""The solvers by name, imported when they run, and the choice of one for a formulation that two can solve."""

from collections.abc import Callable
from functools import partial
from typing import Any

from planner.solvers.outcome import Outcome, Values
from planner.solvers.signals import uninterrupted

SOLVERS = ("highs", "cpsat")


def run_milp(model: Any, *, solver: str | None = None, **limits: Any) -> Outcome[Values]:
    """Solve a Pyomo MILP on the solver of that name; on HiGHS unless given, or where rows are lazy."""
    if solver == "cpsat" and getattr(model, "lazy", None) is None:
        from planner.solvers import cpsat_from_pyomo

        return cpsat_from_pyomo.run(model, **limits)
    from planner.solvers import highs

    return highs.run(model, **limits)


def linear_runner(solver: str | None = None, *, usual: str) -> Callable[..., Outcome[Values]]:
    """Return how a solver runs a linear CP-SAT model, once: runs with and without presolve must agree on a proof."""
    with uninterrupted():
        from planner.solvers import cpsat

    on_cpsat = (solver or usual) == "cpsat"
    return partial(cpsat.run, interruptible=True) if on_cpsat else partial(cpsat.run_on_highs, repeat=False)
