"""The explanation of a plan: what other decisions cost and more of each limit is worth, or what a plan would need."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, takewhile
from typing import Any

from pydantic import Field

from planner.checks.check_plan import check
from planner.errors import InputError
from planner.instance.base_types import Frozen
from planner.instance.hardware import DAYS_A_MONTH
from planner.instance.instance import Instance
from planner.models import NodeLoad, Options, Relaxation
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_question import Solving, World
from planner.models.joint.joint_solution import JointPlan, strategy_of
from planner.models.joint.search.fewest_days import ANY_PLAN
from planner.models.joint.stage_split import Column
from planner.physics.site import site_power
from planner.physics.training.parallel_strategy import layout_values
from planner.physics.training.step_prediction import machine_of
from planner.plan.certificate import Conflict, Status, Violation
from planner.plan.plan import Plan
from planner.plan.plan_sections import LayoutPlan, SitesPlan
from planner.planning import changed_instance, finish_date
from planner.planning.changed_instance import Change, Variant, in_days_of_training, in_fewest_days, variants_of
from planner.planning.conflict import briefly, plan_in_time
from planner.planning.hardware_choice import best_choice, in_time
from planner.planning.solve import column_of, solve_instance
from planner.solvers.progress import Progress, start
from planner.solvers.search_deadline import Deadline, OutOfTimeError
from planner.units import words

ROUNDING = 1e-9  # relative: days that differ by less are the same
TIMES = 2.0  # multiple of the plan's own time that all alternatives may take together
# Limits whose plans stay plans with more of them; those of sites are asked together first.
OF_SITES = ("facility power", "headroom", "generation", "interconnect", "line ratings", "land")
LOOSER = ("budget", "deadline", "batch", "memory", *OF_SITES)
AT_LEAST = 40.0  # seconds that they may take in any case
FEW_CLOSED = 3  # candidates, the largest, that are opened before limits are raised; the others come last
SHOWN = 5e-5  # a loss below which a line shows none


class Other(Frozen):
    """The other choice in an explanation: the best plan with one decision made otherwise, in days or dollars.

    Where the goal is the day of its end, days count from the decision, and its start is chosen anew too.
    """

    choice: str
    plan_value: str
    value: str = Field(description="In place of the plan's.")
    days: float | None = Field(description="Of that plan; null: there is none.")
    usd: float | None = Field(None, description="Of that plan, where the instance minimizes dollars.")
    loss: float | None = Field(
        description="Its days, or dollars, over the best that the plan's tolerance began from, less one."
    )
    proved: bool = Field(description="No plan with the decision made otherwise is better, by more than 0.005 %.")
    bound_days: float | None = Field(None, description="Where that is not proven: no such plan takes fewer days.")
    bound_usd: float | None = Field(None, description="Where that is not proven: no such plan costs less.")
    start_days: float | None = Field(
        None, description="Where the day of the end is minimized: days until all that its start waits for is ready."
    )
    same_as: str = Field("", description="The choice above whose plan it is too.")

    @property
    def as_good(self) -> bool:
        """Whether the other choice in an explanation costs nothing that a line would show, or leaves no plan."""
        return self.loss is None or abs(self.loss) < SHOWN


class OtherStart(Frozen):
    """The soonest end, in an explanation, from another start month, with nothing in use that becomes ready later."""

    months: float = Field(description="From the decision.")
    ready: tuple[str, ...] = Field(description="Sites, new lines and nodes of an upgrade that are ready from then on.")
    start_days: float = Field(description="The same month in days from the decision.")
    days: float | None = Field(description="From the decision to that end; null: there is no plan, or it is not known.")
    loss: float | None = Field(description="Its days over the plan's, less one: 0.11 is 11 % more.")
    proved: bool = Field(description="No plan from this month on ends sooner.")
    bound_days: float | None = Field(None, description="Where that is not proven: none ends in fewer days.")


class Worth(Frozen):
    """What more of a limit is worth in an explanation, every decision taken anew, in days or dollars."""

    limit: str
    more: float
    unit: str
    days_saved: float | None = None
    usd_saved: float | None = None
    proved: bool
    most_days_saved: float | None = Field(None, description="Where that is not proven: no plan saves more days.")
    most_usd_saved: float | None = Field(None, description="Where that is not proven: no plan saves more dollars.")
    each: float = Field(1.0, description="Units by which a line tells what one is worth: a million dollars or tokens.")


class Lack(Frozen):
    """A limit that an explanation names since, changed alone, it lets a plan exist; verified by solving with it."""

    limit: str
    now: float
    needed: float
    unit: str


class Explanation(Frozen):
    """The explanation of a plan: what its decisions and limits are worth, or why there is none."""

    name: str
    status: Status
    violations: tuple[Violation, ...] = Field((), description="The rules that the checker says the plan breaks.")
    conflict: Conflict | None = Field(None, description="A smallest set of rules that leaves no plan.")
    outside: str = Field("", description="What the proof that there is no plan leaves out.")
    lacks: tuple[Lack, ...] = Field((), description="Memory, batch or racks that alone would allow a plan.")
    nodes: tuple[NodeLoad, ...] = Field((), description="What each candidate for a site could carry alone.")
    relaxations: tuple[Relaxation, ...] = Field((), description="Rules of sites that, moved alone, let a split exist.")
    best_days: float | None = Field(
        None, description="Of the best plan, without a tolerance: what the others are set against; null: dollars are."
    )
    best_usd: float | None = Field(None, description="The same where the instance minimizes dollars.")
    start_days: float | None = Field(
        None, description="Days from the decision until the plan starts, where the day of its end is minimized."
    )
    starts: tuple[OtherStart, ...] = Field((), description="Other months from which on a plan may start.")
    layout: LayoutPlan | None = Field(None, description="The layout of the plan, with its breakdown.")
    sites: tuple[Other, ...] = Field(
        (), description="Plans with one site closed or opened, or over other sets of sites."
    )
    worth: tuple[Worth, ...] = Field((), description="What more of each limit saves.")
    others: tuple[Other, ...] = Field((), description="Plans that differ in one decision, those as good last.")
    unasked: tuple[str, ...] = Field((), description="Limits and choices for which no time was left.")
    interrupted: bool = Field(False, description="An interrupt came before all of it was asked.")


def changed_in_words(choice: str, plan_value: str, value: str) -> str:
    """Write the decision that an explanation changes: tensor parallel 4 instead of 8, site abilene closed."""
    own, other = ({"True": "on", "False": "off"}.get(x, x) for x in (plan_value, value))
    name = choice if "." in choice else words(choice)  # a path of the instance as it is
    return f"{name} {own} {other}" if choice == "site" else f"{name} {other} instead of {own}"


def explained(
    asked: Instance | Plan, options: Options, progress: Progress, *, near: int = 0, within: float = 0.05
) -> Iterator[Explanation]:
    """Yield a plan's explanation as it grows: the plan, its sites, what more of each limit is worth, other choices.

    An instance is solved first, for the very best plan, without a tolerance: within one a plan's days say nothing of
    what a limit is worth. A plan that is proven is taken as it is, with the best days that its tolerance began from.
    At an interrupt the last one has what was asked before it. `near` plans over other sets of sites are listed, of
    those `within` a share of the best.
    """
    clock, cache = Deadline(), JointCache()
    if isinstance(asked, Plan):
        plan = asked
        if plan.objective.name == "frontier":
            raise InputError("objective.minimize: is frontier, a curve of many plans; explain the plan of one budget")
    else:
        very_best = in_days_of_training(asked).replaced(objective__tolerance=0.0, objective__indifference=0.0)
        plan = solve_instance(very_best, options, progress, cache=cache, others=False)
    found = Explanation(name=plan.instance.name, status=plan.status, violations=plan.violations, layout=plan.layout)
    late, unasked = list[Other](), list[str]()  # late: what costs nothing, or leaves no plan
    interrupted = plan is not asked and plan.stopped == "interrupted"
    if plan.layout is None:
        sites_alone = plan.conflict is None or plan.conflict.decision == "sites"
        outside = "" if sites_alone or plan.status != "infeasible" else plan.objective.outside
        found, answers = found.replaced(conflict=plan.conflict, outside=outside), _enough(plan, options)
    else:
        if plan.instance.objective.minimize == "finish_date":
            found = found.replaced(start_days=finish_date.start_days(plan.instance, plan.sites))
        seconds = max(clock.elapsed, plan.layout.certificate.seconds)  # of the search for the plan
        together = Deadline(max(AT_LEAST, TIMES * seconds, options.time_limit or 0.0))
        questions = _Questions(plan, cache, together, options, progress, unasked=unasked)
        found = found.replaced(**{"best_usd" if plan.instance.objective.in_dollars else "best_days": questions.best})
        answers = _answers(questions, found.start_days, near, within)
    yield found
    try:
        for name, *items in () if interrupted else answers:
            if name == "others" and items[0].proved and items[0].as_good:
                late += items
            else:
                yield (found := found.replaced(**{name: (*getattr(found, name), *items)}))
    except (KeyboardInterrupt, OutOfTimeError):
        interrupted = True
    yield found.replaced(others=(*found.others, *late), unasked=tuple(unasked), interrupted=interrupted)


def _answers(questions: "_Questions", start_days: float | None, near: int, within: float) -> Iterator[tuple[Any, ...]]:
    """Yield the answers to an explanation's questions as they come, behind the field of the explanation for them."""
    plan, nodes = questions.plan, tuple[NodeLoad, ...]()
    if plan.sites is not None:
        nodes = _nodes(plan.instance, plan.sites, questions.next("sites"))
        yield "nodes", *nodes
    more = [replace(x, loosens=x.choice in questions.asked_together) for x in changed_instance.limits_of(plan)]
    variants = list(variants_of(plan, [x.node for x in nodes if x.racks and not x.opened]))  # else none opens it
    starts = [] if start_days is None else finish_date.each_start(plan.instance)
    starts = [x for x in starts if finish_date.latest_start_days(x) != start_days]
    questions.parts = len(more) + len(variants) + len(starts) + near
    yield from (("starts", questions.other_start(asked)) for asked in starts)
    questions.looser = [x.change for x in (*more, *variants) if x.loosens]
    of_sites = [v for v in variants if v.choice == "site"]
    sites = of_sites[: FEW_CLOSED + sum(v.value == "closed" for v in of_sites)]
    rest = sorted((v for v in variants if v not in sites), key=lambda v: v.choice == "site")
    yield from (("sites", x) for x in chain(map(questions.other, sites), questions.near(near, within)) if x)
    yield from (("worth", x) for x in map(questions.worth, more) if x)
    yield from (("others", x) for x in map(questions.other, rest) if x)


def _nodes(instance: Instance, split: SitesPlan | None, options: Options) -> tuple[NodeLoad, ...]:
    """Return the MW that each candidate site could carry alone of the explained plan's load or the pinned racks."""
    from planner.models.sites import split_model as sites

    late, grid = dict[str, float](), instance.grid  # months after which sites are ready that miss the start
    racks, opened = instance.pins.get("sites.racks"), set[str]()
    asked = None if racks is None else site_power.facility_mw(instance.hardware, racks)
    if split is not None and grid is not None:
        asked, opened = sum(site.facility_mw for site in split.sites), {site.id for site in split.sites}
        if instance.objective.minimize == "finish_date":
            first, places = finish_date.start_days(instance, split), [node for node in grid.nodes if node.site]
            late = {x.id: x.ready_months for x in places if x.ready_months * DAYS_A_MONTH > first}
    return tuple(
        x.replaced(
            opened=x.node in opened,
            missing_mw=None if asked is None else max(asked - x.mw, 0.0),
            ready_months=late.get(x.node),
        )
        for x in sites.largest_loads(instance, options)
    )


def proven_plan(plan: Plan) -> bool:
    """Return whether a plan is proven, so that its explanation need not solve it."""
    # It has one layout, its bound says that none is better, not only that none is within a gap, and the checker agrees.
    bound, proved = plan.objective.bound, plan.status == "optimal" and plan.stopped == "proved"
    best = bound is not None and plan.layout is not None and bound >= _best_value(plan) * (1 - ROUNDING)
    return proved and best and plan.instance.objective.minimize != "loss" and not check(plan)


def _best_value(plan: Plan) -> float:
    """Return the best dollars or days of an explained plan's question, before its tolerance gave any up."""
    if plan.objective.name == "loss" and plan.layout is not None:
        return plan.layout.metrics.days_to_train
    return next((x.value for x in plan.objective.ends if x.name == "goal"), plan.objective.value or 0.0)


@dataclass
class _Questions:
    """The questions of an explanation, each one change from the plan's, and what one answer says of another.

    A question that only excludes plans has none better than the plan's own bound; one that only adds plans keeps the
    plan, and has none better than the answer to all such questions together. Each may take about as long as the search
    for the plan, or an even part of the time.
    """

    plan: Plan
    cache: JointCache
    deadline: Deadline
    options: Options
    progress: Progress
    parts: int = 0  # questions to come
    plans: list[tuple[float, str, JointPlan]] = field(default_factory=list)  # found, with value and what was changed
    unasked: list[str] = field(default_factory=list)
    looser: list[Change] = field(default_factory=list)  # that loosen a rule of sites or fabrics; asked together first
    together: "_Answer | None" = None  # the answer to that
    own: Column | None = None  # of the plan, once the first question is asked

    def __post_init__(self) -> None:
        layout, own, goal = self.plan.layout, self.plan.objective, self.plan.instance.objective
        self.best = _best_value(self.plan)  # dollars, or days
        self.search_seconds = 0.0 if layout is None else layout.certificate.seconds
        # Whether the best of other questions may be set against the plan's own.
        self.proven = self.plan.status == "optimal" and self.plan.stopped == "proved"
        # Share of the value within which a proven plan is the best, as was asked: plans so near count as equal.
        self.tolerance = SHOWN
        if own.bound and own.value and self.proven:
            self.tolerance = max(SHOWN, min(1 - own.bound / own.value, max(goal.tolerance, goal.indifference)))
        # Limits that are asked together first: of sites, memory where the fullest GPU has much to spare, and all others
        # where dollars are minimized, as capital comes in steps of whole modules, which a little more seldom saves.
        spare = layout is not None and layout.metrics.memory_bytes_per_gpu < 0.9 * layout.metrics.memory_limit_bytes
        self.asked_together = {*OF_SITES, *(LOOSER[1:] if goal.in_dollars else ("memory",) if spare else ())}

    @property
    def left(self) -> bool:
        """Whether enough time is left for another question of the explanation. OutOfTimeError: a signal ends it."""
        Deadline().check()
        return self.deadline.left > 0.25 * self.search_seconds

    def next(self, name: str) -> Options:
        """Report the next question of an explanation, and return its solve options with its share of the time."""
        start(self.progress, name)
        most = min(self.deadline.left, max(self.deadline.left / max(1, self.parts), 1.5 * self.search_seconds))
        self.parts -= 1
        own = self.options.time_limit
        return replace(self.options, time_limit=most if own is None else min(most, own))

    def _ask(
        self, instance: Instance, options: Options, without: dict[str, Any] | None = None, floor: float = 0.0
    ) -> "_Answer":
        layout = self.plan.layout
        if self.own is None and layout is not None:
            # Sites and fabrics of the plan's question serve most of the others.
            question = in_fewest_days(self.plan.instance).replaced(hardware__alternatives=())
            cache = self.cache if self.cache.question is None else replace(self.cache)
            self.own = column_of(layout, _quietly(replace(options, time_limit=None), cache).world(question))
        known = [] if self.own is None else [self.own]
        known += [x.column for *_, x in sorted(self.plans, key=lambda x: x[0])]

        def first(world: World) -> Column | None:
            """Return the column to price first: the explained plan's, or the best known other's, if in this space."""
            for x in known:
                for s in world.strategies():
                    of = x.strategy
                    alike = (s.shape, s.order, s.packed, s.recomputes) == (of.shape, of.order, of.packed, of.recomputes)
                    if alike and world.has(s, x.p, x.v, x.zero):
                        return replace(x, strategy=s)
            return None

        same = self.cache if not without and self.cache.serves(instance) else replace(self.cache)
        replicas = () if layout is None else tuple(layout.data_parallel_by_site.values())
        near = self.own if without else None
        how = _quietly(options, same, first=first, first_replicas=replicas, near=near, floor=floor)
        return _answer(instance, how, without)

    def _known_or_asked(self, name: str, x: Variant, floor: float = 0.0, gap: float | None = None) -> "_Answer | None":
        """Return the answer to an explanation's question, or to all looser ones if that settles it; None: no time."""
        # What is worth nothing together is worth nothing alone.
        if x.loosens and len(self.looser) > 1 and self.left:
            changed = reduce(lambda question, change: change(question), self.looser, self.plan.instance)
            self.together = self._ask(changed, self.next("all limits that are seldom short together"))
            self.looser = []
        together = self.together if x.loosens else None
        if together is not None:
            floor = together.bound or 0.0
            if together.proved and (together.value or 0.0) >= self.best * (1 - ROUNDING):
                self.parts -= 1  # the time is for those that are asked
                return together
        if not self.left:
            return None
        return self._ask(x.change(self.plan.instance), replace(self.next(name), gap=gap), x.without, floor)

    def other_start(self, asked: Instance) -> OtherStart:
        """Return the soonest end from another start than the explained plan's; unsolved where that is too late."""
        months, ready = finish_date.latest_start_months(asked), finish_date.latest_start_days(asked)
        options, becoming = self.next(f"a start in month {months:g}"), tuple(finish_date.ready_in(asked, months))
        figures: dict[str, Any] = {"months": months, "ready": becoming, "start_days": ready}
        if ready >= self.best:
            return OtherStart(**figures, days=None, loss=None, proved=True, bound_days=ready)
        found = self._ask(in_fewest_days(asked), options)
        late = (asked.limits.deadline_days or math.inf) * (1 + ROUNDING)
        days = None if found.days is None or found.days > late else ready + found.days
        loss = None if days is None else days / self.best - 1
        bound = None if found.proved or found.bound is None else ready + found.bound
        return OtherStart(**figures, days=days, loss=loss, proved=found.proved, bound_days=bound)

    def worth(self, x: Variant) -> Worth | None:
        """Return what a little more of a limit saves the explained plan, in days or dollars; None if unanswered."""
        best, in_dollars, known = self.best, self.plan.instance.objective.in_dollars, self.plan.objective.bound
        if x.choice == "budget" and in_dollars and known:  # what more money pays costs more
            found: _Answer | None = _Answer(best, best, None, None, proved=self.plan.status == "optimal")
        else:
            found = self._known_or_asked(f"what more {x.choice} is worth", x)
        if found is None or (found.value is None and (found.proved or found.bound is None)):
            self.unasked.append(x.choice)  # no time was left, or no answer came
            return None
        saved = best - found.value if found.value is not None else 0.0
        if abs(saved) <= ROUNDING * best or (saved < 0 and not found.proved and x.choice in LOOSER):
            saved = 0.0  # the plan at hand is one still
        proved = found.proved and self.proven
        most = None if proved or found.bound is None else max(best - found.bound, 0.0)
        key = "usd_saved" if in_dollars else "days_saved"
        figures = {key: saved, f"most_{key}": most}
        return Worth(limit=x.choice, more=x.more, unit=x.unit, proved=proved, each=x.each, **figures)

    def other(self, v: Variant) -> Other | None:
        """Return the best plan with one decision of the explained plan made otherwise; None: no time left."""
        changed, own = changed_in_words(v.choice, v.plan_value, v.value), self.plan.objective
        gap = self.tolerance if v.value == "opened" or v.choice == "switch" else SHOWN
        floor = own.bound or 0.0 if v.loosens is False and own.name != "loss" else 0.0
        found = self._known_or_asked(changed, v, floor, gap)
        if found is None:
            name = v.choice if "." in v.choice else words(v.choice)
            self.unasked.append(changed if v.choice in ("site", "switch") else name)
            return None
        if v.loosens and (found.value is None or found.value > self.best):  # the plan at hand is one still
            found = replace(found, value=self.best, days=None, plan=None)
        return self._as_other(v, found)

    def _as_other(self, v: Variant, found: "_Answer") -> Other:
        in_dollars, value = self.plan.instance.objective.in_dollars, _value(v, found.plan)
        if found.value is not None and found.bound is not None and found.bound < found.value * (1 - SHOWN):
            found = replace(found, proved=False)  # a search that ended within the tolerance
        changed = changed_in_words(v.choice, v.plan_value, value)
        known = ""
        if found.plan is not None and found.value is not None:
            known = next((name for _, name, x in self.plans if _decided(x) == _decided(found.plan)), "")
            self.plans += [] if known else [(found.value, changed, found.plan)]
        return Other(
            choice=v.choice,
            plan_value=v.plan_value,
            value=value,
            days=found.days if in_dollars or found.value is None else found.value,
            usd=found.value if in_dollars else None,
            loss=None if found.value is None else found.value / self.best - 1,
            proved=found.proved,
            bound_days=None if found.proved or in_dollars else found.bound,
            bound_usd=found.bound if not found.proved and in_dollars else None,
            start_days=found.start_days,
            same_as=known,
        )

    def near(self, count: int, within: float) -> Iterator[Other]:
        """Yield, to explain a choice of sites, the best plans on other sets of sites, within a share of the best."""
        if self.plan.sites is None:
            return
        own = self.plan.sites.sites
        sets, racks = {frozenset(site.id for site in own)}, " + ".join(f"{site.id} {site.racks:,}" for site in own)
        for _ in range(count):
            v = Variant("sites", f"{racks} racks", "any other", without={"sites": frozenset(sets)})
            if not self.left:
                self.unasked.append("other sets of sites")
                return
            options = replace(self.next("other sets of sites"), gap=self.tolerance)
            found = self._ask(self.plan.instance, options, v.without, self.plan.objective.bound or 0.0)
            placed = found.plan.placed if found.plan is not None else None
            if placed is None or found.value is None or found.value > (1 + within) * self.best:
                return
            sets.add(placed.joined.open)
            others = " + ".join(f"{site} {n:,}" for site, n in sorted(placed.racks.items()))
            yield self._as_other(replace(v, value=f"{others} racks"), found)


def _decided(plan: JointPlan) -> tuple[Any, ...]:
    """Return a plan's layout, sites and capital, by which an explanation knows the same plan from two questions."""
    c = plan.column
    return c.strategy.shape, c.strategy.order, c.p, c.v, c.d, c.m, c.zero, plan.blocks_by_site, round(plan.capital_usd)


def _value(v: Variant, plan: JointPlan | None) -> str:
    """Return the value of an explained choice in a plan; the value asked for where that says it all."""
    if plan is None or v.choice in ("site", "sites") or not v.without:
        return v.value
    if v.choice == "stripes":
        return str(next((t.stripes for t in plan.templates.values()), v.value))
    return str(layout_values(strategy_of(plan)).get(v.choice, v.value))


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to a question of an explanation: the best plan's days or dollars, and their bound."""

    value: float | None
    bound: float | None
    days: float | None  # from the decision where the day of the end is minimized, else from the start of training
    plan: JointPlan | None
    proved: bool
    start_days: float | None = None


def _quietly(options: Options, cache: JointCache, **how: Any) -> Solving:
    return Solving(options=options, deadline=Deadline(options.time_limit), progress=lambda _: None, cache=cache, **how)


def _answer(instance: Instance, solving: Solving, without: dict[str, Any] | None = None) -> _Answer:
    """Solve an explanation's question: least dollars by the deadline, fewest days however late, or the soonest end."""
    # The goal of the instance says which; the soonest end is that of a training within the deadline.
    in_dollars, by_date = instance.objective.in_dollars, instance.objective.minimize == "finish_date"
    asked = (instance if in_dollars or by_date else in_fewest_days(instance)).replaced(hardware__alternatives=())
    best, *_ = best_choice(asked, solving, without=without)
    found, ready = best.solution, best.ready_days if by_date else 0.0
    if found.stopped == "interrupted":  # what follows is not asked
        raise KeyboardInterrupt
    bound = max(solving.floor, 0.0 if found.lower_bound is None else ready + found.lower_bound) or None
    proved = found.stopped == "proved"
    # The last plan of a search for the least cost of ownership that was cut short has the dollars of a shorter run.
    of_shorter_run = not proved and asked.objective.minimize == "total_cost_of_ownership_usd"
    if found.days is None or not in_time(best) or of_shorter_run:
        return _Answer(None, bound, None, None, proved)
    end = ready + found.days
    return _Answer(found.usd if in_dollars else end, bound, end, found.plan, proved, ready if by_date else None)


def _enough(plan: Plan, options: Options) -> Iterator[tuple[Any, ...]]:
    """Yield what would resolve the conflict of an instance without a plan, rule by rule, as `_answers` does."""
    instance, rules = plan.instance, plan.conflict.rules if plan.conflict is not None else ()
    from planner.models.sites import split_model as sites

    if rules and instance.grid is not None and set(rules) <= set(sites.RULES):
        # How far each rule of the sites must give for a plan; of money, what a plan costs.
        moved = sites.relaxations(instance, [rule for rule in rules if rule != "budget"], options)
        budget, quietly = instance.limits.budget_usd, _quietly(options, JointCache())
        paid = briefly(instance, quietly, cheapest=True) if "budget" in rules else None
        if paid is not None and paid.usd is not None and budget is not None:
            proved = paid.lower_bound == paid.usd
            moved.append(Relaxation(rule="budget", amount=paid.usd - budget, unit="USD", proved=proved))
        yield "relaxations", *moved
        yield "nodes", *_nodes(instance, None, options)
        return
    # How much more of each limit in conflict, raised alone, lets a plan exist, as far as the time allows.
    hbm, racks, batch = machine_of(instance).gpu.hbm_bytes, instance.hardware.racks, instance.limits.max_batch_tokens
    left = Deadline(options.time_limit)
    for limit, now, scale, unit, path in (
        ("memory", hbm, 1e9, "GB of HBM a GPU", "hardware__accelerator__hbm_bytes"),
        ("limits.max_batch_tokens", batch, 1, "tokens a step", "limits__max_batch_tokens"),
        ("hardware.racks", racks, 1, "racks", "hardware__racks"),
    ):
        if limit in rules and now is not None and (needed := _least(instance, path, now, options, left)) is not None:
            yield "lacks", Lack(limit=limit, now=now / scale, needed=needed / scale, unit=unit)


def _least(instance: Instance, path: str, now: float, options: Options, left: Deadline) -> float | None:
    """Return the least value of a limit with which a plan was found, to the precision or as the time allows."""
    whole = path == "hardware__racks"

    def exists(value: float) -> bool:
        changed = instance.replaced(**{path: int(value) if whole else value})
        found = plan_in_time(changed, _quietly(replace(options, gap=ANY_PLAN, time_limit=left.limit), JointCache()))
        if found.stopped == "interrupted":
            raise KeyboardInterrupt
        return found.plan is not None

    def time_left(*_: float) -> bool:
        Deadline().check()  # a signal ends it with an OutOfTimeError
        return not left.passed

    high = next(filter(exists, takewhile(time_left, (now * 2**n for n in range(1, 21)))), None)
    low = 0.0 if high is None else high / 2
    while high is not None and high - low > (1 if whole else 0.01 * low) and time_left():
        middle = (low + high) // 2 if whole else (low + high) / 2
        low, high = (low, middle) if exists(middle) else (middle, high)
    return high
