"""Place a job on a cluster of several trees, none of which it may leave: the best tree, and bounds over all of them."""

from collections.abc import Sequence
from dataclasses import replace

from planner.models.placement.data import Problem, part_free
from planner.models.placement.solve import Solution, solve
from planner.models.requests import Options
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome, Stop


def solve_in_one_tree(
    trees: Sequence[Problem], options: Options, *, fragmentation: bool
) -> tuple[int, Outcome[Solution]]:
    """Solve each tree, and return the number of the best with what is proven over all.

    A tree is the cluster with all other trees taken.
    """
    if len(trees) == 1:
        return 0, solve(trees[0], options, fragmentation=fragmentation)
    deadline, outcomes = Deadline(options.time_limit), list[Outcome[Solution]]()
    for at, q in enumerate(trees):
        limit = None if deadline.limit is None else deadline.limit / (len(trees) - at)
        outcomes.append(solve(q, replace(options, time_limit=limit), fragmentation=fragmentation))
    left_part_free = [part_free(q, [0] * len(q.leaves)) for q in trees]
    solutions = {
        t: _beside(o.solution, sum(left_part_free) - left_part_free[t])
        for t, o in enumerate(outcomes)
        if o.solution is not None
    }
    if not solutions:
        freest = max(range(len(trees)), key=lambda t: trees[t].free)
        return freest, outcomes[freest]
    best = min(solutions, key=lambda t: (solutions[t].values, t))
    bounds = over_all(solutions[best].values, [(s.values, s.bounds) for s in solutions.values()])
    merged = replace(
        solutions[best],
        bounds=bounds,
        analytic=tuple(min(a, b) for a, b in zip(solutions[best].analytic, bounds, strict=True)),
        min_split=min(s.min_split for s in solutions.values()),
    )
    proved = merged.values[: merged.searched] == bounds[: merged.searched]
    stops = {o.stop for o in outcomes}
    stop = Stop.PROVED if proved else Stop.INTERRUPTED if Stop.INTERRUPTED in stops else Stop.LIMIT
    return best, replace(
        outcomes[best],
        stop=stop,
        solution=merged,
        bound=float(bounds[0]),
        variables=sum(o.variables for o in outcomes),
        constraints=sum(o.constraints for o in outcomes),
        seconds=deadline.elapsed,
    )


def _beside(s: Solution, part_free_elsewhere: int) -> Solution:
    """Count the part-free leaves of the other trees too, which stay as they are."""
    values, bounds, analytic = ((*x[:-1], x[-1] + part_free_elsewhere) for x in (s.values, s.bounds, s.analytic))
    return replace(s, values=values, bounds=bounds, analytic=analytic)


def over_all(best: Sequence[int], trees: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[int, ...]:
    """Bound each level over trees given as (values, bounds): by those that may tie with the best in all levels before.

    A tree that is not proven at a level, or may be better there than is known, bounds no later level.
    """
    bounds, alive, open_ended = list[int](), list(trees), False
    for level, value in enumerate(best):
        bounds.append(0 if open_ended else min((b[level] for _, b in alive), default=value))
        alive = [(v, b) for v, b in alive if b[level] <= value]
        open_ended = open_ended or any(v[level] != b[level] for v, b in alive)
    return tuple(bounds)
