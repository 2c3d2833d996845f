"""Explain a plan: what each decision's runner-up costs and each limit is worth jointly, or what a plan would need."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from planner.instance.base import Frozen
from planner.instance.hardware import Accelerator
from planner.instance.instance import Instance
from planner.models.joint.cache import JointCache
from planner.models.joint.solution import JointSolution, JointStatus
from planner.models.joint.solve import solve_joint
from planner.models.requests import Options
from planner.plan.certificate import Conflict, Status, Violation, disagreement
from planner.plan.layout import LayoutPlan
from planner.plan.plan import Plan
from planner.planning import explain_sites
from planner.planning.alternatives.more import More, limited, limits_of, pinned, with_hbm, with_racks
from planner.planning.conflict import ANY_PLAN, without_network_rule
from planner.planning.evaluate import memory_lines, time_lines
from planner.planning.explain_sites import SitesExplanation
from planner.planning.sessions.start import column_of
from planner.planning.solve import solve_instance
from planner.solvers.deadline import Deadline
from planner.solvers.running.progress import start
from planner.units import money, short

CHOICES = (
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "pipeline_parallel",
    "virtual_stages",
    "microbatch_sequences",
    "zero_stage",
    "sequence_parallel",
    "schedule",
)
PRECISION = 0.01  # relative, of what an infeasible instance lacks
ROUNDING = 1e-9  # relative: days that differ by less are the same
TIMES = 2.0  # the time of the plan: what alternatives may take together beside it
AT_LEAST = 30.0  # seconds that they may take in any case
SHOWN = 5e-5  # a loss below which a line shows none
DOUBLINGS = 20  # of a limit, in search of a plan


class Other(Frozen):
    """The best plan with one decision made otherwise."""

    choice: str
    plan_value: str
    value: str = Field(description="In place of the plan's.")
    days: float | None = Field(description="Of that plan; null: there is none.")
    loss: float | None = Field(description="Days over the plan's, less one: 0.11 is 11 % slower.")
    proved: bool = Field(description="No plan with the decision made otherwise is faster.")
    bound_days: float | None = Field(None, description="Where that is not proven: no such plan is under so many days.")


class Worth(Frozen):
    """What more of a limit saves, every decision taken anew."""

    limit: str
    more: float
    unit: str
    days_saved: float
    proved: bool
    most_days_saved: float | None = Field(None, description="Where that is not proven: no plan saves more days.")
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
    layout: LayoutPlan | None = Field(None, description="The layout of the plan, with its breakdown.")
    others: tuple[Other, ...] = Field((), description="Plans that differ in one decision, the least loss first.")
    worth: tuple[Worth, ...] = Field((), description="What more of each limit saves.")


@dataclass(frozen=True)
class Variant:
    """The instance with one decision made otherwise."""

    choice: str
    plan_value: str
    value: str
    instance: Instance
    without: dict[str, Any]


def explained(
    instance: Instance,
    options: Options,
    *,
    near: int = 0,
    within: float = 0.05,
    progress: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Solve and explain; `near` splits over other sets of sites are listed, of those `within` a share of the best."""
    clock, cache = Deadline(), JointCache()
    plan = solve_instance(instance, options, progress, cache=cache)
    if plan.layout is None:
        return _infeasible(plan, instance, options).model_copy(update={"violations": plan.violations})
    days = plan.layout.metrics.days_to_train
    share = _Share(Deadline(max(AT_LEAST, TIMES * clock.elapsed)), options, progress)
    more, variants = list(limits_of(plan)), list(_variants(plan))
    share.parts = len(more) + len(variants) + (plan.sites is not None)
    worth = []
    for x in more:
        asked = share.next(f"what more {x.limit} is worth")
        worth.append(_worth(x, plan, asked, cache))
    sites = None
    if plan.sites is not None:
        asked = share.next("sites")
        sites = explain_sites.explained_plan(
            plan, options, near=near, within=within, deadline=Deadline(asked.time_limit)
        )
    others = [_other(v, days, share.next(f"{v.choice.replace('_', ' ')} other than {v.plan_value}")) for v in variants]
    return Explanation(
        name=instance.name,
        status=plan.status,
        violations=plan.violations,
        layout=plan.layout,
        sites=sites,
        others=tuple(sorted(others, key=lambda x: (x.loss is None, x.loss or 0.0))),
        worth=tuple(x for x in worth if x is not None),
    )


@dataclass
class _Share:
    """The time of the alternatives: each may take an even part of what is left, and no more than each was given."""

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
    """Yield the instance with each decision of the plan forbidden in turn; a pinned one has no alternative."""
    instance, layout = plan.instance, plan.layout
    for name in CHOICES:
        if f"layout.{name}" not in instance.pins:
            value = getattr(layout, name)
            yield Variant(name, str(value), "any other", instance, {f"layout.{name}": value})
    stripes = plan.placement.stripes if plan.placement else {}
    if stripes and "placement.stripes" not in instance.pins and layout is not None and layout.rack_stages > 1:
        value = next(iter(stripes.values()))
        yield Variant("stripes", str(value), "any other", instance, {"placement.stripes": value})
    for site in plan.sites.sites if plan.sites else ():
        path = f"sites.racks.{site.id}"
        if path not in instance.pins:
            yield Variant("site", site.id, "closed", pinned(instance, path, 0), {})
    yield from _other_switches(plan)
    for key in ("max_oversubscription", "survives"):
        asked = getattr(instance.network, key) if instance.network else None
        if asked is not None:
            yield Variant(f"network.{key}", f"{asked}", "not asked for", without_network_rule(instance, key), {})


def _other_switches(plan: Plan) -> Iterator[Variant]:
    """Yield the instance without each switch that the plan uses, where others are left."""
    network = plan.instance.network
    for name in sorted({name for f in plan.fabric.sites.values() for name in f.models} if plan.fabric else ()):
        rest = tuple(s for s in network.switches if not isinstance(s, str) and s.name != name) if network else ()
        if network is not None and rest:
            other = plan.instance.model_copy(update={"network": network.model_copy(update={"switches": rest})})
            yield Variant("switch", name, "any other", other, {})


def _other(v: Variant, days: float, options: Options) -> Other:
    """Solve with one decision made otherwise."""
    found = _timed(v.instance, options, v.without)
    proved = found.stopped == "proved"
    return Other(
        choice=v.choice,
        plan_value=v.plan_value,
        value=_value(v, found),
        days=found.days,
        loss=None if found.days is None else found.days / days - 1,
        proved=proved,
        bound_days=None if proved else found.lower_bound,
    )


def _value(v: Variant, found: JointSolution) -> str:
    """Return the value that the best plan has in place of the forbidden one."""
    plan = found.plan
    if plan is None or not v.without:
        return v.value
    if v.choice == "stripes":
        return str(next((t.stripes for t in plan.templates.values()), v.value))
    column, shape = plan.column, plan.column.strategy.shape
    chosen = {
        "pipeline_parallel": column.p,
        "virtual_stages": column.v,
        "zero_stage": column.zero,
        "microbatch_sequences": shape.micro_batch,
        "schedule": column.strategy.order,
    }
    return str(chosen.get(v.choice, getattr(shape, v.choice, v.value)))


def _timed(
    instance: Instance,
    options: Options,
    without: dict[str, Any] | None = None,
    *,
    cache: JointCache | None = None,
    layout: LayoutPlan | None = None,
) -> JointSolution:
    """Return the fewest days of an instance, whatever it minimizes and however late that is; a layout comes first."""
    objective = instance.objective.model_copy(update={"minimize": "days_to_train"})
    limits = instance.limits.model_copy(update={"deadline_days": None})
    asked = instance.model_copy(update={"objective": objective, "limits": limits})
    first = None if layout is None else lambda world: column_of(layout, world)
    return solve_joint(asked, options, lambda _: None, without=without or {}, cache=cache, first=first)


def _worth(x: More, plan: Plan, options: Options, cache: JointCache) -> Worth | None:
    """Return what a little more of a limit saves, solving with the plan at hand first; None without an answer."""
    if plan.layout is None:
        return None
    days = plan.layout.metrics.days_to_train
    same = cache if cache.serves(x.instance) else None  # another budget alone
    found = _timed(x.instance, options, cache=same, layout=plan.layout)
    proved, saved = found.stopped == "proved", days - found.days if found.days is not None else 0.0
    if found.days is None and (proved or found.lower_bound is None):
        return None
    most = None if proved or found.lower_bound is None else max(days - found.lower_bound, 0.0)
    saved = 0.0 if abs(saved) <= ROUNDING * days else saved
    return Worth(
        limit=x.limit, more=x.more, unit=x.unit, days_saved=saved, proved=proved, most_days_saved=most, each=x.each
    )


def _infeasible(plan: Plan, instance: Instance, options: Options) -> Explanation:
    """Explain why there is no plan."""
    why, split = plan.conflict, None
    if why is not None and why.rules and why.decision == "sites" and instance.grid is not None:
        split = explain_sites.explained_infeasible(instance, why, options)
    lacks = tuple(_lacks(instance, why, options)) if why is not None and why.rules and split is None else ()
    outside = "" if why is None or why.decision == "sites" or plan.status != "infeasible" else plan.objective.outside
    return Explanation(name=instance.name, status=plan.status, conflict=why, outside=outside, lacks=lacks, sites=split)


def _lacks(instance: Instance, why: Conflict, options: Options) -> Iterator[Lack]:
    """Yield the limits in conflict that alone, and least, let a plan exist."""
    gpu, h, batch = instance.hardware.accelerator, instance.hardware, instance.limits.max_batch_tokens
    if "memory" in why.rules and isinstance(gpu, Accelerator):
        needed = _least(instance, gpu.hbm_bytes, with_hbm, options)
        if needed is not None:
            yield Lack(limit="memory", now=gpu.hbm_bytes / 1e9, needed=needed / 1e9, unit="GB of HBM a GPU")
    if "limits.max_batch_tokens" in why.rules and batch is not None:
        needed = _least(instance, batch, lambda x, v: limited(x, "max_batch_tokens", v), options)
        if needed is not None:
            yield Lack(limit="limits.max_batch_tokens", now=batch, needed=needed, unit="tokens a step")
    if "hardware.racks" in why.rules and h.racks is not None:
        needed = _least(instance, h.racks, with_racks, options, whole=True)
        if needed is not None:
            yield Lack(limit="hardware.racks", now=h.racks, needed=needed, unit="racks")


def _least(instance: Instance, now: float, changed: Any, options: Options, *, whole: bool = False) -> float | None:
    """Return the least value of a limit, to the precision, with which a plan was found; None where none was."""
    any_plan = replace(options, gap=ANY_PLAN)

    def exists(value: float) -> bool:
        found = _timed(changed(instance, value), any_plan)
        return found.status in (JointStatus.OPTIMAL, JointStatus.FEASIBLE)

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
    """Return the explanation as one screen of text."""
    lines = [*disagreement(e.violations), f"{e.name}: {e.status}"]
    if e.conflict is not None:
        lines += [f"  No plan: {e.conflict.reason}."]
        if e.conflict.rules:
            rules = f"{', '.join(e.conflict.rules)}; without any one of them the rest can be met"
            lines += [f"  Rules in conflict ({e.conflict.decision}): {rules}."]
        if e.outside:
            lines += [f"  Infeasible over the declared space; not in it: {e.outside}"]
    lines += [f"  Enough: {x.limit} {x.needed:,.6g} {x.unit} (now {x.now:,.6g})" for x in e.lacks]
    if e.sites is not None:
        lines += explain_sites.summary(e.sites)
    if e.layout is not None:
        m = e.layout.metrics
        lines += [f"TIME       {m.step_seconds:.4g} s a step", *time_lines(m), *memory_lines(m)]
        lines += ["INSTEAD    the best plan with one choice changed, all others solved again"]
    lines += map(_other_line, e.others)
    lines += ["MORE       what a little more of each limit saves, all decisions solved again"] if e.worth else []
    return "\n".join([*lines, *map(_worth_line, e.worth)])


def _other_line(x: Other) -> str:
    """Return a line on the best plan with one decision made otherwise."""
    loss = 0.0 if x.loss is not None and abs(x.loss) < SHOWN else x.loss
    cost = "no plan" if loss is None else f"{100 * loss:+.2f} % ({x.days:,.1f} days)"
    if not x.proved:
        cost = "no plan found in time" if x.loss is None else cost
        cost += "; not proven" if x.bound_days is None else f"; not proven, {x.bound_days:,.1f} days at least"
    return f"  {x.choice.replace('_', ' ')} {x.value} instead of {x.plan_value}: {cost}"


def _worth_line(x: Worth) -> str:
    """Return a line on what more of a limit saves, and what that is a unit."""
    unit = _counted(x.each, x.unit) if x.each != 1 else x.unit
    rate = f" ({x.days_saved / x.more * x.each:,.3g} days for each {unit})" if x.days_saved > 0 and x.more != 1 else ""
    most = "" if x.most_days_saved is None else f", {x.most_days_saved:,.4g} at most"
    unproven = "" if x.proved else f"; not proven{most}"
    when = "sooner" if x.days_saved >= 0 else "later, for its price"
    return f"  {_counted(x.more, x.unit)}: {abs(x.days_saved):,.4g} days {when}{rate}{unproven}"


def _counted(value: float, unit: str) -> str:
    """Write an amount of a limit: $30.00M of budget, 10 MW of headroom."""
    return f"{money(value)} of budget" if unit == "USD" else f"{short(value)} {unit}"
