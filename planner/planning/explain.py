"""Explain a plan: the cost of each decision's runner-up and the value of each limit, or the needs of a plan."""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pydantic import Field

from planner.checks.check_plan import check
from planner.errors import InputError
from planner.instance.base import Frozen
from planner.instance.hardware import Accelerator
from planner.instance.instance import FabricInstance, Instance
from planner.instance.network import NETWORK_LIMITS
from planner.models import Options
from planner.models.joint.cache import JointCache
from planner.models.joint.search.days import ANY_PLAN
from planner.models.joint.solve import Solving
from planner.models.joint.split import Column
from planner.models.joint.world import JointPlan, World
from planner.models.sites.explanation import NodeLoad, Relaxation
from planner.plan.certificate import Conflict, Status, Violation, disagreement
from planner.plan.plan import Plan
from planner.plan.plan_sections import DEGREES, LayoutPlan
from planner.planning import explain_sites
from planner.planning.evaluate import memory_lines, time_lines
from planner.planning.explain_sites import ROWS, nodes_of, relaxations
from planner.planning.finish_date import (
    FINISH_DATE,
    each_start,
    latest_start_days,
    latest_start_months,
    ready_in,
    start_days,
    start_months,
)
from planner.planning.frontier import FRONTIER, in_days_of_training
from planner.planning.hardware_choice import First, best_choice, each_alone, in_time
from planner.planning.instance_parts import in_fewest_days, with_hbm
from planner.planning.session import column_like, column_of
from planner.planning.solve import solve_instance
from planner.solvers.progress import start
from planner.solvers.signals import Deadline, OutOfTimeError
from planner.units import amount, money, short, words

CHOICES = (*DEGREES[:4], "virtual_stages", "microbatch_sequences", "zero_stage", "sequence_parallel", "schedule")
PRECISION = 0.01  # relative, of what an infeasible instance lacks
ROUNDING = 1e-9  # relative: days that differ by less are the same
TIMES = 2.0  # multiple of the plan's own time that all alternatives may take together
SLOWER = 1.5  # times as long as the search for the plan, that one question may take while there is time
# Limits whose plans stay plans with more of them; those of sites are asked together first.
OF_SITES = ("facility power", "headroom", "generation", "interconnect", "line ratings", "land")
LOOSER = ("budget", "deadline", "batch", "memory", *OF_SITES)
AT_LEAST = 40.0  # seconds that they may take in any case
SHOWN = 5e-5  # a loss below which a line shows none
DOUBLINGS = 20  # of a limit, in search of a plan
MILLION = 1e6
SMALL_CHANGE = 0.01  # of a limit, for which its worth is computed by solving again


class Other(Frozen):
    """The best plan with one decision made otherwise, in what the instance minimizes: days, or dollars.

    Where that is the day of its end, days count from the decision, and its start is chosen anew too.
    """

    choice: str
    plan_value: str
    value: str = Field(description="In place of the plan's.")
    days: float | None = Field(description="Of that plan; null: there is none.")
    usd: float | None = Field(None, description="Of that plan, where the instance minimizes dollars.")
    loss: float | None = Field(description="Its days, or dollars, over the plan's, less one: 0.11 is 11 % more.")
    proved: bool = Field(description="No plan with the decision made otherwise is better, by more than 0.005 %.")
    bound_days: float | None = Field(None, description="Where that is not proven: no such plan takes fewer days.")
    bound_usd: float | None = Field(None, description="Where that is not proven: no such plan costs less.")
    start_days: float | None = Field(
        None, description="Where the day of the end is minimized: days until all that its start waits for is ready."
    )
    same_as: str = Field("", description="The choice above whose plan it is too.")


class OtherStart(Frozen):
    """The soonest end from another month at which something becomes ready, with nothing that becomes ready later."""

    months: float = Field(description="From the decision.")
    ready: tuple[str, ...] = Field(description="Sites, new lines and nodes of an upgrade that are ready from then on.")
    start_days: float = Field(description="The same month in days from the decision.")
    days: float | None = Field(description="From the decision to that end; null: there is no plan, or it is not known.")
    loss: float | None = Field(description="Its days over the plan's, less one: 0.11 is 11 % more.")
    proved: bool = Field(description="No plan from this month on ends sooner.")
    bound_days: float | None = Field(None, description="Where that is not proven: none ends in fewer days.")


class Worth(Frozen):
    """What more of a limit saves, every decision taken anew, in what the instance minimizes: days, or dollars."""

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
    """A limit that, changed alone, lets a plan exist; verified by solving with it."""

    limit: str
    now: float
    needed: float
    unit: str


class Explanation(Frozen):
    """What a plan's decisions and limits are worth, or why there is none."""

    name: str
    status: Status
    violations: tuple[Violation, ...] = Field((), description="The rules that the checker says the plan breaks.")
    conflict: Conflict | None = Field(None, description="A smallest set of rules that leaves no plan.")
    outside: str = Field("", description="What the proof that there is no plan leaves out.")
    lacks: tuple[Lack, ...] = Field((), description="Memory, batch or racks that alone would allow a plan.")
    nodes: tuple[NodeLoad, ...] = Field((), description="What each candidate for a site could carry alone.")
    relaxations: tuple[Relaxation, ...] = Field((), description="Rules of sites that, moved alone, let a split exist.")
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


Change = Callable[[Instance], Instance]


def _with(**changes: Any) -> Change:
    """Return how to change values of an instance, by the paths that `replaced` takes."""
    return lambda instance: instance.replaced(**changes)


AS_IT_IS = _with()


@dataclass(frozen=True)
class More:
    """A limit with a little more of it, by what changes in the instance."""

    limit: str
    more: float
    unit: str
    change: "Change"
    each: float = 1.0


@dataclass(frozen=True)
class Variant:
    """One decision made otherwise, or one rule left out, by what changes in the instance and what no plan may have."""

    choice: str
    plan_value: str
    value: str
    change: Change = AS_IT_IS
    without: dict[str, Any] = field(default_factory=dict)
    loosens: bool | None = False  # whether every plan stays one; None: neither that, nor was each of its plans one


def explained(
    asked: Instance | Plan,
    options: Options,
    *,
    near: int = 0,
    within: float = 0.05,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Explanation]:
    """Yield the explanation as it grows: the plan, its sites, what more of each limit is worth, and other choices.

    An instance is solved first, for the very best plan, without a tolerance: within one a plan's days say nothing of
    what a limit is worth. A plan that is proven is taken as it is, with the best days that its tolerance began from.
    At an interrupt the last one has what was asked before it. `near` plans over other sets of sites are listed, of
    those `within` a share of the best.
    """
    clock, cache = Deadline(), JointCache()
    if isinstance(asked, Plan):
        plan = asked
        if plan.objective.name == FRONTIER:
            raise InputError("objective.minimize: is frontier, a curve of many plans; explain the plan of one budget")
    else:
        asked = in_days_of_training(asked)
        very_best = asked.replaced(objective__tolerance=0.0, objective__indifference=0.0)
        plan = solve_instance(very_best, options, progress, cache=cache)
    if plan.layout is None:
        yield from _infeasible(plan, plan.instance, options)
        return
    found = Explanation(name=plan.instance.name, status=plan.status, violations=plan.violations, layout=plan.layout)
    if plan.instance.objective.minimize == FINISH_DATE:
        found = found.replaced(start_days=start_days(plan.instance, plan.sites))
    yield found
    seconds = max(clock.elapsed, plan.layout.certificate.seconds)  # of the search for the plan
    share = _Share(Deadline(max(AT_LEAST, TIMES * seconds)), options, progress, plan.layout.certificate.seconds)
    questions, late = _Questions(plan, cache, share), list[Other]()
    try:
        for part in _parts(questions, found, late, near, within):
            yield (found := part)
        yield found.replaced(others=(*found.others, *late), unasked=tuple(questions.unasked))
    except (KeyboardInterrupt, OutOfTimeError):
        yield found.replaced(others=(*found.others, *late), unasked=tuple(questions.unasked), interrupted=True)


def _parts(
    questions: "_Questions", found: Explanation, late: list[Other], near: int, within: float
) -> Iterator[Explanation]:
    """Yield the explanation with each answer; `late` gets those to choices that cost nothing, or that leave no plan."""
    plan = questions.plan
    if plan.sites is not None:
        nodes = nodes_of(plan.instance, plan.sites, questions.share.next("sites"))
        yield (found := found.replaced(nodes=nodes))
    more = list(limits_of(plan))
    variants = list(_variants(plan, [x.node for x in found.nodes if not x.opened]))
    starts = list[Instance]()
    if plan.instance.objective.minimize == FINISH_DATE:
        own = start_months(plan.instance, plan.sites)
        starts = [one for one in each_start(plan.instance) if latest_start_months(one) != own]
    questions.share.parts = len(more) + len(variants) + len(starts) + near
    for asked_from in starts:
        other_start = _from(asked_from, plan, questions.share, questions.cache)
        yield (found := found.replaced(starts=(*found.starts, other_start)))
    questions.looser = [x.change for x in more if x.limit in OF_SITES] + [v.change for v in variants if v.loosens]
    sites = [v for v in variants if v.choice == "site"]
    for v in sites[:ROWS]:
        other = questions.other(v)
        if other is not None:
            yield (found := found.replaced(sites=(*found.sites, other)))
    for other in questions.near(near, within):
        yield (found := found.replaced(sites=(*found.sites, other)))
    for x in more:
        worth = questions.worth(x)
        if worth is not None:
            yield (found := found.replaced(worth=(*found.worth, worth)))
    for v in variants:
        other = None if v in sites[:ROWS] else questions.other(v)
        if other is not None and other.proved and _as_good(other):
            late.append(other)
        elif other is not None:
            yield (found := found.replaced(others=(*found.others, other)))


def proven_plan(plan: Plan) -> bool:
    """Return whether a plan can be explained without solving it again."""
    # It has one layout, its bound says that none is better, not only that none is within a gap, and the checker agrees.
    instance, bound = plan.instance, plan.objective.bound
    if isinstance(instance, FabricInstance) or instance.hardware.pools or plan.layout is None or bound is None:
        return False
    best = bound >= _best_value(plan) * (1 - ROUNDING) and instance.objective.minimize != "loss"
    return plan.status == "optimal" and plan.stopped == "proved" and best and not check(plan)


def _best_value(plan: Plan) -> float:
    """Return the best dollars, or days, of a plan's question: those that its tolerance began from."""
    goal = next((x.value for x in plan.objective.ends if x.name == "goal"), None)
    if goal is not None:
        return goal
    if plan.instance.objective.in_dollars or plan.instance.objective.minimize == FINISH_DATE:
        return plan.objective.value or 0.0
    return plan.layout.metrics.days_to_train if plan.layout is not None else 0.0


@dataclass
class _Share:
    """The time of the alternatives: each may take about as long as the search for the plan, or an even part of it."""

    deadline: Deadline
    options: Options
    progress: Callable[[str], None]
    search_seconds: float
    parts: int = 0

    @property
    def left(self) -> bool:
        """Whether time is left. OutOfTimeError: a signal ends it."""
        Deadline().check()
        return not self.deadline.passed

    def next(self, name: str) -> Options:
        """Report the next alternative and return its options."""
        start(self.progress, name)
        most = min(self.deadline.left, max(self.deadline.left / max(1, self.parts), SLOWER * self.search_seconds))
        self.parts -= 1
        own = self.options.time_limit
        return replace(self.options, time_limit=most if own is None else min(most, own))


@dataclass
class _Questions:
    """The questions that differ from a plan's in one thing, and what the answers say of one another.

    A question that only excludes plans has none better than the plan's own bound; one that only adds plans keeps the
    plan, and has none better than the answer to all such questions together.
    """

    plan: Plan
    cache: JointCache
    share: _Share
    plans: list[tuple[float, str, JointPlan]] = field(default_factory=list)  # found, with value and what was changed
    unasked: list[str] = field(default_factory=list)
    looser: list[Change] = field(default_factory=list)  # that loosen a rule of sites or fabrics; asked together first
    together: "_Answer | None" = None  # the answer to that

    @property
    def best(self) -> float:
        """The best dollars, or days."""
        return _best_value(self.plan)

    @property
    def tolerance(self) -> float:
        """Share of the value within which plans count as equal: that within which the plan is the best, if any."""
        bound, value = self.plan.objective.bound, self.plan.objective.value
        return max(SHOWN, value / bound - 1) if bound and value else SHOWN

    def _ask(
        self, instance: Instance, options: Options, without: dict[str, Any] | None = None, floor: float = 0.0
    ) -> "_Answer":
        layout, known = self.plan.layout, sorted(self.plans, key=lambda x: x[0])

        def first(world: World) -> Column | None:
            """Name the column of the plan, or of the best other that a question knows, where it is one of its own."""
            own = None if layout is None else column_of(layout, world)
            return own or next((c for *_, x in known if (c := column_like(x.column, world)) is not None), None)

        same = self.cache if not without and self.cache.serves(instance) else JointCache(timed=self.cache.timed)
        return _answer(instance, options, same, without, first=first, floor=floor)

    def _settled(self, *, loosens: bool) -> "_Answer | None":
        """Return the answer to a looser question that is settled by that to all of them, which is asked once."""
        # What is worth nothing together is worth nothing alone.
        if loosens and len(self.looser) > 1 and self.share.left:
            changed = reduce(lambda question, change: change(question), self.looser, self.plan.instance)
            self.together = self._ask(changed, self.share.next("all rules of sites and fabrics together"))
            self.looser = []
        known = self.together
        nothing = loosens and known is not None and known.proved
        return known if nothing and known is not None and (known.value or 0.0) >= self.best * (1 - ROUNDING) else None

    def worth(self, x: More) -> Worth | None:
        """Return the saving by a little more of a limit, in days or dollars; None if unanswered."""
        best, among = self.best, x.limit in OF_SITES
        found = self._settled(loosens=among)
        if found is None and not self.share.left:
            self.unasked.append(x.limit)
            return None
        if found is None:
            floor = self.together.bound if among and self.together is not None else None
            options = self.share.next(f"what more {x.limit} is worth")
            found = self._ask(x.change(self.plan.instance), options, floor=floor or 0.0)
        if found.value is None and (found.proved or found.bound is None):
            return None
        saved = best - found.value if found.value is not None else 0.0
        if abs(saved) <= ROUNDING * best or (saved < 0 and not found.proved and x.limit in LOOSER):
            saved = 0.0  # the plan at hand is one still
        most = None if found.proved or found.bound is None else max(best - found.bound, 0.0)
        in_dollars = self.plan.instance.objective.in_dollars
        names = ("usd_saved", "most_usd_saved") if in_dollars else ("days_saved", "most_days_saved")
        figures = dict(zip(names, (saved, most), strict=True))
        return Worth(limit=x.limit, more=x.more, unit=x.unit, proved=found.proved, each=x.each, **figures)

    def other(self, v: Variant) -> Other | None:
        """Return the best plan with one decision made otherwise; None where no time was left."""
        changed, floor = _changed(v.choice, v.plan_value, v.value), 0.0
        found = self._settled(loosens=v.loosens is True)
        if found is None and not self.share.left:
            self.unasked.append(changed if v.choice == "site" else _named(v.choice))
            return None
        if v.loosens is False:
            floor = self.plan.objective.bound or 0.0 if self.plan.objective.name != "loss" else 0.0
        elif v.loosens and self.together is not None:
            floor = self.together.bound or 0.0
        if found is None:
            gap = self.tolerance if v.choice in ("site", "switch") else SHOWN
            options = replace(self.share.next(changed), gap=gap)
            found = self._ask(v.change(self.plan.instance), options, v.without, floor)
        if v.loosens and (found.value is None or found.value > self.best):  # the plan at hand is one still
            found = replace(found, value=self.best, days=None, plan=None)
        return self._as_other(v, found)

    def _as_other(self, v: Variant, found: "_Answer") -> Other:
        in_dollars, value = self.plan.instance.objective.in_dollars, _value(v, found.plan)
        changed = _changed(v.choice, v.plan_value, value)
        known = next((name for _, name, x in self.plans if found.plan is not None and _same(x, found.plan)), "")
        if found.plan is not None and found.value is not None and not known:
            self.plans.append((found.value, changed, found.plan))
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
        """Yield the best plans over sets of sites that no plan before has, within a share of the best."""
        if self.plan.sites is None:
            return
        own = tuple(site.id for site in self.plan.sites.sites)
        sets = {frozenset(own)}
        for _ in range(count):
            v = Variant("sites", " + ".join(own), "any other", without={"sites": frozenset(sets)})
            if not self.share.left:
                self.unasked.append("other sets of sites")
                return
            options = replace(self.share.next("other sets of sites"), gap=self.tolerance)
            found = self._ask(self.plan.instance, options, v.without, self.plan.objective.bound or 0.0)
            placed = found.plan.placed if found.plan is not None else None
            if placed is None or found.value is None or found.value > (1 + within) * self.best:
                return
            sets.add(placed.joined.open)
            racks = " + ".join(f"{site} {n:,}" for site, n in sorted(placed.racks.items()))
            yield self._as_other(replace(v, value=racks), found)


def _same(a: JointPlan, b: JointPlan) -> bool:
    """Return whether two plans of questions that differ have the same layout, sites and capital."""

    def of(plan: JointPlan) -> tuple[Any, ...]:
        c = plan.column
        layout = (c.strategy.shape, c.strategy.order, c.p, c.v, c.d, c.m, c.zero)
        return (*layout, plan.blocks_by_site, round(plan.capital_usd))

    return of(a) == of(b)


def _variants(plan: Plan, closed: list[str]) -> Iterator[Variant]:
    """Yield every decision made otherwise and every rule left out, of sites first.

    `closed`: the candidates that the plan does not use, the largest first.
    """
    instance, layout, network = plan.instance, plan.layout, plan.instance.network
    for site in plan.sites.sites if plan.sites else ():
        path = f"sites.racks.{site.id}"
        if path not in instance.pins:
            yield Variant("site", site.id, "closed", _with(pins={**instance.pins, path: 0}))
    for name in closed:
        path = f"sites.racks.{name}"
        if path not in instance.pins:
            yield Variant("site", name, "opened", without={path: 0})
    for name in sorted({name for f in plan.fabric.sites.values() for name in f.models} if plan.fabric else ()):
        rest = tuple(s for s in network.switches if not isinstance(s, str) and s.name != name) if network else ()
        if network is not None and rest:
            yield Variant("switch", name, "any other", _with(network__switches=rest))
    stripes = plan.placement.stripes if plan.placement else {}
    if stripes and "placement.stripes" not in instance.pins and layout is not None and layout.rack_stages > 1:
        value = next(iter(stripes.values()))
        yield Variant("stripes", str(value), "any other", without={"placement.stripes": value})
    for name in CHOICES:
        if f"layout.{name}" not in instance.pins:
            value = getattr(layout, name)
            yield Variant(name, str(value), "any other", without={f"layout.{name}": value})
    if layout is not None and "layout.recompute" not in instance.pins and layout.recompute != "none":
        none = _with(pins={**instance.pins, "layout.recompute": "none"})
        yield Variant("recompute", layout.recompute, "none", none)
    for key, free in NETWORK_LIMITS.items() if network else ():
        asked = getattr(network, key)
        if asked != free:
            freed = _with(**{f"network__{key}": free})
            yield Variant(f"network.{key}", f"{asked}", f"{free or 'none'}", freed, loosens=True)
    yield from _without_grid_rules(instance)
    if instance.workload.rules.framework:
        named = f"{instance.workload.rules.framework}'s"
        freed = _with(workload__framework_rules=False)
        yield Variant("workload.framework_rules", named, "none", freed, loosens=None)


def _without_grid_rules(instance: Instance) -> Iterator[Variant]:
    """Yield the instance without each rule of its sites and fibre that may be left out."""
    if instance.wan is not None and instance.wan.protection == "one_cut":
        yield Variant("wan.protection", "one_cut", "none", _with(wan__protection="none"), loosens=None)
    if instance.grid is None:
        return
    rules = instance.grid.rules
    free: dict[str, Any] = dict.fromkeys(("max_sites", "max_rtt_ms", "ready_within_months"))
    for key in ("interconnect", "fault_split", "share_balance"):
        free[key] = getattr(rules, key).replaced(enabled=False)
    for key, none in free.items():
        asked = getattr(rules, key)
        if asked is not None and getattr(asked, "enabled", True):
            shown = f"{asked:g}" if isinstance(asked, (int, float)) else "on"
            yield Variant(f"grid.rules.{key}", shown, "none", _with(**{f"grid__rules__{key}": none}), loosens=True)


def _value(v: Variant, plan: JointPlan | None) -> str:
    """Return the value of a choice in a plan; what was asked for where that says it all."""
    if plan is None or v.choice in ("site", "sites") or not v.without:
        return v.value
    if v.choice == "stripes":
        return str(next((t.stripes for t in plan.templates.values()), v.value))
    column, shape = plan.column, plan.column.strategy.shape
    chosen: dict[str, Any] = {"pipeline_parallel": column.p, "virtual_stages": column.v, "zero_stage": column.zero}
    chosen |= {"microbatch_sequences": shape.micro_batch, "schedule": column.strategy.order}
    return str(chosen.get(v.choice, getattr(shape, v.choice, v.value)))


@dataclass(frozen=True, slots=True)
class _Answer:
    """The best plan of a question that differs a little: its days or dollars, and their bound."""

    value: float | None
    bound: float | None
    days: float | None  # from the decision where the day of the end is minimized, else from the start of training
    plan: JointPlan | None
    proved: bool
    start_days: float | None = None


def _answer(
    instance: Instance,
    options: Options,
    cache: JointCache,
    without: dict[str, Any] | None = None,
    *,
    first: First | None = None,
    floor: float = 0.0,
) -> _Answer:
    """Return the least dollars by the deadline, the fewest days however late, or the soonest end from any start."""
    # The goal of the instance says which; the soonest end is that of a training within the deadline. The column that is
    # named comes first. No answer is below `floor`.
    in_dollars, by_date = instance.objective.in_dollars, instance.objective.minimize == FINISH_DATE
    asked = each_alone(instance if in_dollars or by_date else in_fewest_days(instance))[0]
    how: dict[str, Any] = {"deadline": Deadline(options.time_limit), "progress": lambda _: None, "first": first}
    best = best_choice(asked, Solving(options=options, cache=cache, floor=floor, **how), without=without).best
    found, ready = best.solution, best.ready_days if by_date else 0.0
    if found.stopped == "interrupted":  # what follows is not asked
        raise KeyboardInterrupt
    bound = max(floor, 0.0 if found.lower_bound is None else ready + found.lower_bound) or None
    answer = _Answer(None, bound, None, None, found.stopped == "proved")
    if found.days is None or not in_time(best):
        return answer
    end = ready + found.days
    value, start = found.usd if in_dollars else end, ready if by_date else None
    return replace(answer, value=value, days=end, plan=found.plan, start_days=start)


def _from(asked: Instance, plan: Plan, share: "_Share", cache: JointCache) -> OtherStart:
    """Return the soonest end from another start than a plan's; not asked where the plan has ended by then."""
    months, ready, best = latest_start_months(asked), latest_start_days(asked), _best_value(plan)
    options = share.next(f"a start in month {months:g}")
    layout = plan.layout
    figures: dict[str, Any] = {"months": months, "ready": tuple(ready_in(asked, months)), "start_days": ready}
    if ready >= best:
        return OtherStart(**figures, days=None, loss=None, proved=True, bound_days=ready)
    fewest, own = in_fewest_days(asked), JointCache(timed=cache.timed)
    found = _answer(fewest, options, own, first=lambda world: None if layout is None else column_of(layout, world))
    late = asked.limits.deadline_days or math.inf
    days = None if found.days is None or found.days > late * (1 + ROUNDING) else ready + found.days
    loss = None if days is None else days / best - 1
    bound = None if found.proved or found.bound is None else ready + found.bound
    return OtherStart(**figures, days=days, loss=loss, proved=found.proved, bound_days=bound)


def _infeasible(plan: Plan, instance: Instance, options: Options) -> Iterator[Explanation]:
    """Explain why there is no plan: the conflict, then what would do, rule by rule; at an interrupt what is known."""
    why = plan.conflict
    outside = "" if why is None or why.decision == "sites" or plan.status != "infeasible" else plan.objective.outside
    known: dict[str, Any] = {"name": instance.name, "status": plan.status, "violations": plan.violations}
    found = Explanation(**known, conflict=why, outside=outside)
    yield found
    if why is None or not why.rules:
        return
    try:
        if why.decision == "sites" and instance.grid is not None:
            yield (found := found.replaced(relaxations=relaxations(instance, why.rules, options)))
            yield found.replaced(nodes=nodes_of(instance, None, options))
            return
        for lack in _lacks(instance, why, options):
            yield (found := found.replaced(lacks=(*found.lacks, lack)))
    except (KeyboardInterrupt, OutOfTimeError):
        yield found.replaced(interrupted=True)


def _lacks(instance: Instance, why: Conflict, options: Options) -> Iterator[Lack]:
    """Yield the limits in conflict that alone, and least, let a plan exist."""
    gpu, racks, batch = instance.hardware.accelerator, instance.hardware.racks, instance.limits.max_batch_tokens
    hbm = gpu.hbm_bytes if isinstance(gpu, Accelerator) else None
    limits: tuple[tuple[str, float | None, float, str, Callable[[float], Instance]], ...] = (
        ("memory", hbm, 1e9, "GB of HBM a GPU", lambda value: with_hbm(instance, value)),
        (
            *("limits.max_batch_tokens", batch, 1, "tokens a step"),
            lambda value: instance.replaced(limits__max_batch_tokens=value),
        ),
        ("hardware.racks", racks, 1, "racks", lambda value: instance.replaced(hardware__racks=int(value))),
    )
    for limit, now, scale, unit, changed in limits:
        if limit in why.rules and now is not None:
            needed = _least(now, changed, options, whole=limit == "hardware.racks")
            if needed is not None:
                yield Lack(limit=limit, now=now / scale, needed=needed / scale, unit=unit)


def _least(now: float, changed: Callable[[float], Instance], options: Options, *, whole: bool) -> float | None:
    """Return the least value of a limit, to the precision, with which a plan was found; None where none was."""
    any_plan = replace(options, gap=ANY_PLAN)

    def exists(value: float) -> bool:
        return _answer(in_fewest_days(changed(value)), any_plan, JointCache()).plan is not None

    low, high = now, 2 * now
    for _ in range(DOUBLINGS):
        if exists(high):
            break
        low, high = high, 2 * high
    else:
        return None
    while high - low > (1 if whole else PRECISION * low):
        middle = (low + high) // 2 if whole else (low + high) / 2
        low, high = (low, middle) if exists(middle) else (middle, high)
    return high


def summary(e: Explanation) -> str:
    """Return the explanation as one screen of text; one that has grown has more lines at its end."""
    lines = [*disagreement(e.violations), f"{e.name}: {e.status}"]
    if e.conflict is not None:
        lines += [f"  No plan: {e.conflict.reason}."]
        lines += [f"  {e.conflict.in_words}."] if e.conflict.rules else []
        outside = "  Proven over the declared space (docs/joint.md; --json names what is outside)."
        lines += [outside] if e.outside else []
    lines += [f"  Enough: {x.limit} {x.needed:,.6g} {x.unit} (now {x.now:,.6g})" for x in e.lacks]
    if e.layout is not None:
        m = e.layout.metrics
        lines += [f"TIME       {m.step_seconds:.4g} s a step", *time_lines(m), *memory_lines(m)]
    lines += explain_sites.summary(e.nodes, e.relaxations)
    if e.starts:
        lines += ["STARTS     the soonest end from each other month at which something becomes ready"]
        lines += map(_start_line, e.starts)
    lines += ["SITES      the best plan with one site closed or opened, all others solved again"] if e.sites else []
    lines += (_other_line(x, e.start_days) for x in e.sites)
    lines += ["MORE       what a little more of each limit saves, all decisions solved again"] if e.worth else []
    lines += map(_worth_line, e.worth)
    counted_from = "" if e.start_days is None else "; days count from the decision"
    head = f"INSTEAD    the best plan with one choice changed, all others solved again{counted_from}"
    lines += [head] if e.others else []
    alike = [x for x in e.others if x.proved and _as_good(x)]
    lines += (_other_line(x, e.start_days) for x in e.others if x not in alike)
    for name, some in (("AS GOOD", [x for x in alike if x.loss is not None]), ("NO PLAN", alike)):
        changed = [_changed(x.choice, x.plan_value, x.value) for x in some if (x.loss is None) == (some is alike)]
        lines += [f"{name:11}{'; '.join(changed)}"] if changed else []
    lines += [f"NOT ASKED  in the time given: {'; '.join(e.unasked)}"] if e.unasked else []
    return "\n".join([*lines, *(["interrupted: what is left was not asked"] if e.interrupted else [])])


def _as_good(x: Other) -> bool:
    """Return whether a choice costs nothing that a line would show, or leaves no plan."""
    return x.loss is None or abs(x.loss) < SHOWN


def _start_line(x: OtherStart) -> str:
    names = f" ({', '.join(x.ready)})" if x.ready else ""
    if x.days is None and x.proved:
        end = "no plan" if x.bound_days is None else f"the plan has ended before day {x.start_days:,.1f}"
    elif x.days is None:
        end = "no plan found in time"
    else:
        end = f"ends on day {x.days:,.1f} ({100 * (x.loss or 0.0):+.2f} %)"
    bound = "" if x.bound_days is None else f", day {x.bound_days:,.1f} at least"
    return f"  month {x.months:g}{names}: {end}{'' if x.proved else f'; not proven{bound}'}"


def _other_line(x: Other, start_days: float | None) -> str:
    """Return a line on the best plan with one decision made otherwise than in a plan that starts on some day."""
    loss = 0.0 if x.loss is not None and abs(x.loss) < SHOWN else x.loss
    days = "" if x.days is None else f"{amount(x.days)} days"
    if x.start_days is not None and start_days is not None and abs(x.start_days - start_days) > SHOWN:
        days += f", from day {x.start_days:,.1f} on"
    value = "" if loss is None else money(x.usd) if x.usd is not None else days
    cost = "no plan" if loss is None else f"{100 * loss:+.2f} % ({value})"
    if not x.proved:
        cost = "no plan found in time" if x.loss is None else cost
        bound = money(x.bound_usd) if x.bound_usd is not None else f"{amount(x.bound_days or 0.0)} days"
        cost += f"; not proven, {bound} at least" if x.bound_days or x.bound_usd else "; not proven"
    same = f", the plan of {x.same_as}" if x.same_as else ""
    return f"  {_changed(x.choice, x.plan_value, x.value)}: {cost}{same}"


def _changed(choice: str, plan_value: str, value: str) -> str:
    """Say what is made otherwise: tensor parallel 4 instead of 8, site abilene closed."""
    return (
        f"{_named(choice)} {plan_value} {value}"
        if choice == "site"
        else f"{_named(choice)} {value} instead of {plan_value}"
    )


def _named(choice: str) -> str:
    """Write a choice in words; a path of the instance as it is."""
    return choice if "." in choice else words(choice)


def _worth_line(x: Worth) -> str:
    saved, most = (x.usd_saved, x.most_usd_saved) if x.days_saved is None else (x.days_saved, x.most_days_saved)

    def shown(value: float, digits: str = ",.4g") -> str:
        return f"{value:{digits}} days" if x.days_saved is not None else money(value)

    unit, saved = _counted(x.each, x.unit) if x.each != 1 else x.unit, saved or 0.0
    rate = f" ({shown(saved / x.more * x.each, ',.3g')} for each {unit})" if saved > 0 and x.more != 1 else ""
    unproven = "" if x.proved else f"; not proven{'' if most is None else f', {shown(most)} at most'}"
    sooner = ("sooner", "later, for its price") if x.days_saved is not None else ("less", "more, for its price")
    return f"  {_counted(x.more, x.unit)}: {shown(abs(saved))} {sooner[saved < 0]}{rate}{unproven}"


def _counted(value: float, unit: str) -> str:
    """Write an amount of a limit: $30.00M of budget, 10 MW of headroom."""
    return f"{money(value)} of budget" if unit == "USD" else f"{short(value)} {unit}"


def limits_of(plan: Plan) -> Iterator[More]:
    """Yield the limits that may be raised a little: by a hundredth, or by one more step or block."""
    instance, limits, hardware = plan.instance, plan.instance.limits, plan.instance.hardware
    if limits.budget_usd:
        more = limits.budget_usd * SMALL_CHANGE
        yield More("budget", more, "USD", _with(limits__budget_usd=limits.budget_usd + more), MILLION)
    if limits.deadline_days and instance.objective.in_dollars:
        more = limits.deadline_days * SMALL_CHANGE
        later = _with(limits__deadline_days=limits.deadline_days + more)
        yield More("deadline", more, "days until the deadline", later)
    if limits.max_batch_tokens:
        layout = plan.layout
        step = layout.data_parallel * layout.microbatch_sequences * instance.workload.sequence_length if layout else 0
        more = max(limits.max_batch_tokens * SMALL_CHANGE, float(step))
        bigger = _with(limits__max_batch_tokens=limits.max_batch_tokens + more)
        yield More("batch", more, "tokens of batch", bigger, MILLION)
    if isinstance(hardware.accelerator, Accelerator):
        size = hardware.accelerator.hbm_bytes + 1e9
        yield More("memory", 1.0, "GB of HBM", lambda question: with_hbm(question, size))
    if hardware.racks is not None and instance.grid is None:
        yield More("racks", 1.0, "rack", _with(hardware__racks=hardware.racks + 1))
    if limits.facility_power_mw:
        more = limits.facility_power_mw * SMALL_CHANGE
        raised = _with(limits__facility_power_mw=limits.facility_power_mw + more)
        yield More("facility power", more, "MW of the facility", raised)
    yield from _grid_limits(plan)


def _grid_limits(plan: Plan) -> Iterator[More]:
    instance, grid, wan = plan.instance, plan.instance.grid, plan.sites.links if plan.sites else ()
    if grid is not None:
        rules, used = grid.rules, {site.id for site in plan.sites.sites} if plan.sites else set[str]()
        opened = [node for node in grid.nodes if node.id in used]
        more = sum(area.headroom_mw for area in grid.balancing_authorities) * SMALL_CHANGE
        if rules.headroom:
            yield More("headroom", more, "MW of headroom", _raised("balancing_authorities", "headroom_mw"))
        if rules.generation:
            more = sum(node.generation_mw for node in grid.nodes) * SMALL_CHANGE
            yield More("generation", more, "MW of generation", _raised("nodes", "generation_mw"))
        if rules.interconnect.enabled and rules.interconnect.reading == "explicit":
            more = sum(node.interconnect_mw or 0.0 for node in opened) * SMALL_CHANGE
            yield More("interconnect", more, "MW of interconnect", _raised("nodes", "interconnect_mw", used))
        if grid.lines and (rules.grid_model != "none" or rules.interconnect.enabled):
            more = sum(line.rating_mw * line.circuits for line in grid.lines) * SMALL_CHANGE
            yield More("line ratings", more, "MW of line ratings", _raised("lines", "rating_mw"))
        if instance.hardware.cooling_kw_per_m2 is not None and any(node.area_m2 for node in opened):
            more = sum(node.area_m2 or 0.0 for node in opened) * SMALL_CHANGE
            yield More("land", more, "m² of land", _raised("nodes", "area_m2", used))
    if wan and instance.wan is not None and "wan.wavelengths" not in instance.pins:
        pair = instance.wan.max_wavelengths_per_pair
        waves = wan[0].wavelengths + pair
        leased = max(instance.wan.max_fibre_pairs, -(-waves // pair))  # one more than all of them has its worth too
        lit = _with(wan__max_fibre_pairs=leased, pins={**instance.pins, "wan.wavelengths": waves})
        yield More("fibre", 1.0, "fibre pair", lit)


def _raised(family: str, key: str, ids: Collection[str] | None = None) -> Change:
    """Return how to raise a figure by a hundredth, of all parts of a grid of one family or of those with some ids."""

    def change(instance: Instance) -> Instance:
        parts = tuple(
            x.replaced(**{key: value * (1 + SMALL_CHANGE)})
            if (ids is None or x.id in ids) and (value := getattr(x, key)) is not None
            else x
            for x in getattr(instance.grid, family)
        )
        return instance.replaced(**{f"grid__{family}": parts})

    return change
