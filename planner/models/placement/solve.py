"""Place a job on a cluster: a first packing, bounds without a solver, and a solver where the two do not meet."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.models.placement.first_packing import greedy
from planner.models.placement.placement_problem import (
    ANALYTIC,
    Packing,
    PlacementProblem,
    Progress,
    bounds,
    measure,
    min_split_groups,
    part_free,
)
from planner.models.requests import Options
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.signals import Deadline, uninterrupted

FORMULATION = (
    "Counts of leaves by free nodes and whole groups on them, of chains of split groups by the holes that they share; "
    "level by level, each fixed before the next: best fit where it meets the analytic bound, CP-SAT where it does not, "
    "HiGHS pod by pod."
)
LOADING_SECONDS = 2.0  # To import CP-SAT where it is not loaded yet: measured 1.3 to 1.6.


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A packing with the value and bound of each level of the objective; the first `searched` levels were searched."""

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


def solve(problem: PlacementProblem, options: Options, *, fragmentation: bool = True) -> Outcome[Solution]:
    """Minimize split groups, extra pieces, groups across pods, boundaries and part-free leaves, in this order.

    Without `fragmentation` the last level is left to best fit, and the rest alone is called proven; so is the level
    before it where groups do not follow each other along a line.
    """
    deadline = Deadline(options.time_limit)
    if problem.need > problem.free:
        return Outcome(
            stop=Stop.PROVED, infeasible=True, detail=f"{problem.need} units > {problem.free} free", solver=ANALYTIC
        )
    packing = greedy(problem)
    # Nothing split is minimal at every level up to the crossings, so that bounds may assume it of all that is as good.
    analytic = bounds(problem, whole=not packing.split).values
    progress = Progress(packing, measure(problem, packing).values, list(analytic), deadline)
    searched = len(analytic) - (not fragmentation) - (not fragmentation and not problem.follows)
    if not progress.proven(searched - 1) and solver_affordable(options):
        try:
            with uninterrupted():
                from planner.models.placement.proven_levels import improve
            improve(problem, progress, options, searched)
        except KeyboardInterrupt:
            progress.interrupted = True
    solution = Solution(
        packing=progress.packing,
        values=progress.values,
        bounds=tuple(progress.bounds),
        analytic=analytic,
        min_split=min_split_groups([leaf.free for leaf in problem.leaves], problem.kinds),
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


def solve_in_one_tree(
    trees: Sequence[PlacementProblem], options: Options, *, fragmentation: bool
) -> tuple[int, Outcome[Solution]]:
    """Solve each tree; return the index of the best, and its outcome with bounds over all trees.

    The problem of a tree is that of the cluster with all other trees taken.
    """
    if len(trees) == 1:
        return 0, solve(trees[0], options, fragmentation=fragmentation)
    deadline, outcomes = Deadline(options.time_limit), list[Outcome[Solution]]()
    for at, tree in enumerate(trees):
        limit = None if deadline.limit is None else deadline.limit / (len(trees) - at)
        outcomes.append(solve(tree, replace(options, time_limit=limit), fragmentation=fragmentation))
    left_part_free = [part_free(tree, [0] * len(tree.leaves)) for tree in trees]
    solutions: dict[int, Solution] = {}
    for index, solution in (
        (index, outcome.solution) for index, outcome in enumerate(outcomes) if outcome.solution is not None
    ):
        # The part-free leaves of the other trees stay as they are, and count too.
        elsewhere = sum(left_part_free) - left_part_free[index]
        values, lower, analytic = (
            (*values[:-1], values[-1] + elsewhere) for values in (solution.values, solution.bounds, solution.analytic)
        )
        solutions[index] = replace(solution, values=values, bounds=lower, analytic=analytic)
    if not solutions:
        freest = max(range(len(trees)), key=lambda index: trees[index].free)
        return freest, outcomes[freest]
    best = min(solutions, key=lambda index: (solutions[index].values, index))
    bounds = over_all(solutions[best].values, [(solution.values, solution.bounds) for solution in solutions.values()])
    merged = replace(
        solutions[best],
        bounds=bounds,
        analytic=tuple(min(own, bound) for own, bound in zip(solutions[best].analytic, bounds, strict=True)),
        min_split=min(solution.min_split for solution in solutions.values()),
    )
    proved = merged.values[: merged.searched] == bounds[: merged.searched]
    stops = {outcome.stop for outcome in outcomes}
    stop = Stop.PROVED if proved else Stop.INTERRUPTED if Stop.INTERRUPTED in stops else Stop.LIMIT
    return best, replace(
        outcomes[best],
        stop=stop,
        solution=merged,
        bound=float(bounds[0]),
        variables=sum(outcome.variables for outcome in outcomes),
        constraints=sum(outcome.constraints for outcome in outcomes),
        seconds=deadline.elapsed,
    )


def over_all(best: Sequence[int], trees: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[int, ...]:
    """Bound each level over trees given as (values, bounds): by those that may tie with the best in all levels before.

    A tree that is not proven at a level, or may be better there than is known, bounds no later level.
    """
    bounds, alive, open_ended = list[int](), list(trees), False
    for level, value in enumerate(best):
        bounds.append(0 if open_ended else min((bounds[level] for _, bounds in alive), default=value))
        alive = [(values, bounds) for values, bounds in alive if bounds[level] <= value]
        open_ended = open_ended or any(values[level] != bounds[level] for values, bounds in alive)
    return tuple(bounds)
