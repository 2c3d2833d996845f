"""Find the fewest racks of one cluster that train a model by a deadline, bracketed by layout searches.

Days fall as racks are added, so the racks are bracketed: at the upper end there is a layout, at the lower the search's
bound proves that there is none in time. Where even so many racks that more could carry nothing are too slow, no number
will do.
"""

import math
from dataclasses import dataclass

from planner.instance.instance import Instance
from planner.models.layout.best_first import search
from planner.models.layout.data import LONG_SEQUENCE, Problem, problem_of
from planner.models.layout.report import racks_of_replica
from planner.models.requests import LayoutRequest
from planner.physics.training import layer_time
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step import Conditions
from planner.plan.certificate import Status
from planner.simulation.reference_tree import transport_slowdown_of

SEARCHES = 16  # of layouts; four to eight close a bracket of one percent
STEP = 4.0  # by which racks grow at most: days far too many say little of the racks needed


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumRacks:
    """The fewest racks that have a layout in time, and the most that are proven too few."""

    status: Status
    racks: int | None
    too_few: int  # racks with which no layout is in time, proven
    days: float | None
    strategy: ParallelStrategy | None


@dataclass(slots=True, kw_only=True)
class _Bracket:
    low: int = 0  # racks proven too few
    high: int | None = None  # racks that have a layout in time
    days: float | None = None
    strategy: ParallelStrategy | None = None

    def closed(self, tolerance: float) -> bool:
        """Return whether the ends are as near to each other as they must be."""
        return self.high is not None and self.high <= max(self.low + 1, self.low * (1 + tolerance))

    def result(self, status: Status) -> MinimumRacks:
        """Return what the bracket has proven."""
        return MinimumRacks(status=status, racks=self.high, too_few=self.low, days=self.days, strategy=self.strategy)


def minimum_racks(
    instance: Instance, deadline_days: float, *, guess: int, tolerance: float = 0.01, time_limit: float | None = None
) -> MinimumRacks:
    """Bracket the fewest racks to the tolerance, from a guess; `time_limit` is that of one search."""
    limit, bracket, racks, last = useful_racks(instance), _Bracket(), max(1, guess), 0.0
    strategy: ParallelStrategy | None = None
    for _ in range(SEARCHES):
        racks = min(racks, limit)
        result = search(_problem(instance, racks), warm_starts=[strategy] if strategy else [], time_limit=time_limit)
        days = math.inf
        if result.best is not None:
            days, strategy = days_of(instance, result.best.seconds), result.best.strategy
        if strategy is not None and days <= deadline_days:
            # A layout that leaves racks idle is one of fewer racks.
            racks = min(racks, used_racks(instance, strategy))
            bracket.high, bracket.days, bracket.strategy = racks, days, strategy
        elif days_of(instance, result.bound) > deadline_days:
            bracket.low = max(bracket.low, racks)
        else:
            break  # a limit ended the search: neither end moves
        if bracket.high is None and racks == limit:
            return bracket.result("infeasible")
        if bracket.closed(tolerance):
            return bracket.result("optimal")
        # Where more racks no longer help, only the most can prove that none do.
        stuck = bracket.high is None and days >= last > 0
        racks, last = limit if stuck else _next(bracket, racks, days / deadline_days, tolerance), days
    return bracket.result("unknown" if bracket.high is None else "feasible")


def _next(bracket: _Bracket, racks: int, over: float, tolerance: float) -> int:
    """Return the racks to try: as if days were inverse to racks, inside the bracket; then what closes it."""
    low, high = bracket.low, bracket.high
    if high is None:
        return math.ceil(racks * min(max(over, 1 + tolerance), STEP))
    middle = math.floor(math.sqrt(max(low, 1) * high))
    if over > 1:
        aimed = math.ceil(racks * over) if over < STEP else middle
    else:
        aimed = min(math.floor(racks * over), math.floor(high / (1 + 0.9 * tolerance)))
    return min(max(aimed if low < aimed < high else middle, low + 1), high - 1)


def used_racks(instance: Instance, strategy: ParallelStrategy) -> int:
    """Return the racks that a layout works on."""
    replicas = sum(math.ceil(d / strategy.replicas_per_rack) for d in strategy.data_parallel_by_site)
    return replicas * racks_of_replica(_problem(instance, 1), strategy)


def useful_racks(instance: Instance) -> int:
    """Return racks beyond which more carry nothing: a replica a sequence, a stage a layer, over a scale-up domain."""
    problem = _problem(instance, 1)
    m = problem.machine
    contexts = m.rack.gpus if m.sequence >= LONG_SEQUENCE else 1
    return max(1, problem.max_sequences) * m.model.layers * contexts


def days_of(instance: Instance, seconds_per_sequence: float) -> float:
    """Return the days to train at so many seconds a sequence."""
    w = instance.workload
    return layer_time.days_to_train(w.tokens, w.sequence_length, seconds_per_sequence, w.availability)


def conditions(instance: Instance) -> Conditions:
    """Return what the searches take from the network."""
    return _problem(instance, 1).conditions


def _problem(instance: Instance, racks: int) -> Problem:
    transport_slowdown = transport_slowdown_of(instance.network)
    return problem_of(
        instance,
        LayoutRequest(
            racks_by_site={"cluster": racks},
            pipeline_send_slowdown=transport_slowdown,
            allreduce_slowdown=transport_slowdown,
        ),
    )
