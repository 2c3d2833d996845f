"""The frontier of money against days of an instance: plans that none beats in both, and how far that is proven.

It begins, whole or around a plan, with the fewest days at less and less money, each proven within a tenth. Between two
capitals at which these are bounded, every plan is at least as slow as the bound of the larger one, so that a handful of
answers covers all plans between the cheapest and the dearest point within a known share. Beside it, the
fastest plan of each kind of layout.
"""

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

from planner.checks.check_plan import check
from planner.errors import InputError, InternalError
from planner.instance.consistency import of_one_layout
from planner.instance.instance import FabricInstance, Instance
from planner.models import Options
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_question import Solving
from planner.models.joint.joint_solution import CENTS, EPS, JointPlan, JointSolution
from planner.models.joint.search.free_network import fastest_of, problem_on
from planner.models.joint.search.goal import Stopped
from planner.models.joint.search.whole_curve import Front, WholeCurve, racks_with_spares
from planner.models.joint.solve_joint import solve_joint
from planner.models.joint.tied_plans import ended_by_choice, kept_within
from planner.physics import ticking
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.step_prediction import days_of
from planner.plan.certificate import ObjectiveValue, Violation
from planner.plan.plan import Curve, CurvePoint, Plan, as_asked
from planner.plan.plan_figures import changed_decisions, digest
from planner.plan.plan_sections import layout_in_short
from planner.planning.changed_instance import in_days_of_training
from planner.planning.hardware_choice import best_choice, named
from planner.planning.joint_plan import plan_of
from planner.solvers.outcome import UnansweredError, relative_gap
from planner.solvers.progress import Progress, report, start
from planner.solvers.search_deadline import Deadline, OutOfTimeError, turn

POINTS = 9  # of a curve at most, the plan that it is drawn around among them
STEP = 1.5  # from the size of a plan down to that of the next question
MOST_WORK = 3_500_000  # rows and nodes of all questions, after which no other is asked
WIDE = 1.2  # times the capital of a point, from which on there is room for one between it and the next
TIGHT = 1 - 1e-9
WITHIN = 0.03  # share in days and capital within which the curve is proven unless another is asked for


def refuse_without_curve(instance: Instance) -> Instance:
    """Return an instance that has a frontier of money against days. InputError: not of one layout and one model."""
    if instance.objective.minimize == "loss":
        problem = "is loss, whose model changes with the money: it has no curve of money against days"
        remedy = "set it to days_to_train, and give workload.model and workload.tokens in place of workload.choose"
        raise InputError(f"objective.minimize: {problem}; {remedy}")
    return of_one_layout(instance)


@dataclass(frozen=True, slots=True)
class PricedPoint:
    """A point of the frontier: a plan's capital and days, the racks that it pays, its choice and its instance."""

    usd: float
    days: float
    racks: int
    choice: JointPlan | None = None
    instance: Instance | None = None


@dataclass(kw_only=True)
class BudgetQuestions:
    """The questions asked for a frontier: the fewest days at each budget with a grid, else at a cluster's racks."""

    instance: Instance  # that of the plan, with its other GPUs and racks
    solving: Solving
    points: list[PricedPoint] = field(default_factory=list)  # the plans so far, first the one from which they go down
    # Capital in USD and a bound on days: no plan of at most that capital takes fewer; infinite days: none exists.
    answers: list[tuple[float, float]] = field(default_factory=list)
    refused: float = 0.0  # size down to which there is no use in asking
    dear: float = math.inf  # racks of a cluster from which plans cost more than the budget
    work: int = 0  # rows and nodes of all questions together

    def run(self, most: float) -> Iterator[PricedPoint]:
        """Ask the frontier's questions at less and less money, then in the widest gaps; yield the answers' plans."""
        tried: set[float] = set()
        while len(self.front()) < most and self.work < MOST_WORK:
            size = next((size for size in self._sizes() if size not in tried), None)
            if size is None:
                return
            tried.add(size)
            self.solving.deadline.check()
            end = f" of {most}" if math.isfinite(most) else ""
            start(self.solving.progress, f"the curve, {len(self.front())}{end} points")
            if (point := self._answer(size)) is not None:
                self.points.append(point)
                yield point

    def front(self) -> list[PricedPoint]:
        """Return the frontier so far: plans that no other beats in both capital and days, by rising capital."""
        kept: list[PricedPoint] = []
        for point in sorted(self.points, key=lambda point: (point.usd, point.days)):
            if not kept or point.days < kept[-1].days * TIGHT:
                kept.append(point)
        return kept

    def min_days(self, usd: float) -> float:
        """Return the days that every plan of at most a capital takes, by the frontier's answers so far."""
        return max((least_days for most_usd, least_days in self.answers if most_usd >= usd), default=0.0)

    def _sizes(self) -> Iterator[float]:
        """Yield the curve's next budgets (or racks): a step below the smallest plan, then in the widest gaps."""
        on_grid = self.instance.grid is not None
        sizes = sorted({point.usd if on_grid else point.racks for point in self.points})
        below = sizes[0] / STEP
        if not on_grid:
            paid = budget_of(self.instance) / self.instance.hardware.rack.price_usd  # its plan may be beyond it
            below = max(1, math.floor(min(below, self.dear / STEP, paid)))
        if self.refused < below < sizes[0]:
            yield below
        steps = [(high / low, low, high) for low, high in pairwise([self.refused, *sizes]) if low > 0]
        for ratio, low, high in sorted(steps, reverse=True):
            middle = math.sqrt(low * high) if on_grid else math.floor(math.sqrt(low * high))
            if ratio > WIDE and low < middle < high:
                yield middle

    def _answer(self, size: float) -> PricedPoint | None:
        """Search the fewest days at a budget (or number of racks) within a tenth; None where there is no plan."""
        if self.instance.grid is not None:
            instance, most_usd = self.instance.replaced(limits__budget_usd=size), size
        else:  # the answer holds up to the capital of one rack more, since more racks cost more
            instance = paying_in_use(self.instance.replaced(hardware__racks=int(size)))
            most_usd = (size + 1) * self.instance.hardware.rack.price_usd * TIGHT
        within = replace(self.solving.options, gap=0.1)  # of the fewest days
        best, *_ = best_choice(instance, replace(self.solving, options=within, progress=lambda _: None))
        found = best.solution
        self.work += sum(found.counts.values())
        bound = math.inf if found.status == "infeasible" else found.lower_bound or 0.0
        late = self.instance.limits.deadline_days or math.inf
        self.answers.append((most_usd, math.inf if bound > late else bound))
        days = math.inf if found.days is None or found.days > late else found.days
        if days > 20 * self.points[0].days:  # slower ones are not followed to less money
            self.refused = max(self.refused, size)
        if found.plan is None or math.isinf(days):
            return None
        point = point_of(best.instance, found.plan, days, self.instance.replaced(hardware=best.instance.hardware))
        if point.usd <= min(budget_of(self.instance), self.points[0].usd + CENTS / 2):
            return point
        self.dear = min(self.dear, size)
        return None


def budget_of(instance: Instance) -> float:
    """Return the budget in USD for a plan of the frontier: its capital and half a cent, as a bill may round."""
    return (instance.limits.budget_usd or math.inf) + CENTS / 2


def paying_in_use(instance: Instance) -> Instance:
    """Return the frontier's instance: a cluster's without a budget, as its points pay and feed only racks in use."""
    alike = instance.grid is not None or instance.limits.budget_usd is instance.limits.facility_power_mw is None
    return instance if alike else instance.replaced(limits__budget_usd=None)


def point_of(instance: Instance, choice: JointPlan, days: float, asked: Instance) -> PricedPoint:
    """Return the frontier's point for a choice, in USD and days; in a cluster it pays only for the racks in use."""
    racks, usd = racks_with_spares(choice), choice.capital_usd
    if instance.grid is None:
        usd -= ((instance.hardware.racks or 0) - racks) * instance.hardware.rack.price_usd
    return PricedPoint(usd, days, racks, choice, asked)


def covered_within(points: list[tuple[float, float]], bounds: list[float]) -> float:
    """Return the share in days and capital within which a frontier's points cover every plan between its ends."""
    # A plan of a capital between two points takes at least the bound of the dearer one. The dearer point costs at most
    # as much more as it does than the cheaper one; the cheaper one costs no more.
    if not points or min(bounds) <= 0:
        return math.inf
    share = points[0][1] / bounds[0]
    for (less, late), (more, days), bound in zip(points, points[1:], bounds[1:], strict=False):
        share = max(share, min(max(more / less, days / bound), late / bound))
    return share - 1


@dataclass(frozen=True, slots=True)
class Frontier:
    """The frontier of money against days of an instance, and the plan of each of its points in the same order."""

    instance: Instance
    curve: Curve
    plans: tuple[Plan, ...]


def frontier_of(
    instance: Instance, options: Options, progress: Progress, *, epsilon: float = WITHIN, points: int | None = None
) -> Frontier:
    """Return the frontier of a loaded instance, from the least money that holds the model to its fastest plan.

    A cluster pays the racks that a plan uses; `epsilon`, `points` and an early end are as in `planner.frontier`.
    InputError: the instance has neither racks nor a grid.
    """
    # A goal in money would count the run's cost, or an end, where the curve counts capital and days.
    instance, options = instance.replaced(objective__minimize="days_to_train"), replace(options, gap=None)
    deadline, front = Deadline(options.time_limit), Front()
    stopped: Stopped = "proved"
    search, reported = None, math.inf

    def say(search: WholeCurve) -> None:
        nonlocal reported
        if search.proven < 0.9 * reported and math.isfinite(search.proven):
            reported = search.proven
            within = f"within {100 * reported:.0f} % of one in days and money"
            report(progress, f"{len(search.front.usd)} plans; every other is {within}", None, None)

    with turn(deadline) as mine, deadline.leaving_a_first_plan() as longer, ticking(longer.check):
        if not mine:
            return _nothing(instance, deadline.cause)
        solving = Solving(options=options, deadline=longer, progress=progress)
        questions = BudgetQuestions(instance=instance, solving=solving)
        try:
            start(progress, "the fastest plan")
            all_paid = paying_in_use(instance)
            fastest, chosen = _fastest(all_paid, solving)
            late = (instance.limits.deadline_days or math.inf) * (1 + EPS)
            if fastest.status == "infeasible" or (fastest.lower_bound or 0.0) > late:
                return _nothing(instance, "proved")
            in_time = [(x.plan, x.days) for x in (fastest, chosen) if x.plan and x.days and x.days <= late]
            asked = [point_of(instance, choice, days, instance) for choice, days in in_time]
            questions.points += asked[-1:]
            questions.answers.append((math.inf, fastest.lower_bound or 0.0))
            less_money = questions.run(POINTS if epsilon > WIDE - 1 else math.inf) if asked else ()
            for point in chain((x for x in asked if x.usd <= budget_of(instance)), less_money):
                if point.choice is not None:
                    front.add(point.choice.seconds, point.usd, point.choice)
            start(progress, "the curve")
            search = WholeCurve(world=solving.world(all_paid), epsilon=epsilon, front=front, progress=say)
            search.box()
            # What costs more than the fastest is beaten by it.
            if asked and fastest.status == "optimal" and asked[0].usd <= budget_of(instance):
                front.most_usd = front.usd[-1]
            else:  # the box ends at the budget, or at what all racks cost
                budget = instance.limits.budget_usd or math.inf
                front.most_usd = budget if instance.grid is not None else min(budget, 2 * search.world.owned_usd)
            stopped = search.run()
        except (OutOfTimeError, UnansweredError):
            stopped = deadline.cause
        except KeyboardInterrupt:
            if not front.plans:
                raise
            stopped = "interrupted"
        if not front.plans:
            return _nothing(instance, stopped)
        return _written(front, search, questions, stopped, points)


def _fastest(instance: Instance, solving: Solving) -> tuple[JointSolution, JointSolution]:
    """Return the curve's fastest plan, and the one that the ends of the choice leave, in half of the time limit."""
    limit, within = solving.deadline.limit, kept_within(instance)
    half = replace(solving, deadline=Deadline(None if limit is None else limit / 2))
    fastest = solve_joint(instance, half, within=within)
    try:
        return fastest, ended_by_choice(instance, fastest, half)[0]
    except OutOfTimeError:
        solving.deadline.check()
        return fastest, fastest


def plan_of_frontier(
    instance: Instance, options: Options, progress: Progress, solve_days: Callable[[Instance], Plan]
) -> Plan:
    """Return the plan at the knee of a frontier, or its fastest where it has none; `solve_days` says why no plan is."""
    found = frontier_of(instance, options, progress, epsilon=WITHIN if options.gap is None else options.gap)
    if not found.plans:
        plan = solve_days(in_days_of_training(instance))
        own = ObjectiveValue(name="frontier", value=None, bound=None, gap=None)
    else:
        at = next((n for n, point in enumerate(found.curve.points) if point.knee), -1) % len(found.plans)
        points = tuple(x.replaced(asked=n == at) for n, x in enumerate(found.curve.points))
        curve, point = found.curve.replaced(points=points), points[at]
        gap = None if point.bound_days is None else relative_gap(point.days_to_train, point.bound_days)
        own = ObjectiveValue(name="frontier", value=point.days_to_train, bound=point.bound_days, gap=gap)
        stopped = "gap" if curve.stopped == "proved" and gap is not None else curve.stopped
        plan = found.plans[at].replaced(curve=curve, stopped="limit" if stopped == "proved" else stopped)
    # Of a cluster the question is that for the racks of the plan.
    return plan.replaced(**as_asked(plan.instance.replaced(objective__minimize="frontier")), objective=own, proof=None)


def _nothing(instance: Instance, stopped: str) -> Frontier:
    proven = 0.0 if stopped == "proved" else None
    return Frontier(instance, Curve(points=(), epsilon=proven, most_usd=None, slowest_days=None, stopped=stopped), ())


def _written(
    front: Front, search: WholeCurve | None, questions: BudgetQuestions, stopped: str, points: int | None
) -> Frontier:
    """Return the curve with the plan of each point; after an early end the budget questions may prove more of it."""
    instance, options, proven = questions.instance, questions.solving.options, None
    if search is not None and math.isfinite(search.proven) and math.isinf(search.world.unproven.seconds):
        proven = search.proven
    found = list(zip(front.usd, front.seconds, front.plans, strict=True))
    figures = [(usd, days_of(instance, seconds)) for usd, seconds, _ in found]
    bounds = []
    for at, (usd, days) in enumerate(figures):  # what no plan of the whole box is below, none of less capital is
        bound = 0.0 if proven is None else days_of(instance, front.cutoff(usd, proven))
        bounds.append(min(days, max(bound, questions.min_days(usd if at < len(figures) - 1 else math.inf))))
    least, most = None, front.most_usd if math.isfinite(front.most_usd) else None
    covered = covered_within(figures, bounds)
    if stopped != "proved" and covered < (math.inf if proven is None else proven):
        proven, least, most = covered, figures[0][0], figures[-1][0]
    knee = knee_of(figures)
    chosen = _chosen(len(found), points, knee)
    plans = [plan_of_point(instance, found[at][2], figures[at][1], options) for at in chosen]
    drawn = curve_points(plans, [bounds[at] for at in chosen], chosen.index(knee) if knee in chosen else None)
    own = (dict(zip(("capital_usd", "days_to_train"), figures[at], strict=True)) for at in chosen)
    kept = [found[at][:2] for at in chosen]
    left_out = max((min(max(t / b, u / a) for u, t in kept) - 1 for a, b, _ in found), default=0.0)
    curve = Curve(
        points=tuple(point.replaced(**figure) for point, figure in zip(drawn, own, strict=True)),
        epsilon=None if proven is None else (1 + proven) * (1 + left_out) - 1 if left_out > 0 else proven,
        most_usd=most,
        least_usd=least,
        slowest_days=days_of(instance, front.slowest) if math.isfinite(front.slowest) else None,
        stopped=stopped,
    )
    return Frontier(instance, curve, tuple(plans))


def plan_of_point(instance: Instance, choice: JointPlan, value: float, options: Options) -> Plan:
    """Return the checked plan of a frontier's point, without a bound; of a cluster with only the racks in use."""
    if instance.grid is None:
        instance = instance.replaced(hardware__racks=racks_with_spares(choice))
    return checked_plan(instance, choice, value, options)


def checked_plan(instance: Instance, choice: JointPlan, value: float, options: Options) -> Plan:
    """Return the checked plan of a frontier's choice that takes `value` days, without a claim of a bound."""
    solution = JointSolution(status="feasible", days=value, plan=choice, stopped="limit")
    plan = plan_of(instance, solution, replace(options, time_limit=None), 0.0)
    return marked(plan, check(plan))


def marked(plan: Plan, broken: Sequence[Violation]) -> Plan:
    """Return a plan with the rules that it breaks. InternalError: there are some, which no test takes."""
    if broken and os.environ.get("PLANNER_UNVERIFIED") == "error":  # as in the tests
        raise InternalError(f"the plan breaks its own rules: {'; '.join(f'{x.rule}: {x.message}' for x in broken[:5])}")
    return plan.replaced(verified=not broken, violations=tuple(broken))


def with_curve(plan: Plan, curve: Curve) -> Plan:
    """Return a checked plan with the curve of less money that was drawn around it, checked but for its bound."""
    plan = plan.replaced(curve=curve)
    return marked(plan, check(plan, stop=lambda: True))


def curve_points(plans: Sequence[Plan], bounds: Sequence[float], knee: int | None) -> Iterator[CurvePoint]:
    """Yield plans by rising capital as points of a frontier, each with what it decides otherwise than the one before.

    `bounds`: the fewest days of all plans of at most the capital of each, 0 if not proven; `knee`: the index of one.
    """
    for at, (plan, bound) in enumerate(zip(plans, bounds, strict=True)):
        layout = plan.layout
        if layout is None or plan.cost is None:
            raise RuntimeError("the curve: a plan without a layout or a bill")
        racks = dict(sorted(PlanPhysics(plan=plan).racks_by_site.items()))
        changed = changed_decisions(digest(plans[at - 1]), digest(plan)) if at else {}
        yield CurvePoint(
            days_to_train=layout.metrics.days_to_train,
            capital_usd=plan.counted_usd,
            bound_days=bound or None,
            layout=layout_in_short(layout),
            racks=sum(racks.values()),
            racks_by_site=racks,
            mfu=layout.metrics.mfu,
            idle_gpus=layout.gpus_idle,
            changes=tuple(text for lane, text in changed.items() if lane != "layout"),
            knee=at == knee,
        )


def knee_of(points: list[tuple[float, float]]) -> int | None:
    """Return the frontier's point farthest below its chord, in logarithms of capital and days; None if none is far."""
    product = [usd * seconds for usd, seconds in points]
    if len(points) < 3 or max(product) <= 1.05 * min(product):  # money buys days in proportion
        return None
    (left, late), (right, early) = ([math.log(x) for x in points[at]] for at in (0, -1))
    if right <= left or late <= early:
        return None
    wide, high = right - left, late - early
    below = [1 - (math.log(usd) - left) / wide - (math.log(seconds) - early) / high for usd, seconds in points]
    best = max(range(len(points)), key=below.__getitem__)
    return best if 0 < best < len(points) - 1 and below[best] > 0.1 else None  # of the length in each direction


def _chosen(count: int, most: int | None, knee: int | None) -> list[int]:
    """Return the indices of the curve points to show: all, or some spread evenly with both ends and the knee."""
    if most is None or count <= most:
        return list(range(count))
    kept = {round(k * (count - 1) / max(1, most - 1)) for k in range(most)}
    if knee is not None and knee not in kept and most > 2:
        kept = kept - set(sorted(kept - {0, count - 1}, key=lambda at: abs(at - knee))[:1]) | {knee}
    return sorted(kept)


def why_no_curve(plan: Plan) -> str | None:
    """Say why a plan has no frontier of money against days around it; None where it has one."""
    instance, goal = plan.instance, plan.instance.objective.minimize
    reasons = (
        (isinstance(instance, FabricInstance), "a fabric alone trains nothing"),
        (bool(instance.hardware.pools), "each pool has a layout of its own"),
        (plan.layout is None or plan.cost is None, "there is no plan to draw it around"),
        (goal == "loss", "the model of least loss changes with the money"),
        (goal == "frontier", "the plan holds the whole curve"),
        (goal == "finish_date", "the goal is a date; `planner frontier` draws days of training against money"),
        (goal != "days_to_train", f"the goal is money ({goal}); `planner frontier` draws all of it"),
        (instance.hardware.rack.price_usd <= 0, "racks have no price"),
        (bool(instance.hardware.alternatives) and instance.grid is None, "each GPU has a number of racks of its own"),
        (len({x.ready_months for x in instance.hardware.each_alone()}) > 1, "its GPUs are ready in different months"),
        (plan.stopped in ("limit", "interrupted"), "the search for the plan itself was cut short"),
    )
    return next((why for holds, why in reasons if holds), None)


def curve_around(
    plan: Plan, options: Options, progress: Progress, *, cache: JointCache, points: int = POINTS
) -> Frontier:
    """Return the frontier from a plan of fewest days down to less money, with the plan of each of its points.

    The days of its other plans are proven to within a tenth. At the time limit, and at Ctrl-C, it has the points
    so far, `points` at most. `cache`, of the search for the plan, changes only how long the questions take.
    """
    if (why := why_no_curve(plan)) is not None:
        logging.getLogger("planner").warning("no curve of less money: %s", why)
        progress(f"no curve of less money: {why}")
        return _nothing(plan.instance, "")
    deadline, days = Deadline(options.time_limit), 0.0 if plan.layout is None else plan.layout.metrics.days_to_train
    asked = PricedPoint(plan.counted_usd, days, plan.instance.hardware.racks or 0)
    solving = Solving(options=options, deadline=deadline, progress=progress, cache=cache)
    questions = BudgetQuestions(instance=plan.instance, solving=solving, points=[asked])
    plans, stopped = {id(asked): plan}, "proved"
    with turn(deadline) as mine, ticking(deadline.check):
        try:
            for x in questions.run(points) if mine else ():
                if x.instance is not None and x.choice is not None:
                    plans[id(x)] = named(plan_of_point(x.instance, x.choice, x.days, options), plan.instance)
        except (OutOfTimeError, UnansweredError):
            stopped = deadline.cause
    stopped = deadline.cause if deadline.passed else stopped
    # Where a cluster's racks all take of the budget, or of the power, its fabric has less of it than at fewer racks.
    alike = paying_in_use(plan.instance) is plan.instance
    bound = plan.objective.bound if alike else plan.objective.fabric_free_bound
    if bound is None and not alike:  # the money cables few of them: the fastest layout on a free network bounds days
        free = fastest_of(problem_on(plan.instance, asked.racks), time_limit=deadline.limit)
        bound = days_of(plan.instance, free.bound)
    questions.answers.append((math.inf, bound or 0.0))
    found = [point for point in questions.front() if id(point) in plans] or [asked]
    figures, in_order = [(point.usd, point.days) for point in found], [plans[id(point)] for point in found]
    bounds = [min(questions.min_days(usd), days) for usd, days in figures]
    bounds[-1] = min(questions.min_days(math.inf), figures[-1][1])  # that of the whole box
    drawn = zip(curve_points(in_order, bounds, knee_of(figures)), found, strict=True)
    share = covered_within(figures, bounds)
    curve = Curve(
        points=tuple(own.replaced(asked=point is asked) for own, point in drawn),
        epsilon=share if math.isfinite(share) else None,
        most_usd=asked.usd,
        least_usd=figures[0][0],
        none_below_usd=max((usd for usd, least in questions.answers if math.isinf(least)), default=None),
        slowest_days=plan.instance.limits.deadline_days,
        stopped=stopped,
    )
    return Frontier(plan.instance, curve, tuple(in_order))
