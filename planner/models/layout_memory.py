"""What searches of the layout space learned: answers to the same question, and layouts to start like ones from."""

from dataclasses import dataclass, field, replace

import numpy as np

from planner.models.layout_question import Base, Problem, at_hops, bases
from planner.models.layout_search import Search
from planner.models.layout_space import Flags, Floats, most_replicas, replica_caps
from planner.physics.step import Conditions, Cut
from planner.solvers.outcome import Stop

KEPT = 64  # answers; the oldest go first
REFERENCES = 24  # of them that keep what they proved of the rest of the space


@dataclass(slots=True)
class Memory:
    """Proven answers, over one solve or over many."""

    answers: list[tuple[Problem, Search]] = field(default_factory=list)
    ways: tuple[Problem, list[Base]] | None = None  # to cut a layer, of the question asked last

    def answer(self, problem: Problem) -> Search | None:
        """Return the answer to the very same question."""
        return next((found for asked, found in reversed(self.answers) if asked == problem), None)

    def near(self, problem: Problem) -> Cut | None:
        """Return the layout last found for a question that differs in racks and network alone."""
        same = _but_racks(problem)
        alike = (found.best for asked, found in reversed(self.answers) if found.best is not None and _but_racks(asked) == same)
        best = next(alike, None)
        return None if best is None else best.cut

    def floors(self, problem: Problem) -> Floats | None:
        """Return what like questions proved that left no less, by way to cut a layer and stages of the pipeline; zero where none did."""
        same, paces, known = _but_racks(problem), self.paces(problem), None
        for asked, found in self.answers[-REFERENCES:]:
            if found.floors is not None and _no_faster(asked, problem) and _but_racks(asked) == same:
                own = np.where(_holds_no_more(asked, problem, paces), found.floors, 0.0)
                known = own if known is None else np.maximum(known, own)
        return known

    def paces(self, problem: Problem) -> list[Base]:
        """Return all ways to cut a layer: those of the question asked last with their exchanges at the pace of this network, if it is alike."""
        same = _but_racks(problem)
        if self.ways is None or self.ways[0] != same:
            self.ways = (same, bases(problem))
            return self.ways[1]
        return [at_hops(problem, base) for base in self.ways[1]]

    def keep(self, problem: Problem, found: Search) -> None:
        """Remember an answer that is proven."""
        if found.stop is Stop.PROVED:
            self.answers.append((problem, found))
            del self.answers[:-KEPT]
            if len(self.answers) > REFERENCES:
                asked, old = self.answers[-REFERENCES - 1]
                self.answers[-REFERENCES - 1] = asked, replace(old, floors=None)


def _but_racks(problem: Problem) -> Problem:
    """Return a question with its racks and network left out; as many sites, whatever they are called unless pins call them so."""
    named = problem.pin("data_parallel_by_site") is not None
    return replace(
        problem,
        sites=problem.sites if named else (),
        racks=(0,) * len(problem.racks),
        racks_in_all=None,
        conditions=Conditions(hop_slowdown=1.0, allreduce_slowdown=1.0),
    )


def _no_faster(asked: Problem, problem: Problem) -> bool:
    """Tell whether no layout is faster on the network of a question than on that of another that was asked."""
    a, b = asked.conditions, problem.conditions
    wan = a.wan_gbps is None or (b.wan_gbps is not None and b.wan_gbps <= a.wan_gbps)
    wan &= a.wan_gbps is None or (a.wan_rtt_ms <= b.wan_rtt_ms and a.wan_round_trips <= b.wan_round_trips)
    return wan and a.hop_slowdown <= b.hop_slowdown and a.allreduce_slowdown <= b.allreduce_slowdown


def _holds_no_more(asked: Problem, problem: Problem, paces: list[Base]) -> Flags:
    """Tell for which ways to cut a layer and stages of the pipeline no site holds more replicas than it did for another question.

    A site that holds any replica trains, so none may have lost its last. Sites are alike unless pins name them.
    """
    named = problem.pin("data_parallel_by_site") is not None
    both = [x if named else replace(x, racks=tuple(sorted(x.racks))) for x in (asked, problem)]
    stages, told = np.arange(1, problem.machine.model.layers + 1), {}
    for base in paces:
        key = base.packed, base.shape.gpus
        if key not in told:
            had, has = (replica_caps(x, base, stages) for x in both)
            fewer = most_replicas(problem, base, stages) <= most_replicas(asked, base, stages)
            told[key] = np.concatenate([[False], fewer & np.all((has <= had) & ((has > 0) == (had > 0)), axis=0)])
    return np.stack([told[base.packed, base.shape.gpus] for base in paces])
