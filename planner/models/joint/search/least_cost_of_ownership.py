"""The search for the least cost of ownership: of buying a plan and running it until the model is trained.

At prices that hold Y years of upkeep and energy the least capital is the least cost of Y years only. So times are cut
into spans. A plan of a span costs no less than the least capital at the prices of its shortest run. Where that plan
takes longer, the span is cut there; where it takes as long as that run, the bound is its cost, and the span is done.
"""

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from planner.instance.instance import Instance
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_question import Solving
from planner.models.joint.joint_solution import CENTS, EPS, JointSolution
from planner.models.joint.search.goal import Stopped
from planner.models.joint.search.least_capital import LeastCapital, least_capital_plan
from planner.physics.site.cost import alike_usd, at_run_prices, years_of
from planner.physics.training.step_prediction import days_of
from planner.solvers.progress import report


class Span(NamedTuple):
    """A span of run lengths in the search for least cost of ownership: `start` to `end` seconds, `usd` at least."""

    usd: float
    order: int  # of equal ones the last is taken first, which soonest ends at a plan
    start: float
    end: float


@dataclass(kw_only=True)
class RunSearch:
    """The search for the least cost of ownership: open spans of run lengths by their bounds, and the cheapest plan."""

    instance: Instance
    solving: Solving  # its floor: dollars that no plan is below, as another question proved; the search ends at it
    without: dict[str, Any] = field(default_factory=dict)
    heap: list[Span] = field(default_factory=list)
    order: Iterator[int] = field(default_factory=itertools.count)
    best: JointSolution | None = None
    usd: float = math.inf  # of the best
    given_up: float = math.inf  # lower bound on the cost of plans of which a search proved nothing
    last: JointSolution | None = None  # the plan found last, where none is proven the least of its span
    free_bound: float | None = None  # in days of any plan, where none meets the deadline
    failure: str = ""  # what a back end said that ended the search

    def years(self, seconds: float) -> float:
        """Return the years of operation in a run's cost: the instance's, else of training at `seconds` a sequence."""
        given = self.instance.limits.operation_years
        return years_of(days_of(self.instance, seconds)) if given is None else given

    def push(self, usd: float, start: float, end: float) -> None:
        """Open a span of run lengths to the search, which may hold a plan of less cost of ownership."""
        if start <= end and usd < self.usd - CENTS:
            heapq.heappush(self.heap, Span(usd, -next(self.order), start, end))

    def run(self) -> JointSolution:
        """Search spans of run lengths by their bounds on the cost of ownership until none could hold a cheaper plan."""
        stopped: Stopped = "proved"
        while self.heap and max(self.heap[0].usd, self.solving.floor) < self.usd - CENTS:
            span = heapq.heappop(self.heap)
            found = self._least(span)
            if found.stopped != "proved":
                self.heap.append(span._replace(usd=max(span.usd, found.lower_bound or 0.0)))
                stopped, self.failure = found.stopped, found.failure
                break
            if found.status in ("unknown", "feasible"):
                self.given_up = min(self.given_up, span.usd if found.plan is None else found.lower_bound or 0.0)
            if self.last is None:
                self.free_bound = found.fabric_free_bound
            if found.plan is None:
                continue
            usd, seconds = found.usd or 0.0, found.plan.seconds
            years, shortest = self.years(seconds), self.years(span.start)
            priced = [(at_run_prices(self.instance, x), alike_usd(self.instance, x)) for x in (years, shortest)]
            # The run costs no more than at the prices of the span's shortest run: it is of least cost in the span.
            if years <= shortest * (1 + EPS) or priced[0] == priced[1]:
                if usd < self.usd - CENTS or self.best is None:
                    self.best, self.usd = found, usd
                    line = f"${usd / 1e9:,.3f}B in {found.days:,.2f} days"
                    report(self.solving.progress, line, usd, self.bound, found=(self.instance, found.plan, found.days))
                continue
            report(self.solving.progress, f"no plan under ${self.bound / 1e9:,.3f}B", None, usd)
            below = seconds * (1 - 3 * EPS)  # plans that are faster by more than rounding
            # A span longer than a twentieth of its end is cut in two before its plans are sought.
            middle = [(span.start + below) / 2] if below - span.start > 0.05 * below else []
            for start, end in itertools.pairwise([span.start, *middle, below]):
                self.push(usd, start, end)
            self.push(usd, seconds, max(seconds, span.end))  # a plan may meet the span's end but for rounding
        best = self.best or self.last
        if best is None:
            return JointSolution(
                status="infeasible" if stopped == "proved" and math.isinf(self.given_up) else "unknown",
                lower_bound=self.bound if stopped != "proved" else None,
                fabric_free_bound=self.free_bound,
                stopped=stopped,
                failure=self.failure,
            )
        proven = stopped == "proved" and self.best is not None and self.bound >= self.usd - CENTS
        return replace(
            best,
            failure=self.failure,
            status="optimal" if proven else "feasible",
            lower_bound=self.usd if proven else self.bound,
            stopped=stopped,
        )

    @property
    def bound(self) -> float:
        """Lower bound of the search in USD: no plan has less cost of ownership."""
        return max(self.solving.floor, min([self.usd, self.given_up, *(span.usd for span in self.heap)]))

    def _least(self, span: Span) -> JointSolution:
        """Return the plan of least capital within a span, at its shortest run's prices; none above the best."""
        years = self.years(span.start)
        alike, priced = alike_usd(self.instance, years), at_run_prices(self.instance, years)
        priced = priced.replaced(limits__budget_usd=None if self.best is None else max(self.usd - alike, CENTS))
        cache = JointCache(timed=self.solving.cache.timed)  # whatever the prices, a layer takes as long
        world = replace(self.solving, cache=cache).world(priced, self.without)
        found = least_capital_plan(LeastCapital(world=world, limit=span.end))
        known = [x and x + alike for x in (found.usd, found.lower_bound)]
        found = replace(found, usd=known[0], lower_bound=known[1])
        self.last = found if found.plan is not None else self.last
        return found


def least_run_cost(instance: Instance, solving: Solving, *, without: dict[str, Any] | None = None) -> JointSolution:
    """Search the joint plan of least total cost of ownership by the deadline of an instance, its cost as `usd`.

    The budget is ignored: where the least cost is above it, no plan is within it. `without`: values of choices, by the
    paths of their pins, that no plan may have.
    """
    search, days = RunSearch(instance=instance, solving=solving, without=without or {}), instance.limits.deadline_days
    search.push(0.0, 0.0, math.inf if days is None else days / days_of(instance, 1.0))
    return search.run()
