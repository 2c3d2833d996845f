"""What the searches of one instance under several budgets and deadlines share: all that these do not change."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from planner.instance.instance import Instance, Objective
from planner.models.fabric.chooser import Templates
from planner.models.joint.space import Flags, Floats, Problem, Strategy, strategies
from planner.models.joint.split import Column
from planner.solvers.deadline import Deadline

if TYPE_CHECKING:
    from planner.models.joint.places.site_bounds import SiteBounds
    from planner.models.joint.sites import Sites


@dataclass(kw_only=True)
class JointCache:
    """Strategies, bounds, times on a free network, tables of fabrics, answers of the sites, and plans by budget.

    It serves instances that differ in budget, deadline, objective and name alone; for any other it starts anew.
    """

    question: Any = None
    without: dict[str, Any] = field(default_factory=dict)
    listed: list[Strategy] | None = None
    terms: dict[Strategy, tuple[Floats, Floats]] = field(default_factory=dict)
    tables: dict[Strategy, Any] = field(default_factory=dict)  # of the pipelines of each
    holding: dict[Strategy, Flags] = field(default_factory=dict)  # pipelines that may hold the model
    tables_for: float = math.inf  # the budget up to which they hold
    free: dict[Column, float] = field(default_factory=dict)
    slower: dict[Column, float] = field(default_factory=dict)  # than so many seconds a sequence, on a free network
    templates: Templates | None = None
    sites: "Sites | None" = None
    site_bounds: "SiteBounds | None" = None
    plans: dict[float, Any] = field(default_factory=dict)
    cheapest: list[Any] = field(default_factory=list)  # the plans of searches by cost
    inspected: list[Any] = field(default_factory=list)  # proofs that were enumerated again and hold

    def serves(self, instance: Instance) -> bool:
        """Return whether it is that of an instance, whatever its budget, deadline and objective."""
        return self.question is not None and bool(self.question[0] == _question(instance))

    def serve(self, instance: Instance, without: dict[str, Any], *how: Any) -> None:
        """Make the cache that of an instance: start anew where more than the budget differs.

        Tables of pipelines at a budget serve all smaller ones.
        """
        question = _question(instance), without, how
        if question != self.question:
            fresh = JointCache(question=question)
            for name in self.__dataclass_fields__:
                setattr(self, name, getattr(fresh, name))
            self.without = without
        budget = math.inf if instance.limits.budget_usd is None else instance.limits.budget_usd
        if budget > self.tables_for or not self.tables:
            self.tables_for, self.tables, self.holding = budget, {}, {}
        if self.sites is not None and self.sites.budget_usd != instance.limits.budget_usd:
            self.sites.pay(instance)

    def strategies(self, problem: Problem, deadline: Deadline) -> list[Strategy]:
        """List the ways to cut a layer once; raise where the time comes first."""
        if self.listed is None:
            deadline.check()
            found = []
            for s in strategies(problem):
                deadline.check()
                found.append(s)
            self.listed = found
        return self.listed

    def warm_starts(self, budget: float) -> list[tuple[float, Any]]:
        """Return the plans of the budgets nearest to one, below and above it."""
        below = max((b for b in self.plans if b <= budget), default=None)
        above = min((b for b in self.plans if b > budget), default=None)
        return [(b, self.plans[b]) for b in (below, above) if b is not None]


def _question(instance: Instance) -> Instance:
    """Return an instance without what only says which of its plans are wanted."""
    limits = instance.limits.model_copy(update={"budget_usd": None, "deadline_days": None})
    return instance.model_copy(update={"limits": limits, "objective": Objective(), "name": ""})


__all__ = ["JointCache"]
