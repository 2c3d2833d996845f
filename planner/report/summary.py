"""A summary of a plan: its statements in reading order, and a curve of money against days, as text."""

import math
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.instance.instance import FabricInstance
from planner.plan.certificate import disagreement
from planner.plan.plan import Curve, CurvePoint, Plan, proven_knee
from planner.report import decisions, verdict
from planner.report.decisions import SECTIONS, Statement, Topic, proof_of, status_of
from planner.units import aligned, amount, counted, money, percent, rounded, short_percent

if TYPE_CHECKING:
    from planner.planning.frontier import Frontier

CONSTANT_PRODUCT = 0.05  # of racks x days, within which a curve is as good as straight
FEWEST_POINTS = 2  # points of a curve that can be straight
UNBEATEN = "of which none beats another in both capital and days"
ENDED_BY = {"interrupted": "an interrupt"}  # of a curve's search; any other end is its limit
# Figures of a point of a curve: the heading of each by its key, and how it is written.
CURVE_FIGURES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "capital_usd": ("capital", money),
    "days_to_train": ("days", amount),
    "bound_days": ("at least", lambda days: amount(rounded(days, 4, up=False))),
    "mfu": ("MFU", short_percent),
    "racks": ("racks", "{:,}".format),
    "idle_gpus": ("idle GPUs", "{:,}".format),
}


def curve_figures(points: Sequence[CurvePoint]) -> list[dict[str, str]]:
    """Return the figures of a curve's points as text by key for a summary, a dash where there is none."""
    texts = [
        {key: "-" if getattr(p, key) is None else show(getattr(p, key)) for key, (_, show) in CURVE_FIGURES.items()}
        for p in points
    ]
    for two in pairwise(range(len(points))):
        one, other = (points[at].days_to_train for at in two)
        if amount(one) == amount(other) and one != other:
            digits = next((n for n in range(1, 9) if f"{one:.{n}f}" != f"{other:.{n}f}"), 9)
            for at, days in zip(two, (one, other), strict=True):
                texts[at]["days_to_train"] = max(texts[at]["days_to_train"], f"{days:,.{digits}f}", key=len)
    return texts


def curve_table(points: Sequence[CurvePoint]) -> list[str]:
    """Write a curve as text, a line a point: its figures, its layout and the changes against the point before."""
    figures = [["", *(heading for heading, _ in CURVE_FIGURES.values())]]
    bend = proven_knee(points)
    each = zip(points, curve_figures(points), strict=True)
    figures += [["knee" if point is bend else "", *own.values()] for point, own in each]
    texts = ["layout, and what else changes", *("; ".join((point.layout, *point.changes)) for point in points)]
    return [f"{line}  {text}" for line, text in zip(aligned(figures).split("\n"), texts, strict=True)]


def curve_section(curve: Curve) -> str:
    """Write the curve that a plan holds as the last section of its summary: its points, knee and proven share."""
    if len(curve.points) < FEWEST_POINTS:
        other = "none of less money was found"
        if curve.none_below_usd is not None:
            other = f"no plan of at most {money(curve.none_below_usd)} keeps all rules (proven)"
        return f"CURVE      This plan alone; {other}."
    ended = "" if curve.stopped == "proved" else f" (ended by {ENDED_BY.get(curve.stopped, 'its limit')})"
    plans = f"{counted(len(curve.points), 'plan')}, {UNBEATEN}"
    lines = [*curve_table(curve.points), *curve_claims(curve)]
    return "\n".join([f"CURVE      What less money buys: {plans}{ended}", *(f"{'':{INDENT}}{line}" for line in lines)])


def curve_text(frontier: "Frontier", epsilon: float, width: int | None = None) -> str:
    """Write a curve as text: plans by capital with bounds, the knee or why there is none, and the proven share."""
    curve, name = frontier.curve, frontier.instance.name
    proven, ended = curve.stopped == "proved", f"was ended by {ENDED_BY.get(curve.stopped, 'its limit')}"
    if curve.points:
        so_far = "" if proven else " so far"
        lines = [f"{name}: {counted(len(curve.points), 'plan')}{so_far}, {UNBEATEN}"]
        lines += [*curve_table(curve.points), *curve_claims(curve)]
        if not proven:
            lines.append(f"The search {ended} before {_share(epsilon)} was proven.")
    elif proven:
        lines = [f"{name}: infeasible"]
        lines.append(f"No plan{_curve_box(curve)} keeps all rules (proven); `planner explain` says which rules.")
    else:
        lines = [f"{name}: no plan so far: the search {ended}; what plans there are is not known"]
    return fitted("\n".join(lines), width)


def curve_claims(curve: Curve) -> Iterator[str]:
    """Write what a curve says of its points and of other plans: the knee, proven share, and money for no plan."""
    # The knee is the plan behind which money saves few days; a curve without one may be as good as straight.
    points, bend = curve.points, proven_knee(curve.points)
    if bend is not None:
        where = f"{money(bend.capital_usd)}, {amount(bend.days_to_train)} days"
        # By how much twice the money divides the days on the way from one plan to another, on average.
        below, above = (
            2.0 ** (math.log(less.days_to_train / more.days_to_train) / math.log(more.capital_usd / less.capital_usd))
            for less, more in ((points[0], bend), (bend, points[-1]))
        )
        yield f"Knee: {where}; twice the money divides the days by {below:.2f} up to it, by {above:.2f} behind it."
    elif any(point.knee for point in points):
        yield "No knee is named: the bounds of the curve's ends and of its bend are not all proven."
    elif len(points) >= FEWEST_POINTS:
        products = [point.racks * point.days_to_train for point in points]
        low, high = min(products), max(products)
        straight = f"No knee: racks x days is constant within {100 * CONSTANT_PRODUCT:g} %."
        bent = f"No knee; racks x days lies between {amount(low)} and {amount(high)}."
        yield straight if high <= low * (1 + CONSTANT_PRODUCT) else bent
    if curve.epsilon is None:
        yield "Of other plans nothing is proven."
    else:
        yield f"For every plan{_curve_box(curve)} a row is within {_share(curve.epsilon)} in money and days (proven)."
    if curve.none_below_usd is not None:
        yield f"No plan of at most {money(curve.none_below_usd)} keeps all rules (proven)."


def _share(epsilon: float) -> str:
    return f"{rounded(100 * epsilon, 2, up=True):.6g} %"


def _curve_box(curve: Curve) -> str:
    money_limit = "" if curve.most_usd is None else f" of at most {money(curve.most_usd)}"
    if curve.least_usd is not None and curve.most_usd is not None:
        money_limit = f" of {money(curve.least_usd)} to {money(curve.most_usd)}"
    return money_limit + ("" if curve.slowest_days is None else f" in less than {amount(curve.slowest_days)} days")


# What a plan with an answer says, by the section that it is said of, "": of the whole.
STATED: tuple[tuple[str, Callable[..., Iterator[Statement]]], ...] = (
    *(("", verdict.verdict), ("cost", verdict.bill), ("model_choice", verdict.model_choice)),
    *(("sites", decisions.sites), ("wan", decisions.wan), ("layout", decisions.layout), ("pools", decisions.pools)),
    *(("fabric", decisions.fabric), ("transport", decisions.transport), ("placement", decisions.placement)),
    *(("", decisions.calendar), ("run", lambda plan, section: verdict.run(plan.instance, section))),
    *(("", verdict.limits), ("", verdict.implausible_inputs), ("", verdict.cautions)),
)
CERTIFIED: tuple[Topic, ...] = ("sites", "wan", "layout", "pools", "fabric", "placement")
INDENT = 11  # columns of a section's name
HANG = 2  # columns that the rest of a line is set in by
PIPE = 200  # columns of a table in a file or a pipe
PERCENT, TOGETHER = " %", "\u00a0%"  # a number and its unit are not parted
BARS = 36  # columns of the longest bar


def statements(plan: Plan) -> tuple[Statement, ...]:
    """Return all statements on a plan, section after section; of a question without a plan, why there is none."""
    alone, answered = isinstance(plan.instance, FabricInstance), plan.conflict is None
    stated = [Statement("fault", "verdict", line.strip(), True) for line in disagreement(plan.violations)]
    if not answered:
        stated += [*verdict.verdict(plan), *(() if alone else verdict.implausible_inputs(plan))]
    elif alone:
        stated += decisions.fabric_alone(plan)
    else:
        calls = [(part, (plan, getattr(plan, name)) if name else (plan,)) for name, part in STATED]
        stated += [fact for part, given in calls if None not in given for fact in part(*given)]
        stated += [proof_of(topic, getattr(plan, topic).certificate) for topic in CERTIFIED if getattr(plan, topic)]
    return tuple(sorted(stated, key=lambda statement: SECTIONS.index(statement.section)))


def by_section(reported: Iterable[Statement]) -> dict[str, list[str]]:
    """Return the texts of a plan's statements by the section of the summary in which they are read."""
    texts: dict[str, list[str]] = {}
    for statement in reported:
        texts.setdefault(statement.section, []).append(statement.text)
    return texts


def terminal_width() -> int | None:
    """Return the columns that a summary may have: COLUMNS, or the terminal's, 40 at least; None for a pipe."""
    given = os.environ.get("COLUMNS", "")
    known = sys.stdout.isatty() or (given.isdecimal() and int(given) > 0)
    return max(shutil.get_terminal_size().columns, 40) if known else None


def fitted(text: str, width: int | None) -> str:
    """Break the lines of a summary that are wider than `width` columns; None: leave them as they are."""
    lines: list[str] = []
    for line in text.split("\n"):
        if width is None or len(line) <= width:
            lines.append(line)
            continue
        words = line.lstrip()
        lead = line[: len(line) - len(words)]
        named = line[:INDENT].strip().isupper() and line[INDENT - 1 : INDENT] == " "
        rest = " " * ((INDENT if named else len(lead)) + HANG)
        wrap = textwrap.TextWrapper(width, initial_indent=lead, subsequent_indent=rest, break_on_hyphens=False)
        lines += [part.replace(TOGETHER, PERCENT) for part in wrap.wrap(words.replace(PERCENT, TOGETHER))]
    return "\n".join(lines)


def summary(plan: Plan, width: int | None = None, *, verbose: bool = False, section: str | None = None) -> str:
    """Write a plan's summary: verdict, purchase, each decision, days, money, limits and warnings.

    Written are all statements where `verbose`, those of one `section` if it is named, else those of the first screen;
    no line is longer than `width` columns. InputError: no section has that name.
    """
    reported = statements(plan)
    if section is not None:
        names = sorted({fact.topic for fact in reported} | {fact.section for fact in reported}, key=SECTIONS.index)
        names += ["curve"] if plan.curve is not None else []
        if section == "curve" and plan.curve is None:
            raise InputError("section: this plan has no curve; solve without --point, or use `planner frontier`")
        if section not in names:
            raise InputError(f"section: must be one of {', '.join(names)} (is {section!r})")
        chosen = [fact for fact in reported if section in (fact.topic, fact.section) and not fact.short]
    else:
        chosen = [statement for statement in reported if (not statement.short if verbose else statement.first)]
    head = f"{plan.instance.name}: {status_of(plan)}"
    if plan.layout is not None and plan.layout.certificate.solver == "none":  # nothing was searched
        head = f"{plan.instance.name}: your layout"
    bars = list[str]()
    if verbose or section == "days":
        # Days by part, each bar beginning where the one before ends.
        columns = BARS if width is None else max(8, min(BARS, width - 60))  # all but the bar of a line takes 60
        rows, end = decisions.days_by_part(plan), 0.0
        total = max((row.days for row in rows), default=0.0)
        texts = [(row, decisions.shown_days(total, row.days)) for row in rows]
        texts = [(row, text) for row, text in texts if float(text.replace(",", ""))]
        longest = max((len(row.name) for row, _ in texts), default=0)
        figures = max((len(text) for _, text in texts), default=0)
        for row, text in texts:
            start, end = (0.0, row.days) if row.is_sum else (end, end + row.days)
            low, high = (round(columns * days / total) for days in sorted((start, end)))
            low = min(low, columns - 1)
            bar = " " * low + ("=" if row.is_sum else "#") * max(high - low, 1)
            bars.append(f"{row.name:<{longest}}  {text:>{figures}} d  {percent(row.days / total):>7}  {bar}")
    faulty = [statement.text for statement in reported if statement.kind == "fault"]  # before all else
    body = lines_of((fact for fact in chosen if fact.kind != "fault"), bars)
    curve = [curve_section(plan.curve)] if plan.curve is not None and section in (None, "curve") else []
    return fitted("\n".join([*faulty, *([head] if section is None else []), *body, *curve]), width)


def lines_of(reported: Iterable[Statement], bars: Iterable[str] = ()) -> Iterator[str]:
    """Write a summary's statements with each section's name before its first, and bars of days; the verdict unnamed."""
    texts = by_section(reported)
    texts.setdefault("days", []).extend(bars)
    for name in sorted(texts, key=SECTIONS.index):
        for number, text in enumerate(texts[name]):
            yield f"  {text}" if name == "verdict" else f"{name.upper() if number == 0 else '':{INDENT}}{text}"
