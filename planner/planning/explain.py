"""Explain a plan: the cost of each decision's runner-up and the value of each limit, or the needs of a plan."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
from planner.models.joint.world import JointPlan
from planner.models.sites.explanation import SitesExplanation
from planner.plan.certificate import Conflict, Status, Violation, disagreement
from planner.plan.plan import Plan
from planner.plan.plan_sections import DEGREES, LayoutPlan
from planner.planning import explain_sites
from planner.planning.evaluate import memory_lines, time_lines
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
from planner.planning.hardware_choice import best_choice, each_alone, in_time
from planner.planning.instance_parts import in_fewest_days, pinned, with_hbm
from planner.planning.session import column_of
from planner.planning.solve import solve_instance
from planner.solvers.progress import start
from planner.solvers.signals import Deadline, OutOfTimeError
from planner.units import amount, money, short, words

CHOICES = (*DEGREES[:4], "virtual_stages", "microbatch_sequences", "zero_stage", "sequence_parallel", "schedule")
PRECISION = 0.01  # relative, of what an infeasible instance lacks
ROUNDING = 1e-9  # relative: days that differ by less are the same
TIMES = 2.0  # multiple of the plan's own time that all alternatives may take together
# Limits whose plans stay plans with more of them.
LOOSER = ("budget", "deadline", "batch", "memory", "facility power", "headroom")
AT_LEAST = 60.0  # seconds that they may take in any case
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
    proved: bool = Field(description="No plan with the decision made otherwise is better.")
    bound_days: float | None = Field(None, description="Where that is not proven: no such plan takes fewer days.")
    bound_usd: float | None = Field(None, description="Where that is not proven: no such plan costs less.")
    start_days: float | None = Field(
        None, description="Where the day of the end is minimized: days until all that its start waits for is ready."
    )


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
    sites: SitesExplanation | None = Field(None, description="Of the split, where there is a grid.")
    start_days: float | None = Field(
        None, description="Days from the decision until the plan starts, where the day of its end is minimized."
    )
    starts: tuple[OtherStart, ...] = Field((), description="Other months from which on a plan may start.")
    layout: LayoutPlan | None = Field(None, description="The layout of the plan, with its breakdown.")
    others: tuple[Other, ...] = Field((), description="Plans that differ in one decision, those as good last.")
    worth: tuple[Worth, ...] = Field((), description="What more of each limit saves.")
    interrupted: bool = Field(False, description="An interrupt came before all of it was asked.")


@dataclass(frozen=True)
class More:
    """A limit with a little more of it, and the instance that has it."""

    limit: str
    more: float
    unit: str
    instance: Instance
    each: float = 1.0


@dataclass(frozen=True)
class Variant:
    """The instance with one decision made otherwise."""

    choice: str
    plan_value: str
    value: str
    instance: Instance
    without: dict[str, Any]


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
    At an interrupt the last one has what was asked before it. `near` splits over other sets of sites are listed, of
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
    share = _Share(Deadline(max(AT_LEAST, TIMES * seconds)), options, progress)
    more, variants, starts = list(limits_of(plan)), list(_variants(plan)), list[Instance]()
    if plan.instance.objective.minimize == FINISH_DATE:
        own = start_months(plan.instance, plan.sites)
        starts = [one for one in each_start(plan.instance) if latest_start_months(one) != own]
    share.parts = len(more) + len(variants) + len(starts) + (plan.sites is not None)
    try:
        if plan.sites is not None:
            left = Deadline(share.next("sites").time_limit)
            sites = explain_sites.explained_plan(plan, options, near=near, within=within, deadline=left)
            yield (found := found.replaced(sites=sites))
        for asked_from in starts:
            other_start = _from(asked_from, plan, share, cache)
            yield (found := found.replaced(starts=(*found.starts, other_start)))
        for x in more:
            worth = _worth(x, plan, share.next(f"what more {x.limit} is worth"), cache)
            if worth is not None:
                yield (found := found.replaced(worth=(*found.worth, worth)))
        ties: list[Other] = []
        for v in variants:
            asked_of = share.next(f"{_named(v.choice)} other than {v.plan_value}")
            other = _other(v, plan, asked_of, JointCache(timed=cache.timed))
            if other.loss is not None and abs(other.loss) < SHOWN:
                ties.append(other)
            else:
                yield (found := found.replaced(others=(*found.others, other)))
        yield found.replaced(others=(*found.others, *ties))
    except (KeyboardInterrupt, OutOfTimeError):
        yield found.replaced(interrupted=True)


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
    """The time of the alternatives: each may take an even part of the time left, and at most the time limit."""

    deadline: Deadline
    options: Options
    progress: Callable[[str], None]
    parts: int = 0

    def next(self, name: str) -> Options:
        """Report the next alternative and return its options."""
        start(self.progress, name)
        even = self.deadline.left / max(1, self.parts)
        self.parts -= 1
        own = self.options.time_limit
        return replace(self.options, time_limit=even if own is None else min(even, own))


def _variants(plan: Plan) -> Iterator[Variant]:
    instance, layout = plan.instance, plan.layout
    for name in CHOICES:
        if f"layout.{name}" not in instance.pins:
            value = getattr(layout, name)
            yield Variant(name, str(value), "any other", instance, {f"layout.{name}": value})
    if layout is not None and "layout.recompute" not in instance.pins and layout.recompute != "none":
        yield Variant("recompute", layout.recompute, "none", pinned(instance, "layout.recompute", "none"), {})
    rules = instance.workload.rules
    if rules.framework:
        freed = instance.replaced(workload__framework_rules=False)
        yield Variant("workload.framework_rules", f"{rules.framework}'s", "none", freed, {})
    stripes = plan.placement.stripes if plan.placement else {}
    if stripes and "placement.stripes" not in instance.pins and layout is not None and layout.rack_stages > 1:
        value = next(iter(stripes.values()))
        yield Variant("stripes", str(value), "any other", instance, {"placement.stripes": value})
    for site in plan.sites.sites if plan.sites else ():
        path = f"sites.racks.{site.id}"
        if path not in instance.pins:
            yield Variant("site", site.id, "closed", pinned(instance, path, 0), {})
    network = instance.network
    for name in sorted({name for f in plan.fabric.sites.values() for name in f.models} if plan.fabric else ()):
        rest = tuple(s for s in network.switches if not isinstance(s, str) and s.name != name) if network else ()
        if network is not None and rest:
            yield Variant("switch", name, "any other", instance.replaced(network__switches=rest), {})
    for key, free in NETWORK_LIMITS.items() if network else ():
        asked = getattr(network, key)
        if asked != free:
            freed = instance.replaced(**{f"network__{key}": free})
            yield Variant(f"network.{key}", f"{asked}", f"{free or 'none'}", freed, {})
    yield from _without_grid_rules(instance)


def _without_grid_rules(instance: Instance) -> Iterator[Variant]:
    """Yield the instance without each rule of its sites and fibre that may be left out."""
    if instance.wan is not None and instance.wan.protection == "one_cut":
        yield Variant("wan.protection", "one_cut", "none", instance.replaced(wan__protection="none"), {})
    if instance.grid is None:
        return
    rules = instance.grid.rules
    free: dict[str, Any] = dict.fromkeys(("max_sites", "max_rtt_ms", "ready_within_months"))
    for key in ("interconnect", "fault_split", "share_balance"):
        free[key] = getattr(rules, key).replaced(enabled=False)
    for key, none in free.items():
        asked = getattr(rules, key)
        if asked is not None and getattr(asked, "enabled", True):
            freed = instance.replaced(**{f"grid__rules__{key}": none})
            shown = f"{asked:g}" if isinstance(asked, (int, float)) else "on"
            yield Variant(f"grid.rules.{key}", shown, "none", freed, {})


def _other(v: Variant, plan: Plan, options: Options, cache: JointCache) -> Other:
    """Solve with one decision made otherwise."""
    found, in_dollars = _answer(v.instance, options, cache, v.without), plan.instance.objective.in_dollars
    return Other(
        choice=v.choice,
        plan_value=v.plan_value,
        value=_value(v, found.plan),
        days=found.days,
        usd=found.value if in_dollars else None,
        loss=None if found.value is None else found.value / _best_value(plan) - 1,
        proved=found.proved,
        bound_days=None if found.proved or in_dollars else found.bound,
        bound_usd=found.bound if not found.proved and in_dollars else None,
        start_days=found.start_days,
    )


def _value(v: Variant, plan: JointPlan | None) -> str:
    if plan is None or not v.without:
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
    layout: LayoutPlan | None = None,
) -> _Answer:
    """Return the least dollars by the deadline, the fewest days however late, or the soonest end from any start."""
    # The goal of the instance says which; the soonest end is that of a training within the deadline. A layout comes
    # first in the search for days.
    in_dollars, by_date = instance.objective.in_dollars, instance.objective.minimize == FINISH_DATE
    asked = each_alone(instance if in_dollars or by_date else in_fewest_days(instance))[0]
    first = None if layout is None else lambda world: column_of(layout, world)
    how: dict[str, Any] = {"deadline": Deadline(options.time_limit), "progress": lambda _: None, "first": first}
    best = best_choice(asked, Solving(options=options, cache=cache, **how), without=without).best
    found, ready = best.solution, best.ready_days if by_date else 0.0
    if found.stopped == "interrupted":  # what follows is not asked
        raise KeyboardInterrupt
    bound = None if found.lower_bound is None else ready + found.lower_bound
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
    figures: dict[str, Any] = {"months": months, "ready": tuple(ready_in(asked, months)), "start_days": ready}
    if ready >= best:
        return OtherStart(**figures, days=None, loss=None, proved=True, bound_days=ready)
    fewest = in_fewest_days(asked)
    found = _answer(fewest, options, JointCache(timed=cache.timed), layout=plan.layout)
    late = asked.limits.deadline_days or math.inf
    days = None if found.days is None or found.days > late * (1 + ROUNDING) else ready + found.days
    loss = None if days is None else days / best - 1
    bound = None if found.proved or found.bound is None else ready + found.bound
    return OtherStart(**figures, days=days, loss=loss, proved=found.proved, bound_days=bound)


def _worth(x: More, plan: Plan, options: Options, cache: JointCache) -> Worth | None:
    """Return the saving by a little more of a limit, in days or dollars, starting from the plan; None if unanswered."""
    best = _best_value(plan)
    same = cache if cache.serves(x.instance) else JointCache(timed=cache.timed)  # another budget alone
    found = _answer(x.instance, options, same, layout=plan.layout)
    if found.value is None and (found.proved or found.bound is None):
        return None
    saved = best - found.value if found.value is not None else 0.0
    if abs(saved) <= ROUNDING * best or (saved < 0 and not found.proved and x.limit in LOOSER):
        saved = 0.0  # the plan at hand is one still
    most = None if found.proved or found.bound is None else max(best - found.bound, 0.0)
    names = ("usd_saved", "most_usd_saved") if plan.instance.objective.in_dollars else ("days_saved", "most_days_saved")
    figures = dict(zip(names, (saved, most), strict=True))
    return Worth(limit=x.limit, more=x.more, unit=x.unit, proved=found.proved, each=x.each, **figures)


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
            sites = explain_sites.explained_infeasible(instance, why, options)
            yield found.replaced(sites=sites)
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
    if e.sites is not None:
        lines += explain_sites.summary(e.sites)
    if e.starts:
        lines += ["STARTS     the soonest end from each other month at which something becomes ready"]
        lines += map(_start_line, e.starts)
    lines += ["MORE       what a little more of each limit saves, all decisions solved again"] if e.worth else []
    lines += map(_worth_line, e.worth)
    counted_from = "" if e.start_days is None else "; days count from the decision"
    head = f"INSTEAD    the best plan with one choice changed, all others solved again{counted_from}"
    lines += [head] if e.others else []
    lines += (_other_line(x, e.start_days) for x in e.others)
    return "\n".join([*lines, *(["interrupted: what is left was not asked"] if e.interrupted else [])])


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
    changed = f"{x.plan_value} closed" if x.choice == "site" else f"{x.value} instead of {x.plan_value}"
    return f"  {_named(x.choice)} {changed}: {cost}"


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
        yield More("budget", more, "USD", instance.replaced(limits__budget_usd=limits.budget_usd + more), MILLION)
    if limits.deadline_days and instance.objective.in_dollars:
        more = limits.deadline_days * SMALL_CHANGE
        later = instance.replaced(limits__deadline_days=limits.deadline_days + more)
        yield More("deadline", more, "days until the deadline", later)
    if limits.max_batch_tokens:
        layout = plan.layout
        step = layout.data_parallel * layout.microbatch_sequences * instance.workload.sequence_length if layout else 0
        more = max(limits.max_batch_tokens * SMALL_CHANGE, float(step))
        bigger = instance.replaced(limits__max_batch_tokens=limits.max_batch_tokens + more)
        yield More("batch", more, "tokens of batch", bigger, MILLION)
    if isinstance(hardware.accelerator, Accelerator):
        yield More("memory", 1.0, "GB of HBM", with_hbm(instance, hardware.accelerator.hbm_bytes + 1e9))
    if hardware.racks is not None and instance.grid is None:
        yield More("racks", 1.0, "rack", instance.replaced(hardware__racks=hardware.racks + 1))
    if limits.facility_power_mw:
        more = limits.facility_power_mw * SMALL_CHANGE
        raised = instance.replaced(limits__facility_power_mw=limits.facility_power_mw + more)
        yield More("facility power", more, "MW of the facility", raised)
    yield from _grid_limits(plan)


def _grid_limits(plan: Plan) -> Iterator[More]:
    instance, wan = plan.instance, plan.sites.links if plan.sites else ()
    if instance.grid is not None:
        own = instance.grid.balancing_authorities
        areas = tuple(x.replaced(headroom_mw=x.headroom_mw * (1 + SMALL_CHANGE)) for x in own)
        more = sum(area.headroom_mw for area in own) * SMALL_CHANGE
        yield More("headroom", more, "MW of headroom", instance.replaced(grid__balancing_authorities=areas))
    if wan and instance.wan is not None and "wan.wavelengths" not in instance.pins:
        pair = instance.wan.max_wavelengths_per_pair
        waves = wan[0].wavelengths + pair
        leased = max(instance.wan.max_fibre_pairs, -(-waves // pair))  # one more than all of them has its worth too
        lit = instance.replaced(wan__max_fibre_pairs=leased)
        yield More("fibre", 1.0, "fibre pair", pinned(lit, "wan.wavelengths", waves))
