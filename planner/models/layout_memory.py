"""What searches of the layout space learned: answers to the same question, and layouts to start like ones from."""

from dataclasses import dataclass, field, replace

from planner.models.layout_question import MOST_DOMAINS, Base, Problem, at_hops, bases
from planner.models.layout_search import Search
from planner.physics.step import Conditions, Cut
from planner.solvers.outcome import Stop

KEPT = 64  # answers; the oldest go first


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

    def floors(self, problem: Problem) -> tuple[float, ...]:
        """Return what was proven of each way to cut a layer by questions that leave no less: as many racks, as fast a network."""
        same = _but_racks(problem)
        known = [found.floors for asked, found in self.answers if _but_racks(asked) == same and _leaves_no_less(asked, problem)]
        return tuple(max(each) for each in zip(*known, strict=True))

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


def _but_racks(problem: Problem) -> Problem:
    """Return a question with its racks and network left out; as many sites, whatever they are called unless pins call them so."""
    named = problem.pin("data_parallel_by_site") is not None
    return replace(
        problem,
        sites=problem.sites if named else (),
        racks=(0,) * len(problem.racks),
        conditions=Conditions(hop_slowdown=1.0, allreduce_slowdown=1.0),
    )


def _leaves_no_less(asked: Problem, problem: Problem) -> bool:
    """Tell whether every layout of a question is one of another that was asked, and no slower there: as many racks, as fast a network.

    Every site that can hold a replica trains, so a site must not lose its last one with its racks.
    """
    a, b = asked.conditions, problem.conditions
    named = problem.pin("data_parallel_by_site") is not None
    had, has = (list(x.racks) if named else sorted(x.racks) for x in (asked, problem))
    wan = a.wan_gbps is None or (b.wan_gbps is not None and b.wan_gbps <= a.wan_gbps)
    wan &= a.wan_rtt_ms <= b.wan_rtt_ms and (a.wan_gbps is None or a.wan_round_trips <= b.wan_round_trips)
    network = a.hop_slowdown <= b.hop_slowdown and a.allreduce_slowdown <= b.allreduce_slowdown
    most = problem.machine.model.layers * (MOST_DOMAINS if problem.wide else 1)  # racks of a replica
    whole = had == has or len(has) == 1 or min(has) >= most
    return network and wan and whole and all(x >= y for x, y in zip(had, has, strict=True))
