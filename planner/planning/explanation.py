"""An explanation: what a plan's choices and limits are worth, or why there is none, as data and as lines of text."""

from collections.abc import Iterator, Sequence

from pydantic import Field

from planner.instance.base_types import Frozen
from planner.models import NodeLoad, Relaxation
from planner.plan.certificate import Conflict, Status, Violation, disagreement
from planner.plan.plan_sections import LayoutPlan
from planner.planning.evaluate import memory_lines, time_lines
from planner.units import amount, money, power, short, words

SHOWN = 5e-5  # a loss below which a line shows none


class Other(Frozen):
    """The best plan with one decision of an explained plan made otherwise, by what its goal minimizes: days, dollars.

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
        """Whether the explained plan's other choice costs nothing that a line would show, or leaves no plan."""
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
    """What more of a limit saves an explained plan, every decision taken anew, in days or dollars."""

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
    """What a plan's decisions and limits are worth, or why there is none."""

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


def summary(e: Explanation) -> str:
    """Write an explanation as one screen of text; one that has grown has more lines at its end."""
    best = f"{amount(e.best_days)} days" if e.best_days is not None else money(e.best_usd) if e.best_usd else ""
    against = f"; all below is set against the best plan's {best}" if best else ""
    lines = [*disagreement(e.violations), f"{e.name}: {e.status}{against}"]
    if e.conflict is not None:
        lines += [f"  No plan: {e.conflict.reason}."]
        lines += [f"  {e.conflict.in_words}."] if e.conflict.rules else []
        outside = "  Proven over the declared space (docs/joint.md; --json names what is outside)."
        lines += [outside] if e.outside else []
    lines += [f"  Enough: {x.limit} {x.needed:,.6g} {x.unit} (now {x.now:,.6g})" for x in e.lacks]
    if e.layout is not None:
        m = e.layout.metrics
        lines += [f"TIME       {m.step_seconds:.4g} s a step", *time_lines(m).values(), *memory_lines(m)]
    lines += _site_lines(e.nodes, e.relaxations)
    alike = [x for x in e.others if x.proved and x.as_good]
    different = [x for x in e.others if x not in alike]
    counted_from = "" if e.start_days is None else "; days count from the decision"
    starts = "STARTS     the soonest end from each other month at which something becomes ready"
    sites = "SITES      the best plan with one site closed or opened, all others solved again"
    more = "MORE       what a little more of each limit saves, all decisions solved again"
    instead = f"INSTEAD    the best plan with one choice changed, all others solved again{counted_from}"
    lines += [starts, *map(_start_line, e.starts)] if e.starts else []
    lines += [sites, *(_other_line(x, e.start_days) for x in e.sites)] if e.sites else []
    lines += [more, *map(_worth_line, e.worth)] if e.worth else []
    lines += [instead, *(_other_line(x, e.start_days) for x in different)] if e.others else []
    none = [x for x in alike if x.loss is None]
    for name, some in (("AS GOOD", [x for x in alike if x not in none]), ("NO PLAN", none)):
        changed = "; ".join(changed_in_words(x.choice, x.plan_value, x.value) for x in some)
        lines += [f"{name:11}{changed}"] if some else []
    lines += [f"NOT ASKED  for want of time (--time-limit gives more): {'; '.join(e.unasked)}"] if e.unasked else []
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
    loss = 0.0 if x.loss is not None and x.as_good else x.loss
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
    return f"  {changed_in_words(x.choice, x.plan_value, x.value)}: {cost}{same}"


def changed_in_words(choice: str, plan_value: str, value: str) -> str:
    """Write the decision that an explanation changes: tensor parallel 4 instead of 8, site abilene closed."""
    own, other = ({"True": "on", "False": "off"}.get(x, x) for x in (plan_value, value))
    name = choice if "." in choice else words(choice)  # a path of the instance as it is
    return f"{name} {own} {other}" if choice == "site" else f"{name} {other} instead of {own}"


def _worth_line(x: Worth) -> str:
    in_days = x.days_saved is not None
    saved, most = (x.days_saved or 0.0, x.most_days_saved) if in_days else (x.usd_saved or 0.0, x.most_usd_saved)

    def shown(value: float, digits: str = ",.4g") -> str:
        return f"{value:{digits}} days" if in_days else money(value)

    def counted(value: float) -> str:
        """Write the amount of a limit that an explanation adds: $30.00M of budget, 10 MW of headroom."""
        what, _, of = x.unit.partition(" ")
        one = f"{what.removesuffix('s')} {of}".rstrip() if value == 1 else x.unit
        return f"{money(value)} of budget" if x.unit == "USD" else f"{short(value)} {one}"

    unit = counted(x.each).removeprefix("1 ")
    rate = f" ({shown(saved / x.more * x.each, ',.3g')} for each {unit})" if saved > 0 and x.more != 1 else ""
    unproven = "" if x.proved else f"; not proven{'' if most is None else f', {shown(most)} at most'}"
    sooner = ("sooner", "later, for its price") if in_days else ("less", "more, for its price")
    return f"  {counted(x.more)}: {shown(abs(saved))} {sooner[saved < 0]}{rate}{unproven}"


def _site_lines(nodes: Sequence[NodeLoad], moved: Sequence[Relaxation]) -> Iterator[str]:
    for move in moved:
        unit = move.unit.removesuffix("s") if move.amount == 1 else move.unit
        others = ", ".join(f"{name} {amount:+,.6g}" for name, amount in move.rows.items() if name != move.rule)
        unproven = "" if move.proved else ", not proven the smallest"
        amount = money(move.amount) if unit == "USD" else f"{move.amount:,.6g} {unit}"
        more = "" if unit.endswith("fewer") else " more"
        yield f"WOULD DO   {move.rule}: {amount}{more}{f' ({others})' if others else ''}{unproven}"
    if nodes:
        yield "NODES      the largest load that each candidate could carry alone, and what stops it there"
    shown = [x for i, x in enumerate(nodes) if i < 12 or x.opened]
    for x in shown:
        lacks = f"{power(x.missing_mw)} short" if x.missing_mw else "" if x.missing_mw is None else "all of the load"
        of = ", ".join(part for part in ("open" if x.opened else "", lacks) if part)
        late = "" if x.ready_months is None else f"; ready in month {x.ready_months:g}, after the plan starts"
        carried = power(x.mw) + (f" ({of})" if of else "")
        yield f"  {x.node:24}{carried:32}  {', '.join(x.stopped_by) or 'nothing'}{late}"
    if len(nodes) > len(shown):
        yield f"  … {len(nodes) - len(shown)} more, none with more"
