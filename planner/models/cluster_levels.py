"""Prove the levels of a placement one after another with CP-SAT, from the first that best fit leaves open."""

import math
import time
from collections import Counter
from dataclasses import replace

from planner.handoff import Options
from planner.models.cluster import Progress
from planner.models.cluster_decode import decode, settled
from planner.models.cluster_equal import place_equal
from planner.models.cluster_exact import Formulation, formulate, levels
from planner.models.cluster_greedy import with_split
from planner.models.cluster_question import Packing, Question, measure
from planner.solvers.cpsat import SOLVER, Values, run
from planner.solvers.outcome import Outcome

MOST_VARIABLES = 60_000  # beyond it the translation alone takes seconds
SECONDS_PER_VARIABLE = 2e-5  # to write a variable with its share of the rules down, so that little time is not spent on that alone


def improve(q: Question, held: Progress, options: Options, searched: int) -> None:
    """Search each of the first levels that is not at its bound while those before it are proven and time is left."""
    _start_from_equal(q, held, options)
    for level in range(searched):
        if held.values[level] > held.bounds[level]:
            f = _formulation(q, held, level, options)
            if f is None or _time_left(held, options) <= 0:
                return
            _search(f, held, level, options)
        if not held.proven(level):
            return


def _start_from_equal(q: Question, held: Progress, options: Options) -> None:
    """Take over what the plan's placement of equal groups holds and proves, where the cluster is as regular as a plan's."""
    left = _time_left(held, options)
    found = place_equal(q, replace(options, time_limit=None if math.isinf(left) else left / 2))
    if found is None:
        return
    packing, proven = found
    values = measure(q, packing).values
    if values < held.values:
        held.packing, held.values = packing, values
    weight = q.kinds[0].weight
    for level, bound in enumerate((proven[0] * weight, *proven[1:])[: 2 + q.tiers]):
        held.bounds[level] = max(held.bounds[level], bound)


def _time_left(held: Progress, options: Options) -> float:
    """Return the seconds that are left; infinitely many without a limit."""
    return math.inf if options.time_limit is None else options.time_limit - (time.perf_counter() - held.started)


def _formulation(q: Question, held: Progress, level: int, options: Options) -> Formulation | None:
    """Write the model of a level with those before it fixed; None where it would be too large."""
    slots = None if level == 0 else _most_clusters(q, held)
    by_pod = level > 1
    holes = max(leaf.free for leaf in q.leaves) * (len(q.pods) if by_pod else 1)
    variables = holes * (len(q.kinds) + 1 + (slots or 0))
    if variables > min(MOST_VARIABLES, _time_left(held, options) / SECONDS_PER_VARIABLE):
        return None
    f = formulate(q, by_pod=by_pod, slots=slots)
    goals = levels(f)
    for goal, value in zip(goals[:level], held.values, strict=False):
        f.model.add(goal <= value).with_name("keep_the_levels_before")
    f.model.add(goals[level] >= held.bounds[level]).with_name("respect_the_analytic_bound")
    f.model.minimize(goals[level])
    return f


def _most_clusters(q: Question, held: Progress) -> int:
    """Bound the split groups, and so the clusters, of any packing whose first level is least."""
    least = min(k.weight for k in q.kinds)
    return min(q.groups, held.values[0] // least) if least else q.groups


def _search(f: Formulation, held: Progress, level: int, options: Options) -> None:
    """Solve, keep what is better, and raise the level's bound."""
    left = _time_left(held, options)
    outcome = run(f.model, time_limit=None if math.isinf(left) else left, seed=options.seed, threads=options.threads)
    held.variables += outcome.variables
    held.constraints += outcome.constraints
    held.solver = SOLVER
    if outcome.solution is None:
        return
    packing = _packing(f, outcome.solution)
    values = measure(f.q, packing).values
    if values < held.values:
        held.packing, held.values = packing, values
    held.bounds[level] = max(held.bounds[level], _proven(outcome))


def _packing(f: Formulation, values: Values) -> Packing:
    """Read the packing, cutting what the model only counts."""
    packing, left = decode(f, values)
    if any(left):
        cut = with_split(f.q, packing.whole, left)
        packing = settled(Packing(whole=Counter(cut.whole), split=[*packing.split, *cut.split]))
    return packing


def _proven(outcome: Outcome[Values]) -> int:
    """Return what the solver proves of a whole number."""
    return math.ceil((outcome.bound or 0.0) - 1e-6)
