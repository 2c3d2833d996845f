"""The curve of days against money around a plan, by a few questions that are each proven within a tenth."""

import math
from collections.abc import Callable

from planner.instance.instance import FabricInstance
from planner.models import Options
from planner.models.joint.cache import JointCache
from planner.physics import ticking
from planner.physics.site.cost import rack_of
from planner.plan.plan import Curve, CurvePoint, Plan
from planner.planning.budget_questions import POINTS, BudgetQuestions, MinDaysProof, PricedPoint, covered_within
from planner.planning.frontier import Frontier, curve_point, knee_of, plan_of_point
from planner.planning.hardware_choice import named
from planner.solvers.outcome import UnansweredError
from planner.solvers.progress import turn
from planner.solvers.signals import Deadline, OutOfTimeError


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
    racks, days = plan.instance.hardware.racks or 0, 0.0 if plan.layout is None else plan.layout.metrics.days_to_train
    asked = PricedPoint(0.0 if plan.cost is None else plan.cost.total_usd, days, racks)
    questions = BudgetQuestions(
        asked=asked,
        instance=plan.instance,
        options=options,
        progress=progress,
        deadline=deadline,
        cache=JointCache() if cache is None else cache,
    )
    plans, stopped = {id(asked): plan}, "proved"
    with turn(deadline) as mine, ticking(deadline.check):
        try:
            for point in questions.run(points) if mine else ():
                if point.instance is not None and point.choice is not None:
                    written = plan_of_point(point.instance, point.choice, point.days, options)
                    plans[id(point)] = named(written, plan.instance)
        except OutOfTimeError:
            stopped = deadline.cause
        except UnansweredError:
            stopped = "limit"
    return _written(questions, plans, deadline.cause if deadline.passed else stopped)


def _written(questions: BudgetQuestions, plans: dict[int, Plan], stopped: str) -> Frontier:
    """Return the curve: its points with the bound of each, and the share within which they cover all others."""
    asked = plans[id(questions.asked)]
    found = [point for point in questions.front() if id(point) in plans] or [questions.asked]
    questions.answers.append(MinDaysProof(math.inf, asked.objective.bound or 0.0))
    figures = [(point.usd, point.days) for point in found]
    # Of the last point the bound is that of the whole box.
    mosts = [*(usd for usd, _ in figures[:-1]), math.inf]
    bounds = [min(questions.min_days(usd), days) for usd, (_, days) in zip(mosts, figures, strict=True)]
    knee, points = knee_of(figures), list[CurvePoint]()
    for at, (point, bound) in enumerate(zip(found, bounds, strict=True)):
        before = plans[id(found[at - 1])] if at else None
        drawn = curve_point(plans[id(point)], bound or None, before, knee=at == knee)
        points.append(drawn.model_copy(update={"asked": point is questions.asked}))
    share = covered_within(figures, bounds)
    refused = [answer.most_usd for answer in questions.answers if math.isinf(answer.least_days)]
    curve = Curve(
        points=tuple(points),
        epsilon=share if math.isfinite(share) else None,
        most_usd=questions.asked.usd,
        least_usd=figures[0][0],
        none_below_usd=max(refused, default=None),
        slowest_days=asked.instance.limits.deadline_days,
        stopped=stopped,
    )
    return Frontier(asked.instance, curve, tuple(plans[id(point)] for point in found))


__all__ = ["curve_around", "why_no_curve"]
