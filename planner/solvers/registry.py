"""The solvers as data: the capabilities of each, and the choice among those that can solve a formulation.

Formulations that one back end alone can solve call it by its module; those that two can go through here, so that
`Options.solver` selects between them. Back ends are imported when they run: each takes a second to load.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.solvers.outcome import Outcome
from planner.solvers.signals import uninterrupted

if TYPE_CHECKING:
    from planner.solvers import cpsat, highs


@dataclass(frozen=True, slots=True, kw_only=True)
class Solver:
    """A back end and its capabilities."""

    name: str
    title: str
    package: str
    milp: bool  # whole and continuous variables in linear rows
    logic: bool  # CP-SAT's own constraints: tables, products, implications
    duals: bool  # of the rows of a linear program
    lazy_rows: bool  # rows added as points break them
    interrupt: bool  # Ctrl-C ends the search and returns its incumbent

    @property
    def version(self) -> str:
        """Return the version that is installed."""
        return version(self.package)


SOLVERS = {
    solver.name: solver
    for solver in (
        Solver(
            name="highs", title="HiGHS", package="highspy",
            milp=True, logic=False, duals=True, lazy_rows=True, interrupt=True,
        ),
        Solver(
            name="cpsat", title="CP-SAT", package="ortools",
            milp=True, logic=True, duals=False, lazy_rows=False, interrupt=True,
        ),
    )
}  # fmt: skip


def solver_named(name: str | None) -> str | None:
    """Return the name of a solver as options have it; None leaves each formulation its usual one.

    Raises
    ------
    InputError
        If there is no such solver.
    """
    if name is not None and name not in SOLVERS:
        raise InputError(f"solver: must be one of {', '.join(SOLVERS)} (is {name!r})")
    return name


def run_milp(model: Any, *, solver: str | None = None, **limits: Any) -> "Outcome[highs.HighsValues]":
    """Solve a Pyomo MILP on the solver that is asked for; on HiGHS unless given, or where rows are lazy."""
    lazy = getattr(model, "lazy", None) is not None
    if solver == "cpsat" and not lazy:
        from planner.solvers import cpsat_from_pyomo

        return cpsat_from_pyomo.run(model, **limits)
    from planner.solvers import highs

    return highs.run(model, **limits)


def linear_runner(solver: str | None = None, *, usual: str) -> "Callable[..., Outcome[cpsat.CpsatValues]]":
    """Return how to run a CP-SAT model whose rows are all linear, on the solver that is asked for or the usual one.

    HiGHS is run once: a level is proven where a run with presolve and one without agree.
    """
    if (solver or usual) == "cpsat":
        with uninterrupted():
            from planner.solvers import cpsat

        return lambda model, **limits: cpsat.run(model, interruptible=True, **limits)
    with uninterrupted():
        from planner.solvers import highs_from_cpsat

    return partial(highs_from_cpsat.run, repeat=False)
