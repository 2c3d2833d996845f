"""The fewest racks of one cluster that train a model by a deadline, bracketed by layout searches.

Days fall as racks are added, so the racks are bracketed: at the upper end there is a layout, at the lower the search's bound
proves that there is none in time. Where even so many racks that more could carry nothing are too slow, no number will do.
"""

import math
from dataclasses import dataclass
from typing import Literal

from planner.instance.instance import Instance
from planner.models.layout.best_first import search
from planner.models.layout.data import LONG_SEQUENCE, Problem, problem_of
from planner.models.layout.report import racks_of_replica
from planner.models.requests import LayoutRequest
from planner.physics.training import layer_time
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step import Conditions
from planner.simulation.reference_tree import transport_slowdown_of

SEARCHES = 16
STEP = 4.0  # by which racks grow where the days hardly fall


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewest:
    """The racks held and those proven too few; without any, why."""

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    racks: int | None
    too_few: int  # racks with which no layout is in time, proven
    days: float | None
    cut: ParallelStrategy | None
    searches: int


@dataclass(slots=True, kw_only=True)
class _Bracket:
    low: int = 0
    high: int | None = None
    days: float | None = None
    cut: ParallelStrategy | None = None


def fewest_racks(
    instance: Instance,
    deadline_days: float,
    *,
    guess: int,
    tolerance: float = 0.01,
    near: ParallelStrategy | None = None,
    time_limit: float | None = None,
) -> Fewest:
    """Bracket the fewest racks to the tolerance, from a guess; `time_limit` is that of one search."""
    most, held, racks, last = useful_racks(instance), _Bracket(), max(1, guess), 0.0
    for n in range(1, SEARCHES + 1):
        racks = min(racks, most)
        found = search(_problem(instance, racks), warm_starts=[near] if near else [], time_limit=time_limit)
        days = math.inf
        if found.best is not None:
            days, near = days_of(instance, found.best.seconds), found.best.strategy
        if found.best is not None and days <= deadline_days:
            # A layout that leaves racks idle is one of fewer racks.
            racks = min(racks, used_racks(instance, found.best.strategy))
            held.high, held.days, held.cut = racks, days, near
        elif days_of(instance, found.bound) > deadline_days:
            held.low = max(held.low, racks)
        else:
            break  # a limit cut the search short: neither end moves
        if held.high is None and racks == most:
            return Fewest(status="infeasible", racks=None, too_few=most, days=None, cut=None, searches=n)
        if held.high is not None and held.high <= max(held.low + 1, held.low * (1 + tolerance)):
            return Fewest(status="optimal", racks=held.high, too_few=held.low, days=held.days, cut=held.cut, searches=n)
        # Where more racks no longer help, only the most can tell that none do.
        stuck = held.high is None and days >= last > 0
        racks, last = most if stuck else _next(held, racks, days / deadline_days, tolerance), days
    status: Literal["feasible", "unknown"] = "unknown" if held.high is None else "feasible"
    return Fewest(status=status, racks=held.high, too_few=held.low, days=held.days, cut=held.cut, searches=n)


def _next(held: _Bracket, racks: int, over: float, tolerance: float) -> int:
    """Return the racks to try: as if days were inverse to racks; inside the bracket once there are both ends; then what closes it."""
    if held.high is None:
        return math.ceil(racks * min(max(over, 1 + tolerance), STEP))
    middle = math.floor(math.sqrt(max(held.low, 1) * held.high))
    if over > 1:
        aimed = math.ceil(racks * over) if over < STEP else middle
    else:
        aimed = min(math.floor(racks * over), math.floor(held.high / (1 + 0.9 * tolerance)))
    if not held.low < aimed < held.high:
        aimed = middle
    return min(max(aimed, held.low + 1), held.high - 1)


def used_racks(instance: Instance, cut: ParallelStrategy) -> int:
    """Count the racks that a layout works on."""
    replicas = sum(math.ceil(d / cut.replicas_per_rack) for d in cut.data_parallel_by_site)
    return replicas * racks_of_replica(_problem(instance, 1), cut)


def useful_racks(instance: Instance) -> int:
    """Return racks beyond which more carry nothing: a replica a sequence, each of a stage a layer over a whole scale-up domain."""
    problem = _problem(instance, 1)
    m = problem.machine
    contexts = m.rack.gpus if m.sequence >= LONG_SEQUENCE else 1
    return max(1, problem.max_sequences) * m.model.layers * contexts


def days_of(instance: Instance, seconds_per_sequence: float) -> float:
    """Days to train at so many seconds a sequence."""
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
