"""A second proof of a bound that one MILP solver claims: by CP-SAT, or by the duals of the relaxation in fractions."""

from collections.abc import Callable, Iterable

from planner.plan.declared import ON_TRUST
from planner.solvers.deadline import Deadline

TOLERANCE = 1e-6  # relative, as the checks have it; above what counting in kilowatts and dollars costs
Way = tuple[str, Callable[[float | None], float | None]]  # its mark, and the bound that it finds in so many seconds


def second_proof(claimed: float | None, ways: Iterable[Way], seconds: float | None) -> str:
    """Return the mark of the first way whose own bound reaches the one claimed, in so many seconds for all of them."""
    if claimed is None:
        return ON_TRUST
    deadline = Deadline(seconds)
    for mark, least in ways:
        bound = None if deadline.passed else least(deadline.limit)
        if bound is not None and bound >= claimed * (1 - TOLERANCE):
            return mark
    return ON_TRUST
