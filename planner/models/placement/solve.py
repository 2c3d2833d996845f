"""Place a job on a cluster: a first packing, bounds without a solver, and a solver where the two do not meet."""

import sys
from dataclasses import dataclass

from planner.models.placement.bounds import bounds, min_split_groups
from planner.models.placement.data import Packing, Problem, measure
from planner.models.placement.greedy import greedy
from planner.models.placement.progress import ANALYTIC, Progress
from planner.models.requests import Options
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.signals import uninterrupted

FORMULATION = (
    "Counts of leaves by free nodes and whole groups on them, of chains of split groups by the holes that they share; "
    "level by level, each fixed before the next: best fit where it meets the analytic bound, CP-SAT where it does not, "
    "HiGHS pod by pod."
)
LOADING_SECONDS = 2.0  # To import CP-SAT where it is not loaded yet: measured 1.3 to 1.6.


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A packing with what is proven of each level of the objective; the first `searched` of them were to be proven."""

    packing: Packing
    values: tuple[int, ...]
    bounds: tuple[int, ...]
    analytic: tuple[int, ...]
    min_split: int
    searched: int


def solver_affordable(options: Options) -> bool:
    """Return whether there is time to search: loading the solver alone takes longer than a scheduler may wait."""
    loaded = "ortools.sat.python.cp_model" in sys.modules
    return options.time_limit is None or options.time_limit >= LOADING_SECONDS or loaded


def solve(q: Problem, options: Options, *, fragmentation: bool = True) -> Outcome[Solution]:
    """Minimize split groups, extra pieces, groups across pods, boundaries and part-free leaves, in this order.

    Without `fragmentation` the last level is left to best fit, and the rest alone is called proven; so is the level
    before it where groups do not follow each other along a line.
    """
    deadline = Deadline(options.time_limit)
    if q.need > q.free:
        return Outcome(stop=Stop.PROVED, infeasible=True, detail=f"{q.need} units > {q.free} free", solver=ANALYTIC)
    packing = greedy(q)
    # Nothing split is minimal at every level up to the crossings, so that bounds may assume it of all that is as good.
    analytic = bounds(q, whole=not packing.split).values
    progress = Progress(packing, measure(q, packing).values, list(analytic), deadline)
    searched = len(analytic) - (not fragmentation) - (not fragmentation and not q.follows)
    if not progress.proven(searched - 1) and solver_affordable(options):
        try:
            with uninterrupted():
                from planner.models.placement.lexicographic import improve
            improve(q, progress, options, searched)
        except KeyboardInterrupt:
            progress.interrupted = True
    solution = Solution(
        packing=progress.packing,
        values=progress.values,
        bounds=tuple(progress.bounds),
        analytic=analytic,
        min_split=min_split_groups([leaf.free for leaf in q.leaves], q.kinds),
        searched=searched,
    )
    return Outcome(
        stop=Stop.PROVED if progress.proven(searched - 1) else progress.stop,
        solution=solution,
        objective=float(solution.values[0]),
        bound=float(solution.bounds[0]),
        solver=progress.solver,
        variables=progress.variables,
        constraints=progress.constraints,
        seconds=deadline.elapsed,
    )
