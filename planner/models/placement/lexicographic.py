"""Prove the levels of a placement one after another with CP-SAT and HiGHS, from the first that best fit leaves open."""

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from planner.models.placement.cpsat import Formulation, formulate, levels
from planner.models.placement.data import Packing, Question, measure
from planner.models.placement.decode import decode, settled
from planner.models.placement.flow import decode_chains, formulate_chains, size_of
from planner.models.placement.greedy import with_split
from planner.models.placement.progress import Progress
from planner.models.placement.regular_cluster import place_equal
from planner.models.requests import Options
from planner.solvers import cpsat, highs_from_cpsat
from planner.solvers.cpsat import Values
from planner.solvers.outcome import Outcome, Stop

MOST_VARIABLES = 60_000  # beyond it the translation alone takes seconds
SECONDS_PER_VARIABLE = (
    2e-5  # to write a variable with its share of the rules down, so that little time is not spent on that alone
)
SECONDS_PER_FLOW_VARIABLE = 2e-4  # and to solve the relaxation of flows by pod, which no time limit stops half-way


def improve(q: Question, held: Progress, options: Options, searched: int) -> None:
    """Search each of the first levels that is not at its bound while those before it are proven and time is left."""
    _start_from_equal(q, held, options)
    for level in range(searched):
        if held.values[level] > held.bounds[level]:
            model = _model(q, held, level, options)
            if model is not None and _time_left(held, options) > 0:
                _search(model, held, level, options)
        if held.interrupted or not held.proven(level):
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


@dataclass(frozen=True, slots=True)
class _Model:
    """A model of a level with those before it fixed, how to read its packing, and the runs that must agree on a proof."""

    f: Formulation
    read: Callable[[Values], Packing]
    runs: tuple[Callable[..., Outcome[Values]], ...]


def _model(q: Question, held: Progress, level: int, options: Options) -> _Model | None:
    """Write the model of a level down; None where it is too large for the time that is left.

    Flows by pod have a tight relaxation, on which HiGHS proves in seconds what CP-SAT does not in minutes; without pods it is the other way round.
    """
    by_pod, left = level > 1, _time_left(held, options)
    search = (partial(cpsat.run, interruptible=True),)
    if level and _affordable(
        size_of(q, by_pod=by_pod), left, SECONDS_PER_FLOW_VARIABLE if by_pod else SECONDS_PER_VARIABLE
    ):
        f, chains, pools = formulate_chains(q, by_pod=by_pod, most_split=_most_split(q, held) if by_pod else q.groups)
        counted = (
            level != 2 + q.tiers or q.line >= q.groups
        )  # of several lines the boundaries are only bounded by their goal
        runs = (highs_from_cpsat.run, partial(highs_from_cpsat.run, presolve=False)) if by_pod and counted else search
        return _Model(f, partial(decode_chains, f, chains, pools), runs)
    slots = None if level == 0 else _most_split(q, held)
    holes = max(leaf.free for leaf in q.leaves) * (len(q.pods) if by_pod else 1)
    if _affordable(holes * (len(q.kinds) + 1 + (slots or 0)), left, SECONDS_PER_VARIABLE):
        f = formulate(q, by_pod=by_pod, slots=slots)
        return _Model(f, partial(_cut_what_is_left, f), search)
    return None


def _affordable(variables: int, left: float, seconds: float) -> bool:
    """Tell whether a model is small enough to be written down and searched in the time that is left."""
    return variables <= min(MOST_VARIABLES, left / seconds)


def _most_split(q: Question, held: Progress) -> int:
    """Bound the split groups, and so the clusters, of any packing whose first level is least."""
    least = min(k.weight for k in q.kinds)
    return min(q.groups, held.values[0] // least) if least else q.groups


def _search(model: _Model, held: Progress, level: int, options: Options) -> None:
    """Solve, keep what is better, and raise the level's bound to what every one of the runs proves."""
    f, proofs = model.f, list[int]()
    goals = levels(f)
    for goal, value in zip(goals[:level], held.values, strict=False):
        f.model.add(goal <= value).with_name("keep_the_levels_before")
    f.model.add(goals[level] >= held.bounds[level]).with_name("respect_the_analytic_bound")
    f.model.minimize(goals[level])
    for run in model.runs:
        if held.values[level] <= held.bounds[level] or held.interrupted:
            return
        if len(model.runs) > 1:
            f.model.add(goals[level] < held.values[level]).with_name("find_better")
        left = _time_left(held, options)
        outcome = run(
            f.model, time_limit=None if math.isinf(left) else left, seed=options.seed, threads=options.threads
        )
        held.interrupted = outcome.stop is Stop.INTERRUPTED
        held.variables += outcome.variables
        held.constraints += outcome.constraints
        held.solver = outcome.solver
        if outcome.solution is not None:
            packing = model.read(outcome.solution)
            values = measure(f.q, packing).values
            if values < held.values:
                held.packing, held.values = packing, values
        proofs.append(held.values[level] if outcome.infeasible else _proven(outcome))
    held.bounds[level] = max(held.bounds[level], min(proofs))


def _cut_what_is_left(f: Formulation, values: Values) -> Packing:
    """Read the packing, cutting what the model only counts."""
    packing, left = decode(f, values)
    if any(left):
        cut = with_split(f.q, packing.whole, left)
        packing = settled(Packing(whole=Counter(cut.whole), split=[*packing.split, *cut.split]))
    return packing


def _proven(outcome: Outcome[Values]) -> int:
    """Return what the solver proves of a whole number."""
    return math.ceil((outcome.bound or 0.0) - 1e-6)
