"""One solve under way: what it asks, the best plan so far, and why a plan is refused."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from planner.instance.instance import Instance
from planner.plan.certificate import Conflict
from planner.planning.pipeline import Decider
from planner.planning.trials import Learned, Refusal, Trial

Progress = Callable[[str], None]


@dataclass(slots=True)
class Run:
    """One solve: what it asks, and the best plan so far."""

    instance: Instance
    decider: Decider
    progress: Progress
    best: Trial | None = None
    joint_days: float | None = None
    stopped: Literal["proved", "limit", "interrupted"] = "proved"
    tried: dict[int, Trial | Refusal] = field(default_factory=dict)
    learned: Learned = field(default_factory=Learned)

    @property
    def budget(self) -> float:
        """Dollars that the plan may cost."""
        return self.instance.limits.budget_usd or math.inf

    @property
    def module(self) -> int:
        """Racks bought together."""
        return self.instance.hardware.racks_per_module

    def at(self, racks: int) -> Trial | Refusal:
        """Take all decisions at a number of racks, once."""
        if racks not in self.tried:
            self.tried[racks] = self.decider.trial(racks)
            self.report(racks, self.tried[racks])
        return self.tried[racks]

    def keep(self, found: Trial | Refusal) -> bool:
        """Keep a plan that the budget covers; tell whether it does."""
        if isinstance(found, Refusal) or found.cost.total_usd > self.budget:
            return False
        if self.best is None or self._better(found, self.best):
            self.best = found
        return True

    def _better(self, a: Trial, b: Trial) -> bool:
        if self.instance.objective.minimize == "cost_usd":
            return a.cost.total_usd < b.cost.total_usd
        return (a.racks, -a.cost.total_usd) > (b.racks, -b.cost.total_usd)

    def report(self, racks: int, found: Trial | Refusal) -> None:
        """Say where the search is."""
        if isinstance(found, Refusal):
            self.progress(f"{racks:,} racks: no {found.decision}")
            return
        days, bound = found.layout.metrics.days_to_train, self.joint_days
        behind = f", bound {bound:,.1f}" if bound is not None else ""
        self.progress(f"{racks:,} racks: {days:,.1f} days{behind}; ${found.cost.total_usd / 1e9:,.3f}B")


def in_time(run: Run, found: Trial) -> bool:
    """Tell whether a plan trains by the deadline."""
    deadline = run.instance.limits.deadline_days
    return deadline is None or found.layout.metrics.days_to_train <= deadline * (1 + 1e-9)


def over(run: Run, found: Trial) -> Conflict:
    """Say which limit the whole plan breaks."""
    run.best = None
    if not in_time(run, found):
        deadline = run.instance.limits.deadline_days or math.inf
        rules = ("limits.deadline_days", *(("limits.budget_usd",) if run.budget < math.inf else ()))
        days = found.layout.metrics.days_to_train
        reason = f"the fastest plan with {found.racks:,} racks trains in {days:,.1f} days > {deadline:,.1f}"
        return Conflict(decision="layout", rules=rules, reason=reason)
    pins = tuple(f"pins.{p}" for p in sorted(run.instance.pins) if p.startswith("sites."))
    reason = f"{found.racks:,} racks with all that joins them cost ${found.cost.total_usd:,.0f} > ${run.budget:,.0f}"
    return Conflict(decision="budget", rules=("limits.budget_usd", *pins), reason=reason)
