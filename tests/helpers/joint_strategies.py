"""The strategies of a question, as the search lists them."""

from collections.abc import Iterator
from dataclasses import replace

from planner.models.joint.strategy_space import JointProblem, Strategy, strategies_of, strategy, ways_to_cut


def strategies(problem: JointProblem) -> Iterator[Strategy]:
    """Yield every way to cut a layer of the declared space."""
    for way in ways_to_cut(problem):
        yield from strategies_of(strategy(problem, *way))


def with_rule(problem: JointProblem, stack: str) -> JointProblem:
    """Return a problem under the rules of the framework of that name."""
    work = problem.instance.workload
    work = work.replaced(software__name=stack, framework_rules=True)
    return replace(problem, instance=problem.instance.replaced(workload=work))
