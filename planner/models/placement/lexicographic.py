"""Prove the levels of a placement one after another, from the first that best fit leaves open."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from planner.models.placement.cpsat import Formulation, formulate, levels
from planner.models.placement.data import Packing, Problem, measure
from planner.models.placement.decode import decode, settled
from planner.models.placement.flow import decode_chains, formulate_chains, size_of
from planner.models.placement.greedy import with_split
from planner.models.placement.progress import Progress
from planner.models.placement.regular_cluster import place_equal
from planner.models.requests import Options
from planner.solvers.cpsat import Values
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.registry import linear_runner

MAX_VARIABLES = 60_000  # Writing a larger model down takes seconds by itself.
# To write a variable with its share of the rows, so that little time is not spent on that alone.
SECONDS_PER_VARIABLE = 2e-5
# The same and the relaxation of flows by pod, which no time limit stops half-way.
SECONDS_PER_FLOW_VARIABLE = 2e-4
ROUNDING = 1e-6  # A bound that is less than this above a whole number proves that number.


def improve(q: Problem, progress: Progress, options: Options, searched: int) -> None:
    """Search each of the first levels that is not at its bound while those before it are proven and time is left."""
    _start_from_equal(q, progress, options)
    for level in range(searched):
        if progress.values[level] > progress.bounds[level]:
            model = _model(q, progress, level, options)
            if model is not None and not progress.deadline.passed:
                _search(model, progress, level, options)
        if progress.interrupted or not progress.proven(level):
            return


def _start_from_equal(q: Problem, progress: Progress, options: Options) -> None:
    """Take the plan's own placement of equal groups and its proofs, where the cluster is as regular as a plan's."""
    limit = progress.deadline.limit
    placed = place_equal(q, replace(options, time_limit=None if limit is None else limit / 2))
    if placed is None:
        return
    packing, proven = placed
    progress.improve(packing, measure(q, packing).values)
    weight = q.kinds[0].weight
    for level, bound in enumerate((proven[0] * weight, *proven[1:])[: 2 + q.tiers]):
        progress.bounds[level] = max(progress.bounds[level], bound)


@dataclass(frozen=True, slots=True)
class _Model:
    """A model of a level with those before it fixed, its reader, and the runs that must agree on a proof."""

    f: Formulation
    read: Callable[[Values], Packing]
    runs: tuple[Callable[..., Outcome[Values]], ...]


def _model(q: Problem, progress: Progress, level: int, options: Options) -> _Model | None:
    """Write the model of a level down; None where it is too large for the time that is left.

    Flows by pod have a tight relaxation, on which HiGHS proves in seconds what CP-SAT does not in minutes; without pods
    it is the other way round.
    """
    by_pod, left = level > 1, progress.deadline.left
    seconds = SECONDS_PER_FLOW_VARIABLE if by_pod else SECONDS_PER_VARIABLE
    if level and _affordable(size_of(q, by_pod=by_pod), left, seconds):
        max_split = _max_split(q, progress) if by_pod else q.groups
        f, chains, pools = formulate_chains(q, by_pod=by_pod, max_split=max_split)
        # Of several lines the boundaries are only bounded from below, and the relaxation of that is loose.
        tight = by_pod and (level != 2 + q.tiers or q.line >= q.groups)
        return _Model(f, partial(decode_chains, f, chains, pools), _runs(options, "highs" if tight else "cpsat"))
    slots = None if level == 0 else _max_split(q, progress)
    holes = max(leaf.free for leaf in q.leaves) * (len(q.pods) if by_pod else 1)
    if _affordable(holes * (len(q.kinds) + 1 + (slots or 0)), left, SECONDS_PER_VARIABLE):
        f = formulate(q, by_pod=by_pod, slots=slots)
        return _Model(f, partial(_split_the_rest, f), _runs(options, "cpsat"))
    return None


def _runs(options: Options, usual: str) -> tuple[Callable[..., Outcome[Values]], ...]:
    """Return the runs of a model: one of CP-SAT, whose arithmetic is exact, or two of HiGHS that must agree."""
    run = linear_runner(options.solver, usual=usual)
    return (run,) if (options.solver or usual) == "cpsat" else (run, partial(run, presolve=False))


def _affordable(variables: int, left: float, seconds: float) -> bool:
    """Return whether a model is small enough to be written down and searched in the time that is left."""
    return variables <= min(MAX_VARIABLES, left / seconds)


def _max_split(q: Problem, progress: Progress) -> int:
    """Bound the split groups, and so the clusters, of any packing whose first level is minimal."""
    lightest = min(k.weight for k in q.kinds)
    return min(q.groups, progress.values[0] // lightest) if lightest else q.groups


def _search(model: _Model, progress: Progress, level: int, options: Options) -> None:
    """Solve a level, keep what is better, and raise the level's bound to what every one of the runs proves."""
    f, proofs = model.f, list[int]()
    goals = levels(f)
    for goal, value in zip(goals[:level], progress.values, strict=False):
        f.model.add(goal <= value).with_name("keep_the_levels_before")
    f.model.add(goals[level] >= progress.bounds[level]).with_name("respect_the_analytic_bound")
    f.model.minimize(goals[level])
    exclude = len(model.runs) > 1  # A proof that nothing is better is quicker than one of the optimum.
    for run in model.runs:
        value = progress.values[level]
        if value <= progress.bounds[level] or progress.interrupted:
            return
        if exclude:
            f.model.add(goals[level] < value).with_name("improve_on_the_incumbent")
        limit = progress.deadline.limit
        outcome = run(f.model, time_limit=limit, seed=options.seed, threads=options.threads)
        progress.interrupted = outcome.stop is Stop.INTERRUPTED
        progress.variables += outcome.variables
        progress.constraints += outcome.constraints
        progress.solver = outcome.solver
        if outcome.solution is not None:
            packing = model.read(outcome.solution)
            progress.improve(packing, measure(f.q, packing).values)
        proofs.append(_proven(outcome, value if exclude else None))
    progress.bounds[level] = max(progress.bounds[level], min(proofs))


def _split_the_rest(f: Formulation, values: Values) -> Packing:
    """Read the packing, and split the groups that the model only counts."""
    packing, left = decode(f, values)
    if any(left):
        rest = with_split(f.q, packing.whole, left)
        packing = settled(Packing(whole=Counter(rest.whole), split=[*packing.split, *rest.split]))
    return packing


def _proven(outcome: Outcome[Values], excluded: int | None) -> int:
    """Return the whole number that a run proves, where only values below `excluded` were searched, if there is one.

    A run that failed proves nothing. Nor does one without a solution that excluded none: its rows admit the incumbent.
    """
    if outcome.stop is Stop.FAILED:
        return 0
    if outcome.infeasible:
        return excluded or 0
    bound = math.ceil((outcome.bound or 0.0) - ROUNDING)
    return bound if excluded is None else min(bound, excluded)
