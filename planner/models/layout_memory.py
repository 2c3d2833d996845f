"""What searches of the layout space learned: answers to the same question, and layouts to start like ones from."""

from dataclasses import dataclass, field, replace

from planner.models.layout_question import Problem
from planner.models.layout_search import Search
from planner.physics.step import Conditions, Cut
from planner.solvers.outcome import Stop

KEPT = 64  # answers; the oldest go first


@dataclass(slots=True)
class Memory:
    """Proven answers, over one solve or over many."""

    answers: list[tuple[Problem, Search]] = field(default_factory=list)

    def answer(self, problem: Problem) -> Search | None:
        """Return the answer to the very same question."""
        return next((found for asked, found in reversed(self.answers) if asked == problem), None)

    def near(self, problem: Problem) -> Cut | None:
        """Return the layout last found for a question that differs in racks and network alone."""
        same = _but_racks(problem)
        alike = (found.best for asked, found in reversed(self.answers) if found.best is not None and _but_racks(asked) == same)
        best = next(alike, None)
        return None if best is None else best.cut

    def keep(self, problem: Problem, found: Search) -> None:
        """Remember an answer that is proven."""
        if found.stop is Stop.PROVED:
            self.answers.append((problem, found))
            del self.answers[:-KEPT]


def _but_racks(problem: Problem) -> Problem:
    """Return a question with its racks and network left out; as many sites."""
    return replace(problem, racks=(0,) * len(problem.racks), conditions=Conditions(hop_slowdown=1.0, allreduce_slowdown=1.0))
