"""A summary of a plan: its statements in reading order, section after section, as text of a terminal's width."""

import textwrap
from collections.abc import Callable, Iterable, Iterator

from planner.errors import InputError
from planner.instance.instance import FabricInstance
from planner.plan.plan import Curve, Plan
from planner.report import decisions, verdict
from planner.report.curve_text import ENDED_BY, FEWEST_POINTS, UNBEATEN, curve_claims, curve_table
from planner.report.decisions import SECTIONS, Statement, Topic, proof_of, status_of
from planner.units import counted, money, percent

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
    """Return all statements of a plan's summary, section after section; without a plan, why there is none."""
    alone, answered = isinstance(plan.instance, FabricInstance), plan.conflict is None
    stated = [Statement("fault", "verdict", line.strip(), True) for line in verdict.disagreement(plan.violations)]
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


def curve_section(curve: Curve) -> str:
    """Write the curve that a plan holds as the last section of its summary: its points, knee and proven share."""
    on_it = any(point.asked for point in curve.points)
    if len(curve.points) < FEWEST_POINTS and on_it:
        other = "none of less money was found"
        if curve.none_below_usd is not None:
            other = f"no plan of at most {money(curve.none_below_usd)} keeps all rules (proven)"
        return f"CURVE      This plan alone; {other}."
    ended = "" if curve.stopped == "proved" else f" (ended by {ENDED_BY.get(curve.stopped, 'its limit')})"
    plans = f"{counted(len(curve.points), 'plan')}, {UNBEATEN}"
    lines = [*curve_table(curve.points), *curve_claims(curve)]
    lines += [] if on_it else ["The plan pays all racks of its cluster, these only racks in use: one of them beats it."]
    return "\n".join([f"CURVE      What less money buys: {plans}{ended}", *(f"{'':{INDENT}}{line}" for line in lines)])


def lines_of(reported: Iterable[Statement], bars: Iterable[str] = ()) -> Iterator[str]:
    """Write a summary's statements with each section's name before its first, and bars of days; the verdict unnamed."""
    texts = by_section(reported)
    texts.setdefault("days", []).extend(bars)
    for name in sorted(texts, key=SECTIONS.index):
        for number, text in enumerate(texts[name]):
            yield f"  {text}" if name == "verdict" else f"{name.upper() if number == 0 else '':{INDENT}}{text}"
