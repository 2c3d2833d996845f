"""An explanation of a plan as lines of text: what its choices and limits are worth, or why there is none."""

from collections.abc import Iterator, Sequence

from planner.models import NodeLoad, Relaxation
from planner.planning.explanation import SHOWN, Explanation, Other, OtherStart, Worth, changed_in_words
from planner.report.evaluated_layout import memory_lines, time_lines
from planner.report.verdict import disagreement
from planner.units import amount, money, power, ratio, short


def explanation_text(e: Explanation) -> str:
    """Write an explanation as one screen of text; one that has grown has more lines at its end."""
    best = f"{amount(e.best_days)} days" if e.best_days is not None else money(e.best_usd) if e.best_usd else ""
    own = f"the best plan's {best}" if e.status == "optimal" else f"the plan's {best}, not proven the best"
    against = f"; all below is set against {own}" if best else ""
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


def _worth_line(x: Worth) -> str:
    in_days = x.days_saved is not None
    saved, most = (x.days_saved or 0.0, x.most_days_saved) if in_days else (x.usd_saved or 0.0, x.most_usd_saved)

    def shown(value: float, digits: int = 4) -> str:
        return f"{ratio(value, digits)} days" if in_days else money(value)

    def counted(value: float) -> str:
        """Write the amount of a limit that an explanation adds: $30.00M of budget, 10 MW of headroom."""
        what, _, of = x.unit.partition(" ")
        one = f"{what.removesuffix('s')} {of}".rstrip() if value == 1 else x.unit
        return f"{money(value)} of budget" if x.unit == "USD" else f"{short(value)} {one}"

    unit = counted(x.each).removeprefix("1 ")
    rate = f" ({shown(saved / x.more * x.each, 3)} for each {unit})" if saved > 0 and x.more != 1 else ""
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
