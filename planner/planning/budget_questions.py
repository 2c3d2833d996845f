"""Questions for the fewest days of less and less money, each proven within a tenth: the first plans of every curve.

Between two capitals at which the fewest days are bounded, every plan is at least as slow as the bound of the larger
one, so that a handful of answers covers all plans between the cheapest and the dearest point within a known share.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.cache import JointCache
from planner.models.joint.search.curve import racks_with_spares
from planner.models.joint.solution import JointStatus
from planner.models.joint.world import JointPlan
from planner.physics.site.cost import rack_of
from planner.planning.hardware_choice import alone_on, best_choice
from planner.planning.instance_parts import with_part
from planner.solvers.progress import start
from planner.solvers.signals import Deadline

POINTS = 9  # of a curve at most, the plan that it is drawn around among them
STEP = 1.5  # from the size of a plan down to that of the next question
WIDE = 1.2  # times the capital of a point, from which on there is room for one between it and the next
WITHIN = 0.1  # of the fewest days, at which a question ends
WORK = 3_000_000  # rows and nodes of all questions together, after which no other is asked
SLOWEST = 20.0  # times the days of the plan: slower ones are not followed to less money
TIGHT = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class MinDaysProof:
    """The proof of a question: up to `most_usd` no plan trains in fewer than `least_days`; infinite without a plan."""

    most_usd: float
    least_days: float


@dataclass(frozen=True, slots=True)
class PricedPoint:
    """A plan in capital and days, with the racks that it pays; of a question also its choice and the instance asked."""

    usd: float
    days: float
    racks: int
    choice: JointPlan | None = None
    instance: Instance | None = None


@dataclass(kw_only=True)
class BudgetQuestions:
    """Questions for the fewest days at a size: the budget where sites are chosen, else the racks of the cluster."""

    asked: PricedPoint  # the plan from which they go down
    instance: Instance  # that of the plan, with its other GPUs and racks
    options: Options
    progress: Callable[[str], None]
    deadline: Deadline
    cache: JointCache
    points: list[PricedPoint] = field(default_factory=list)  # the plans so far, the one asked for among them
    answers: list[MinDaysProof] = field(default_factory=list)
    refused: float = 0.0  # size down to which there is no use in asking
    work: int = 0

    def run(self, most: float) -> Iterator[PricedPoint]:
        """Ask for less and less money, then between the points farthest apart, until there are enough; yield plans."""
        self.points.append(self.asked)
        tried: set[float] = set()
        while len(self.front()) < most and self.work < WORK:
            size = next((size for size in self._sizes() if size not in tried), None)
            if size is None:
                return
            tried.add(size)
            self.deadline.check()
            end = f" of {most}" if math.isfinite(most) else ""
            start(self.progress, f"the curve, {len(self.front())}{end} points")
            point = self._answer(size)
            if point is not None:
                self.points.append(point)
                yield point

    def front(self) -> list[PricedPoint]:
        """Return the plans that no other beats in both, by rising capital."""
        kept: list[PricedPoint] = []
        for point in sorted(self.points, key=lambda point: (point.usd, point.days)):
            if not kept or point.days < kept[-1].days * TIGHT:
                kept.append(point)
        return kept

    def min_days(self, usd: float) -> float:
        """Return the days that every plan of at most a capital takes, by the answers so far."""
        return max((answer.least_days for answer in self.answers if answer.most_usd >= usd), default=0.0)

    def _sizes(self) -> Iterator[float]:
        """Yield the sizes to ask for next: a step below the smallest plan, then inside the widest steps."""
        on_grid = self.instance.grid is not None
        sizes = sorted({point.usd if on_grid else point.racks for point in self.points})
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

    def _answer(self, size: float) -> PricedPoint | None:
        """Seek the fewest days at a size, within a tenth; None where the time ends before there is a plan."""
        instance, most_usd = self._changed(size)
        left = replace(self.options, time_limit=self.deadline.limit, gap=WITHIN)
        best = best_choice(instance, left, self.deadline, lambda _: None, self.cache).best
        found = best.solution
        self.work += sum(found.counts.values())
        bound = math.inf if found.status is JointStatus.INFEASIBLE else found.lower_bound or 0.0
        late = self.instance.limits.deadline_days or math.inf
        self.answers.append(MinDaysProof(most_usd, math.inf if bound > late else bound))
        if found.plan is None or found.days is None or found.days > late:
            self.refused = max(self.refused, size)
            return None
        if found.days > SLOWEST * self.asked.days:
            self.refused = max(self.refused, size)
        return point_of(best.instance, found.plan, found.days, alone_on(self.instance, best.instance.hardware))

    def _changed(self, size: float) -> tuple[Instance, float]:
        """Return the instance of a size, and the capital up to which its answer holds, since more racks cost more."""
        if self.instance.grid is not None:
            return with_part(self.instance, "limits", budget_usd=size), size
        rack_usd = rack_of(self.instance.hardware).price_usd
        return with_part(self.instance, "hardware", racks=int(size)), (size + 1) * rack_usd * TIGHT


def point_of(instance: Instance, choice: JointPlan, days: float, asked: Instance) -> PricedPoint:
    """Return a choice of an instance in capital and days; in a cluster with the racks that it uses in place of all."""
    racks, usd = racks_with_spares(choice), choice.capital_usd
    if instance.grid is None:
        usd -= ((instance.hardware.racks or 0) - racks) * rack_of(instance.hardware).price_usd
    return PricedPoint(usd, days, racks, choice, asked)


def covered_within(points: list[tuple[float, float]], bounds: list[float]) -> float:
    """Return the share in days and capital within which points match every plan between the first and the last."""
    # A plan of a capital between two points takes at least the bound of the dearer one. The dearer point costs at most
    # as much more as it does than the cheaper one; the cheaper one costs no more.
    if not points or min(bounds) <= 0:
        return math.inf
    share = points[0][1] / bounds[0]
    for (less, late), (more, days), bound in zip(points, points[1:], bounds[1:], strict=False):
        share = max(share, min(max(more / less, days / bound), late / bound))
    return share - 1
