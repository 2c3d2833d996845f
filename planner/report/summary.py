"""A plan's statements as text: on one screen, at length, or one section whole."""

from collections.abc import Iterable, Iterator

from planner.errors import InputError
from planner.plan.plan import Plan
from planner.report.day_bars import day_bars
from planner.report.fit import INDENT, fitted
from planner.report.statements.of_plan import statements
from planner.report.statements.statement import SECTIONS, Statement

BARS = 36  # columns of the longest bar
BESIDE_BAR = 60  # columns of a line with a bar that are not the bar's


def summary(plan: Plan, width: int | None = None, *, verbose: bool = False, section: str | None = None) -> str:
    """Write a plan: verdict, purchase, each decision, days, money, limits and warnings.

    Parameters
    ----------
    plan
        To write.
    width
        Columns of the longest line; None: no line is broken.
    verbose
        All statements; else those of the first screen.
    section
        All statements of one section alone, by its name.

    Raises
    ------
    InputError
        No section has that name.
    """
    reported = statements(plan)
    if section is not None:
        names = sorted({x.topic for x in reported} | {x.section for x in reported}, key=SECTIONS.index)
        if section not in names:
            raise InputError(f"section: must be one of {', '.join(names)} (is {section!r})")
        chosen = [x for x in reported if section in (x.topic, x.section) and not x.short]
    else:
        chosen = [x for x in reported if (not x.short if verbose else x.first)]
    head = f"{plan.instance.name}: {plan.status}" + ("" if plan.stopped == "proved" else f" ({plan.stopped})")
    bars = list(day_bars(plan, BARS if width is None else max(8, min(BARS, width - BESIDE_BAR))))
    faults = [x.text for x in reported if x.kind == "fault"]  # before all else
    chosen = [x for x in chosen if x.kind != "fault"]
    body = lines_of(chosen, bars if verbose or section == "days" else ())
    lines = [*faults, *([head] if section is None else []), *body]
    return fitted("\n".join(lines), width)


def lines_of(reported: Iterable[Statement], day_bars: Iterable[str] = ()) -> Iterator[str]:
    """Write statements with the name of their section before its first; the verdict has none."""
    by_section: dict[str, list[str]] = {}
    for x in reported:
        by_section.setdefault(x.section, []).append(x.text)
    if bars := list(day_bars):
        by_section.setdefault("days", []).extend(bars)
    for name in sorted(by_section, key=SECTIONS.index):
        for n, text in enumerate(by_section[name]):
            yield f"  {text}" if name == "verdict" else f"{name.upper() if n == 0 else '':{INDENT}}{text}"
