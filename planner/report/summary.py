"""A plan's statements in the order in which they are read, and as text: on one screen, at length, or one section whole.

Lines fit the width of a terminal: long ones are broken between words, the rest of them set in.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from planner.errors import InputError
from planner.instance.instance import FabricInstance
from planner.plan.plan import Plan
from planner.report.statements.calendar import calendar, day_bars
from planner.report.statements.cautions import cautions, implausible_inputs, limits
from planner.report.statements.curve import curve_section
from planner.report.statements.fabric_alone import (
    chosen_fabric,
    fabric_cautions,
    fabric_price,
    fabric_proof,
    fabric_verdict,
    other_kinds,
)
from planner.report.statements.money import capital, run
from planner.report.statements.network import fabric, placement, transport
from planner.report.statements.sites import purchase, sites, wan
from planner.report.statements.statement import SECTIONS, Statement, Topic, proof_of
from planner.report.statements.training import layout, pools
from planner.report.statements.verdict import faults, model_choice, verdict

STATED = (
    *(faults, verdict, purchase, model_choice, sites, wan, layout, pools, fabric, transport, placement),
    *(calendar, capital, run, limits, implausible_inputs, cautions),
)
FABRIC_ALONE = faults, fabric_verdict, chosen_fabric, fabric_price, other_kinds, fabric_proof, fabric_cautions
CERTIFIED: tuple[Topic, ...] = ("sites", "wan", "layout", "pools", "fabric", "placement")
INDENT = 11  # columns of a section's name
HANG = 2  # columns that the rest of a line is set in by
LEAST = 40  # columns that are taken to be there
PIPE = 200  # columns of a table in a file or a pipe
PERCENT, TOGETHER = " %", "\u00a0%"  # a number and its unit are not parted
BARS = 36  # columns of the longest bar
BESIDE_BAR = 60  # columns of a line with a bar that are not the bar's


def statements(plan: Plan) -> tuple[Statement, ...]:
    """Return all that a plan says, section after section; of a question without an answer why there is none."""
    if isinstance(plan.instance, FabricInstance):
        parts = FABRIC_ALONE if plan.conflict is None else (faults, verdict)
        stated = [x for part in parts for x in part(plan)]
    elif plan.conflict is not None:
        stated = [x for part in (faults, verdict, implausible_inputs) for x in part(plan)]
    else:
        stated = [x for part in STATED for x in part(plan)]
        stated += [proof_of(topic, getattr(plan, topic).certificate) for topic in CERTIFIED if getattr(plan, topic)]
    return tuple(sorted(stated, key=lambda x: SECTIONS.index(x.section)))


def by_section(
    reported: Iterable[Statement], show: Callable[[Statement], str] = attrgetter("text")
) -> dict[str, list[str]]:
    """Return the texts of statements by the section in which they are read."""
    texts: dict[str, list[str]] = {}
    for x in reported:
        texts.setdefault(x.section, []).append(show(x))
    return texts


def terminal_width() -> int | None:
    """Return the columns that output may have: COLUMNS, or the terminal's; None where it goes to a file or a pipe."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return max(int(given), LEAST)
    return max(shutil.get_terminal_size().columns, LEAST) if sys.stdout.isatty() else None


def fitted(text: str, width: int | None) -> str:
    """Break lines that are wider; None: leave them as they are."""
    return text if width is None else "\n".join(_broken(line, width) for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    text = line.lstrip()
    lead = line[: len(line) - len(text)]
    named = line[:INDENT].strip().isupper() and line[INDENT - 1 : INDENT] == " "
    rest = " " * ((INDENT if named else len(lead)) + HANG)
    text = text.replace(PERCENT, TOGETHER)
    lines = textwrap.wrap(text, width, initial_indent=lead, subsequent_indent=rest, break_on_hyphens=False)
    return "\n".join(lines).replace(TOGETHER, PERCENT)


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
        names += ["curve"] if plan.curve is not None else []
        if section not in names:
            raise InputError(f"section: must be one of {', '.join(names)} (is {section!r})")
        chosen = [x for x in reported if section in (x.topic, x.section) and not x.short]
    else:
        chosen = [x for x in reported if (not x.short if verbose else x.first)]
    head = f"{plan.instance.name}: {plan.status}" + ("" if plan.stopped == "proved" else f" ({plan.stopped})")
    if plan.layout is not None and plan.layout.certificate.solver == "none":  # nothing was searched
        head = f"{plan.instance.name}: your layout"
    bars = list(day_bars(plan, BARS if width is None else max(8, min(BARS, width - BESIDE_BAR))))
    faulty = [x.text for x in reported if x.kind == "fault"]  # before all else
    body = lines_of((x for x in chosen if x.kind != "fault"), bars if verbose or section == "days" else ())
    curve = [curve_section(plan.curve)] if plan.curve is not None and section in (None, "curve") else []
    return fitted("\n".join([*faulty, *([head] if section is None else []), *body, *curve]), width)


def lines_of(reported: Iterable[Statement], bars: Iterable[str] = ()) -> Iterator[str]:
    """Write statements with the name of their section before its first, and bars of days; the verdict has no name."""
    texts = by_section(reported)
    texts.setdefault("days", []).extend(bars)
    for name in sorted(texts, key=SECTIONS.index):
        for n, text in enumerate(texts[name]):
            yield f"  {text}" if name == "verdict" else f"{name.upper() if n == 0 else '':{INDENT}}{text}"
