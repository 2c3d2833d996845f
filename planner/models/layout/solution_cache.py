"""What layout searches leave to later ones: results of the same problem, warm starts and bounds for similar ones."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from planner.models.layout.best_first import SearchResult
from planner.models.layout.bounds import KnownBounds
from planner.models.layout.columns import Flags, Ints, max_replicas, max_replicas_by_site
from planner.models.layout.data import LayerStrategy, Problem, list_layer_strategies
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step import Conditions
from planner.solvers.outcome import Stop

MAX_ENTRIES = 64  # the oldest go first: the searches of one plan and of the plan before it
MAX_BOUND_ENTRIES = 24  # that keep the bounds on all columns, which take some MB each
MAX_STRATEGY_SETS = 4  # kinds of problems: one instance asks about few, and their layer strategies take long to list
MAX_WARM_STARTS = 3  # later ones rarely better the first


@dataclass(frozen=True, slots=True)
class ReplicaCaps:
    """Most replicas by site and in all, over the layer strategies that differ in them and pipeline stages from 1."""

    by_site: Ints
    in_all: Ints

    @classmethod
    def of(cls, problem: Problem, strategies: list[LayerStrategy]) -> "ReplicaCaps":
        """Count them. Sites are interchangeable, and so ordered by their racks, unless pins name them."""
        if problem.pin("data_parallel_by_site") is None:
            problem = replace(problem, racks=tuple(sorted(problem.racks)))
        stages = np.arange(1, problem.machine.model.layers + 1)
        by_site = np.array([max_replicas_by_site(problem, s, stages) for s in strategies], dtype=np.int64)
        in_all = np.array([max_replicas(problem, s, stages) for s in strategies], dtype=np.int64)
        shape = len(strategies), len(problem.racks), len(stages)
        return cls(by_site.reshape(shape), in_all.reshape(len(strategies), len(stages)))

    def within(self, other: "ReplicaCaps") -> Flags:
        """Return where no site takes more replicas than in another problem.

        A site that can hold a replica trains, so none may have lost its last one either.
        """
        sites = np.all((self.by_site <= other.by_site) & ((self.by_site > 0) == (other.by_site > 0)), axis=1)
        return np.asarray(sites & (self.in_all <= other.in_all))


@dataclass(slots=True)
class Entry:
    """A problem with its proven result; with the replica caps where the result's bounds on all columns are kept."""

    problem: Problem
    result: SearchResult
    kind: Problem
    caps: ReplicaCaps | None


@dataclass(frozen=True, slots=True)
class StrategySet:
    """The layer strategies of similar problems, those that differ in replicas, and which of these each is like."""

    kind: Problem
    strategies: list[LayerStrategy]
    distinct: list[LayerStrategy]
    like: Ints

    @classmethod
    def of(cls, kind: Problem, problem: Problem) -> "StrategySet":
        """List them."""
        strategies = list_layer_strategies(problem)
        distinct = {(s.packed, s.shape.gpus): s for s in strategies}
        index = {key: i for i, key in enumerate(distinct)}
        like = np.array([index[s.packed, s.shape.gpus] for s in strategies], dtype=np.int64)
        return cls(kind, strategies, list(distinct.values()), like)


@dataclass(slots=True)
class SolutionCache:
    """Proven results of layout searches, over one solve or over many."""

    entries: list[Entry] = field(default_factory=list)
    strategy_sets: list[StrategySet] = field(default_factory=list)  # the last listed first

    def result(self, problem: Problem) -> SearchResult | None:
        """Return the result of the very same problem."""
        return next((e.result for e in reversed(self.entries) if e.problem == problem), None)

    def warm_starts(self, problem: Problem) -> list[ParallelStrategy]:
        """Return the latest layouts of problems that differ in racks and network alone, the most similar network first.

        One of each shape.
        """
        kind, by_shape = _kind_of(problem), dict[object, ParallelStrategy]()
        layouts = [
            (_distance(e.problem.conditions, problem.conditions), e.result.best.strategy)
            for e in reversed(self.entries)
            if e.result.best and e.kind == kind
        ]
        for _, s in sorted(layouts, key=lambda x: x[0]):
            by_shape.setdefault((s.shape, s.pipeline_parallel, s.virtual_stages, s.zero_stage, s.schedule), s)
        return list(by_shape.values())[:MAX_WARM_STARTS]

    def known_bounds(self, problem: Problem) -> KnownBounds | None:
        """Return bounds proven for similar problems that relax this one; zero where none is valid, None without any."""
        own = self._strategy_set(problem)
        caps, known = ReplicaCaps.of(problem, own.distinct), []
        for e in self.entries[-MAX_BOUND_ENTRIES:]:
            bounds = e.result.known_bounds
            if bounds is None or e.caps is None or e.kind != own.kind or not _relaxes(e.problem, problem):
                continue
            valid = np.zeros_like(bounds.pairs, dtype=bool)
            valid[:, 1:] = caps.within(e.caps)[own.like]
            known.append(bounds.where(valid))
        return KnownBounds.highest(known) if known else None

    def layer_strategies(self, problem: Problem) -> list[LayerStrategy]:
        """Return all layer strategies, with the send times of some similar problem's network."""
        return self._strategy_set(problem).strategies

    def keep(self, problem: Problem, result: SearchResult) -> None:
        """Remember a proven result."""
        if result.stop is not Stop.PROVED:
            return
        own = self._strategy_set(problem)
        caps = None if result.known_bounds is None else ReplicaCaps.of(problem, own.distinct)
        self.entries.append(Entry(problem, result, own.kind, caps))
        del self.entries[:-MAX_ENTRIES]
        if len(self.entries) > MAX_BOUND_ENTRIES:
            old = self.entries[-MAX_BOUND_ENTRIES - 1]
            old.result, old.caps = replace(old.result, known_bounds=None), None

    def _strategy_set(self, problem: Problem) -> StrategySet:
        """Return the layer strategies of problems like this one, listed once."""
        kind = _kind_of(problem)
        own = next((s for s in self.strategy_sets if s.kind == kind), None)
        if own is None:
            own = StrategySet.of(kind, problem)
            self.strategy_sets = [own, *self.strategy_sets[: MAX_STRATEGY_SETS - 1]]
        return own


def _kind_of(problem: Problem) -> Problem:
    """Return a problem without its racks and network, and without the names of its sites unless pins name them."""
    named = problem.pin("data_parallel_by_site") is not None
    return replace(
        problem,
        sites=problem.sites if named else (),
        racks=(0,) * len(problem.racks),
        racks_in_all=None,
        conditions=Conditions(pipeline_send_slowdown=1.0, allreduce_slowdown=1.0),
    )


def _distance(a: Conditions, b: Conditions) -> float:
    """Measure how far apart two networks are."""
    rates = [
        (a.pipeline_send_slowdown, b.pipeline_send_slowdown),
        (a.allreduce_slowdown, b.allreduce_slowdown),
        (a.wan_gbps or math.inf, b.wan_gbps or math.inf),
    ]
    return sum(1 - min(x, y) / max(x, y) if x != y else 0.0 for x, y in rates)


def _relaxes(earlier: Problem, problem: Problem) -> bool:
    """Return whether every layout is as fast or faster on the earlier problem's network, and fits if it fits here."""
    a, b = earlier.conditions, problem.conditions
    wan = a.wan_gbps is None or (b.wan_gbps is not None and b.wan_gbps <= a.wan_gbps)
    wan &= a.wan_gbps is None or (a.wan_rtt_ms <= b.wan_rtt_ms and a.wan_round_trips <= b.wan_round_trips)
    sends = a.pipeline_send_slowdown <= b.pipeline_send_slowdown
    return wan and sends and a.allreduce_slowdown <= b.allreduce_slowdown and earlier.shared >= problem.shared
