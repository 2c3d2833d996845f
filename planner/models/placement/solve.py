"""Place a job on a cluster: a first packing, the bounds that need no solver, and a solver only where the two do not meet."""

import sys
import time
from dataclasses import dataclass

from planner.models.placement.bounds import bounds, fewest_split
from planner.models.placement.data import Packing, Question, measure
from planner.models.placement.greedy import greedy
from planner.models.placement.progress import ANALYTIC, Progress
from planner.models.requests import Options
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.signals import uninterrupted

FORMULATION = (
    "Counts of leaves by free nodes and whole groups held, of chains of split groups by the holes that they share; "
    "level by level, each fixed before the next: best fit where it meets the analytic bound, CP-SAT where it does not, HiGHS pod by pod."
)
LOADING_SECONDS = 2.0  # to import CP-SAT where it is not loaded yet: measured 1.3 to 1.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A packing with what is proven of each level of the objective."""

    packing: Packing
    values: tuple[int, ...]
    bounds: tuple[int, ...]
    analytic: tuple[int, ...]
    least_split: int
    searched: int


def solver_at_hand(options: Options) -> bool:
    """Tell whether there is time to search: loading the solver alone takes longer than a scheduler may wait."""
    return (
        options.time_limit is None
        or options.time_limit >= LOADING_SECONDS
        or "ortools.sat.python.cp_model" in sys.modules
    )


def solve(q: Question, options: Options, *, fragmentation: bool = True) -> Outcome[Found]:
    """Return the packing of least (split groups, extra pieces, groups across pods, boundaries, part-free leaves) in this order.

    Without `fragmentation` the last level is left to best fit, and the rest alone is called proven; so is the level before it
    where groups do not follow each other along a line.
    """
    started = time.perf_counter()
    if q.need > q.free:
        return Outcome(stop=Stop.PROVED, infeasible=True, detail=f"{q.need} units > {q.free} free", solver=ANALYTIC)
    packing = greedy(q)
    # Nothing split is the least at every level up to the crossings, so that bounds given it hold for all that is as good.
    analytic = bounds(q, whole=not packing.split).values
    held = Progress(packing, measure(q, packing).values, list(analytic), started=started)
    searched = len(analytic) - (not fragmentation) - (not fragmentation and not q.follows)
    if not held.proven(searched - 1) and solver_at_hand(options):
        try:
            with uninterrupted():
                from planner.models.placement.lexicographic import improve
            improve(q, held, options, searched)
        except KeyboardInterrupt:
            held.interrupted = True
    found = Found(
        packing=held.packing,
        values=held.values,
        bounds=tuple(held.bounds),
        analytic=analytic,
        least_split=fewest_split([leaf.free for leaf in q.leaves], q.kinds),
        searched=searched,
    )
    return Outcome(
        stop=Stop.PROVED if held.proven(searched - 1) else held.stop,
        solution=found,
        objective=float(found.values[0]),
        bound=float(found.bounds[0]),
        solver=held.solver,
        variables=held.variables,
        constraints=held.constraints,
        seconds=time.perf_counter() - started,
    )
