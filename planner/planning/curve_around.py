"""The curve of days against money around a plan, by a few questions that are each proven within a tenth.

Between two capitals at which the fewest days are bounded, every plan is at least as slow as the bound of the larger
one, so that a handful of answers covers all plans between the cheapest and the dearest point within a known share.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from planner.instance.instance import FabricInstance, Instance
from planner.models import Options
from planner.models.joint.cache import JointCache
from planner.models.joint.solution import JointStatus
from planner.physics import ticking
from planner.physics.site.cost import rack_of
from planner.plan.plan import Curve, Plan
from planner.planning.frontier import Frontier, curve_point, knee_of, plan_of_point
from planner.planning.hardware_choice import alone_on, best_choice, named
from planner.planning.instance_parts import with_part
from planner.solvers.outcome import UnansweredError
from planner.solvers.progress import start, turn
from planner.solvers.signals import Deadline, OutOfTimeError

POINTS = 9  # of a curve at most, the plan that it is drawn around among them
STEP = 1.5  # from the size of a plan down to that of the next question
WIDE = 1.2  # times the capital of a point, from which on there is room for one between it and the next
WITHIN = 0.1  # of the fewest days, at which a question ends
WORK = 3_000_000  # rows and nodes of all questions together, after which no other is asked
SLOWEST = 20.0  # times the days of the plan: slower ones are not followed to less money
TIGHT = 1 - 1e-9


def why_no_curve(plan: Plan) -> str | None:
    """Return in words why a plan has no curve around it; None where it has one."""
    instance, goal = plan.instance, plan.instance.objective.minimize
    reasons = (
        (isinstance(instance, FabricInstance), "a fabric alone trains nothing"),
        (bool(instance.hardware.pools), "each pool has a layout of its own"),
        (plan.layout is None or plan.cost is None, "there is no plan to draw it around"),
        (goal == "loss", "the model of least loss changes with the money"),
        (goal == "frontier", "the plan holds the whole curve"),
        (goal == "finish_date", "the goal is a date; `planner frontier` draws days of training against money"),
        (goal != "days_to_train", f"the goal is money ({goal}); `planner frontier` draws all of it"),
        (rack_of(instance.hardware).price_usd <= 0, "racks have no price"),
        (bool(instance.hardware.alternatives) and instance.grid is None, "each GPU has a number of racks of its own"),
        (plan.stopped in ("limit", "interrupted"), "the search for the plan itself was cut short"),
    )
    return next((why for holds, why in reasons if holds), None)


def curve_around(
    plan: Plan,
    options: Options,
    progress: Callable[[str], None],
    *,
    cache: JointCache | None = None,
    points: int = POINTS,
) -> Frontier:
    """Return the curve from a plan of fewest days down to less money, with the plan of each of its points.

    Parameters
    ----------
    plan
        With its bound; the days of no other plan of the curve are proven but within a tenth.
    options
        At its time limit, and at Ctrl-C, the curve has the points so far.
    cache
        What the search for the plan left; it changes how long the questions take.
    points
        Most points, the plan's own among them.
    """
    if why_no_curve(plan) is not None:
        return Frontier(plan.instance, Curve(points=(), epsilon=None, most_usd=None, slowest_days=None, stopped=""), ())
    deadline = Deadline(options.time_limit)
    search = _Questions(
        asked=plan,
        options=replace(options, gap=WITHIN),
        progress=progress,
        deadline=deadline,
        cache=JointCache() if cache is None else cache,
    )
    stopped = "proved"
    with turn(deadline) as mine, ticking(deadline.check):
        try:
            if mine:
                search.run(points)
        except OutOfTimeError:
            stopped = deadline.cause
        except UnansweredError:
            stopped = "limit"
    return search.written(deadline.cause if deadline.passed else stopped)


@dataclass(frozen=True, slots=True)
class MinDaysProof:
    """The proof of a question: up to `most_usd` no plan trains in fewer than `least_days`; infinite without a plan."""

    most_usd: float
    least_days: float


@dataclass(kw_only=True)
class _Questions:
    """Questions for the fewest days at a size: the budget where sites are chosen, else the racks of the cluster."""

    asked: Plan
    options: Options
    progress: Callable[[str], None]
    deadline: Deadline
    cache: JointCache
    plans: list[Plan] = field(default_factory=list)
    answers: list[MinDaysProof] = field(default_factory=list)
    refused: float = 0.0  # size down to which there is no use in asking
    work: int = 0

    @property
    def instance(self) -> Instance:
        """The instance of the plan that the curve is drawn around."""
        return self.asked.instance

    def run(self, points: int) -> None:
        """Ask for less and less money, then between the points that are farthest apart, until there are enough."""
        self.plans.append(self.asked)
        tried: set[float] = set()
        while len(self.front()) < points and self.work < WORK:
            size = next((size for size in self._sizes() if size not in tried), None)
            if size is None:
                return
            tried.add(size)
            self.deadline.check()
            start(self.progress, f"the curve, {len(self.front())} of {points} points")
            self._ask(size)

    def front(self) -> list[Plan]:
        """Return the plans that no other beats in both, by rising capital."""
        kept: list[Plan] = []
        for plan in sorted(self.plans, key=lambda plan: (usd_of(plan), days_of(plan))):
            if not kept or days_of(plan) < days_of(kept[-1]) * TIGHT:
                kept.append(plan)
        return kept

    def _sizes(self) -> Iterator[float]:
        """Yield the sizes to ask for next: a step below the smallest plan, then inside the widest steps."""
        on_grid = self.instance.grid is not None
        sizes = sorted({usd_of(plan) if on_grid else plan.instance.hardware.racks or 0 for plan in self.plans})
        if self.instance.grid is None:
            below = max(1, math.floor(sizes[0] / STEP))
            if self.refused < below < sizes[0]:
                yield below
        elif sizes[0] / STEP > self.refused:
            yield sizes[0] / STEP
        steps = [(high / low, low, high) for low, high in pairwise([self.refused, *sizes]) if low > 0]
        for ratio, low, high in sorted(steps, reverse=True):
            middle = math.sqrt(low * high) if self.instance.grid is not None else math.floor(math.sqrt(low * high))
            if ratio > WIDE and low < middle < high:
                yield middle

    def _ask(self, size: float) -> None:
        """Seek the fewest days at a size, within a tenth."""
        instance, most_usd = self._changed(size)
        left = replace(self.options, time_limit=self.deadline.limit)
        best = best_choice(instance, left, self.deadline, lambda _: None, self.cache).best
        base, found = alone_on(self.instance, best.instance.hardware), best.solution
        self.work += sum(found.counts.values())
        bound = math.inf if found.status is JointStatus.INFEASIBLE else found.lower_bound or 0.0
        late = self.instance.limits.deadline_days or math.inf
        self.answers.append(MinDaysProof(most_usd, math.inf if bound > late else bound))
        if found.plan is None or found.days is None or found.days > late:
            self.refused = max(self.refused, size)
            return
        self.plans.append(named(plan_of_point(base, found.plan, found.days, self.options), self.instance))
        if found.days > SLOWEST * days_of(self.asked):
            self.refused = max(self.refused, size)

    def _changed(self, size: float) -> tuple[Instance, float]:
        """Return the instance of a size, and the capital up to which its answer holds, since more racks cost more."""
        if self.instance.grid is not None:
            return with_part(self.instance, "limits", budget_usd=size), size
        rack_usd = rack_of(self.instance.hardware).price_usd
        return with_part(self.instance, "hardware", racks=int(size)), (size + 1) * rack_usd * TIGHT

    def written(self, stopped: str) -> Frontier:
        """Return the curve: its points with the bound of each, and the share within which they cover all others."""
        plans = self.front()
        answers = [*self.answers, MinDaysProof(math.inf, self.asked.objective.bound or 0.0)]
        bounds = []
        for plan in plans:  # of the last point the bound is that of the whole box
            most = math.inf if plan is plans[-1] else usd_of(plan)
            least = max(answer.least_days for answer in answers if answer.most_usd >= most)
            bounds.append(min(least, days_of(plan)))
        figures = [(usd_of(plan), days_of(plan)) for plan in plans]
        knee = knee_of(figures)
        points = []
        for at, (plan, bound) in enumerate(zip(plans, bounds, strict=True)):
            point = curve_point(plan, bound or None, plans[at - 1] if at else None, knee=at == knee)
            points.append(point.model_copy(update={"asked": plan is self.asked}))
        share = covered_within(figures, bounds)
        refused = [answer.most_usd for answer in self.answers if math.isinf(answer.least_days)]
        curve = Curve(
            points=tuple(points),
            epsilon=share if math.isfinite(share) else None,
            most_usd=usd_of(self.asked),
            least_usd=figures[0][0],
            none_below_usd=max(refused, default=None),
            slowest_days=self.instance.limits.deadline_days,
            stopped=stopped,
        )
        return Frontier(self.instance, curve, tuple(plans))


def covered_within(points: list[tuple[float, float]], bounds: list[float]) -> float:
    """Return the share in days and capital within which points match every plan between the first and the last.

    A plan of a capital between two points takes at least the bound of the dearer one. The dearer point costs at most
    as much more as it does than the cheaper one; the cheaper one costs no more.
    """
    if not points or min(bounds) <= 0:
        return math.inf
    share = points[0][1] / bounds[0]
    for (less, late), (more, days), bound in zip(points, points[1:], bounds[1:], strict=False):
        share = max(share, min(max(more / less, days / bound), late / bound))
    return share - 1


def usd_of(plan: Plan) -> float:
    """Return all that a plan's budget pays, in dollars."""
    return 0.0 if plan.cost is None else plan.cost.total_usd


def days_of(plan: Plan) -> float:
    """Return the days that a plan takes to train."""
    return math.inf if plan.layout is None else plan.layout.metrics.days_to_train


__all__ = ["curve_around", "why_no_curve"]
