"""What searches of the layout space learned: answers to the same question, and layouts to start like ones from."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from planner.models.layout.best_first import Search
from planner.models.layout.columns import Flags, Ints, most_replicas, replica_caps
from planner.models.layout.data import LayerStrategy, Problem, layer_strategies
from planner.models.layout.known_bounds import Floors
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step import Conditions
from planner.solvers.outcome import Stop

KEPT = 64  # answers; the oldest go first
REFERENCES = 24  # of them that keep what they proved of the rest of the space
WAYS = 4  # kinds of questions whose ways to cut a layer are kept
STARTS = 3  # layouts from which a search starts


@dataclass(slots=True)
class Answer:
    """A question with its proven answer, and the replicas that its sites hold, where the rest of what was proven is kept too."""

    asked: Problem
    found: Search
    alike: Problem
    caps: "Caps | None"


@dataclass(frozen=True, slots=True)
class Caps:
    """Most replicas for each of the ways to cut a layer that differ in them, by site and in all, and stages of the pipeline from 1."""

    by_site: Ints
    in_all: Ints

    @classmethod
    def of(cls, problem: Problem, paces: list[LayerStrategy]) -> "Caps":
        """Count them; sites are alike, and so in order of their racks, unless pins name them."""
        if problem.pin("data_parallel_by_site") is None:
            problem = replace(problem, racks=tuple(sorted(problem.racks)))
        stages = np.arange(1, problem.machine.model.layers + 1)
        by_site = np.array([replica_caps(problem, base, stages) for base in paces], dtype=np.int64)
        in_all = np.array([most_replicas(problem, base, stages) for base in paces], dtype=np.int64)
        return cls(
            by_site.reshape(len(paces), len(problem.racks), len(stages)), in_all.reshape(len(paces), len(stages))
        )

    def within(self, other: "Caps") -> Flags:
        """Tell where no site holds more replicas than another question's did; one that holds any trains, so none may have lost its last."""
        sites = np.all((self.by_site <= other.by_site) & ((self.by_site > 0) == (other.by_site > 0)), axis=1)
        return np.asarray(sites & (self.in_all <= other.in_all))


@dataclass(frozen=True, slots=True)
class Ways:
    """All ways to cut a layer of alike questions, those among them that differ in their replicas, and which of these each is as."""

    alike: Problem
    paces: list[LayerStrategy]
    differ: list[LayerStrategy]
    like: Ints

    @classmethod
    def of(cls, alike: Problem, problem: Problem) -> "Ways":
        """List them."""
        paces = layer_strategies(problem)
        differ = {(b.packed, b.shape.gpus): b for b in paces}
        place = {key: i for i, key in enumerate(differ)}
        return cls(
            alike,
            paces,
            list(differ.values()),
            np.array([place[b.packed, b.shape.gpus] for b in paces], dtype=np.int64),
        )


@dataclass(slots=True)
class SolutionCache:
    """Proven answers, over one solve or over many."""

    answers: list[Answer] = field(default_factory=list)
    ways: list[Ways] = field(default_factory=list)  # of the questions asked last

    def answer(self, problem: Problem) -> Search | None:
        """Return the answer to the very same question."""
        return next((a.found for a in reversed(self.answers) if a.asked == problem), None)

    def near(self, problem: Problem) -> list[ParallelStrategy]:
        """Return the layouts last found for questions that differ in racks and network alone, one of each shape, from the likest network on."""
        same, found = _but_racks(problem), dict[object, ParallelStrategy]()
        held = [
            (_unlike(a.asked.conditions, problem.conditions), a.found.best.cut)
            for a in reversed(self.answers)
            if a.found.best and a.alike == same
        ]
        for _, cut in sorted(held, key=lambda x: x[0]):
            found.setdefault((cut.shape, cut.pipeline_parallel, cut.virtual_stages, cut.zero_stage, cut.schedule), cut)
        return list(found.values())[:STARTS]

    def floors(self, problem: Problem) -> Floors | None:
        """Return what like questions proved that left no less; zero where none did, None where there is none."""
        ways = self._ways(problem)
        caps, known = Caps.of(problem, ways.differ), []
        for a in self.answers[-REFERENCES:]:
            if (
                a.found.floors is not None
                and a.caps is not None
                and a.alike == ways.alike
                and _no_tighter(a.asked, problem)
            ):
                held = np.zeros_like(a.found.floors.pairs, dtype=bool)
                held[:, 1:] = caps.within(a.caps)[ways.like]
                known.append(a.found.floors.where(held))
        return Floors.highest(known) if known else None

    def paces(self, problem: Problem) -> list[LayerStrategy]:
        """Return all ways to cut a layer, with exchanges at the pace of the network of some question like this one."""
        return self._ways(problem).paces

    def keep(self, problem: Problem, found: Search) -> None:
        """Remember an answer that is proven."""
        if found.stop is not Stop.PROVED:
            return
        ways = self._ways(problem)
        self.answers.append(
            Answer(problem, found, ways.alike, None if found.floors is None else Caps.of(problem, ways.differ))
        )
        del self.answers[:-KEPT]
        if len(self.answers) > REFERENCES:
            old = self.answers[-REFERENCES - 1]
            old.found, old.caps = replace(old.found, floors=None), None

    def _ways(self, problem: Problem) -> Ways:
        same = _but_racks(problem)
        found = next((w for w in self.ways if w.alike == same), None)
        if found is None:
            found = Ways.of(same, problem)
            self.ways = [found, *self.ways[: WAYS - 1]]
        return found


def _but_racks(problem: Problem) -> Problem:
    """Return a question with its racks and network left out; as many sites, whatever they are called unless pins call them so."""
    named = problem.pin("data_parallel_by_site") is not None
    return replace(
        problem,
        sites=problem.sites if named else (),
        racks=(0,) * len(problem.racks),
        racks_in_all=None,
        conditions=Conditions(pipeline_send_slowdown=1.0, allreduce_slowdown=1.0),
    )


def _unlike(a: Conditions, b: Conditions) -> float:
    """Measure how far apart two networks are."""
    rates = [
        (a.pipeline_send_slowdown, b.pipeline_send_slowdown),
        (a.allreduce_slowdown, b.allreduce_slowdown),
        (a.wan_gbps or math.inf, b.wan_gbps or math.inf),
    ]
    return sum(1 - min(x, y) / max(x, y) if x != y else 0.0 for x, y in rates)


def _no_tighter(asked: Problem, problem: Problem) -> bool:
    """Tell whether no layout is faster on the network of a question than on that of another that was asked, nor fits only it."""
    a, b = asked.conditions, problem.conditions
    wan = a.wan_gbps is None or (b.wan_gbps is not None and b.wan_gbps <= a.wan_gbps)
    wan &= a.wan_gbps is None or (a.wan_rtt_ms <= b.wan_rtt_ms and a.wan_round_trips <= b.wan_round_trips)
    return (
        wan
        and a.pipeline_send_slowdown <= b.pipeline_send_slowdown
        and a.allreduce_slowdown <= b.allreduce_slowdown
        and asked.shared >= problem.shared
    )
